//! Tables for the registry: what a section becomes, and how each fault in one is told.

use super::*;
use crate::draw::Draws;
use crate::testing::built;
use crate::unit::ModelIx;

#[test]
fn a_section_becomes_the_policy_it_names() {
    let cases = [
        (
            "{ kind: r-stitch, to: large, threshold: 0.03 }",
            "RStitch { entry: ModelIx(2), to: ModelIx(0), threshold_up: 0.03, threshold_down: 0.03 }",
        ),
        (
            "{ kind: r-stitch, to: mid, threshold_up: 1, threshold_down: 0 }",
            "RStitch { entry: ModelIx(2), to: ModelIx(1), threshold_up: 1.0, threshold_down: 0.0 }",
        ),
        (
            "{ kind: r-stitch, to: mid, threshold: 0.5, threshold_down: 0.25 }",
            "RStitch { entry: ModelIx(2), to: ModelIx(1), threshold_up: 0.5, threshold_down: 0.25 }",
        ),
        (
            "{ kind: random, to: large, probability: 0.25 }",
            "Random { entry: ModelIx(2), to: ModelIx(0), probability: 0.25 }",
        ),
        (
            "{ kind: fixed-period, to: large, period: 1 }",
            "FixedPeriod { entry: ModelIx(2), to: ModelIx(0), period: 1 }",
        ),
        ("{ kind: always }", "Always { model: ModelIx(2) }"),
        ("{ kind: always, model: mid }", "Always { model: ModelIx(1) }"),
        (
            "{ kind: co-llm, to: mid }",
            "CoLlm { pair: Pair { entry: ModelIx(2), to: ModelIx(1) }, defer: 105, \
             known_to_other: true, threshold: 0.15 }",
        ),
        (
            "{ kind: citer, to: mid, head: 'demo:citer' }",
            "Citer { pair: Pair { entry: ModelIx(2), to: ModelIx(1) }, head: HeadIx(2), \
             threshold: 0.75 }",
        ),
    ];
    for (text, expected) in cases {
        let policy = built(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(format!("{policy:?}"), expected, "{text}");
    }
}

#[test]
fn a_fault_names_its_key_and_what_would_be_right() {
    let known = format!(
        "policy.kind: there is no policy `coin`; known are {}",
        kinds().collect::<Vec<_>>().join(", ")
    );
    let cases = [
        ("{ kind: coin }", known.as_str()),
        (
            "{ kind: random, to: huge, probability: 0.1 }",
            "policy.to: there is no model `huge`; the topology has large, mid, small",
        ),
        (
            "{ kind: always, model: huge }",
            "policy.model: there is no model `huge`; the topology has large, mid, small",
        ),
        (
            "{ kind: random, to: small, probability: 0.1 }",
            "policy.to: `small` is the entry model itself",
        ),
        (
            "{ kind: r-stitch, to: small, threshold: 0.1 }",
            "policy.to: `small` is the entry model itself",
        ),
        (
            "{ kind: fixed-period, to: small, period: 2 }",
            "policy.to: `small` is the entry model itself",
        ),
        (
            "{ kind: random, to: large, probability: 1.5 }",
            "policy.probability: 1.5 is not between 0 and 1",
        ),
        (
            "{ kind: random, to: large, probability: -0.1 }",
            "policy.probability: -0.1 is not between 0 and 1",
        ),
        (
            "{ kind: fixed-period, to: large, period: 0 }",
            "policy.period: 0 is not between 1 and 4294967295",
        ),
        (
            "{ kind: r-stitch, to: large, threshold: 1.1 }",
            "policy.threshold: 1.1 is not between 0 and 1",
        ),
        (
            "{ kind: r-stitch, to: large, threshold: 0.1, threshold_up: 7 }",
            "policy.threshold_up: 7 is not between 0 and 1",
        ),
        (
            "{ kind: r-stitch, to: large, threshold_up: 0.5, threshold_down: -1 }",
            "policy.threshold_down: -1 is not between 0 and 1",
        ),
        (
            "{ kind: r-stitch, to: large, threshold_up: 0.5 }",
            "policy.threshold_down: set `threshold`, or `threshold_up` and `threshold_down`",
        ),
        (
            "{ kind: r-stitch, to: large }",
            "policy.threshold_up: set `threshold`, or `threshold_up` and `threshold_down`",
        ),
    ];
    refused(&cases);
}

#[test]
fn a_fault_of_steps_weights_tags_or_conditions_names_both() {
    refused(&[
        (
            "{ kind: glimp, to: large, threshold: -1 }",
            "policy.threshold: -1 is not between 0 and 100",
        ),
        ("{ kind: glimp, to: large, top: 2000 }", "policy.top: 2000 is not between 0 and 1000"),
        (
            "{ kind: glimp, to: large, step_max: 0 }",
            "policy.step_max: 0 is not between 1 and 4294967295",
        ),
        (
            "{ kind: glimp, to: large, scope: whole, thinking_max: 9 }",
            "policy.thinking_max: scope `whole` does not read it",
        ),
        (
            "{ kind: ensemble, weights: { small: 0, large: 0 } }",
            "policy.weights: `large: 0, small: 0` sum to 0, not to a positive number",
        ),
        (
            "{ kind: ensemble, weights: {} }",
            "policy.weights: `` sum to 0, not to a positive number",
        ),
        (
            "{ kind: ensemble, weights: { small: 2, large: -1 } }",
            "policy.weights.large: -1 is not a weight; it must be 0 or more",
        ),
        (
            "{ kind: ensemble, weights: { small: 2, huge: 1 } }",
            "policy.weights.huge: there is no model `huge`; the topology has large, mid, small",
        ),
        (
            "{ kind: split-reason, to: large, open: '' }",
            "policy.open: a tag has 1 to 256 bytes, not 0",
        ),
        (
            "{ kind: split-reason, to: large, open: '|', close: '|' }",
            "policy.close: `|` is the opening tag as well",
        ),
        (
            "{ kind: expression }",
            "policy: write a condition for at least one model, `to_MODEL: ...`",
        ),
        (
            "{ kind: expression, to_large: 'true', threshold: 'true' }",
            "policy.threshold: is no setting of this policy; it has `to_MODEL`, `back` or `head`",
        ),
        (
            "{ kind: expression, to_huge: 'true' }",
            "policy.to_huge: there is no model `huge`; the topology has large, mid, small",
        ),
        (
            "{ kind: expression, to_small: 'true' }",
            "policy.to_small: `small` is the entry model itself",
        ),
        (
            "{ kind: expression, to_large: 'head > 0.5' }",
            "policy.head: is missing, but a condition reads `head`",
        ),
        (
            "{ kind: expression, to_large: 'true', head: linear }",
            "policy.head: no condition reads `head`",
        ),
        (
            "{ kind: expression, to_large: 'true', back: 'head > 0.5' }",
            "policy.back: `head` is a number of the entry model alone",
        ),
    ]);
}

/// Each section is refused with key and reason as expected.
fn refused(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(built(text).err().as_deref(), Some(*expected), "{text}");
    }
}

#[test]
fn a_fault_of_a_head_a_token_or_a_strategy_names_both() {
    refused(&[
        (
            "{ kind: r2r, to: large, strategy: entropy, head: 'demo:r2r' }",
            "policy.head: strategy `entropy` does not read it; it has threshold",
        ),
        ("{ kind: r2r, to: large }", "policy.head: is missing; name a head such as `demo:r2r`"),
        ("{ kind: r2r, to: large, head: 'demo:x' }", "policy.head: there is no head `demo:x`"),
        (
            "{ kind: r2r, to: large, head: 'demo:citer' }",
            "policy.head: `demo:citer` is a head of kind citer; name one of r2r or linear",
        ),
        (
            "{ kind: citer, to: large, head: 'demo:r2r' }",
            "policy.head: `demo:r2r` is a head of kind r2r; name one of citer or linear",
        ),
        (
            "{ kind: citer, to: large, head: linear }",
            "policy.threshold: is missing, and the head has none of its own",
        ),
        (
            "{ kind: r2r, to: large, head: linear, threshold: 1.5 }",
            "policy.threshold: 1.5 is not between 0 and 1",
        ),
        (
            "{ kind: citer, to: large, head: linear, threshold: -1 }",
            "policy.threshold: -1 is not between 0 and 1",
        ),
        (
            "{ kind: r2r, to: large, strategy: entropy, threshold: -0.5 }",
            "policy.threshold: -0.5 is not between 0 and 100",
        ),
        (
            "{ kind: r2r, to: large, strategy: immediate, epistemic: 2 }",
            "policy.epistemic: 2 is not between 0 and 1",
        ),
        (
            "{ kind: r2r, to: large, strategy: immediate, entropy: 1000 }",
            "policy.entropy: 1000 is not between 0 and 100",
        ),
        (
            "{ kind: r2r, to: large, strategy: momentum, aleatoric: -2 }",
            "policy.aleatoric: -2 is not between 0 and 100",
        ),
        (
            "{ kind: r2r, to: large, strategy: random, probability: 2 }",
            "policy.probability: 2 is not between 0 and 1",
        ),
        (
            "{ kind: co-llm, to: large, defer: '<|wait|>' }",
            "policy.defer: there is no token `<|wait|>`",
        ),
        ("{ kind: co-llm, to: large, defer: 110 }", "policy.defer: there is no token `110`"),
        ("{ kind: co-llm, to: large, threshold: 2 }", "policy.threshold: 2 is not between 0 and 1"),
    ]);
}

#[test]
fn unknown_missing_and_ill_typed_settings_name_their_key() {
    let cases = [
        ("{ kind: r-stitch, to: large, treshold: 0.1 }", "treshold"),
        ("{ kind: random, to: large, probability: 0.1, period: 2 }", "period"),
        ("{ kind: fixed-period, to: large, period: 2, every: 3 }", "every"),
        ("{ kind: always, to: large }", "to"),
        ("{ kind: random, to: large }", "probability"),
        ("{ kind: random, probability: 0.5 }", "to"),
        ("{ kind: fixed-period, to: large }", "period"),
        ("{ kind: fixed-period, to: large, period: often }", "period"),
        ("{ kind: r-stitch, to: large, threshold: high }", "threshold"),
        ("{ kind: r2r, to: large, strategy: clever }", "strategy"),
        ("{ kind: r2r, strategy: entropy }", "to"),
        ("{ kind: citer, to: large }", "head"),
        ("{ kind: citer, to: large, head: linear, strategy: neural }", "strategy"),
        ("{ kind: co-llm, to: large, head: linear }", "head"),
        ("{ kind: co-llm, to: large, defer: 1.5 }", "defer"),
        ("{ kind: glimp, to: large, scope: all }", "scope"),
        ("{ kind: glimp, threshold: 1 }", "to"),
        ("{ kind: glimp, to: large, treshold: 1 }", "treshold"),
        ("{ kind: ensemble }", "weights"),
        ("{ kind: ensemble, weights: { small: much } }", "weights.small"),
        ("{ kind: ensemble, weights: { small: 1 }, to: large }", "to"),
        ("{ kind: split-reason, to: large, threshold: 1 }", "threshold"),
        ("{ kind: relay, to: large, calls_max: -1 }", "calls_max"),
        ("{ kind: relay }", "to"),
        ("{ kind: expression, to_large: 1 }", "to_large"),
        ("{ kind: expression, to_large: [1] }", "to_large"),
    ];
    for (text, key) in cases {
        let error = built(text).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert!(error.contains(key), "{text}: {error}");
    }
}

#[test]
fn every_kind_that_is_listed_is_known() {
    for kind in kinds() {
        let error = built(&format!("{{ kind: {kind}, surely_unknown: 1 }}")).err();
        let error = error.unwrap_or_else(|| panic!("{kind} takes anything"));
        assert!(!error.contains("there is no policy"), "{kind}: {error}");
    }
}

#[test]
fn the_models_of_a_policy_are_those_it_may_name() {
    let cases: [(&str, &[u8]); 4] = [
        ("{ kind: always, model: mid }", &[1]),
        ("{ kind: random, to: large, probability: 0.5 }", &[2, 0]),
        ("{ kind: fixed-period, to: mid, period: 3 }", &[2, 1]),
        ("{ kind: r-stitch, to: large, threshold: 0.5 }", &[2, 0]),
    ];
    for (text, models) in cases {
        let policy = built(text).unwrap();
        let named: Vec<u8> = policy.models().iter().map(|m| m.0).collect();
        assert_eq!(named, models, "{text}");
        let entry = policy.entry(&Draws::new(1, 0), 5);
        assert_eq!(entry, text.contains("always").then_some(ModelIx(1)), "{text}");
    }
}
