//! A home: the ledgers of the requests that entered at one client loop, and everything it says to models about them.
//!
//! Home sequences every move. A model offers tokens and names a successor; home commits, raises the turn, and grants it.
//! It never waits for anybody: silence is noticed by [`Home::tick`], which asks before it acts, and whatever was said to
//! no effect is said again until it is answered. Finished requests are remembered only until every model of their route
//! has closed them.

use crate::id::{Fence, HomeId, Life, RequestId};
use crate::ledger::{Ledger, Standing, Taken, Then};
use crate::message::{HomeSays, HomeWord, ModelSays, ModelWord, ReportRow};
use crate::request::{Failure, Finish, Outcome, Progress, Request};
use crate::route::Route;
use reach::Reach;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_policies::{ModelIx, Token};
use turns::Watch;

pub mod reach;
mod turns;

/// Time since the start of the process.
pub type Time = Duration;

/// What a home is told once.
#[derive(Clone, Debug)]
pub struct HomeConfig {
    /// Which home this is.
    pub home: HomeId,
    /// Its life.
    pub life: Life,
    /// All routes of the topology, by [`crate::RouteIx`].
    pub routes: Arc<[Route]>,
    /// Most requests in flight.
    pub requests_max: usize,
    /// How long a turn may show no progress before its owner is asked; doubled by every grant to no effect.
    pub stall_timeout: Duration,
    /// Grants that only silence asked for, without an accepted row between, before a request fails.
    pub grants_max: u32,
    /// How often `Finish` is repeated to models that have not answered.
    pub finish_repeat: Duration,
    /// How long a new life of a home leaves requests alone that it does not know yet.
    pub adopt_grace: Duration,
}

/// What a session kept of a request, for a later life of its home.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// The request as it was opened.
    pub request: Request,
    /// The committed tokens of the reply.
    pub reply: Vec<Token>,
    /// Where it stood after the last accepted row, if there was one.
    pub standing: Option<Standing>,
}

/// What a home wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Bring this to a model.
    Say {
        /// The model.
        to: ModelIx,
        /// The words.
        says: HomeSays,
    },
    /// A row was accepted: give this to the request's session.
    Accepted {
        /// The request.
        rid: RequestId,
        /// The piece for its client, if the row has one.
        progress: Option<Progress>,
        /// Where the request stands now, for the session's copy.
        standing: Standing,
    },
    /// The request is over; nothing more comes for it.
    Done {
        /// The request.
        rid: RequestId,
        /// How it ended.
        result: Result<Outcome, Failure>,
    },
}

/// How often what happened. Grants by reason tell what goes wrong in a system that looks well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Rows that were taken.
    pub rows: u64,
    /// Rows of an older turn, or of positions committed already.
    pub stale_rows: u64,
    /// Rows beyond the committed prefix.
    pub holes: u64,
    /// Words about requests this home does not know.
    pub unknown: u64,
    /// Words of a life that is over.
    pub late: u64,
    /// Grants that followed a row.
    pub grants: u64,
    /// Grants made because something was lost, died or stood still.
    pub regrants: u64,
    /// Probes.
    pub probes: u64,
    /// Requests of an earlier life that were taken up again.
    pub adopted: u64,
}

/// The machine.
#[derive(Debug)]
pub struct Home {
    config: HomeConfig,
    born: Option<Time>,
    number: u64,
    ledgers: BTreeMap<RequestId, Entry>,
    closing: BTreeMap<RequestId, Closing>,
    /// The highest life heard of each model.
    lives: Vec<Life>,
    /// Live requests that can reach each model.
    live: Vec<u32>,
    /// How each model can be reached.
    reach: Vec<Reach>,
    /// Requests that end with the input being handled, since a model is out of reach.
    failed: Vec<(RequestId, Failure)>,
    /// Messages said.
    said: u64,
    /// Words of the input being handled, by model.
    outgoing: Vec<(ModelIx, SmallVec<[HomeWord; 1]>)>,
    counters: Counters,
}

#[derive(Debug)]
struct Entry {
    ledger: Ledger,
    watch: Watch,
}

#[derive(Debug)]
struct Closing {
    fence: Fence,
    waiting: SmallVec<[ModelIx; 4]>,
    due: Time,
}

impl Home {
    /// A home without requests.
    pub fn new(config: HomeConfig) -> Self {
        let models = config.routes.iter().flat_map(|r| r.models.iter()).map(|m| m.index() + 1);
        let models = models.max().unwrap_or(0);
        Self {
            config,
            born: None,
            number: 0,
            ledgers: BTreeMap::new(),
            closing: BTreeMap::new(),
            lives: vec![Life::default(); models],
            live: vec![0; models],
            reach: vec![Reach::default(); models],
            failed: Vec::new(),
            said: 0,
            outgoing: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Admits a request and grants its first turn.
    ///
    /// # Errors
    /// [`Failure::Busy`] at the limit of requests in flight.
    pub fn open(
        &mut self,
        now: Time,
        request: Request,
        out: &mut Vec<Effect>,
    ) -> Result<RequestId, Failure> {
        if self.ledgers.len() >= self.config.requests_max {
            return Err(Failure::Busy { limit: self.config.requests_max });
        }
        self.number += 1;
        let rid = RequestId { home: self.config.home, born: self.config.life, number: self.number };
        let route = &self.config.routes[request.route.index()];
        self.enter(now, rid, Ledger::open(rid, request, route));
        self.grant(now, rid);
        self.flush(out);
        Ok(rid)
    }

    /// Takes up a request of an earlier life of this home, from the copy that its session kept, and grants its turn, or
    /// finishes it where its reply is complete. One that is here already is left as it is.
    pub fn adopt(&mut self, now: Time, rid: RequestId, copy: Adoption, out: &mut Vec<Effect>) {
        if self.ledgers.contains_key(&rid) {
            return;
        }
        let route = &self.config.routes[copy.request.route.index()];
        let (mut ledger, finish) =
            Ledger::adopt(rid, copy.request, route, &copy.reply, copy.standing);
        self.closing.remove(&rid);
        self.counters.adopted += 1;
        // What the earlier life had heard of models is still true, or will be found not to be.
        for (model, life) in ledger.anchored() {
            self.learn(now, model, life);
        }
        match finish {
            None => {
                self.enter(now, rid, ledger);
                self.grant(now, rid);
            }
            Some(finish) => {
                // Models hear `Finish` only under a fence that is not below the one they hold.
                ledger.raise(self.config.life);
                self.enter(now, rid, ledger);
                self.complete(now, rid, finish, out);
            }
        }
        self.flush(out);
    }

    /// Its client is gone: the request ends everywhere, and nobody is told how.
    pub fn cancel(&mut self, now: Time, rid: RequestId, out: &mut Vec<Effect>) {
        self.finish(now, rid);
        self.flush(out);
    }

    /// Takes what a model says.
    pub fn hear(&mut self, now: Time, says: ModelSays, out: &mut Vec<Effect>) {
        self.born.get_or_insert(now);
        let (model, life) = (says.model, says.life);
        if model.index() >= self.lives.len() || life < self.lives[model.index()] {
            self.counters.late += says.words.len() as u64;
            return;
        }
        self.learn(now, model, life);
        for word in says.words {
            self.word(now, (model, life), word, out);
        }
        self.flush(out);
    }

    /// The door to a model is new: what lay in the old one is lost, so every turn that passed it is granted again.
    pub fn door_lost(&mut self, now: Time, model: ModelIx, out: &mut Vec<Effect>) {
        self.words_lost(now, model);
        self.flush(out);
    }

    /// A model cannot be kept alive: its requests fail, naming it.
    pub fn model_lost(&mut self, now: Time, model: ModelIx, reason: &str, out: &mut Vec<Effect>) {
        for rid in self.owned_by(model, |_| true) {
            let reason = reason.to_owned();
            self.fail(now, rid, Failure::ModelLost { model, reason }, out);
        }
        self.forget_closings(model);
        self.flush(out);
    }

    /// Time has passed: asks owners that show no progress, and repeats what was not answered.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.born.get_or_insert(now);
        let due = self.ledgers.iter().filter(|(_, entry)| entry.watch.due <= now);
        let due: Vec<RequestId> = due.map(|(rid, _)| *rid).collect();
        for rid in due {
            self.watch(now, rid, out);
        }
        let (home, repeat) = (self.config.home, self.config.finish_repeat);
        let mut again = Vec::new();
        for (rid, closing) in self.closing.iter_mut().filter(|(_, c)| c.due <= now) {
            debug_assert_eq!(rid.home, home);
            closing.due = now + repeat;
            let here = |model: &&ModelIx| self.reach[model.index()] == Reach::Here;
            let waiting = closing.waiting.iter().filter(here);
            again.extend(waiting.map(|&model| (model, *rid, closing.fence)));
        }
        for (model, rid, fence) in again {
            self.say(model, HomeWord::Finish { rid, fence });
        }
        self.flush(out);
    }

    /// Requests in flight.
    pub fn live(&self) -> usize {
        self.ledgers.len()
    }

    /// Finished requests that some model has not closed yet.
    pub fn closing(&self) -> usize {
        self.closing.len()
    }

    /// The ledger of a request in flight.
    pub fn ledger(&self, rid: RequestId) -> Option<&Ledger> {
        self.ledgers.get(&rid).map(|entry| &entry.ledger)
    }

    /// The requests in flight, in order.
    pub fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.ledgers.keys().copied()
    }

    /// How often what happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Asserts what must hold between inputs.
    pub fn check(&self) {
        assert!(self.outgoing.is_empty(), "words kept back");
        let mut live = vec![0; self.live.len()];
        for (rid, entry) in &self.ledgers {
            entry.ledger.check();
            assert!(!self.closing.contains_key(rid), "a finished request is alive");
            assert!(entry.ledger.fence().home == self.config.life, "a turn of another life");
            for model in self.counted(&entry.ledger) {
                live[model.index()] += 1;
            }
        }
        assert!(self.failed.is_empty(), "failures kept back");
        assert_eq!(live, self.live, "live requests are counted");
        assert!(self.closing.values().all(|c| !c.waiting.is_empty()), "closed but remembered");
    }

    /// Takes a ledger among the living and grants its turn.
    fn enter(&mut self, now: Time, rid: RequestId, ledger: Ledger) {
        for model in self.counted(&ledger) {
            self.live[model.index()] += 1;
        }
        let watch = Watch { due: now, ..Watch::default() };
        self.ledgers.insert(rid, Entry { ledger, watch });
    }

    fn word(
        &mut self,
        now: Time,
        (model, life): (ModelIx, Life),
        word: ModelWord,
        out: &mut Vec<Effect>,
    ) {
        match word {
            ModelWord::Row(row) => self.row(now, (model, life), row, out),
            ModelWord::Missing { rid, fence, have } => {
                let Some(entry) = self.ledgers.get_mut(&rid) else {
                    return self.unknown(now, model, rid, fence);
                };
                if fence == entry.ledger.fence() {
                    entry.ledger.lower(model, life, have);
                    self.regrant(now, rid);
                }
            }
            ModelWord::Closed { rid } => self.closed(model, rid),
            ModelWord::Holding { rid, fence, working, probe } => {
                self.holding(now, model, rid, (fence, working, probe));
            }
            // The life itself was learned from the envelope.
            ModelWord::Reborn => {}
            ModelWord::DoorLost => self.words_lost(now, model),
        }
    }

    fn row(
        &mut self,
        now: Time,
        (model, life): (ModelIx, Life),
        row: ReportRow,
        out: &mut Vec<Effect>,
    ) {
        let rid = row.rid;
        let Some(entry) = self.ledgers.get_mut(&rid) else {
            return self.unknown(now, model, rid, row.fence);
        };
        let route = &self.config.routes[entry.ledger.route().index()];
        match entry.ledger.take(model, life, row, route) {
            Taken::Stale => self.counters.stale_rows += 1,
            Taken::Hole => {
                self.counters.holes += 1;
                self.regrant(now, rid);
            }
            Taken::Accepted { progress, then } => {
                self.counters.rows += 1;
                entry.watch = Watch { due: now + self.config.stall_timeout, ..Watch::default() };
                out.push(Effect::Accepted { rid, progress, standing: entry.ledger.standing() });
                match then {
                    Then::GoOn => {}
                    Then::Grant => self.grant(now, rid),
                    Then::Finish(finish) => self.complete(now, rid, finish, out),
                    Then::Circling => self.fail(now, rid, Failure::Circling, out),
                }
            }
        }
    }

    fn words_lost(&mut self, now: Time, model: ModelIx) {
        let lost = self.owned_by(model, |_| true);
        self.regrant_all(now, lost);
    }

    fn complete(&mut self, now: Time, rid: RequestId, finish: Finish, out: &mut Vec<Effect>) {
        let Some(entry) = self.ledgers.get(&rid) else { return };
        let result = Ok(entry.ledger.outcome(finish));
        self.finish(now, rid);
        out.push(Effect::Done { rid, result });
    }

    fn fail(&mut self, now: Time, rid: RequestId, failure: Failure, out: &mut Vec<Effect>) {
        self.finish(now, rid);
        out.push(Effect::Done { rid, result: Err(failure) });
    }

    fn closed(&mut self, model: ModelIx, rid: RequestId) {
        let Some(closing) = self.closing.get_mut(&rid) else { return };
        closing.waiting.retain(|m| *m != model);
        if closing.waiting.is_empty() {
            self.closing.remove(&rid);
        }
    }

    /// Answers words about a request that is not here, unless it is being closed anyway or may still be adopted.
    fn unknown(&mut self, now: Time, model: ModelIx, rid: RequestId, fence: Fence) {
        self.counters.unknown += 1;
        let adopting = rid.born < self.config.life
            && self.born.is_none_or(|born| now < born + self.config.adopt_grace);
        if !self.closing.contains_key(&rid) && !adopting {
            self.say(model, HomeWord::Finish { rid, fence });
        }
    }

    /// Takes the request out of the living and tells every model of its route, visited or not.
    fn finish(&mut self, now: Time, rid: RequestId) {
        let Some(entry) = self.ledgers.remove(&rid) else { return };
        let fence = entry.ledger.fence();
        for model in self.counted(&entry.ledger) {
            self.live[model.index()] -= 1;
        }
        // One that is gone for good gives it up by itself.
        let models = self.config.routes[entry.ledger.route().index()].models.iter();
        let waiting: SmallVec<[ModelIx; 4]> =
            models.filter(|model| self.reach[model.index()] != Reach::Gone).copied().collect();
        for &model in &waiting {
            self.say(model, HomeWord::Finish { rid, fence });
        }
        if !waiting.is_empty() {
            let due = now + self.config.finish_repeat;
            self.closing.insert(rid, Closing { fence, waiting, due });
        }
    }

    fn owned_by(&self, model: ModelIx, also: impl Fn(&Ledger) -> bool) -> Vec<RequestId> {
        let all = self.ledgers.iter();
        let owned = all.filter(|(_, e)| e.ledger.owner() == model && also(&e.ledger));
        owned.map(|(rid, _)| *rid).collect()
    }

    fn say(&mut self, to: ModelIx, word: HomeWord) {
        match self.outgoing.iter_mut().find(|(model, _)| *model == to) {
            Some((_, words)) => words.push(word),
            None => self.outgoing.push((to, SmallVec::from_iter([word]))),
        }
    }

    fn flush(&mut self, out: &mut Vec<Effect>) {
        for (rid, failure) in self.failed.drain(..) {
            out.push(Effect::Done { rid, result: Err(failure) });
        }
        for (to, words) in self.outgoing.drain(..) {
            let (home, life) = (self.config.home, self.config.life);
            self.said += 1;
            let (number, live) = (self.said, self.live[to.index()]);
            out.push(Effect::Say { to, says: HomeSays { home, life, number, live, words } });
        }
    }
}

#[cfg(test)]
mod tests;
