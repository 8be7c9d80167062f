//! How long a request stands still after a fault hit it: from the fault to the next token that is committed, in virtual
//! time. Only faults that stop a turn count, and the first of several.

use crate::world::World;
use crate::world::inspect::Fate;
use crate::world::plan::Micros;
use std::fmt;
use std::ops::AddAssign;
use tokenrouter_policies::ModelIx;

/// What hit a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A word of its turn was lost on a link, in a mailbox, or because nobody was there.
    Lost,
    /// A word of its turn was lost in a partition.
    Cut,
    /// The model that had its turn died.
    Model,
    /// Its home died.
    Home,
}

/// The causes, as they are printed.
pub const CAUSES: [&str; 4] = ["word lost", "partition", "model died", "home died"];

/// Steps of one doubling of time.
const STEPS: usize = 8;

/// A distribution of times, each within an eighth of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    counts: [u64; 32 * STEPS],
    max: Micros,
}

impl Default for Times {
    fn default() -> Self {
        Self { counts: [0; 32 * STEPS], max: 0 }
    }
}

impl Times {
    /// Adds a time.
    pub(crate) fn add(&mut self, time: Micros) {
        self.counts[place(time)] += 1;
        self.max = self.max.max(time);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest, in microseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The time, in microseconds, that `permille` of a thousand do not exceed; rounded up to a step.
    pub fn quantile(&self, permille: u64) -> u64 {
        let wanted = (self.count() * permille).div_ceil(1000);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(self.max, |place| end(place).min(self.max))
    }
}

/// Eight steps for every doubling; below eight, every time has its own.
fn place(time: Micros) -> usize {
    let Some(octave) = time.checked_ilog2().filter(|octave| *octave >= 3) else {
        return time as usize;
    };
    let step = (time >> (octave - 3)) as usize - STEPS;
    ((octave as usize - 2) * STEPS + step).min(32 * STEPS - 1)
}

/// The longest time of a place.
fn end(place: usize) -> Micros {
    let (octave, step) = (place / STEPS, (place % STEPS) as Micros);
    match octave {
        0 => step,
        _ => ((step + STEPS as Micros + 1) << (octave - 1)) - 1,
    }
}

impl AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
        self.max = self.max.max(other.max);
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9}", self.count())?;
        for permille in [500, 900, 990] {
            write!(f, "{:>10.2}", self.quantile(permille) as f64 / 1000.0)?;
        }
        write!(f, "{:>10.2}", self.max as f64 / 1000.0)
    }
}

impl World {
    /// A request in flight stands still from now on.
    pub(crate) fn hit(&mut self, case: usize, cause: Cause) {
        let case = &mut self.cases[case];
        if matches!(case.fate, Fate::Live(_) | Fate::Away(_)) {
            case.hit.get_or_insert((self.now, cause));
        }
    }

    /// Everything that `model` had the turn of stands still.
    pub(crate) fn hit_owned(&mut self, model: usize) {
        let owned = |case: &usize| match self.cases[*case].fate {
            Fate::Live(rid) => {
                let ledger = self.homes[usize::from(rid.home.node)].home.ledger(rid);
                ledger.is_some_and(|ledger| ledger.owner() == ModelIx(model as u8))
            }
            _ => false,
        };
        let owned: Vec<usize> = (0..self.cases.len()).filter(owned).collect();
        owned.into_iter().for_each(|case| self.hit(case, Cause::Model));
    }

    /// A token of a request was committed.
    pub(crate) fn moved(&mut self, case: usize) {
        if let Some((since, cause)) = self.cases[case].hit.take() {
            self.recoveries[cause as usize].add(self.now - since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_place() {
        for time in (0..5_000).chain([1 << 20, (1 << 20) + 1, 19_999_999]) {
            let place = place(time);
            assert!(time <= end(place), "{time}");
            assert!(place == 0 || time > end(place - 1), "{time}");
        }
    }

    #[test]
    fn quantiles_are_within_a_step() {
        let mut times = Times::default();
        (1..=1000).for_each(|time| times.add(time));
        let about = |permille, time: u64| {
            let found = times.quantile(permille);
            assert!((time..=time + time / 8).contains(&found), "{found} for {time}");
        };
        about(500, 500);
        about(900, 900);
        assert_eq!(times.quantile(1000), 1000);
        assert_eq!((times.count(), times.max()), (1000, 1000));
    }
}
