//! The contract between a model's scheduler and its engine: one job at a time, its cache operations first, then one
//! ragged forward pass over its rows.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tokenrouter_policies::{Draws, Position, SignalSet, Signals, Token};

/// A run of tokens; up to four stay inline.
pub type Tokens = SmallVec<[Token; 4]>;

/// A sequence in one model's KV cache. Never reused within a life of the model, so a late operation hits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

/// How tokens are chosen from the logits of a position.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 is greedy; otherwise logits are divided by it.
    pub temperature: f32,
    /// Keep the most likely tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f32,
    /// Keep this many of the most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens at least this likely relative to the most likely one; 0 keeps all.
    pub min_p: f32,
}

impl Sampling {
    /// The most likely token, always.
    pub const GREEDY: Self = Self { temperature: 0.0, top_p: 1.0, top_k: 0, min_p: 0.0 };
}

/// What one sequence contributes to a forward pass: prefill, extend and decode are the same thing with other lengths.
#[derive(Clone, Debug)]
pub struct Row {
    /// The sequence; one that the engine does not know starts empty.
    pub sequence: SequenceId,
    /// How many positions of it the cache holds, which is the position of the first of `tokens`.
    pub start: Position,
    /// The tokens to feed, at least one.
    pub tokens: Tokens,
    /// At how many of the last fed positions a token is sampled and signals are computed: 0 for a chunk that is not
    /// the last of its prompt, 1 as a rule, more where proposed tokens are judged.
    pub outputs: u16,
    /// Which signals to compute at those positions.
    pub signals: SignalSet,
    /// How to sample at those positions.
    pub sampling: Sampling,
    /// The request's draws. The token sampled from position `p`'s logits stands at `p + 1` and uses that draw.
    pub draws: Draws,
}

/// An operation on the KV cache; runs between forward passes, never under one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOp {
    /// Forget all positions from `to` on. A sequence the cache does not hold is left alone.
    Truncate {
        /// The sequence.
        sequence: SequenceId,
        /// How many leading positions remain.
        to: Position,
    },
    /// Forget the sequence and return its blocks to the pool.
    Close {
        /// The sequence.
        sequence: SequenceId,
    },
}

/// One job of the engine. Either list may be empty.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Run first, in order.
    pub ops: Vec<CacheOp>,
    /// One forward pass over all of these.
    pub rows: Vec<Row>,
}

/// A token sampled at one position, with the signals of that position.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: Token,
    /// The signals that were asked for.
    pub signals: Signals,
}

/// The outputs of one row, one for each position asked for.
pub type RowOutput = SmallVec<[Sampled; 1]>;

/// The size of a model's KV pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Positions in a block.
    pub block: u32,
    /// Blocks in the pool.
    pub blocks: u32,
}

impl PoolSize {
    /// Blocks that hold `positions`.
    pub fn blocks_for(&self, positions: Position) -> u32 {
        positions.div_ceil(self.block)
    }

    /// Positions that a single sequence can have when it has the pool to itself.
    pub fn positions(&self) -> Position {
        self.block.saturating_mul(self.blocks)
    }
}
