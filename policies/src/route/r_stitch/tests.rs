//! Tables for R-Stitch: both directions, at, above and below each threshold.

use super::*;
use crate::draw::Draws;
use crate::route::{JustSampled, TextFacts};
use crate::signals::Signals;

const ENTRY: ModelIx = ModelIx(1);
const TO: ModelIx = ModelIx(0);

fn verdict(model: ModelIx, entropy: f32) -> Verdict {
    let policy = RStitch { entry: ENTRY, to: TO, threshold_up: 0.5, threshold_down: 0.25 };
    assert!(policy.needs(model).entropy);
    let signals = Signals { entropy_normalised: Some(entropy), ..Signals::default() };
    let step = StepView {
        model,
        position: 5,
        prompt: 5,
        token: 1,
        bytes: &[],
        signals: &signals,
        text: TextFacts::default(),
        draws: Draws::new(1, 0),
    };
    policy.route(&step, &mut PolicyState::default())
}

#[test]
fn up_is_strictly_above_and_down_is_at_or_below() {
    let up = Verdict::Handoff { to: TO, just_sampled: JustSampled::Discard };
    let down = Verdict::Handoff { to: ENTRY, just_sampled: JustSampled::Commit };
    let above = |x: f32| f32::from_bits(x.to_bits() + 1);
    let cases = [
        ("entry, sure", ENTRY, 0.0, Verdict::Stay),
        ("entry, at the threshold", ENTRY, 0.5, Verdict::Stay),
        ("entry, just above", ENTRY, above(0.5), up),
        ("entry, lost", ENTRY, 1.0, up),
        ("other, lost", TO, 1.0, Verdict::Stay),
        ("other, just above its own threshold", TO, above(0.25), Verdict::Stay),
        ("other, at it", TO, 0.25, down),
        ("other, sure", TO, 0.0, down),
        ("other, between the two", TO, 0.4, Verdict::Stay),
    ];
    for (what, model, entropy, expected) in cases {
        assert_eq!(verdict(model, entropy), expected, "{what}");
    }
}

#[test]
fn one_position_is_never_passed_back_and_forth() {
    // Whatever both models think of a position, the second of them writes it.
    for entropy in [0.0, 0.25, 0.3, 0.5, 0.7, 1.0] {
        let at_other = verdict(TO, entropy);
        let discards = matches!(
            at_other,
            Verdict::Handoff { just_sampled: JustSampled::Discard | JustSampled::Propose, .. }
        );
        assert!(!discards, "{entropy}: {at_other:?}");
    }
}
