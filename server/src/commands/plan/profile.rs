//! How long the forward passes of each model take on this machine, by requests in a pass and positions of context. One model
//! runs at a time, on its own threads, with nothing else in this process: what they take from each other is seen later, in
//! real traffic.

use crate::boot::Plan;
use crate::catalog::Route;
use crate::commands::CommandError;
use serde::Serialize;
use std::time::Instant;
use tokenrouter_engine::{Error, Runner};
use tokenrouter_policies::planner::StepTimes;
use tokenrouter_policies::{Draws, Position, SignalSet};
use tokenrouter_protocol::{CacheOp, Row, Sampling, SequenceId};

/// How often each pass is timed; the median counts.
const ROUNDS: usize = 15;

/// Tokens of a prompt in one pass.
const CHUNK: usize = 256;

/// The times of one model at one context.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Times {
    /// The model.
    pub(super) model: String,
    /// Positions of context.
    pub(super) context: u32,
    /// By requests in the pass, its seconds.
    pub(super) steps: StepTimes,
}

/// The times of all models of a route, model by model in its order, each by rising contexts.
pub(super) type Profile = Vec<Vec<Times>>;

/// Times the passes of every model of a route with up to `live` requests.
///
/// # Errors
/// A context that the route has not, a model that cannot be loaded or fails.
pub(super) fn measure(
    plan: &Plan,
    route: &Route,
    contexts: &[u32],
    live: u32,
) -> Result<Profile, CommandError> {
    let mut contexts = contexts.to_vec();
    contexts.sort_unstable();
    contexts.dedup();
    let most = route.context.saturating_sub(ROUNDS as Position);
    if let Some(context) = contexts.iter().find(|context| !(1..=most).contains(*context)) {
        let reason = format!(
            "flag --contexts: passes at {context} positions cannot be timed; choose 1 to {most}"
        );
        return Err(CommandError::Input(reason));
    }
    let mut profile = Vec::new();
    for &model in &route.reaches {
        let name = plan.catalog().model(model);
        let rows = (plan.batch(model).rows_max).min(live);
        let longest = contexts.last().copied().unwrap_or(1) + 1;
        // Every sequence has blocks of its own, so each may waste most of one.
        let mut runner = plan.runner(model, rows * longest.next_multiple_of(64))?;
        let mut times = Vec::new();
        for &context in &contexts {
            let bench = Bench { signals: plan.needs(route, model), context };
            let facts = runner.facts();
            let steps =
                tokenrouter_engine::on_threads(facts, name, || bench.steps(&mut *runner, rows))
                    .and_then(|steps| steps)
                    .map_err(|e| CommandError::Other(format!("model `{name}`: {e}")))?;
            times.push(Times { model: name.to_owned(), context, steps });
        }
        profile.push(times);
    }
    Ok(profile)
}

/// The times at any context: on the line between two that were measured, and beyond them as at the nearest.
pub(super) fn at(times: &[Times], context: f64) -> StepTimes {
    let above = times.partition_point(|times| f64::from(times.context) < context);
    let (low, high) = match (above.checked_sub(1), times.get(above)) {
        (Some(below), Some(high)) => (&times[below], high),
        (Some(below), None) => (&times[below], &times[below]),
        (None, Some(high)) => (high, high),
        (None, None) => return StepTimes::measured(Vec::new()),
    };
    let span = f64::from(high.context - low.context);
    let part = if span > 0.0 { (context - f64::from(low.context)) / span } else { 0.0 };
    let points = low.steps.points().iter();
    let point =
        |&(batch, seconds): &(u32, f64)| (batch, seconds + part * (high.steps.at(batch) - seconds));
    StepTimes::measured(points.map(point).collect())
}

struct Bench {
    signals: SignalSet,
    context: u32,
}

impl Bench {
    /// Median seconds of a decoding pass with 1, 2, 4, … and `most` rows.
    fn steps(&self, runner: &mut dyn Runner, most: u32) -> Result<StepTimes, Error> {
        let sequences = 0..u64::from(most);
        for sequence in sequences.clone() {
            self.fill(runner, sequence)?;
        }
        let mut sizes: Vec<u32> = std::iter::successors(Some(1), |size| Some(size * 2))
            .take_while(|s| *s < most)
            .collect();
        sizes.push(most);
        let mut took: Vec<Vec<f64>> = vec![Vec::new(); sizes.len()];
        // Round by round, so that what else the machine does meets all sizes alike.
        for _ in 0..=ROUNDS {
            for (size, took) in sizes.iter().zip(&mut took) {
                let rows: Vec<Row> = (0..u64::from(*size)).map(|s| self.row(s)).collect();
                let begun = Instant::now();
                runner.step(&rows)?;
                took.push(begun.elapsed().as_secs_f64());
                for row in rows {
                    runner.apply(CacheOp::Truncate { sequence: row.sequence, to: self.context });
                }
            }
        }
        for sequence in sequences {
            runner.apply(CacheOp::Close { sequence: SequenceId(sequence) });
        }
        let median = |mut took: Vec<f64>| {
            // The first warms up.
            took.remove(0);
            took.sort_by(f64::total_cmp);
            took[took.len() / 2]
        };
        Ok(StepTimes::measured(sizes.into_iter().zip(took.into_iter().map(median)).collect()))
    }

    /// Puts a prompt into the cache.
    fn fill(&self, runner: &mut dyn Runner, sequence: u64) -> Result<(), Error> {
        let vocabulary = runner.facts().vocabulary;
        let prompt: Vec<u32> = (0..self.context)
            .map(|position| (position * 31 + sequence as u32) % vocabulary)
            .collect();
        for (index, chunk) in prompt.chunks(CHUNK).enumerate() {
            let start = (index * CHUNK) as Position;
            let tokens = chunk.into();
            let row =
                Row { start, tokens, outputs: 0, signals: SignalSet::NONE, ..self.row(sequence) };
            runner.step(&[row])?;
        }
        Ok(())
    }

    /// One token behind the context, as a decoding step feeds it.
    fn row(&self, sequence: u64) -> Row {
        Row {
            sequence: SequenceId(sequence),
            start: self.context,
            tokens: [1].as_slice().into(),
            outputs: 1,
            signals: self.signals,
            sampling: Sampling::GREEDY,
            draws: Draws::new(sequence, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_two_contexts_lie_between() {
        let times = |context, seconds| Times {
            model: String::new(),
            context,
            steps: StepTimes::measured(vec![(1, seconds), (8, 2.0 * seconds)]),
        };
        let all = [times(100, 0.1), times(300, 0.3)];
        let seconds = |context| at(&all, context).at(8);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
        close(seconds(10.0), 0.2);
        close(seconds(200.0), 0.4);
        close(seconds(1000.0), 0.6);
    }
}
