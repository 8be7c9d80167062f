//! Tables for GlimpRouter: who writes what, step by step, in replies that think, that do not, and that never stop.

use super::*;
use crate::route::TextFacts;
use crate::signals::Signals;
use crate::testing::*;

const SURE: f32 = 0.25;
const LOST: f32 = 2.0;
const STAY: Verdict = Verdict::Stay;
const TAKE: Verdict = Verdict::discard_to(LARGE);
const PASS: Verdict = Verdict::commit_to(LARGE);
const BACK: Verdict = Verdict::commit_to(SMALL);

/// The text facts of a token that completes these patterns.
const NOTHING: u64 = 0;
const LINE: u64 = 1 << DELIMITER;
const OPENS: u64 = 1 << OPEN;
const CLOSES: u64 = 1 << CLOSE;

/// Routes one reply: who writes, how sure it is, what its token completes, and the verdict that is due.
fn check(
    what: &str,
    policy: &dyn Policy,
    prompt_ends: Option<u8>,
    reply: &[(ModelIx, f32, u64, Verdict)],
) {
    let mut state = PolicyState::default();
    let mut position = PROMPT;
    for (at, &(model, entropy, completed, expected)) in reply.iter().enumerate() {
        let signals = Signals { entropy: Some(entropy), ..Signals::default() };
        let text = TextFacts { completed: Patterns(completed), latest: prompt_ends };
        let step = Step { position, text, ..step(model, signals) };
        assert_eq!(step.route(policy, &mut state), expected, "{what}: step {at}");
        position += u32::from(expected != TAKE);
    }
}

fn glimp(more: &str) -> Arc<dyn Policy> {
    built(&format!("{{ kind: glimp, to: large, top: 0, threshold: 1.0{more} }}")).unwrap()
}

#[test]
fn a_step_is_written_by_whom_its_first_token_names() {
    let policy = glimp("");
    check(
        "thinking begins in the reply",
        &*policy,
        None,
        &[
            (SMALL, LOST, NOTHING, STAY),
            (SMALL, LOST, OPENS, STAY),
            (SMALL, SURE, NOTHING, STAY),
            (SMALL, LOST, NOTHING, STAY),
            (SMALL, LOST, LINE, STAY),
            (SMALL, LOST, NOTHING, TAKE),
            (LARGE, LOST, NOTHING, STAY),
            (LARGE, LOST, LINE, BACK),
            (SMALL, LOST, NOTHING, TAKE),
            (LARGE, SURE, LINE, BACK),
            (SMALL, SURE, NOTHING, STAY),
        ],
    );
    check(
        "thinking begins with the prompt's last words",
        &*policy,
        Some(OPEN),
        &[(SMALL, LOST, NOTHING, TAKE), (LARGE, SURE, NOTHING, STAY), (LARGE, SURE, LINE, BACK)],
    );
    check(
        "an empty line after them changes nothing",
        &*policy,
        Some(OPEN_DELIMITER),
        &[(SMALL, SURE, NOTHING, STAY), (SMALL, LOST, LINE, STAY), (SMALL, LOST, NOTHING, TAKE)],
    );
    check(
        "an empty line elsewhere in the prompt says nothing",
        &*policy,
        Some(DELIMITER as u8),
        &[(SMALL, LOST, NOTHING, STAY), (SMALL, LOST, LINE, STAY), (SMALL, LOST, NOTHING, STAY)],
    );
}

#[test]
fn the_answer_is_the_other_models() {
    let policy = glimp("");
    check(
        "small closes its thinking with a token that is kept",
        &*policy,
        Some(OPEN),
        &[
            (SMALL, SURE, NOTHING, STAY),
            (SMALL, LOST, CLOSES, PASS),
            (LARGE, SURE, LINE, STAY),
            (LARGE, SURE, NOTHING, STAY),
            (LARGE, SURE, LINE, STAY),
        ],
    );
    check(
        "large closes it and goes on",
        &*policy,
        Some(OPEN),
        &[(SMALL, LOST, NOTHING, TAKE), (LARGE, LOST, CLOSES, STAY), (LARGE, LOST, LINE, STAY)],
    );
    check(
        "one token closes it and ends the step",
        &*policy,
        Some(OPEN),
        &[
            (SMALL, LOST, NOTHING, TAKE),
            (LARGE, LOST, CLOSES | LINE, STAY),
            (LARGE, LOST, LINE, STAY),
        ],
    );
    for end in [CLOSE, CLOSE_DELIMITER] {
        check(
            "the prompt has closed it",
            &*policy,
            Some(end),
            &[(SMALL, SURE, NOTHING, TAKE), (LARGE, SURE, LINE, STAY)],
        );
    }
    check(
        "thinking may begin once more",
        &*policy,
        Some(CLOSE),
        &[
            (SMALL, SURE, NOTHING, TAKE),
            (LARGE, SURE, OPENS, BACK),
            (SMALL, SURE, NOTHING, STAY),
            (SMALL, SURE, CLOSES, PASS),
        ],
    );
}

#[test]
fn a_step_and_the_thinking_have_an_end() {
    let policy = glimp(", step_max: 2");
    check(
        "a long step of small",
        &*policy,
        Some(OPEN),
        &[
            (SMALL, SURE, NOTHING, STAY),
            (SMALL, LOST, NOTHING, STAY),
            (SMALL, LOST, NOTHING, TAKE),
            (LARGE, LOST, NOTHING, STAY),
            (LARGE, LOST, NOTHING, BACK),
            (SMALL, LOST, NOTHING, TAKE),
        ],
    );
    let policy = glimp(", thinking_max: 3");
    check(
        "small thinks too long",
        &*policy,
        Some(OPEN),
        &[
            (SMALL, SURE, NOTHING, STAY),
            (SMALL, SURE, NOTHING, STAY),
            (SMALL, SURE, NOTHING, STAY),
            (SMALL, SURE, NOTHING, TAKE),
            (LARGE, SURE, LINE, STAY),
        ],
    );
    check(
        "large thinks too long and keeps the reply",
        &*policy,
        Some(OPEN),
        &[
            (SMALL, LOST, NOTHING, TAKE),
            (LARGE, SURE, NOTHING, STAY),
            (LARGE, SURE, NOTHING, STAY),
            (LARGE, SURE, LINE, BACK),
            (SMALL, SURE, LINE, TAKE),
            (LARGE, SURE, LINE, STAY),
        ],
    );
}

#[test]
fn the_whole_reply_can_be_steps() {
    let policy = glimp(", scope: whole");
    assert_eq!(policy.patterns(), ["\n\n"]);
    check(
        "from the first token on",
        &*policy,
        None,
        &[
            (SMALL, LOST, NOTHING, TAKE),
            (LARGE, SURE, LINE, BACK),
            (SMALL, SURE, NOTHING, STAY),
            (SMALL, LOST, LINE, STAY),
            (SMALL, LOST, LINE, TAKE),
        ],
    );
}

#[test]
fn a_step_is_handed_over_at_or_above_the_threshold() {
    let policy = glimp(", scope: whole");
    for (entropy, expected) in [(below(1.0), STAY), (1.0, TAKE), (above(1.0), TAKE)] {
        check("threshold", &*policy, None, &[(SMALL, entropy, NOTHING, expected)]);
    }
}

#[test]
fn the_entropy_may_be_that_of_the_largest_logits() {
    let two = entropy_of(&[3.0, 3.0]);
    assert!((f64::from(two) - 2f64.ln()).abs() < 1e-7, "{two}");
    let skewed = f64::from(entropy_of(&[0.5f32.ln(), 0.25f32.ln(), 0.25f32.ln()]));
    assert!((skewed - 1.5 * 2f64.ln()).abs() < 1e-6, "{skewed}");
    assert_eq!(entropy_of(&[5.0, f32::NEG_INFINITY]), 0.0);
    assert_eq!(entropy_of(&[]), 0.0);
    for (threshold, expected) in [(two, TAKE), (above(two), STAY)] {
        let text =
            format!("{{ kind: glimp, to: large, scope: whole, top: 2, threshold: {threshold} }}");
        let signals = Signals { top_logits: Some([3.0, 3.0].into()), ..Signals::default() };
        let verdict =
            step(SMALL, signals).route(&*built(&text).unwrap(), &mut PolicyState::default());
        assert_eq!(verdict, expected, "{threshold}");
    }
}

#[test]
fn only_the_entry_model_is_looked_at() {
    let top = SignalSet { top_logits: 20, ..SignalSet::NONE };
    let entropy = SignalSet { entropy: true, ..SignalSet::NONE };
    let default = built("{ kind: glimp, to: large }").unwrap();
    for (policy, needs) in [(default, top), (glimp(""), entropy)] {
        assert_eq!([SMALL, LARGE].map(|at| policy.needs(at)), [needs, SignalSet::NONE]);
        assert_eq!(policy.patterns(), PATTERNS);
        assert_eq!(policy.models()[..], [SMALL, LARGE]);
    }
}
