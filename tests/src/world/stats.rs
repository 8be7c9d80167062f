//! What worlds met, counted and printed: a sum over seeds in which nothing depends on their order.

use crate::world::World;
use crate::world::deaths::Deaths;
use crate::world::inspect::Fate;
use crate::world::links::Met;
use crate::world::recovery::{CAUSES, Times};
use std::fmt;
use std::ops::AddAssign;
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
    /// Requests whose client went away, or was lost with its node.
    pub cancelled: u64,
    /// Requests whose model stopped answering for longer than their home waits.
    pub failed: u64,
    /// Tokens committed.
    pub tokens: u64,
    /// Who died.
    pub deaths: Deaths,
    /// Windows in which one node heard nothing of another.
    pub cuts: u64,
    /// Words and faults.
    pub met: Met,
    /// By cause: how long requests stood still.
    pub recoveries: [Times; CAUSES.len()],
    /// The sum of [`home::Counters`], last lives only: rows, stale rows, holes, unknown, late, grants, regrants, probes.
    pub home: [u64; 8],
    /// The sum of [`host::Counters`], last lives only: steps, rows, tokens, dropped rows, grants, stale grants, missing,
    /// evictions, preemptions.
    pub host: [u64; 9],
}

impl World {
    pub(crate) fn stats(&self) -> Stats {
        let count = |fate| self.cases.iter().filter(|case| case.fate == fate).count() as u64;
        let mut stats = Stats {
            seeds: 1,
            events: self.events,
            finished: count(Fate::Done),
            cancelled: count(Fate::Cancelled),
            failed: count(Fate::Failed),
            tokens: self.cases.iter().map(|case| case.written.len() as u64).sum(),
            deaths: self.deaths,
            cuts: self.plan.cuts.len() as u64,
            met: self.links.met,
            recoveries: self.recoveries,
            ..Stats::default()
        };
        self.homes.iter().for_each(|side| add(&mut stats.home, home_counts(side.home.counters())));
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

impl AddAssign for Deaths {
    fn add_assign(&mut self, other: Self) {
        self.models += other.models;
        self.doors += other.doors;
        self.homes += other.homes;
        self.nodes += other.nodes;
        self.adopted += other.adopted;
        self.abandoned += other.abandoned;
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.finished += other.finished;
        self.cancelled += other.cancelled;
        self.failed += other.failed;
        self.tokens += other.tokens;
        self.deaths += other.deaths;
        self.cuts += other.cuts;
        self.met += other.met;
        self.recoveries.iter_mut().zip(other.recoveries).for_each(|(sum, more)| *sum += more);
        add(&mut self.home, other.home);
        add(&mut self.host, other.host);
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, events, finished, cancelled, failed, tokens, cuts, .. } = self;
        writeln!(f, "{seeds} seeds, {events} events, {tokens} tokens committed")?;
        writeln!(f, "requests: {finished} finished, {cancelled} cancelled, {failed} stalled")?;
        let Deaths { models, doors, homes, nodes, adopted, abandoned } = self.deaths;
        write!(f, "deaths: {models} of models, {homes} of homes, {doors} of doors, ")?;
        writeln!(f, "{nodes} of nodes; {cuts} partitions")?;
        writeln!(f, "after deaths of homes: {adopted} adopted, {abandoned} abandoned")?;
        writeln!(f, "{}", self.met)?;
        let columns = ["hit", "p50 ms", "p90 ms", "p99 ms", "max ms"];
        let [hit, p50, p90, p99, max] = columns;
        writeln!(f, "{:13}{hit:>9}{p50:>10}{p90:>10}{p99:>10}{max:>10}", "recovery")?;
        for (cause, times) in CAUSES.iter().zip(&self.recoveries) {
            writeln!(f, "{cause:13}{times}")?;
        }
        let [rows, stale, holes, unknown, late, grants, regrants, probes] = self.home;
        write!(f, "homes: {rows} rows, {stale} stale, {holes} holes, {unknown} unknown, ")?;
        writeln!(f, "{late} late, {grants} grants, {regrants} regrants, {probes} probes")?;
        let [steps, rows, tokens, dropped, grants, stale, missing, evicted, preempted] = self.host;
        write!(f, "models: {steps} steps, {rows} rows, {tokens} tokens fed, {dropped} rows ")?;
        write!(f, "dropped, {grants} grants taken, {stale} stale, {missing} missing, ")?;
        write!(f, "{evicted} evictions, {preempted} preemptions")
    }
}
