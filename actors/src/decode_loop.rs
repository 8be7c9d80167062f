//! DecodeLoop: gathers the requests that want a token into one forward pass, and routes what comes out of it.
//! Parent: Subserver.  Children: none.  Talks to: the engine's thread, its own ClientLoop and PeerLoop.
//! After a restart: a new life with nothing in it. It empties the engine's cache, and homes grant again what it owned.
//!
//! It never computes and never waits: forward passes run on the engine's thread, and all thinking happens in
//! [`tokenrouter_protocol::Host`].

use crate::admin::Target;
use crate::client_loop::ClientMsg;
use crate::clock::Clock;
use crate::faults::{About, Faults, Planned, Stage, home_words, model_words};
use crate::pacer::PacerMsg;
use crate::peer_loop::PeerMsg;
use crate::seat::{Address, Attached, Seat, Waiting};
use crate::seen::Seen;
use crate::tuner::TunerMsg;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokenrouter_engine::{Done, Engine};
use tokenrouter_policies::planner::Observations;
use tokenrouter_policies::{ModelIx, Thresholds};
use tokenrouter_protocol::host::{Counters, Effect};
use tokenrouter_protocol::{HomeId, HomeSays, Host, HostConfig, Life, ModelSays, Pace, Parcel};

/// What a DecodeLoop is told.
#[derive(Debug)]
pub(crate) enum DecodeMsg {
    /// A home speaks to this model.
    Home(HomeSays),
    /// The engine is done with a job.
    Done(Done),
    /// The Pacer lets this model launch a pass.
    Launch,
    /// The Pacer asks how this model stands.
    Stand,
    /// The Tuner lets this model launch by these.
    Thresholds(Thresholds),
    /// The Tuner asks what was seen.
    Observe,
    /// Somebody outside asks what was seen.
    Observed(RpcReplyPort<Observations>),
    /// Words between other nodes and this model were lost.
    DoorLost,
    /// A node is out of reach for good.
    NodeLost(u8),
    /// Somebody has waited long enough for others.
    Wake,
    /// Time has passed.
    Tick,
    /// Show yourself.
    Inspect(RpcReplyPort<DecodeView>),
}

/// What it shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeView {
    /// The life of the model.
    pub life: Life,
    /// Requests held, pending ones included.
    pub held: usize,
    /// Blocks of the pool in use.
    pub blocks_used: u32,
    /// Live requests that can reach this model.
    pub live: u32,
    /// Ready requests at which a pass is launched while so many are alive.
    pub threshold: u32,
    /// How often what happened.
    pub counters: Counters,
    /// How long the engine computed for this life.
    pub busy: Duration,
}

/// What it is started with.
#[derive(Debug)]
pub(crate) struct DecodeArgs {
    pub(crate) host: HostConfig,
    pub(crate) engine: Arc<Engine>,
    pub(crate) client: Seat<ClientMsg>,
    pub(crate) peer: Seat<PeerMsg>,
    /// Who lets it launch; nobody where it launches by itself.
    pub(crate) pacer: Option<Seat<PacerMsg>>,
    /// Who asks what was seen, where anybody does.
    pub(crate) tuner: Option<Seat<TunerMsg>>,
    /// Every home there is: each hears of this life.
    pub(crate) homes: Vec<HomeId>,
    /// This node.
    pub(crate) here: u8,
    pub(crate) clock: Clock,
    /// Set by every finished step, so that its parent can tell a stumble from a loop of deaths.
    pub(crate) progress: Arc<AtomicBool>,
    pub(crate) waiting: Waiting,
    pub(crate) faults: Faults,
}

pub(crate) struct DecodeLoop;

pub(crate) struct State {
    core: Host,
    effects: Vec<Effect>,
    args: DecodeArgs,
    mailbox: Address<DecodeMsg>,
    /// When it will be woken, and the timer.
    timer: Option<(Duration, Attached)>,
    seen: Seen,
    busy: Duration,
    /// How it last told the Pacer it stands.
    standing: Pace,
    _ticks: Attached,
}

impl Actor for DecodeLoop {
    type Msg = DecodeMsg;
    type State = State;
    type Arguments = DecodeArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<DecodeMsg>,
        args: DecodeArgs,
    ) -> Result<State, ActorProcessingErr> {
        let mailbox = Address::new(myself, args.waiting.clone());
        let ticks = mailbox.every(args.host.grace / 4, || DecodeMsg::Tick);
        // An engine that outlives this life finds its mailbox closed.
        let door = mailbox.clone();
        let deliver = move |done| {
            door.cast(DecodeMsg::Done(done));
        };
        args.engine.attach(args.host.life, Arc::new(deliver));
        let core = Host::new(args.host.clone());
        let seen = Seen::new(args.host.model, args.homes.len());
        let mut state = State {
            core,
            effects: Vec::new(),
            args,
            mailbox,
            timer: None,
            seen,
            busy: Duration::ZERO,
            standing: Pace::default(),
            _ticks: ticks,
        };
        for home in state.args.homes.clone() {
            state.core.greet(home, &mut state.effects);
        }
        for effect in state.effects.drain(..) {
            if let Effect::Say { to, says } = effect {
                state.args.say(to, says);
            }
        }
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<DecodeMsg>,
        message: DecodeMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.args.waiting.took();
        let now = state.args.clock.now();
        let about = state.args.faults.about(|about| message.name(about));
        state.args.at(Stage::Heard, &about)?;
        match message {
            DecodeMsg::Home(says) => state.core.hear(now, says, &mut state.effects),
            DecodeMsg::Done(done) if done.life != state.args.host.life => {}
            DecodeMsg::Done(done) => {
                let report = done.result?;
                state.args.progress.store(true, Ordering::Relaxed);
                state.seen.ended(now);
                state.busy += done.elapsed;
                state.core.done(now, report.outputs, &mut state.effects);
            }
            DecodeMsg::Launch => state.core.permit(now, &mut state.effects),
            DecodeMsg::Stand => state.standing = Pace::default(),
            DecodeMsg::Thresholds(thresholds) => {
                state.core.set_thresholds(now, thresholds, &mut state.effects);
            }
            DecodeMsg::Observe => state.tell(),
            DecodeMsg::Observed(reply) => {
                // Whoever asked may be gone.
                let _ = reply.send(state.seen.take().0);
            }
            DecodeMsg::DoorLost => state.door_lost(),
            DecodeMsg::NodeLost(node) => state.core.node_lost(now, node, &mut state.effects),
            DecodeMsg::Wake => {
                state.timer = None;
                state.core.tick(now, &mut state.effects);
            }
            DecodeMsg::Tick => state.core.tick(now, &mut state.effects),
            DecodeMsg::Inspect(reply) => drop(reply.send(state.view())),
        }
        state.args.at(Stage::Decided, &about)?;
        state.perform(now)?;
        state.stand();
        state.arm(now);
        Ok(())
    }
}

impl State {
    fn perform(&mut self, now: Duration) -> Result<(), ActorProcessingErr> {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Say { to, says } => {
                    self.seen.reported(&says);
                    let about = self.args.faults.about(|about| model_words(&says, about));
                    self.args.say(to, says);
                    self.args.at(Stage::Said, &about)?;
                }
                Effect::Run(job) => {
                    self.seen.begins(now, &job, self.core.live());
                    self.args.engine.run(self.args.host.life, job)?;
                    let about = self.args.faults.about(|about| about.push("job"));
                    self.args.at(Stage::Said, &about)?;
                }
            }
        }
        Ok(())
    }

    /// Tells the homes of other nodes; those of this one were told by whoever replaced the door.
    fn door_lost(&mut self) {
        let here = self.args.here;
        for home in self.args.homes.iter().filter(|home| home.node != here) {
            self.core.door_lost(*home, &mut self.effects);
        }
    }

    /// Tells the Tuner what was seen.
    fn tell(&mut self) {
        if let Some(tuner) = &self.args.tuner {
            let (seen, live) = self.seen.take();
            tuner.cast(TunerMsg::Seen { seen, live });
        }
    }

    /// Tells the Pacer how this model stands, if that is news.
    fn stand(&mut self) {
        let Some(pacer) = &self.args.pacer else { return };
        let standing = self.core.standing();
        if standing != self.standing
            && pacer.cast(PacerMsg::Standing(self.args.host.model, standing))
        {
            self.standing = standing;
        }
    }

    /// Sees to it that it is woken when the machine wants to. A timer that is early is kept: it will be set again.
    fn arm(&mut self, now: Duration) {
        let Some(at) = self.core.wake() else { return };
        if self.timer.as_ref().is_none_or(|(armed, _)| at < *armed) {
            let timer = self.mailbox.after(at.saturating_sub(now), || DecodeMsg::Wake);
            self.timer = Some((at, timer));
        }
    }

    fn view(&self) -> DecodeView {
        DecodeView {
            life: self.args.host.life,
            held: self.core.held(),
            blocks_used: self.core.blocks_used(),
            live: self.core.live(),
            threshold: self.core.threshold(),
            counters: self.core.counters(),
            busy: self.busy,
        }
    }
}

impl DecodeArgs {
    fn say(&self, to: HomeId, says: ModelSays) {
        if to.model == self.host.model && to.node == self.here {
            self.client.cast(ClientMsg::Model(says));
        } else {
            self.peer.cast(PeerMsg::Send(Parcel::ToHome { to, says }));
        }
    }

    fn at(&self, stage: Stage, about: &About) -> Result<(), Planned> {
        self.faults.at(Target::Decode(self.host.model), stage, about)
    }
}

impl DecodeMsg {
    /// Names it for a plan of faults.
    fn name(&self, about: &mut About) {
        match self {
            Self::Home(says) => home_words(says, about),
            Self::Done(_) => about.push("step"),
            Self::Launch => about.push("launch"),
            Self::Thresholds(_) => about.push("thresholds"),
            Self::DoorLost => about.push("door-lost"),
            Self::NodeLost(_) => about.push("node-lost"),
            Self::Stand | Self::Observe | Self::Observed(_) => {}
            Self::Wake | Self::Tick | Self::Inspect(_) => {}
        }
    }
}

/// The homes of so many nodes with so many models: every model is a route of its own, so each node has one for each.
pub(crate) fn homes(nodes: usize, models: usize) -> Vec<HomeId> {
    let of = |node| (0..models).map(move |m| HomeId { node: node as u8, model: ModelIx(m as u8) });
    (0..nodes).flat_map(of).collect()
}
