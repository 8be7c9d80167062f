//! ClientLoop: the home of the requests that enter at one model. It commits, moves and finishes them.
//! Parent: Subserver.  Children: none.  Talks to: sessions, its own DecodeLoop and PeerLoop.
//! After a restart: a new life of the home without requests. Each session brings its own back, from the copy it keeps.
//!
//! It never makes JSON and never waits: sessions get tokens and text through channels of their own, and all thinking
//! happens in [`tokenrouter_protocol::Home`].

use crate::admin::Target;
use crate::clock::Clock;
use crate::decode_loop::DecodeMsg;
use crate::faults::{About, Faults, Planned, Stage, home_words, model_words};
use crate::gateway::Word;
use crate::links::Way;
use crate::peer_loop::PeerMsg;
use crate::seat::{Address, Attached, Seat, Waiting};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::home::{Counters, Effect};
use tokenrouter_protocol::{
    Adoption, Failure, Home, HomeConfig, HomeSays, Life, ModelSays, Parcel, Request, RequestId,
};
use tokio::sync::{mpsc, watch};

/// What a ClientLoop is told.
#[derive(Debug)]
pub(crate) enum ClientMsg {
    /// A session wants a choice generated; what comes of it goes to `session`.
    Open {
        request: Box<Request>,
        session: mpsc::UnboundedSender<Word>,
        reply: RpcReplyPort<Result<RequestId, Failure>>,
    },
    /// A session brings back a choice that an earlier life of this home had.
    Adopt { rid: RequestId, copy: Box<Adoption>, session: mpsc::UnboundedSender<Word> },
    /// A session is gone.
    Cancel(RequestId),
    /// A model speaks to this home.
    Model(ModelSays),
    /// Words on their way to or from these models were lost.
    DoorLost(SmallVec<[ModelIx; 4]>),
    /// The way to some node has changed: look.
    Ways,
    /// This model cannot be kept alive.
    ModelLost { model: ModelIx, reason: String },
    /// Time has passed.
    Tick,
    /// Show yourself.
    Inspect(RpcReplyPort<ClientView>),
}

/// What it shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientView {
    /// The life of the home.
    pub life: Life,
    /// Requests in flight.
    pub live: usize,
    /// Finished requests that some model has not closed yet.
    pub closing: usize,
    /// How often what happened.
    pub counters: Counters,
}

/// What it is started with.
#[derive(Debug)]
pub(crate) struct ClientArgs {
    pub(crate) home: HomeConfig,
    /// The model of the same subserver; `None` where that lives on another node.
    pub(crate) decode: Option<Seat<DecodeMsg>>,
    pub(crate) peer: Seat<PeerMsg>,
    /// The ways to other nodes, with the models that live there.
    pub(crate) ways: Vec<NodeWay>,
    pub(crate) clock: Clock,
    pub(crate) waiting: Waiting,
    pub(crate) faults: Faults,
}

/// The way to another node.
#[derive(Clone, Debug)]
pub(crate) struct NodeWay {
    pub(crate) models: Arc<[ModelIx]>,
    pub(crate) way: watch::Receiver<Way>,
}

pub(crate) struct ClientLoop;

pub(crate) struct State {
    core: Home,
    effects: Vec<Effect>,
    sessions: HashMap<RequestId, mpsc::UnboundedSender<Word>>,
    args: ClientArgs,
    _ticks: Attached,
}

impl Actor for ClientLoop {
    type Msg = ClientMsg;
    type State = State;
    type Arguments = ClientArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<ClientMsg>,
        args: ClientArgs,
    ) -> Result<State, ActorProcessingErr> {
        let period = (args.home.stall_timeout / 8).max(Duration::from_millis(10));
        let ticks = Address::new(myself, args.waiting.clone()).every(period, || ClientMsg::Tick);
        let core = Home::new(args.home.clone());
        let sessions = HashMap::new();
        let mut state = State { core, effects: Vec::new(), sessions, args, _ticks: ticks };
        // Without requests nothing comes of it.
        state.ways(state.args.clock.now());
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<ClientMsg>,
        message: ClientMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.args.waiting.took();
        let now = state.args.clock.now();
        let about = state.args.faults.about(|about| message.name(about));
        state.args.at(Stage::Heard, &about)?;
        match message {
            ClientMsg::Open { request, session, reply } => {
                state.open(now, *request, session, reply);
            }
            ClientMsg::Adopt { rid, copy, session } => {
                state.sessions.insert(rid, session);
                state.core.adopt(now, rid, *copy, &mut state.effects);
            }
            ClientMsg::Cancel(rid) => {
                if state.sessions.remove(&rid).is_some() {
                    state.core.cancel(now, rid, &mut state.effects);
                }
            }
            ClientMsg::Model(says) => state.core.hear(now, says, &mut state.effects),
            ClientMsg::DoorLost(models) => {
                for model in models {
                    state.core.door_lost(now, model, &mut state.effects);
                }
            }
            ClientMsg::Ways => state.ways(now),
            ClientMsg::ModelLost { model, reason } => {
                state.core.model_lost(now, model, &reason, &mut state.effects);
            }
            ClientMsg::Tick => {
                // Whoever told that a way has changed may have told an earlier life.
                state.ways(now);
                state.core.tick(now, &mut state.effects);
            }
            ClientMsg::Inspect(reply) => drop(reply.send(state.view())),
        }
        state.args.at(Stage::Decided, &about)?;
        Ok(state.perform()?)
    }
}

impl State {
    fn open(
        &mut self,
        now: Duration,
        request: Request,
        session: mpsc::UnboundedSender<Word>,
        reply: RpcReplyPort<Result<RequestId, Failure>>,
    ) {
        let opened = self.core.open(now, request, &mut self.effects);
        if let Ok(rid) = opened {
            self.sessions.insert(rid, session);
            // The session was dropped while its request lay in the mailbox: nobody would ever cancel it.
            if reply.send(opened).is_err() {
                self.sessions.remove(&rid);
                self.core.cancel(now, rid, &mut self.effects);
            }
        } else {
            drop(reply.send(opened));
        }
    }

    /// Tells the home how each model can be reached, if that has changed.
    fn ways(&mut self, now: Duration) {
        for NodeWay { models, way } in &mut self.args.ways {
            let reach = way.borrow_and_update().reach;
            for model in models.iter() {
                self.core.reach(now, *model, reach, &mut self.effects);
            }
        }
    }

    fn perform(&mut self) -> Result<(), Planned> {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Say { to, says } => {
                    let about = self.args.faults.about(|about| home_words(&says, about));
                    say(&self.args, to, says);
                    self.args.at(Stage::Said, &about)?;
                }
                // A session that is gone has its cancellation on the way.
                Effect::Accepted { rid, progress, standing } => {
                    if let Some(session) = self.sessions.get(&rid) {
                        drop(session.send(Word::Accepted { progress, standing }));
                    }
                    self.args.said("accepted")?;
                }
                Effect::Done { rid, result } => {
                    if let Some(session) = self.sessions.remove(&rid) {
                        drop(session.send(Word::Done(result)));
                    }
                    self.args.said("done")?;
                }
            }
        }
        Ok(())
    }

    fn view(&self) -> ClientView {
        ClientView {
            life: self.args.home.life,
            live: self.core.live(),
            closing: self.core.closing(),
            counters: self.core.counters(),
        }
    }
}

impl ClientArgs {
    fn at(&self, stage: Stage, about: &About) -> Result<(), Planned> {
        self.faults.at(Target::Client(self.home.home.model), stage, about)
    }

    fn said(&self, name: &'static str) -> Result<(), Planned> {
        self.at(Stage::Said, &self.faults.about(|about| about.push(name)))
    }
}

impl ClientMsg {
    /// Names it for a plan of faults.
    fn name(&self, about: &mut About) {
        match self {
            Self::Open { .. } => about.push("open"),
            Self::Adopt { .. } => about.push("adopt"),
            Self::Cancel(_) => about.push("cancel"),
            Self::Model(says) => model_words(says, about),
            Self::DoorLost(_) => about.push("door-lost"),
            Self::Ways => about.push("ways"),
            Self::ModelLost { .. } | Self::Tick | Self::Inspect(_) => {}
        }
    }
}

fn say(args: &ClientArgs, to: ModelIx, says: HomeSays) {
    match &args.decode {
        Some(decode) if to == args.home.home.model => decode.cast(DecodeMsg::Home(says)),
        _ => args.peer.cast(PeerMsg::Send(Parcel::ToModel { to, says })),
    };
}
