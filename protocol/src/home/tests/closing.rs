//! Tables for the end of a request: `Finish` until `Closed`, and words about requests that are over.

use super::*;

/// Opens a request and ends it by an EOS token of the small model.
fn finished(home: &mut Home) -> RequestId {
    let (rid, _) = open(home, 0);
    let ended = row(rid, fence(1), 2, &[97, EOS], RowOutcome::Ended);
    let out = hear(home, 1, (SMALL, 0), &[ModelWord::Row(ended)]);
    let done = out.iter().filter(|effect| matches!(effect, Effect::Done { .. }));
    assert_eq!(done.count(), 1);
    assert_eq!(finishes(&out), [(SMALL, rid, 1), (LARGE, rid, 1)], "visited or not");
    rid
}

/// Every `Finish` among effects: to whom, of what, of which turn.
fn finishes(effects: &[Effect]) -> Vec<(ModelIx, RequestId, u32)> {
    let mut found = Vec::new();
    for effect in effects {
        let Effect::Say { to, says } = effect else { continue };
        found.extend(says.words.iter().filter_map(|word| match word {
            HomeWord::Finish { rid, fence } => Some((*to, *rid, fence.turn)),
            _ => None,
        }));
    }
    found
}

#[test]
fn finish_is_repeated_to_each_model_until_it_has_closed() {
    let mut home = home();
    let rid = finished(&mut home);
    assert!(tick(&mut home, REPEAT).is_empty());
    assert_eq!(finishes(&tick(&mut home, 1 + REPEAT)), [(SMALL, rid, 1), (LARGE, rid, 1)]);
    assert!(tick(&mut home, REPEAT + 2).is_empty(), "not at every tick");
    hear(&mut home, 60, (LARGE, 0), &[ModelWord::Closed { rid }]);
    hear(&mut home, 61, (LARGE, 0), &[ModelWord::Closed { rid }]);
    assert_eq!(finishes(&tick(&mut home, 1 + 2 * REPEAT)), [(SMALL, rid, 1)]);
    assert_eq!(home.closing(), 1);
    hear(&mut home, 90, (SMALL, 0), &[ModelWord::Closed { rid }]);
    assert_eq!(home.closing(), 0);
    assert!(tick(&mut home, 10 * REPEAT).is_empty());
}

#[test]
fn closed_by_a_dead_life_is_late_and_by_the_next_life_is_not() {
    let mut home = home();
    let rid = finished(&mut home);
    hear(&mut home, 2, (SMALL, 0), &[ModelWord::Closed { rid }]);
    hear(&mut home, 3, (LARGE, 1), &[ModelWord::Reborn]);
    hear(&mut home, 4, (LARGE, 0), &[ModelWord::Closed { rid }]);
    assert_eq!(home.closing(), 1);
    assert_eq!(finishes(&tick(&mut home, 1 + REPEAT)), [(LARGE, rid, 1)]);
    hear(&mut home, 50, (LARGE, 1), &[ModelWord::Closed { rid }]);
    assert_eq!(home.closing(), 0);
}

#[test]
fn cancel_ends_everywhere_and_tells_nobody() {
    let mut home = home();
    let (rid, _) = open(&mut home, 0);
    let mut out = Vec::new();
    home.cancel(ms(1), rid, &mut out);
    assert_eq!(finishes(&out), [(SMALL, rid, 1), (LARGE, rid, 1)]);
    assert!(out.iter().all(|effect| matches!(effect, Effect::Say { .. })));
    out.clear();
    home.cancel(ms(2), rid, &mut out);
    home.cancel(ms(2), self::rid(99), &mut out);
    assert!(out.is_empty());
    let late = hear(&mut home, 3, (SMALL, 0), &[offer(rid, 1, 2, "a", RowOutcome::Going)]);
    assert!(late.is_empty(), "being closed anyway");
}

#[test]
fn words_about_an_unknown_request_are_answered_by_finish_with_their_own_turn() {
    let unknown = rid(99);
    let words = [
        (offer(unknown, 7, 2, "a", RowOutcome::Going), true),
        (missing(unknown, fence(7), 0), true),
        (
            ModelWord::Holding { rid: unknown, fence: Some(fence(7)), working: None, probe: None },
            true,
        ),
        (holding(unknown, None, None, fence(7)), false),
        (ModelWord::Closed { rid: unknown }, false),
        (ModelWord::Reborn, false),
    ];
    for (word, answered) in words {
        let mut home = home();
        let out = hear(&mut home, 1, (LARGE, 0), std::slice::from_ref(&word));
        let expected: &[_] = if answered { &[(LARGE, unknown, 7)] } else { &[] };
        assert_eq!(finishes(&out), expected, "{word:?}");
    }
}

#[test]
fn a_new_life_of_a_home_leaves_older_requests_alone_for_a_while() {
    let mut home = newborn(1);
    let of_before = rid(3);
    let own = RequestId { born: life(1), ..rid(3) };
    let ask = |home: &mut Home, now, rid| {
        finishes(&hear(home, now, (SMALL, 0), &[missing(rid, fence(2), 0)])).len()
    };
    assert_eq!(ask(&mut home, 1000, of_before), 0);
    assert_eq!(ask(&mut home, 1000, own), 1, "its own it would know");
    assert_eq!(ask(&mut home, 1049, of_before), 0);
    assert_eq!(ask(&mut home, 1050, of_before), 1);
}

#[test]
fn a_lost_model_fails_what_it_owns_and_closes_nothing_more() {
    let mut home = home();
    let done = finished(&mut home);
    let (owned, _) = open(&mut home, 2);
    let mut out = Vec::new();
    home.model_lost(ms(3), SMALL, "it is broken", &mut out);
    home.check();
    let failure = Failure::ModelLost { model: SMALL, reason: "it is broken".to_owned() };
    assert!(out.contains(&Effect::Done { rid: owned, result: Err(failure) }), "{out:?}");
    assert_eq!((home.live(), home.closing()), (0, 2));
    let again = finishes(&tick(&mut home, 100));
    assert_eq!(again, [(LARGE, done, 1), (LARGE, owned, 1)], "nobody waits for the lost model");
}

#[test]
fn live_requests_are_told_absolutely() {
    let mut home = home();
    let (first, _) = open(&mut home, 0);
    let mut out = Vec::new();
    home.open(ms(0), request("p"), &mut out).unwrap();
    home.cancel(ms(1), first, &mut out);
    let live = |effect: &Effect| match effect {
        Effect::Say { says, .. } => says.live,
        other => panic!("{other:?}"),
    };
    assert_eq!(out.iter().map(live).collect::<Vec<_>>(), [2, 1, 1]);
}

#[test]
fn a_reply_that_was_complete_when_its_home_died_is_finished_by_the_next_life() {
    let mut first = home();
    let (rid, _) = open(&mut first, 0);
    let ended = row(rid, fence(1), 2, &[97, EOS], RowOutcome::Ended);
    let out = hear(&mut first, 1, (SMALL, 0), &[ModelWord::Row(ended)]);
    let Some(Effect::Accepted { progress: Some(progress), standing, .. }) = out.first() else {
        panic!("{out:?}")
    };
    let Some(Effect::Done { result, .. }) = out.get(1) else { panic!("{out:?}") };
    // The first life dies between the two: its session has the whole reply, but not that it is whole.
    let mut home = newborn(1);
    let reply = progress.tokens.to_vec();
    let copy = Adoption { request: request("pp"), reply, standing: Some(standing.clone()) };
    let mut effects = Vec::new();
    home.adopt(ms(2), rid, copy, &mut effects);
    home.check();
    assert!(effects.contains(&Effect::Done { rid, result: result.clone() }), "{effects:?}");
    assert_eq!(finishes(&effects), [(SMALL, rid, 1), (LARGE, rid, 1)]);
    let grants = effects.iter().filter(|effect| match effect {
        Effect::Say { says, .. } => says.words.iter().any(|w| matches!(w, HomeWord::Grant(_))),
        _ => false,
    });
    assert_eq!(grants.count(), 0, "nobody writes on");
    assert_eq!((home.live(), home.closing()), (0, 1));
}
