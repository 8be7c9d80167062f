//! What was seen of models at work: where requests moved, what that committed, and how long steps took. Counts that can be
//! added up, from any number of places; nobody here asks where they come from.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Passes that count less than this are as good as forgotten.
const FORGOTTEN: f64 = 1e-3;

/// Counts of one stretch of time. Models go by their numbers, from 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observations {
    /// `moves[i][j]`: requests that took a step at i and were then at j. One that ended is best counted as a move to the
    /// entry model, since the next one takes its place.
    pub moves: Vec<Vec<Moved>>,
    /// For each model, by how many requests were in the pass.
    pub steps: Vec<BTreeMap<u32, Steps>>,
}

/// Moves between two models. They are no whole numbers once old ones have been half forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// How many.
    pub count: f64,
    /// How many tokens they committed.
    pub committed: f64,
}

/// Passes of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// How many.
    pub count: f64,
    /// How long they took together.
    pub seconds: f64,
}

impl Observations {
    /// Nothing yet, of so many models.
    pub fn new(models: usize) -> Self {
        let moves = vec![vec![Moved::default(); models]; models];
        Self { moves, steps: vec![BTreeMap::new(); models] }
    }

    /// Requests took a step at one model and were then at another, or stayed; this committed tokens. Models out of range are
    /// not counted.
    pub fn moved(&mut self, from: usize, to: usize, count: f64, committed: f64) {
        if let Some(moved) = self.moves.get_mut(from).and_then(|row| row.get_mut(to)) {
            moved.count += count;
            moved.committed += committed;
        }
    }

    /// Passes of a model with `batch` requests took so many seconds together. A model out of range is not counted.
    pub fn stepped(&mut self, model: usize, batch: u32, count: f64, seconds: f64) {
        if let Some(sizes) = self.steps.get_mut(model) {
            let steps = sizes.entry(batch).or_default();
            steps.count += count;
            steps.seconds += seconds;
        }
    }

    /// Adds what was seen elsewhere, or later, of the same models.
    pub fn merge(&mut self, other: &Self) {
        for (from, row) in other.moves.iter().enumerate() {
            for (to, moved) in row.iter().enumerate() {
                self.moved(from, to, moved.count, moved.committed);
            }
        }
        for (model, sizes) in other.steps.iter().enumerate() {
            for (&batch, steps) in sizes {
                self.stepped(model, batch, steps.count, steps.seconds);
            }
        }
    }

    /// What was seen of these models alone, by their places in the list.
    pub fn among(&self, models: &[usize]) -> Self {
        let mut own = Self::new(models.len());
        for (at, &from) in models.iter().enumerate() {
            for (there, &to) in models.iter().enumerate() {
                let moved = self.moves[from][to];
                own.moved(at, there, moved.count, moved.committed);
            }
            own.steps[at].clone_from(&self.steps[from]);
        }
        own
    }

    /// Makes everything count less, by this share of what it did.
    pub fn fade(&mut self, kept: f64) {
        for moved in self.moves.iter_mut().flatten() {
            moved.count *= kept;
            moved.committed *= kept;
        }
        for sizes in &mut self.steps {
            for steps in sizes.values_mut() {
                steps.count *= kept;
                steps.seconds *= kept;
            }
            // Sizes that no longer occur take no room for ever.
            sizes.retain(|_, steps| steps.count > FORGOTTEN);
        }
    }

    /// How many requests took a step at a model.
    pub fn moves_from(&self, model: usize) -> f64 {
        self.moves[model].iter().map(|moved| moved.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_fade() {
        let mut first = Observations::new(2);
        first.moved(0, 1, 3.0, 2.0);
        first.stepped(1, 4, 1.0, 0.5);
        let mut second = first.clone();
        second.stepped(1, 2, 1.0, 0.25);
        second.merge(&first);
        assert_eq!(second.moves[0][1], Moved { count: 6.0, committed: 4.0 });
        assert_eq!(second.steps[1][&4], Steps { count: 2.0, seconds: 1.0 });
        second.fade(0.5);
        assert_eq!(second.moves_from(0), 3.0);
        assert_eq!(second.steps[1][&2], Steps { count: 0.5, seconds: 0.125 });
    }

    #[test]
    fn some_of_the_models_are_seen_by_their_places_among_them() {
        let mut seen = Observations::new(3);
        seen.moved(2, 0, 4.0, 3.0);
        seen.moved(2, 1, 9.0, 9.0);
        seen.stepped(0, 2, 1.0, 0.5);
        let some = seen.among(&[2, 0]);
        assert_eq!(some.moves[0][1], Moved { count: 4.0, committed: 3.0 });
        assert_eq!((some.moves_from(0), some.steps[1][&2].seconds), (4.0, 0.5));
    }

    #[test]
    fn models_that_do_not_exist_are_not_counted() {
        let mut seen = Observations::new(1);
        seen.moved(0, 1, 1.0, 1.0);
        seen.stepped(1, 1, 1.0, 1.0);
        assert_eq!(seen, Observations::new(1));
    }
}
