//! Tables for the mask: which policies get one, at which models, and that they decide as before.

use super::*;
use crate::signals::Signals;
use crate::testing::*;

/// What is masked at small, mid and large.
type Masks = [Option<Token>; 3];

fn masked(sections: &[&str]) -> Result<Vec<Masks>, Conflict> {
    let mut policies: Vec<_> = sections.iter().map(|text| built(text).unwrap()).collect();
    // As in the vocabularies of the tests, large has fewer rows than the others.
    mask_deferrals(&mut policies, |model, token| model != LARGE || token < 100)?;
    let masks = |policy: &Arc<dyn Policy>| {
        [SMALL, MID, LARGE].map(|at| {
            let part = policy.models().contains(&at);
            policy.needs(at).defer.filter(|_| part)
        })
    };
    Ok(policies.iter().map(masks).collect())
}

#[test]
fn a_token_is_masked_on_every_route_of_a_model_that_defers_by_it() {
    let cases: [(&[&str], &[Masks]); 4] = [
        (&["{ kind: always }", "{ kind: random, to: mid, probability: 0.5 }"], &[[None; 3]; 2]),
        (
            &[
                "{ kind: co-llm, to: large }",
                "{ kind: always }",
                "{ kind: always, model: large }",
                "{ kind: ensemble, weights: { small: 1, mid: 1, large: 1 } }",
                "{ kind: ensemble, weights: { mid: 1, large: 1 } }",
            ],
            &[
                [Some(105), None, None],
                [Some(105), None, None],
                [None; 3],
                [Some(105), Some(105), None],
                [None; 3],
            ],
        ),
        (
            &["{ kind: co-llm, to: large, defer: '<pad>' }", "{ kind: always, model: large }"],
            // Co-LLM masks the token at both of its models, so both are models that must not write it.
            &[[Some(7), None, Some(7)], [None, None, Some(7)]],
        ),
        (
            &["{ kind: co-llm, to: large, defer: 104 }", "{ kind: co-llm, to: mid, defer: 104 }"],
            &[[Some(104), None, None], [Some(104), Some(104), None]],
        ),
    ];
    for (sections, expected) in cases {
        assert_eq!(masked(sections).as_deref(), Ok(expected), "{sections:?}");
    }
}

#[test]
fn one_model_cannot_defer_by_two_tokens() {
    let sections =
        ["{ kind: co-llm, to: large, defer: 104 }", "{ kind: co-llm, to: large, defer: 103 }"];
    let conflict = Conflict { policy: 0, model: SMALL, tokens: [104, 103] };
    assert_eq!(masked(&sections), Err(conflict));
}

#[test]
fn a_masked_policy_decides_as_the_policy_does() {
    let sections = [
        "{ kind: co-llm, to: large }",
        "{ kind: split-reason, to: large }",
        "{ kind: ensemble, weights: { small: 1, large: 1 } }",
        "{ kind: r2r, strategy: entropy, to: large }",
    ];
    let plain: Vec<_> = sections.iter().map(|text| built(text).unwrap()).collect();
    let mut masked = plain.clone();
    mask_deferrals(&mut masked, |_, token| token == 105).unwrap();
    for (plain, masked) in plain.iter().zip(&masked).skip(1) {
        assert_eq!(masked.needs(SMALL), SignalSet { defer: Some(105), ..plain.needs(SMALL) });
        assert_eq!(masked.models(), plain.models());
        assert_eq!(masked.patterns(), plain.patterns());
        assert_eq!(masked.hidden(), plain.hidden());
        for seed in 0..50 {
            let draws = Draws::new(seed, 0);
            assert_eq!(masked.entry(&draws, 9), plain.entry(&draws, 9));
            let signals = Signals { entropy: Some(seed as f32 / 50.0), ..Signals::default() };
            let step = Step { seed, ..step(SMALL, signals) };
            let route = |policy: &dyn Policy| step.route(policy, &mut PolicyState::default());
            assert_eq!(route(&**masked), route(&**plain));
        }
    }
}
