//! The tuner of delayed batching: keeps up with what models really do, and says when other thresholds are worth a change.
//!
//! It is told what was seen, lets the past fade, and from that keeps a [`System`] up to date: where requests move, what moves
//! commit, and how long steps take. Where that has drifted from what was last planned for, by more than chance explains, it
//! plans anew; and where the new thresholds promise clearly more than the current ones do under the same numbers, it names
//! them. Small promises are not worth a change, so it does not flap. It reads no clock, draws nothing unseeded, changes nobody's
//! thresholds by itself, and the same observations lead to the same changes.

use crate::batching::Thresholds;
use crate::planner::{
    Aim, Effort, LIVE_MAX, Observations, Plan, Planner, Prediction, Refused, StepTimes, System,
};
use std::time::Duration;

/// The initial system counts like so many moves from each model, and so many passes of each size.
const PRIOR_MOVES: f64 = 20.0;
const PRIOR_STEPS: f64 = 5.0;

/// A size of pass says something from so many passes on.
const STEPS_MIN: f64 = 10.0;

/// Drift in a share that matters, if chance does not explain it: this much, and this many standard errors.
const SHARE_DRIFT: f64 = 0.02;
const ERRORS_DRIFT: f64 = 3.0;

/// Drift in a step time that matters, as a share of it.
const TIME_DRIFT: f64 = 0.05;

/// The shortest step has at least this many ticks.
const TICKS_MIN: f64 = 10.0;

/// How a tuner works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunerConfig {
    /// What is to be reached, and which models may wait.
    pub aim: Aim,
    /// After so long an observation counts half.
    pub half_life: Duration,
    /// Moves from a model that still count, below which nothing is concluded from them.
    pub moves_min: f64,
    /// The share by which new thresholds must be better than the current ones.
    pub gain_min: f64,
}

impl Default for TunerConfig {
    fn default() -> Self {
        Self {
            aim: Aim::default(),
            half_life: Duration::from_secs(10),
            moves_min: 200.0,
            gain_min: 0.015,
        }
    }
}

/// A tuner of the models that share requests.
#[derive(Clone, Debug)]
pub struct Tuner {
    config: TunerConfig,
    /// What is believed of whatever was not seen.
    initial: System,
    seen: Observations,
    /// When the past last faded.
    faded: Duration,
    /// What was last planned for, and up to how many live requests.
    planned: System,
    live_max: u32,
    current: Vec<Thresholds>,
}

/// Other thresholds, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The thresholds of each model.
    pub thresholds: Vec<Thresholds>,
    /// What is now believed of the models.
    pub system: System,
    /// What the former thresholds would bring under it, by live requests.
    pub before: Vec<Prediction>,
    /// What the new ones are expected to bring, for the same numbers of live requests.
    pub after: Vec<Prediction>,
}

impl Tuner {
    /// A tuner that begins with a plan: [`Plan::eager`] where there is none.
    ///
    /// # Errors
    /// A plan that cannot be used.
    pub fn new(config: TunerConfig, plan: &Plan) -> Result<Self, Refused> {
        let current = plan.thresholds()?;
        let initial = Planner::new(plan.system.clone(), config.aim)?.system().clone();
        let seen = Observations::new(initial.models());
        let live_max = plan.best.last().map_or(0, |last| last.live);
        let planned = initial.clone();
        Ok(Self { config, initial, seen, faded: Duration::ZERO, planned, live_max, current })
    }

    /// The thresholds of each model as the tuner last named them.
    pub fn thresholds(&self) -> &[Thresholds] {
        &self.current
    }

    /// Takes in what was seen since it was last told; `now` never falls.
    pub fn observe(&mut self, now: Duration, seen: &Observations) {
        let passed = now.saturating_sub(self.faded).as_secs_f64();
        let half_life = self.config.half_life.as_secs_f64().max(f64::MIN_POSITIVE);
        self.seen.fade(0.5f64.powf(passed / half_life));
        self.faded = self.faded.max(now);
        self.seen.merge(seen);
    }

    /// What is believed of the models now.
    pub fn system(&self) -> System {
        let mut system = self.initial.clone();
        for model in 0..system.models() {
            self.estimate_moves(&mut system, model);
            system.times[model] = self.estimate_times(model);
        }
        let points = system.times.iter().flat_map(|times| times.points());
        let shortest = points.map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
        system.tick = system.tick.min(shortest / TICKS_MIN);
        system
    }

    /// Other thresholds for up to `live_max` live requests, if what was seen is enough and speaks for them.
    ///
    /// Cheap unless the numbers have drifted since it last planned, or more requests are alive than it planned for.
    pub fn revise(&mut self, live_max: u32) -> Option<Change> {
        let live_max = live_max.clamp(1, LIVE_MAX);
        let entry_seen = self.seen.moves_from(self.initial.entry) >= self.config.moves_min;
        let system = self.system();
        if !entry_seen || (live_max <= self.live_max && !self.drifted(&system)) {
            return None;
        }
        self.planned = system.clone();
        self.live_max = self.live_max.max(live_max);
        // Observations that cannot be, such as passes in no time, lead to no plan.
        let planner = Planner::with_effort(system, self.config.aim, Effort::QUICK);
        self.replan(planner.ok()?).ok()?
    }

    /// Plans anew for everything up to the largest number of live requests seen.
    fn replan(&mut self, mut planner: Planner) -> Result<Option<Change>, Refused> {
        let grid = grid(self.live_max);
        let plan = planner.revise(grid.iter().copied(), &self.current, self.config.gain_min)?;
        let thresholds = plan.thresholds()?;
        let vector =
            |live: u32| -> Vec<u32> { self.current.iter().map(|table| table.at(live)).collect() };
        if plan.best.iter().all(|entry| entry.thresholds == vector(entry.live)) {
            return Ok(None);
        }
        let before = grid.iter().map(|&live| planner.predict(live, &vector(live)));
        let before = before.collect::<Result<Vec<_>, _>>()?;
        self.current.clone_from(&thresholds);
        Ok(Some(Change { thresholds, system: plan.system, before, after: plan.best }))
    }

    /// The moves and commits of one model: what was seen, and the initial ones as if they had been seen a few times.
    fn estimate_moves(&self, system: &mut System, model: usize) {
        let count = self.seen.moves_from(model) + PRIOR_MOVES;
        for (to, moved) in self.seen.moves[model].iter().enumerate() {
            let prior = PRIOR_MOVES * self.initial.moves[model][to];
            system.moves[model][to] = (moved.count + prior) / count;
            let committed = moved.committed + prior * self.initial.commits[model][to];
            if moved.count + prior > 0.0 {
                system.commits[model][to] = (committed / (moved.count + prior)).clamp(0.0, 1.0);
            }
        }
    }

    /// The step times of one model: the initial ones, each scaled by how much longer the passes took that were seen; between
    /// two sizes that were seen the scale changes evenly, and beyond them it stays.
    fn estimate_times(&self, model: usize) -> StepTimes {
        let initial = &self.initial.times[model];
        let scale = |(&batch, steps): (&u32, &crate::planner::Steps)| {
            let expected = initial.at(batch);
            (batch, (steps.seconds / expected + PRIOR_STEPS) / (steps.count + PRIOR_STEPS))
        };
        let scales: Vec<(u32, f64)> = self.seen.steps[model]
            .iter()
            .filter(|(_, steps)| steps.count >= STEPS_MIN)
            .map(scale)
            .collect();
        if scales.is_empty() {
            return initial.clone();
        }
        let mut sizes: Vec<u32> =
            initial.points().iter().chain(&scales).map(|(batch, _)| *batch).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let last = scales.last().copied();
        let scales = StepTimes::measured(scales);
        let scale = |batch: u32| match last {
            Some((largest, scale)) if batch > largest => scale,
            _ => scales.at(batch),
        };
        StepTimes::measured(sizes.into_iter().map(|b| (b, initial.at(b) * scale(b))).collect())
    }

    /// Whether the models are no longer what was last planned for.
    fn drifted(&self, system: &System) -> bool {
        (0..system.models())
            .any(|model| self.moves_drifted(system, model) || self.times_drifted(system, model))
    }

    fn moves_drifted(&self, system: &System, model: usize) -> bool {
        let count = self.seen.moves_from(model);
        if count < self.config.moves_min {
            return false;
        }
        let beyond = |old: f64, new: f64, count: f64| {
            let error = (new * (1.0 - new) / count).max(0.0).sqrt();
            (new - old).abs() > SHARE_DRIFT.max(ERRORS_DRIFT * error)
        };
        (0..system.models()).any(|to| {
            let moved = self.seen.moves[model][to].count;
            let (moves, commits) = (&system.moves[model], &system.commits[model]);
            let (old_moves, old_commits) =
                (&self.planned.moves[model], &self.planned.commits[model]);
            beyond(old_moves[to], moves[to], count)
                || (moved > 0.0 && beyond(old_commits[to], commits[to], moved))
        })
    }

    fn times_drifted(&self, system: &System, model: usize) -> bool {
        let (old, new) = (&self.planned.times[model], &system.times[model]);
        let enough = self.seen.steps[model].iter().filter(|(_, steps)| steps.count >= STEPS_MIN);
        enough
            .map(|(&batch, _)| new.at(batch) / old.at(batch) - 1.0)
            .any(|drift| drift.abs() > TIME_DRIFT)
    }
}

/// The numbers of live requests that are planned for: all that are small, then steps of an eighth, and the largest.
fn grid(live_max: u32) -> Vec<u32> {
    let mut grid = Vec::new();
    let mut live = 1;
    while live < live_max {
        grid.push(live);
        live += (live / 8).max(1);
    }
    grid.push(live_max);
    grid
}

#[cfg(test)]
mod tests;
