//! Listener: answers nodes that call, and brings those that belong here to their Remote.
//! Parent: Links.  Children: none.  Talks to: Remotes.
//! After a restart: as before; the socket is not its own, and links that stand are not its business.
//!
//! Whoever does not belong is refused with the reason, which is logged once and not each time.

use crate::links::RemoteMsg;
use crate::seat::{Attached, Seat};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use tokenrouter_transport::{Caller, Endpoint, Hello, LinkError, Ring};
use tokio::sync::Semaphore;

/// Reasons that are remembered, so as not to repeat them.
const REMEMBERED: usize = 64;

/// Callers that are listened to at the same time.
const AT_ONCE: usize = 64;

/// What a Listener is told.
#[derive(Debug)]
pub(crate) enum ListenerMsg {
    /// Somebody was refused.
    Refused { from: SocketAddr, reason: String },
}

/// What it is started with. Cloned for every restart.
#[derive(Clone, Debug)]
pub(crate) struct ListenerArgs {
    pub(crate) endpoint: Endpoint,
    /// Whom it lets in.
    pub(crate) guests: Arc<Guests>,
}

/// Who may call, and what they must say.
#[derive(Debug)]
pub(crate) struct Guests {
    /// What this node would say: the digest of its topology counts.
    pub(crate) hello: Hello,
    /// The other nodes and their proxies.
    pub(crate) remotes: Vec<(String, Seat<RemoteMsg>)>,
}

pub(crate) struct Listener;

pub(crate) struct State {
    told: VecDeque<String>,
    _loop: Attached,
}

impl Actor for Listener {
    type Msg = ListenerMsg;
    type State = State;
    type Arguments = ListenerArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<ListenerMsg>,
        args: ListenerArgs,
    ) -> Result<State, ActorProcessingErr> {
        let calls = Attached::spawn(answer_all(args, myself));
        Ok(State { told: VecDeque::new(), _loop: calls })
    }

    async fn handle(
        &self,
        _myself: ActorRef<ListenerMsg>,
        message: ListenerMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let ListenerMsg::Refused { from, reason } = message;
        if state.told.contains(&reason) {
            return Ok(());
        }
        tracing::warn!(%from, reason, "a caller was refused");
        state.told.push_back(reason);
        if state.told.len() > REMEMBERED {
            state.told.pop_front();
        }
        Ok(())
    }
}

async fn answer_all(args: ListenerArgs, myself: ActorRef<ListenerMsg>) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(ring) = args.endpoint.accept().await {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let (guests, myself) = (Arc::clone(&args.guests), myself.clone());
        tokio::spawn(async move {
            let from = ring.address();
            if let Err(reason) = answer(ring, &guests).await {
                // A Listener that is gone has nobody to tell.
                drop(myself.cast(ListenerMsg::Refused { from, reason }));
            }
            drop(place);
        });
    }
}

/// Hears one caller and brings it to its Remote; why not, if not.
async fn answer(ring: Ring, guests: &Guests) -> Result<(), String> {
    let caller = ring.answer().await.map_err(|error: LinkError| error.to_string())?;
    match guests.remote(&caller) {
        Ok(remote) => {
            // A Remote that is just being replaced lets the call drop; the caller tries again.
            remote.cast(RemoteMsg::Called(Box::new(caller)));
            Ok(())
        }
        Err(reason) => {
            caller.refuse(&reason);
            Err(reason)
        }
    }
}

impl Guests {
    fn remote(&self, caller: &Caller) -> Result<&Seat<RemoteMsg>, String> {
        let node = &caller.hello.node;
        let known = self.remotes.iter().find(|(name, _)| name == node);
        let Some((_, remote)) = known else {
            return Err(format!("node `{node}` is not another node of this topology"));
        };
        match self.hello.agree(&caller.hello) {
            Ok(()) => Ok(remote),
            Err(mismatch) => Err(format!("node `{node}` cannot be linked: {mismatch}")),
        }
    }
}
