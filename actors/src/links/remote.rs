//! Remote: stands for one other node, and takes what a PeerLoop of this one would.
//! Parent: Links.  Children: none.  Talks to: its like on the other node, by QUIC; the loops of this one.
//! After a restart: a new life of the channel. What was under way is lost on both sides; homes grant those turns again.
//!
//! It never waits: dialling, reading and writing are tasks that send it messages, and what they say of a connection that
//! is over counts for nothing.

use crate::admin::Target;
use crate::client_loop::ClientMsg;
use crate::clock::{Clock, Lives};
use crate::decode_loop::DecodeMsg;
use crate::faults::{About, Faults, Planned, Stage, parcel_words};
use crate::links::Way;
use crate::links::channel::Channel;
use crate::peer_loop::PeerMsg;
use crate::seat::{Address, Attached, Seat, Waiting};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_policies::ModelIx;
use tokenrouter_policies::backoff::Backoff;
use tokenrouter_protocol::{Parcel, Reach};
use tokenrouter_transport::{
    Call, Caller, Endpoint, Heard, Hello, Link, LinkError, LinkStats, Stream,
};
use tokio::sync::watch;

mod joined;

/// Waits between two tries to reach a node.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// So many frames are heard before the peer is told, if nothing else is said to it before the next tick.
const OWED_MAX: u32 = 64;

const TICK: Duration = Duration::from_millis(50);

/// What a Remote is told.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one comes with every token: boxed it would allocate"
)]
pub(crate) enum RemoteMsg {
    /// A door of this node wants this brought to the other.
    Send(Parcel),
    /// Everything that was to be sent with the first is here.
    Flush,
    /// It is time to call.
    Dial,
    /// What came of a call.
    Dialled(Box<Result<Call, LinkError>>),
    /// The node calls.
    Called(Box<Caller>),
    /// Something came on the connection with this number.
    Heard(u64, Heard),
    /// Time has passed.
    Tick,
    /// Show yourself.
    Inspect(RpcReplyPort<LinkView>),
}

/// What it shows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// The other node.
    pub node: String,
    /// How it can be reached.
    pub reach: Reach,
    /// Frames it has not heard yet.
    pub waiting: usize,
    /// Messages in the mailbox.
    pub counts: LinkCounts,
    /// What all connections of this life carried; the round-trip time of the last.
    pub stats: LinkStats,
}

/// How often what happened in this life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Frames with parcels sent, without repetitions.
    pub frames_sent: u64,
    /// Frames with parcels heard.
    pub frames_heard: u64,
    /// Parcels sent.
    pub parcels_sent: u64,
    /// Bytes of frames sent, without repetitions.
    pub payload_sent: u64,
    /// Bytes of frames heard.
    pub payload_heard: u64,
    /// Frames sent again on a new connection.
    pub resent: u64,
    /// Connections made.
    pub connections: u64,
    /// Connections that were broken for what the peer sent.
    pub refused: u64,
}

/// What one node is to another, and who must hear of it. Cloned for every restart.
#[derive(Clone)]
pub(crate) struct RemoteSpec {
    /// The other node.
    pub(crate) node: u8,
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    /// The models that live there.
    pub(crate) behind: Arc<[ModelIx]>,
    /// This node.
    pub(crate) here: u8,
    pub(crate) here_name: String,
    /// What both must have in common of their topologies.
    pub(crate) topology: u64,
    /// Whether this node calls the other; else it is called.
    pub(crate) dials: bool,
    pub(crate) endpoint: Endpoint,
    /// The loops of every model on this node.
    pub(crate) doors: Vec<Seat<PeerMsg>>,
    pub(crate) clients: Vec<Seat<ClientMsg>>,
    pub(crate) decodes: Vec<Seat<DecodeMsg>>,
    /// The node of each model.
    pub(crate) places: Arc<[u8]>,
    pub(crate) way: Arc<watch::Sender<Way>>,
    /// How long the other node may be away before it counts as gone.
    pub(crate) grace: Duration,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
}

/// What it is started with.
pub(crate) struct RemoteArgs {
    pub(crate) spec: RemoteSpec,
    /// Counts the lives of channels.
    pub(crate) lives: Lives,
    pub(crate) waiting: Waiting,
}

pub(crate) struct Remote;

pub(crate) struct State {
    args: RemoteArgs,
    mailbox: Address<RemoteMsg>,
    channel: Channel,
    /// The connection, and its number.
    link: Option<Link>,
    number: u64,
    /// The greeting of the call under way, and the task that calls or waits to call.
    greeting: Option<Hello>,
    calling: Option<Attached>,
    backoff: Backoff,
    /// Since when there is no link.
    away: Duration,
    flushing: bool,
    /// The last complaint, so as not to repeat it.
    told: String,
    counts: LinkCounts,
    /// What connections carried that are over.
    past: LinkStats,
    _ticks: Attached,
}

impl Actor for Remote {
    type Msg = RemoteMsg;
    type State = State;
    type Arguments = RemoteArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<RemoteMsg>,
        args: RemoteArgs,
    ) -> Result<State, ActorProcessingErr> {
        let mailbox = Address::new(myself, args.waiting.clone());
        let life = args.life();
        let mut state = State {
            channel: Channel::new(life),
            link: None,
            number: 0,
            greeting: None,
            calling: None,
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT, life),
            away: args.spec.clock.now(),
            flushing: false,
            told: String::new(),
            counts: LinkCounts::default(),
            past: LinkStats::default(),
            _ticks: mailbox.every(TICK, || RemoteMsg::Tick),
            mailbox,
            args,
        };
        // Whatever link an earlier life had died with it.
        state.reach(Reach::Away);
        state.dial();
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<RemoteMsg>,
        message: RemoteMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.args.waiting.took();
        let about = state.args.spec.faults.about(|about| message.name(about));
        state.at(Stage::Heard, &about)?;
        match message {
            RemoteMsg::Send(parcel) => {
                state.counts.parcels_sent += 1;
                state.channel.put(parcel);
                if !state.flushing {
                    state.flushing = true;
                    state.mailbox.cast(RemoteMsg::Flush);
                }
            }
            RemoteMsg::Flush => state.flush(),
            RemoteMsg::Dial => state.dial(),
            RemoteMsg::Dialled(result) => state.dialled(*result),
            RemoteMsg::Called(caller) => state.called(*caller),
            // What an earlier connection still says was lost with it, and is said again.
            RemoteMsg::Heard(number, _) if number != state.number => {}
            RemoteMsg::Heard(_, Heard::Frame { stream, bytes, room }) => {
                state.frame(stream, &bytes);
                drop(room);
            }
            RemoteMsg::Heard(_, Heard::Closed { reason }) => state.lost(&reason),
            RemoteMsg::Tick => state.tick(),
            RemoteMsg::Inspect(reply) => drop(reply.send(state.view())),
        }
        Ok(state.at(Stage::Said, &about)?)
    }
}

impl State {
    fn flush(&mut self) {
        self.flushing = false;
        match self.channel.seal() {
            Ok(frames) => {
                for (stream, frame) in frames {
                    self.counts.frames_sent += 1;
                    self.counts.payload_sent += frame.len() as u64;
                    self.send(stream, frame);
                }
            }
            Err(full) => {
                self.tell(&full.to_string());
                self.channel = Channel::new(self.args.life());
                self.lost("more was under way than is kept");
            }
        }
    }

    fn send(&self, stream: Stream, frame: bytes::Bytes) {
        if let Some(link) = &self.link {
            link.send(stream, frame);
        }
    }

    /// Takes a frame. One that cannot be used ends the connection.
    fn frame(&mut self, stream: Stream, bytes: &[u8]) {
        let parcels = match self.channel.take(stream, bytes) {
            Ok(parcels) => parcels,
            Err(broken) => return self.refuse(&broken.to_string()),
        };
        if let Some(odd) = parcels.iter().find(|parcel| !self.args.spec.may_say(parcel)) {
            let reason = format!("it spoke for others: to subserver {}", odd.subserver().0);
            return self.refuse(&reason);
        }
        // A connection is a good one when something was understood on it.
        self.backoff.reset();
        self.told.clear();
        self.counts.frames_heard += u64::from(!parcels.is_empty());
        self.counts.payload_heard += bytes.len() as u64;
        for parcel in parcels {
            self.args.spec.doors[parcel.subserver().index()].cast(PeerMsg::Receive(parcel));
        }
        if self.channel.owed() >= OWED_MAX {
            self.acknowledge();
        }
    }

    fn acknowledge(&mut self) {
        if self.link.is_some()
            && let Some(frame) = self.channel.acknowledgement()
        {
            self.send(Stream::Express, frame);
        }
    }

    /// Ends the connection for what the peer sent on it; nothing of that has any effect.
    fn refuse(&mut self, reason: &str) {
        self.counts.refused += 1;
        self.tell(&format!("the connection is broken off: {reason}"));
        if let Some(link) = &self.link {
            link.close(reason);
        }
        self.lost(reason);
    }

    fn tick(&mut self) {
        self.acknowledge();
        let spec = &self.args.spec;
        let gone = self.link.is_none() && spec.clock.now() >= self.away + spec.grace;
        if gone && spec.way.borrow().reach != Reach::Gone {
            tracing::warn!(node = spec.name, grace = ?spec.grace, "a node is gone for too long");
            self.reach(Reach::Gone);
            for decode in &self.args.spec.decodes {
                decode.cast(DecodeMsg::NodeLost(self.args.spec.node));
            }
        }
    }

    /// Lets everybody know how the node can be reached.
    fn reach(&self, reach: Reach) {
        let spec = &self.args.spec;
        spec.way.send_modify(|way| {
            way.reach = reach;
            way.met |= reach != Reach::Away;
        });
        for client in &spec.clients {
            client.cast(ClientMsg::Ways);
        }
    }

    /// Logs what is wrong with the peer, unless it was said before.
    fn tell(&mut self, reason: &str) {
        if self.told != reason {
            tracing::warn!(node = self.args.spec.name, "{reason}");
            reason.clone_into(&mut self.told);
        }
    }

    fn view(&self) -> LinkView {
        LinkView {
            node: self.args.spec.name.clone(),
            reach: self.args.spec.way.borrow().reach,
            waiting: self.channel.waiting(),
            counts: self.counts,
            stats: self.stats(),
        }
    }

    fn stats(&self) -> LinkStats {
        let now = self.link.as_ref().map(Link::stats).unwrap_or_default();
        LinkStats {
            sent: self.past.sent + now.sent,
            received: self.past.received + now.received,
            lost: self.past.lost + now.lost,
            rtt: now.rtt,
        }
    }

    fn at(&self, stage: Stage, about: &About) -> Result<(), Planned> {
        self.args.spec.faults.at(Target::Remote(self.args.spec.place()), stage, about)
    }
}

impl RemoteArgs {
    /// A number for the next life of a channel. Lives of a process are counted within it, and processes start later than
    /// one another.
    fn life(&self) -> u64 {
        let life = self.lives.next();
        life.process.saturating_add(u64::from(life.restarts))
    }
}

impl RemoteSpec {
    /// Its place among the other nodes.
    fn place(&self) -> usize {
        usize::from(self.node) - usize::from(self.node > self.here)
    }

    /// Whether the peer may say this to this node: it speaks for its own homes and models, to those that are here.
    fn may_say(&self, parcel: &Parcel) -> bool {
        let lives = |model: ModelIx, node: u8| self.places.get(model.index()) == Some(&node);
        match parcel {
            Parcel::ToModel { to, says } => says.home.node == self.node && lives(*to, self.here),
            Parcel::ToHome { to, says } => {
                to.node == self.here
                    && to.model.index() < self.places.len()
                    && lives(says.model, self.node)
            }
        }
    }
}

impl RemoteMsg {
    /// Names it for a plan of faults.
    fn name(&self, about: &mut About) {
        match self {
            Self::Send(parcel) => parcel_words(parcel, about),
            Self::Flush => about.push("flush"),
            Self::Dialled(_) | Self::Called(_) => about.push("joined"),
            Self::Heard(_, Heard::Frame { .. }) => about.push("frame"),
            Self::Heard(_, Heard::Closed { .. }) => about.push("closed"),
            Self::Dial | Self::Tick | Self::Inspect(_) => {}
        }
    }
}
