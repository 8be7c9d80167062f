//! The sweeps beside a second method: elimination over the whole table of moves (Grassmann, Taksar and Heyman), which only
//! adds, multiplies and divides.

use super::super::chain::Chain;
use super::super::tests::{pair, three};
use super::*;

/// A chain from the moves of each state.
fn chain(rows: &[&[(u32, f64)]]) -> Moves {
    let mut moves = Moves::default();
    for row in rows {
        row.iter().for_each(|&(to, odds)| moves.push(to, odds));
        moves.end_state();
    }
    moves
}

/// The shares of a class whose states are all of the chain's, by elimination.
fn eliminate(moves: &Moves, states: &[u32]) -> Vec<f64> {
    let n = states.len();
    let place = |state| states.iter().position(|&s| s == state).unwrap();
    let mut table = vec![vec![0.0; n]; n];
    for (i, &state) in states.iter().enumerate() {
        moves.of(state).for_each(|(to, odds)| table[i][place(to)] += odds);
    }
    for k in (1..n).rev() {
        let leave: f64 = table[k][..k].iter().sum();
        for i in 0..k {
            table[i][k] /= leave;
            for j in 0..k {
                table[i][j] += table[i][k] * table[k][j];
            }
        }
    }
    let mut shares = vec![1.0];
    for k in 1..n {
        let inflow = shares.iter().zip(&table).map(|(share, row)| share * row[k]).sum();
        shares.push(inflow);
    }
    let sum: f64 = shares.iter().sum();
    shares.into_iter().map(|share| share / sum).collect()
}

fn check(moves: &Moves) {
    let classes = classes(moves).unwrap();
    for class in &classes {
        let other = eliminate(moves, &class.states);
        for (share, other) in class.shares.iter().zip(&other) {
            assert!((share - other).abs() < 1e-10, "{share} is not {other}");
        }
    }
}

#[test]
fn both_methods_agree_on_chains_of_batches() {
    for (system, live, thresholds) in [
        (pair(0.35), 3, vec![1, 1]),
        (pair(0.35), 6, vec![1, 3]),
        (pair(0.9), 4, vec![2, 2]),
        (three(), 2, vec![1, 1, 1]),
    ] {
        let chain = Chain::explore(&system, live, &thresholds, 50_000).unwrap();
        assert!(chain.moves().states() > 10);
        check(chain.moves());
    }
}

#[test]
fn periodic_chains_come_to_rest() {
    // A ring in both directions of numbering, and one with two lengths that are both even.
    for rows in [
        [&[(1, 1.0)][..], &[(2, 1.0)], &[(3, 1.0)], &[(0, 1.0)]],
        [&[(3, 1.0)][..], &[(0, 1.0)], &[(1, 1.0)], &[(2, 1.0)]],
        [&[(1, 0.5), (3, 0.5)][..], &[(2, 1.0)], &[(3, 1.0)], &[(0, 1.0)]],
    ] {
        let moves = chain(&rows);
        check(&moves);
        assert_eq!(classes(&moves).unwrap()[0].states.len(), 4);
    }
}

#[test]
fn states_that_are_left_for_ever_have_no_share() {
    let moves = chain(&[&[(0, 0.9), (1, 0.1)], &[(2, 1.0)], &[(1, 0.5), (2, 0.5)]]);
    let classes = classes(&moves).unwrap();
    assert_eq!(classes.len(), 1);
    let mut shares: Vec<(u32, f64)> =
        classes[0].states.iter().copied().zip(classes[0].shares.iter().copied()).collect();
    shares.sort_by_key(|(state, _)| *state);
    assert_eq!(shares.iter().map(|(state, _)| *state).collect::<Vec<_>>(), [1, 2]);
    assert!((shares[0].1 - 1.0 / 3.0).abs() < 1e-12);
}

#[test]
fn a_chain_that_ends_up_in_one_of_several_places_has_the_odds_of_each() {
    let moves = chain(&[&[(0, 0.5), (1, 0.2), (2, 0.3)], &[(1, 1.0)], &[(3, 1.0)], &[(2, 1.0)]]);
    let mut classes = classes(&moves).unwrap();
    classes.sort_by_key(|class| class.states.len());
    let odds: Vec<f64> = classes.iter().map(|class| class.odds).collect();
    assert!((odds[0] - 0.4).abs() < 1e-9 && (odds[1] - 0.6).abs() < 1e-9, "{odds:?}");
    assert_eq!(classes[1].shares, [0.5, 0.5]);
}
