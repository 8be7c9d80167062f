//! Runners that write down when each step ran and for whom, with a given step time to an absolute deadline or with their
//! own; what the record says of time in which a model could have run; and the same routing replayed as a discrete-event
//! simulation with the very durations.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokenrouter_engine::{Error, Facts, Runner};
use tokenrouter_policies::{Draws, Position, Purpose, Thresholds};
use tokenrouter_protocol::{CacheOp, Row, RowOutput};

/// A step: when it ran, and for whom.
#[derive(Clone, Debug)]
pub struct Step {
    /// When it began.
    pub begun: Instant,
    /// When it was done.
    pub ended: Instant,
    /// Whose rows it had: a number that tells requests apart.
    pub rows: Vec<u64>,
}

/// The steps of one runner, in order.
pub type Record = Arc<Mutex<Vec<Step>>>;

/// A runner that writes down its steps.
pub struct Timed {
    inner: Box<dyn Runner>,
    /// How long a step takes; its own time where nothing is said.
    time: Option<Duration>,
    record: Record,
    slack: bool,
}

impl Timed {
    /// A runner whose steps take `time`, or their own, and where it writes them down.
    pub fn new(inner: Box<dyn Runner>, time: Option<Duration>) -> (Self, Record) {
        let record = Record::default();
        (Self { inner, time, record: Arc::clone(&record), slack: false }, record)
    }

    /// Lets the kernel wake this thread on time: it adds 50 us to every sleep otherwise.
    fn wake_on_time(&mut self) {
        if !std::mem::replace(&mut self.slack, true) {
            // SAFETY: the call takes numbers alone and touches no memory.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        }
    }
}

impl Runner for Timed {
    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn step(&mut self, rows: &[Row]) -> Result<Vec<RowOutput>, Error> {
        self.wake_on_time();
        let begun = Instant::now();
        let outputs = self.inner.step(rows);
        if let Some(time) = self.time {
            std::thread::sleep((begun + time).saturating_duration_since(Instant::now()));
        }
        let rows = rows.iter().map(|row| row.draws.bits(0, Purpose::Token)).collect();
        let step = Step { begun, ended: Instant::now(), rows };
        self.record.lock().unwrap_or_else(PoisonError::into_inner).push(step);
        outputs
    }

    fn apply(&mut self, op: CacheOp) {
        self.inner.apply(op);
    }

    fn reset(&mut self) {
        self.inner.reset();
    }

    fn blocks_used(&self) -> u32 {
        self.inner.blocks_used()
    }
}

/// The steps of every model.
pub fn steps(records: &[Record]) -> Vec<Vec<Step>> {
    let of = |record: &Record| record.lock().unwrap_or_else(PoisonError::into_inner).clone();
    records.iter().map(of).collect()
}

/// How long each model did nothing although enough requests were ready for it, as a share of the time from the first step
/// to the last.
///
/// A request is ready for the model of its next step from the end of its last one, wherever that was: what messages take
/// is idle time too.
pub fn idle(steps: &[Vec<Step>], thresholds: &[Thresholds]) -> Vec<f64> {
    let mut order: Vec<(usize, &Step)> = Vec::new();
    for (model, steps) in steps.iter().enumerate() {
        order.extend(steps.iter().map(|step| (model, step)));
    }
    order.sort_by_key(|(_, step)| step.begun);
    let (Some(first), Some(last)) =
        (order.first().map(|(_, s)| s.begun), order.iter().map(|(_, s)| s.ended).max())
    else {
        return vec![0.0; steps.len()];
    };
    let mut ends: HashMap<u64, Instant> = HashMap::new();
    for (_, step) in &order {
        for row in &step.rows {
            ends.insert(*row, step.ended);
        }
    }
    let mut ends: Vec<Instant> = ends.into_values().collect();
    ends.sort_unstable();
    let mut ready: HashMap<u64, Instant> = HashMap::new();
    let mut free = vec![first; steps.len()];
    let mut idle = vec![Duration::ZERO; steps.len()];
    for (model, step) in order {
        let mut since: Vec<Instant> =
            step.rows.iter().map(|row| ready.get(row).copied().unwrap_or(step.begun)).collect();
        since.sort_unstable();
        let live = ends.iter().filter(|end| **end > step.begun).count() as u32;
        let enough = thresholds[model].at(live) as usize;
        let due = since.get(enough - 1).copied().unwrap_or(step.begun).max(free[model]);
        idle[model] += step.begun.saturating_duration_since(due);
        free[model] = step.ended;
        ready.extend(step.rows.iter().map(|row| (*row, step.ended)));
    }
    let whole = (last - first).as_secs_f64().max(f64::MIN_POSITIVE);
    idle.into_iter().map(|idle| idle.as_secs_f64() / whole).collect()
}

/// One request of the simulation.
struct Walker {
    draws: Draws,
    /// Where its next token stands, and where its reply ends.
    position: Position,
    end: Position,
}

/// One model of the simulation: the requests that wait, those in its step, and when that ends.
#[derive(Default)]
struct Server {
    waiting: Vec<usize>,
    running: Vec<usize>,
    done: Option<Duration>,
    steps: usize,
}

/// What is replayed.
#[derive(Clone, Copy, Debug)]
pub struct Replay<'a> {
    /// One for each request; all begin at once.
    pub draws: &'a [Draws],
    /// Lengths of prompt and reply of each.
    pub tokens: (u32, u32),
    /// How likely model 0 hands a token over; model 1 writes one and hands back.
    pub share: f64,
    /// When each model launches.
    pub thresholds: &'a [Thresholds],
}

/// How long it takes to write the replies where the n-th step of a model takes as long as its n-th here, and nothing else
/// takes any time.
pub fn simulate(replay: Replay<'_>, steps: &[Vec<Step>]) -> Duration {
    let (prompt, tokens) = replay.tokens;
    let walk = |draws: &Draws| Walker { draws: *draws, position: prompt, end: prompt + tokens };
    let mut walkers: Vec<Walker> = replay.draws.iter().map(walk).collect();
    let mut live = walkers.len() as u32;
    let mut servers = [Server::default(), Server::default()];
    servers[0].waiting = (0..walkers.len()).collect();
    let mut now = Duration::ZERO;
    loop {
        for (model, server) in servers.iter_mut().enumerate() {
            let enough = server.waiting.len() as u32 >= replay.thresholds[model].at(live);
            if server.done.is_none() && !server.waiting.is_empty() && enough {
                server.running = std::mem::take(&mut server.waiting);
                let step = steps[model].get(server.steps).or(steps[model].last());
                server.done = Some(now + step.map_or(Duration::ZERO, |s| s.ended - s.begun));
                server.steps += 1;
            }
        }
        let next = (0..2).filter_map(|model| Some((servers[model].done?, model))).min();
        let Some((done, model)) = next else { return now };
        now = done;
        servers[model].done = None;
        for request in std::mem::take(&mut servers[model].running) {
            let walker = &mut walkers[request];
            let handed =
                model == 0 && walker.draws.uniform(walker.position, Purpose::Route) < replay.share;
            walker.position += u32::from(!handed);
            if walker.position < walker.end {
                servers[usize::from(handed)].waiting.push(request);
            } else {
                live -= 1;
            }
        }
    }
}
