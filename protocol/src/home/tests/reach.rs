//! Tables for models out of reach: who waits, who is finished by others, who fails, and what is remembered of it.

use super::*;
use crate::request::{Failure, Outcome};
use crate::route::OnLoss;
use tokenrouter_policies::JustSampled;

/// A home with a route of both models, on which a loss means this, and a route for each model alone.
fn home_where(on_loss: OnLoss) -> Home {
    let mut both = route(By::routing(|_, _| to_large(JustSampled::Commit))).on_loss(on_loss);
    both.models = SmallVec::from_slice(&[SMALL, LARGE]);
    let alone = |model| Route {
        entry: model,
        models: SmallVec::from_slice(&[model]),
        ..route(By::staying())
    };
    let routes: Arc<[Route]> = Arc::from([both, alone(SMALL), alone(LARGE)]);
    let mut home = Home::new(HomeConfig { routes, ..newborn(0).config });
    for model in [SMALL, LARGE] {
        assert!(hear(&mut home, 0, (model, 0), &[ModelWord::Reborn]).is_empty());
    }
    home
}

fn reach(home: &mut Home, now: u64, model: ModelIx, reach: Reach) -> Vec<Effect> {
    let mut out = Vec::new();
    home.reach(ms(now), model, reach, &mut out);
    home.check();
    out
}

/// Opens a request and lets the small model hand it to the large one after a token.
fn handed_over(home: &mut Home) -> RequestId {
    let (rid, _) = open(home, 0);
    let says = row(rid, fence(1), 2, &[97], next(LARGE));
    hear(home, 1, (SMALL, 0), &[ModelWord::Row(says)]);
    assert_eq!(home.ledger(rid).unwrap().owner(), LARGE);
    rid
}

/// The grants among effects: to whom, from where, on which route.
fn grants(effects: &[Effect]) -> Vec<(ModelIx, u32, Option<u16>)> {
    let mut found = Vec::new();
    for effect in effects {
        let Effect::Say { to, says } = effect else { continue };
        found.extend(says.words.iter().filter_map(|word| match word {
            HomeWord::Grant(grant) => {
                Some((*to, grant.from, grant.admission.as_ref().map(|a| a.route.0)))
            }
            _ => None,
        }));
    }
    found
}

fn done(effects: &[Effect]) -> Vec<Result<Outcome, Failure>> {
    let ends = effects.iter().filter_map(|effect| match effect {
        Effect::Done { result, .. } => Some(result.clone()),
        _ => None,
    });
    ends.collect()
}

#[test]
fn a_model_that_is_away_is_not_asked_and_nothing_is_repeated_to_it() {
    let mut home = home_where(OnLoss::Fallback);
    let rid = handed_over(&mut home);
    assert!(reach(&mut home, 2, LARGE, Reach::Away).is_empty());
    for now in 1..50 {
        assert!(tick(&mut home, now * STALL).is_empty(), "its silence is the link's");
    }
    assert!(reach(&mut home, 5000, LARGE, Reach::Here).is_empty());
    assert!(tick(&mut home, 5000 + STALL - 1).is_empty(), "it gets the whole time anew");
    let asked = tick_said(&mut home, 5000 + STALL);
    assert!(matches!(asked.as_slice(), [(LARGE, HomeWord::Probe { rid: r, .. })] if *r == rid));
}

#[test]
fn a_route_that_waits_is_patient_for_ever() {
    let mut home = home_where(OnLoss::Wait);
    let rid = handed_over(&mut home);
    assert!(reach(&mut home, 2, LARGE, Reach::Gone).is_empty());
    assert!(tick(&mut home, 100 * STALL).is_empty());
    assert_eq!(home.live(), 1);
    reach(&mut home, 100 * STALL, LARGE, Reach::Here);
    let says = row(rid, fence(2), 3, &[98], next(SMALL));
    let out = hear(&mut home, 100 * STALL + 1, (LARGE, 0), &[ModelWord::Row(says)]);
    assert_eq!(grants(&out), [(SMALL, 2, None)]);
}

#[test]
fn a_route_that_falls_back_is_finished_by_who_is_left_and_says_so() {
    let mut home = home_where(OnLoss::Fallback);
    let rid = handed_over(&mut home);
    let out = reach(&mut home, 2, LARGE, Reach::Gone);
    assert_eq!(grants(&out), [(SMALL, 0, Some(1))], "everything anew, on a route of its own");
    let says = row(rid, fence(3), 3, &[98], RowOutcome::Going);
    hear(&mut home, 3, (SMALL, 0), &[ModelWord::Row(says)]);
    // The copy in the session tells the next life of the home.
    let standing = home.ledger(rid).unwrap().standing();
    let copy = Adoption { request: request("pp"), reply: vec![97, 98], standing: Some(standing) };
    let mut next = Home::new(HomeConfig { life: life(1), ..home_where(OnLoss::Fallback).config });
    let mut out = Vec::new();
    next.adopt(ms(4), rid, copy, &mut out);
    next.check();
    assert!(next.ledger(rid).unwrap().is_pinned());
    let ended = row(rid, fence(3), 4, &[99, EOS], RowOutcome::Ended);
    let out = hear(&mut home, 4, (SMALL, 0), &[ModelWord::Row(ended)]);
    let [Ok(outcome)] = &done(&out)[..] else { panic!("{out:?}") };
    assert_eq!(outcome.without.as_slice(), [LARGE]);
    assert_eq!(outcome.completion_tokens, 4);
    hear(&mut home, 5, (SMALL, 0), &[ModelWord::Closed { rid }]);
    assert_eq!(home.closing(), 0, "nobody waits for a model that is gone");
}

#[test]
fn a_handoff_to_a_model_that_is_gone_falls_back_at_once() {
    let mut home = home_where(OnLoss::Fallback);
    reach(&mut home, 0, LARGE, Reach::Gone);
    let (rid, _) = open(&mut home, 0);
    let says = row(rid, fence(1), 2, &[97], next(LARGE));
    let out = hear(&mut home, 1, (SMALL, 0), &[ModelWord::Row(says)]);
    assert_eq!(grants(&out), [(SMALL, 0, Some(1))]);
    assert_eq!(done(&out), []);
    assert_eq!(home.ledger(rid).unwrap().outcome(Finish::Length).without.as_slice(), [LARGE]);
}

#[test]
fn a_route_that_fails_says_which_model_is_lost() {
    let mut home = home_where(OnLoss::Fail);
    handed_over(&mut home);
    let out = reach(&mut home, 2, LARGE, Reach::Gone);
    let [Err(Failure::OutOfReach { model: LARGE })] = &done(&out)[..] else { panic!("{out:?}") };
    assert_eq!(home.live(), 0);
    // One that never needs the model is none the wiser.
    let (rid, _) = open(&mut home, 3);
    let says = row(rid, fence(1), 2, &[97, EOS], RowOutcome::Ended);
    let out = hear(&mut home, 4, (SMALL, 0), &[ModelWord::Row(says)]);
    assert!(matches!(done(&out).as_slice(), [Ok(outcome)] if outcome.without.is_empty()));
}

#[test]
fn where_nobody_is_left_even_a_fallback_fails() {
    let mut home = home_where(OnLoss::Fallback);
    handed_over(&mut home);
    reach(&mut home, 2, LARGE, Reach::Gone);
    let out = reach(&mut home, 3, SMALL, Reach::Gone);
    assert!(matches!(done(&out).as_slice(), [Err(Failure::OutOfReach { model: SMALL })]));
    assert_eq!((home.live(), home.closing()), (0, 0));
}
