//! Tables for expressions: what they mean, what they ask the engine for, and how each fault in one is told.

use super::*;
use crate::signals::Signals;
use crate::testing::*;

fn signals() -> Signals {
    Signals {
        entropy: Some(0.5),
        entropy_normalised: Some(0.25),
        max_probability: Some(0.75),
        margin: Some(1.5),
        head: Some(0.125),
        ..Signals::default()
    }
}

#[test]
fn a_condition_is_arithmetic_and_logic_over_the_numbers_of_a_step() {
    let cases = [
        ("true", true),
        ("false", false),
        ("entropy == 0.5", true),
        ("entropy_normalised == 0.25", true),
        ("max_probability == 0.75", true),
        ("margin == 1.5", true),
        ("head == 0.125", true),
        ("position == 3", true),
        ("draw >= 0.0 && draw < 1.0", true),
        ("entropy > 0.4 && margin < 2", true),
        ("entropy > 0.4 && margin < 1.5", false),
        ("entropy > 0.6 || margin <= 1.5", true),
        ("!(entropy >= 0.5)", false),
        ("entropy != 0.5", false),
        // Whole numbers are numbers.
        ("margin > 1", true),
        ("2 * entropy == 1", true),
        ("margin / 2 == 0.75", true),
        ("1 / 2 == 0.5", true),
        ("-margin + 2u - entropy == 0", true),
        ("entropy - 0.25 * 2.0 == 0.0", true),
        ("(entropy + 0.5) * 2 > margin", true),
        ("true && (false || entropy < margin)", true),
        ("entropy > 0.1 && entropy > 0.2 && entropy > 0.3 && entropy > 0.7", false),
        // What is no number compares as false.
        ("0.0 / 0.0 < 1.0", false),
        ("0.0 / 0.0 >= 1.0", false),
    ];
    for (text, expected) in cases {
        let head = if text.contains("head") { ", head: linear" } else { "" };
        let policy = built(&format!("{{ kind: expression, to_large: '{text}'{head} }}")).unwrap();
        let step = Step { position: PROMPT + 3, ..step(SMALL, signals()) };
        let verdict = step.route(&*policy, &mut PolicyState::default());
        let expected = if expected { Verdict::discard_to(LARGE) } else { Verdict::Stay };
        assert_eq!(verdict, expected, "{text}");
    }
}

#[test]
fn the_other_model_writes_until_its_own_step_gives_back() {
    let one = built("{ kind: expression, to_large: 'true' }").unwrap();
    let more = built("{ kind: expression, to_large: 'true', back: 'entropy <= 0.25' }").unwrap();
    let cases = [
        (&one, LARGE, 9.0, Verdict::commit_to(SMALL)),
        (&more, LARGE, above(0.25), Verdict::Stay),
        (&more, LARGE, 0.25, Verdict::commit_to(SMALL)),
    ];
    for (policy, model, entropy, expected) in cases {
        let signals = Signals { entropy: Some(entropy), ..Signals::default() };
        let mut state = PolicyState::default();
        assert_eq!(step(model, signals).route(&**policy, &mut state), expected);
        assert_eq!(state, PolicyState::default());
    }
}

#[test]
fn of_several_models_the_first_by_name_whose_condition_holds_writes() {
    let text = "{ kind: expression, to_mid: 'entropy > 0.2', to_large: 'entropy > 0.4' }";
    let policy = built(text).unwrap();
    assert_eq!(policy.models()[..], [SMALL, LARGE, MID]);
    let cases =
        [(0.1, Verdict::Stay), (0.3, Verdict::discard_to(MID)), (0.5, Verdict::discard_to(LARGE))];
    for (entropy, expected) in cases {
        let signals = Signals { entropy: Some(entropy), ..Signals::default() };
        let verdict = step(SMALL, signals).route(&*policy, &mut PolicyState::default());
        assert_eq!(verdict, expected, "{entropy}");
    }
    let back = step(MID, Signals::default()).route(&*policy, &mut PolicyState::default());
    assert_eq!(back, Verdict::commit_to(SMALL));
}

#[test]
fn the_engine_computes_what_the_conditions_read() {
    let none = SignalSet::NONE;
    let entropy = SignalSet { entropy: true, ..none };
    let cases = [
        ("to_large: 'position > 3 || draw < 0.5'", none, none),
        ("to_large: 'entropy > 1'", entropy, none),
        ("to_large: '!(1.0 - entropy_normalised < 0.5)'", entropy, none),
        (
            "to_large: 'margin < 1', back: 'entropy < 1'",
            SignalSet { margin: true, ..none },
            entropy,
        ),
        ("to_large: 'max_probability < 1'", SignalSet { max_probability: true, ..none }, none),
        (
            "to_large: 'head > 0.5', to_mid: 'margin < 2', head: 'demo:citer'",
            SignalSet { head: Some(HeadIx(2)), margin: true, ..none },
            none,
        ),
    ];
    for (settings, at_entry, at_other) in cases {
        let policy = built(&format!("{{ kind: expression, {settings} }}")).unwrap();
        assert_eq!([policy.needs(SMALL), policy.needs(LARGE)], [at_entry, at_other], "{settings}");
    }
}

#[test]
fn a_fault_is_told_with_the_text_it_is_in() {
    let variables =
        "known are entropy, entropy_normalised, max_probability, margin, head, position, draw";
    let cases = [
        ("entrpy > 1", format!("there is no variable `entrpy`; {variables}")),
        ("!unsure", format!("there is no variable `unsure`; {variables}")),
        ("entropy", "a condition is wanted where a number stands".to_owned()),
        ("1", "a condition is wanted where a number stands".to_owned()),
        ("entropy + 1", "a condition is wanted where a number stands".to_owned()),
        ("entropy > true", "a number is wanted where a condition stands".to_owned()),
        ("entropy && margin < 1", "a condition is wanted where a number stands".to_owned()),
        ("entropy > (margin < 1)", "a number is wanted where a condition stands".to_owned()),
        ("entropy > \"high\"", "a number is wanted where a text stands".to_owned()),
        ("entropy % 2 == 0", "`_%_` is not supported".to_owned()),
        ("size(\"a\") > 0", "`size` is not supported".to_owned()),
        ("entropy > 0.1 ? true : false", "`_?_:_` is not supported".to_owned()),
        ("[1].exists(x, x > entropy)", "`a list, a map, a field or a macro` is not".to_owned()),
        ("step.entropy > 1", "`a list, a map, a field or a macro` is not".to_owned()),
        ("entropy >", "this is no expression: ".to_owned()),
        ("", "this is no expression: ".to_owned()),
        ("entropy > 0.4 and margin < 1", "this is no expression: ".to_owned()),
    ];
    for (text, fault) in cases {
        for key in ["to_large", "back"] {
            let text = text.replace('"', "\\\"");
            let other = if key == "back" { ", to_large: 'true'" } else { "" };
            let section = format!("{{ kind: expression, {key}: \"{text}\"{other} }}");
            let error = built(&section).err().unwrap_or_else(|| panic!("accepted: {section}"));
            let start = format!("policy.{key}: `{}`: {fault}", text.replace("\\\"", "\""));
            assert!(error.starts_with(&start), "{error}\nshould begin with\n{start}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
