//! The batcher: when a forward pass is launched, which of the requests that want a token go into it, and how much of each.
//!
//! It sees numbers only: how many tokens each has waiting, and since when. It reserves no memory; [`crate::host`] does,
//! and may cut a share further.

use std::time::Duration;
use tokenrouter_policies::{Position, Thresholds};

/// When a forward pass is launched, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most tokens fed in one pass. Longer prompts are split, so that they do not hold up decoding for long.
    pub tokens_max: u32,
    /// Most rows in one pass.
    pub rows_max: u32,
    /// Ready requests at which a pass is launched (delayed batching).
    pub thresholds: Thresholds,
    /// How long a request waits for others at most; without a bound as long as the thresholds say.
    pub max_wait: Option<Duration>,
}

/// Who wants a row of the next pass, as far as its launch is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// How many requests.
    pub ready: u32,
    /// The most tokens that one of them has waiting.
    pub longest: Position,
    /// Since when the first of them waits.
    pub since: Duration,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { tokens_max: 512, rows_max: 64, thresholds: Thresholds::default(), max_wait: None }
    }
}

impl BatchLimits {
    /// From when on a pass may be launched while `live` requests can reach the model; `None` where more must become ready
    /// first. A row longer than decoding ones is not kept waiting: its pass takes its time whoever else is in it, so
    /// there is nothing to gain, and a prompt that is fed in parts would wait for each.
    pub fn due(&self, demand: &Demand, live: u32) -> Option<Duration> {
        if demand.ready >= self.thresholds.at(live) || demand.longest > SHORT {
            return Some(Duration::ZERO);
        }
        self.max_wait.map(|wait| demand.since + wait)
    }
}

/// Up to this many waiting tokens a row counts as decoding: it is fed whole, before any longer one.
const SHORT: Position = 16;

/// Writes the share of each ready row, in the order given: how many of its waiting tokens to feed, 0 for not this time.
///
/// `waiting` has the oldest first, each at least 1. Short rows come first; longer ones share what is left, the oldest
/// first, and the oldest of them always gets something.
pub fn shares(waiting: &[Position], limits: &BatchLimits, shares: &mut Vec<Position>) {
    shares.clear();
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
        BatchLimits { tokens_max, rows_max, ..BatchLimits::default() }
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
    fn waits_for_the_threshold_but_not_for_ever_and_not_with_a_prompt() {
        let wait = Duration::from_millis(50);
        let limits = BatchLimits {
            thresholds: Thresholds::fixed(3),
            max_wait: Some(wait),
            ..BatchLimits::default()
        };
        let since = Duration::from_secs(7);
        let due = |ready, longest, live| limits.due(&Demand { ready, longest, since }, live);
        assert_eq!(due(3, 1, 8), Some(Duration::ZERO));
        assert_eq!(due(2, 1, 8), Some(since + wait));
        assert_eq!(due(2, 1, 2), Some(Duration::ZERO), "never for more than there are");
        assert_eq!(due(1, 17, 8), Some(Duration::ZERO));
        let patient = BatchLimits { max_wait: None, ..limits.clone() };
        assert_eq!(patient.due(&Demand { ready: 2, longest: 1, since }, 8), None);
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
