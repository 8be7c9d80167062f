//! A seat: a place in the supervision tree that outlives whoever sits in it.
//!
//! The parent that restarts an actor puts the new one on the old one's seat; everybody else holds the seat and speaks to
//! whoever is there. What is said to an empty seat, or to a dying actor, is lost, as the mailbox of the dead is: the
//! protocol notices and says it again.

use crate::faults::Planned;
use ractor::{ActorRef, ActorStatus, Message, SupervisionEvent};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How many messages wait in one mailbox. Whoever speaks counts up, whoever takes a message counts down.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicUsize>);

/// Where to speak to one actor in this life of it.
#[derive(Debug)]
pub(crate) struct Address<M> {
    actor: ActorRef<M>,
    waiting: Waiting,
}

/// Where to speak to an actor, across its restarts.
#[derive(Debug)]
pub(crate) struct Seat<M> {
    place: watch::Receiver<Place<M>>,
}

/// The parent's end of a [`Seat`].
#[derive(Debug)]
pub(crate) struct Chair<M> {
    place: watch::Sender<Place<M>>,
}

/// Who sits on a seat, and how many have so far.
#[derive(Debug)]
struct Place<M> {
    occupant: Option<Address<M>>,
    taken: u32,
}

/// A seat from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatView {
    /// Whether somebody sits there and lives.
    pub alive: bool,
    /// How often the actor was replaced.
    pub restarts: u32,
    /// Messages in the mailbox.
    pub waiting: usize,
}

/// A task of an actor that ends with it, however it dies.
#[derive(Debug)]
pub(crate) struct Attached(AbortHandle);

impl Waiting {
    /// A message was taken from the mailbox.
    pub(crate) fn took(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<M: Message> Address<M> {
    /// The address of `actor`, which counts down `waiting` for every message it takes.
    pub(crate) fn new(actor: ActorRef<M>, waiting: Waiting) -> Self {
        Self { actor, waiting }
    }

    /// Leaves a message; whether the mailbox is still open.
    pub(crate) fn cast(&self, message: M) -> bool {
        // Counted first, or it could be taken before it is counted.
        self.waiting.0.fetch_add(1, Ordering::Relaxed);
        let open = self.actor.cast(message).is_ok();
        if !open {
            self.waiting.took();
        }
        open
    }

    /// Leaves a message each `period`, for as long as the result is held.
    pub(crate) fn every(&self, period: Duration, message: fn() -> M) -> Attached {
        let address = self.clone();
        Attached::spawn(async move {
            loop {
                tokio::time::sleep(period).await;
                address.cast(message());
            }
        })
    }

    /// Leaves a message after a while, if the result is still held then.
    pub(crate) fn after(&self, wait: Duration, message: fn() -> M) -> Attached {
        let address = self.clone();
        Attached::spawn(async move {
            tokio::time::sleep(wait).await;
            address.cast(message());
        })
    }

    fn lives(&self) -> bool {
        self.actor.get_status() < ActorStatus::Stopping
    }
}

impl<M: Message> Seat<M> {
    /// Leaves a message for whoever sits here; whether somebody did.
    pub(crate) fn cast(&self, message: M) -> bool {
        let place = self.place.borrow();
        place.occupant.as_ref().is_some_and(|address| address.cast(message))
    }

    /// Whoever sits here and lives, waiting while nobody does; `None` when its parent is gone for good. The dead stay on
    /// their seat until they are replaced, and those of a parent that is gone stay for ever.
    pub(crate) async fn occupant(&mut self) -> Option<Address<M>> {
        let lives = |place: &Place<M>| place.occupant.as_ref().is_some_and(Address::lives);
        let place = self.place.wait_for(lives).await.ok()?;
        place.occupant.clone()
    }

    /// Whether somebody sits here.
    pub(crate) fn is_occupied(&self) -> bool {
        self.place.borrow().occupant.is_some()
    }

    /// Kills whoever sits here, in the middle of whatever it does; whether somebody did.
    pub(crate) fn kill(&self) -> bool {
        let place = self.place.borrow();
        let Some(address) = place.occupant.as_ref().filter(|address| address.lives()) else {
            return false;
        };
        address.actor.kill();
        true
    }

    /// What there is to see.
    pub(crate) fn view(&self) -> SeatView {
        let place = self.place.borrow();
        let occupant = place.occupant.as_ref();
        SeatView {
            alive: occupant.is_some_and(Address::lives),
            restarts: place.taken.saturating_sub(1),
            waiting: occupant.map_or(0, |address| address.waiting.0.load(Ordering::Relaxed)),
        }
    }
}

impl<M: Message> Chair<M> {
    /// An empty chair.
    pub(crate) fn new() -> Self {
        Self { place: watch::Sender::new(Place { occupant: None, taken: 0 }) }
    }

    /// The seat that others hold.
    pub(crate) fn seat(&self) -> Seat<M> {
        Seat { place: self.place.subscribe() }
    }

    /// Puts an actor here.
    pub(crate) fn take(&self, address: Address<M>) {
        self.place.send_modify(|place| {
            place.occupant = Some(address);
            place.taken += 1;
        });
    }

    /// The occupant is dead.
    pub(crate) fn leave(&self) {
        self.place.send_modify(|place| place.occupant = None);
    }

    /// Whether `id` sits here.
    pub(crate) fn is(&self, id: ractor::ActorId) -> bool {
        self.place.borrow().occupant.as_ref().is_some_and(|address| address.actor.get_id() == id)
    }
}

impl Attached {
    /// Starts the task.
    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { actor: self.actor.clone(), waiting: self.waiting.clone() }
    }
}

impl<M> Clone for Seat<M> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone() }
    }
}

impl<M> Clone for Chair<M> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone() }
    }
}

/// The end of a child.
#[derive(Debug)]
pub(crate) struct Death {
    /// Who.
    pub(crate) id: ractor::ActorId,
    /// Why, for people.
    pub(crate) reason: String,
    /// Whether somebody killed it, which says nothing about its health.
    pub(crate) killed: bool,
    /// What it failed with, if it failed.
    pub(crate) error: Option<ractor::ActorProcessingErr>,
}

impl Death {
    /// The death that an event tells of, if it does.
    pub(crate) fn of(event: SupervisionEvent) -> Option<Self> {
        match event {
            SupervisionEvent::ActorFailed(who, error) => {
                let (reason, killed) = (error.to_string(), error.is::<Planned>());
                Some(Self { id: who.get_id(), reason, killed, error: Some(error) })
            }
            SupervisionEvent::ActorTerminated(who, _, reason) => {
                let reason = reason.unwrap_or_else(|| "it was stopped".to_owned());
                let killed = reason == KILLED;
                Some(Self { id: who.get_id(), reason, killed, error: None })
            }
            _ => None,
        }
    }
}

/// The reason that ractor gives for an actor that was killed.
const KILLED: &str = "killed";
