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
        let ordered = sampling.top_k != 0 || sampling.top_p < 1.0;
        if ordered {
            self.order(sampling.top_k as usize);
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

    /// The most likely first, equal ones by id; the first `most` of them, or all for 0.
    fn order(&mut self, most: usize) {
        let order =
            |a: &Candidate, b: &Candidate| b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token));
        if most > 0 && most < self.candidates.len() {
            self.candidates.select_nth_unstable_by(most, order);
            self.candidates.truncate(most);
        }
        self.candidates.sort_unstable_by(order);
    }

    /// The fewest of the ordered candidates whose probabilities among all of them reach `top_p`, at least one.
    fn keep_top(&mut self, top_p: f32) {
        let enough = self.total() * f64::from(top_p.max(0.0));
        let mut sum = 0.0;
        let reached = self.candidates.iter().position(|candidate| {
            sum += f64::from(candidate.weight);
            sum >= enough
        });
        self.candidates.truncate(reached.map_or(usize::MAX, |last| last + 1));
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
