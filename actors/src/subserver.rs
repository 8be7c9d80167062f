//! Subserver: supervisor of the three loops of one model.
//! Parent: Node.  Children: ClientLoop, PeerLoop, and DecodeLoop where the model lives here.  Talks to: all ClientLoops, when a door is new or the model is lost.
//! After a restart: its three loops are new as well, as if each had died alone.
//!
//! One-for-one: a loop that dies is replaced on its seat, within a budget. Only a death without a completed step since
//! the last one counts, and none that somebody asked for. Beyond the budget the requests that wait for the model fail, and the Node is told.

use crate::client_loop::{ClientArgs, ClientLoop, ClientMsg, NodeWay};
use crate::clock::{Clock, Lives};
use crate::decode_loop::{DecodeArgs, DecodeLoop, DecodeMsg, homes};
use crate::doors::Doors;
use crate::faults::Faults;
use crate::pacer::PacerMsg;
use crate::peer_loop::{PeerArgs, PeerLoop, PeerMsg};
use crate::seat::{Address, Chair, Death, Seat, Waiting};
use crate::spec::Limits;
use crate::tuner::TunerMsg;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokenrouter_engine::Engine;
use tokenrouter_policies::{ModelIx, Tally, Thresholds};
use tokenrouter_protocol::{BatchLimits, HomeConfig, HomeId, HostConfig, Route};
use tokio::sync::watch;

/// What it is started with. Cloned for every restart.
#[derive(Clone)]
pub(crate) struct SubserverArgs {
    pub(crate) model: ModelIx,
    pub(crate) name: String,
    /// `None` where the model lives on another node: then only its home is here.
    pub(crate) engine: Option<Arc<Engine>>,
    pub(crate) batch: BatchLimits,
    pub(crate) routes: Arc<[Route]>,
    pub(crate) limits: Limits,
    pub(crate) through_wire: bool,
    pub(crate) faults: Faults,
    pub(crate) clock: Clock,
    /// Who lets it launch; nobody where it launches by itself.
    pub(crate) pacer: Option<Seat<PacerMsg>>,
    /// Who asks what was seen, where anybody does.
    pub(crate) tuner: Option<Seat<TunerMsg>>,
    /// The thresholds that hold now.
    pub(crate) thresholds: watch::Receiver<Thresholds>,
    /// The lives of the model and of the home, counted by Node.
    pub(crate) model_lives: Lives,
    pub(crate) home_lives: Lives,
    pub(crate) chairs: Chairs,
    /// The ways to every subserver.
    pub(crate) doors: Doors,
    /// The homes of this node, by model.
    pub(crate) clients: Vec<Seat<ClientMsg>>,
    /// How many nodes there are, and the ways to the others.
    pub(crate) nodes: usize,
    pub(crate) ways: Vec<NodeWay>,
}

/// The chairs of one model's actors.
#[derive(Clone, Debug)]
pub(crate) struct Chairs {
    pub(crate) subserver: Chair<()>,
    pub(crate) client: Chair<ClientMsg>,
    pub(crate) decode: Chair<DecodeMsg>,
    pub(crate) peer: Chair<PeerMsg>,
}

/// The model cannot be kept alive.
#[derive(Debug, thiserror::Error)]
#[error("model `{model}` cannot be kept alive: its {role} loop died too often, last of: {reason}")]
pub(crate) struct Exhausted {
    model: String,
    role: &'static str,
    reason: String,
}

/// Its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Client,
    Decode,
    Peer,
}

/// Grants in a row that only the silence of owners asked for; after silence on the last the request fails.
const SILENT_GRANTS_MAX: u32 = 4;

pub(crate) struct Subserver;

pub(crate) struct State {
    args: SubserverArgs,
    /// Deaths of each role, in the order of [`Role`].
    tallies: [Tally; 3],
    progress: Arc<AtomicBool>,
}

impl Actor for Subserver {
    type Msg = ();
    type State = State;
    type Arguments = SubserverArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<()>,
        args: SubserverArgs,
    ) -> Result<State, ActorProcessingErr> {
        let tallies = std::array::from_fn(|_| Tally::new(args.limits.restarts));
        let state = State { args, tallies, progress: Arc::new(AtomicBool::new(false)) };
        for role in [Role::Peer, Role::Client, Role::Decode] {
            state.start(role, &myself).await?;
        }
        // Whatever an earlier life of these loops had in its mailboxes is lost.
        state.say_door_lost();
        Ok(state)
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<()>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some(death) = Death::of(event) else { return Ok(()) };
        let Some(role) = state.role_of(death.id) else { return Ok(()) };
        tracing::warn!(
            model = state.args.name,
            role = role.name(),
            reason = death.reason,
            "a loop died"
        );
        state.bury(role, death)?;
        state.start(role, &myself).await?;
        if role == Role::Peer {
            state.say_door_lost();
        }
        Ok(())
    }
}

impl State {
    /// Empties the seat of the dead, unless too many died there.
    fn bury(&mut self, role: Role, death: Death) -> Result<(), Exhausted> {
        let chairs = &self.args.chairs;
        match role {
            Role::Client => chairs.client.leave(),
            Role::Decode => chairs.decode.leave(),
            Role::Peer => chairs.peer.leave(),
        }
        let Death { reason, killed, .. } = death;
        if killed || self.progress.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        if self.tallies[role as usize].allow(self.args.clock.now()) {
            return Ok(());
        }
        let (model, lost) = (self.args.model, reason.clone());
        for client in &self.args.clients {
            client.cast(ClientMsg::ModelLost { model, reason: lost.clone() });
        }
        Err(Exhausted { model: self.args.name.clone(), role: role.name(), reason })
    }

    async fn start(&self, role: Role, myself: &ActorRef<()>) -> Result<(), ActorProcessingErr> {
        let (chairs, cell, waiting) = (&self.args.chairs, myself.get_cell(), Waiting::default());
        match role {
            Role::Client => {
                let args = self.client(waiting.clone());
                let (actor, _) = ClientLoop::spawn_linked(None, ClientLoop, args, cell).await?;
                chairs.client.take(Address::new(actor, waiting));
            }
            Role::Decode => {
                let Some(args) = self.decode(waiting.clone()) else { return Ok(()) };
                let (actor, _) = DecodeLoop::spawn_linked(None, DecodeLoop, args, cell).await?;
                chairs.decode.take(Address::new(actor, waiting));
            }
            Role::Peer => {
                let args = self.peer(waiting.clone());
                let (actor, _) = PeerLoop::spawn_linked(None, PeerLoop, args, cell).await?;
                chairs.peer.take(Address::new(actor, waiting));
            }
        }
        Ok(())
    }

    fn client(&self, waiting: Waiting) -> ClientArgs {
        let args = &self.args;
        let home = HomeConfig {
            home: HomeId { node: args.doors.here, model: args.model },
            life: args.home_lives.next(),
            routes: Arc::clone(&args.routes),
            requests_max: args.limits.requests,
            stall_timeout: args.limits.stall_timeout,
            grants_max: SILENT_GRANTS_MAX,
            finish_repeat: args.limits.grace / 4,
            adopt_grace: args.limits.grace,
        };
        ClientArgs {
            home,
            decode: args.engine.is_some().then(|| args.chairs.decode.seat()),
            peer: args.chairs.peer.seat(),
            ways: args.ways.clone(),
            clock: args.clock,
            waiting,
            faults: args.faults.clone(),
        }
    }

    /// `None` where the model lives elsewhere.
    fn decode(&self, waiting: Waiting) -> Option<DecodeArgs> {
        let args = &self.args;
        let engine = args.engine.as_ref()?;
        let host = HostConfig {
            model: args.model,
            life: args.model_lives.next(),
            routes: Arc::clone(&args.routes),
            pool: engine.pool(),
            batch: BatchLimits {
                thresholds: args.thresholds.borrow().clone(),
                ..args.batch.clone()
            },
            paced: args.pacer.is_some(),
            grace: args.limits.grace,
        };
        Some(DecodeArgs {
            host,
            engine: Arc::clone(engine),
            client: args.chairs.client.seat(),
            peer: args.chairs.peer.seat(),
            pacer: args.pacer.clone(),
            tuner: args.tuner.clone(),
            homes: homes(args.nodes, args.clients.len()),
            here: args.doors.here,
            clock: args.clock,
            progress: Arc::clone(&self.progress),
            waiting,
            faults: args.faults.clone(),
        })
    }

    fn peer(&self, waiting: Waiting) -> PeerArgs {
        PeerArgs {
            model: self.args.model,
            decode: self.args.chairs.decode.seat(),
            client: self.args.chairs.client.seat(),
            doors: self.args.doors.clone(),
            through_wire: self.args.through_wire,
            waiting,
            faults: self.args.faults.clone(),
        }
    }

    /// Words to this model passed its door, and so did the words of its home to the others.
    fn say_door_lost(&self) {
        let Self { args, .. } = self;
        let here = args.engine.is_some();
        for (index, client) in args.clients.iter().enumerate() {
            let models = (0..args.clients.len()).map(|m| ModelIx(m as u8));
            let lost = match ModelIx(index as u8) == args.model {
                true => models.filter(|m| !here || *m != args.model).collect(),
                false => models.filter(|m| here && *m == args.model).collect(),
            };
            client.cast(ClientMsg::DoorLost(lost));
        }
        args.chairs.decode.seat().cast(DecodeMsg::DoorLost);
    }

    fn role_of(&self, id: ActorId) -> Option<Role> {
        let chairs = &self.args.chairs;
        let sits = [
            (Role::Client, chairs.client.is(id)),
            (Role::Decode, chairs.decode.is(id)),
            (Role::Peer, chairs.peer.is(id)),
        ];
        sits.into_iter().find(|(_, sits)| *sits).map(|(role, _)| role)
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Decode => "decode",
            Self::Peer => "peer",
        }
    }
}
