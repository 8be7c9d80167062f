//! How many restarts an actor is worth: so many within so long, then its parent gives up.

use std::collections::VecDeque;
use std::time::Duration;

/// A budget of restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Restarts allowed within [`Budget::within`].
    pub restarts: u32,
    /// The window.
    pub within: Duration,
}

/// The restarts already spent.
#[derive(Clone, Debug)]
pub struct Tally {
    budget: Budget,
    deaths: VecDeque<Duration>,
}

impl Tally {
    /// Nothing spent of `budget`.
    pub fn new(budget: Budget) -> Self {
        Self { budget, deaths: VecDeque::new() }
    }

    /// Notes a death at `now` (time since any fixed moment); whether a restart is still within the budget.
    pub fn allow(&mut self, now: Duration) -> bool {
        while self.deaths.front().is_some_and(|&death| now >= death + self.budget.within) {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        self.deaths.len() as u32 <= self.budget.restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_and_comes_back() {
        let mut tally = Tally::new(Budget { restarts: 2, within: Duration::from_secs(10) });
        let mut at = |seconds| tally.allow(Duration::from_secs(seconds));
        assert_eq!([at(0), at(1), at(2)], [true, true, false]);
        assert_eq!([at(12), at(13), at(14)], [true, true, false]);
    }
}
