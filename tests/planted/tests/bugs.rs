//! Every planted bug is caught by the seeded world, or, where it only costs time, by a scenario; every scenario catches what
//! it is made for.

use std::thread;
use tokenrouter_planted::bugs::{BUGS, Bug};
use tokenrouter_planted::plant;
use tokenrouter_planted::world::{SCENARIOS, Scenario, play, run};

/// Seeds in which a bug must show itself.
const SEEDS: u64 = 4_000;

/// Worlds that run at a time.
const THREADS: usize = 2;

/// Of every so many-th bug, the first seed that it breaks, and how.
fn hunt(thread: usize) -> Vec<(usize, Option<(u64, String)>)> {
    let first = |bug| {
        plant(Some(bug));
        (0..SEEDS).find_map(|seed| run(seed).err().map(|failure| (seed, failure.reason)))
    };
    (thread..BUGS.len()).step_by(THREADS).map(|bug| (bug, first(bug))).collect()
}

#[test]
fn every_bug_is_caught() {
    let mut caught: Vec<_> = thread::scope(|scope| {
        let hunters: Vec<_> = (0..THREADS).map(|at| scope.spawn(move || hunt(at))).collect();
        hunters.into_iter().flat_map(|hunter| hunter.join().expect("it catches panics")).collect()
    });
    caught.sort();
    let mut escaped = Vec::new();
    for (bug, seed) in caught {
        let Bug { name, .. } = BUGS[bug];
        let scenario = SCENARIOS.iter().find(|scenario| scenario.catches.contains(&name));
        let of = |scenario: &Scenario| format!("scenario \"{}\"", scenario.name);
        let caught = seed.map(|(seed, reason)| format!("seed {seed}: {reason}"));
        match caught.or_else(|| scenario.map(of)) {
            Some(by) => println!("{name}\n    {by}"),
            None => escaped.push(name),
        }
    }
    assert!(escaped.is_empty(), "not caught within {SEEDS} seeds: {escaped:?}");
}

#[test]
fn without_a_bug_the_same_seeds_are_clean() {
    plant(None);
    for seed in 0..SEEDS {
        assert!(run(seed).is_ok(), "seed {seed}");
    }
}

#[test]
fn scenarios_fail_under_their_bugs_and_pass_without() {
    for scenario in SCENARIOS {
        plant(None);
        if let Err(failure) = play(scenario) {
            panic!("{failure}");
        }
        for bug in scenario.catches {
            let known = BUGS.iter().position(|known| known.name == *bug);
            assert!(known.is_some(), "there is no such bug: {bug}");
            plant(known);
            assert!(play(scenario).is_err(), "{} does not catch: {bug}", scenario.name);
        }
    }
}
