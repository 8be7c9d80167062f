//! Tables for the baselines: every verdict, position by position.

use super::*;
use crate::route::{JustSampled, TextFacts};
use crate::signals::Signals;

const ENTRY: ModelIx = ModelIx(2);
const TO: ModelIx = ModelIx(0);
const BACK: Verdict = Verdict::Handoff { to: ENTRY, just_sampled: JustSampled::Commit };
const AWAY: Verdict = Verdict::Handoff { to: TO, just_sampled: JustSampled::Discard };

/// What `policy` decides at `model` about the token at `position`, after a prompt of 5.
fn verdict(policy: &dyn Policy, model: ModelIx, position: Position, seed: u64) -> Verdict {
    assert_eq!(policy.needs(model), SignalSet::NONE);
    let signals = Signals::default();
    let step = StepView {
        model,
        position,
        prompt: 5,
        token: 1,
        bytes: &[],
        signals: &signals,
        text: TextFacts::default(),
        draws: Draws::new(seed, 0),
    };
    let mut state = PolicyState::default();
    let verdict = policy.route(&step, &mut state);
    assert_eq!(state, PolicyState::default(), "a baseline remembers nothing");
    verdict
}

#[test]
fn always_stays() {
    let policy = Always { model: TO };
    assert!((5..40).all(|position| verdict(&policy, TO, position, 1) == Verdict::Stay));
}

#[test]
fn every_period_th_token_of_the_reply_goes_away_and_comes_back() {
    for period in 1..6 {
        let policy = FixedPeriod { entry: ENTRY, to: TO, period };
        for nth in 1..30 {
            let position = 4 + nth;
            let expected = if nth % period == 0 { AWAY } else { Verdict::Stay };
            assert_eq!(verdict(&policy, ENTRY, position, 1), expected, "token {nth} of {period}");
            assert_eq!(verdict(&policy, TO, position, 1), BACK);
        }
    }
}

#[test]
fn the_coin_is_the_route_draw_of_the_position() {
    let away = |probability: f64| {
        let policy = Random { entry: ENTRY, to: TO, probability };
        (0..2000).filter(|&seed| verdict(&policy, ENTRY, 9, seed) == AWAY).count()
    };
    assert_eq!((away(0.0), away(1.0)), (0, 2000));
    // 2000 draws at 0.3: five standard deviations are 102.
    assert!(away(0.3).abs_diff(600) < 102, "{}", away(0.3));
    let policy = Random { entry: ENTRY, to: TO, probability: 0.5 };
    for position in 5..200 {
        let drawn = Draws::new(3, 0).uniform(position, crate::draw::Purpose::Route);
        let expected = if drawn < 0.5 { AWAY } else { Verdict::Stay };
        assert_eq!(verdict(&policy, ENTRY, position, 3), expected);
        assert_eq!(verdict(&policy, TO, position, 3), BACK, "after one token, whatever is drawn");
    }
}

#[test]
fn a_draw_equal_to_the_probability_stays() {
    let drawn = Draws::new(3, 0).uniform(9, crate::draw::Purpose::Route);
    let policy = Random { entry: ENTRY, to: TO, probability: drawn };
    assert_eq!(verdict(&policy, ENTRY, 9, 3), Verdict::Stay);
}
