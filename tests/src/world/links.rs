//! Links between homes and models: a delay each way, in order while all is well, and the faults of a plan.
//!
//! A link decides only when a message arrives, and how often, if ever; the world carries it. What lies in a mailbox that
//! is lost was sent before some moment: [`Links::swallow`] notes the moment, and [`Links::swallowed`] is asked at arrival.

use crate::world::plan::{Faults, MODELS, Micros};
use crate::world::random::Random;
use std::fmt;
use std::ops::AddAssign;

/// The kinds of words that travel.
pub const KINDS: [&str; 8] =
    ["grant", "finish", "probe", "row", "missing", "closed", "holding", "reborn"];

/// The kinds of faults a link has.
pub const FAULTS: [&str; 8] =
    ["shuffle", "duplicate", "delay", "loss", "mailbox", "absent", "cut", "resent"];

/// What happens to a message, by its place in [`FAULTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It overtakes, or is overtaken.
    Shuffle,
    /// It arrives twice.
    Duplicate,
    /// It arrives late.
    Delay,
    /// It never arrives.
    Loss,
    /// It lay in a mailbox when that was lost.
    Mailbox,
    /// It arrived while nobody was there.
    Absent,
    /// It was sent into a partition, and is lost.
    Cut,
    /// It was sent into a partition, and arrives when that ends.
    Resent,
}

/// How many words of each kind met each fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Words sent, by kind.
    pub sent: [u64; KINDS.len()],
    /// By kind, then by fault.
    pub faults: [[u64; FAULTS.len()]; KINDS.len()],
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
        write!(f, "{:10}{:>10}", "word", "sent")?;
        FAULTS.iter().try_for_each(|fault| write!(f, "{fault:>10}"))?;
        for (kind, name) in KINDS.iter().enumerate() {
            write!(f, "\n{name:10}{:>10}", self.sent[kind])?;
            self.faults[kind].iter().try_for_each(|count| write!(f, "{count:>10}"))?;
        }
        Ok(())
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
            self.count(kinds, Fault::Loss);
            None
        } else if random.chance(delay) {
            self.count(kinds, Fault::Delay);
            Some(now + self.latency + random.between(0, late))
        } else if random.chance(shuffle) {
            self.count(kinds, Fault::Shuffle);
            Some(now + random.between(1, 4 * self.latency))
        } else {
            Some(self.in_order(last, usual))
        };
        let again = random.chance(duplicate).then(|| {
            self.count(kinds, Fault::Duplicate);
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
    pub(crate) fn swallowed(&self, way: Way, sent: Micros) -> bool {
        sent < self.lost[way.index()]
    }

    /// Counts a fault that words of these kinds met.
    pub(crate) fn count(&mut self, kinds: &[usize], fault: Fault) {
        kinds.iter().for_each(|&kind| self.met.faults[kind][fault as usize] += 1);
    }

    fn in_order(&mut self, last: usize, at: Micros) -> Micros {
        self.last[last] = at.max(self.last[last]);
        self.last[last]
    }
}
