//! PeerLoop: the only door of a subserver to the others, both ways.
//! Parent: Subserver.  Children: none.  Talks to: the PeerLoops of other subservers, the Remotes of other nodes, its own ClientLoop and DecodeLoop.
//! After a restart: empty. What lay in its mailbox is lost; homes grant again every turn that passed it.
//!
//! It never looks into a parcel further than the address.

use crate::admin::Target;
use crate::client_loop::ClientMsg;
use crate::decode_loop::DecodeMsg;
use crate::doors::Doors;
use crate::faults::{About, Faults, Planned, Stage, parcel_words};
use crate::seat::{Seat, Waiting};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::Parcel;
use tokenrouter_transport::wire;

/// What a PeerLoop is told.
#[derive(Debug)]
pub(crate) enum PeerMsg {
    /// A sibling wants this brought to another subserver.
    Send(Parcel),
    /// Another door hands this over for a sibling.
    Receive(Parcel),
}

/// What it is started with.
#[derive(Debug)]
pub(crate) struct PeerArgs {
    pub(crate) model: ModelIx,
    pub(crate) decode: Seat<DecodeMsg>,
    pub(crate) client: Seat<ClientMsg>,
    /// The ways to every other subserver.
    pub(crate) doors: Doors,
    pub(crate) through_wire: bool,
    pub(crate) waiting: Waiting,
    pub(crate) faults: Faults,
}

pub(crate) struct PeerLoop;

impl Actor for PeerLoop {
    type Msg = PeerMsg;
    type State = PeerArgs;
    type Arguments = PeerArgs;

    async fn pre_start(
        &self,
        _myself: ActorRef<PeerMsg>,
        args: PeerArgs,
    ) -> Result<PeerArgs, ActorProcessingErr> {
        Ok(args)
    }

    async fn handle(
        &self,
        _myself: ActorRef<PeerMsg>,
        message: PeerMsg,
        state: &mut PeerArgs,
    ) -> Result<(), ActorProcessingErr> {
        state.waiting.took();
        let about = state.faults.about(|about| message.name(about));
        state.at(Stage::Heard, &about)?;
        match message {
            PeerMsg::Send(parcel) => {
                let parcel = if state.through_wire { through_wire(&parcel)? } else { parcel };
                state.doors.pass(parcel);
            }
            PeerMsg::Receive(Parcel::ToModel { says, .. }) => {
                state.decode.cast(DecodeMsg::Home(says));
            }
            PeerMsg::Receive(Parcel::ToHome { says, .. }) => {
                state.client.cast(ClientMsg::Model(says));
            }
        }
        Ok(state.at(Stage::Said, &about)?)
    }
}

impl PeerArgs {
    fn at(&self, stage: Stage, about: &About) -> Result<(), Planned> {
        self.faults.at(Target::Peer(self.model), stage, about)
    }
}

impl PeerMsg {
    /// Names it for a plan of faults.
    fn name(&self, about: &mut About) {
        let (Self::Send(parcel) | Self::Receive(parcel)) = self;
        parcel_words(parcel, about);
    }
}

fn through_wire(parcel: &Parcel) -> Result<Parcel, wire::Error> {
    wire::decode(&wire::encode(parcel)?)
}
