//! The same model as the exact chain, played event by event: for what is too large to be solved, as a cross-check, and for
//! times per token, of which the chain knows nothing.
//!
//! Each request draws where it goes next from its own seeded draws, one a step. So the same seed gives every request the same
//! path whatever the thresholds are, and vectors are compared on the same luck. A request that waits is taken in the order of
//! arrival.

use super::observations::Observations;
use super::system::System;
use crate::draw::{Draws, Purpose};
use std::collections::VecDeque;

/// How many committed tokens make a reply, for times per token.
pub const REPLY_TOKENS: u32 = 256;

/// A simulation in progress. It may go on with other thresholds, or a system in which other numbers hold; the models and the
/// tick must stay.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// In ticks, as all times here.
    now: u64,
    models: Vec<Model>,
    requests: Vec<Request>,
    committed: f64,
    /// The ticks that each finished reply took.
    replies: Vec<u64>,
    seen: Seen,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// So many seconds after the start of the simulation.
    Seconds(f64),
    /// So many tokens were committed since the measure began.
    Tokens(f64),
}

#[derive(Clone, Debug, Default)]
struct Model {
    waiting: VecDeque<u32>,
    running: Vec<u32>,
    /// When its pass ends.
    until: u64,
    /// The ticks of a pass, by how many requests are in it; filled at the start of a run.
    ticks: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Request {
    draws: Draws,
    steps: u32,
    /// Of the reply it is at; `None` until the measure has begun and a reply with it.
    committed: f64,
    since: u64,
}

impl Simulation {
    /// `live` requests at the entry model of a valid system, before anything happens.
    pub fn new(system: &System, live: u32, seed: u64) -> Self {
        let request = |number| Request {
            draws: Draws::new(seed, number),
            steps: 0,
            committed: 0.0,
            since: 0,
        };
        let mut models = vec![Model::default(); system.models()];
        models[system.entry].waiting = (0..live).collect();
        Self {
            now: 0,
            models,
            requests: (0..live).map(request).collect(),
            committed: 0.0,
            replies: Vec::new(),
            seen: Seen::new(system.models(), live),
        }
    }

    /// Plays on; passes that have begun end as they were planned. Ends early where all requests wait for each other.
    pub fn run(&mut self, system: &System, thresholds: &[u32], until: Until) {
        let live = self.requests.len() as u32;
        for (number, model) in self.models.iter_mut().enumerate() {
            model.ticks = (0..=live).map(|batch| u64::from(system.ticks(number, batch))).collect();
        }
        // So that a system that commits next to nothing ends as well.
        let mut passes_left = match until {
            Until::Tokens(tokens) => (tokens * 20.0) as u64,
            Until::Seconds(_) => u64::MAX,
        };
        loop {
            self.launch(system, thresholds);
            let running = self.models.iter().filter(|model| !model.running.is_empty());
            let Some(next) = running.map(|model| model.until).min() else { return };
            let over = match until {
                Until::Seconds(seconds) => next as f64 * system.tick > seconds,
                Until::Tokens(tokens) => self.committed >= tokens,
            };
            if over || passes_left == 0 {
                return;
            }
            self.now = next;
            for model in 0..self.models.len() {
                if self.models[model].until == next && !self.models[model].running.is_empty() {
                    self.end(system, model);
                    passes_left = passes_left.saturating_sub(1);
                }
            }
        }
    }

    /// Forgets what was counted and begins to measure now.
    pub fn begin_measure(&mut self) {
        (self.committed, self.replies) = (0.0, Vec::new());
        self.seen = Seen::new(self.models.len(), self.requests.len() as u32);
        for request in &mut self.requests {
            (request.committed, request.since) = (0.0, self.now);
        }
    }

    /// Seconds since the start.
    pub fn seconds(&self, system: &System) -> f64 {
        self.now as f64 * system.tick
    }

    /// Tokens committed since the measure began.
    pub fn committed(&self) -> f64 {
        self.committed
    }

    /// The mean seconds per token of each reply of [`REPLY_TOKENS`] that was finished since the measure began, rising.
    pub fn seconds_per_token(&self, system: &System) -> Vec<f64> {
        let mut replies = self.replies.clone();
        replies.sort_unstable();
        let each = system.tick / f64::from(REPLY_TOKENS);
        replies.into_iter().map(|ticks| ticks as f64 * each).collect()
    }

    /// What was seen since it was last taken: moves, commits and step times.
    pub fn take_observations(&mut self, system: &System) -> Observations {
        let fresh = Seen::new(self.models.len(), self.requests.len() as u32);
        std::mem::replace(&mut self.seen, fresh).observations(system.tick)
    }

    fn launch(&mut self, system: &System, thresholds: &[u32]) {
        let live = self.requests.len() as u32;
        for (number, model) in self.models.iter_mut().enumerate() {
            let ready = model.waiting.len() as u32;
            if model.running.is_empty() && ready > 0 && ready >= thresholds[number].min(live) {
                let batch = ready.min(system.cap(number, live));
                model.running.extend(model.waiting.drain(..batch as usize));
                let ticks = model.ticks[batch as usize];
                model.until = self.now + ticks;
                let steps = &mut self.seen.steps[number][batch as usize];
                *steps = (steps.0 + 1, steps.1 + ticks);
            }
        }
    }

    fn end(&mut self, system: &System, model: usize) {
        let mut batch = std::mem::take(&mut self.models[model].running);
        for number in batch.drain(..) {
            let request = &mut self.requests[number as usize];
            let draw = request.draws.uniform(request.steps, Purpose::Route);
            request.steps = request.steps.wrapping_add(1);
            let to = destination(&system.moves[model], draw);
            let tokens = system.commits[model][to];
            request.committed += tokens;
            if request.committed >= f64::from(REPLY_TOKENS) {
                self.replies.push(self.now - request.since);
                request.committed -= f64::from(REPLY_TOKENS);
                request.since = self.now;
            }
            self.committed += tokens;
            let moved = &mut self.seen.moves[model][to];
            *moved = (moved.0 + 1, moved.1 + tokens);
            self.models[to].waiting.push_back(number);
        }
        // The room is used again.
        self.models[model].running = batch;
    }
}

/// What was seen, in the form that is counted fastest.
#[derive(Clone, Debug)]
struct Seen {
    /// How many moves, and the tokens they committed.
    moves: Vec<Vec<(u64, f64)>>,
    /// By model and batch: how many passes, and their ticks.
    steps: Vec<Vec<(u64, u64)>>,
}

impl Seen {
    fn new(models: usize, live: u32) -> Self {
        let moves = vec![vec![(0, 0.0); models]; models];
        Self { moves, steps: vec![vec![(0, 0); live as usize + 1]; models] }
    }

    fn observations(&self, tick: f64) -> Observations {
        let mut seen = Observations::new(self.moves.len());
        for (from, row) in self.moves.iter().enumerate() {
            for (to, &(count, tokens)) in row.iter().enumerate() {
                seen.moved(from, to, count as f64, tokens);
            }
        }
        for (model, sizes) in self.steps.iter().enumerate() {
            for (batch, &(count, ticks)) in sizes.iter().enumerate().filter(|(_, s)| s.0 > 0) {
                seen.stepped(model, batch as u32, count as f64, ticks as f64 * tick);
            }
        }
        seen
    }
}

/// Where a request goes that drew a uniform number.
fn destination(odds: &[f64], mut draw: f64) -> usize {
    for (to, p) in odds.iter().enumerate() {
        if draw < *p {
            return to;
        }
        draw -= p;
    }
    // The sum fell a rounding short of 1.
    odds.iter().rposition(|p| *p > 0.0).unwrap_or(0)
}

/// What a simulation says of one vector of thresholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Committed tokens a second.
    pub(super) tokens_per_s: f64,
    /// The mean seconds per token that 99 of 100 replies keep.
    pub(super) p99_tpot: f64,
}

/// Simulates until about `tokens` were committed, after a warm-up of a twentieth.
pub(super) fn measure(
    system: &System,
    live: u32,
    thresholds: &[u32],
    tokens: f64,
    seed: u64,
) -> Measured {
    let mut simulation = Simulation::new(system, live, seed);
    simulation.run(system, thresholds, Until::Tokens(tokens / 20.0));
    simulation.begin_measure();
    let began = simulation.seconds(system);
    simulation.run(system, thresholds, Until::Tokens(tokens));
    let tokens_per_s = simulation.committed() / (simulation.seconds(system) - began);
    let replies = simulation.seconds_per_token(system);
    let at = (replies.len() * 99).div_ceil(100).saturating_sub(1);
    // Where not one reply was finished, nothing better is known than the mean.
    let p99_tpot = replies.get(at).copied().unwrap_or(f64::from(live) / tokens_per_s);
    Measured { tokens_per_s, p99_tpot }
}

#[cfg(test)]
mod tests;
