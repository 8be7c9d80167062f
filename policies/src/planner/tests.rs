//! Plans as a whole: the figures of the paper's pair, what is refused, and tables that hold.

use super::*;

/// R2R on the models of the paper: the small one keeps or discards what it wrote, and always writes the next itself.
pub(super) fn pair(p: f64) -> System {
    System {
        entry: 0,
        times: vec![StepTimes::fixed(0.006), StepTimes::fixed(0.0279)],
        moves: vec![vec![1.0 - p, p], vec![1.0, 0.0]],
        commits: vec![vec![1.0, 0.0], vec![1.0, 0.0]],
        caps: vec![None, None],
        tick: 0.0001,
    }
}

/// Three models, the second of which hands on to the third, with times that grow with the batch.
pub(super) fn three() -> System {
    let times = |one, eight| StepTimes::measured(vec![(1, one), (8, eight)]);
    System {
        entry: 0,
        times: vec![times(0.003, 0.004), times(0.007, 0.011), times(0.02, 0.03)],
        moves: vec![vec![0.7, 0.2, 0.1], vec![0.5, 0.3, 0.2], vec![1.0, 0.0, 0.0]],
        commits: vec![vec![1.0, 0.0, 0.0], vec![1.0, 1.0, 0.0], vec![1.0, 0.0, 0.0]],
        caps: vec![None, Some(2), None],
        tick: 0.001,
    }
}

fn planner(system: System, delayed: Delayed) -> Planner {
    Planner::new(system, Aim { objective: Objective::Throughput, delayed }).unwrap()
}

#[test]
fn the_pair_of_the_paper_brings_what_is_known() {
    let known: [&[f64]; 3] =
        [&[99.0, 110.3], &[142.3, 158.1, 151.9], &[187.2, 195.4, 207.9, 190.7]];
    let mut planner = planner(pair(0.35), Delayed::Others);
    for (live, row) in (2..).zip(known) {
        let table = planner.table(live, 100).unwrap();
        assert_eq!(table.len(), row.len());
        for (found, known) in table.iter().zip(row) {
            // Three for four requests bring 207.954, which the table cuts off where it rounds all others.
            assert!((found.tokens_per_s - known).abs() < 0.055, "{found:?} is not {known}");
        }
        assert!(table.iter().all(|p| p.exact && p.thresholds[0] == 1));
    }
    let best = [2, 3, 4].map(|live| planner.best(live).unwrap().thresholds);
    assert_eq!(best, [[1, 2], [1, 2], [1, 3]]);
}

#[test]
fn one_request_takes_its_steps_one_after_the_other() {
    // 0.65 tokens of a step of 6 ms, and 0.35 of one more of 27.9 ms that commits one.
    let alone = planner(pair(0.35), Delayed::Others).best(1).unwrap();
    assert!((alone.tokens_per_s - 1.0 / (0.006 + 0.35 * 0.0279)).abs() < 1e-6, "{alone:?}");
}

#[test]
fn a_search_among_many_finds_what_trying_all_finds() {
    let mut cheap = pair(0.7);
    cheap.times[1] = StepTimes::fixed(0.009);
    for (system, delayed) in [(pair(0.35), Delayed::Others), (cheap, Delayed::All)] {
        let mut planner = planner(system, delayed);
        let plan = planner.plan(1..=20).unwrap();
        for best in &plan.best {
            let all = planner.table(best.live, 1000).unwrap();
            let top = all.iter().map(|p| p.tokens_per_s).fold(0.0, f64::max);
            assert!(best.tokens_per_s >= 0.998 * top, "{best:?} is not {top}");
        }
    }
}

#[test]
fn the_entry_model_may_wait_too_where_that_pays() {
    let mut slow = pair(0.7);
    slow.times = vec![StepTimes::fixed(0.020), StepTimes::fixed(0.009)];
    let others = planner(slow.clone(), Delayed::Others).best(8).unwrap();
    let all = planner(slow, Delayed::All).best(8).unwrap();
    assert!(all.thresholds[0] > 1 && all.tokens_per_s > 1.03 * others.tokens_per_s, "{all:?}");
}

#[test]
fn plans_become_tables_that_hold() {
    for (system, delayed) in [(pair(0.35), Delayed::Others), (three(), Delayed::All)] {
        let plan = planner(system, delayed).plan(1..=7).unwrap();
        let tables = plan.thresholds().unwrap();
        for best in &plan.best {
            let at: Vec<u32> = tables.iter().map(|table| table.at(best.live)).collect();
            assert_eq!(at, best.thresholds, "{} live requests", best.live);
        }
        check(&tables.iter().collect::<Vec<_>>(), 7).unwrap();
    }
    let eager = Plan::eager(pair(0.35), Aim::default()).thresholds().unwrap();
    assert_eq!(eager, [Thresholds::default(), Thresholds::default()]);
}

#[test]
fn a_plan_changed_by_hand_is_checked() {
    let mut plan = planner(pair(0.35), Delayed::Others).plan([4]).unwrap();
    plan.best[0].thresholds = vec![3, 3];
    assert!(matches!(plan.thresholds(), Err(Refused::Thresholds(Unusable::Deadlock { .. }))));
    plan.best[0].thresholds = vec![3];
    assert_eq!(plan.thresholds(), Err(Refused::Count { found: 1, models: 2 }));
}

#[test]
fn what_cannot_be_is_refused() {
    let mut planner = planner(pair(0.35), Delayed::Others);
    assert_eq!(planner.predict(0, &[1, 1]), Err(Refused::Live(0)));
    assert_eq!(planner.best(1025), Err(Refused::Live(1025)));
    assert_eq!(planner.predict(4, &[1]), Err(Refused::Count { found: 1, models: 2 }));
    assert_eq!(planner.predict(4, &[0, 1]), Err(Unusable::Zero.into()));
    let deadlock = Unusable::Deadlock { live: 4, thresholds: vec![3, 3] };
    assert_eq!(planner.predict(4, &[3, 3]), Err(deadlock.into()));
    // A threshold above the live requests asks for all of them.
    let (all, more) = (planner.predict(4, &[1, 4]).unwrap(), planner.predict(4, &[1, 9]).unwrap());
    assert_eq!(all.tokens_per_s, more.tokens_per_s);
    let limit = Aim { objective: Objective::P99Tpot(0.0), delayed: Delayed::Others };
    assert_eq!(Planner::new(pair(0.35), limit).unwrap_err(), Refused::Limit(0.0));
}

#[test]
fn a_limit_on_the_time_per_token_is_kept_or_missed_by_the_least() {
    let system = pair(0.35);
    let best = |limit| {
        let aim = Aim { objective: Objective::P99Tpot(limit), delayed: Delayed::Others };
        let mut planner = Planner::new(system.clone(), aim).unwrap();
        let best = planner.best(6).unwrap();
        (best, planner.table(6, 100).unwrap())
    };
    let p99 = |prediction: &Prediction| prediction.p99_tpot.unwrap();
    let (free, table) = best(10.0);
    assert!(table.iter().all(|other| other.tokens_per_s <= free.tokens_per_s));
    let (least, table) = best(0.001);
    assert!(table.iter().all(|other| p99(other) >= p99(&least)));
    // A limit that some keep and others do not: kept, by the fastest of those.
    let slowest = table.iter().map(p99).fold(0.0, f64::max);
    let limit = (p99(&least) + slowest) / 2.0;
    let (kept, table) = best(limit);
    assert!(p99(&kept) <= limit);
    let keeping = table.iter().filter(|other| p99(other) <= limit);
    assert!(keeping.clone().count() < table.len());
    assert!(keeping.into_iter().all(|other| other.tokens_per_s <= kept.tokens_per_s));
}

#[test]
fn current_thresholds_stay_unless_others_are_clearly_better() {
    let mut planner = planner(pair(0.35), Delayed::Others);
    // With 8 live requests 6 brings 397.8 and 5 brings 399.1: not worth a change. 8 brings 332.5.
    let tables = |b| [Thresholds::fixed(1), Thresholds::fixed(b)];
    let after = |planner: &mut Planner, b| {
        planner.revise([8], &tables(b), 0.02).unwrap().best[0].thresholds[1]
    };
    assert_eq!([5, 6, 8].map(|b| after(&mut planner, b)), [5, 6, 5]);
    // Tables that could wait for ever are not kept.
    let deadlock = [Thresholds::fixed(5), Thresholds::fixed(5)];
    assert_eq!(planner.revise([8], &deadlock, 10.0).unwrap().best[0].thresholds, [1, 5]);
}

#[test]
fn what_is_too_large_is_simulated_and_the_same_numbers_give_the_same_plan() {
    let plan = || planner(pair(0.1), Delayed::Others).plan([30]).unwrap();
    let (one, other) = (plan(), plan());
    assert!(!one.best[0].exact, "{one:?}");
    assert_eq!(one, other);
}
