//! Turns: how they are granted, and the watchdog that asks an owner before it grants again.

use super::reach::Reach;
use super::{Effect, Home, Time};
use crate::id::{Fence, Life, RequestId};
use crate::message::HomeWord;
use crate::request::Failure;
use std::time::Duration;
use tokenrouter_policies::{ModelIx, Position};

/// The watchdog of one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    pub(super) due: Time,
    pub(super) asked: bool,
    /// Grants since the last accepted row that no row asked for: each doubles the wait.
    pub(super) grants: u32,
    /// Those of them that only silence asked for: they count against the bound.
    pub(super) silent: u32,
}

impl Home {
    pub(super) fn holding(
        &mut self,
        now: Time,
        model: ModelIx,
        rid: RequestId,
        (fence, working, probe): (Option<Fence>, Option<Position>, Option<Fence>),
    ) {
        let Some(entry) = self.ledgers.get_mut(&rid) else {
            if let Some(fence) = fence {
                self.unknown(now, model, rid, fence);
            }
            return;
        };
        let ledger = &entry.ledger;
        if probe != Some(ledger.fence()) || ledger.owner() != model {
            return;
        }
        if fence == probe && working == Some(ledger.committed()) {
            let wait = wait(self.config.stall_timeout, entry.watch.grants);
            entry.watch = Watch { due: now + wait, asked: false, ..entry.watch };
        } else {
            entry.watch.silent += 1;
            self.regrant(now, rid);
        }
    }

    pub(super) fn learn(&mut self, now: Time, model: ModelIx, life: Life) {
        if life <= self.lives[model.index()] {
            return;
        }
        self.lives[model.index()] = life;
        let orphans = self.owned_by(model, |ledger| ledger.granted() < life);
        self.regrant_all(now, orphans);
    }

    pub(super) fn watch(&mut self, now: Time, rid: RequestId, out: &mut Vec<Effect>) {
        let Some(entry) = self.ledgers.get_mut(&rid) else { return };
        let (owner, fence) = (entry.ledger.owner(), entry.ledger.fence());
        // Nothing can be heard of it, and what was said to it is kept for it.
        if self.reach[owner.index()] != Reach::Here {
            entry.watch.due = now + self.config.stall_timeout;
            return;
        }
        if entry.watch.silent >= self.config.grants_max {
            let grants = entry.watch.silent;
            return self.fail(now, rid, Failure::Stalled { model: owner, grants }, out);
        }
        if entry.watch.asked {
            entry.watch.silent += 1;
            return self.regrant(now, rid);
        }
        let wait = wait(self.config.stall_timeout, entry.watch.grants);
        entry.watch = Watch { due: now + wait, asked: true, ..entry.watch };
        self.counters.probes += 1;
        self.say(owner, HomeWord::Probe { rid, fence });
    }

    pub(super) fn regrant_all(&mut self, now: Time, rids: Vec<RequestId>) {
        for rid in rids {
            self.regrant(now, rid);
        }
    }

    /// A grant that no accepted row asked for: it counts, and doubles the wait, so that a slow path is not outrun.
    pub(super) fn regrant(&mut self, now: Time, rid: RequestId) {
        if let Some(entry) = self.ledgers.get_mut(&rid) {
            entry.watch.grants += 1;
            self.counters.regrants += 1;
            self.grant(now, rid);
        }
    }

    pub(super) fn grant(&mut self, now: Time, rid: RequestId) {
        if !self.provide(now, rid) {
            return;
        }
        let Some(entry) = self.ledgers.get_mut(&rid) else { return };
        let owner = entry.ledger.owner();
        let grant = entry.ledger.grant(self.config.life, self.lives[owner.index()]);
        entry.watch.due = now + wait(self.config.stall_timeout, entry.watch.grants);
        entry.watch.asked = false;
        self.counters.grants += 1;
        self.say(owner, HomeWord::Grant(grant));
    }
}

/// The wait before an owner is asked, doubled for every grant to no effect, at most 256-fold.
fn wait(timeout: Duration, grants: u32) -> Duration {
    timeout * 2u32.pow(grants.min(8))
}
