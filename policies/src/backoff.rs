//! How long to wait before the next try: twice as long each time, up to a limit, and never quite the same.

use std::time::Duration;

/// Waits between tries of one thing.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    seed: u64,
    tries: u32,
}

impl Backoff {
    /// Waits from `first` on, up to `longest`; two seeds wait differently.
    pub fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { first, longest, seed, tries: 0 }
    }

    /// How long to wait before the next try: between half of its turn's length and the whole of it.
    pub fn wait(&mut self) -> Duration {
        let whole = self.first.saturating_mul(1 << self.tries.min(20)).min(self.longest);
        self.tries = self.tries.saturating_add(1);
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let share = (self.seed >> 40) as f64 / (1u64 << 24) as f64;
        whole.mul_f64(0.5 + 0.5 * share)
    }

    /// It worked: the next failure begins anew.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_begin_anew() {
        let first = Duration::from_millis(10);
        let longest = Duration::from_millis(100);
        let mut backoff = Backoff::new(first, longest, 7);
        for whole in [10, 20, 40, 80, 100, 100].map(Duration::from_millis) {
            let wait = backoff.wait();
            assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        }
        backoff.reset();
        assert!(backoff.wait() <= first);
    }

    #[test]
    fn two_seeds_do_not_wait_alike() {
        let second = Duration::from_secs(1);
        let of = |seed| Backoff::new(second, second, seed).wait();
        assert_ne!(of(1), of(2));
    }
}
