//! A seat: a place in the supervision tree that outlives whoever sits in it.
//!
//! The parent that restarts an actor puts the new one on the old one's seat; everybody else holds the seat and speaks to
//! whoever is there. What is said to an empty seat, or to a dying actor, is lost, as the mailbox of the dead is: the
//! protocol notices and says it again.

use ractor::{ActorRef, ActorStatus, Message, SupervisionEvent};
use tokio::sync::watch;

/// Where to speak to an actor, across its restarts.
#[derive(Debug)]
pub(crate) struct Seat<M> {
    occupant: watch::Receiver<Option<ActorRef<M>>>,
}

/// The parent's end of a [`Seat`].
#[derive(Debug)]
pub(crate) struct Chair<M> {
    occupant: watch::Sender<Option<ActorRef<M>>>,
}

impl<M: Message> Seat<M> {
    /// Leaves a message for whoever sits here; whether somebody did.
    pub(crate) fn cast(&self, message: M) -> bool {
        let occupant = self.occupant.borrow();
        occupant.as_ref().is_some_and(|actor| actor.cast(message).is_ok())
    }

    /// Whoever sits here and lives, waiting while nobody does; `None` when its parent is gone for good. The dead stay on
    /// their seat until they are replaced, and those of a parent that is gone stay for ever.
    pub(crate) async fn occupant(&mut self) -> Option<ActorRef<M>> {
        let lives = |occupant: &Option<ActorRef<M>>| {
            occupant.as_ref().is_some_and(|actor| actor.get_status() < ActorStatus::Stopping)
        };
        let occupied = self.occupant.wait_for(lives).await.ok()?;
        occupied.clone()
    }

    /// Whether somebody sits here.
    pub(crate) fn is_occupied(&self) -> bool {
        self.occupant.borrow().is_some()
    }
}

impl<M: Message> Chair<M> {
    /// An empty chair.
    pub(crate) fn new() -> Self {
        Self { occupant: watch::Sender::new(None) }
    }

    /// The seat that others hold.
    pub(crate) fn seat(&self) -> Seat<M> {
        Seat { occupant: self.occupant.subscribe() }
    }

    /// Puts an actor here.
    pub(crate) fn take(&self, actor: ActorRef<M>) {
        self.occupant.send_replace(Some(actor));
    }

    /// The occupant is dead.
    pub(crate) fn leave(&self) {
        self.occupant.send_replace(None);
    }

    /// Kills whoever sits here, in the middle of whatever it does.
    pub(crate) fn kill(&self) {
        if let Some(actor) = self.occupant.borrow().as_ref() {
            actor.kill();
        }
    }

    /// Whether `id` sits here.
    pub(crate) fn is(&self, id: ractor::ActorId) -> bool {
        self.occupant.borrow().as_ref().is_some_and(|actor| actor.get_id() == id)
    }
}

impl<M> Clone for Seat<M> {
    fn clone(&self) -> Self {
        Self { occupant: self.occupant.clone() }
    }
}

impl<M> Clone for Chair<M> {
    fn clone(&self) -> Self {
        Self { occupant: self.occupant.clone() }
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
                let reason = error.to_string();
                Some(Self { id: who.get_id(), reason, killed: false, error: Some(error) })
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
