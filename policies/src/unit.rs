//! The small units everybody counts in. They carry no behaviour, so that index, count and position never mix.

use serde::{Deserialize, Serialize};

/// An entry of the vocabulary that all models of a route share.
pub type Token = u32;

/// A model of the topology, by its place in the sorted list of names: the same number on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ModelIx(pub u8);

impl ModelIx {
    /// The index as a `usize`, for tables with one entry per model.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// An index into the logical sequence prompt + output of one request, or a number of its leading positions.
pub type Position = u32;
