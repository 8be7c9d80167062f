//! The gateway: how the people's side opens requests, and the sessions through which replies come back.
//!
//! A session that is dropped cancels its request everywhere. One whose home dies brings its request to the next life of
//! that home, from the copy it keeps; its reader notices nothing. Nothing here blocks a loop: every session has a channel
//! of its own, which holds at most one reply.

use crate::admin::{Admin, LinksBranch, ModelView};
use crate::client_loop::ClientMsg;
use crate::decode_loop::DecodeMsg;
use crate::links::{LinkView, ListenerMsg, RemoteMsg, Way};
use crate::pacer::PacerMsg;
use crate::peer_loop::PeerMsg;
use crate::seat::Seat;
use crate::tuner::TunerMsg;
use ractor::RpcReplyPort;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokenrouter_policies::batching::{self, Unusable};
use tokenrouter_policies::planner::Observations;
use tokenrouter_policies::{ModelIx, Thresholds};
use tokenrouter_protocol::{
    Adoption, Failure, Outcome, PoolSize, Progress, Request, RequestId, Standing,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

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
    pub(crate) http: Seat<()>,
    /// Where there are other nodes.
    pub(crate) links: Option<LinkSeats>,
    /// Where models run in rounds.
    pub(crate) pacer: Option<Seat<PacerMsg>>,
    /// Where thresholds follow what is measured, and how often they were changed.
    pub(crate) tuner: Option<Seat<TunerMsg>>,
    pub(crate) tuned: Arc<AtomicU64>,
    /// The entry model of each route.
    pub(crate) entries: Vec<ModelIx>,
    /// One permit for each request that may be in flight.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) requests_max: usize,
}

/// What speaks with other nodes.
#[derive(Debug)]
pub(crate) struct LinkSeats {
    pub(crate) links: Seat<()>,
    pub(crate) listener: Seat<ListenerMsg>,
    /// The other nodes, their proxies, and the ways there.
    pub(crate) remotes: Vec<(Seat<RemoteMsg>, watch::Receiver<Way>)>,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) subserver: Seat<()>,
    pub(crate) client: Seat<ClientMsg>,
    pub(crate) decode: Seat<DecodeMsg>,
    pub(crate) peer: Seat<PeerMsg>,
    /// `None` where the model lives on another node.
    pub(crate) pool: Option<PoolSize>,
    /// When it launches, in this life and the next ones.
    pub(crate) thresholds: Arc<watch::Sender<Thresholds>>,
}

/// What a home tells a session.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the large one comes with every token: boxed it would allocate"
)]
pub(crate) enum Word {
    /// A row was accepted: a piece for the reader, if it has one, and where the request stands now.
    Accepted { progress: Option<Progress>, standing: Standing },
    /// The end.
    Done(Result<Outcome, Failure>),
}

/// One choice in flight.
#[derive(Debug)]
pub struct Session {
    rid: RequestId,
    /// The copy of the ledger, for the next life of the home.
    copy: Adoption,
    words: mpsc::UnboundedReceiver<Word>,
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
        loop {
            let Some(home) = client.occupant().await else { return Err(Failure::Draining) };
            let (session, words) = mpsc::unbounded_channel();
            let (reply, answer) = oneshot::channel();
            let reply = RpcReplyPort::from(reply);
            let open = ClientMsg::Open { request: Box::new(request.clone()), session, reply };
            if home.cast(open)
                && let Ok(opened) = answer.await
            {
                let rid = opened?;
                let copy = Adoption { request, reply: Vec::new(), standing: None };
                return Ok(Session { rid, copy, words, client, done: false, _permit: permit });
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

    /// Whether requests are taken, every ClientLoop and DecodeLoop is up, and there was a link to each other node, or none for
    /// too long. A PeerLoop or a link is not asked for: one that is lost is soon replaced, and requests that need it wait.
    pub fn ready(&self) -> bool {
        let up = |m: &Model| m.client.is_occupied() && (m.pool.is_none() || m.decode.is_occupied());
        let met = |links: &LinkSeats| links.remotes.iter().all(|(_, way)| way.borrow().met);
        !self.inner.permits.is_closed()
            && self.inner.models.iter().all(up)
            && self.inner.links.as_ref().is_none_or(met)
    }

    /// What the links to other nodes show of themselves; one that is being restarted is left out.
    pub async fn links(&self) -> Vec<LinkView> {
        let Some(links) = &self.inner.links else { return Vec::new() };
        links.view().await.remotes.into_iter().filter_map(|(_, view)| view).collect()
    }

    /// How often thresholds were changed for better ones.
    pub fn tuned(&self) -> u64 {
        self.inner.tuned.load(Ordering::Relaxed)
    }

    /// What the models did since this was last asked: moves, commits, and how long passes that only decode took. A Tuner that
    /// runs as well takes its share away.
    pub async fn observed(&self) -> Observations {
        let mut all = Observations::new(self.inner.models.len());
        for model in &self.inner.models {
            if let Some(seen) = ask(&model.decode, DecodeMsg::Observed).await {
                all.merge(&seen);
            }
        }
        all
    }

    /// Lets models launch by these thresholds from now on, one for each model by index.
    ///
    /// # Errors
    /// Thresholds with which all requests could wait for each other for ever; then nothing is changed.
    pub fn set_thresholds(&self, thresholds: &[Thresholds]) -> Result<(), Unusable> {
        let most = u32::try_from(self.inner.requests_max).unwrap_or(u32::MAX);
        batching::check(&thresholds.iter().collect::<Vec<_>>(), most)?;
        for (model, new) in self.inner.models.iter().zip(thresholds) {
            model.thresholds.send_replace(new.clone());
            model.decode.cast(DecodeMsg::Thresholds(new.clone()));
        }
        Ok(())
    }

    /// A look at the tree of actors, and a hand to kill with.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.inner))
    }

    /// What every loop shows of itself, by model.
    pub async fn observe(&self) -> Vec<ModelView> {
        let mut views = Vec::new();
        for model in &self.inner.models {
            views.push(model.view().await);
        }
        views
    }
}

impl LinkSeats {
    pub(crate) async fn view(&self) -> LinksBranch {
        let mut remotes = Vec::new();
        for (seat, _) in &self.remotes {
            remotes.push((seat.view(), ask(seat, RemoteMsg::Inspect).await));
        }
        LinksBranch { links: self.links.view(), listener: self.listener.view(), remotes }
    }

    /// Kills the proxy of a node; whether there was one.
    pub(crate) fn kill(&self, place: usize) -> bool {
        self.remotes.get(place).is_some_and(|(seat, _)| seat.kill())
    }
}

impl Model {
    /// Asks the loops that have something to show.
    pub(crate) async fn view(&self) -> ModelView {
        let client = ask(&self.client, ClientMsg::Inspect).await;
        let decode = ask(&self.decode, DecodeMsg::Inspect).await;
        ModelView { pool: self.pool, client, decode }
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
    /// The next event; `None` after [`Event::Done`]. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        while !self.done {
            match self.words.recv().await {
                Some(Word::Accepted { progress, standing }) => {
                    self.copy.standing = Some(standing);
                    if let Some(progress) = progress {
                        self.copy.reply.extend_from_slice(&progress.tokens);
                        return Some(Event::Progress(progress));
                    }
                }
                Some(Word::Done(result)) => {
                    self.done = true;
                    return Some(Event::Done(result));
                }
                None => {
                    if self.move_on().await.is_none() {
                        self.done = true;
                        return Some(Event::Done(Err(Failure::Draining)));
                    }
                }
            }
        }
        None
    }

    /// Brings the request to the next life of its home, once everything the last one said is heard; `None` where there
    /// will be none. A life that dies before it takes the request closes the new channel as well, and this is done again.
    async fn move_on(&mut self) -> Option<()> {
        // One that was just killed may not know it yet.
        tokio::task::yield_now().await;
        let home = self.client.occupant().await?;
        let (session, words) = mpsc::unbounded_channel();
        self.words = words;
        let copy = Box::new(self.copy.clone());
        home.cast(ClientMsg::Adopt { rid: self.rid, copy, session });
        Some(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.done {
            self.client.cast(ClientMsg::Cancel(self.rid));
        }
    }
}
