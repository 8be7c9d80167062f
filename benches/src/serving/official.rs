//! The style of published reference code: one loop that calls model after model for a fixed batch and waits for each. There
//! is no scheduler; a request that is done leaves its place empty.

use super::{Case, Fault, Outcome, draws, plan, prompts, route, to_large};
use std::time::{Duration, Instant};
use tokenrouter_engine::{Runner, on_threads};
use tokenrouter_policies::{Draws, ModelIx, Position, SignalSet, Token};
use tokenrouter_protocol::{CacheOp, Row, Sampling, SequenceId};

/// Tokens of a prompt in one pass.
const CHUNK: usize = 512;

/// One place of the batch.
struct Place {
    sequence: SequenceId,
    draws: Draws,
    tokens: Vec<Token>,
    /// How many of them each model has seen.
    seen: [usize; 2],
    reply: Vec<Token>,
}

/// The loop.
struct Loop {
    runners: [Box<dyn Runner>; 2],
    places: Vec<Place>,
    /// Time spent in passes.
    inside: Duration,
}

/// Runs a case.
///
/// # Errors
/// A model that fails.
pub fn run(case: &Case) -> Result<Outcome, Fault> {
    let plan = plan()?;
    let route = route(&plan)?;
    let longest = case.turns * (case.prompt as u32 + case.tokens) + 512;
    let positions = case.requests * longest.next_multiple_of(64);
    // By name in the order of a topology: large, small.
    let find = |name: &str| plan.catalog().models.iter().position(|model| model == name);
    let load = |name: &str| -> Result<Box<dyn Runner>, Fault> {
        Ok(plan.runner(ModelIx(find(name).ok_or("a model is missing")? as u8), positions)?)
    };
    let runners = [load("small")?, load("large")?];
    let facts = runners[0].facts();
    let mut places = Vec::new();
    let mut turns = Vec::new();
    for index in 0..case.requests {
        turns.push(prompts(&route, case, index)?);
        let (draws, sequence) = (draws(index), SequenceId(u64::from(index)));
        places.push(Place { sequence, draws, tokens: Vec::new(), seen: [0, 0], reply: Vec::new() });
    }
    let mut all = Loop { runners, places, inside: Duration::ZERO };
    let work = || -> Result<Outcome, Fault> {
        let begun = Instant::now();
        for turn in 0..case.turns as usize {
            all.begin(&turns, turn);
            for _ in 0..case.tokens {
                all.token()?;
            }
        }
        let took = begun.elapsed();
        let replies = all.places.into_iter().map(|place| place.reply).collect();
        let outside = (took - all.inside).as_secs_f64();
        Ok(Outcome { seconds: took.as_secs_f64(), replies, outside, ..Outcome::default() })
    };
    on_threads(facts, "official", work)?
}

impl Loop {
    /// Puts the next prompts behind what was said. As in our server nothing is kept from turn to turn.
    fn begin(&mut self, turns: &[Vec<Vec<Token>>], turn: usize) {
        for (place, turns) in self.places.iter_mut().zip(turns) {
            for runner in &mut self.runners {
                runner.apply(CacheOp::Close { sequence: place.sequence });
            }
            place.seen = [0, 0];
            place.tokens.extend(&turns[turn]);
        }
    }

    /// One token for every place: the small model, and where the coin says so then the large one.
    fn token(&mut self) -> Result<(), Fault> {
        let everybody: Vec<usize> = (0..self.places.len()).collect();
        let mut tokens = self.pass(0, &everybody)?;
        let handed = |place: &Place| to_large(place.draws, place.tokens.len() as Position);
        let large: Vec<usize> =
            everybody.iter().copied().filter(|at| handed(&self.places[*at])).collect();
        for (at, token) in large.iter().zip(self.pass(1, &large)?) {
            tokens[*at] = token;
        }
        for (place, token) in self.places.iter_mut().zip(tokens) {
            place.tokens.push(token);
            place.reply.push(token);
        }
        Ok(())
    }

    /// Feeds a model what it has not seen of these places, and gives its next token for each.
    fn pass(&mut self, model: usize, at: &[usize]) -> Result<Vec<Token>, Fault> {
        if at.is_empty() {
            return Ok(Vec::new());
        }
        for &at in at {
            while self.places[at].tokens.len() - self.places[at].seen[model] > CHUNK {
                let row = self.row(model, at, 0);
                self.step(model, &[row])?;
            }
        }
        let rows: Vec<Row> = at.iter().map(|at| self.row(model, *at, 1)).collect();
        self.step(model, &rows)
    }

    fn row(&mut self, model: usize, at: usize, outputs: u16) -> Row {
        let place = &mut self.places[at];
        let start = place.seen[model];
        let end = if outputs == 0 { start + CHUNK } else { place.tokens.len() };
        place.seen[model] = end;
        Row {
            sequence: place.sequence,
            start: start as Position,
            tokens: place.tokens[start..end].into(),
            outputs,
            signals: SignalSet::NONE,
            sampling: Sampling::GREEDY,
            draws: place.draws,
        }
    }

    fn step(&mut self, model: usize, rows: &[Row]) -> Result<Vec<Token>, Fault> {
        let begun = Instant::now();
        let outputs = self.runners[model].step(rows)?;
        self.inside += begun.elapsed();
        Ok(outputs.iter().filter_map(|row| Some(row.first()?.token)).collect())
    }
}
