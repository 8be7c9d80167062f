//! A tuner beside a simulation whose models change.

use super::*;
use crate::planner::{Simulation, Until};

/// R2R on the models of the paper: the small one hands on with this probability.
fn pair(p: f64) -> System {
    System {
        entry: 0,
        times: vec![StepTimes::fixed(0.006), StepTimes::fixed(0.0279)],
        moves: vec![vec![1.0 - p, p], vec![1.0, 0.0]],
        commits: vec![vec![1.0, 0.0], vec![1.0, 0.0]],
        caps: vec![None, None],
        tick: 0.0001,
    }
}

const LIVE: u32 = 8;

/// How long each half of a run lasts, in seconds.
const HALF: u32 = 300;

/// Tokens a second in each half, while `thresholds` may be changed every second by what was seen in it.
fn halves(
    systems: [&System; 2],
    mut thresholds: impl FnMut(Duration, Option<Observations>) -> Vec<u32>,
) -> [f64; 2] {
    let mut simulation = Simulation::new(systems[0], LIVE, 7);
    let mut chosen = thresholds(Duration::ZERO, None);
    let mut committed = [0.0; 2];
    for second in 1..=2 * HALF {
        let half = usize::from(second > HALF);
        let before = simulation.committed();
        simulation.run(systems[half], &chosen, Until::Seconds(f64::from(second)));
        committed[half] += simulation.committed() - before;
        let seen = simulation.take_observations(systems[half]);
        chosen = thresholds(Duration::from_secs(second.into()), Some(seen));
    }
    committed.map(|tokens| tokens / f64::from(HALF))
}

#[test]
fn a_tuner_follows_a_change_and_a_stale_plan_does_not() {
    let (before, after) = (pair(0.1), pair(0.5));
    let fixed: Vec<[f64; 2]> =
        (1..=LIVE).map(|b| halves([&before, &after], |_, _| vec![1, b])).collect();
    let best = [0, 1].map(|half| fixed.iter().map(|f| f[half]).fold(0.0, f64::max));
    let mut tuner =
        Tuner::new(TunerConfig::default(), &Plan::eager(pair(0.35), Aim::default())).unwrap();
    let mut changes = Vec::new();
    let tuned = halves([&before, &after], |now, seen| {
        if let Some(seen) = seen {
            tuner.observe(now, &seen);
            changes.extend(tuner.revise(LIVE).map(|change| (now, change)));
        }
        tuner.thresholds().iter().map(|table| table.at(LIVE)).collect()
    });
    // The plan for the first half, kept in the second.
    let planned = fixed.iter().find(|f| f[0] == best[0]).unwrap();
    println!("fixed {fixed:?}, tuned {tuned:?}, stale {}, {} changes", planned[1], changes.len());
    for half in 0..2 {
        assert!(tuned[half] >= 0.97 * best[half], "half {half}: {} of {}", tuned[half], best[half]);
    }
    assert!(planned[1] < 0.95 * best[1], "a stale plan costs something: {}", planned[1]);
    // It follows while its memory of the first half fades, and then stays.
    let late = |at: &Duration| at.as_secs() % u64::from(HALF) > 120;
    let at: Vec<Duration> = changes.iter().map(|(now, _)| *now).collect();
    assert!(at.len() <= 16 && !at.iter().any(late), "it flaps: {at:?}");
    for (_, change) in &changes {
        assert_eq!(change.before.len(), change.after.len());
    }
}
