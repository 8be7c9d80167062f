//! A runner without a model: given step times, tokens and signals, for tests, planning and benches.
//!
//! It keeps every sequence's tokens as its cache and holds rows to the same rules as a real runner, so a mistake of the
//! scheduler shows. It computes no tensor, and it never sleeps by itself: [`crate::Engine::scripted`] does, on tokio's clock.

use crate::error::Error;
use crate::kv::{BLOCK, BlockTables};
use crate::runner::{Facts, Runner};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;
use tokenrouter_policies::{Signals, Token};
use tokenrouter_protocol::{CacheOp, PoolSize, Row, RowOutput, Sampled, SequenceId};

/// How long a step with these rows takes.
pub type StepTime = Box<dyn FnMut(&[Row]) -> Duration + Send>;

/// An output, made from the history up to its position, the row, and which of the row's outputs it is.
pub type Output = Box<dyn FnMut(&[Token], &Row, usize) -> Sampled + Send>;

/// What a [`Scripted`] runner does.
pub struct Script {
    /// The pool, vocabulary and context it pretends to have.
    pub facts: Facts,
    /// How long a step with these rows takes. Zero does not even yield. Not asked where a job has no rows.
    pub step_time: StepTime,
    /// The output at the last of these positions. The arguments are the whole history of the sequence up to and with
    /// that position, the row, and which of the row's outputs it is. A panic in here is a panic of the step.
    pub output: Output,
}

impl Script {
    /// A script with a pool of 4096 positions, a vocabulary of 512 and steps without duration, in which each next
    /// token follows from the history by `token`, and all signals that a row asks for are 0.
    pub fn new(token: impl FnMut(&[Token]) -> Token + Send + 'static) -> Self {
        let mut token = token;
        let pool = PoolSize { block: BLOCK, blocks: 256 };
        Self {
            facts: Facts { pool, vocabulary: 512, context: pool.positions(), threads: 1 },
            step_time: Box::new(|_| Duration::ZERO),
            output: Box::new(move |history, row, _| Sampled {
                token: token(history),
                signals: zeros(row),
            }),
        }
    }

    /// The same script where a step takes `time` of its number of rows.
    pub fn with_step_time(mut self, time: impl Fn(usize) -> Duration + Send + 'static) -> Self {
        self.step_time = Box::new(move |rows| time(rows.len()));
        self
    }

    /// The same script with this output: see [`Script::output`].
    pub fn with_output(
        mut self,
        output: impl FnMut(&[Token], &Row, usize) -> Sampled + Send + 'static,
    ) -> Self {
        self.output = Box::new(output);
        self
    }

    /// The same script with a pool of so many blocks.
    pub fn with_blocks(mut self, blocks: u32) -> Self {
        self.facts.pool.blocks = blocks;
        self.facts.context = self.facts.pool.positions();
        self
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// The runner of a [`Script`].
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    tables: BlockTables,
    histories: HashMap<SequenceId, Vec<Token>>,
    took: Duration,
}

impl Scripted {
    /// A runner with an empty cache.
    pub fn new(script: Script) -> Self {
        let tables = BlockTables::new(script.facts.pool);
        Self { script, tables, histories: HashMap::new(), took: Duration::ZERO }
    }

    /// How long the last step is said to have taken.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Asserts that the pool's books are in order and agree with the histories.
    ///
    /// # Panics
    /// When they do not.
    pub fn check(&self) {
        self.tables.check();
        for (sequence, history) in &self.histories {
            assert_eq!(self.tables.held(*sequence) as usize, history.len(), "{sequence:?}");
        }
    }

    /// The tokens that the cache holds of a sequence.
    pub fn history(&self, sequence: SequenceId) -> &[Token] {
        self.histories.get(&sequence).map_or(&[], Vec::as_slice)
    }
}

impl Runner for Scripted {
    fn facts(&self) -> Facts {
        self.script.facts
    }

    fn step(&mut self, rows: &[Row]) -> Result<Vec<RowOutput>, Error> {
        self.took = Duration::ZERO;
        self.tables.reserve(rows, &self.script.facts)?;
        if !rows.is_empty() {
            self.took = (self.script.step_time)(rows);
        }
        let mut outputs = Vec::with_capacity(rows.len());
        for row in rows {
            let history = self.histories.entry(row.sequence).or_default();
            history.extend_from_slice(&row.tokens);
            let first = history.len() - usize::from(row.outputs);
            let output = (0..usize::from(row.outputs))
                .map(|index| (self.script.output)(&history[..=first + index], row, index));
            outputs.push(output.collect());
        }
        self.tables.commit(rows);
        Ok(outputs)
    }

    fn apply(&mut self, op: CacheOp) {
        match op {
            CacheOp::Truncate { sequence, to } => {
                self.tables.truncate(sequence, to);
                if let Some(history) = self.histories.get_mut(&sequence) {
                    history.truncate(to as usize);
                }
            }
            CacheOp::Close { sequence } => {
                self.tables.close(sequence);
                self.histories.remove(&sequence);
            }
        }
    }

    fn reset(&mut self) {
        self.tables.reset();
        self.histories.clear();
    }

    fn blocks_used(&self) -> u32 {
        self.tables.used()
    }
}

/// Zero for every signal that the row asks for.
fn zeros(row: &Row) -> Signals {
    let set = row.signals;
    let number = |asked: bool| asked.then_some(0.0);
    Signals {
        entropy: number(set.entropy),
        entropy_normalised: number(set.entropy),
        max_probability: number(set.max_probability),
        margin: number(set.margin),
        defer: number(set.defer.is_some()),
        head: number(set.head.is_some()),
        top_logits: (set.top_logits > 0).then(|| vec![0.0; set.top_logits.into()].into()),
        hidden: set.hidden.then(|| Box::from([0.0])),
    }
}

#[cfg(test)]
mod tests;
