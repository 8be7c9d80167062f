//! Tables for CITER: the threshold, and what becomes of the tokens of both models.

use super::*;
use crate::signals::Signals;
use crate::testing::*;

#[test]
fn strictly_below_hands_over_one_token() {
    let policy = built("{ kind: citer, to: large, head: 'demo:citer', threshold: 0.5 }").unwrap();
    let cases = [
        ("doubtful", 0.0, Verdict::discard_to(LARGE)),
        ("just below", below(0.5), Verdict::discard_to(LARGE)),
        ("at the threshold", 0.5, Verdict::Stay),
        ("sure", 1.0, Verdict::Stay),
    ];
    for (what, score, expected) in cases {
        let signals = Signals { head: Some(score), ..Signals::default() };
        let mut state = PolicyState::default();
        assert_eq!(step(SMALL, signals).route(&*policy, &mut state), expected, "{what}");
        assert_eq!(state, PolicyState::default());
    }
    let at_other = step(LARGE, Signals::default());
    let verdict = at_other.route(&*policy, &mut PolicyState::default());
    assert_eq!(verdict, Verdict::commit_to(SMALL), "whatever it wrote");
}

#[test]
fn the_head_computes_at_the_entry_model_alone() {
    let policy = built("{ kind: citer, to: mid, head: 'demo:citer' }").unwrap();
    let head = SignalSet { head: Some(HeadIx(2)), ..SignalSet::NONE };
    assert_eq!(
        [SMALL, MID, LARGE].map(|at| policy.needs(at)),
        [head, SignalSet::NONE, SignalSet::NONE]
    );
    assert_eq!(policy.models()[..], [SMALL, MID]);
}
