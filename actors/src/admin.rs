//! The supervision tree from outside: who lives, what waits for whom, and a hand to kill with.
//!
//! It changes nothing but by killing, and whoever is killed is replaced by its parent.

use crate::client_loop::ClientView;
use crate::decode_loop::DecodeView;
use crate::gateway::{Inner, Model};
use crate::links::LinkView;
use crate::seat::{Seat, SeatView};
use std::sync::Arc;
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::PoolSize;

/// An actor, by its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// The home of a model.
    Client(ModelIx),
    /// The scheduler of a model.
    Decode(ModelIx),
    /// The door of a model.
    Peer(ModelIx),
    /// The supervisor of a model, and with it its three loops.
    Subserver(ModelIx),
    /// The accept loop.
    Http,
    /// Whoever lets models run in rounds.
    Pacer,
    /// Whoever changes thresholds.
    Tuner,
    /// The supervisor of the links to other nodes.
    Links,
    /// Whoever answers nodes that call.
    Listener,
    /// The proxy of another node, by its place in the sorted list of other nodes.
    Remote(usize),
}

/// A way to look at the tree and to kill in it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admin {
    inner: Arc<Inner>,
}

/// The tree at one moment.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The subservers, by model.
    pub subservers: Vec<Branch>,
    /// The accept loop.
    pub http: SeatView,
    /// Whoever lets models run in rounds, where they do.
    pub pacer: Option<SeatView>,
    /// Whoever changes thresholds, where somebody does.
    pub tuner: Option<SeatView>,
    /// What speaks with other nodes, where there are others.
    pub links: Option<LinksBranch>,
}

/// What speaks with other nodes.
#[derive(Clone, Debug)]
pub struct LinksBranch {
    /// The supervisor.
    pub links: SeatView,
    /// Whoever answers nodes that call.
    pub listener: SeatView,
    /// The proxies of other nodes, and what they show of themselves: nothing while one is being restarted.
    pub remotes: Vec<(SeatView, Option<LinkView>)>,
}

/// A subserver and its loops.
#[derive(Clone, Debug)]
pub struct Branch {
    /// The supervisor.
    pub subserver: SeatView,
    /// Its ClientLoop.
    pub client: SeatView,
    /// Its DecodeLoop, where the model lives on this node.
    pub decode: Option<SeatView>,
    /// Its PeerLoop.
    pub peer: SeatView,
    /// What the loops show of themselves.
    pub loops: ModelView,
}

/// What the loops of one model show of themselves. `None` where a loop is being restarted.
#[derive(Clone, Copy, Debug)]
pub struct ModelView {
    /// The pool, where the model lives on this node.
    pub pool: Option<PoolSize>,
    /// The home side.
    pub client: Option<ClientView>,
    /// The model side.
    pub decode: Option<DecodeView>,
}

impl Admin {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// Looks at every seat, and asks every loop.
    pub async fn tree(&self) -> Tree {
        let mut subservers = Vec::new();
        for model in &self.inner.models {
            let Model { subserver, client, decode, peer, .. } = model;
            // First how many messages wait, then one more.
            let (subserver, peer) = (subserver.view(), peer.view());
            let (client, decode) = (client.view(), model.pool.map(|_| decode.view()));
            subservers.push(Branch { subserver, client, decode, peer, loops: model.view().await });
        }
        let pacer = self.inner.pacer.as_ref().map(Seat::view);
        let tuner = self.inner.tuner.as_ref().map(Seat::view);
        let links = match &self.inner.links {
            Some(links) => Some(links.view().await),
            None => None,
        };
        Tree { subservers, http: self.inner.http.view(), pacer, tuner, links }
    }

    /// Kills an actor in the middle of whatever it does; whether there was one. It counts against no budget.
    pub fn kill(&self, target: Target) -> bool {
        let model = |model: ModelIx| self.inner.models.get(model.index());
        let links = self.inner.links.as_ref();
        match target {
            Target::Client(ix) => model(ix).is_some_and(|model| model.client.kill()),
            Target::Decode(ix) => model(ix).is_some_and(|model| model.decode.kill()),
            Target::Peer(ix) => model(ix).is_some_and(|model| model.peer.kill()),
            Target::Subserver(ix) => model(ix).is_some_and(|model| model.subserver.kill()),
            Target::Http => self.inner.http.kill(),
            Target::Tuner => self.inner.tuner.as_ref().is_some_and(Seat::kill),
            Target::Pacer => self.inner.pacer.as_ref().is_some_and(Seat::kill),
            Target::Links => links.is_some_and(|links| links.links.kill()),
            Target::Listener => links.is_some_and(|links| links.listener.kill()),
            Target::Remote(place) => links.is_some_and(|links| links.kill(place)),
        }
    }
}
