//! Doors: which way a parcel goes, to a subserver of this node or to the proxy of another.
//!
//! Every node has a subserver for every model: the home of its own requests, and where the model lives the model too.

use crate::links::RemoteMsg;
use crate::peer_loop::PeerMsg;
use crate::seat::Seat;
use std::sync::Arc;
use tokenrouter_protocol::Parcel;

/// The ways to every subserver of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    /// This node.
    pub(crate) here: u8,
    /// The node of each model.
    pub(crate) places: Arc<[u8]>,
    /// The door of every model's subserver on this node.
    pub(crate) local: Vec<Seat<PeerMsg>>,
    /// The proxy of every node; none for this one.
    pub(crate) remotes: Vec<Option<Seat<RemoteMsg>>>,
}

impl Doors {
    /// Hands a parcel over. What is for nobody is lost.
    pub(crate) fn pass(&self, parcel: Parcel) {
        let node = match &parcel {
            Parcel::ToModel { to, .. } => self.places.get(to.index()).copied(),
            Parcel::ToHome { to, .. } => Some(to.node),
        };
        let Some(node) = node else { return };
        if node == self.here {
            if let Some(door) = self.local.get(parcel.subserver().index()) {
                door.cast(PeerMsg::Receive(parcel));
            }
        } else if let Some(Some(remote)) = self.remotes.get(usize::from(node)) {
            remote.cast(RemoteMsg::Send(parcel));
        }
    }
}
