//! A fake engine: it keeps the real tokens of every sequence, and the next token is a hash of them. A cache that is
//! wrong anywhere therefore writes a wrong text. A restless engine never samples the same twice, as a GPU may not: there
//! nothing that was computed again can stand in for what a wrong cache holds.
//!
//! It asserts what a real engine relies on: one job at a time, rows that start where the cache ends, blocks within the
//! pool. It keeps no time; the world does.

use crate::world::random::mix;
use std::collections::BTreeMap;
use tokenrouter_policies::{Draws, ModelIx, Position, Purpose, Signals, Token};
use tokenrouter_protocol::{CacheOp, Job, PoolSize, Row, RowOutput, Sampled, SequenceId};

/// The engine of one model.
#[derive(Debug)]
pub(crate) struct Engine {
    model: ModelIx,
    pool: PoolSize,
    restless: bool,
    /// Rows fed in all lives.
    fed: u64,
    sequences: BTreeMap<SequenceId, Sequence>,
    running: Option<Step>,
}

/// What a job came to.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// What the host is told.
    pub(crate) outputs: Vec<RowOutput>,
    /// What it is not told: what each row that sampled really stood on.
    pub(crate) sources: Vec<Source>,
}

/// What one row sampled, and after which tokens of the cache.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) draws: Draws,
    /// The position of the first sampled token.
    pub(crate) start: Position,
    /// By sampled token: the tokens in the cache before it, hashed, and itself.
    pub(crate) sampled: Vec<(Chain, Token)>,
}

#[derive(Debug, Default)]
struct Sequence {
    tokens: Vec<Token>,
    /// The chain after each token.
    chains: Vec<Chain>,
}

/// A hash of a run of tokens that grows token by token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain(u64);

impl Chain {
    /// The chain with one token more.
    pub(crate) fn and(self, token: Token) -> Self {
        Self(mix(self.0.wrapping_mul(31).wrapping_add(u64::from(token) + 1)))
    }
}

/// What `model` samples at `position` after the tokens of `chain`; `salt` is 0 unless it is restless.
pub(crate) fn sample(
    model: ModelIx,
    chain: Chain,
    draws: &Draws,
    (position, salt): (Position, u64),
) -> Sampled {
    let drawn = draws.bits(position, Purpose::Token);
    assert_ne!(drawn, draws.bits(position, Purpose::Route), "token and route share a draw");
    let bits = mix(chain.0 ^ drawn ^ mix(u64::from(model.0) + 77) ^ salt);
    let entropy = (bits >> 40) as f32 / (1 << 24) as f32;
    Sampled {
        token: (bits % u64::from(super::words::TOKENS)) as Token,
        signals: Signals { entropy_normalised: Some(entropy), ..Signals::default() },
    }
}

impl Engine {
    /// An engine with an empty cache.
    pub(crate) fn new(model: ModelIx, pool: PoolSize, restless: bool) -> Self {
        Self { model, pool, restless, fed: 0, sequences: BTreeMap::new(), running: None }
    }

    /// Starts a job.
    pub(crate) fn start(&mut self, job: Job) {
        assert!(self.running.is_none(), "a job under a running step");
        for op in job.ops {
            self.apply(op);
        }
        let mut step = Step::default();
        for row in job.rows {
            self.feed(row, &mut step);
        }
        assert!(self.blocks_used() <= self.pool.blocks, "the pool has no such blocks");
        self.running = Some(step);
    }

    /// Ends the job.
    pub(crate) fn finish(&mut self) -> Step {
        self.running.take().expect("a job was started")
    }

    /// Forgets everything, as a new life asks for.
    pub(crate) fn reset(&mut self) {
        self.sequences.clear();
        self.running = None;
    }

    /// The rows of the job that is running.
    pub(crate) fn rows(&self) -> Option<usize> {
        self.running.as_ref().map(|step| step.outputs.len())
    }

    /// Blocks in use.
    pub(crate) fn blocks_used(&self) -> u32 {
        self.sequences.values().map(|s| self.pool.blocks_for(s.tokens.len() as u32)).sum()
    }

    /// The tokens of a sequence.
    pub(crate) fn tokens(&self, sequence: SequenceId) -> &[Token] {
        self.sequences.get(&sequence).map_or(&[], |s| &s.tokens)
    }

    /// Whether no sequence is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    fn apply(&mut self, op: CacheOp) {
        match op {
            CacheOp::Close { sequence } | CacheOp::Truncate { sequence, to: 0 } => {
                self.sequences.remove(&sequence);
            }
            CacheOp::Truncate { sequence, to } => {
                if let Some(held) = self.sequences.get_mut(&sequence) {
                    held.tokens.truncate(to as usize);
                    held.chains.truncate(to as usize);
                }
            }
        }
    }

    fn feed(&mut self, row: Row, step: &mut Step) {
        self.fed += 1;
        let salt = if self.restless { mix(self.fed) } else { 0 };
        let held = self.sequences.entry(row.sequence).or_default();
        assert_eq!(held.tokens.len(), row.start as usize, "a row that does not join the cache");
        assert!(!row.tokens.is_empty(), "a row without tokens");
        assert!(usize::from(row.outputs) <= row.tokens.len(), "outputs of tokens not fed");
        for &token in &row.tokens {
            let chain = held.chains.last().copied().unwrap_or_default().and(token);
            held.tokens.push(token);
            held.chains.push(chain);
        }
        let first = held.tokens.len() - usize::from(row.outputs);
        let mut source =
            Source { draws: row.draws, start: first as Position + 1, sampled: Vec::new() };
        let mut output = RowOutput::new();
        for (&chain, position) in held.chains[first..].iter().zip(source.start..) {
            let mut sampled = sample(self.model, chain, &row.draws, (position, salt));
            if !row.signals.entropy {
                sampled.signals = Signals::default();
            }
            source.sampled.push((chain, sampled.token));
            output.push(sampled);
        }
        if !source.sampled.is_empty() {
            step.sources.push(source);
        }
        step.outputs.push(output);
    }
}
