//! Links between homes and models: a delay each way, in order while all is well, and the faults of a plan.
//!
//! A link decides only when a message arrives, and how often, if ever; the world carries it. What lies in a mailbox that
//! is lost was sent before some moment: [`Links::swallow`] notes the moment, and [`Links::swallowed`] is asked at arrival.

use crate::world::plan::{Faults, MODELS, Micros};
use crate::world::random::Random;
use std::fmt;
use std::ops::AddAssign;
use tokenrouter_protocol::{HomeWord, ModelWord};

/// The kinds of words that travel.
pub const KINDS: [&str; 8] =
    ["grant", "finish", "probe", "row", "missing", "closed", "holding", "reborn"];

/// The kinds of faults a link has.
pub const FAULTS: [&str; 5] = ["shuffle", "duplicate", "delay", "loss", "mailbox"];

/// How many words of each kind met each fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Words sent, by kind.
    pub sent: [u64; 8],
    /// By kind, then by fault.
    pub faults: [[u64; 5]; 8],
}

impl AddAssign for Met {
    fn add_assign(&mut self, other: Self) {
        for kind in 0..KINDS.len() {
            self.sent[kind] += other.sent[kind];
            for fault in 0..FAULTS.len() {
                self.faults[kind][fault] += other.faults[kind][fault];
            }
        }
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:10}{:>12}", "word", "sent")?;
        FAULTS.iter().try_for_each(|fault| write!(f, "{fault:>12}"))?;
        for (kind, name) in KINDS.iter().enumerate() {
            write!(f, "\n{name:10}{:>12}", self.sent[kind])?;
            self.faults[kind].iter().try_for_each(|count| write!(f, "{count:>12}"))?;
        }
        Ok(())
    }
}

/// The kind of a home's word, by its place in [`KINDS`].
pub(crate) fn home_kind(word: &HomeWord) -> usize {
    match word {
        HomeWord::Grant(_) => 0,
        HomeWord::Finish { .. } => 1,
        HomeWord::Probe { .. } => 2,
    }
}

/// The kind of a model's word, by its place in [`KINDS`].
pub(crate) fn model_kind(word: &ModelWord) -> usize {
    match word {
        ModelWord::Row(_) => 3,
        ModelWord::Missing { .. } => 4,
        ModelWord::Closed { .. } => 5,
        ModelWord::Holding { .. } => 6,
        ModelWord::Reborn => 7,
    }
}

/// Which way, between which two.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// From a home to a model.
    Down(usize, usize),
    /// From a model to a home.
    Up(usize, usize),
}

impl Way {
    fn index(self) -> usize {
        match self {
            Self::Down(home, model) => 2 * (home * usize::from(MODELS) + model),
            Self::Up(model, home) => 2 * (home * usize::from(MODELS) + model) + 1,
        }
    }
}

/// All links of a world.
#[derive(Debug)]
pub(crate) struct Links {
    latency: Micros,
    faults: Faults,
    /// By way: when the last message in order arrives.
    last: Vec<Micros>,
    /// By way: what was sent before never arrives.
    lost: Vec<Micros>,
    pub(crate) met: Met,
}

impl Links {
    /// Links between some homes and all models.
    pub(crate) fn new(latency: Micros, faults: Faults, homes: usize) -> Self {
        let last = vec![0; 2 * homes * usize::from(MODELS)];
        Self { latency, faults, lost: last.clone(), last, met: Met::default() }
    }

    /// When a message sent `now` arrives, if it does, and when again.
    pub(crate) fn arrivals(
        &mut self,
        now: Micros,
        way: Way,
        kinds: &[usize],
        random: &mut Random,
    ) -> [Option<Micros>; 2] {
        kinds.iter().for_each(|&kind| self.met.sent[kind] += 1);
        let last = way.index();
        let usual = now + self.latency + random.between(0, self.latency / 4);
        if now >= self.faults.until {
            return [Some(self.in_order(last, usual)), None];
        }
        let Faults { shuffle, duplicate, delay, loss, late, .. } = self.faults;
        let first = if random.chance(loss) {
            self.count(kinds, 3);
            None
        } else if random.chance(delay) {
            self.count(kinds, 2);
            Some(now + self.latency + random.between(0, late))
        } else if random.chance(shuffle) {
            self.count(kinds, 0);
            Some(now + random.between(1, 4 * self.latency))
        } else {
            Some(self.in_order(last, usual))
        };
        let again = random.chance(duplicate).then(|| {
            self.count(kinds, 1);
            now + random.between(1, late)
        });
        [first, again]
    }

    /// What was sent on this way before `moment` and has not arrived never will.
    pub(crate) fn swallow(&mut self, way: Way, moment: Micros) {
        let lost = &mut self.lost[way.index()];
        *lost = moment.max(*lost);
    }

    /// Whether a message that was sent at `sent` is lost although its time has come.
    pub(crate) fn swallowed(&mut self, way: Way, sent: Micros, kinds: &[usize]) -> bool {
        let swallowed = sent < self.lost[way.index()];
        if swallowed {
            self.count(kinds, 4);
        }
        swallowed
    }

    fn in_order(&mut self, last: usize, at: Micros) -> Micros {
        self.last[last] = at.max(self.last[last]);
        self.last[last]
    }

    fn count(&mut self, kinds: &[usize], fault: usize) {
        kinds.iter().for_each(|&kind| self.met.faults[kind][fault] += 1);
    }
}
