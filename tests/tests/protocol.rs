//! The protocol under faults: ten thousand seeded worlds keep every invariant, lose whatever can be lost, and give every
//! client its reply; scripted interleavings end as they must.

use tokenrouter_tests::world::{CAUSES, Deaths, FAULTS, KINDS, SCENARIOS, Stats, play, run, sweep};

/// Seeds that are worth a replay, each with the reason.
const REGRESSIONS: &str = include_str!("regressions.txt");

#[test]
fn every_world_keeps_the_invariants_and_comes_to_rest() {
    let summary = sweep(0, 10_000, 2);
    for failure in &summary.failures {
        println!("{failure}");
    }
    assert!(summary.failures.is_empty(), "{} seeds failed", summary.failures.len());
    let stats = summary.stats;
    assert_eq!(stats.seeds, 10_000);
    assert!(stats.finished > 20_000, "{stats}");
    assert!(stats.failed > 0, "{stats}");
    let [.., evictions, preemptions] = stats.host;
    assert!(evictions > 100 && preemptions > 100, "{stats}");
    check_faults(&stats);
}

fn check_faults(stats: &Stats) {
    for (kind, counts) in KINDS.iter().zip(stats.met.faults) {
        for (fault, count) in FAULTS.iter().zip(counts) {
            // The rarest: a reminder that meets a partition.
            assert!(count >= 50, "only {count} of {kind} met {fault}\n{stats}");
        }
    }
    for (cause, times) in CAUSES.iter().zip(&stats.recoveries) {
        assert!(times.count() >= 100, "only {} met {cause}\n{stats}", times.count());
    }
    let Deaths { models, doors, homes, nodes, adopted, abandoned } = stats.deaths;
    let many = [models, doors, homes, nodes, adopted, abandoned, stats.cuts];
    assert!(many.iter().all(|count| *count >= 100), "{stats}");
}

#[test]
fn a_seed_gives_the_same_world_again() {
    let world = |seed| sweep(seed, 1, 1).stats;
    for seed in [1, 77, 1234] {
        assert_eq!(world(seed), world(seed));
    }
    assert_ne!(world(1), world(2));
}

#[test]
fn scenarios_end_as_they_must() {
    for scenario in SCENARIOS {
        if let Err(failure) = play(scenario) {
            panic!("{failure}");
        }
    }
}

#[test]
fn seeds_worth_a_replay_pass() {
    let lines = REGRESSIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in lines {
        let parts = line.split_once(' ').and_then(|(seed, why)| Some((seed.parse().ok()?, why)));
        let (seed, why) = parts.unwrap_or_else(|| panic!("no seed and reason: {line}"));
        if let Err(failure) = run(seed) {
            panic!("{failure}\nit was kept for: {why}");
        }
    }
}

#[test]
fn frames_that_no_node_would_send_are_refused_or_understood() {
    let fared = tokenrouter_tests::fuzz::frames(200_000, 1);
    assert!(fared.accepted > 10_000 && fared.refused > 50_000, "{fared:?}");
}
