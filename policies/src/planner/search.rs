//! Which thresholds are tried, and which of two is the better.
//!
//! Few vectors are all tried. Of many, a handful spread over the range and the neighbours of a good guess are, and then steps
//! that halve from the best one seen: throughput over one threshold rises to one top and falls, but for ripples that are
//! smaller than what a step of 1 costs. So nothing promises the very best of many vectors; the tests compare with all of them.

use super::Prediction;
use std::collections::BTreeSet;

/// Up to so many vectors are all tried.
const ALL_MAX: usize = 12;

/// What a plan aims at.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// The most committed tokens a second.
    #[default]
    Throughput,
    /// The most committed tokens a second of those vectors where 99 of 100 replies take no more than this many seconds a token
    /// in the mean; where none keeps it, the one that comes nearest.
    P99Tpot(f64),
}

impl Objective {
    /// Whether the first is better than the second.
    pub(super) fn prefers(&self, one: &Prediction, other: &Prediction) -> bool {
        let over = |prediction: &Prediction| self.excess(prediction);
        match over(one).total_cmp(&over(other)) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => one.tokens_per_s > other.tokens_per_s,
        }
    }

    /// Whether it is worth to go from the first to the second: a limit is kept that was missed, or missed by less, or there is
    /// more throughput; in each case by more than this share.
    pub(super) fn gains(&self, from: &Prediction, to: &Prediction, share: f64) -> bool {
        let (before, after) = (self.excess(from), self.excess(to));
        let limit = match self {
            Self::P99Tpot(limit) => *limit,
            Self::Throughput => 0.0,
        };
        if before > 0.0 || after > 0.0 {
            return before - after > share * limit;
        }
        to.tokens_per_s > from.tokens_per_s * (1.0 + share)
    }

    /// By how many seconds a token the limit is missed; 0 where it is kept or there is none.
    pub(super) fn excess(&self, prediction: &Prediction) -> f64 {
        match (self, prediction.p99_tpot) {
            (Self::P99Tpot(limit), Some(p99)) => (p99 - limit).max(0.0),
            _ => 0.0,
        }
    }
}

/// The vectors that may be chosen for one number of live requests.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// How many requests are alive.
    pub(super) live: u32,
    /// The highest threshold of each model.
    pub(super) most: Vec<u32>,
    /// What each threshold is at least where it counts against the bound, since fewer live requests already ask for that much.
    pub(super) floor: Vec<u32>,
}

impl Space {
    /// Whether a vector may be chosen: no threshold above its most, and the sum of each less 1 below the live requests.
    pub(super) fn holds(&self, thresholds: &[u32]) -> bool {
        let within = |(b, most): (&u32, &u32)| (1..=*most).contains(b);
        let sum: u64 =
            thresholds.iter().zip(&self.floor).map(|(b, floor)| u64::from(*b.max(floor)) - 1).sum();
        thresholds.iter().zip(&self.most).all(within) && sum < u64::from(self.live)
    }

    /// All vectors, the smallest first. `None` where there are more than `limit`.
    pub(super) fn all(&self, limit: usize) -> Option<Vec<Vec<u32>>> {
        let mut vectors = vec![Vec::new()];
        for &most in &self.most {
            let mut longer = Vec::new();
            for vector in vectors {
                for b in 1..=most {
                    let mut next: Vec<u32> = vector.clone();
                    next.push(b);
                    let spent: u64 = next.iter().map(|b| u64::from(*b) - 1).sum();
                    if spent < u64::from(self.live) {
                        longer.push(next);
                    }
                }
            }
            if longer.len() > limit.saturating_mul(8) {
                return None;
            }
            vectors = longer;
        }
        vectors.retain(|vector| self.holds(vector));
        (vectors.len() <= limit).then_some(vectors)
    }

    /// The best vector by what `predict` says of each, beginning around `guess`.
    pub(super) fn best(
        &self,
        objective: Objective,
        guess: Option<&[u32]>,
        mut predict: impl FnMut(&[u32]) -> Prediction,
    ) -> Prediction {
        let ones = vec![1; self.most.len()];
        let mut trial = Trial { best: predict(&ones), tried: BTreeSet::from([ones]), objective };
        if let Some(all) = self.all(ALL_MAX) {
            all.into_iter().for_each(|vector| trial.consider(self, vector, &mut predict));
            return trial.best;
        }
        for vector in guess.map(<[u32]>::to_vec).into_iter().chain(self.spread()) {
            trial.consider(self, vector, &mut predict);
        }
        let mut step = (self.live / 8).max(1).next_power_of_two();
        while step > 0 {
            let before = trial.best.thresholds.clone();
            for vector in self.around(&before, step) {
                trial.consider(self, vector, &mut predict);
            }
            // A better one may have better neighbours at the same distance.
            if trial.best.thresholds == before {
                step /= 2;
            }
        }
        trial.best
    }

    /// A few vectors over the whole range: each model in turn at a quarter, a half, three quarters and the whole of its most.
    fn spread(&self) -> Vec<Vec<u32>> {
        let mut vectors = Vec::new();
        for (model, &most) in self.most.iter().enumerate() {
            for quarters in 1..=4 {
                let mut vector = vec![1; self.most.len()];
                vector[model] = (most * quarters / 4).max(1);
                vectors.push(vector);
            }
        }
        vectors
    }

    /// The vectors that differ by `step` at one model, or at two in opposite directions.
    fn around(&self, from: &[u32], step: u32) -> Vec<Vec<u32>> {
        let mut vectors = Vec::new();
        let less = |b: u32| b.saturating_sub(step).max(1);
        for model in 0..from.len() {
            for b in [less(from[model]), (from[model] + step).min(self.most[model])] {
                let mut vector = from.to_vec();
                vector[model] = b;
                vectors.push(vector.clone());
                if b > from[model] {
                    for other in (0..from.len()).filter(|&other| other != model) {
                        let mut exchanged = vector.clone();
                        exchanged[other] = less(from[other]);
                        vectors.push(exchanged);
                    }
                }
            }
        }
        vectors
    }
}

/// A search in progress.
struct Trial {
    best: Prediction,
    tried: BTreeSet<Vec<u32>>,
    objective: Objective,
}

impl Trial {
    fn consider(
        &mut self,
        space: &Space,
        vector: Vec<u32>,
        predict: &mut impl FnMut(&[u32]) -> Prediction,
    ) {
        if space.holds(&vector) && !self.tried.contains(&vector) {
            let prediction = predict(&vector);
            self.tried.insert(vector);
            if self.objective.prefers(&prediction, &self.best) {
                self.best = prediction;
            }
        }
    }
}

#[cfg(test)]
mod tests;
