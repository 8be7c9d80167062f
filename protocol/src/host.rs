//! A host: one life of one model, and the requests it holds. It takes grants, composes forward passes, lets the policy
//! route after each, and offers the tokens to their homes.
//!
//! It has one job at the engine at a time; cache operations travel in front of the next one, so no block changes hands
//! under a running step. A row whose fence is no longer current when its step is done is dropped. Nothing is committed
//! here, and nothing is finished: only home does that.

use crate::batcher::{self, BatchLimits};
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
    /// Bounds of a forward pass.
    pub batch: BatchLimits,
    /// How long a request may not move before its home is reminded of it.
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
    /// The highest life heard of each home, and how many live requests of it can reach this model.
    homes: BTreeMap<HomeId, (Life, u32)>,
    residents: BTreeMap<RequestId, Residency>,
    blocks_used: u32,
    sequences: u64,
    /// Cache operations for the front of the next job.
    ops: Vec<CacheOp>,
    /// The rows of the job at the engine.
    flight: Option<Vec<Flight>>,
    /// Words of the input being handled, by home.
    outgoing: Vec<(HomeId, SmallVec<[ModelWord; 1]>)>,
    counters: Counters,
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
            flight: None,
            outgoing: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Tells a home that this life has begun.
    pub fn greet(&mut self, home: HomeId, out: &mut Vec<Effect>) {
        self.say(home, ModelWord::Reborn);
        self.flush(out);
    }

    /// Takes what a home says.
    pub fn hear(&mut self, now: Time, says: HomeSays, out: &mut Vec<Effect>) {
        let heard = self.homes.entry(says.home).or_insert((says.life, 0));
        if says.life >= heard.0 {
            *heard = (says.life, says.live);
        }
        for word in says.words {
            match word {
                HomeWord::Grant(grant) => self.grant(now, (says.home, says.life), grant),
                HomeWord::Finish { rid, fence } => self.finish(says.home, rid, fence),
                HomeWord::Probe { rid, fence } => self.probe(says.home, rid, fence),
            }
        }
        self.launch(out);
        self.flush(out);
    }

    /// Takes the outputs of the job at the engine, in the order of its rows.
    pub fn done(&mut self, now: Time, outputs: Vec<RowOutput>, out: &mut Vec<Effect>) {
        let flight = self.flight.take().unwrap_or_default();
        for (row, output) in flight.into_iter().zip(outputs) {
            self.routed(now, row, &output);
        }
        self.launch(out);
        self.flush(out);
    }

    /// Time has passed: homes are reminded of requests that have not moved for long.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Effect>) {
        let grace = self.config.grace;
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
        self.homes.values().map(|(_, live)| live).sum()
    }

    /// Whether a job is at the engine.
    pub fn busy(&self) -> bool {
        self.flight.is_some()
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
        let waiting =
            self.residents.values().any(|r| r.phase() == Phase::Running && r.unseen() > 0);
        if self.config.batch.threshold == 1 {
            assert!(self.busy() || !waiting, "the engine is idle although somebody waits");
        }
    }

    fn grant(&mut self, now: Time, (home, life): (HomeId, Life), mut grant: PeerReq) {
        let (rid, fence) = (grant.rid, grant.fence);
        if grant.life != self.config.life {
            return self.say(home, ModelWord::Missing { rid, fence, have: 0 });
        }
        // Fences end with their request; the life of the home outlives it, and keeps a dead home's late grants out.
        if self.homes.get(&home).is_some_and(|(highest, _)| life < *highest) {
            self.counters.stale_grants += 1;
            return;
        }
        if self.residents.get(&rid).is_some_and(|r| fence <= r.fence()) {
            self.counters.stale_grants += 1;
            return;
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

    /// Composes the next job if the engine is idle and there is something to do.
    fn launch(&mut self, out: &mut Vec<Effect>) {
        if self.flight.is_some() {
            return;
        }
        let ready = self.residents.iter().filter(|(_, r)| r.phase() == Phase::Running);
        let ready = ready.map(|(rid, r)| (*rid, r.unseen())).filter(|(_, unseen)| *unseen > 0);
        let (ready, unseen): (Vec<RequestId>, Vec<Position>) = ready.unzip();
        let shares = batcher::shares(&unseen, &self.config.batch);
        let launched = !shares.is_empty();
        let (mut rows, mut flight) = self.compose(ready.iter().copied().zip(shares));
        if launched && rows.is_empty() {
            // Nobody who got a share could use it: a narrow pass was kept for a prompt that waits for blocks. The oldest
            // request can take whatever it needs, so it alone moves.
            let share = unseen[0].min(self.config.batch.tokens_max.max(1));
            (rows, flight) = self.compose([(ready[0], share)].into_iter());
        }
        if rows.is_empty() && self.ops.is_empty() {
            return;
        }
        self.counters.steps += u64::from(!rows.is_empty());
        self.counters.rows += rows.len() as u64;
        self.counters.tokens += rows.iter().map(|r| r.tokens.len() as u64).sum::<u64>();
        self.flight = Some(flight);
        out.push(Effect::Run(Job { ops: std::mem::take(&mut self.ops), rows }));
    }

    /// The rows of a pass, as far as blocks can be had, and who they are of.
    fn compose(
        &mut self,
        shares: impl Iterator<Item = (RequestId, Position)>,
    ) -> (Vec<Row>, Vec<Flight>) {
        let (mut rows, mut flight) = (Vec::new(), Vec::new());
        for (rid, share) in shares.filter(|(_, share)| *share > 0) {
            if let Some(row) = self.row(rid, share, &flight) {
                let Some(resident) = self.residents.get(&rid) else { continue };
                flight.push(Flight { rid, fence: resident.fence(), sequence: row.sequence });
                rows.push(row);
            }
        }
        (rows, flight)
    }

    /// Feeds up to `share` tokens of a running request, as far as blocks can be had.
    fn row(&mut self, rid: RequestId, share: Position, flight: &[Flight]) -> Option<Row> {
        // An older row of this very pass may have taken its cache.
        self.residents.get(&rid).filter(|r| r.phase() == Phase::Running)?;
        // A share that is too small to be used takes nothing from others.
        let share = Some(self.whole_outputs(rid, share)).filter(|share| *share > 0)?;
        let share = self.reserve(rid, share, flight);
        let share = self.whole_outputs(rid, share);
        let resident = self.residents.get_mut(&rid).filter(|_| share > 0)?;
        let start = resident.cached();
        let tokens = resident.feed(share);
        let added = self.config.pool.blocks_for(start + share) - self.config.pool.blocks_for(start);
        self.blocks_used += added;
        let route = &self.config.routes[resident.admission.route.index()];
        let outputs = if resident.unseen() == 0 { resident.outputs() } else { 0 };
        Some(Row {
            sequence: resident.sequence,
            start,
            tokens,
            outputs,
            signals: route.policy.needs(self.config.model),
            sampling: resident.admission.sampling,
            draws: resident.admission.draws,
        })
    }

    /// A share cut so that all positions that need logits are fed in one pass.
    fn whole_outputs(&self, rid: RequestId, share: Position) -> Position {
        let Some(resident) = self.residents.get(&rid) else { return 0 };
        let (left, outputs) = (resident.unseen() - share, u32::from(resident.outputs()));
        if left == 0 || left >= outputs { share } else { share.saturating_sub(outputs - left) }
    }

    /// How many of `share` tokens there is room for, after taking what may be taken: first the cache of whoever is
    /// pending longest, then that of the youngest running request, if it is younger than this one. The order of
    /// request ids is the same at every model, so two full pools never wait for each other.
    fn reserve(&mut self, rid: RequestId, share: Position, flight: &[Flight]) -> Position {
        let Some(resident) = self.residents.get(&rid) else { return 0 };
        let start = resident.cached();
        // Whoever has nothing yet takes nothing from others unless that is enough to begin.
        if start == 0 && self.blocks(share) > self.obtainable(rid, flight) {
            return 0;
        }
        loop {
            let held = self.blocks(start);
            let free = self.config.pool.blocks - self.blocks_used;
            if self.blocks(start + share) - held <= free {
                return share;
            }
            if let Some(victim) = self.pending_longest() {
                self.counters.evictions += 1;
                self.evict(victim);
            } else if let Some(victim) = self.youngest_after(rid, flight) {
                self.counters.preemptions += 1;
                let fence = self.evict(victim);
                self.say(victim.home, ModelWord::Missing { rid: victim, fence, have: 0 });
            } else {
                let room = (held + free) * self.config.pool.block - start;
                return room.min(share);
            }
        }
    }

    /// Free blocks, and those that [`Self::reserve`] may take from others for this request.
    fn obtainable(&self, rid: RequestId, flight: &[Flight]) -> u32 {
        let free = self.config.pool.blocks - self.blocks_used;
        let others = self.residents.iter().filter(|(other, r)| {
            r.phase() == Phase::Pending || self.preemptible(rid, **other, flight)
        });
        free + others.map(|(_, r)| self.blocks(r.cached())).sum::<u32>()
    }

    fn preemptible(&self, rid: RequestId, other: RequestId, flight: &[Flight]) -> bool {
        other > rid && !flight.iter().any(|f| f.rid == other)
    }

    fn pending_longest(&self) -> Option<RequestId> {
        let pending = self.residents.iter();
        let pending = pending.filter(|(_, r)| r.phase() == Phase::Pending && r.cached() > 0);
        pending.min_by_key(|(rid, r)| (r.moved, **rid)).map(|(rid, _)| *rid)
    }

    fn youngest_after(&self, rid: RequestId, flight: &[Flight]) -> Option<RequestId> {
        let holding = self.residents.range(rid..).rev().filter(|(_, r)| r.cached() > 0);
        holding.map(|(other, _)| *other).find(|other| self.preemptible(rid, *other, flight))
    }

    fn evict(&mut self, rid: RequestId) -> Fence {
        self.release(rid);
        self.sequences += 1;
        let sequence = SequenceId(self.sequences);
        let Some(resident) = self.residents.get_mut(&rid) else { return Fence::default() };
        resident.evict(sequence);
        resident.fence()
    }

    /// Returns a request's blocks to the pool.
    fn release(&mut self, rid: RequestId) {
        let Some(resident) = self.residents.get(&rid) else { return };
        if resident.cached() > 0 {
            self.blocks_used -= self.blocks(resident.cached());
            self.ops.push(CacheOp::Close { sequence: resident.sequence });
        }
    }

    /// Cuts a request's cache back to `keep` positions if it holds more.
    fn cut(&mut self, rid: RequestId, keep: Position) {
        let pool = self.config.pool;
        let Some(resident) = self.residents.get_mut(&rid) else { return };
        if resident.cached > keep {
            self.blocks_used -= pool.blocks_for(resident.cached) - pool.blocks_for(keep);
            self.ops.push(CacheOp::Truncate { sequence: resident.sequence, to: keep });
            resident.cached = keep;
        }
    }

    fn blocks(&self, positions: Position) -> u32 {
        self.config.pool.blocks_for(positions)
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
