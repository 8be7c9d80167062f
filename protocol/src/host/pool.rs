//! Blocks: who gets them, and from whom they are taken when there are none.
//!
//! Only books are kept here; the engine follows the operations in front of its next job.

use super::Host;
use crate::id::{Fence, RequestId};
use crate::message::ModelWord;
use crate::residency::Phase;
use crate::step::{CacheOp, SequenceId};
use std::ops::Bound;
use tokenrouter_policies::Position;

impl Host {
    /// A share cut so that all positions that need logits are fed in one pass.
    pub(super) fn whole_outputs(&self, rid: RequestId, share: Position) -> Position {
        let Some(resident) = self.residents.get(&rid) else { return 0 };
        let (left, outputs) = (resident.unseen() - share, u32::from(resident.outputs()));
        if left == 0 || left >= outputs { share } else { share.saturating_sub(outputs - left) }
    }

    /// How many of `share` tokens there is room for, after taking what may be taken: first the cache of whoever is
    /// pending longest, then that of the youngest running request, if it is younger than this one. The order of
    /// request ids is the same at every model, so two full pools never wait for each other.
    pub(super) fn reserve(&mut self, rid: RequestId, share: Position) -> Position {
        let Some(resident) = self.residents.get(&rid) else { return 0 };
        let start = resident.cached();
        // Whoever has nothing yet takes nothing from others unless that is enough to begin.
        if start == 0 && self.blocks(share) > self.obtainable(rid) {
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
            } else if let Some(victim) = self.youngest_after(rid) {
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
    fn obtainable(&self, rid: RequestId) -> u32 {
        let free = self.config.pool.blocks - self.blocks_used;
        let others =
            self.residents.iter().filter(|(other, r)| r.phase() == Phase::Pending || **other > rid);
        free + others.map(|(_, r)| self.blocks(r.cached())).sum::<u32>()
    }

    fn pending_longest(&self) -> Option<RequestId> {
        let pending = self.residents.iter();
        let pending = pending.filter(|(_, r)| r.phase() == Phase::Pending && r.cached() > 0);
        pending.min_by_key(|(rid, r)| (r.moved, **rid)).map(|(rid, _)| *rid)
    }

    /// Rows of a pass are composed in the order of their requests, so no younger one has a row in it yet.
    fn youngest_after(&self, rid: RequestId) -> Option<RequestId> {
        let younger = self.residents.range((Bound::Excluded(rid), Bound::Unbounded));
        younger.rev().find(|(_, r)| r.cached() > 0).map(|(other, _)| *other)
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
    pub(super) fn release(&mut self, rid: RequestId) {
        let Some(resident) = self.residents.get(&rid) else { return };
        if resident.cached() > 0 {
            self.blocks_used -= self.blocks(resident.cached());
            self.ops.push(CacheOp::Close { sequence: resident.sequence });
        }
    }

    /// Cuts a request's cache back to `keep` positions if it holds more.
    pub(super) fn cut(&mut self, rid: RequestId, keep: Position) {
        let pool = self.config.pool;
        let Some(resident) = self.residents.get_mut(&rid) else { return };
        if resident.cached > keep {
            self.blocks_used -= pool.blocks_for(resident.cached) - pool.blocks_for(keep);
            self.ops.push(CacheOp::Truncate { sequence: resident.sequence, to: keep });
            resident.cached = keep;
        }
    }

    pub(super) fn blocks(&self, positions: Position) -> u32 {
        self.config.pool.blocks_for(positions)
    }
}
