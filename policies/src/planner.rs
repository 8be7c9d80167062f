//! The planner of delayed batching: which thresholds give the most committed tokens a second, by how many requests are alive.
//!
//! It predicts what a vector of thresholds brings from a [`System`] of numbers: exactly, as a Markov chain, while that has at
//! most 50,000 moves, and beyond that by a seeded simulation of the same model. Then it searches the vectors that can never let
//! all requests wait for each other. It measures nothing itself, reads no clock, and the same numbers give the same plan.
//!
//! The thresholds mean what they mean to the batcher: a model launches when as many are ready as its threshold says, or all
//! that are alive. That it may also launch because the oldest has waited too long is left out.

mod chain;
mod observations;
mod search;
mod simulate;
mod stationary;
mod system;

use chain::Chain;
pub use observations::{Moved, Observations, Steps};
pub use search::Objective;
pub use simulate::{REPLY_TOKENS, Simulation, Until};
pub use system::{Faulty, StepTimes, System};

use crate::batching::{Thresholds, Unusable, check};
use search::Space;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A chain with more moves than this is simulated.
pub const MOVES_MAX: usize = 50_000;

/// More live requests than this are not planned for.
pub const LIVE_MAX: u32 = 1024;

/// A simulation for the slowest of a hundred replies commits so many times the tokens of one for throughput alone.
const TIMES_FOR_P99: f64 = 3.0;

/// Every simulation begins here, so that vectors are compared on the same draws.
const SEED: u64 = 0x006e_1a9e;

/// What is expected of one vector of thresholds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// How many requests are alive.
    pub live: u32,
    /// The threshold of each model.
    pub thresholds: Vec<u32>,
    /// Committed tokens a second, of all requests together.
    pub tokens_per_s: f64,
    /// Whether the throughput is exact; else it was simulated.
    pub exact: bool,
    /// The mean seconds a token that 99 of 100 replies of [`REPLY_TOKENS`] tokens keep; only where a limit asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_tpot: Option<f64>,
}

/// Which models may wait for more requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delayed {
    /// All but the entry model, which launches as soon as anybody is ready.
    #[default]
    Others,
    /// Every model.
    All,
}

/// What a plan is to reach, and by which means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Aim {
    /// What is better.
    pub objective: Objective,
    /// Which models may wait.
    pub delayed: Delayed,
}

/// How much work a prediction may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// A chain with more moves is simulated.
    pub moves_max: usize,
    /// How many tokens a simulation commits.
    pub tokens: f64,
}

impl Effort {
    /// For a plan that is kept.
    pub const FULL: Self = Self { moves_max: MOVES_MAX, tokens: 60_000.0 };
    /// For a plan that is made while others wait for the processor: some milliseconds for each number of live requests.
    pub const QUICK: Self = Self { moves_max: 5_000, tokens: 20_000.0 };
}

/// What the planner refuses.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// The numbers of the system.
    #[error(transparent)]
    System(#[from] Faulty),
    /// The thresholds.
    #[error(transparent)]
    Thresholds(#[from] Unusable),
    /// Not one threshold for each model.
    #[error("there are {found} thresholds and {models} models; give one for each")]
    Count {
        /// How many thresholds.
        found: usize,
        /// How many models.
        models: usize,
    },
    /// Nobody alive, or too many.
    #[error("{0} live requests cannot be planned for; choose 1 to {LIVE_MAX}")]
    Live(u32),
    /// A limit on times per token that is none.
    #[error("the limit on the time per token is {0} s; it must be above 0")]
    Limit(f64),
}

/// A planner for one system. It remembers what it predicted.
#[derive(Clone, Debug)]
pub struct Planner {
    system: System,
    aim: Aim,
    effort: Effort,
    known: BTreeMap<(u32, Vec<u32>), Prediction>,
}

impl Planner {
    /// A planner for this system.
    ///
    /// # Errors
    /// A system that is not valid, or a limit that is none.
    pub fn new(system: System, aim: Aim) -> Result<Self, Refused> {
        Self::with_effort(system, aim, Effort::FULL)
    }

    /// A planner that works as hard as it is told.
    ///
    /// # Errors
    /// A system that is not valid, or a limit that is none.
    pub fn with_effort(system: System, aim: Aim, effort: Effort) -> Result<Self, Refused> {
        system.validate()?;
        match aim.objective {
            Objective::P99Tpot(limit) if !limit.is_finite() || limit <= 0.0 => {
                Err(Refused::Limit(limit))
            }
            _ => Ok(Self { system, aim, effort, known: BTreeMap::new() }),
        }
    }

    /// The system that is planned for.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// What these thresholds bring with `live` requests.
    ///
    /// # Errors
    /// Nobody alive or too many, not one threshold for each model, one of 0, or thresholds with which all could wait for each other.
    pub fn predict(&mut self, live: u32, thresholds: &[u32]) -> Result<Prediction, Refused> {
        let models = self.system.models();
        planned_for(live)?;
        if thresholds.len() != models {
            return Err(Refused::Count { found: thresholds.len(), models });
        }
        if thresholds.contains(&0) {
            return Err(Unusable::Zero.into());
        }
        let sum: u64 = thresholds.iter().map(|b| u64::from(*b.min(&live)) - 1).sum();
        if sum >= u64::from(live) {
            return Err(Unusable::Deadlock { live, thresholds: thresholds.to_vec() }.into());
        }
        Ok(self.predicted(live, thresholds))
    }

    /// The best thresholds with `live` requests.
    ///
    /// # Errors
    /// Nobody alive, or too many.
    pub fn best(&mut self, live: u32) -> Result<Prediction, Refused> {
        planned_for(live)?;
        let space = self.space(live, vec![1; self.system.models()]);
        Ok(self.best_in(&space, None))
    }

    /// Every vector that may be chosen with `live` requests, with what it brings; the smallest thresholds first. `None` where
    /// there are more than `limit`.
    pub fn table(&mut self, live: u32, limit: usize) -> Option<Vec<Prediction>> {
        let vectors = self.space(live, vec![1; self.system.models()]).all(limit)?;
        Some(vectors.iter().map(|vector| self.predicted(live, vector)).collect())
    }

    /// The best thresholds for each of these numbers of live requests, which rise, such that all of them can stand in one
    /// table: the thresholds for fewer requests count against the bound for more (see [`check`]).
    ///
    /// # Errors
    /// Nobody alive, or too many.
    pub fn plan(&mut self, live: impl IntoIterator<Item = u32>) -> Result<Plan, Refused> {
        self.plan_with(live, |_, _, best| best)
    }

    /// As [`Planner::plan`], where `choose` may put another vector of the space in the place of the best.
    fn plan_with(
        &mut self,
        live: impl IntoIterator<Item = u32>,
        mut choose: impl FnMut(&mut Self, &Space, Prediction) -> Prediction,
    ) -> Result<Plan, Refused> {
        let mut best: Vec<Prediction> = Vec::new();
        let mut floor = vec![1; self.system.models()];
        for live in live {
            planned_for(live)?;
            let space = self.space(live, floor.clone());
            let guess = best.last().map(|last| last.thresholds.clone());
            let found = self.best_in(&space, guess.as_deref());
            let chosen = choose(self, &space, found);
            raise(&mut floor, &chosen.thresholds);
            best.push(chosen);
        }
        Ok(Plan { system: self.system.clone(), aim: self.aim, best })
    }

    /// A plan that keeps to the current thresholds wherever the best is not better by this share, or they cannot stand in one
    /// table with the rest.
    ///
    /// # Errors
    /// Nobody alive, or too many.
    pub fn revise(
        &mut self,
        live: impl IntoIterator<Item = u32>,
        current: &[Thresholds],
        gain_min: f64,
    ) -> Result<Plan, Refused> {
        self.plan_with(live, |planner, space, best| {
            let kept: Vec<u32> = current.iter().map(|table| table.at(space.live)).collect();
            if !space.holds(&kept) {
                return best;
            }
            let kept = planner.predicted(space.live, &kept);
            let better = planner.aim.objective.gains(&kept, &best, gain_min);
            if better { best } else { kept }
        })
    }

    fn best_in(&mut self, space: &Space, guess: Option<&[u32]>) -> Prediction {
        space.best(self.aim.objective, guess, |vector| self.predicted(space.live, vector))
    }

    fn space(&self, live: u32, floor: Vec<u32>) -> Space {
        let waits = |model| self.aim.delayed == Delayed::All || model != self.system.entry;
        let most = |model| if waits(model) { self.system.cap(model, live) } else { 1 };
        Space { live, most: (0..self.system.models()).map(most).collect(), floor }
    }

    fn predicted(&mut self, live: u32, thresholds: &[u32]) -> Prediction {
        let key = (live, thresholds.to_vec());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let prediction = self.compute(live, thresholds);
        self.known.insert(key, prediction.clone());
        prediction
    }

    fn compute(&self, live: u32, thresholds: &[u32]) -> Prediction {
        let (system, effort) = (&self.system, self.effort);
        let limited = self.aim.objective != Objective::Throughput;
        let chain = Chain::explore(system, live, thresholds, effort.moves_max);
        let exact = chain.and_then(|chain| chain.tokens_per_tick()).map(|rate| rate / system.tick);
        let tokens = if limited { effort.tokens * TIMES_FOR_P99 } else { effort.tokens };
        let simulated = (limited || exact.is_none())
            .then(|| simulate::measure(system, live, thresholds, tokens, SEED));
        Prediction {
            live,
            thresholds: thresholds.to_vec(),
            tokens_per_s: exact.or(simulated.map(|m| m.tokens_per_s)).unwrap_or(0.0),
            exact: exact.is_some(),
            p99_tpot: simulated.filter(|_| limited).map(|m| m.p99_tpot),
        }
    }
}

fn planned_for(live: u32) -> Result<(), Refused> {
    match (1..=LIVE_MAX).contains(&live) {
        true => Ok(()),
        false => Err(Refused::Live(live)),
    }
}

/// Each threshold becomes at least the other.
fn raise(floor: &mut [u32], thresholds: &[u32]) {
    floor.iter_mut().zip(thresholds).for_each(|(floor, b)| *floor = (*floor).max(*b));
}

/// The best thresholds by how many requests are alive, and what they were found from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The system.
    pub system: System,
    /// What was to be reached.
    pub aim: Aim,
    /// The best by live requests, rising from the fewest.
    pub best: Vec<Prediction>,
}

impl Plan {
    /// The plan that lets every model launch as soon as anybody is ready: for those who have none yet.
    pub fn eager(system: System, aim: Aim) -> Self {
        Self { system, aim, best: Vec::new() }
    }

    /// For each model its thresholds by live requests. Below the first entry the first counts, as everywhere a threshold never
    /// asks for more than are alive; above the last the last.
    ///
    /// # Errors
    /// A plan, perhaps changed by hand, whose thresholds are not one for each model, or with which all requests could wait for
    /// each other.
    pub fn thresholds(&self) -> Result<Vec<Thresholds>, Refused> {
        tables(self.system.models(), &self.best)
    }
}

/// One table for each model from the best vectors, whose live requests rise.
pub(crate) fn tables(models: usize, best: &[Prediction]) -> Result<Vec<Thresholds>, Refused> {
    if let Some(odd) = best.iter().find(|entry| entry.thresholds.len() != models) {
        return Err(Refused::Count { found: odd.thresholds.len(), models });
    }
    let mut tables = Vec::new();
    for model in 0..models {
        let mut steps: Vec<(u32, u32)> =
            best.iter().map(|b| (b.live, b.thresholds[model])).collect();
        if steps.first().is_none_or(|(live, _)| *live > 1) {
            steps.push((1, 1));
        }
        tables.push(Thresholds::table(steps)?);
    }
    let live_max = best.iter().map(|entry| entry.live).max().unwrap_or(1);
    check(&tables.iter().collect::<Vec<_>>(), live_max)?;
    Ok(tables)
}

#[cfg(test)]
mod tests;
