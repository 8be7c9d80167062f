//! Links: supervisor of everything that speaks with other nodes.
//! Parent: Node.  Children: a Listener, and a Remote for each other node.  Talks to: nobody.
//! After a restart: its children are new, as if each had died alone.
//!
//! One-for-one, within a budget; the socket outlives them all.

use crate::clock::Lives;
use crate::seat::{Address, Chair, Death, Waiting};
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokenrouter_policies::{Budget, Tally};

mod channel;
mod listener;
mod remote;

pub(crate) use listener::{Guests, Listener, ListenerArgs, ListenerMsg};
pub use remote::{LinkCounts, LinkView};
pub(crate) use remote::{Remote, RemoteArgs, RemoteMsg, RemoteSpec};

use crate::clock::Clock;
use tokenrouter_protocol::Reach;

/// The way to a node, as everybody on this one may see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// How the node can be reached.
    pub(crate) reach: Reach,
    /// Whether there ever was a link, or the wait for the first one is over.
    pub(crate) met: bool,
}

/// What it is started with. Cloned for every restart.
#[derive(Clone)]
pub(crate) struct LinksArgs {
    pub(crate) listener: ListenerArgs,
    pub(crate) remotes: Vec<RemoteSpec>,
    pub(crate) lives: Lives,
    pub(crate) chairs: LinkChairs,
    pub(crate) restarts: Budget,
    pub(crate) clock: Clock,
}

/// The chairs of its children.
#[derive(Clone, Debug)]
pub(crate) struct LinkChairs {
    pub(crate) listener: Chair<ListenerMsg>,
    /// In the order of `remotes`.
    pub(crate) remotes: Vec<Chair<RemoteMsg>>,
}

/// The links cannot be kept alive.
#[derive(Debug, thiserror::Error)]
#[error("the links to other nodes cannot be kept alive: {0}")]
struct Exhausted(String);

pub(crate) struct Links;

pub(crate) struct State {
    args: LinksArgs,
    tally: Tally,
}

impl Actor for Links {
    type Msg = ();
    type State = State;
    type Arguments = LinksArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<()>,
        args: LinksArgs,
    ) -> Result<State, ActorProcessingErr> {
        let state = State { tally: Tally::new(args.restarts), args };
        for index in 0..state.args.remotes.len() {
            state.remote(index, &myself).await?;
        }
        state.listener(&myself).await?;
        Ok(state)
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<()>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some(Death { id, reason, killed, .. }) = Death::of(event) else { return Ok(()) };
        let chairs = &state.args.chairs;
        let remote = chairs.remotes.iter().position(|chair| chair.is(id));
        if remote.is_none() && !chairs.listener.is(id) {
            return Ok(());
        }
        match remote {
            Some(index) => {
                let peer = &state.args.remotes[index].name;
                tracing::warn!(peer, reason, "a remote died");
                chairs.remotes[index].leave();
            }
            None => {
                tracing::warn!(reason, "the listener died");
                chairs.listener.leave();
            }
        }
        if !killed && !state.tally.allow(state.args.clock.now()) {
            return Err(Exhausted(reason).into());
        }
        match remote {
            Some(index) => state.remote(index, &myself).await,
            None => state.listener(&myself).await,
        }
    }
}

impl State {
    async fn remote(&self, index: usize, myself: &ActorRef<()>) -> Result<(), ActorProcessingErr> {
        let waiting = Waiting::default();
        let args = RemoteArgs {
            spec: self.args.remotes[index].clone(),
            lives: self.args.lives.clone(),
            waiting: waiting.clone(),
        };
        let (actor, _) = Remote::spawn_linked(None, Remote, args, myself.get_cell()).await?;
        self.args.chairs.remotes[index].take(Address::new(actor, waiting));
        Ok(())
    }

    async fn listener(&self, myself: &ActorRef<()>) -> Result<(), ActorProcessingErr> {
        let args = self.args.listener.clone();
        let (actor, _) = Listener::spawn_linked(None, Listener, args, myself.get_cell()).await?;
        self.args.chairs.listener.take(Address::new(actor, Waiting::default()));
        Ok(())
    }
}
