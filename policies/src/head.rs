//! Router heads as policies know them: small networks at a model whose score says whether another should write.
//!
//! What they compute, and from which file they come, is the engine's and the server's.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A router head that a model carries, by its place in that model's list of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HeadIx(pub u8);

/// What the score of a head means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// R2R: the probability that the token just sampled leads elsewhere than the larger model's. High hands over.
    R2r,
    /// CITER: the probability that this model is good enough for the token. Low hands over.
    Citer,
    /// A linear map of the hidden state; what its score means is up to who trained it.
    Linear,
}

impl fmt::Display for HeadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::R2r => "r2r",
            Self::Citer => "citer",
            Self::Linear => "linear",
        })
    }
}

/// A head that a policy's settings named.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// Its place at the model; goes into [`crate::SignalSet::head`].
    pub ix: HeadIx,
    /// What its score means.
    pub kind: HeadKind,
    /// The threshold it was trained for, if it has one: in force where a policy's settings give none.
    pub threshold: Option<f32>,
}
