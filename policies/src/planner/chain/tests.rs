//! The states themselves, by hand where that is possible.

use super::super::tests::{pair, three};
use super::*;

#[test]
fn two_requests_that_wait_for_each_other_make_three_states() {
    // Both at the small model; one there and one waiting; both at the large one.
    let chain = Chain::explore(&pair(0.35), 2, &[1, 2], 100).unwrap();
    assert_eq!((chain.moves().states(), chain.moves().len()), (3, 6));
    let odds: Vec<(u32, f64)> = chain.moves().of(0).collect();
    let expected = [(0, 0.65 * 0.65), (1, 2.0 * 0.65 * 0.35), (2, 0.35 * 0.35)];
    for (to, likely) in expected {
        let found: f64 = odds.iter().filter(|(state, _)| *state == to).map(|(_, p)| p).sum();
        // States are numbered as they are found: none at the large model last.
        let any = odds.iter().any(|(_, p)| (p - likely).abs() < 1e-12);
        assert!(any, "no move has odds {likely}, {found}");
    }
}

#[test]
fn the_moves_of_every_state_add_up_to_1() {
    for (system, live, thresholds) in
        [(pair(0.35), 5, vec![1, 2]), (three(), 4, vec![1, 2, 2]), (pair(1.0), 3, vec![2, 2])]
    {
        let chain = Chain::explore(&system, live, &thresholds, 50_000).unwrap();
        for state in 0..chain.moves().states() as u32 {
            let sum: f64 = chain.moves().of(state).map(|(_, odds)| odds).sum();
            assert!((sum - 1.0).abs() < 1e-12, "state {state} leads somewhere with odds {sum}");
        }
    }
}

#[test]
fn passes_that_end_at_the_same_tick_end_together() {
    // Two models of equal steps, every request changes places: both always end at once, and nobody ever waits.
    let mut system = pair(1.0);
    system.times[1] = system.times[0].clone();
    system.commits[0][1] = 1.0;
    let chain = Chain::explore(&system, 2, &[1, 1], 100).unwrap();
    // Two tokens each 60 ticks, whichever two steps they are.
    assert!((chain.tokens_per_tick().unwrap() - 2.0 / 60.0).abs() < 1e-12);
    let mut apart = pair(0.5);
    apart.times[1] = apart.times[0].clone();
    let chain = Chain::explore(&apart, 3, &[1, 1], 1000).unwrap();
    // A step at each model at a time, one request's steps commit 0.5 at the first and 1 at the second, two thirds at the first.
    let expected = 3.0 * (2.0 / 3.0 * 0.5 + 1.0 / 3.0) / 60.0;
    assert!((chain.tokens_per_tick().unwrap() - expected).abs() < 1e-9);
}

#[test]
fn too_many_moves_and_deadlocks_are_given_up() {
    let moves = Chain::explore(&pair(0.35), 4, &[1, 1], 50_000).unwrap().moves().len();
    assert!(Chain::explore(&pair(0.35), 4, &[1, 1], moves).is_some());
    assert!(Chain::explore(&pair(0.35), 4, &[1, 1], moves - 1).is_none());
    assert!(Chain::explore(&pair(0.35), 4, &[3, 3], 50_000).is_none());
}

#[test]
fn no_batch_is_larger_than_the_cap() {
    let mut system = pair(0.35);
    system.caps = vec![Some(1), Some(1)];
    let chain = Chain::explore(&system, 4, &[1, 1], 50_000).unwrap();
    // One request of the large model's at a time: it limits everything.
    let limit = 1.0 / (0.35 * 279.0);
    let found = chain.tokens_per_tick().unwrap();
    assert!(found < limit && found > 0.9 * limit, "{found} beside {limit}");
}

#[test]
fn where_a_batch_goes_is_multinomial() {
    let ways = multinomial(&[0.5, 0.0, 0.2, 0.3], 3, 100).unwrap();
    assert_eq!(ways.len(), 10);
    assert!((ways.iter().map(|(_, odds)| odds).sum::<f64>() - 1.0).abs() < 1e-12);
    let of = |way: [u32; 4]| ways.iter().find(|(w, _)| **w == way).unwrap().1;
    assert!((of([1, 0, 1, 1]) - 6.0 * 0.5 * 0.2 * 0.3).abs() < 1e-12);
    assert!((of([0, 0, 3, 0]) - 0.008).abs() < 1e-12);
    assert!(multinomial(&[0.5, 0.5], 100, 50).is_none());
}
