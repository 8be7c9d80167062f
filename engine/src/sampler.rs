//! How a token is chosen from the logits of a position: a pure function of logits, settings and one draw.
//!
//! The order is fixed: temperature, then top-k, then top-p, then min-p, each on what the one before has left, then the
//! draw. The most likely token always stays. Equal logits stand in order of token id, so the choice never depends on how
//! a sort happens to treat them.

use crate::exp::exp;
use crate::signals::Top;
use tokenrouter_policies::Token;
use tokenrouter_protocol::Sampling;

/// A temperature below this is greedy: the difference of two logits divided by it is beyond every float or 0.
const COLDEST: f32 = 1e-30;

/// Candidates that are put in order at first.
const FEW: usize = 64;

/// Chooses tokens; keeps its memory between positions, and nothing else.
#[derive(Debug, Default)]
pub struct Sampler {
    candidates: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    token: Token,
    logit: f32,
    /// Relative to the most likely token's, which is 1.
    weight: f32,
}

impl Sampler {
    /// The token for a draw in `[0, 1)`. `top` is [`crate::signals::top`] of `logits`, in which a masked token is minus
    /// infinity.
    pub fn sample(
        &mut self,
        logits: &[f32],
        top: &Top,
        sampling: &Sampling,
        draw: impl FnOnce() -> f64,
    ) -> Token {
        // NaN is not warm.
        let warm = sampling.temperature > COLDEST;
        if !warm || sampling.top_k == 1 {
            return top.token;
        }
        self.weigh(logits, top, sampling.temperature);
        if sampling.top_k != 0 {
            self.order(sampling.top_k as usize);
            self.candidates.truncate(sampling.top_k as usize);
        }
        if sampling.top_p < 1.0 {
            self.keep_top(sampling.top_p);
        }
        if sampling.min_p > 0.0 {
            let least = sampling.min_p.min(1.0);
            self.candidates.retain(|candidate| candidate.weight >= least);
        }
        self.choose(draw()).unwrap_or(top.token)
    }

    /// All tokens that can be, in order of id, with their weights at this temperature.
    fn weigh(&mut self, logits: &[f32], top: &Top, temperature: f32) {
        let candidates = logits.iter().enumerate().map(|(token, &logit)| Candidate {
            token: token as Token,
            logit,
            weight: exp((logit - top.first) / temperature),
        });
        self.candidates.clear();
        self.candidates.extend(candidates.filter(|candidate| candidate.weight > 0.0));
    }

    /// Brings the `first` most likely to the front, in order, equal ones by id; the others follow as they like.
    fn order(&mut self, first: usize) {
        let order =
            |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token));
        let first = first.min(self.candidates.len());
        if first < self.candidates.len() {
            self.candidates.select_nth_unstable_by(first, order);
        }
        self.candidates[..first].sort_unstable_by(order);
    }

    /// The fewest of the most likely candidates whose probabilities among all of them reach `top_p`, at least one. As a
    /// rule these are few of a large vocabulary, so that only a part of it is ordered, eight times as much each time.
    fn keep_top(&mut self, top_p: f32) {
        let enough = self.total() * f64::from(top_p.max(0.0));
        let mut ordered = FEW;
        loop {
            self.order(ordered);
            let mut sum = 0.0;
            let reached = self.candidates.iter().take(ordered).position(|candidate| {
                sum += f64::from(candidate.weight);
                sum >= enough
            });
            if let Some(last) = reached {
                return self.candidates.truncate(last + 1);
            }
            if ordered >= self.candidates.len() {
                return;
            }
            ordered *= 8;
        }
    }

    /// The inverse of the cumulative distribution at `draw`.
    fn choose(&self, draw: f64) -> Option<Token> {
        let mut left = draw * self.total();
        for candidate in &self.candidates {
            left -= f64::from(candidate.weight);
            if left < 0.0 {
                return Some(candidate.token);
            }
        }
        // Rounding can leave a crumb beyond the last one.
        self.candidates.last().map(|candidate| candidate.token)
    }

    fn total(&self) -> f64 {
        self.candidates.iter().map(|candidate| f64::from(candidate.weight)).sum()
    }
}

#[cfg(test)]
mod tests;
