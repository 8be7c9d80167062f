//! Tables for the home: who is granted what and when, what silence does, and how a request is forgotten.

use super::*;
use crate::message::{PeerReq, RowOutcome};
use crate::testing::*;
use tokenrouter_policies::Policy;

mod closing;
mod reach;

/// How long the watchdog of these homes waits, and how often `Finish` is repeated, in milliseconds.
const STALL: u64 = 100;
const REPEAT: u64 = 40;

/// A home of the first life that has heard of life 0 of both models.
fn home() -> Home {
    let mut home = newborn(0);
    for model in [SMALL, LARGE] {
        assert!(hear(&mut home, 0, (model, 0), &[ModelWord::Reborn]).is_empty());
    }
    home
}

/// A home of the life `restarts` with one route, which has heard nothing yet.
fn newborn(restarts: u32) -> Home {
    let routes: Arc<[Route]> = Arc::from([route(By::staying())]);
    Home::new(HomeConfig {
        home: HOME,
        life: life(restarts),
        routes,
        requests_max: 2,
        stall_timeout: ms(STALL),
        grants_max: 3,
        finish_repeat: ms(REPEAT),
        adopt_grace: ms(50),
    })
}

/// Opens a request; its name and the words that follow.
fn open(home: &mut Home, now: u64) -> (RequestId, Vec<(ModelIx, HomeWord)>) {
    let mut out = Vec::new();
    let rid = home.open(ms(now), request("pp"), &mut out).unwrap();
    (rid, said(home, out))
}

/// What life `restarts` of `model` says, and what home then does.
fn hear(
    home: &mut Home,
    now: u64,
    (model, restarts): (ModelIx, u32),
    words: &[ModelWord],
) -> Vec<Effect> {
    let mut out = Vec::new();
    let says = ModelSays { model, life: life(restarts), words: words.iter().cloned().collect() };
    home.hear(ms(now), says, &mut out);
    home.check();
    out
}

/// As [`hear`], for one word whose effects are words alone.
fn answer(
    home: &mut Home,
    now: u64,
    who: (ModelIx, u32),
    word: ModelWord,
) -> Vec<(ModelIx, HomeWord)> {
    let out = hear(home, now, who, &[word]);
    said(home, out)
}

fn tick(home: &mut Home, now: u64) -> Vec<Effect> {
    let mut out = Vec::new();
    home.tick(ms(now), &mut out);
    home.check();
    out
}

fn tick_said(home: &mut Home, now: u64) -> Vec<(ModelIx, HomeWord)> {
    let out = tick(home, now);
    said(home, out)
}

/// The words among effects that hold nothing else.
fn said(home: &Home, effects: Vec<Effect>) -> Vec<(ModelIx, HomeWord)> {
    home.check();
    let words = effects.into_iter().map(|effect| match effect {
        Effect::Say { to, says } => says.words.into_iter().map(move |word| (to, word)),
        other => panic!("not a word: {other:?}"),
    });
    words.flatten().collect()
}

/// The only word, which must be a grant.
fn granted(words: Vec<(ModelIx, HomeWord)>) -> (ModelIx, PeerReq) {
    match words.as_slice() {
        [(to, HomeWord::Grant(grant))] => (*to, grant.clone()),
        other => panic!("not one grant: {other:?}"),
    }
}

fn missing(rid: RequestId, fence: Fence, have: u32) -> ModelWord {
    ModelWord::Missing { rid, fence, have }
}

/// The answer to a probe.
fn holding(rid: RequestId, fence: Option<Fence>, working: Option<u32>, probe: Fence) -> ModelWord {
    ModelWord::Holding { rid, fence, working, probe: Some(probe) }
}

fn offer(rid: RequestId, turn: u32, start: u32, text: &str, outcome: RowOutcome) -> ModelWord {
    ModelWord::Row(row(rid, fence(turn), start, &letters(text), outcome))
}

#[test]
fn a_request_is_granted_told_and_handed_over() {
    let mut home = home();
    let (rid, words) = open(&mut home, 0);
    let (to, grant) = granted(words);
    assert_eq!((to, grant.fence, grant.from, grant.life), (SMALL, fence(1), 0, life(0)));
    let out = hear(&mut home, 1, (SMALL, 0), &[offer(rid, 1, 2, "a", next(LARGE))]);
    let [Effect::Accepted { progress: Some(progress), .. }, Effect::Say { to: LARGE, says }] =
        out.as_slice()
    else {
        panic!("{out:?}")
    };
    assert_eq!((progress.model, progress.text.as_str()), (SMALL, "a"));
    let (_, grant) = granted(vec![(LARGE, says.words[0].clone())]);
    assert_eq!((grant.fence, grant.suffix.to_vec()), (fence(2), letters("ppa")));
    assert_eq!(says.live, 1);
    assert_eq!(home.counters().regrants, 0);
}

#[test]
fn the_limit_of_requests_in_flight_is_refused() {
    let mut home = home();
    let (first, _) = open(&mut home, 0);
    open(&mut home, 0);
    let mut out = Vec::new();
    let refused = home.open(ms(0), request("p"), &mut out);
    assert_eq!((refused, out.len()), (Err(Failure::Busy { limit: 2 }), 0));
    home.cancel(ms(1), first, &mut out);
    assert!(home.open(ms(2), request("p"), &mut out).is_ok(), "a finished request makes room");
    home.check();
}

#[test]
fn a_hole_is_granted_again_at_once_and_a_stale_row_is_not() {
    let mut home = home();
    let (rid, _) = open(&mut home, 0);
    let words = answer(&mut home, 1, (SMALL, 0), offer(rid, 1, 3, "b", RowOutcome::Going));
    assert_eq!(granted(words).1.fence, fence(2));
    assert!(answer(&mut home, 2, (SMALL, 0), offer(rid, 1, 2, "a", RowOutcome::Going)).is_empty());
    let counters = home.counters();
    assert_eq!((counters.holes, counters.stale_rows, counters.regrants), (1, 1, 1));
}

#[test]
fn missing_is_granted_again_from_what_the_model_has() {
    // (cached in an earlier row, have, where the next grant begins)
    for (cached, have, from) in [(5, 0, 0), (5, 3, 3), (4, 9, 4)] {
        let mut home = home();
        let (rid, _) = open(&mut home, 0);
        let mut early = row(rid, fence(1), 2, &letters("abcd"), RowOutcome::Going);
        early.cached = cached;
        hear(&mut home, 1, (SMALL, 0), &[ModelWord::Row(early)]);
        assert!(
            answer(&mut home, 2, (SMALL, 0), missing(rid, fence(9), 0)).is_empty(),
            "another turn"
        );
        let (to, grant) = granted(answer(&mut home, 2, (SMALL, 0), missing(rid, fence(1), have)));
        assert_eq!((to, grant.fence, grant.from), (SMALL, fence(2), from), "{cached} {have}");
        let again = answer(&mut home, 3, (SMALL, 0), missing(rid, fence(1), have));
        assert!(again.is_empty(), "the same word twice");
    }
}

#[test]
fn any_word_of_a_new_life_grants_again_with_what_travels() {
    let words = |rid| {
        [
            ModelWord::Reborn,
            missing(rid, fence(2), 0),
            ModelWord::Closed { rid: self::rid(77) },
            holding(rid, None, None, fence(2)),
            offer(rid, 2, 3, "b", RowOutcome::Going),
        ]
    };
    for at in 0..5 {
        let mut home = home();
        let (rid, _) = open(&mut home, 0);
        let outcome = RowOutcome::Next {
            to: LARGE,
            aux: SmallVec::from_slice(&[5]),
            proposal: SmallVec::from_slice(&[120]),
        };
        let mut handoff = row(rid, fence(1), 2, &letters("a"), outcome);
        handoff.state.set_word(0, 3);
        hear(&mut home, 1, (SMALL, 0), &[ModelWord::Row(handoff)]);
        let word = words(rid)[at].clone();
        let (to, grant) = granted(answer(&mut home, 2, (LARGE, 1), word.clone()));
        assert_eq!((to, grant.fence, grant.life, grant.from), (LARGE, fence(3), life(1), 0));
        assert_eq!(
            (&grant.aux[..], &grant.proposal[..], grant.state.word(0)),
            (&[5][..], &[120][..], 3)
        );
        assert!(grant.admission.is_some());
        // The old life speaks too late, and the new one says nothing new.
        assert!(answer(&mut home, 3, (LARGE, 0), word).is_empty());
        assert!(answer(&mut home, 3, (LARGE, 1), ModelWord::Reborn).is_empty());
        assert_eq!(home.counters().late, 1);
    }
}

#[test]
fn a_new_life_of_a_model_without_the_turn_loses_its_anchor_only() {
    let mut home = home();
    let (rid, _) = open(&mut home, 0);
    hear(&mut home, 1, (SMALL, 0), &[offer(rid, 1, 2, "a", next(LARGE))]);
    assert!(answer(&mut home, 2, (SMALL, 1), ModelWord::Reborn).is_empty());
    let out = hear(&mut home, 3, (LARGE, 0), &[offer(rid, 2, 3, "b", next(SMALL))]);
    let Some(Effect::Say { says, .. }) = out.last() else { panic!("{out:?}") };
    let (_, grant) = granted(vec![(SMALL, says.words[0].clone())]);
    assert_eq!((grant.from, grant.life), (0, life(1)));
}

#[test]
fn an_answer_to_a_probe_counts_only_for_the_turn_and_the_place_it_names() {
    let turn = fence(1);
    // (what, fence held, length worked on, probe that is answered, whether a new turn is granted)
    let cases = [
        ("mine", Some(turn), Some(2), turn, false),
        ("pending or ended", Some(turn), None, turn, true),
        ("held under an older turn", Some(fence(0)), None, turn, true),
        ("not held", None, None, turn, true),
        ("beyond the committed prefix: rows were lost", Some(turn), Some(3), turn, true),
        ("an answer to an older probe", None, None, fence(0), false),
    ];
    for (what, fence, working, probe, again) in cases {
        let mut home = home();
        let (rid, _) = open(&mut home, 0);
        assert!(tick(&mut home, STALL - 1).is_empty());
        let asked = tick_said(&mut home, STALL);
        assert_eq!(asked, [(SMALL, HomeWord::Probe { rid, fence: turn })]);
        let word = holding(rid, fence, working, probe);
        assert!(answer(&mut home, STALL, (LARGE, 0), word.clone()).is_empty(), "not the owner");
        let words = answer(&mut home, STALL + 1, (SMALL, 0), word);
        assert_eq!(!words.is_empty(), again, "{what}");
        if again {
            assert_eq!(granted(words).1.fence, self::fence(2), "{what}");
        }
    }
}

#[test]
fn a_reminder_is_no_answer_to_a_probe() {
    let mut home = home();
    let (rid, _) = open(&mut home, 0);
    tick(&mut home, STALL);
    let reminder = ModelWord::Holding { rid, fence: Some(fence(1)), working: None, probe: None };
    assert!(answer(&mut home, STALL + 1, (SMALL, 0), reminder).is_empty());
}

#[test]
fn mine_resets_the_watchdog_for_one_wait() {
    let mut home = home();
    let (rid, _) = open(&mut home, 0);
    for round in 1..20 {
        let now = round * STALL;
        assert_eq!(tick_said(&mut home, now), [(SMALL, HomeWord::Probe { rid, fence: fence(1) })]);
        answer(&mut home, now, (SMALL, 0), holding(rid, Some(fence(1)), Some(2), fence(1)));
        assert!(tick(&mut home, now + STALL - 1).is_empty());
    }
    assert_eq!(home.counters().regrants, 0, "an owner that works is left alone");
}

#[test]
fn silence_doubles_the_wait_and_then_fails_the_request() {
    let mut home = home();
    let (rid, _) = open(&mut home, 0);
    let (mut now, mut wait) = (0, STALL);
    for turn in 1..=3 {
        assert!(tick(&mut home, now + wait - 1).is_empty(), "turn {turn}: too early to ask");
        let probe = (SMALL, HomeWord::Probe { rid, fence: fence(turn) });
        assert_eq!(tick_said(&mut home, now + wait), [probe]);
        assert!(tick(&mut home, now + 2 * wait - 1).is_empty(), "turn {turn}: too early to grant");
        (now, wait) = (now + 2 * wait, wait * 2);
        assert_eq!(granted(tick_said(&mut home, now)).1.fence, fence(turn + 1));
    }
    let out = tick(&mut home, now + wait);
    let failure = Failure::Stalled { model: SMALL, grants: 3 };
    assert!(out.contains(&Effect::Done { rid, result: Err(failure) }), "{out:?}");
    assert_eq!((home.live(), home.closing()), (0, 1));
}

#[test]
fn only_silence_counts_against_the_bound_and_a_row_forgives() {
    let mut home = home();
    let (rid, _) = open(&mut home, 0);
    for turn in 1..=20 {
        granted(answer(&mut home, 1, (SMALL, 0), missing(rid, fence(turn), 0)));
    }
    // Twenty grants: the wait is 256 times the first and grows no more.
    assert!(tick(&mut home, 256 * STALL).is_empty());
    assert_eq!(tick_said(&mut home, 1 + 256 * STALL).len(), 1);
    granted(tick_said(&mut home, 1 + 512 * STALL));
    let row = offer(rid, 22, 2, "a", RowOutcome::Going);
    hear(&mut home, 100_000, (SMALL, 0), &[row]);
    assert!(tick(&mut home, 100_000 + STALL - 1).is_empty());
    assert_eq!(tick_said(&mut home, 100_000 + STALL).len(), 1, "an accepted row resets the wait");
    assert_eq!(home.live(), 1);
}

#[test]
fn a_chunk_of_a_prompt_is_progress() {
    let mut home = home();
    let (rid, _) = open(&mut home, 0);
    hear(&mut home, STALL - 1, (SMALL, 0), &[offer(rid, 1, 2, "", RowOutcome::Going)]);
    assert!(tick(&mut home, STALL).is_empty());
    assert_eq!(tick_said(&mut home, 2 * STALL - 1).len(), 1);
}

#[test]
fn a_new_door_grants_again_what_passed_the_old_one() {
    let mut home = home();
    let (first, _) = open(&mut home, 0);
    let (second, _) = open(&mut home, 0);
    hear(&mut home, 1, (SMALL, 0), &[offer(second, 1, 2, "a", next(LARGE))]);
    let mut out = Vec::new();
    home.door_lost(ms(2), SMALL, &mut out);
    let (to, grant) = granted(said(&home, out));
    assert_eq!((to, grant.rid, grant.fence), (SMALL, first, fence(2)));
}

#[test]
fn a_policy_may_choose_the_model_of_the_first_token() {
    let always = tokenrouter_policies::route::baseline::Always { model: LARGE };
    assert_eq!(always.models().as_slice(), [LARGE]);
    let route = Route::new(SMALL, Arc::new(always), Arc::default());
    assert_eq!(route.models.as_slice(), [SMALL, LARGE], "the entry model belongs to the route");
    let mut home = Home::new(HomeConfig { routes: Arc::from([route]), ..home().config });
    assert_eq!(granted(open(&mut home, 0).1).0, LARGE);
}
