//! The simulation beside the exact chain, which knows nothing of it.

use super::super::chain::Chain;
use super::super::tests::{pair, three};
use super::*;

#[test]
fn it_agrees_with_the_chain() {
    for (system, live, thresholds) in [
        (pair(0.35), 1, vec![1, 1]),
        (pair(0.35), 4, vec![1, 3]),
        (pair(0.35), 8, vec![2, 5]),
        (pair(0.7), 6, vec![1, 1]),
        (three(), 4, vec![1, 2, 2]),
    ] {
        let chain = Chain::explore(&system, live, &thresholds, 500_000).expect("few enough moves");
        let exact = chain.tokens_per_tick().unwrap() / system.tick;
        let found = measure(&system, live, &thresholds, 400_000.0, 3).tokens_per_s;
        assert!((found / exact - 1.0).abs() < 0.005, "{live} {thresholds:?}: {found}, not {exact}");
    }
}

#[test]
fn the_same_seed_plays_the_same_and_another_does_not() {
    let play = |seed| measure(&pair(0.35), 6, &[1, 3], 20_000.0, seed);
    assert_eq!(play(1), play(1));
    assert_ne!(play(1), play(2));
}

#[test]
fn the_slowest_of_a_hundred_replies_is_slower_than_the_mean() {
    let Measured { tokens_per_s, p99_tpot } = measure(&pair(0.35), 4, &[1, 3], 200_000.0, 1);
    let mean = 4.0 / tokens_per_s;
    assert!(p99_tpot > 1.05 * mean && p99_tpot < 1.5 * mean, "{p99_tpot} beside {mean}");
    // Nothing is left to chance here: every reply takes the same.
    let even = measure(&pair(0.0), 4, &[1, 1], 20_000.0, 1);
    assert!((even.p99_tpot - 0.006).abs() < 1e-9, "{even:?}");
}

#[test]
fn what_is_seen_is_what_was_asked_for() {
    let system = pair(0.35);
    let mut simulation = Simulation::new(&system, 4, 1);
    simulation.run(&system, &[1, 3], Until::Seconds(100.0));
    let seen = simulation.take_observations(&system);
    let share = seen.moves[0][1].count / seen.moves_from(0);
    assert!((share - 0.35).abs() < 0.02, "{share}");
    assert_eq!(seen.moves[1][1].count, 0.0);
    assert_eq!(seen.moves[0][0].committed, seen.moves[0][0].count);
    // The large model never launches for fewer than three.
    assert_eq!(seen.steps[1].keys().copied().collect::<Vec<_>>(), [3, 4]);
    for steps in seen.steps[1].values() {
        assert!((steps.seconds / steps.count - 0.0279).abs() < 1e-9);
    }
    assert_eq!(simulation.take_observations(&system).moves_from(0), 0.0);
}

#[test]
fn requests_that_wait_for_each_other_end_a_run() {
    let system = pair(0.5);
    let mut simulation = Simulation::new(&system, 4, 1);
    simulation.run(&system, &[3, 3], Until::Seconds(1000.0));
    assert!(simulation.seconds(&system) < 999.0);
}
