//! Runs worlds: one seed, or many, and says what they met. A seed that fails is run again with a log.

use crate::world::World;
use crate::world::links::Met;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use tokenrouter_protocol::{home, host};

/// What the worlds of some seeds met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Worlds.
    pub seeds: u64,
    /// Events in them.
    pub events: u64,
    /// Requests that finished, each with the reply it must have.
    pub finished: u64,
    /// Requests whose client went away.
    pub cancelled: u64,
    /// Requests whose model stopped answering for longer than their home waits.
    pub failed: u64,
    /// Tokens committed.
    pub tokens: u64,
    /// New lives of models.
    pub rebirths: u64,
    /// Doors lost, of whole models.
    pub doors: u64,
    /// New lives of homes.
    pub deaths: u64,
    /// Requests that were brought to a later life of their home.
    pub adoptions: u64,
    /// Requests in flight that nobody brought to the next life of their home.
    pub abandoned: u64,
    /// Words and faults.
    pub met: Met,
    /// The sum of [`home::Counters`], last lives only: rows, stale rows, holes, unknown, late, grants, regrants, probes.
    pub home: [u64; 8],
    /// The sum of [`host::Counters`], last lives only: steps, rows, tokens, dropped rows, grants, stale grants, missing,
    /// evictions, preemptions.
    pub host: [u64; 9],
}

/// A seed that broke an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
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
    match attempt(seed, false) {
        Ok((stats, _)) => Ok(stats),
        Err(_) => run_logged(seed).map(|(stats, _)| stats),
    }
}

/// As [`run`], with the last events of a world that passes.
///
/// # Errors
/// As [`run`].
pub fn run_logged(seed: u64) -> Result<(Stats, Vec<String>), Failure> {
    attempt(seed, true)
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

fn attempt(seed: u64, logged: bool) -> Result<(Stats, Vec<String>), Failure> {
    let mut log = VecDeque::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed, logged);
        let result = catch_unwind(AssertUnwindSafe(|| world.run()));
        log = world.log.take().unwrap_or_default();
        result.map(|()| world.stats())
    }));
    match result {
        Ok(Ok(stats)) => Ok((stats, log.into())),
        Ok(Err(panic)) | Err(panic) => {
            Err(Failure { seed, reason: reason(panic.as_ref()), log: log.into() })
        }
    }
}

fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a reason".to_owned())
}

impl World {
    fn stats(&self) -> Stats {
        use crate::world::inspect::Fate;
        let count = |fate| self.cases.iter().filter(|case| case.fate == fate).count() as u64;
        let mut stats = Stats {
            seeds: 1,
            events: self.events,
            finished: count(Fate::Done),
            cancelled: count(Fate::Cancelled),
            failed: count(Fate::Failed),
            tokens: self.cases.iter().map(|case| case.written.len() as u64).sum(),
            rebirths: self.plan.rebirths.len() as u64,
            doors: self.plan.doors.len() as u64,
            deaths: self.plan.deaths.len() as u64,
            adoptions: self.adoptions,
            abandoned: self.abandoned,
            met: self.links.met,
            ..Stats::default()
        };
        self.homes.iter().for_each(|home| add(&mut stats.home, home_counts(home.counters())));
        self.hosts.iter().for_each(|side| add(&mut stats.host, host_counts(side.host.counters())));
        stats
    }
}

fn home_counts(c: home::Counters) -> [u64; 8] {
    [c.rows, c.stale_rows, c.holes, c.unknown, c.late, c.grants, c.regrants, c.probes]
}

fn host_counts(c: host::Counters) -> [u64; 9] {
    let seen = [c.steps, c.rows, c.tokens, c.dropped_rows, c.grants, c.stale_grants];
    let [steps, rows, tokens, dropped, grants, stale] = seen;
    [steps, rows, tokens, dropped, grants, stale, c.missing, c.evictions, c.preemptions]
}

fn add<const N: usize>(sum: &mut [u64; N], more: [u64; N]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.finished += other.finished;
        self.cancelled += other.cancelled;
        self.tokens += other.tokens;
        self.failed += other.failed;
        self.rebirths += other.rebirths;
        self.doors += other.doors;
        self.deaths += other.deaths;
        self.adoptions += other.adoptions;
        self.abandoned += other.abandoned;
        self.met += other.met;
        add(&mut self.home, other.home);
        add(&mut self.host, other.host);
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, events, finished, cancelled, failed, tokens, .. } = self;
        writeln!(f, "{seeds} seeds, {events} events, {tokens} tokens committed")?;
        writeln!(f, "requests: {finished} finished, {cancelled} cancelled, {failed} stalled")?;
        let Self { rebirths, doors, deaths, adoptions, abandoned, .. } = self;
        writeln!(f, "deaths: {rebirths} of models, {doors} of doors, {deaths} of homes")?;
        writeln!(f, "after deaths of homes: {adoptions} adopted, {abandoned} abandoned")?;
        writeln!(f, "{}", self.met)?;
        let [rows, stale, holes, unknown, late, grants, regrants, probes] = self.home;
        writeln!(
            f,
            "homes: {rows} rows, {stale} stale, {holes} holes, {unknown} unknown, {late} late"
        )?;
        writeln!(f, "homes: {grants} grants, {regrants} regrants, {probes} probes")?;
        let [steps, rows, tokens, dropped, grants, stale, missing, evictions, preemptions] =
            self.host;
        writeln!(
            f,
            "models: {steps} steps, {rows} rows, {tokens} tokens fed, {dropped} rows dropped"
        )?;
        writeln!(f, "models: {grants} grants taken, {stale} stale, {missing} missing")?;
        write!(f, "models: {evictions} evictions, {preemptions} preemptions")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "seed {}: {}", self.seed, self.reason)
    }
}
