//! The batcher: which of the requests that want a token go into the next forward pass, and how much of each.
//!
//! It sees numbers only: how many tokens each has waiting. It reserves no memory; [`crate::host`] does, and may cut a
//! share further.

use tokenrouter_policies::Position;

/// The bounds of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most tokens fed in one pass. Longer prompts are split, so that they do not hold up decoding for long.
    pub tokens_max: u32,
    /// Most rows in one pass.
    pub rows_max: u32,
    /// Ready rows at which a pass is launched.
    pub threshold: u32,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { tokens_max: 512, rows_max: 256, threshold: 1 }
    }
}

/// Up to this many waiting tokens a row counts as decoding: it is fed whole, before any longer one.
const SHORT: Position = 16;

/// Writes the share of each ready row, in the order given: how many of its waiting tokens to feed, 0 for not this time.
///
/// `waiting` has the oldest first, each at least 1. Empty where fewer rows are ready than `threshold` asks for. Short
/// rows come first; longer ones share what is left, the oldest first, and the oldest of them always gets something.
pub fn shares(waiting: &[Position], limits: &BatchLimits, shares: &mut Vec<Position>) {
    shares.clear();
    if waiting.is_empty() || (waiting.len() as u32) < limits.threshold {
        return;
    }
    shares.resize(waiting.len(), 0);
    let mut rows = limits.rows_max.max(1);
    let mut left = limits.tokens_max.max(1);
    // A prompt in progress is never starved by a full house of decoding rows: one row is kept for the oldest.
    let oldest_long = waiting.iter().position(|&w| w > SHORT);
    if let Some(at) = oldest_long {
        let floor = SHORT.min(left.div_ceil(2));
        (shares[at], rows, left) = (floor, rows - 1, left - floor);
    }
    for (share, &wanted) in shares.iter_mut().zip(waiting).filter(|(_, w)| **w <= SHORT) {
        if rows > 0 && left > 0 {
            *share = wanted.min(left);
            (rows, left) = (rows - 1, left - *share);
        }
    }
    for (share, &wanted) in shares.iter_mut().zip(waiting).filter(|(_, w)| **w > SHORT) {
        if *share == 0 && (rows == 0 || left == 0) {
            continue;
        }
        rows -= u32::from(*share == 0);
        let more = (wanted - *share).min(left);
        (*share, left) = (*share + more, left - more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(waiting: &[Position], limits: BatchLimits, expected: &[Position]) {
        let mut given = vec![9];
        shares(waiting, &limits, &mut given);
        assert_eq!(given, expected, "{waiting:?} under {limits:?}");
    }

    fn limits(tokens_max: u32, rows_max: u32) -> BatchLimits {
        BatchLimits { tokens_max, rows_max, threshold: 1 }
    }

    #[test]
    fn decoding_rows_come_first_and_whole() {
        check(&[], limits(32, 8), &[]);
        check(&[1, 1, 1], limits(32, 8), &[1, 1, 1]);
        check(&[100, 1, 4], limits(32, 8), &[27, 1, 4]);
        check(&[1, 1, 1], limits(32, 2), &[1, 1, 0]);
        check(&[10, 10, 1], limits(12, 8), &[10, 2, 0]);
    }

    #[test]
    fn the_oldest_prompt_always_moves() {
        check(&[1, 1, 100], limits(4, 2), &[1, 0, 3]);
        check(&[100], limits(1, 1), &[1]);
        check(&[100, 200], limits(64, 8), &[64, 0]);
        check(&[40, 200], limits(64, 8), &[40, 24]);
    }

    #[test]
    fn waits_for_the_threshold() {
        let limits = BatchLimits { threshold: 3, ..limits(32, 8) };
        check(&[1, 1], limits, &[]);
        check(&[1, 1, 1], limits, &[1, 1, 1]);
    }

    #[test]
    fn stays_within_its_bounds_and_always_moves() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((seed >> 33) % below) as u32
        };
        for _ in 0..20_000 {
            let rows = 1 + random(9);
            let waiting: Vec<Position> = (0..rows)
                .map(|_| {
                    let most = if random(2) == 0 { 3 } else { 90 };
                    1 + random(most)
                })
                .collect();
            let limits = limits(1 + random(70), 1 + random(6));
            let mut given = Vec::new();
            shares(&waiting, &limits, &mut given);
            let shares = given;
            assert!(shares.iter().zip(&waiting).all(|(s, w)| s <= w), "{waiting:?} {limits:?}");
            assert!(shares.iter().sum::<u32>() <= limits.tokens_max, "{waiting:?} {limits:?}");
            assert!(shares.iter().filter(|s| **s > 0).count() as u32 <= limits.rows_max);
            let oldest_long = waiting.iter().position(|w| *w > SHORT).unwrap_or(0);
            assert!(shares[oldest_long] > 0, "{waiting:?} {limits:?}");
        }
    }
}
