//! Tables of settings and draws, and a chi-square test against the distribution that was asked for.

use super::*;
use crate::signals::top;
use tokenrouter_policies::{Draws, Purpose};

const PLAIN: Sampling = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, min_p: 0.0 };

fn sample(logits: &[f32], sampling: Sampling, draw: f64) -> Token {
    Sampler::default().sample(logits, &top(logits).unwrap(), &sampling, || draw)
}

/// Every token that some draw gives.
fn possible(logits: &[f32], sampling: Sampling) -> Vec<Token> {
    let mut tokens: Vec<_> =
        (0..4000).map(|draw| sample(logits, sampling, f64::from(draw) / 4000.0)).collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

/// Probabilities 0.1, 0.4, 0.2, 0.3.
fn logits() -> Vec<f32> {
    [0.1f32, 0.4, 0.2, 0.3].iter().map(|p| p.ln()).collect()
}

#[test]
fn greedy_is_the_lowest_of_the_most_likely() {
    for temperature in [0.0, -1.0, f32::NAN, 1e-40] {
        let sampling = Sampling { temperature, ..PLAIN };
        assert_eq!(sample(&[1.0, 3.0, 3.0], sampling, 0.999), 1);
    }
    assert_eq!(sample(&[1.0, 3.0, 3.0], Sampling { top_k: 1, ..PLAIN }, 0.999), 1);
}

#[test]
fn filters_keep_what_they_say() {
    let cases: &[(&str, Sampling, &[Token])] = &[
        ("all", PLAIN, &[0, 1, 2, 3]),
        ("top 2", Sampling { top_k: 2, ..PLAIN }, &[1, 3]),
        ("more than there are", Sampling { top_k: 99, ..PLAIN }, &[0, 1, 2, 3]),
        ("half is reached by 0.4 + 0.3", Sampling { top_p: 0.5, ..PLAIN }, &[1, 3]),
        ("top p of what top k left: 0.4 of 0.7", Sampling { top_k: 2, top_p: 0.55, ..PLAIN }, &[1]),
        ("nearly nothing", Sampling { top_p: 1e-9, ..PLAIN }, &[1]),
        ("nothing", Sampling { top_p: 0.0, ..PLAIN }, &[1]),
        ("at least 0.6 of 0.4", Sampling { min_p: 0.6, ..PLAIN }, &[1, 3]),
        ("more than the most likely", Sampling { min_p: 2.0, ..PLAIN }, &[1]),
        ("cold", Sampling { temperature: 1e-6, ..PLAIN }, &[1]),
        ("hot", Sampling { temperature: 100.0, ..PLAIN }, &[0, 1, 2, 3]),
        (
            "min p after temperature",
            Sampling { temperature: 100.0, min_p: 0.9, ..PLAIN },
            &[0, 1, 2, 3],
        ),
    ];
    for (name, sampling, want) in cases {
        assert_eq!(possible(&logits(), *sampling), *want, "{name}");
    }
}

#[test]
fn equal_logits_stand_in_order_of_id() {
    assert_eq!(possible(&[0.0; 9], Sampling { top_k: 3, ..PLAIN }), [0, 1, 2]);
    assert_eq!(possible(&[0.0; 10], Sampling { top_p: 0.45, ..PLAIN }), [0, 1, 2, 3, 4]);
    assert_eq!(sample(&[0.0; 4], PLAIN, 0.25), 1);
    // More than are put in order at first: 64, then 512, then all.
    for kept in [64, 65, 300, 513, 799] {
        let top_p = (kept as f32 - 0.5) / 800.0;
        let expected: Vec<Token> = (0..kept).collect();
        assert_eq!(possible(&[0.0; 800], Sampling { top_p, ..PLAIN }), expected);
    }
}

#[test]
fn extremes_choose_a_token_that_can_be() {
    let settings = [1e-6, 1.0, 100.0].into_iter().flat_map(|temperature| {
        let tops = [(1e-9, 0), (1.0, 1000), (0.5, 2)];
        tops.map(|(top_p, top_k)| Sampling { temperature, top_p, top_k, min_p: 0.01 })
    });
    let masked = [f32::NEG_INFINITY, 1e30, -1e30, 1e30, f32::NEG_INFINITY];
    for sampling in settings {
        for draw in [0.0, 0.5, 1.0 - f64::EPSILON] {
            assert!([1, 3].contains(&sample(&masked, sampling, draw)), "{sampling:?} {draw}");
        }
    }
    assert_eq!(sample(&[f32::NEG_INFINITY, 0.0], Sampling { temperature: 100.0, ..PLAIN }, 0.0), 1);
}

#[test]
fn frequencies_follow_the_distribution() {
    // With 3 degrees of freedom chi-square exceeds 16.3 once in a thousand seeds; these are fixed.
    for (sampling, want) in [
        (PLAIN, [0.1, 0.4, 0.2, 0.3]),
        // Squares of the probabilities, normalised.
        (Sampling { temperature: 0.5, ..PLAIN }, [1.0 / 30.0, 16.0 / 30.0, 4.0 / 30.0, 9.0 / 30.0]),
        (Sampling { top_k: 3, ..PLAIN }, [0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0]),
    ] {
        for seed in [1, 2, 3] {
            let (draws, mut counts, count) = (Draws::new(seed, 0), [0u32; 4], 20_000);
            for position in 0..count {
                let draw = draws.uniform(position, Purpose::Token);
                counts[sample(&logits(), sampling, draw) as usize] += 1;
            }
            let terms = want.iter().zip(counts).filter(|(want, _)| **want > 0.0);
            let chi: f64 = terms
                .map(|(want, got)| {
                    let want = want * f64::from(count);
                    (f64::from(got) - want).powi(2) / want
                })
                .sum();
            assert!(chi < 16.3, "{sampling:?}, seed {seed}: {chi} from {counts:?}");
        }
    }
}
