//! The engine of a model: a runner on threads of its own, driven by one life of the model's scheduler at a time.
//!
//! Whoever holds the [`Engine`] outlives every scheduler. A scheduler first attaches, which empties the cache and
//! discards what an earlier life left; then it runs one job at a time and gets each result through its `deliver`.
//! Nobody ever waits here: what cannot be taken at once is refused. The engine never restarts by itself after a panic or
//! an error: only the next life, attaching, makes it run again.

use crate::error::Error;
use crate::runner::{Facts, Runner};
use crate::scripted::{Script, Scripted};
use mailbox::{Mailbox, Order};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokenrouter_protocol::{Job, Life, PoolSize, RowOutput};

mod mailbox;

/// Where the results of a life go. Called on the engine's thread: it must be quick and must not panic.
pub type Deliver = Arc<dyn Fn(Done) + Send + Sync>;

/// The end of a job.
#[derive(Debug)]
pub struct Done {
    /// The life that ran the job.
    pub life: Life,
    /// What it gave. After an error the engine takes nothing more from this life.
    pub result: Result<JobReport, StepError>,
    /// How long it took.
    pub elapsed: Duration,
}

/// What a job gave.
#[derive(Clone, Debug, PartialEq)]
pub struct JobReport {
    /// For each row of the job, its outputs.
    pub outputs: Vec<RowOutput>,
    /// Blocks of the pool in use after the job.
    pub blocks_used: u32,
}

/// Why a job failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The runner refused or failed.
    #[error(transparent)]
    Runner(#[from] Error),
    /// The runner panicked.
    #[error("the forward pass panicked: {0}")]
    Panic(String),
}

/// Why the engine did not take a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another life is attached, or none.
    #[error("life {life} is not attached to the engine; attach it first")]
    NotAttached {
        /// The life that wanted to run.
        life: Life,
    },
    /// The last job of this life is not done.
    #[error("the last job is not done; wait for its result")]
    Busy,
    /// A job of this life failed.
    #[error("a job of this life failed; only a new life can go on")]
    Broken,
    /// The engine's thread is gone.
    #[error("the engine's thread has ended")]
    Gone,
}

/// The handle of a model's engine. Dropping it ends the engine once the running step is done.
pub struct Engine {
    name: String,
    facts: Facts,
    mailbox: Arc<Mailbox>,
}

impl Engine {
    /// Starts a runner on `facts().threads` threads of its own, which only this engine uses.
    ///
    /// # Errors
    /// [`Error::Spawn`] where the system gives no more threads.
    pub fn real(runner: Box<dyn Runner>, name: &str) -> Result<Self, Error> {
        let facts = runner.facts();
        let pool = threads(facts, name)?;
        let name = name.to_owned();
        let mailbox = Arc::new(Mailbox::default());
        let worker = Worker { runner, attached: None, mailbox: Arc::clone(&mailbox) };
        // The loop is itself a task of the pool, so that a step of one thread never changes threads.
        pool.spawn(move || worker.serve());
        Ok(Self { name, facts, mailbox })
    }

    /// Starts a scripted runner as a task of the current tokio runtime; its steps take their time on tokio's clock.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn scripted(script: Script) -> Self {
        let mailbox = Arc::new(Mailbox::default());
        let facts = script.facts;
        let worker =
            Worker { runner: Scripted::new(script), attached: None, mailbox: Arc::clone(&mailbox) };
        tokio::spawn(worker.play());
        Self { name: "scripted".to_owned(), facts, mailbox }
    }

    /// The name it was started with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its runner is.
    pub fn facts(&self) -> Facts {
        self.facts
    }

    /// The size of its KV pool.
    pub fn pool(&self) -> PoolSize {
        self.facts.pool
    }

    /// Makes `life` the one whose jobs run, with an empty cache, as soon as the running step is done. The waiting job of
    /// the life before is discarded; the result of its running one still goes to its own `deliver`.
    pub fn attach(&self, life: Life, deliver: Deliver) {
        self.mailbox.attach(life, deliver);
    }

    /// Runs a job; its [`Done`] goes to the `deliver` of `life`. At most one job of a life is out at a time: the next can
    /// be given from within `deliver`.
    ///
    /// # Errors
    /// When the engine cannot take the job now; then nothing of it runs.
    pub fn run(&self, life: Life, job: Job) -> Result<(), Refused> {
        self.mailbox.run(life, job)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("name", &self.name).field("facts", &self.facts).finish()
    }
}

/// Does `work` on threads such as an engine with these facts has: what times a runner must not have more of them.
///
/// # Errors
/// [`Error::Spawn`] where the system gives no more threads.
pub fn on_threads<T: Send>(
    facts: Facts,
    name: &str,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    Ok(threads(facts, name)?.install(work))
}

fn threads(facts: Facts, name: &str) -> Result<ThreadPool, Error> {
    let thread = name.to_owned();
    ThreadPoolBuilder::new()
        .num_threads(facts.threads.max(1))
        .thread_name(move |index| format!("engine-{thread}-{index}"))
        .build()
        .map_err(|source| Error::Spawn { name: name.to_owned(), source })
}

/// The far side of the mailbox, which owns the runner.
struct Worker<R> {
    runner: R,
    attached: Option<(Life, Deliver)>,
    mailbox: Arc<Mailbox>,
}

impl Worker<Box<dyn Runner>> {
    /// Takes orders until the handle is gone. Runs on the engine's thread.
    fn serve(mut self) {
        while let Some(order) = self.mailbox.wait() {
            let started = Instant::now();
            if let Some(result) = perform(&mut *self.runner, &mut self.attached, order) {
                self.deliver(result, started.elapsed());
            }
        }
    }
}

impl Worker<Scripted> {
    /// Takes orders until the handle is gone. A job takes its scripted time after its effects on the cache, which
    /// nobody can tell from before, since nothing else runs meanwhile.
    async fn play(mut self) {
        while let Some(order) = self.mailbox.next().await {
            let Some(result) = perform(&mut self.runner, &mut self.attached, order) else {
                continue;
            };
            let took = self.runner.took();
            if !took.is_zero() {
                tokio::select! {
                    () = tokio::time::sleep(took) => {}
                    () = self.mailbox.closed() => return,
                }
            }
            self.deliver(result, took);
        }
    }
}

impl<R> Worker<R> {
    fn deliver(&self, result: Result<JobReport, StepError>, elapsed: Duration) {
        let Some((life, deliver)) = &self.attached else { return };
        self.mailbox.done(*life, result.is_err());
        let done = Done { life: *life, result, elapsed };
        if catch_unwind(AssertUnwindSafe(|| deliver(done))).is_err() {
            tracing::error!(%life, "a result could not be delivered: its receiver panicked");
        }
    }
}

impl<R> Drop for Worker<R> {
    fn drop(&mut self) {
        self.mailbox.close();
    }
}

/// Performs one order and gives the result of a job.
fn perform(
    runner: &mut dyn Runner,
    attached: &mut Option<(Life, Deliver)>,
    order: Order,
) -> Option<Result<JobReport, StepError>> {
    match order {
        Order::Attach(life, deliver) => {
            runner.reset();
            *attached = Some((life, deliver));
            None
        }
        Order::Run(job) => {
            // Whatever a panic leaves half done in the runner is emptied by the reset of the next attach.
            let result = catch_unwind(AssertUnwindSafe(|| run(runner, &job)));
            Some(match result {
                Ok(result) => result.map_err(StepError::from),
                Err(panic) => Err(StepError::Panic(message(panic.as_ref()))),
            })
        }
    }
}

/// The operations of the job in order, then its forward pass.
fn run(runner: &mut dyn Runner, job: &Job) -> Result<JobReport, Error> {
    for op in &job.ops {
        runner.apply(*op);
    }
    let outputs = if job.rows.is_empty() { Vec::new() } else { runner.step(&job.rows)? };
    Ok(JobReport { outputs, blocks_used: runner.blocks_used() })
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests;
