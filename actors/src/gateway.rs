//! The gateway: how the people's side opens requests, and the sessions through which replies come back.
//!
//! A session that is dropped cancels its request everywhere. Nothing here blocks a loop: every session has a channel of
//! its own, which holds at most one reply.

use crate::client_loop::{ClientMsg, ClientView};
use crate::decode_loop::{DecodeMsg, DecodeView};
use crate::seat::Seat;
use ractor::RpcReplyPort;
use std::sync::Arc;
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::{Failure, Outcome, PoolSize, Progress, Request, RequestId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

/// What a session gets. `Done` is the last.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A piece of the reply.
    Progress(Progress),
    /// The end.
    Done(Result<Outcome, Failure>),
}

/// The way in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gateway {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) models: Vec<Model>,
    /// The entry model of each route.
    pub(crate) entries: Vec<ModelIx>,
    /// One permit for each request that may be in flight.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) requests_max: usize,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) client: Seat<ClientMsg>,
    pub(crate) decode: Seat<DecodeMsg>,
    pub(crate) pool: PoolSize,
}

/// What the loops of one model show of themselves. `None` where a loop is being restarted.
#[derive(Clone, Copy, Debug)]
pub struct ModelView {
    /// The pool.
    pub pool: PoolSize,
    /// The home side.
    pub client: Option<ClientView>,
    /// The model side.
    pub decode: Option<DecodeView>,
}

/// One choice in flight.
#[derive(Debug)]
pub struct Session {
    rid: RequestId,
    entry: ModelIx,
    events: mpsc::UnboundedReceiver<Event>,
    client: Seat<ClientMsg>,
    done: bool,
    _permit: OwnedSemaphorePermit,
}

impl Gateway {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// Opens one choice.
    ///
    /// # Errors
    /// [`Failure::Busy`] at the limit of requests in flight, [`Failure::Draining`] once the node stops.
    ///
    /// # Panics
    /// When the route does not exist: requests are validated before.
    pub async fn open(&self, request: Request) -> Result<Session, Failure> {
        let permit = match Arc::clone(&self.inner.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(tokio::sync::TryAcquireError::Closed) => return Err(Failure::Draining),
            Err(tokio::sync::TryAcquireError::NoPermits) => {
                return Err(Failure::Busy { limit: self.inner.requests_max });
            }
        };
        let entry = self.inner.entries[request.route.index()];
        let mut client = self.inner.models[entry.index()].client.clone();
        let request = Box::new(request);
        loop {
            let Some(home) = client.occupant().await else { return Err(Failure::Draining) };
            let (sender, events) = mpsc::unbounded_channel();
            let (reply, answer) = oneshot::channel();
            let reply = RpcReplyPort::from(reply);
            let open = ClientMsg::Open { request: request.clone(), events: sender, reply };
            if home.cast(open).is_ok()
                && let Ok(opened) = answer.await
            {
                return Ok(Session {
                    rid: opened?,
                    entry,
                    events,
                    client,
                    done: false,
                    _permit: permit,
                });
            }
            // That life of the home died with the request in its mailbox: the next one takes it.
            tokio::task::yield_now().await;
        }
    }

    /// Takes no new requests from now on; those in flight go on.
    pub fn close(&self) {
        self.inner.permits.close();
    }

    /// Requests in flight.
    pub fn live(&self) -> usize {
        self.inner.requests_max - self.inner.permits.available_permits()
    }

    /// Whether requests are taken, and every ClientLoop and DecodeLoop is up. A PeerLoop is not asked for: one that died is
    /// replaced at once, and requests that need it wait.
    pub fn ready(&self) -> bool {
        let mut models = self.inner.models.iter();
        !self.inner.permits.is_closed()
            && models.all(|m| m.client.is_occupied() && m.decode.is_occupied())
    }

    /// What every loop shows of itself, by model.
    pub async fn observe(&self) -> Vec<ModelView> {
        let mut views = Vec::new();
        for model in &self.inner.models {
            let client = ask(&model.client, ClientMsg::Inspect).await;
            let decode = ask(&model.decode, DecodeMsg::Inspect).await;
            views.push(ModelView { pool: model.pool, client, decode });
        }
        views
    }
}

async fn ask<M: ractor::Message, T>(
    seat: &Seat<M>,
    question: impl FnOnce(RpcReplyPort<T>) -> M,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    seat.cast(question(RpcReplyPort::from(reply)));
    answer.await.ok()
}

impl Session {
    /// The next event; `None` after [`Event::Done`].
    pub async fn next(&mut self) -> Option<Event> {
        if self.done {
            return None;
        }
        let event = self.events.recv().await.unwrap_or_else(|| {
            let reason = "its client loop died and lost the request".to_owned();
            Event::Done(Err(Failure::ModelLost { model: self.entry, reason }))
        });
        self.done = matches!(event, Event::Done(_));
        Some(event)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.done {
            self.client.cast(ClientMsg::Cancel(self.rid));
        }
    }
}
