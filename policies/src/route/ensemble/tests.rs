//! Tests for the ensemble: shares, draws, and that every edge commits.

use super::*;
use crate::signals::Signals;
use crate::testing::*;

#[test]
fn the_next_model_is_the_route_draw_of_its_position() {
    let policy = built("{ kind: ensemble, weights: { small: 5, mid: 3, large: 2 } }").unwrap();
    assert_eq!(policy.models()[..], [LARGE, MID, SMALL]);
    let mut drawn = [0u32; 3];
    for seed in 0..1000 {
        for position in PROMPT..PROMPT + 20 {
            let draw = Draws::new(seed, 0).uniform(position + 1, Purpose::Route);
            let next = if draw < 0.2 {
                LARGE
            } else if draw < 0.5 {
                MID
            } else {
                SMALL
            };
            drawn[next.index()] += 1;
            for model in [LARGE, MID, SMALL] {
                let step = Step { position, seed, ..step(model, Signals::default()) };
                let mut state = PolicyState::default();
                let expected = if next == model { Verdict::Stay } else { Verdict::commit_to(next) };
                assert_eq!(step.route(&*policy, &mut state), expected);
                assert_eq!(state, PolicyState::default());
                assert_eq!(policy.needs(model), SignalSet::NONE);
            }
            // The model of the first token is drawn in the same way.
            let entry = policy.entry(&Draws::new(seed, 0), position + 1);
            assert_eq!(entry, Some(next));
        }
    }
    // 20,000 draws: chi-square with two degrees of freedom, 13.8 is its 0.1% point.
    let expected = [4000.0, 6000.0, 10000.0];
    let chi: f64 = (drawn.iter().zip(expected)).map(|(&n, e)| (f64::from(n) - e).powi(2) / e).sum();
    assert!(chi < 13.8, "{drawn:?}: {chi}");
}

#[test]
fn weights_are_relative_and_a_model_without_one_takes_no_part() {
    let cases: [(&str, &[ModelIx]); 3] = [
        ("{ small: 0.5, large: 0.5 }", &[LARGE, SMALL]),
        ("{ small: 30, mid: 0, large: 10 }", &[LARGE, SMALL]),
        ("{ mid: 1.0e-3 }", &[MID]),
    ];
    for (weights, models) in cases {
        let policy = built(&format!("{{ kind: ensemble, weights: {weights} }}")).unwrap();
        assert_eq!(&policy.models()[..], models, "{weights}");
    }
    let share = |weights: &[(ModelIx, f64)], draw| Ensemble::new(weights).unwrap().model(draw);
    let weights = [(SMALL, 3.0), (LARGE, 1.0)];
    for (draw, expected) in [(0.0, LARGE), (0.2499, LARGE), (0.25, SMALL), (0.9999, SMALL)] {
        assert_eq!(share(&weights, draw), expected, "{draw}");
    }
    // Shares whose sum falls short of 1 by rounding still cover every draw.
    let thirds = [(SMALL, 0.1), (MID, 0.1), (LARGE, 0.1)];
    assert_eq!(share(&thirds, 1.0 - f64::EPSILON / 2.0), SMALL);
}
