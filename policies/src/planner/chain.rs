//! The exact model of delayed batching: a Markov chain whose states are seen whenever a batch is done.
//!
//! A state says for each model how many requests wait, how many are in its pass, and how many ticks the pass still takes. The
//! next thing that happens is the end of the pass with the fewest ticks left, or of several at the same tick. Each request of
//! it moves by the table of moves, so that where a batch goes is multinomial; then every idle model launches that has enough.
//! Nothing else is left to chance, so all states can be found from the first one, breadth first.

use super::stationary::{self, Moves};
use super::system::System;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// How many models' worth of numbers a state has: waiting, running, ticks left.
const FIELDS: usize = 3;

/// So many pairs of outcomes of two passes are the most that are looked at for one state.
const JOINS_MAX: usize = 1_000_000;

/// The chain of one system with one vector of thresholds.
#[derive(Debug)]
pub(super) struct Chain {
    moves: Moves,
    /// The tokens that are committed when a state is left.
    tokens: Vec<f64>,
    /// How long a state lasts, in ticks.
    ticks: Vec<f64>,
}

impl Chain {
    /// All states that can follow when `live` requests start at the entry model. `None` where they have more than `moves_max`
    /// moves between them, or where all could wait for each other.
    ///
    /// `system` is valid, and there is a threshold of at least 1 for each model.
    pub(super) fn explore(
        system: &System,
        live: u32,
        thresholds: &[u32],
        moves_max: usize,
    ) -> Option<Self> {
        let mut search = Search::new(system, live, thresholds, moves_max);
        let mut chain = Self { moves: Moves::default(), tokens: Vec::new(), ticks: Vec::new() };
        search.begin();
        while let Some(state) = search.open.pop_front() {
            let ends = search.ends(&state)?;
            let mut tokens = 0.0;
            for &model in &ends.models {
                tokens += f64::from(state[FIELDS * model + 1]) * system.yield_of(model);
            }
            for (arrivals, odds) in search.arrivals(&state, &ends.models)? {
                let next = search.follow(&state, &ends, &arrivals);
                chain.moves.push(next, odds);
            }
            chain.moves.end_state();
            chain.tokens.push(tokens);
            chain.ticks.push(f64::from(ends.ticks));
            if chain.moves.len() > moves_max {
                return None;
            }
        }
        Some(chain)
    }

    /// Committed tokens per tick in the long run. `None` where the solution was not found.
    pub(super) fn tokens_per_tick(&self) -> Option<f64> {
        let mut rate = 0.0;
        for class in stationary::classes(&self.moves)? {
            let sum = |values: &[f64]| -> f64 {
                class
                    .states
                    .iter()
                    .zip(&class.shares)
                    .map(|(&s, share)| share * values[s as usize])
                    .sum()
            };
            rate += class.odds * sum(&self.tokens) / sum(&self.ticks);
        }
        Some(rate)
    }

    /// The moves between states.
    #[cfg(test)]
    pub(super) fn moves(&self) -> &Moves {
        &self.moves
    }
}

/// The passes that end next.
struct Ends {
    models: Vec<usize>,
    /// In how many ticks.
    ticks: u32,
}

/// Where requests may go, with the odds: how many to each model.
type Outcomes = Vec<(Box<[u32]>, f64)>;

/// The search for states.
struct Search<'a> {
    system: &'a System,
    live: u32,
    thresholds: &'a [u32],
    moves_max: usize,
    /// Only ever asked for one state, so its order plays no part.
    known: HashMap<Box<[u32]>, u32>,
    open: VecDeque<Box<[u32]>>,
    /// By model and batch: where its requests go. Filled when first needed.
    outcomes: Vec<Vec<Option<Outcomes>>>,
}

impl<'a> Search<'a> {
    fn new(system: &'a System, live: u32, thresholds: &'a [u32], moves_max: usize) -> Self {
        let outcomes = vec![vec![None; live as usize + 1]; system.models()];
        let (known, open) = (HashMap::new(), VecDeque::new());
        Self { system, live, thresholds, moves_max, known, open, outcomes }
    }

    fn begin(&mut self) {
        let mut state = vec![0; FIELDS * self.system.models()];
        state[FIELDS * self.system.entry] = self.live;
        self.launch(&mut state);
        self.number(state);
    }

    /// The passes that end next; `None` where all wait.
    fn ends(&self, state: &[u32]) -> Option<Ends> {
        let running = state.chunks(FIELDS).enumerate().filter(|(_, model)| model[1] > 0);
        let ticks = running.clone().map(|(_, model)| model[2]).min()?;
        let models = running.filter(|(_, model)| model[2] == ticks).map(|(i, _)| i).collect();
        Some(Ends { models, ticks })
    }

    /// Where the requests of all ended passes go together; `None` where there are too many ways.
    fn arrivals(&mut self, state: &[u32], models: &[usize]) -> Option<Outcomes> {
        let mut together: Option<Outcomes> = None;
        for &model in models {
            let batch = state[FIELDS * model + 1];
            let these = self.outcomes(model, batch)?;
            together = Some(match together {
                None => these.clone(),
                // Sums that are equal count once, but each pair has to be looked at.
                Some(others) if others.len() * these.len() > JOINS_MAX => return None,
                Some(others) => join(&others, these),
            });
        }
        together
    }

    fn outcomes(&mut self, model: usize, batch: u32) -> Option<&Outcomes> {
        let known = &mut self.outcomes[model][batch as usize];
        if known.is_none() {
            *known = Some(multinomial(&self.system.moves[model], batch, self.moves_max)?);
        }
        known.as_ref()
    }

    /// The number of the state that follows when the passes have ended and their requests have arrived.
    fn follow(&mut self, state: &[u32], ends: &Ends, arrivals: &[u32]) -> u32 {
        let mut next = state.to_vec();
        for (model, numbers) in next.chunks_mut(FIELDS).enumerate() {
            numbers[0] += arrivals[model];
            if numbers[1] > 0 && numbers[2] > ends.ticks {
                numbers[2] -= ends.ticks;
            } else {
                (numbers[1], numbers[2]) = (0, 0);
            }
        }
        self.launch(&mut next);
        self.number(next)
    }

    /// Lets every idle model launch that has enough waiting.
    fn launch(&self, state: &mut [u32]) {
        for (model, numbers) in state.chunks_mut(FIELDS).enumerate() {
            if numbers[1] == 0 && numbers[0] >= self.thresholds[model].min(self.live) {
                let batch = numbers[0].min(self.system.cap(model, self.live));
                numbers[0] -= batch;
                (numbers[1], numbers[2]) = (batch, self.system.ticks(model, batch));
            }
        }
    }

    fn number(&mut self, state: Vec<u32>) -> u32 {
        if let Some(&number) = self.known.get(&state[..]) {
            return number;
        }
        let number = self.known.len() as u32;
        let state = state.into_boxed_slice();
        self.known.insert(state.clone(), number);
        self.open.push_back(state);
        number
    }
}

/// Every way in which `batch` requests can go by these odds, how many each way, and how likely each is. `None` where there are
/// more than `most`.
fn multinomial(odds: &[f64], batch: u32, most: usize) -> Option<Outcomes> {
    let mut ways: Outcomes = vec![(vec![0; odds.len()].into(), 1.0)];
    // One model after the other: how many of those that are left go there, which is binomial.
    let mut rest = 1.0;
    for (model, &p) in odds.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        let last = odds[model + 1..].iter().all(|&p| p <= 0.0);
        let share = if last { 1.0 } else { (p / rest).min(1.0) };
        rest -= p;
        let mut more = Vec::new();
        for (way, likely) in ways {
            let left = batch - way.iter().sum::<u32>();
            let least = if last { left } else { 0 };
            for count in least..=left {
                let mut way = way.clone();
                way[model] = count;
                more.push((way, likely * binomial(left, count, share)));
            }
        }
        if more.len() > most {
            return None;
        }
        ways = more;
    }
    Some(ways)
}

/// How likely exactly `count` of `n` are chosen, each with `share`.
fn binomial(n: u32, count: u32, share: f64) -> f64 {
    let mut likely = 1.0;
    let few = count.min(n - count);
    for i in 0..few {
        likely *= f64::from(n - i) / f64::from(i + 1);
    }
    likely * share.powi(count as i32) * (1.0 - share).powi((n - count) as i32)
}

/// Two independent lists of outcomes together; equal sums are one outcome.
fn join(left: &Outcomes, right: &Outcomes) -> Outcomes {
    let mut sums: BTreeMap<Box<[u32]>, f64> = BTreeMap::new();
    for (ours, odds) in left {
        for (theirs, likely) in right {
            let sum = ours.iter().zip(theirs).map(|(a, b)| a + b).collect();
            *sums.entry(sum).or_default() += odds * likely;
        }
    }
    sums.into_iter().collect()
}

#[cfg(test)]
mod tests;
