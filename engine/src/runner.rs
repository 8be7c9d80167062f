//! The runner: a model that takes rows of tokens and gives sampled tokens and signals, with a KV cache between the calls.
//!
//! A runner does what it is told and checks that it can be done. It never schedules, never evicts and never waits: a row
//! that does not join what the cache holds, or that needs more blocks than are free, is an error of the scheduler.

use crate::error::Error;
use tokenrouter_policies::{HeadIx, Position, Token};
use tokenrouter_protocol::{CacheOp, PoolSize, Row, RowOutput, SequenceId};

/// What a runner is, fixed when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The size of its KV pool.
    pub pool: PoolSize,
    /// Tokens in its vocabulary; every token it takes or gives is smaller.
    pub vocabulary: u32,
    /// The most positions that one sequence can have, whatever the pool holds.
    pub context: Position,
    /// Threads that compute one step.
    pub threads: usize,
}

/// A model behind one forward pass for everything: prefill, extend and decode are rows of other lengths.
pub trait Runner: Send {
    /// What the runner is.
    fn facts(&self) -> Facts;

    /// Feeds the tokens of every row in one ragged pass and gives, for each row in order, its outputs in order of
    /// position.
    ///
    /// # Errors
    /// [`Error::Row`] leaves the cache as it was. After any other error the cache is in doubt until [`Runner::reset`].
    fn step(&mut self, rows: &[Row]) -> Result<Vec<RowOutput>, Error>;

    /// Runs one operation on the cache, in time proportional to the blocks it frees.
    fn apply(&mut self, op: CacheOp);

    /// Forgets every sequence and keeps the memory.
    fn reset(&mut self);

    /// Blocks that sequences hold now.
    fn blocks_used(&self) -> u32;
}

/// Why a row cannot be fed: always a mistake of whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The row does not continue what the cache holds.
    #[error("the row of sequence {} starts at {start} but the cache holds {held} positions of it; truncate or extend it first", sequence.0)]
    Start {
        /// The sequence.
        sequence: SequenceId,
        /// Where the row starts.
        start: Position,
        /// Positions that the cache holds.
        held: Position,
    },
    /// Two rows of one step name the same sequence.
    #[error("sequence {} has two rows in one step; join them", sequence.0)]
    Twice {
        /// The sequence.
        sequence: SequenceId,
    },
    /// The row feeds nothing.
    #[error("the row of sequence {} has no tokens; a row feeds at least one", sequence.0)]
    Empty {
        /// The sequence.
        sequence: SequenceId,
    },
    /// More outputs than tokens.
    #[error("the row of sequence {} asks for {outputs} outputs of {tokens} tokens; ask for at most one each", sequence.0)]
    Outputs {
        /// The sequence.
        sequence: SequenceId,
        /// Outputs asked for.
        outputs: u16,
        /// Tokens fed.
        tokens: usize,
    },
    /// A token that the model does not know.
    #[error("token {token} of sequence {} is not in the vocabulary of {vocabulary}", sequence.0)]
    Token {
        /// The sequence.
        sequence: SequenceId,
        /// The token.
        token: Token,
        /// Size of the vocabulary.
        vocabulary: u32,
    },
    /// The sequence outgrows the model.
    #[error("sequence {} would have {end} positions; the model takes {context}", sequence.0)]
    Context {
        /// The sequence.
        sequence: SequenceId,
        /// Positions after the step.
        end: u64,
        /// The most that are possible.
        context: Position,
    },
    /// The step needs more blocks than are free.
    #[error(
        "the step needs {needed} more blocks of the pool and {free} are free; close or truncate sequences first"
    )]
    Full {
        /// Blocks that the rows need beyond those they hold.
        needed: u64,
        /// Blocks that are free.
        free: u32,
    },
    /// A router head that is not loaded.
    #[error("sequence {} asks for router head {}, which this model does not carry", sequence.0, head.0)]
    Head {
        /// The sequence.
        sequence: SequenceId,
        /// The head.
        head: HeadIx,
    },
}
