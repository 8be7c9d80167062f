//! Names that never repeat: lives, homes, requests, fences. Everything that may arrive late or twice carries one.

use serde::{Deserialize, Serialize};
use std::fmt;
use tokenrouter_policies::ModelIx;

/// Which incarnation of a model's loops, or of a home, is meant. Ordered; a later life is greater; never repeats, since
/// restarts are counted for the whole process and process starts never go back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Life {
    /// Start of the process, in nanoseconds since the epoch.
    pub process: u64,
    /// How often this actor was started in the process before.
    pub restarts: u32,
}

/// The client loop where a request entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HomeId {
    /// The node, by its place in the sorted list of nodes; 0 where there is one.
    pub node: u8,
    /// The entry model whose client loop it is.
    pub model: ModelIx,
}

/// One choice being generated; never a client's own id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// Where it entered.
    pub home: HomeId,
    /// The life of that home when it entered.
    pub born: Life,
    /// A counter within that life.
    pub number: u64,
}

/// A grant of ownership, ordered: a later life of the home fences every earlier one, a later turn every earlier turn.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Fence {
    /// The life of the home that granted it.
    pub home: Life,
    /// The number of the grant within the request; the first is 1.
    pub turn: u32,
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}.{}", self.process, self.restarts)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.home.node, self.home.model.0, self.born, self.number)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.home, self.turn)
    }
}
