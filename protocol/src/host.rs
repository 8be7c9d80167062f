//! A host: one life of one model, and the requests it holds. It takes grants, composes forward passes, lets the policy
//! route after each, and offers the tokens to their homes.
//!
//! It has one job at the engine at a time; cache operations travel in front of the next one, so no block changes hands
//! under a running step. A row whose fence is no longer current when its step is done is dropped. Nothing is committed
//! here, and nothing is finished: only home does that.

use crate::batcher::BatchLimits;
use crate::home::Time;
use crate::id::{Fence, HomeId, Life, RequestId};
use crate::message::{HomeSays, HomeWord, ModelSays, ModelWord, PeerReq};
use crate::residency::{Grant, Phase, Residency};
use crate::route::Route;
use crate::step::{CacheOp, Job, PoolSize, Row, RowOutput, SequenceId};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_policies::{ModelIx, Position};

mod launch;
mod pool;

use launch::Ready;

/// What a host is told once.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Which model this is.
    pub model: ModelIx,
    /// The life.
    pub life: Life,
    /// All routes of the topology, by [`crate::RouteIx`].
    pub routes: Arc<[Route]>,
    /// The engine's KV pool.
    pub pool: PoolSize,
    /// When a forward pass is launched, and its bounds.
    pub batch: BatchLimits,
    /// Whether passes are launched only when [`Host::permit`] says so.
    pub paced: bool,
    /// How long a request may not move before its home is reminded of it, and how long the count of live requests of a
    /// home that says nothing is believed.
    pub grace: Duration,
}

/// What a host wants done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Bring this to a home.
    Say {
        /// The home.
        to: HomeId,
        /// The words.
        says: ModelSays,
    },
    /// Give this to the engine; [`Host::done`] is owed its outputs.
    Run(Job),
}

/// How often what happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Forward passes.
    pub steps: u64,
    /// Rows in them.
    pub rows: u64,
    /// Tokens fed in them.
    pub tokens: u64,
    /// Rows whose turn was over when their step was done.
    pub dropped_rows: u64,
    /// Grants that were taken.
    pub grants: u64,
    /// Grants with a fence not higher than the one held, or of a home life that is over.
    pub stale_grants: u64,
    /// Grants that did not join.
    pub missing: u64,
    /// Pending requests whose cache was taken.
    pub evictions: u64,
    /// Running requests whose cache was taken.
    pub preemptions: u64,
}

/// The machine.
#[derive(Debug)]
pub struct Host {
    config: HostConfig,
    homes: BTreeMap<HomeId, Heard>,
    residents: BTreeMap<RequestId, Residency>,
    blocks_used: u32,
    sequences: u64,
    /// Cache operations for the front of the next job.
    ops: Vec<CacheOp>,
    /// Whether a job is at the engine.
    busy: bool,
    /// The rows of that job.
    flight: Vec<Flight>,
    /// Who wants a row; kept for its memory alone.
    ready: Ready,
    /// When somebody will have waited long enough for others.
    wake: Option<Time>,
    /// Permissions to launch heard of, and whether the last is still unused.
    permits: (u64, bool),
    /// Words of the input being handled, by home.
    outgoing: Vec<(HomeId, SmallVec<[ModelWord; 1]>)>,
    counters: Counters,
}

/// What was heard of a home.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// Its highest life.
    life: Life,
    /// The number of the latest message of that life, and when it came.
    number: u64,
    at: Time,
    /// How many live requests of it can reach this model, as that message says.
    live: u32,
}

/// A row at the engine, as it was when it left.
#[derive(Clone, Copy, Debug)]
struct Flight {
    rid: RequestId,
    fence: Fence,
    sequence: SequenceId,
}

impl Host {
    /// A host without requests, over an engine whose cache is empty.
    pub fn new(config: HostConfig) -> Self {
        Self {
            config,
            homes: BTreeMap::new(),
            residents: BTreeMap::new(),
            blocks_used: 0,
            sequences: 0,
            ops: Vec::new(),
            busy: false,
            flight: Vec::new(),
            ready: Ready::default(),
            wake: None,
            permits: (0, false),
            outgoing: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Tells a home that this life has begun.
    pub fn greet(&mut self, home: HomeId, out: &mut Vec<Effect>) {
        self.say(home, ModelWord::Reborn);
        self.flush(out);
    }

    /// Tells a home that words between it and this model were lost.
    pub fn door_lost(&mut self, home: HomeId, out: &mut Vec<Effect>) {
        self.say(home, ModelWord::DoorLost);
        self.flush(out);
    }

    /// Takes what a home says.
    pub fn hear(&mut self, now: Time, says: HomeSays, out: &mut Vec<Effect>) {
        self.count(now, &says);
        for word in says.words {
            match word {
                HomeWord::Grant(grant) => self.grant(now, (says.home, says.life), grant),
                HomeWord::Finish { rid, fence } => self.finish(says.home, rid, fence),
                HomeWord::Probe { rid, fence } => self.probe(says.home, rid, fence),
            }
        }
        self.launch(now, out);
        self.flush(out);
    }

    /// Takes the outputs of the job at the engine, in the order of its rows.
    pub fn done(&mut self, now: Time, outputs: Vec<RowOutput>, out: &mut Vec<Effect>) {
        self.busy = false;
        let mut flight = std::mem::take(&mut self.flight);
        for (row, output) in flight.drain(..).zip(&outputs) {
            self.routed(now, row, output);
        }
        self.flight = flight;
        self.launch(now, out);
        self.flush(out);
    }

    /// Time has passed: homes are reminded of requests that have not moved for long, and one that was silent for long
    /// counts no more. To be called at [`Self::wake`] as well.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Effect>) {
        let grace = self.config.grace;
        for home in self.homes.values_mut().filter(|home| now >= home.at + grace) {
            home.live = 0;
        }
        let still = self.residents.iter_mut().filter(|(_, r)| now >= r.moved.max(r.named) + grace);
        let mut words = Vec::new();
        for (rid, resident) in still {
            resident.named = now;
            let (rid, fence) = (*rid, Some(resident.fence));
            words.push((rid, ModelWord::Holding { rid, fence, working: None, probe: None }));
        }
        for (rid, word) in words {
            self.say(rid.home, word);
        }
        self.launch(now, out);
        self.flush(out);
    }

    /// A node is out of reach for good: what its homes hold here is given up. Should it be back, they grant anew.
    pub fn node_lost(&mut self, now: Time, node: u8, out: &mut Vec<Effect>) {
        let lost = self.residents.keys().filter(|rid| rid.home.node == node);
        for rid in lost.copied().collect::<Vec<_>>() {
            self.release(rid);
            self.residents.remove(&rid);
        }
        for (_, heard) in self.homes.iter_mut().filter(|(home, _)| home.node == node) {
            heard.live = 0;
        }
        self.launch(now, out);
        self.flush(out);
    }

    /// Requests held, pending ones included.
    pub fn held(&self) -> usize {
        self.residents.len()
    }

    /// Blocks of the pool in use once the operations on their way are done.
    pub fn blocks_used(&self) -> u32 {
        self.blocks_used
    }

    /// Live requests of all homes whose route can reach this model.
    pub fn live(&self) -> u32 {
        self.homes.values().map(|home| home.live).sum()
    }

    /// Whether a job is at the engine.
    pub fn busy(&self) -> bool {
        self.busy
    }

    /// The residency of a request.
    pub fn resident(&self, rid: RequestId) -> Option<&Residency> {
        self.residents.get(&rid)
    }

    /// The requests held, in order.
    pub fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.residents.keys().copied()
    }

    /// How often what happened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Asserts what must hold between inputs.
    pub fn check(&self) {
        assert!(self.outgoing.is_empty(), "words kept back");
        let mut used = 0;
        for resident in self.residents.values() {
            resident.check();
            used += self.config.pool.blocks_for(resident.cached());
        }
        assert_eq!(used, self.blocks_used, "blocks are counted");
        assert!(used <= self.config.pool.blocks, "more blocks than the pool has");
        let enough = self.demand().and_then(|demand| self.config.batch.due(&demand, self.live()));
        let idle = !self.busy && !self.config.paced && enough == Some(Time::ZERO);
        assert!(!idle, "the engine is idle although enough are ready");
    }

    /// Takes the count of live requests of a home, unless a later one was heard.
    fn count(&mut self, now: Time, says: &HomeSays) {
        let HomeSays { home, life, number, live, .. } = *says;
        let heard = Heard { life, number, at: now, live };
        let held = self.homes.entry(home).or_insert(heard);
        if (life, number) > (held.life, held.number) {
            *held = heard;
        }
    }

    fn grant(&mut self, now: Time, (home, life): (HomeId, Life), mut grant: PeerReq) {
        let (rid, fence) = (grant.rid, grant.fence);
        if grant.life != self.config.life {
            return self.say(home, ModelWord::Missing { rid, fence, have: 0 });
        }
        // Fences end with their request; the life of the home outlives it, and keeps a dead home's late grants out.
        if self.homes.get(&home).is_some_and(|heard| life < heard.life) {
            self.counters.stale_grants += 1;
            return;
        }
        if self.residents.get(&rid).is_some_and(|r| fence <= r.fence()) {
            self.counters.stale_grants += 1;
            return;
        }
        // What was admitted on another route is not what this grant means.
        let other = |r: &Residency| {
            grant.admission.as_ref().is_some_and(|granted| granted.route != r.admission.route)
        };
        if self.residents.get(&rid).is_some_and(other) {
            self.release(rid);
            self.residents.remove(&rid);
        }
        if !self.residents.contains_key(&rid) && !self.admit(&grant) {
            return self.say(home, ModelWord::Missing { rid, fence, have: 0 });
        }
        let Some(resident) = self.residents.get_mut(&rid) else { return };
        let route = &self.config.routes[resident.admission.route.index()];
        resident.moved = now;
        // The proposed tokens and the one before them are judged in one pass.
        grant.proposal.truncate(self.config.batch.tokens_max.max(1) as usize - 1);
        match resident.take(grant, route) {
            Grant::Missing { have } => {
                self.counters.missing += 1;
                self.cut(rid, have);
                self.say(home, ModelWord::Missing { rid, fence, have });
            }
            Grant::Taken { keep } => {
                self.counters.grants += 1;
                self.cut(rid, keep);
            }
        }
    }

    /// Opens a residency if the grant says what the request asks for.
    fn admit(&mut self, grant: &PeerReq) -> bool {
        let Some(admission) = &grant.admission else { return false };
        let Some(route) = self.config.routes.get(admission.route.index()) else { return false };
        self.sequences += 1;
        let sequence = SequenceId(self.sequences);
        let resident = Residency::new((**admission).clone(), sequence, route);
        self.residents.insert(grant.rid, resident);
        true
    }

    fn finish(&mut self, home: HomeId, rid: RequestId, fence: Fence) {
        if let Some(resident) = self.residents.get(&rid) {
            if fence < resident.fence() {
                return;
            }
            self.release(rid);
            self.residents.remove(&rid);
        }
        self.say(home, ModelWord::Closed { rid });
    }

    fn probe(&mut self, home: HomeId, rid: RequestId, probe: Fence) {
        let resident = self.residents.get(&rid);
        let fence = resident.map(Residency::fence);
        let working = resident.filter(|r| r.phase() == Phase::Running && r.fence() == probe);
        let working = working.map(Residency::length);
        self.say(home, ModelWord::Holding { rid, fence, working, probe: Some(probe) });
    }

    /// What a step sampled for one row reaches its request, if the turn it was computed under is still held.
    fn routed(&mut self, now: Time, row: Flight, output: &RowOutput) {
        let current = self.residents.get_mut(&row.rid).filter(|r| {
            r.fence() == row.fence && r.sequence == row.sequence && r.phase() == Phase::Running
        });
        let Some(resident) = current else {
            self.counters.dropped_rows += 1;
            return;
        };
        resident.moved = now;
        let cached = resident.cached();
        let report = match output.is_empty() {
            true => resident.report(row.rid),
            false => {
                let route = &self.config.routes[resident.admission.route.index()];
                resident.apply(self.config.model, row.rid, output, route)
            }
        };
        // A rejected draft leaves the cache.
        let (kept, sequence) = (resident.cached(), resident.sequence);
        if kept < cached {
            self.blocks_used -= self.blocks(cached) - self.blocks(kept);
            self.ops.push(CacheOp::Truncate { sequence, to: kept });
        }
        self.say(row.rid.home, ModelWord::Row(report));
    }

    /// Feeds up to `share` tokens of a running request, as far as blocks can be had.
    fn row(&mut self, rid: RequestId, share: Position) -> Option<(Row, Fence)> {
        // An older row of this very pass may have taken its cache.
        self.residents.get(&rid).filter(|r| r.phase() == Phase::Running)?;
        // A share that is too small to be used takes nothing from others.
        let share = Some(self.whole_outputs(rid, share)).filter(|share| *share > 0)?;
        let share = self.reserve(rid, share);
        let share = self.whole_outputs(rid, share);
        let resident = self.residents.get_mut(&rid).filter(|_| share > 0)?;
        let start = resident.cached();
        let tokens = resident.feed(share);
        let added = self.config.pool.blocks_for(start + share) - self.config.pool.blocks_for(start);
        self.blocks_used += added;
        let route = &self.config.routes[resident.admission.route.index()];
        let outputs = if resident.unseen() == 0 { resident.outputs() } else { 0 };
        let row = Row {
            sequence: resident.sequence,
            start,
            tokens,
            outputs,
            signals: route.policy.needs(self.config.model),
            sampling: resident.admission.sampling,
            draws: resident.admission.draws,
        };
        Some((row, resident.fence()))
    }

    fn say(&mut self, to: HomeId, word: ModelWord) {
        match self.outgoing.iter_mut().find(|(home, _)| *home == to) {
            Some((_, words)) => words.push(word),
            None => self.outgoing.push((to, SmallVec::from_iter([word]))),
        }
    }

    fn flush(&mut self, out: &mut Vec<Effect>) {
        for (to, words) in self.outgoing.drain(..) {
            let (model, life) = (self.config.model, self.config.life);
            out.push(Effect::Say { to, says: ModelSays { model, life, words } });
        }
    }
}

#[cfg(test)]
mod tests;
