//! Tables for R2R: each strategy's condition at, above and below its bounds, and what those with a memory remember.

use super::*;
use crate::signals::Signals;
use crate::testing::*;

const AWAY: Verdict = Verdict::discard_to(LARGE);

/// Ten logits whose aleatoric uncertainty is that of `evidence` for each of `tokens` tokens.
fn logits(tokens: usize, evidence: f32) -> Signals {
    let mut top = vec![0.0; 10];
    top[..tokens].fill(evidence);
    Signals { top_logits: Some(top.into()), entropy: Some(1.0), ..Signals::default() }
}

/// What a policy decides about one step after another of one request.
fn decisions(policy: &dyn Policy, steps: &[Signals]) -> Vec<bool> {
    let mut state = PolicyState::default();
    let decide = |signals: &Signals| {
        let verdict = step(SMALL, signals.clone()).route(policy, &mut state);
        assert!(verdict == AWAY || verdict == Verdict::Stay, "{verdict:?}");
        // The other model's token changes nothing that is remembered.
        let before = state.clone();
        let back = step(LARGE, Signals::default()).route(policy, &mut state);
        assert_eq!((back, &state), (Verdict::commit_to(SMALL), &before));
        verdict == AWAY
    };
    steps.iter().map(decide).collect()
}

fn once(text: &str, signals: Signals) -> bool {
    decisions(&*built(text).unwrap(), &[signals])[0]
}

#[test]
fn a_head_hands_over_at_or_above_its_threshold() {
    let text = "{ kind: r2r, to: large, head: 'demo:r2r', threshold: 0.5 }";
    let cases = [(0.0, false), (below(0.5), false), (0.5, true), (1.0, true)];
    for (score, expected) in cases {
        let signals = Signals { head: Some(score), ..Signals::default() };
        assert_eq!(once(text, signals), expected, "{score}");
    }
}

#[test]
fn a_head_brings_its_own_threshold() {
    for text in [
        "{ kind: r2r, to: large, head: 'demo:r2r' }",
        "{ kind: r2r, strategy: neural, to: large, head: 'demo:r2r' }",
        "{ kind: r2r, to: large, head: linear, threshold: 0.25 }",
    ] {
        for (score, expected) in [(below(0.25), false), (0.25, true)] {
            let signals = Signals { head: Some(score), ..Signals::default() };
            assert_eq!(once(text, signals), expected, "{text} {score}");
        }
    }
}

#[test]
fn entropy_hands_over_at_or_above_its_threshold_in_nats() {
    let of = |entropy| Signals { entropy: Some(entropy), ..Signals::default() };
    let default = "{ kind: r2r, strategy: entropy, to: large }";
    let set = "{ kind: r2r, strategy: entropy, to: large, threshold: 1.5 }";
    for (text, threshold) in [(default, 0.45), (set, 1.5)] {
        let cases = [(0.0, false), (below(threshold), false), (threshold, true), (9.0, true)];
        for (entropy, expected) in cases {
            assert_eq!(once(text, of(entropy)), expected, "{text} {entropy}");
        }
    }
}

#[test]
fn immediate_wants_all_of_its_bounds_reached() {
    // The uncertainties of the three kinds of step, to set bounds by.
    let of = |signals: &Signals| Evidence::of(signals.top_logits.as_deref().unwrap());
    let (sure, torn, weak) = (logits(1, 30.0), logits(10, 3.0), logits(10, 0.5));
    assert!(of(&sure).aleatoric < 0.1 && of(&torn).aleatoric > 1.9 && of(&weak).epistemic > 0.6);
    let Evidence { aleatoric, epistemic } = of(&torn);
    let cases = [
        // Bounds at a step's own values are reached.
        (format!("aleatoric: {aleatoric}"), [false, true, false]),
        (format!("epistemic: {epistemic}"), [true, true, true]),
        (format!("epistemic: {}", epistemic * 1.001), [false, false, true]),
        (format!("aleatoric: 1.8, epistemic: {epistemic}"), [false, true, false]),
        ("entropy: 1.0".to_owned(), [true, true, true]),
        ("entropy: 1.1".to_owned(), [false, false, false]),
        ("entropy: 1.1, aleatoric: 0".to_owned(), [false, false, false]),
        ("entropy: 0.9, aleatoric: 1.8".to_owned(), [false, true, false]),
    ];
    for (bounds, expected) in cases {
        let text = format!("{{ kind: r2r, strategy: immediate, to: large, {bounds} }}");
        let got = [&sure, &torn, &weak].map(|signals| once(&text, signals.clone()));
        assert_eq!(got, expected, "{bounds}");
    }
    // With none given, the reference code's bound of the aleatoric uncertainty.
    let default = built("{ kind: r2r, strategy: immediate, to: large }").unwrap();
    assert!(format!("{default:?}").contains("aleatoric: Some(2.275), epistemic: None"));
}

#[test]
fn the_coin_is_the_route_draw_of_the_position() {
    let policy = built("{ kind: r2r, strategy: random, to: large, probability: 0.25 }").unwrap();
    let mut away = 0;
    for seed in 0..2000 {
        let step = Step { seed, ..step(SMALL, Signals::default()) };
        let draw = crate::Draws::new(seed, 0).uniform(PROMPT, crate::Purpose::Route);
        let expected = if draw < 0.25 { AWAY } else { Verdict::Stay };
        assert_eq!(step.route(&*policy, &mut PolicyState::default()), expected);
        away += u32::from(expected == AWAY);
    }
    // Five standard deviations are 97.
    assert!(away.abs_diff(500) < 97, "{away}");
}

#[test]
fn momentum_begins_at_the_other_model_and_has_hysteresis() {
    let policy = built("{ kind: r2r, strategy: momentum, to: large, aleatoric: 1.0 }").unwrap();
    let (simple, hard) = (logits(1, 30.0), logits(10, 3.0));
    let steps = |pattern: &str| -> Vec<Signals> {
        pattern.chars().map(|c| if c == 's' { simple.clone() } else { hard.clone() }).collect()
    };
    // The average after n simple steps is 1 - 0.7^n: 0.30, 0.51, 0.657, 0.76; then it falls by 0.7 a step: 0.53, 0.37,
    // 0.26, and rises to 0.48, 0.64, 0.75.
    let decided = decisions(&*policy, &steps("sssshhhsss"));
    let expected = [true, true, true, false, false, false, true, true, true, false];
    assert_eq!(decided, expected);
    assert_eq!(decisions(&*policy, &steps("hhh")), [true, true, true]);
}

#[test]
fn a_window_opens_holds_and_closes() {
    // Values of the aleatoric uncertainty are about 0 (s) and 2.2 (h); a mean of three with one s is 1.4, with two 0.7.
    let (simple, hard) = (logits(1, 30.0), logits(10, 3.0));
    let tiny = Signals { entropy: Some(below(0.02)), ..hard.clone() };
    let at_tiny = Signals { entropy: Some(0.02), ..hard.clone() };
    let steps = |pattern: &str| -> Vec<Signals> {
        let of = |c| match c {
            's' => simple.clone(),
            't' => tiny.clone(),
            'T' => at_tiny.clone(),
            _ => hard.clone(),
        };
        pattern.chars().map(of).collect()
    };
    let decided = |strategy: &str, pattern: &str| -> String {
        let text = format!("{{ kind: r2r, strategy: {strategy}, to: large, aleatoric: 1.0 }}");
        let decisions = decisions(&*built(&text).unwrap(), &steps(pattern));
        decisions.into_iter().map(|away| if away { '+' } else { '-' }).collect()
    };
    let cases = [
        ("rolling", "ssh", "--+", "opens at the uncertain step"),
        ("rolling", "hss", "++-", "[h s] holds, [h s s] does not"),
        ("rolling", "hhhsss", "++++--", "[h h s] holds, [h s s] does not, and it stays closed"),
        ("rolling", "hssh", "++-+", "it is empty when it opens again"),
        ("rolling", "tTt", "-++", "tiny entropy does not open, though it counts once open"),
        ("duo_rolling", "ssh", "--+", "opens at the uncertain step"),
        ("duo_rolling", "hs", "+-", "[s] does not hold: the step that opened is not in it"),
        ("duo_rolling", "hhss", "+++-", "[h s] holds, [h s s] does not"),
        ("duo_rolling", "ttt", "+++", "entropy is not looked at"),
    ];
    for (strategy, pattern, expected, what) in cases {
        assert_eq!(decided(strategy, pattern), expected, "{strategy} {pattern}: {what}");
    }
}

#[test]
fn a_window_of_scores() {
    let text =
        "{ kind: r2r, strategy: neural_rolling, to: large, head: 'demo:r2r', threshold: 0.5 }";
    let of = |scores: &[f32]| -> Vec<bool> {
        let signals = |&score: &f32| Signals { head: Some(score), ..Signals::default() };
        decisions(&*built(text).unwrap(), &scores.iter().map(signals).collect::<Vec<_>>())
    };
    assert_eq!(of(&[0.25, below(0.5), 0.5]), [false, false, true], "opens at the threshold");
    assert_eq!(of(&[0.75, 0.25, 0.25]), [true, true, false], "a mean at the threshold holds");
    assert_eq!(of(&[1.0, 1.0, 1.0, 0.0, 0.25, 0.0]), [true, true, true, true, false, false]);
}

#[test]
fn each_strategy_asks_for_what_it_reads() {
    let none = SignalSet::NONE;
    let head = SignalSet { head: Some(HeadIx(1)), ..none };
    let entropy = SignalSet { entropy: true, ..none };
    let top = SignalSet { top_logits: 10, ..none };
    let cases = [
        ("neural, head: 'demo:r2r'", head),
        ("neural_rolling, head: 'demo:r2r'", head),
        ("entropy", entropy),
        ("immediate", top),
        ("immediate, epistemic: 0.1", top),
        ("immediate, entropy: 0.1", entropy),
        ("immediate, entropy: 0.1, aleatoric: 2", SignalSet { entropy: true, ..top }),
        ("random", none),
        ("momentum", top),
        ("rolling", SignalSet { entropy: true, ..top }),
        ("duo_rolling", top),
    ];
    for (strategy, needs) in cases {
        let policy = built(&format!("{{ kind: r2r, to: mid, strategy: {strategy} }}")).unwrap();
        assert_eq!([policy.needs(SMALL), policy.needs(MID)], [needs, none], "{strategy}");
        assert_eq!(policy.models()[..], [SMALL, MID]);
    }
}
