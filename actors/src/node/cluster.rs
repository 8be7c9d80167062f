//! What a node knows of the others: the ways there, who guards them, and what the links are started with.
//!
//! A node alone has doors too, all of them its own.

use crate::client_loop::NodeWay;
use crate::clock::{Clock, Lives};
use crate::doors::Doors;
use crate::gateway::LinkSeats;
use crate::links::{Guests, LinkChairs, LinksArgs, ListenerArgs, RemoteSpec, Way};
use crate::seat::Chair;
use crate::spec::{Cluster, NodeSpec};
use crate::subserver::Chairs;
use std::sync::Arc;
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::Reach;
use tokenrouter_transport::{Endpoint, Hello};
use tokio::sync::watch;

/// The other nodes, as this one is started.
pub(super) struct Others {
    /// The chair of the supervisor, and what it is started with.
    pub(super) links: Option<(Chair<()>, LinksArgs)>,
    pub(super) doors: Doors,
    /// How many nodes there are.
    pub(super) nodes: usize,
    pub(super) ways: Vec<NodeWay>,
}

impl Others {
    /// What `spec` says of them, for subservers on these chairs.
    pub(super) fn new(spec: &NodeSpec, chairs: &[Chairs], clock: Clock, process: u64) -> Self {
        let local = chairs.iter().map(|c| c.peer.seat()).collect();
        let Some(cluster) = &spec.cluster else {
            let places = vec![0; chairs.len()].into();
            let doors = Doors { here: 0, places, local, remotes: Vec::new() };
            return Self { links: None, doors, nodes: 1, ways: Vec::new() };
        };
        let places: Arc<[u8]> = cluster.places.clone().into();
        let remotes: Vec<RemoteSpec> = (0..cluster.nodes.len() as u8)
            .filter(|&node| node != cluster.here)
            .map(|node| remote(spec, cluster, chairs, &places, (node, clock)))
            .collect();
        let seats = LinkChairs {
            listener: Chair::new(),
            remotes: remotes.iter().map(|_| Chair::new()).collect(),
        };
        let mut doors = Doors { here: cluster.here, places, local, remotes: Vec::new() };
        doors.remotes.resize_with(cluster.nodes.len(), || None);
        for (remote, chair) in remotes.iter().zip(&seats.remotes) {
            doors.remotes[usize::from(remote.node)] = Some(chair.seat());
        }
        let way = |remote: &RemoteSpec| NodeWay {
            models: Arc::clone(&remote.behind),
            way: remote.way.subscribe(),
        };
        let ways = remotes.iter().map(way).collect();
        let listener = listener(cluster, &remotes, &seats);
        let args = LinksArgs {
            listener,
            remotes,
            lives: Lives::new(process),
            chairs: seats,
            restarts: spec.limits.restarts,
            clock,
        };
        Self { links: Some((Chair::new(), args)), doors, nodes: cluster.nodes.len(), ways }
    }

    /// What the people's side sees of the links.
    pub(super) fn seats(&self) -> Option<LinkSeats> {
        let (chair, args) = self.links.as_ref()?;
        let remotes = args.remotes.iter().zip(&args.chairs.remotes);
        let remotes = remotes.map(|(spec, chair)| (chair.seat(), spec.way.subscribe()));
        Some(LinkSeats {
            links: chair.seat(),
            listener: args.chairs.listener.seat(),
            remotes: remotes.collect(),
        })
    }

    /// The socket, where there is one.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        self.links.as_ref().map(|(_, args)| args.listener.endpoint.clone())
    }
}

fn remote(
    spec: &NodeSpec,
    cluster: &Cluster,
    chairs: &[Chairs],
    places: &Arc<[u8]>,
    (node, clock): (u8, Clock),
) -> RemoteSpec {
    let peer = &cluster.nodes[usize::from(node)];
    let models = (0..chairs.len()).filter(|&m| places[m] == node).map(|m| ModelIx(m as u8));
    RemoteSpec {
        node,
        name: peer.name.clone(),
        address: peer.address,
        behind: models.collect(),
        here: cluster.here,
        here_name: cluster.nodes[usize::from(cluster.here)].name.clone(),
        topology: cluster.topology,
        dials: cluster.here < node,
        endpoint: cluster.endpoint.clone(),
        doors: chairs.iter().map(|c| c.peer.seat()).collect(),
        clients: chairs.iter().map(|c| c.client.seat()).collect(),
        decodes: chairs.iter().map(|c| c.decode.seat()).collect(),
        places: Arc::clone(places),
        way: Arc::new(watch::Sender::new(Way { reach: Reach::Away, met: false })),
        grace: spec.limits.grace,
        clock,
        faults: spec.faults.clone(),
    }
}

fn listener(cluster: &Cluster, remotes: &[RemoteSpec], chairs: &LinkChairs) -> ListenerArgs {
    let hello = Hello {
        node: cluster.nodes[usize::from(cluster.here)].name.clone(),
        topology: cluster.topology,
        life: 0,
        knows: 0,
        heard: [0; 2],
        after: [0; 2],
    };
    let remotes = remotes.iter().zip(&chairs.remotes);
    let remotes = remotes.map(|(spec, chair)| (spec.name.clone(), chair.seat())).collect();
    let guests = Arc::new(Guests { hello, remotes });
    ListenerArgs { endpoint: cluster.endpoint.clone(), guests }
}
