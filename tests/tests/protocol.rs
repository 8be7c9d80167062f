//! The protocol under faults: ten thousand seeded worlds keep every invariant, lose whatever can be lost, and give every
//! client its reply.

use tokenrouter_tests::world::{FAULTS, KINDS, sweep};

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
    for (kind, counts) in KINDS.iter().zip(stats.met.faults) {
        for (fault, count) in FAULTS.iter().zip(counts) {
            // Probes are few, and of those still fewer lie in a mailbox when it is lost.
            let least = if *fault == "mailbox" { 20 } else { 100 };
            assert!(count >= least, "only {count} of {kind} met {fault}\n{stats}");
        }
    }
    let deaths = [stats.rebirths, stats.doors, stats.deaths, stats.adoptions, stats.abandoned];
    assert!(deaths.iter().all(|count| *count >= 100), "{stats}");
    assert!(stats.failed > 0, "{stats}");
    let [.., evictions, preemptions] = stats.host;
    assert!(evictions > 100 && preemptions > 100, "{stats}");
}

#[test]
fn a_seed_gives_the_same_world_again() {
    let world = |seed| sweep(seed, 1, 1).stats;
    for seed in [1, 77, 1234] {
        assert_eq!(world(seed), world(seed));
    }
    assert_ne!(world(1), world(2));
}
