//! Tables for residencies: facts about the text, and what a grant keeps of a history.

use super::*;
use crate::step::Sampling;
use crate::testing::*;
use tokenrouter_policies::{Draws, Patterns, Signals};

/// A policy that looks for blank lines and closing tags, and hands over with every fact in the state: word 0 what was
/// completed, word 1 the latest plus one.
fn reading() -> Route {
    route(By {
        route: |step, state| {
            state.set_word(0, step.text.completed.0);
            state.set_word(1, step.text.latest.map_or(0, |latest| u64::from(latest) + 1));
            Verdict::Stay
        },
        patterns: vec!["\n\n".to_owned(), "</t>".to_owned()],
        ..By::staying()
    })
}

fn resident(route: &Route) -> Residency {
    let admission = Admission {
        route: crate::RouteIx(0),
        prompt: 1,
        length_max: 99,
        sampling: Sampling::GREEDY,
        draws: Draws::new(1, 0),
        ignore_eos: false,
    };
    Residency::new(admission, SequenceId(1), route)
}

fn turn(turn: u32, from: u32, suffix: &[Token]) -> PeerReq {
    PeerReq {
        rid: rid(1),
        fence: fence(turn),
        life: life(0),
        from,
        suffix: Tokens::from_slice(suffix),
        proposal: Tokens::new(),
        aux: Aux::new(),
        state: PolicyState::default(),
        admission: None,
    }
}

/// Feeds everything and samples `token`; the patterns completed, and the latest before.
fn step(resident: &mut Residency, route: &Route, token: Token) -> (Patterns, Option<u8>) {
    resident.feed(resident.unseen());
    let sampled = Sampled { token, signals: Signals::default() };
    let row = resident.apply(SMALL, rid(1), &[sampled], route);
    resident.check();
    let latest = row.state.word(1).checked_sub(1).map(|latest| latest as u8);
    (Patterns(row.state.word(0)), latest)
}

#[test]
fn patterns_are_found_merged_into_a_token_or_split_over_several() {
    let newline = Token::from(b'\n');
    let text = letters;
    // (tokens before, the sampled token, patterns it completes, the latest before)
    let cases: [(Vec<Token>, Token, u64, Option<u8>); 12] = [
        (text("a"), 98, 0, None),
        (text("a"), BLANK, 1, None),
        (text("a\n"), newline, 1, None),
        (text("a\n"), 98, 0, None),
        (text("a\n\n"), newline, 1, Some(0)),
        (text("a\n\nb"), BLANK, 1, Some(0)),
        (text("</t"), Token::from(b'>'), 2, None),
        (text("a\n"), BLANK_TAG, 3, None),
        (text("</t>"), BLANK, 1, Some(1)),
        // One token completes both: the one that ends last is the latest, whatever its number.
        (vec![BLANK_TAG], 98, 0, Some(1)),
        (vec![TAG_BLANK], 98, 0, Some(0)),
        (vec![TAG_BLANK, BLANK_TAG], BLANK, 1, Some(1)),
    ];
    for (before, token, completed, latest) in cases {
        let route = reading();
        let mut resident = resident(&route);
        resident.take(turn(1, 0, &before), &route);
        let found = step(&mut resident, &route, token);
        assert_eq!(found, (Patterns(completed), latest), "{token} after {before:?}");
    }
}

#[test]
fn facts_do_not_depend_on_how_the_history_came_about() {
    let route = reading();
    let mut resident = resident(&route);
    resident.take(turn(1, 0, &letters("a\n")), &route);
    assert_eq!(step(&mut resident, &route, 10), (Patterns(1), None));
    // Home knows nothing of that token: the next turn cuts it off, and the automaton with it.
    resident.take(turn(2, 1, &letters("\n")), &route);
    resident.cached = 1;
    assert_eq!(step(&mut resident, &route, 98), (Patterns(0), None));
    // The suffix repeats what is held and goes on.
    resident.take(turn(3, 1, &letters("\nb\n\n")), &route);
    resident.cached = 1;
    assert_eq!(step(&mut resident, &route, 98), (Patterns(0), Some(0)));
    // Evicted, and granted again from 0.
    resident.evict(SequenceId(2));
    resident.take(turn(4, 0, &letters("</t>")), &route);
    assert_eq!(step(&mut resident, &route, 10), (Patterns(0), Some(1)));
}

#[test]
fn a_discarded_token_is_in_no_fact() {
    let discarding = route(By {
        route: |step, _| match step.text.completed.contains(0) {
            true => to_large(JustSampled::Discard),
            false => Verdict::Stay,
        },
        patterns: vec!["\n\n".to_owned()],
        ..By::staying()
    });
    let mut resident = resident(&discarding);
    resident.take(turn(1, 0, &letters("a\n")), &discarding);
    step(&mut resident, &discarding, 10);
    assert_eq!((resident.history(), resident.phase()), (&letters("a\n")[..], Phase::Pending));
    resident.take(turn(3, 2, &letters("b")), &discarding);
    resident.cached = 2;
    step(&mut resident, &discarding, 10);
    assert_eq!((resident.history(), resident.phase()), (&letters("a\nb\n")[..], Phase::Running));
}

#[test]
fn a_grant_replaces_everything_from_its_beginning_on() {
    // (from, suffix, the history after, what stays in the cache)
    let cases = [
        (4, "e", "abcde"),
        (2, "cd", "abcd"),
        (2, "xy", "abxy"),
        (0, "z", "z"),
        (3, "dxyz", "abcdxyz"),
    ];
    for (from, suffix, history) in cases {
        let route = route(By::staying());
        let mut resident = resident(&route);
        resident.take(turn(1, 0, &letters("abcd")), &route);
        resident.feed(4);
        let taken = resident.take(turn(2, from, &letters(suffix)), &route);
        assert_eq!(taken, Grant::Taken { keep: from });
        assert_eq!(resident.history(), letters(history), "{from} {suffix}");
        assert_eq!(resident.phase(), Phase::Running);
    }
}

#[test]
fn a_grant_beyond_the_cache_does_not_join() {
    let route = route(By::staying());
    let mut resident = resident(&route);
    resident.take(turn(1, 0, &letters("abcd")), &route);
    resident.feed(3);
    assert_eq!(resident.take(turn(2, 4, &letters("e")), &route), Grant::Missing { have: 3 });
    assert_eq!((resident.fence(), resident.phase()), (fence(2), Phase::Pending));
    assert_eq!(resident.history(), letters("abcd"), "the history waits for a grant that joins");
}
