//! The post: how words leave a machine, what becomes of them on the way, and how they reach the next. It knows which
//! faults there are; links and plan decide which happen.

use crate::world::inspect;
use crate::world::links::{Fault, Way};
use crate::world::plan::Micros;
use crate::world::recovery::Cause;
use crate::world::{Event, World};
use smallvec::SmallVec;
use tokenrouter_protocol::{Fence, HomeSays, HomeWord, ModelSays, ModelWord, RequestId};

/// A message under way, and its far end.
#[derive(Clone, Debug)]
pub(crate) enum Letter {
    /// To a model.
    Down(usize, HomeSays),
    /// To a home.
    Up(usize, ModelSays),
}

impl Letter {
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Down(model, says) => Way::Down(usize::from(says.home.node), *model),
            Self::Up(home, says) => Way::Up(says.model.index(), *home),
        }
    }

    /// The kinds of its words, by their place in [`super::KINDS`].
    pub(crate) fn kinds(&self) -> SmallVec<[usize; 4]> {
        match self {
            Self::Down(_, says) => says.words.iter().map(home_kind).collect(),
            Self::Up(_, says) => says.words.iter().map(model_kind).collect(),
        }
    }

    /// Each word in a letter of its own.
    pub(crate) fn split(self) -> Vec<Self> {
        match self {
            Self::Down(model, HomeSays { home, life, number, live, words }) => words
                .into_iter()
                .map(|word| HomeSays {
                    home,
                    life,
                    number,
                    live,
                    words: SmallVec::from_iter([word]),
                })
                .map(|says| Self::Down(model, says))
                .collect(),
            Self::Up(home, ModelSays { model, life, words }) => words
                .into_iter()
                .map(|word| ModelSays { model, life, words: SmallVec::from_iter([word]) })
                .map(|says| Self::Up(home, says))
                .collect(),
        }
    }

    /// The turns that stand still if it is lost.
    fn moves(&self) -> SmallVec<[(RequestId, Fence); 4]> {
        match self {
            Self::Down(_, says) => {
                inspect::granted(says).into_iter().map(|(rid, fence, _)| (rid, fence)).collect()
            }
            Self::Up(_, says) => {
                let rows = says.words.iter().filter_map(|word| match word {
                    ModelWord::Row(row) => Some((row.rid, row.fence)),
                    _ => None,
                });
                rows.collect()
            }
        }
    }
}

fn home_kind(word: &HomeWord) -> usize {
    match word {
        HomeWord::Grant(_) => 0,
        HomeWord::Finish { .. } => 1,
        HomeWord::Probe { .. } => 2,
    }
}

fn model_kind(word: &ModelWord) -> usize {
    match word {
        ModelWord::Row(_) => 3,
        ModelWord::Missing { .. } => 4,
        ModelWord::Closed { .. } => 5,
        ModelWord::Holding { .. } => 6,
        // A home does the same with both; this world's models say only the first.
        ModelWord::Reborn | ModelWord::DoorLost => 7,
    }
}

impl World {
    /// Sends a message; while there are faults, each of its words may go its own way.
    pub(crate) fn send(&mut self, letter: Letter) {
        if self.script.is_none() && self.now >= self.plan.faults.until {
            return self.carry(letter);
        }
        for letter in letter.split() {
            match &mut self.script {
                Some(script) => self.under_way += script.catch(letter),
                None => self.carry(letter),
            }
        }
    }

    fn carry(&mut self, letter: Letter) {
        let kinds = letter.kinds();
        let arrivals = self.links.arrivals(self.now, letter.way(), &kinds, &mut self.random);
        if arrivals == [None, None] {
            self.strike(&letter, Cause::Lost);
        }
        for at in arrivals.into_iter().flatten() {
            self.post(at, self.now, letter.clone());
        }
    }

    /// Lets a message that was sent at `sent` arrive at `at`.
    pub(crate) fn post(&mut self, at: Micros, sent: Micros, letter: Letter) {
        self.under_way += 1;
        self.queue.push(at, Event::Arrive(sent, Box::new(letter)));
    }

    /// A message's time has come; it is heard unless something is in its way.
    pub(crate) fn arrive(&mut self, sent: Micros, letter: Letter) {
        self.under_way -= 1;
        let way = letter.way();
        let deaf = match way {
            Way::Down(_, model) => self.hosts[model].down,
            Way::Up(_, home) => self.homes[home].down,
        };
        match self.plan.cut(way, self.now) {
            Some(cut) if cut.resent => {
                self.links.count(&letter.kinds(), Fault::Resent);
                self.post(cut.until, sent, letter);
            }
            Some(_) => self.lose(&letter, Fault::Cut, Cause::Cut),
            None if self.now < deaf => self.lose(&letter, Fault::Absent, Cause::Lost),
            None if self.links.swallowed(way, sent) => {
                self.lose(&letter, Fault::Mailbox, Cause::Lost);
            }
            None => self.hear(letter),
        }
    }

    fn lose(&mut self, letter: &Letter, fault: Fault, cause: Cause) {
        self.links.count(&letter.kinds(), fault);
        self.strike(letter, cause);
    }

    /// The turns that a lost message would have moved stand still from now on.
    fn strike(&mut self, letter: &Letter, cause: Cause) {
        for (rid, fence) in letter.moves() {
            let ledger = self.homes[usize::from(rid.home.node)].home.ledger(rid);
            if ledger.is_some_and(|ledger| ledger.fence() == fence) {
                self.hit(self.by_rid[&rid], cause);
            }
        }
    }

    /// A machine hears a message.
    pub(crate) fn hear(&mut self, letter: Letter) {
        let now = self.time();
        match letter {
            Letter::Down(model, says) => {
                let heard = self.hosts[model].heard.entry(says.home).or_default();
                *heard = says.life.max(*heard);
                let (granted, fenced) = (inspect::granted(&says), self.fenced(model, &says));
                let mut out = Vec::new();
                self.hosts[model].host.hear(now, says, &mut out);
                self.check_taken(model, &granted, &fenced);
                self.host_did(model, out);
            }
            Letter::Up(home, says) => {
                let heard = self.offers(home, &says);
                let mut out = Vec::new();
                self.homes[home].home.hear(now, says, &mut out);
                self.check_accepted(&heard, &out);
                self.home_did(home, out);
            }
        }
    }
}
