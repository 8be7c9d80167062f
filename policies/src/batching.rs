//! When a model launches a forward pass: how many requests must be ready, by how many are alive (delayed batching).
//!
//! It knows numbers only. Who counts as ready, and what goes into the pass, is the batcher's business.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How many requests must be ready at a model before it launches, by the number of live requests that can reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct Thresholds {
    /// From how many live requests on, and the threshold from there; the first begins at 1 and the numbers rise.
    steps: Vec<(u32, u32)>,
}

/// Thresholds that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A table without an entry for one live request.
    #[error("a table of thresholds begins at 1 live request, as in {{1: 1, 6: 3}}")]
    NoFirst,
    /// Live requests that are named twice.
    #[error("{0} live requests are named twice")]
    Twice(u32),
    /// A threshold of 0.
    #[error("a threshold is at least 1: a model cannot launch with nobody")]
    Zero,
    /// Requests could all wait, each for others to come to its model.
    #[error(
        "with {live} live requests the thresholds {thresholds:?} could wait for each other for ever: the sum of \
         each less 1 must stay below {live}; lower one of them, or write a table by live requests such as {{1: 1, 6: 3}}"
    )]
    Deadlock {
        /// The number of live requests.
        live: u32,
        /// The thresholds of the models there.
        thresholds: Vec<u32>,
    },
}

impl Thresholds {
    /// The same threshold whatever is alive. 0 counts as 1.
    pub fn fixed(threshold: u32) -> Self {
        Self { steps: vec![(1, threshold.max(1))] }
    }

    /// A table: from how many live requests on, and the threshold from there.
    ///
    /// # Errors
    /// A table without a first entry, with one number twice, or with a threshold of 0.
    pub fn table(mut steps: Vec<(u32, u32)>) -> Result<Self, Unusable> {
        steps.sort_unstable();
        if steps.first().is_none_or(|(live, _)| *live != 1) {
            return Err(Unusable::NoFirst);
        }
        if let Some(pair) = steps.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Unusable::Twice(pair[0].0));
        }
        if steps.iter().any(|(_, threshold)| *threshold == 0) {
            return Err(Unusable::Zero);
        }
        steps.dedup_by_key(|(_, threshold)| *threshold);
        Ok(Self { steps })
    }

    /// How many ready requests launch a pass while `live` are alive: at least 1, and never more than there are.
    pub fn at(&self, live: u32) -> u32 {
        let steps = self.steps.iter().rev();
        let found = steps.clone().find(|(from, _)| *from <= live).or(self.steps.first());
        found.map_or(1, |(_, threshold)| *threshold).min(live).max(1)
    }

    /// Whether a pass is launched as soon as anybody is ready, whatever is alive.
    pub fn is_eager(&self) -> bool {
        self.steps.iter().all(|(_, threshold)| *threshold == 1)
    }

    /// The highest threshold there is.
    pub fn highest(&self) -> u32 {
        self.steps.iter().map(|(_, threshold)| *threshold).max().unwrap_or(1)
    }

    /// The entries: from how many live requests on, and the threshold from there.
    pub fn steps(&self) -> &[(u32, u32)] {
        &self.steps
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self::fixed(1)
    }
}

impl TryFrom<Vec<(u32, u32)>> for Thresholds {
    type Error = Unusable;

    fn try_from(steps: Vec<(u32, u32)>) -> Result<Self, Unusable> {
        Self::table(steps)
    }
}

impl From<Thresholds> for Vec<(u32, u32)> {
    fn from(thresholds: Thresholds) -> Self {
        thresholds.steps
    }
}

impl fmt::Display for Thresholds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [(_, threshold)] = self.steps[..] {
            return write!(f, "{threshold}");
        }
        let steps: Vec<String> = self.steps.iter().map(|(n, b)| format!("{n}: {b}")).collect();
        write!(f, "{{{}}}", steps.join(", "))
    }
}

/// Whether these models, which share requests, can never all wait for each other with up to `live_max` requests alive:
/// the sum of each threshold less 1 stays below the number of live requests (TokenRouter paper, delayed batching).
///
/// A model may count fewer live requests than there are, since it hears of them late or is not on every route; so each
/// counts with its highest threshold up to that number.
///
/// # Errors
/// [`Unusable::Deadlock`] with the first number of live requests where they can.
pub fn check(models: &[&Thresholds], live_max: u32) -> Result<(), Unusable> {
    let mut highest = vec![1; models.len()];
    let all = models.iter().map(|thresholds| thresholds.highest() - 1);
    // From there on every threshold together asks for fewer than there are.
    let enough = all.fold(0u32, u32::saturating_add);
    for live in 1..=live_max.min(enough) {
        for (highest, thresholds) in highest.iter_mut().zip(models) {
            *highest = thresholds.at(live).max(*highest);
        }
        if highest.iter().map(|b| b - 1).sum::<u32>() >= live {
            return Err(Unusable::Deadlock { live, thresholds: highest });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(steps: &[(u32, u32)]) -> Thresholds {
        Thresholds::table(steps.to_vec()).unwrap()
    }

    #[test]
    fn never_asks_for_more_than_are_alive_or_for_nobody() {
        let fixed = Thresholds::fixed(3);
        assert_eq!([0, 1, 2, 3, 9].map(|n| fixed.at(n)), [1, 1, 2, 3, 3]);
        let table = table(&[(6, 3), (1, 1), (4, 2)]);
        assert_eq!([0, 1, 3, 4, 5, 6, 100].map(|n| table.at(n)), [1, 1, 1, 2, 2, 3, 3]);
        assert!(Thresholds::default().is_eager() && !table.is_eager());
        assert_eq!(
            (table.to_string(), fixed.to_string()),
            ("{1: 1, 4: 2, 6: 3}".into(), "3".into())
        );
    }

    #[test]
    fn refuses_tables_without_a_meaning() {
        assert_eq!(Thresholds::table(vec![(2, 1)]), Err(Unusable::NoFirst));
        assert_eq!(Thresholds::table(vec![]), Err(Unusable::NoFirst));
        assert_eq!(Thresholds::table(vec![(1, 1), (4, 2), (4, 3)]), Err(Unusable::Twice(4)));
        assert_eq!(Thresholds::table(vec![(1, 1), (4, 0)]), Err(Unusable::Zero));
    }

    #[test]
    fn one_delayed_model_is_always_safe_and_two_need_enough_requests() {
        let (eager, three) = (Thresholds::default(), Thresholds::fixed(3));
        check(&[&eager, &three], 100).unwrap();
        let error = check(&[&three, &Thresholds::fixed(2)], 100).unwrap_err();
        assert_eq!(error, Unusable::Deadlock { live: 2, thresholds: vec![2, 2] });
        check(&[&table(&[(1, 1), (4, 3)]), &table(&[(1, 1), (4, 2)])], 100).unwrap();
    }

    #[test]
    fn a_model_that_counts_fewer_than_there_are_waits_for_nobody_for_ever() {
        // Higher where fewer are alive: a model that has heard of 3 only would ask for 3 while 4 are alive.
        let falling = table(&[(1, 1), (3, 3), (4, 1)]);
        let error = check(&[&falling, &table(&[(1, 1), (4, 3)])], 8).unwrap_err();
        assert_eq!(error, Unusable::Deadlock { live: 4, thresholds: vec![3, 3] });
    }
}
