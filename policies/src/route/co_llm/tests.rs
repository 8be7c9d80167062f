//! Tables for Co-LLM: the threshold, and where the defer token is masked.

use super::*;
use crate::signals::Signals;
use crate::testing::*;

#[test]
fn strictly_above_hands_over_one_token() {
    let policy = built("{ kind: co-llm, to: large, threshold: 0.5 }").unwrap();
    let cases = [
        ("sure", 0.0, Verdict::Stay),
        ("at the threshold", 0.5, Verdict::Stay),
        ("just above", above(0.5), Verdict::discard_to(LARGE)),
        ("lost", 1.0, Verdict::discard_to(LARGE)),
    ];
    for (what, probability, expected) in cases {
        let signals = Signals { defer: Some(probability), ..Signals::default() };
        let mut state = PolicyState::default();
        assert_eq!(step(SMALL, signals).route(&*policy, &mut state), expected, "{what}");
        assert_eq!(state, PolicyState::default());
    }
    let at_other = step(LARGE, Signals { defer: Some(1.0), ..Signals::default() });
    let verdict = at_other.route(&*policy, &mut PolicyState::default());
    assert_eq!(verdict, Verdict::commit_to(SMALL), "whatever it thinks");
}

#[test]
fn the_defer_token_is_masked_wherever_it_exists() {
    let masks = |text: &str| {
        let policy = built(text).unwrap();
        [SMALL, MID, LARGE].map(|at| policy.needs(at).defer)
    };
    let cases = [
        ("{ kind: co-llm, to: large }", [Some(105), None, None]),
        ("{ kind: co-llm, to: mid }", [Some(105), Some(105), None]),
        ("{ kind: co-llm, to: large, defer: '<pad>' }", [Some(7), None, Some(7)]),
        ("{ kind: co-llm, to: large, defer: 104 }", [Some(104), None, None]),
    ];
    for (text, expected) in cases {
        // A model off the route is never asked.
        let [small, mid, large] = masks(text);
        let seen = if text.contains("mid") { [small, mid, None] } else { [small, None, large] };
        assert_eq!(seen, expected, "{text}");
    }
}
