//! Random operations on the pool against a naive model of it.

use super::*;
use std::collections::BTreeMap;
use tokenrouter_policies::{Draws, HeadIx, Purpose, SignalSet};
use tokenrouter_protocol::Sampling;

const FACTS: Facts =
    Facts { pool: PoolSize { block: 16, blocks: 12 }, vocabulary: 8, context: 150, threads: 1 };

fn row(sequence: u64, start: Position, tokens: usize) -> Row {
    Row {
        sequence: SequenceId(sequence),
        start,
        tokens: std::iter::repeat_n(1, tokens).collect(),
        outputs: 1,
        signals: SignalSet::NONE,
        sampling: Sampling::GREEDY,
        draws: Draws::new(0, 0),
    }
}

fn take(tables: &mut BlockTables, rows: &[Row]) -> Result<(), RowError> {
    tables.reserve(rows, &FACTS)?;
    tables.commit(rows);
    Ok(())
}

#[test]
fn random_operations_agree_with_a_naive_pool() {
    let mut tables = BlockTables::new(FACTS.pool);
    let mut lengths = BTreeMap::<u64, Position>::new();
    let draws = Draws::new(11, 0);
    let mut refused = 0;
    for turn in 0..4000 {
        let number = |below: u64, purpose| draws.bits(turn, purpose) % below;
        let sequence = number(6, Purpose::Token);
        let held = lengths.get(&sequence).copied().unwrap_or(0);
        match number(8, Purpose::Route) {
            0 => {
                tables.close(SequenceId(sequence));
                lengths.remove(&sequence);
            }
            1 | 2 => {
                let to = number(60, Purpose::Token) as Position;
                tables.truncate(SequenceId(sequence), to);
                lengths.insert(sequence, held.min(to));
            }
            _ => {
                let tokens = 1 + number(40, Purpose::Token) as Position;
                let others: u32 = lengths
                    .iter()
                    .filter(|(other, _)| **other != sequence)
                    .map(|(_, length)| length.div_ceil(16))
                    .sum();
                let fits = others + (held + tokens).div_ceil(16) <= 12 && held + tokens <= 150;
                let taken = take(&mut tables, &[row(sequence, held, tokens as usize)]);
                assert_eq!(taken.is_ok(), fits, "{taken:?}");
                refused += u32::from(!fits);
                if fits {
                    lengths.insert(sequence, held + tokens);
                }
            }
        }
        tables.check();
        let blocks: u32 = lengths.values().map(|length| length.div_ceil(16)).sum();
        assert_eq!(tables.used(), blocks);
        for (sequence, length) in &lengths {
            assert_eq!(tables.held(SequenceId(*sequence)), *length);
        }
    }
    assert!(refused > 100, "the pool was never full");
    tables.reset();
    tables.check();
    assert_eq!(tables.used(), 0);
}

#[test]
fn a_step_that_does_not_fit_changes_nothing() {
    let mut tables = BlockTables::new(FACTS.pool);
    take(&mut tables, &[row(1, 0, 100)]).unwrap();
    let refused = take(&mut tables, &[row(2, 0, 64), row(1, 100, 30)]);
    assert_eq!(refused, Err(RowError::Full { needed: 6, free: 5 }));
    assert_eq!((tables.held(SequenceId(1)), tables.held(SequenceId(2))), (100, 0));
    assert_eq!(tables.used(), 7);
    tables.check();
    take(&mut tables, &[row(2, 0, 64), row(1, 100, 12)]).unwrap();
    assert_eq!(tables.used(), 11);
}

#[test]
fn mistakes_of_the_scheduler_are_named() {
    let mut tables = BlockTables::new(FACTS.pool);
    take(&mut tables, &[row(1, 0, 5)]).unwrap();
    let sequence = SequenceId(1);
    let refused =
        |row: Row| BlockTables::reserve(&mut BlockTables::new(FACTS.pool), &[row], &FACTS);
    let of = |change: fn(&mut Row)| {
        let mut row = row(1, 0, 2);
        change(&mut row);
        refused(row)
    };
    assert_eq!(
        take(&mut tables, &[row(1, 4, 1)]),
        Err(RowError::Start { sequence, start: 4, held: 5 })
    );
    assert_eq!(take(&mut tables, &[row(2, 0, 1), row(2, 0, 1)]), {
        Err(RowError::Twice { sequence: SequenceId(2) })
    });
    assert_eq!(of(|row| row.tokens.clear()), Err(RowError::Empty { sequence }));
    assert_eq!(of(|row| row.outputs = 3), {
        Err(RowError::Outputs { sequence, outputs: 3, tokens: 2 })
    });
    let unknown = Err(RowError::Token { sequence, token: 8, vocabulary: 8 });
    assert_eq!(of(|row| row.tokens[1] = 8), unknown);
    assert_eq!(of(|row| row.signals.defer = Some(8)), unknown);
    assert_eq!(of(|row| row.tokens = std::iter::repeat_n(1, 151).collect()), {
        Err(RowError::Context { sequence, end: 151, context: 150 })
    });
    // Heads are the runner's business, not the pool's.
    assert_eq!(of(|row| row.signals.head = Some(HeadIx(0))), Ok(()));
    tables.check();
}
