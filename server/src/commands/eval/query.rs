//! Query-level routing, the reference that token-level routing has to beat: each question goes wholly to one model, those
//! to the large one on whose prompt the small one is least sure. Its measure is the mean entropy of the small model's
//! next-token distribution over all positions of the prompt. Nothing here decides about a reply that is being written.

use super::measure::prompt;
use super::score::{Replies, Score, ratio};
use crate::boot::Plan;
use crate::catalog::Route;
use crate::commands::CommandError;
use crate::commands::problem::Problem;
use serde::Serialize;
use tokenrouter_engine::Runner;
use tokenrouter_policies::{Draws, Position, SignalSet, Token};
use tokenrouter_protocol::{CacheOp, Row, Sampling, SequenceId};

/// The parts of the questions that go to the large model in the runs that are measured for their speed.
pub(super) const MIXES: [f64; 4] = [0.2, 0.4, 0.6, 0.8];

/// Positions a step is asked for, which bounds the memory of their logits.
const CHUNK: usize = 128;

/// Query-level routing over one set of problems.
#[derive(Clone, Debug, Serialize)]
pub(super) struct QueryLevel {
    /// Every cut-off, from no question at the large model to all of them. Exact, as a reply does not depend on what else runs.
    pub(super) curve: Vec<Cut>,
    /// A few of them, run for their speed.
    pub(super) measured: Vec<Mix>,
}

/// One cut-off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Cut {
    /// Questions to the large model.
    pub(super) questions_to_large: usize,
    /// Right replies of all.
    pub(super) accuracy: f64,
    /// The large model's share of all tokens.
    pub(super) large_share: f64,
}

/// One cut-off that was run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Mix {
    /// The part of the questions that went to the large model.
    pub(super) questions: f64,
    /// What came of it.
    #[serde(flatten)]
    pub(super) score: Score,
}

/// The questions by their places, the one whose prompt has the largest mean entropy at the route's model first.
///
/// # Errors
/// A model that cannot be loaded, a prompt that it refuses.
pub(super) fn order(
    plan: &Plan,
    route: &Route,
    problems: &[Problem],
) -> Result<Vec<usize>, CommandError> {
    let prompts = problems.iter().map(|problem| prompt(route, problem));
    let prompts = prompts.collect::<Result<Vec<Vec<Token>>, _>>()?;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or_default();
    let mut runner = plan.runner(route.entry, longest as Position)?;
    let mut entropies = Vec::new();
    for tokens in &prompts {
        let entropy = mean_entropy(&mut *runner, tokens)
            .map_err(|e| CommandError::Other(format!("{}: {e}", route.name)))?;
        entropies.push(entropy);
    }
    Ok(descending(&entropies))
}

/// The mean entropy in nats of what `runner` expects after each token of a prompt.
fn mean_entropy(
    runner: &mut dyn Runner,
    tokens: &[Token],
) -> Result<f64, tokenrouter_engine::Error> {
    let sequence = SequenceId(0);
    let mut sum = 0.0;
    for (index, chunk) in tokens.chunks(CHUNK).enumerate() {
        let row = Row {
            sequence,
            start: (index * CHUNK) as Position,
            tokens: chunk.into(),
            outputs: chunk.len() as u16,
            signals: SignalSet { entropy: true, ..SignalSet::NONE },
            sampling: Sampling::GREEDY,
            draws: Draws::new(0, 0),
        };
        let outputs = runner.step(&[row])?;
        let entropies = outputs.iter().flatten().filter_map(|output| output.signals.entropy);
        sum += entropies.map(f64::from).sum::<f64>();
    }
    runner.apply(CacheOp::Close { sequence });
    Ok(ratio(sum, tokens.len() as f64))
}

/// The places of the values, the largest first, equal ones in their order.
fn descending(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    order
}

/// What every cut-off gives, made of the replies of both models to all questions.
pub(super) fn curve(order: &[usize], small: &Replies, large: &Replies) -> Vec<Cut> {
    let [small, large]: [Vec<(bool, f64)>; 2] = [small, large].map(|replies| {
        let judged = replies.replies.iter();
        judged.map(|reply| (reply.right, f64::from(reply.outcome.completion_tokens))).collect()
    });
    cuts(order, &small, &large)
}

/// As [`curve`], of whether each reply is right, and its tokens.
fn cuts(order: &[usize], small: &[(bool, f64)], large: &[(bool, f64)]) -> Vec<Cut> {
    let mut right = small.iter().filter(|(right, _)| *right).count() as f64;
    let mut small_tokens: f64 = small.iter().map(|(_, tokens)| tokens).sum();
    let mut large_tokens = 0.0;
    let all = order.len() as f64;
    let mut cuts = Vec::with_capacity(order.len() + 1);
    for questions_to_large in 0..=order.len() {
        cuts.push(Cut {
            questions_to_large,
            accuracy: ratio(right, all),
            large_share: ratio(large_tokens, small_tokens + large_tokens),
        });
        if let Some(&next) = order.get(questions_to_large) {
            let ((before, fewer), (after, more)) = (small[next], large[next]);
            right += f64::from(u8::from(after)) - f64::from(u8::from(before));
            small_tokens -= fewer;
            large_tokens += more;
        }
    }
    cuts
}

/// Whether each question goes to the large model when this part of them does.
pub(super) fn chosen(order: &[usize], part: f64) -> Vec<bool> {
    let mut chosen = vec![false; order.len()];
    let count = (part * order.len() as f64).round() as usize;
    for &question in order.iter().take(count) {
        chosen[question] = true;
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_sure_questions_go_first() {
        let order = descending(&[0.1, 0.9, 0.5, 0.9]);
        assert_eq!(order, [1, 3, 2, 0]);
        assert_eq!(chosen(&order, 0.5), [false, true, false, true]);
        assert_eq!(chosen(&order, 0.0), [false; 4]);
        assert_eq!(chosen(&order, 1.0), [true; 4]);
    }

    #[test]
    fn a_curve_goes_from_small_alone_to_large_alone() {
        let small = vec![(false, 10.0), (true, 10.0)];
        let large = vec![(true, 30.0), (false, 10.0)];
        let cut = |questions_to_large, accuracy, large_share| Cut {
            questions_to_large,
            accuracy,
            large_share,
        };
        assert_eq!(
            cuts(&[0, 1], &small, &large),
            [cut(0, 0.5, 0.0), cut(1, 1.0, 0.75), cut(2, 0.5, 1.0)]
        );
        assert_eq!(cuts(&[], &[], &[]), [cut(0, 0.0, 0.0)]);
    }
}
