//! Tables for RelayLLM: what is a call, however tokens cut it, and how long the other model writes.

use super::*;
use crate::signals::Signals;
use crate::testing::*;

/// Routes one reply to its end: small writes these tokens, large writes `x` whenever it is its turn. `+` for each token
/// of large, `.` for each of small.
fn written(policy: &dyn Policy, tokens: &[&'static str]) -> String {
    let mut state = PolicyState::default();
    let mut written = String::new();
    for &bytes in tokens {
        let own = Step { bytes, ..step(SMALL, Signals::default()) };
        written.push('.');
        let mut verdict = own.route(policy, &mut state);
        while verdict == Verdict::commit_to(LARGE)
            || verdict == Verdict::Stay && written.ends_with('+')
        {
            // Tags of the other model are nobody's calls.
            let other = Step { bytes: "<call>9</call>", ..step(LARGE, Signals::default()) };
            verdict = other.route(policy, &mut state);
            written.push('+');
        }
        let expected =
            if written.ends_with('+') { Verdict::commit_to(SMALL) } else { Verdict::Stay };
        assert_eq!(verdict, expected);
    }
    written
}

#[test]
fn a_call_is_a_call_however_it_is_cut_into_tokens() {
    let policy = built("{ kind: relay, to: large }").unwrap();
    let cases: [(&[&'static str], &str, &str); 16] = [
        (&["<call>3</call>", "a"], ".+++.", "one token"),
        (&["<", "call", ">", "1", "2", "</", "call>"], ".......++++++++++++", "many tokens"),
        (&["a<call>2</call>b", "c"], ".++.", "text around it"),
        (&["<call>1</call", ">", "<call>", "2</call>"], "..+..++", "two calls"),
        (
            &["<call>1</call><ca", "ll>2</call>"],
            ".+.",
            "what follows in the token of a call is text",
        ),
        (&["<call>1</call><call>2</call>"], ".++", "the last of two in one token"),
        (&["<call>0</call>", "a"], "..", "none asked for"),
        (&["<call>007</call>"], ".+++++++", "leading zeros"),
        (&["<call></call>", "a"], "..", "no number"),
        (&["<call>-1</call>", "a"], "..", "a sign"),
        (&["<call>1 </call>", "a"], "..", "a space"),
        (&["<call>1234567</call>", "a"], "..", "too many digits"),
        (&["<call>1</cal", "1</call>"], "..", "broken off"),
        (&["<call>1<call>2</call>"], ".++", "begun anew within it"),
        (&["<<call>1</call>"], ".+", "after another bracket"),
        (&["<ca<call>1</call>"], ".+", "after a beginning"),
    ];
    for (tokens, expected, what) in cases {
        assert_eq!(written(&*policy, tokens), expected, "{what}: {tokens:?}");
    }
}

#[test]
fn calls_beyond_the_bound_are_without_effect() {
    let call = "<call>1</call>";
    let default = built("{ kind: relay, to: large }").unwrap();
    assert_eq!(written(&*default, &[call; 7]), ".+.+.+.+.+..");
    let none = built("{ kind: relay, to: large, calls_max: 0 }").unwrap();
    assert_eq!(written(&*none, &[call, call]), "..");
}

#[test]
fn a_call_is_hidden_with_its_number() {
    let policy = built("{ kind: relay, to: large }").unwrap();
    let (open, close) = ("<call>".to_owned(), "</call>".to_owned());
    assert_eq!(policy.hidden(), [Hidden::Number { open, close, digits_max: 6 }]);
    assert!(policy.patterns().is_empty());
    assert_eq!([policy.needs(SMALL), policy.needs(LARGE)], [SignalSet::NONE; 2]);
    assert_eq!(policy.models()[..], [SMALL, LARGE]);
}
