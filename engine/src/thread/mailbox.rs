//! What an engine has been told to do and has not begun: at most one attachment and one job, so it can be neither full
//! nor out of order, and nobody waits to put something in.

use super::{Deliver, Refused};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tokenrouter_protocol::{Job, Life};
use tokio::sync::Notify;

/// The next thing to do.
pub(super) enum Order {
    /// Forget everything; from now on results go to this life.
    Attach(Life, Deliver),
    /// Run a job of the attached life.
    Run(Job),
}

/// One place for an attachment, one for a job, and who may put something there.
#[derive(Default)]
pub(super) struct Mailbox {
    state: Mutex<State>,
    thread: Condvar,
    task: Notify,
    end: Notify,
}

#[derive(Default)]
struct State {
    /// The life that attached last.
    life: Option<Life>,
    /// What it still owes the worker to do.
    attach: Option<Deliver>,
    job: Option<Job>,
    /// A job of `life` waits or runs.
    busy: bool,
    /// A job of `life` failed.
    broken: bool,
    closed: bool,
}

impl Mailbox {
    /// A newer attachment takes the place of an older one, and of any job that waits.
    pub(super) fn attach(&self, life: Life, deliver: Deliver) {
        let mut state = self.lock();
        let closed = state.closed;
        *state = State { life: Some(life), attach: Some(deliver), closed, ..State::default() };
        self.wake();
    }

    pub(super) fn run(&self, life: Life, job: Job) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Gone);
        }
        if state.life != Some(life) {
            return Err(Refused::NotAttached { life });
        }
        if state.broken {
            return Err(Refused::Broken);
        }
        if state.busy {
            return Err(Refused::Busy);
        }
        state.busy = true;
        state.job = Some(job);
        self.wake();
        Ok(())
    }

    /// The running job of `life` is done.
    pub(super) fn done(&self, life: Life, failed: bool) {
        let mut state = self.lock();
        if state.life == Some(life) {
            state.busy = false;
            state.broken = failed;
        }
    }

    /// No more orders are given or taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake();
        self.end.notify_one();
    }

    /// Blocks the thread until there is an order; `None` when closed.
    pub(super) fn wait(&self) -> Option<Order> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(order) = state.take() {
                return Some(order);
            }
            state = self.thread.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same for a task.
    pub(super) async fn next(&self) -> Option<Order> {
        loop {
            {
                let mut state = self.lock();
                if state.closed {
                    return None;
                }
                if let Some(order) = state.take() {
                    return Some(order);
                }
            }
            self.task.notified().await;
        }
    }

    /// Returns once the mailbox is closed.
    pub(super) async fn closed(&self) {
        self.end.notified().await;
    }

    /// The state stays whole if a holder of the lock panics: every change is a few plain assignments.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.thread.notify_one();
        self.task.notify_one();
    }
}

impl State {
    fn take(&mut self) -> Option<Order> {
        if let (Some(life), Some(deliver)) = (self.life, self.attach.take()) {
            return Some(Order::Attach(life, deliver));
        }
        self.job.take().map(Order::Run)
    }
}
