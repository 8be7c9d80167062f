//! Reach: what a home makes of models that are on other nodes, and of links that break.
//!
//! A model that is away for a moment is waited for, and not asked: what was said to it is on its way. One that is gone
//! for longer than the grace takes effect on every request that needs it, as its route says.

use super::{Effect, Home, Time};
use crate::id::RequestId;
use crate::ledger::Ledger;
use crate::message::HomeWord;
use crate::request::{Failure, RouteIx};
use crate::route::OnLoss;
use smallvec::SmallVec;
use tokenrouter_policies::ModelIx;

/// How a model can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// On this node, or over a link that works.
    #[default]
    Here,
    /// The link is broken, and will soon be back.
    Away,
    /// The link was broken for longer than the grace.
    Gone,
}

impl Home {
    /// The way to a model has changed.
    pub fn reach(&mut self, now: Time, model: ModelIx, reach: Reach, out: &mut Vec<Effect>) {
        let Some(known) = self.reach.get_mut(model.index()) else { return };
        let before = std::mem::replace(known, reach);
        match reach {
            _ if before == reach => {}
            Reach::Away => {}
            Reach::Here => {
                // Its silence so far was the link's.
                for rid in self.owned_by(model, |_| true) {
                    let Some(entry) = self.ledgers.get_mut(&rid) else { continue };
                    entry.watch.due = now + self.config.stall_timeout;
                    entry.watch.asked = false;
                }
            }
            Reach::Gone => {
                self.forget_closings(model);
                let moves = |ledger: &Ledger| {
                    self.config.routes[ledger.route().index()].on_loss != OnLoss::Wait
                };
                // Granted again, each comes to whoever can still be reached.
                let lost = self.owned_by(model, moves);
                self.regrant_all(now, lost);
            }
        }
        self.flush(out);
    }

    /// Sees to it that the owner of a request can be granted a turn, as its route says; whether it can.
    pub(super) fn provide(&mut self, now: Time, rid: RequestId) -> bool {
        let Some(entry) = self.ledgers.get(&rid) else { return false };
        let (owner, route) = (entry.ledger.owner(), entry.ledger.route());
        if self.reach[owner.index()] != Reach::Gone {
            return true;
        }
        let fallback = match self.config.routes[route.index()].on_loss {
            OnLoss::Wait => return true,
            OnLoss::Fallback => self.survivor(route),
            OnLoss::Fail => None,
        };
        if let Some((model, alone)) = fallback {
            self.pin(rid, model, alone, owner);
            return true;
        }
        self.finish(now, rid);
        self.failed.push((rid, Failure::OutOfReach { model: owner }));
        false
    }

    /// A model of the route that can be reached, its entry if possible, and the route of that model alone.
    fn survivor(&self, route: RouteIx) -> Option<(ModelIx, RouteIx)> {
        let route = &self.config.routes[route.index()];
        let gone = |model: &ModelIx| self.reach[model.index()] == Reach::Gone;
        let mut left = std::iter::once(route.entry).chain(route.models.iter().copied());
        let model = left.find(|model| !gone(model))?;
        let alone = self.config.routes.iter().position(|r| r.models.as_slice() == [model])?;
        Some((model, RouteIx(alone as u16)))
    }

    fn pin(&mut self, rid: RequestId, model: ModelIx, alone: RouteIx, lost: ModelIx) {
        let Some(mut entry) = self.ledgers.remove(&rid) else { return };
        for model in self.counted(&entry.ledger) {
            self.live[model.index()] -= 1;
        }
        let fence = entry.ledger.fence();
        let others = self.config.routes[entry.ledger.route().index()].models.clone();
        entry.ledger.pin(model, alone, lost);
        self.live[model.index()] += 1;
        self.ledgers.insert(rid, entry);
        // The others need it no more; what they hold of it would stay until the end.
        let reachable = others.iter().filter(|other| self.reach[other.index()] != Reach::Gone);
        let others: SmallVec<[ModelIx; 4]> = reachable.copied().filter(|m| *m != model).collect();
        for other in others {
            self.say(other, HomeWord::Finish { rid, fence });
        }
    }

    /// The models that a live request can reach.
    pub(super) fn counted(&self, ledger: &Ledger) -> SmallVec<[ModelIx; 4]> {
        match ledger.is_pinned() {
            true => SmallVec::from_slice(&[ledger.owner()]),
            false => self.config.routes[ledger.route().index()].models.clone(),
        }
    }

    /// Waits no longer for a model to close what is finished.
    pub(super) fn forget_closings(&mut self, model: ModelIx) {
        for closing in self.closing.values_mut() {
            closing.waiting.retain(|m| *m != model);
        }
        self.closing.retain(|_, closing| !closing.waiting.is_empty());
    }
}
