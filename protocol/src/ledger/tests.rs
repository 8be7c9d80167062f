//! Tables for the ledger: the walk over a row, what it refuses, and what a grant says.

use super::*;
use crate::testing::*;

mod hidden;

/// A ledger with its first turn granted to life 0 of the small model.
fn granted(request: Request) -> (Ledger, Route) {
    let route = route(By::staying());
    let mut ledger = Ledger::open(rid(1), request, &route);
    ledger.grant(life(0), life(0));
    (ledger, route)
}

/// Offers rows as the owner would, one after the other; the text the client gets for each, and the end.
fn walk(request: Request, rows: &[Vec<Token>]) -> (Vec<String>, Option<Finish>, Position) {
    let prompt = request.prompt.len() as Position;
    let (pieces, end, ledger) = walk_on(&route(By::staying()), request, rows);
    (pieces, end, ledger.committed() - prompt)
}

/// As [`walk`], on a route.
fn walk_on(
    route: &Route,
    request: Request,
    rows: &[Vec<Token>],
) -> (Vec<String>, Option<Finish>, Ledger) {
    let mut ledger = Ledger::open(rid(1), request, route);
    ledger.grant(life(0), life(0));
    let mut pieces = Vec::new();
    let mut end = None;
    for tokens in rows {
        assert!(end.is_none(), "rows after the end");
        let offer = row(rid(1), ledger.fence(), ledger.committed(), tokens, RowOutcome::Going);
        let taken = ledger.take(SMALL, life(0), offer, route);
        ledger.check();
        let Taken::Accepted { progress: Some(progress), then } = taken else {
            panic!("refused: {taken:?}")
        };
        pieces.push(progress.text);
        if let Then::Finish(finish) = then {
            end = Some(finish);
        }
    }
    (pieces, end, ledger)
}

/// What is walked, and what must come of it.
struct Walk {
    what: &'static str,
    stop: &'static [&'static str],
    ignore_eos: bool,
    max_tokens: u32,
    rows: Vec<Vec<Token>>,
    pieces: &'static [&'static str],
    end: Option<Finish>,
    committed: u32,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            what: "",
            stop: &[],
            ignore_eos: false,
            max_tokens: 20,
            rows: Vec::new(),
            pieces: &[],
            end: None,
            committed: 0,
        }
    }
}

fn check(walks: Vec<Walk>) {
    for Walk { what, stop, ignore_eos, max_tokens, rows, pieces, end, committed } in walks {
        let stop = stop.iter().map(|s| (*s).to_owned()).collect();
        let request = Request { stop, ignore_eos, max_tokens, ..request("p") };
        let (told, finish, length) = walk(request, &rows);
        assert_eq!(
            (told.as_slice(), finish, length),
            (strings(pieces).as_slice(), end, committed),
            "{what}"
        );
    }
}

fn strings(pieces: &[&str]) -> Vec<String> {
    pieces.iter().map(|s| (*s).to_owned()).collect()
}

fn stop(text: &str) -> Option<Finish> {
    Some(Finish::Stop(text.to_owned()))
}

#[test]
fn the_first_of_eos_stop_and_length_ends_the_reply() {
    let eos = [letters("ab"), vec![EOS], letters("cd")].concat();
    check(vec![
        Walk {
            what: "EOS in the middle of a row",
            rows: vec![eos.clone()],
            pieces: &["ab"],
            end: Some(Finish::Eos(EOS)),
            committed: 3,
            ..Walk::default()
        },
        Walk {
            what: "an ignored EOS is text like any other, and hidden",
            ignore_eos: true,
            rows: vec![eos.clone()],
            pieces: &["abcd"],
            committed: 5,
            ..Walk::default()
        },
        Walk {
            what: "length before EOS",
            max_tokens: 2,
            rows: vec![eos.clone()],
            pieces: &["ab"],
            end: Some(Finish::Length),
            committed: 2,
            ..Walk::default()
        },
        Walk {
            what: "EOS as the last allowed token is EOS",
            max_tokens: 3,
            rows: vec![eos.clone()],
            pieces: &["ab"],
            end: Some(Finish::Eos(EOS)),
            committed: 3,
            ..Walk::default()
        },
        Walk {
            what: "a stop string before EOS; the token that completes it is committed",
            stop: &["b"],
            rows: vec![eos.clone()],
            pieces: &["a"],
            end: stop("b"),
            committed: 2,
            ..Walk::default()
        },
        Walk {
            what: "a stop string completed by the last allowed token is a stop",
            stop: &["b"],
            max_tokens: 2,
            rows: vec![eos],
            pieces: &["a"],
            end: stop("b"),
            committed: 2,
            ..Walk::default()
        },
    ]);
}

#[test]
fn stop_strings_cross_borders_and_hold_text_back() {
    check(vec![
        Walk {
            what: "over three rows; what may become a stop string waits",
            stop: &["bcd"],
            rows: vec![letters("ab"), letters("c"), letters("de")],
            pieces: &["a", "", ""],
            end: stop("bcd"),
            committed: 4,
            ..Walk::default()
        },
        Walk {
            what: "what did not become one is told",
            stop: &["bcd"],
            rows: vec![letters("ab"), letters("c"), letters("x")],
            pieces: &["a", "", "bcx"],
            committed: 4,
            ..Walk::default()
        },
        Walk {
            what: "held text is told at the end of the reply",
            stop: &["bcd"],
            max_tokens: 3,
            rows: vec![letters("abc")],
            pieces: &["abc"],
            end: Some(Finish::Length),
            committed: 3,
            ..Walk::default()
        },
        Walk {
            what: "inside one token: its rest is cut off too",
            stop: &["a"],
            rows: vec![vec![AB]],
            pieces: &[""],
            end: stop("a"),
            committed: 1,
            ..Walk::default()
        },
        Walk {
            what: "of two that end together the longest",
            stop: &["c", "abc", "bc"],
            rows: vec![letters("xab"), letters("cz")],
            pieces: &["x", ""],
            end: stop("abc"),
            committed: 4,
            ..Walk::default()
        },
        Walk {
            what: "of two that overlap the one that ends first",
            stop: &["abcd", "bc"],
            rows: vec![letters("abcd")],
            pieces: &["a"],
            end: stop("bc"),
            committed: 3,
            ..Walk::default()
        },
    ]);
}

#[test]
fn half_characters_and_hidden_tokens_are_not_shown() {
    check(vec![
        Walk {
            what: "half a character waits for the other half",
            rows: vec![vec![HALVES[0]], vec![HALVES[1]]],
            pieces: &["", "é"],
            committed: 2,
            ..Walk::default()
        },
        Walk {
            what: "half a character at the end is shown as what it is",
            max_tokens: 1,
            rows: vec![vec![HALVES[0]]],
            pieces: &["\u{fffd}"],
            end: Some(Finish::Length),
            committed: 1,
            ..Walk::default()
        },
        Walk {
            what: "a hidden token neither shows nor breaks a stop string",
            stop: &["xy"],
            ignore_eos: true,
            rows: vec![[letters("x"), vec![EOS], letters("y")].concat()],
            pieces: &[""],
            end: stop("xy"),
            committed: 3,
            ..Walk::default()
        },
    ]);
}

#[test]
fn rows_of_other_turns_lives_and_places_are_refused() {
    let (ledger, route) = granted(request("pp"));
    let going = RowOutcome::Going;
    let older = Fence { turn: 0, ..fence(1) };
    let other_home = Fence { home: life(1), turn: 1 };
    let cases = [
        ("an older turn", row(rid(1), older, 2, &[97], going.clone()), 0, Taken::Stale),
        ("a later turn", row(rid(1), fence(2), 2, &[97], going.clone()), 0, Taken::Stale),
        (
            "another life of the home",
            row(rid(1), other_home, 2, &[97], going.clone()),
            0,
            Taken::Stale,
        ),
        (
            "another life of the model",
            row(rid(1), fence(1), 2, &[97], going.clone()),
            1,
            Taken::Stale,
        ),
        ("committed already", row(rid(1), fence(1), 1, &[97], going.clone()), 0, Taken::Stale),
        ("beyond the prefix", row(rid(1), fence(1), 3, &[97], going.clone()), 0, Taken::Hole),
        ("beyond it and of an older turn", row(rid(1), older, 3, &[97], going), 0, Taken::Stale),
    ];
    for (what, row, restarts, expected) in cases {
        let mut ledger = ledger.clone();
        assert_eq!(ledger.take(SMALL, life(restarts), row, &route), expected, "{what}");
        assert_eq!(ledger.tokens(), letters("pp"), "{what}");
        assert_eq!(ledger.fence(), fence(1), "{what}");
    }
}

#[test]
fn a_grant_begins_at_the_anchor_but_leaves_a_token_to_feed() {
    // (cached as the row says it, tokens of the row, where the next grant begins)
    for (cached, tokens, from) in
        [(0, "", 0), (1, "", 1), (2, "", 1), (2, "a", 2), (3, "a", 2), (9, "abc", 4)]
    {
        let (mut ledger, route) = granted(request("pp"));
        let offer =
            ReportRow { cached, ..row(rid(1), fence(1), 2, &letters(tokens), RowOutcome::Going) };
        assert!(matches!(ledger.take(SMALL, life(0), offer, &route), Taken::Accepted { .. }));
        ledger.check();
        let grant = ledger.grant(life(0), life(0));
        assert_eq!(grant.from, from, "{cached} cached after {tokens:?}");
        assert_eq!(grant.suffix[..], ledger.tokens()[from as usize..]);
        assert_eq!(
            grant.admission.is_some(),
            from == 0,
            "admission in every grant from 0 and in no other"
        );
        assert_eq!(grant.fence, fence(2));
    }
}

#[test]
fn an_anchor_is_of_one_life_and_never_rises_by_itself() {
    let (mut ledger, route) = granted(request("pppp"));
    let offer =
        ReportRow { cached: 4, ..row(rid(1), fence(1), 4, &letters("ab"), RowOutcome::Going) };
    ledger.take(SMALL, life(0), offer, &route);
    let from = |ledger: &Ledger, to| ledger.clone().grant(life(0), to).from;
    assert_eq!(from(&ledger, life(0)), 4);
    assert_eq!(from(&ledger, life(1)), 0, "another life holds nothing");
    ledger.lower(SMALL, life(0), 9);
    assert_eq!(from(&ledger, life(0)), 4, "`lower` never raises");
    ledger.lower(SMALL, life(0), 3);
    assert_eq!(from(&ledger, life(0)), 3);
    ledger.lower(SMALL, life(1), 5);
    assert_eq!(from(&ledger, life(1)), 0, "a life that reported nothing holds nothing");
}

#[test]
fn each_model_is_granted_what_it_lacks() {
    let (mut ledger, route) = granted(request("pp"));
    let turn = |ledger: &mut Ledger, model, tokens: &str, to| {
        let offer = row(rid(1), ledger.fence(), ledger.committed(), &letters(tokens), next(to));
        let taken = ledger.take(model, life(0), offer, &route);
        assert!(matches!(taken, Taken::Accepted { then: Then::Grant, .. }), "{taken:?}");
        ledger.check();
        let grant = ledger.grant(life(0), life(0));
        (grant.from, grant.suffix.to_vec())
    };
    assert_eq!(turn(&mut ledger, SMALL, "a", LARGE), (0, letters("ppa")));
    assert_eq!(turn(&mut ledger, LARGE, "b", SMALL), (2, letters("ab")));
    // The second handoff carries the last token the large model wrote itself.
    assert_eq!(turn(&mut ledger, SMALL, "", LARGE), (3, letters("b")));
    let outcome = ledger.outcome(Finish::Length);
    let share = |model| outcome.shares.iter().find(|(m, _)| *m == model).map(|(_, s)| *s);
    assert_eq!(share(SMALL).map(|s| (s.committed, s.handoffs)), Some((1, 1)));
    assert_eq!(share(LARGE).map(|s| (s.committed, s.handoffs)), Some((1, 2)));
    assert_eq!((outcome.prompt_tokens, outcome.completion_tokens), (2, 2));
}

#[test]
fn a_new_grant_says_again_what_the_last_row_left() {
    let (mut ledger, route) = granted(request("pp"));
    let mut state = PolicyState::default();
    state.set_word(0, 7);
    let (aux, proposal) = (Aux::from_slice(&[1, 2]), Tokens::from_slice(&[99]));
    let outcome = RowOutcome::Next { to: LARGE, aux: aux.clone(), proposal: proposal.clone() };
    let offer = ReportRow { state: state.clone(), ..row(rid(1), fence(1), 2, &[], outcome) };
    ledger.take(SMALL, life(0), offer, &route);
    for turn in 2..4 {
        let grant = ledger.grant(life(0), life(0));
        assert_eq!((&grant.aux, &grant.proposal, &grant.state), (&aux, &proposal, &state));
        assert_eq!(grant.fence, fence(turn));
        // A chunk of a prompt decides nothing, so it changes nothing that travels.
        let chunk = row(rid(1), fence(turn), 2, &[], RowOutcome::Going);
        assert!(matches!(
            ledger.take(LARGE, life(0), chunk, &route),
            Taken::Accepted { progress: None, then: Then::GoOn }
        ));
    }
    let grant = ledger.grant(life(0), life(0));
    let judged = row(rid(1), grant.fence, 2, &letters("c"), RowOutcome::Going);
    ledger.take(LARGE, life(0), judged, &route);
    let grant = ledger.grant(life(0), life(0));
    assert!(
        grant.aux.is_empty() && grant.proposal.is_empty(),
        "a judged proposal is not judged again"
    );
    assert_eq!(grant.state, PolicyState::default());
}

#[test]
fn an_end_that_the_walk_does_not_confirm_is_granted_again() {
    for (what, outcome, owner) in [
        ("an EOS of another model", RowOutcome::Ended, SMALL),
        ("a model off the route", next(OTHER), SMALL),
        ("another model", next(LARGE), LARGE),
    ] {
        let (mut ledger, route) = granted(request("p"));
        let taken = ledger.take(SMALL, life(0), row(rid(1), fence(1), 1, &[97], outcome), &route);
        assert!(
            matches!(taken, Taken::Accepted { progress: Some(_), then: Then::Grant }),
            "{what}"
        );
        assert_eq!(ledger.owner(), owner, "{what}");
    }
}

#[test]
fn handing_to_and_fro_without_a_token_ends() {
    let (mut ledger, route) = granted(request("p"));
    let mut models = [SMALL, LARGE].into_iter().cycle();
    let mut hand = |ledger: &mut Ledger, tokens: &[Token]| {
        let (from, to) = (models.next().unwrap(), ledger.owner());
        assert_eq!(from, to);
        let to = if from == SMALL { LARGE } else { SMALL };
        let next = RowOutcome::Next { to, aux: Aux::new(), proposal: Tokens::new() };
        let offer = row(rid(1), ledger.fence(), ledger.committed(), tokens, next);
        let Taken::Accepted { then, .. } = ledger.take(from, life(0), offer, &route) else {
            panic!("refused")
        };
        ledger.grant(life(0), life(0));
        then
    };
    for _ in 0..FRUITLESS_MAX {
        assert_eq!(hand(&mut ledger, &[]), Then::Grant);
    }
    assert_eq!(hand(&mut ledger, &letters("a")), Then::Grant, "a token forgives");
    for _ in 0..FRUITLESS_MAX {
        assert_eq!(hand(&mut ledger, &[]), Then::Grant);
    }
    assert_eq!(hand(&mut ledger, &[]), Then::Circling);
}
