//! What a policy remembers of one request: a few words of plain data that travel with ownership.
//!
//! Every reported row leaves a copy at home, so a policy that goes on elsewhere, or after a crash, decides the same.

use crate::list;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Up to four words stay inline; a word that was never set reads as 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyState(#[serde(deserialize_with = "list::deserialize")] SmallVec<[u64; 4]>);

impl PolicyState {
    /// Word `index`, 0 where it was never set.
    pub fn word(&self, index: usize) -> u64 {
        self.0.get(index).copied().unwrap_or(0)
    }

    /// Sets word `index`.
    pub fn set_word(&mut self, index: usize, value: u64) {
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = value;
    }

    /// Word `index` as a floating-point number, 0.0 where it was never set.
    pub fn number(&self, index: usize) -> f64 {
        f64::from_bits(self.word(index))
    }

    /// Sets word `index` to a floating-point number.
    pub fn set_number(&mut self, index: usize, value: f64) {
        self.set_word(index, value.to_bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_were_never_set_are_zero() {
        let mut state = PolicyState::default();
        assert_eq!((state.word(0), state.word(9), state.number(3)), (0, 0, 0.0));
        state.set_word(6, 7);
        state.set_number(1, -0.5);
        let words: Vec<u64> = (0..8).map(|index| state.word(index)).collect();
        assert_eq!(words, [0, (-0.5f64).to_bits(), 0, 0, 0, 0, 7, 0]);
        assert_eq!(state.number(1), -0.5);
    }
}
