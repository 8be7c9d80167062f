//! A runner whose steps take a given time, to an absolute deadline on a thread of its own, and which remembers how long
//! they really took; and the same routing replayed as a discrete-event simulation with those very durations.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokenrouter_engine::{Error, Facts, Runner, Script, Scripted};
use tokenrouter_policies::{Draws, Position, Purpose};
use tokenrouter_protocol::{CacheOp, Row, RowOutput};

/// How long each step took, in order.
pub type Took = Arc<Mutex<Vec<Duration>>>;

/// The runner.
#[derive(Debug)]
pub struct Timed {
    inner: Scripted,
    time: Duration,
    took: Took,
}

impl Timed {
    /// A runner of `script` whose steps take `time`, and where it writes down what they took.
    pub fn new(script: Script, time: Duration) -> (Self, Took) {
        let took = Took::default();
        (Self { inner: Scripted::new(script), time, took: Arc::clone(&took) }, took)
    }
}

impl Runner for Timed {
    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn step(&mut self, rows: &[Row]) -> Result<Vec<RowOutput>, Error> {
        let begun = Instant::now();
        let outputs = self.inner.step(rows);
        if !rows.is_empty() {
            std::thread::sleep((begun + self.time).saturating_duration_since(Instant::now()));
            let took = begun.elapsed();
            self.took.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(took);
        }
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

/// How long it takes to write replies of `tokens` tokens to prompts of `prompt` for these draws, where model 0 hands a
/// token over with probability `share` and model 1 writes one and hands back, each step starts as soon as its model is
/// free and somebody waits, the n-th step of a model takes `took[model][n]`, and nothing else takes any time.
pub fn simulate(
    draws: &[Draws],
    (prompt, tokens): (u32, u32),
    share: f64,
    took: &[Vec<Duration>; 2],
) -> Duration {
    let walk = |draws: &Draws| Walker { draws: *draws, position: prompt, end: prompt + tokens };
    let mut walkers: Vec<Walker> = draws.iter().map(walk).collect();
    let mut servers = [Server::default(), Server::default()];
    servers[0].waiting = (0..walkers.len()).collect();
    let mut now = Duration::ZERO;
    loop {
        for (server, took) in servers.iter_mut().zip(took) {
            if server.done.is_none() && !server.waiting.is_empty() {
                server.running = std::mem::take(&mut server.waiting);
                let time = took.get(server.steps).or(took.last()).copied().unwrap_or_default();
                server.done = Some(now + time);
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
                model == 0 && walker.draws.uniform(walker.position, Purpose::Route) < share;
            walker.position += u32::from(!handed);
            if walker.position < walker.end {
                servers[usize::from(handed)].waiting.push(request);
            }
        }
    }
}
