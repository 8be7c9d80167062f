//! Tables for SplitReason: which tag moves the reply, and that every token is kept.

use super::*;
use crate::route::{Patterns, TextFacts};
use crate::signals::Signals;
use crate::testing::*;

#[test]
fn the_tags_move_the_reply_and_stay_in_it() {
    let policy = built("{ kind: split-reason, to: large }").unwrap();
    let (open, close) = (1 << OPEN, 1 << CLOSE);
    let cases = [
        ("small writes", SMALL, 0, Verdict::Stay),
        ("small opens", SMALL, open, Verdict::commit_to(LARGE)),
        ("small closes what was not open", SMALL, close, Verdict::Stay),
        ("small opens and closes in one token", SMALL, open | close, Verdict::Stay),
        ("large writes", LARGE, 0, Verdict::Stay),
        ("large opens what is open", LARGE, open, Verdict::Stay),
        ("large closes", LARGE, close, Verdict::commit_to(SMALL)),
        ("large closes, in a token that opens too", LARGE, open | close, Verdict::commit_to(SMALL)),
    ];
    for (what, model, completed, expected) in cases {
        let text = TextFacts { completed: Patterns(completed), latest: None };
        let step = Step { text, ..step(model, Signals::default()) };
        let mut state = PolicyState::default();
        assert_eq!(step.route(&*policy, &mut state), expected, "{what}");
        assert_eq!((state, policy.needs(model)), (PolicyState::default(), SignalSet::NONE));
    }
}

#[test]
fn the_tags_are_looked_for_and_hidden() {
    let cases = [
        ("{ kind: split-reason, to: large }", ["<bigmodel>", "</bigmodel>"]),
        ("{ kind: split-reason, to: large, open: '[[', close: ']]' }", ["[[", "]]"]),
    ];
    for (text, tags) in cases {
        let policy = built(text).unwrap();
        assert_eq!(policy.patterns(), tags);
        assert_eq!(policy.hidden(), tags.map(|tag| Hidden::Text(tag.to_owned())));
        assert_eq!(policy.models()[..], [SMALL, LARGE]);
    }
}
