//! The counter-based random generator: a draw is a pure function of what it is for.
//!
//! There is no stream and no state, so a draw does not depend on the batch, the timing, the model or the life in which
//! it is made: a position that is computed again after a crash draws the same number.

use crate::unit::Position;
use serde::{Deserialize, Serialize};

/// What a draw decides. Two purposes at one position are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Which token stands at the position.
    Token,
    /// Which model writes the position, or whether to hand it over.
    Route,
}

/// The draws of one choice of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draws {
    seed: u64,
    choice: u32,
}

impl Draws {
    /// The draws of choice number `choice` (from 0) under `seed`.
    pub fn new(seed: u64, choice: u32) -> Self {
        Self { seed, choice }
    }

    /// 64 uniformly distributed bits for `purpose` at `position`.
    pub fn bits(&self, position: Position, purpose: Purpose) -> u64 {
        let purpose = match purpose {
            Purpose::Token => 1,
            Purpose::Route => 2,
        };
        let counter = (u64::from(self.choice) << 32) | u64::from(position);
        mix(mix(mix(self.seed ^ GOLDEN).wrapping_add(counter)).wrapping_add(purpose))
    }

    /// A uniform number in `[0, 1)` with 53 random bits for `purpose` at `position`.
    pub fn uniform(&self, position: Position, purpose: Purpose) -> f64 {
        (self.bits(position, purpose) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// 2^64 divided by the golden ratio: keeps seed 0 away from the fixed point of [`mix`].
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijection of 64 bits in which every input bit reaches every output bit (the finaliser of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(GOLDEN);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_each_of_its_four_inputs() {
        let draw =
            |seed, choice, position, purpose| Draws::new(seed, choice).bits(position, purpose);
        let base = draw(7, 0, 5, Purpose::Token);
        assert_eq!(base, draw(7, 0, 5, Purpose::Token));
        for other in [
            draw(8, 0, 5, Purpose::Token),
            draw(7, 1, 5, Purpose::Token),
            draw(7, 0, 6, Purpose::Token),
            draw(7, 0, 5, Purpose::Route),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn uniform_numbers_fill_the_unit_interval_evenly() {
        let mut bins = [0u32; 20];
        for seed in 0..200u64 {
            for position in 0..500 {
                let u = Draws::new(seed, 3).uniform(position, Purpose::Route);
                assert!((0.0..1.0).contains(&u));
                bins[(u * 20.0) as usize] += 1;
            }
        }
        // Chi-square with 19 degrees of freedom: 43.8 is its 0.1% point.
        let chi: f64 = bins.iter().map(|&n| (f64::from(n) - 5000.0).powi(2) / 5000.0).sum();
        assert!(chi < 43.8, "chi-square {chi}");
    }

    #[test]
    fn token_and_route_draws_do_not_correlate() {
        let n = 100_000u32;
        let sum: f64 = (0..n)
            .map(|p| {
                let d = Draws::new(1, 0);
                (d.uniform(p, Purpose::Token) - 0.5) * (d.uniform(p, Purpose::Route) - 0.5)
            })
            .sum();
        // The product has standard deviation 1/12, its mean over n samples 1/(12·√n): five of those.
        assert!((sum / f64::from(n)).abs() < 5.0 / (12.0 * f64::from(n).sqrt()));
    }
}
