//! The bookkeeping of the paged KV pool: which blocks hold which positions of which sequence.
//!
//! It knows numbers of blocks, never what lies in them; the memory belongs to the attention of the device. Blocks change
//! hands only in [`BlockTables::reserve`], [`BlockTables::truncate`], [`BlockTables::close`] and [`BlockTables::reset`],
//! none of which runs under a forward pass.

use crate::runner::{Facts, RowError};
use std::collections::HashMap;
use tokenrouter_policies::Position;
use tokenrouter_protocol::{PoolSize, Row, SequenceId};

/// Positions in one block of the pool.
pub const BLOCK: u32 = 16;

/// The blocks of every sequence. Blocks in tables and free blocks are always the whole pool.
#[derive(Debug)]
pub(crate) struct BlockTables {
    pool: PoolSize,
    free: Vec<u32>,
    tables: HashMap<SequenceId, Table>,
}

/// One sequence: `blocks[i]` holds the positions from `i * block` on.
#[derive(Debug, Default)]
struct Table {
    blocks: Vec<u32>,
    held: Position,
}

impl BlockTables {
    /// An empty pool.
    pub(crate) fn new(pool: PoolSize) -> Self {
        let mut tables = Self { pool, free: Vec::new(), tables: HashMap::new() };
        tables.reset();
        tables
    }

    /// How many leading positions of the sequence are held.
    pub(crate) fn held(&self, sequence: SequenceId) -> Position {
        self.tables.get(&sequence).map_or(0, |table| table.held)
    }

    /// The blocks of the sequence, in order of position.
    pub(crate) fn blocks(&self, sequence: SequenceId) -> &[u32] {
        self.tables.get(&sequence).map_or(&[], |table| &table.blocks)
    }

    /// Blocks that sequences hold.
    pub(crate) fn used(&self) -> u32 {
        self.pool.blocks - self.free.len() as u32
    }

    /// Checks that all rows can be fed together, then takes the blocks that they need. On an error nothing has changed.
    /// The new positions are held only after [`BlockTables::commit`].
    pub(crate) fn reserve(&mut self, rows: &[Row], facts: &Facts) -> Result<(), RowError> {
        let mut needed = 0;
        for (index, row) in rows.iter().enumerate() {
            if rows[..index].iter().any(|other| other.sequence == row.sequence) {
                return Err(RowError::Twice { sequence: row.sequence });
            }
            needed += self.blocks_missing(row, facts)?;
        }
        if needed > self.free.len() as u64 {
            return Err(RowError::Full { needed, free: self.free.len() as u32 });
        }
        for row in rows {
            let blocks = self.pool.blocks_for(end(row) as Position) as usize;
            let table = self.tables.entry(row.sequence).or_default();
            let missing = blocks.saturating_sub(table.blocks.len());
            table.blocks.extend(self.free.drain(self.free.len() - missing..).rev());
        }
        Ok(())
    }

    /// Counts the positions of the rows as held: their keys and values have been written.
    pub(crate) fn commit(&mut self, rows: &[Row]) {
        for row in rows {
            if let Some(table) = self.tables.get_mut(&row.sequence) {
                table.held = end(row) as Position;
            }
        }
    }

    /// Forgets the positions from `to` on. A sequence that is shorter or unknown is left alone.
    pub(crate) fn truncate(&mut self, sequence: SequenceId, to: Position) {
        let Some(table) = self.tables.get_mut(&sequence) else { return };
        if to == 0 {
            return self.close(sequence);
        }
        table.held = table.held.min(to);
        let keep = self.pool.blocks_for(table.held) as usize;
        self.free.extend(table.blocks.drain(keep.min(table.blocks.len())..).rev());
    }

    /// Forgets the sequence.
    pub(crate) fn close(&mut self, sequence: SequenceId) {
        if let Some(table) = self.tables.remove(&sequence) {
            self.free.extend(table.blocks.into_iter().rev());
        }
    }

    /// Forgets every sequence.
    pub(crate) fn reset(&mut self) {
        self.tables.clear();
        self.free.clear();
        self.free.extend((0..self.pool.blocks).rev());
    }

    /// Asserts that every block is in exactly one place and that every table covers what it holds.
    ///
    /// # Panics
    /// When one of these does not hold.
    pub(crate) fn check(&self) {
        let mut seen = vec![false; self.pool.blocks as usize];
        for &block in self.free.iter().chain(self.tables.values().flat_map(|table| &table.blocks)) {
            let place = &mut seen[block as usize];
            assert!(!*place, "block {block} is in two places");
            *place = true;
        }
        assert!(seen.iter().all(|seen| *seen), "a block is lost");
        for (sequence, table) in &self.tables {
            let covered = table.blocks.len() as u64 * u64::from(self.pool.block);
            assert!(u64::from(table.held) <= covered, "{sequence:?} holds more than its blocks");
        }
    }

    /// Blocks that the row needs beyond those of its table, after all checks that concern the row alone.
    fn blocks_missing(&self, row: &Row, facts: &Facts) -> Result<u64, RowError> {
        let sequence = row.sequence;
        let held = self.held(sequence);
        if row.start != held {
            return Err(RowError::Start { sequence, start: row.start, held });
        }
        if row.tokens.is_empty() {
            return Err(RowError::Empty { sequence });
        }
        if usize::from(row.outputs) > row.tokens.len() {
            let (outputs, tokens) = (row.outputs, row.tokens.len());
            return Err(RowError::Outputs { sequence, outputs, tokens });
        }
        let vocabulary = facts.vocabulary;
        let unknown = |token: &&u32| **token >= vocabulary;
        let defer = row.signals.defer;
        if let Some(&token) = row.tokens.iter().chain(&defer).find(unknown) {
            return Err(RowError::Token { sequence, token, vocabulary });
        }
        let end = end(row);
        if end > u64::from(facts.context) {
            return Err(RowError::Context { sequence, end, context: facts.context });
        }
        let blocks = u64::from(self.pool.blocks_for(end as Position));
        Ok(blocks.saturating_sub(self.blocks(sequence).len() as u64))
    }
}

/// The number of positions after the row has been fed.
fn end(row: &Row) -> u64 {
    u64::from(row.start) + row.tokens.len() as u64
}

#[cfg(test)]
mod tests;
