//! The scripted runner keeps the rules of a real one.

use super::*;
use crate::runner::RowError;
use tokenrouter_policies::{Draws, Position, SignalSet};
use tokenrouter_protocol::Sampling;

fn row(start: Position, tokens: &[Token], outputs: u16) -> Row {
    Row {
        sequence: SequenceId(1),
        start,
        tokens: tokens.into(),
        outputs,
        signals: SignalSet { entropy: true, top_logits: 2, ..SignalSet::NONE },
        sampling: Sampling::GREEDY,
        draws: Draws::new(0, 0),
    }
}

#[test]
fn tokens_follow_from_the_history_at_each_output() {
    let mut runner = Scripted::new(Script::new(|history| history.iter().sum()));
    assert!(runner.step(&[row(0, &[1, 2], 0)]).unwrap()[0].is_empty());
    let output = runner.step(&[row(2, &[3, 4], 2)]).unwrap().remove(0);
    let tokens: Vec<Token> = output.iter().map(|sampled| sampled.token).collect();
    assert_eq!(tokens, [6, 10]);
    assert_eq!(output[0].signals.entropy, Some(0.0));
    assert_eq!(output[0].signals.margin, None);
    assert_eq!(output[0].signals.top_logits.as_deref(), Some(&[0.0, 0.0][..]));

    runner.apply(CacheOp::Truncate { sequence: SequenceId(1), to: 1 });
    assert_eq!(runner.history(SequenceId(1)), [1]);
    assert_eq!(runner.step(&[row(1, &[5], 1)]).unwrap()[0][0].token, 6);
    assert_eq!(runner.blocks_used(), 1);
    runner.apply(CacheOp::Close { sequence: SequenceId(1) });
    assert_eq!(runner.blocks_used(), 0);
}

#[test]
fn a_row_that_does_not_join_is_refused() {
    let mut runner = Scripted::new(Script::new(|_| 0).with_blocks(1));
    runner.step(&[row(0, &[1], 1)]).unwrap();
    assert!(matches!(
        runner.step(&[row(0, &[1], 1)]),
        Err(Error::Row(RowError::Start { held: 1, .. }))
    ));
    assert!(matches!(
        runner.step(&[row(1, &[1; 16], 1)]),
        Err(Error::Row(RowError::Context { end: 17, .. }))
    ));
    assert_eq!(runner.history(SequenceId(1)), [1]);
}
