//! What makes a system, and step times between and beyond the points.

use super::super::tests::{pair, three};
use super::*;

/// The pair with one thing changed, and how it is refused.
fn refused(change: impl FnOnce(&mut System)) -> Faulty {
    let mut system = pair(0.35);
    change(&mut system);
    system.validate().unwrap_err()
}

#[test]
fn sound_systems_pass() {
    pair(0.35).validate().unwrap();
    pair(0.0).validate().unwrap();
    three().validate().unwrap();
}

#[test]
fn every_fault_is_named() {
    let cases = [
        (refused(|s| s.times.clear()), "there is no model"),
        (refused(|s| s.moves.truncate(1)), "the list of moves has 1 entries and there are 2"),
        (refused(|s| s.commits.truncate(1)), "the list of commits has 1 entries"),
        (refused(|s| s.caps.truncate(1)), "the list of largest batches has 1 entries"),
        (refused(|s| s.moves[1].push(0.0)), "the row of moves from model 1 has 3 entries"),
        (refused(|s| s.commits[0] = vec![]), "the row of commits from model 0 has 0 entries"),
        (refused(|s| s.entry = 2), "the entry is model 2 and there are 2"),
        (refused(|s| s.moves[0][1] = 0.3), "the moves from model 0 add up to 0.95"),
        (refused(|s| s.moves[0][1] = f64::NAN), "the move from model 0 to model 1 is NaN"),
        (refused(|s| s.moves[1] = vec![-0.1, 1.0]), "the move from model 1 to model 0 is -0.1"),
        (refused(|s| s.commits[1][0] = 1.5), "the commit of the move from model 1 to model 0"),
        (refused(|s| s.times[1] = StepTimes::fixed(0.0)), "a step of model 1 with 1 requests"),
        (refused(|s| s.times[0] = StepTimes::fixed(-0.1)), "takes -0.1 s"),
        (refused(|s| s.times[0] = StepTimes::fixed(f64::INFINITY)), "takes inf s"),
        (refused(|s| s.times[0] = StepTimes::measured(vec![])), "the step times of model 0"),
        (refused(|s| s.times[0] = StepTimes::measured(vec![(0, 0.1)])), "begin at 1"),
        (refused(|s| s.times[0] = StepTimes::measured(vec![(2, 0.1); 2])), "rise"),
        (refused(|s| s.caps[1] = Some(0)), "the largest batch of model 1 is 0"),
        (refused(|s| s.tick = 0.0), "the tick is 0 s"),
        (refused(|s| s.tick = f64::NAN), "the tick is NaN s"),
        (refused(|s| s.tick = 0.007), "longer than the shortest step of 0.006 s"),
        (refused(|s| s.tick = 1e-12), "too many ticks"),
        (refused(|s| s.commits = vec![vec![0.0; 2]; 2]), "never again makes a move that commits"),
    ];
    for (fault, words) in cases {
        assert!(fault.to_string().contains(words), "`{fault}` does not say `{words}`");
    }
}

#[test]
fn requests_that_are_stuck_where_nothing_is_committed_are_found() {
    // Model 1 keeps what comes to it and commits nothing there, although model 0 does.
    assert_eq!(refused(|s| s.moves[1] = vec![0.0, 1.0]), Faulty::NothingCommitted(1));
    // Without a way to it there is nothing wrong.
    let mut system = pair(0.0);
    system.moves[1] = vec![0.0, 1.0];
    system.validate().unwrap();
}

#[test]
fn step_times_lie_on_lines() {
    let times = StepTimes::measured(vec![(8, 0.020), (2, 0.010), (4, 0.012)]);
    let found = [1, 2, 3, 4, 6, 8, 10].map(|batch| (times.at(batch) * 1e6).round());
    assert_eq!(found, [10_000.0, 10_000.0, 11_000.0, 12_000.0, 16_000.0, 20_000.0, 24_000.0]);
    // Noise that falls is not followed below the last point.
    let falling = StepTimes::measured(vec![(1, 0.010), (2, 0.009)]);
    assert_eq!([2, 3, 100].map(|batch| falling.at(batch)), [0.009; 3]);
    assert_eq!(StepTimes::fixed(0.5).at(7), 0.5);
}

#[test]
fn a_step_has_whole_ticks_and_at_least_one() {
    let system = pair(0.35);
    assert_eq!((system.ticks(0, 1), system.ticks(1, 5)), (60, 279));
    let mut coarse = three();
    coarse.tick = 0.003;
    assert_eq!([1, 4, 8].map(|batch| coarse.ticks(0, batch)), [1, 1, 1]);
}
