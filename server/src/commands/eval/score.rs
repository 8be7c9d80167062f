//! What replies amount to: accuracy with its interval, shares, speed, and times. Pure: it asks no model and no clock.

use super::sweep::Variant;
use crate::catalog::{Catalog, Route};
use crate::openai::response::{llm_ratio, total};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::{Finish, Outcome};

/// One reply, judged.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// Whether it gives the answer.
    pub(super) right: bool,
    /// How it ended and who wrote it.
    pub(super) outcome: Outcome,
    /// From the request to its first token.
    pub(super) first: Duration,
    /// From the request to its last token.
    pub(super) last: Duration,
}

/// The replies to all problems, in the order of the problems.
#[derive(Clone, Debug)]
pub(super) struct Replies {
    /// One for each problem.
    pub(super) replies: Vec<Reply>,
    /// From the first request to the last reply.
    pub(super) took: Duration,
}

/// Mean and percentiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p90: f64,
}

/// What one route achieved, in the order and with the names of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Score {
    /// The route.
    pub(super) route: String,
    /// Right replies of all.
    pub(super) accuracy: f64,
    /// The share of the tokens that the largest model of the topology wrote.
    pub(super) large_share: f64,
    /// Turns that one model handed to another, a reply.
    pub(super) handoffs_per_reply: f64,
    /// Committed tokens of all replies in flight together, by the wall clock.
    pub(super) tokens_per_s: f64,
    /// The 95% interval of the accuracy.
    pub(super) accuracy_95: [f64; 2],
    pub(super) problems: usize,
    pub(super) right: usize,
    /// The share of the tokens that each model wrote.
    pub(super) shares: Map<String, Value>,
    /// The share of the tokens that the entry model did not write.
    pub(super) llm_ratio: f64,
    pub(super) tokens: u64,
    /// Replies that ended at the limit of their length.
    pub(super) cut_by_length: usize,
    pub(super) seconds: f64,
    /// From the request to the first token.
    pub(super) ttft_ms: Spread,
    /// From a token to the next, by reply: the mean over the tokens after the first.
    pub(super) tpot_ms: Spread,
    /// What a sweep set for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sweep: Option<Variant>,
}

impl Score {
    /// The score of `replies`, which `route` wrote; `large` is the model whose share matters.
    pub(super) fn new(replies: &Replies, route: &Route, large: ModelIx, catalog: &Catalog) -> Self {
        let Replies { replies, took } = replies;
        let outcomes: Vec<&Outcome> = replies.iter().map(|reply| &reply.outcome).collect();
        let shares = total(route, &outcomes);
        let tokens: u64 = shares.iter().map(|(_, share)| u64::from(share.committed)).sum();
        let part = |committed: u32| ratio(committed.into(), tokens as f64);
        let own = shares.iter().find(|(model, _)| *model == large);
        let handoffs: u32 = shares.iter().map(|(_, share)| share.handoffs).sum();
        let right = replies.iter().filter(|reply| reply.right).count();
        let cut = outcomes.iter().filter(|outcome| outcome.finish == Finish::Length).count();
        let count = replies.len();
        Self {
            route: route.name.clone(),
            accuracy: ratio(right as f64, count as f64),
            large_share: own.map_or(0.0, |(_, share)| part(share.committed)),
            handoffs_per_reply: ratio(handoffs.into(), count as f64),
            tokens_per_s: ratio(tokens as f64, took.as_secs_f64()),
            accuracy_95: wilson(right, count),
            problems: count,
            right,
            shares: shares
                .iter()
                .map(|(model, share)| {
                    (catalog.model(*model).to_owned(), json!(part(share.committed)))
                })
                .collect(),
            llm_ratio: llm_ratio(route.entry, &shares),
            tokens,
            cut_by_length: cut,
            seconds: took.as_secs_f64(),
            ttft_ms: Spread::new(replies.iter().map(|reply| millis(reply.first)).collect()),
            tpot_ms: Spread::new(replies.iter().filter_map(Reply::pace).collect()),
            sweep: None,
        }
    }
}

impl Reply {
    /// Milliseconds a token after the first; `None` where there is no second one.
    fn pace(&self) -> Option<f64> {
        let more = self.outcome.completion_tokens.checked_sub(1).filter(|more| *more > 0)?;
        Some(millis(self.last.saturating_sub(self.first)) / f64::from(more))
    }
}

impl Spread {
    /// Of values in any order; of none it is 0.
    fn new(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        // The nearest rank: the smallest value with at least this part of all values up to it.
        let rank = |part: f64| (part * values.len() as f64).ceil().max(1.0) as usize - 1;
        let at = |part| values.get(rank(part)).copied().unwrap_or_default();
        let mean = ratio(values.iter().sum(), values.len() as f64);
        Self { mean, p50: at(0.5), p90: at(0.9) }
    }
}

fn millis(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// A quotient, 0 where there is nothing to divide by.
pub(super) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Wilson's interval for `right` of `all`, in which the true rate lies with 95% confidence. (E. B. Wilson, 1927.)
fn wilson(right: usize, all: usize) -> [f64; 2] {
    /// The normal distribution has 2.5% beyond so many standard deviations.
    const Z: f64 = 1.959_964;
    if all == 0 {
        return [0.0, 1.0];
    }
    let (n, p) = (all as f64, right as f64 / all as f64);
    let centre = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    [((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let spread = Spread::new((1..=10).rev().map(f64::from).collect());
        assert_eq!(spread, Spread { mean: 5.5, p50: 5.0, p90: 9.0 });
        assert_eq!(Spread::new(vec![7.0]), Spread { mean: 7.0, p50: 7.0, p90: 7.0 });
        assert_eq!(Spread::new(Vec::new()), Spread::default());
    }

    #[test]
    fn intervals_are_wilsons() {
        // The example of 8 right of 10 is worked out in many textbooks: 0.490 to 0.943.
        let [low, high] = wilson(8, 10);
        assert!((low - 0.490).abs() < 5e-4 && (high - 0.943).abs() < 5e-4, "{low} {high}");
        let [none, some] = wilson(0, 10);
        assert!(none == 0.0 && (some - 0.278).abs() < 5e-4, "{some}");
        assert!((wilson(10, 10)[1] - 1.0).abs() < 1e-9);
        assert_eq!(wilson(0, 0), [0.0, 1.0]);
    }

    fn reply(right: bool, tokens: u32, first: u64, last: u64) -> Reply {
        let share = tokenrouter_protocol::Share { committed: tokens, ..Default::default() };
        let outcome = Outcome {
            finish: Finish::Length,
            prompt_tokens: 3,
            completion_tokens: tokens,
            shares: [(ModelIx(0), share)].into_iter().collect(),
            without: Default::default(),
        };
        let (first, last) = (Duration::from_millis(first), Duration::from_millis(last));
        Reply { right, outcome, first, last }
    }

    #[test]
    fn the_pace_is_that_of_the_tokens_after_the_first() {
        assert_eq!(reply(true, 5, 10, 50).pace(), Some(10.0));
        assert_eq!(reply(true, 1, 10, 10).pace(), None);
        assert_eq!(reply(true, 0, 10, 10).pace(), None);
    }
}
