//! Runs worlds: one seed, or many, or a scenario, and says what they met. A seed that fails is run again with a log.

use crate::world::plan::Plan;
use crate::world::script::Play;
use crate::world::stats::Stats;
use crate::world::{Scenario, World};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Events that are kept of a world that fails.
const LOG: usize = 200;

/// A world that broke an invariant, or a scenario that went another way.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which: the number of a seed, or the name of a scenario.
    pub world: String,
    /// What was asserted.
    pub reason: String,
    /// The last events, the newest last.
    pub log: Vec<String>,
}

/// What a sweep over many seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Over all seeds that passed.
    pub stats: Stats,
    /// The first failure of each thread.
    pub failures: Vec<Failure>,
}

/// Runs the world of one seed to its end.
///
/// # Errors
/// The invariant it breaks, and the last events before.
pub fn run(seed: u64) -> Result<Stats, Failure> {
    match attempt(seed, 0) {
        Ok((stats, _)) => Ok(stats),
        Err(_) => attempt(seed, LOG).map(|(stats, _)| stats),
    }
}

/// As [`run`], with all events.
///
/// # Errors
/// As [`run`].
pub fn run_logged(seed: u64) -> Result<(Stats, Vec<String>), Failure> {
    attempt(seed, usize::MAX)
}

/// Plays a scenario to its end; what happened.
///
/// # Errors
/// The invariant it breaks, or the line of it that cannot be played, and the events before.
pub fn play(scenario: &Scenario) -> Result<Vec<String>, Failure> {
    let played = guarded(|log| {
        let play = Play::read(scenario.text).unwrap_or_else(|reason| panic!("{reason}"));
        let mut world = play.world();
        watch(&mut world, log, |world| play.play(world));
    });
    match played {
        (Ok(()), log) => Ok(log),
        (Err(reason), log) => Err(Failure { world: scenario.name.to_owned(), reason, log }),
    }
}

/// Runs `seeds` worlds from seed `from` on, on `threads` threads; each stops at its first failure.
pub fn sweep(from: u64, seeds: u64, threads: u64) -> Summary {
    let mut summary = Summary::default();
    thread::scope(|scope| {
        let work = |thread| move || strand((from + thread..from + seeds).step_by(threads as usize));
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
        for strand in running {
            let (stats, failure) = strand.join().expect("a strand catches its panics");
            summary.stats += stats;
            summary.failures.extend(failure);
        }
    });
    summary
}

fn strand(seeds: impl Iterator<Item = u64>) -> (Stats, Option<Failure>) {
    let mut stats = Stats::default();
    for seed in seeds {
        match run(seed) {
            Ok(one) => stats += one,
            Err(failure) => return (stats, Some(failure)),
        }
    }
    (stats, None)
}

fn attempt(seed: u64, most: usize) -> Result<(Stats, Vec<String>), Failure> {
    let ran = guarded(|log| {
        let mut world = World::new(Plan::new(seed), seed, most);
        watch(&mut world, log, |world| {
            world.schedule();
            world.run();
        });
        world.stats()
    });
    match ran {
        (Ok(stats), log) => Ok((stats, log)),
        (Err(reason), log) => Err(Failure { world: format!("seed {seed}"), reason, log }),
    }
}

/// Does something to a world, and saves its log even from a panic.
fn watch(world: &mut World, log: &mut VecDeque<String>, act: impl FnOnce(&mut World)) {
    let result = catch_unwind(AssertUnwindSafe(|| act(world)));
    *log = std::mem::take(&mut world.log.lines);
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// What `act` comes to, or why it panics, and the log it filled.
fn guarded<T>(act: impl FnOnce(&mut VecDeque<String>) -> T) -> (Result<T, String>, Vec<String>) {
    let mut log = VecDeque::new();
    let result = catch_unwind(AssertUnwindSafe(|| act(&mut log)));
    (result.map_err(|panic| reason(panic.as_ref())), log.into())
}

fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a reason".to_owned())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "{}: {}", self.world, self.reason)
    }
}
