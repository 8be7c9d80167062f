//! Launching: when the next forward pass begins, and who is in it.
//!
//! Nothing here reads a clock: whoever drives the host tells it the time, and calls it when somebody has waited enough.

use super::{Effect, Flight, Host};
use crate::batcher::{self, BatchLimits, Demand};
use crate::home::Time;
use crate::id::RequestId;
use crate::pacer::Standing;
use crate::residency::{Phase, Residency};
use crate::step::{Job, Row};
use std::collections::BTreeMap;
use tokenrouter_policies::{Position, Thresholds};

/// The requests that want a row, the oldest first, and what the batcher gives each.
#[derive(Debug, Default)]
pub(super) struct Ready {
    rids: Vec<RequestId>,
    unseen: Vec<Position>,
    shares: Vec<Position>,
}

impl Host {
    /// When to call [`Self::tick`] at the latest, since somebody will have waited long enough for others.
    pub fn wake(&self) -> Option<Time> {
        self.wake
    }

    /// Ready requests at which a pass is launched while as many are alive as now.
    pub fn threshold(&self) -> u32 {
        self.config.batch.thresholds.at(self.live())
    }

    /// From now on passes are launched by these thresholds.
    pub fn set_thresholds(&mut self, now: Time, thresholds: Thresholds, out: &mut Vec<Effect>) {
        self.config.batch.thresholds = thresholds;
        self.launch(now, out);
        self.flush(out);
    }

    /// One pass of whoever is ready may be launched now; where nobody is, the permission is used up all the same.
    pub fn permit(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.permits = (self.permits.0 + 1, true);
        self.launch(now, out);
        self.permits.1 = false;
        self.flush(out);
    }

    /// What a pacer must know of this model.
    pub fn standing(&self) -> Standing {
        Standing {
            life: self.config.life,
            permits: self.permits.0,
            ready: self.demand().map_or(0, |demand| demand.ready),
            live: self.live(),
            busy: self.busy && !self.flight.is_empty(),
        }
    }

    /// Who wants a row; `None` where nobody does.
    pub(super) fn demand(&self) -> Option<Demand> {
        let mut ready = wanting(&self.residents).map(|(_, resident)| resident);
        let first = ready.next()?;
        let one = Demand { ready: 1, longest: first.unseen(), since: first.moved };
        Some(ready.fold(one, |demand, resident| Demand {
            ready: demand.ready + 1,
            longest: demand.longest.max(resident.unseen()),
            since: demand.since.min(resident.moved),
        }))
    }

    /// Composes the next job if the engine is idle and enough are ready for it, or the cache is to be changed.
    pub(super) fn launch(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.wake = None;
        if self.busy {
            return;
        }
        let enough = self.demand().is_some_and(|demand| self.may_launch(now, &demand));
        let rows = if enough { self.gathered() } else { Vec::new() };
        if rows.is_empty() && self.ops.is_empty() {
            return;
        }
        self.counters.steps += u64::from(!rows.is_empty());
        self.counters.rows += rows.len() as u64;
        self.counters.tokens += rows.iter().map(|r| r.tokens.len() as u64).sum::<u64>();
        self.busy = true;
        out.push(Effect::Run(Job { ops: std::mem::take(&mut self.ops), rows }));
    }

    /// Whether enough are ready, or have waited long enough; notes when they will have.
    fn may_launch(&mut self, now: Time, demand: &Demand) -> bool {
        if self.config.paced {
            return self.permits.1;
        }
        let due = self.config.batch.due(demand, self.live());
        self.wake = due.filter(|due| *due > now);
        due.is_some_and(|due| due <= now)
    }

    /// The rows of the next pass, of whoever is ready and can have blocks.
    fn gathered(&mut self) -> Vec<Row> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.gather(&self.residents, &self.config.batch);
        let mut rows = self.compose(ready.shared());
        if rows.is_empty()
            && let Some((rid, unseen)) = ready.oldest()
        {
            // Nobody who got a share could use it: a narrow pass was kept for a prompt that waits for blocks. The oldest
            // request can take whatever it needs, so it alone moves.
            let share = unseen.min(self.config.batch.tokens_max.max(1));
            rows = self.compose([(rid, share)].into_iter());
        }
        self.ready = ready;
        rows
    }

    /// The rows of a pass, as far as blocks can be had; `flight` says who they are of.
    fn compose(&mut self, shares: impl Iterator<Item = (RequestId, Position)>) -> Vec<Row> {
        let mut rows = Vec::new();
        self.flight.clear();
        for (rid, share) in shares.filter(|(_, share)| *share > 0) {
            if let Some((row, fence)) = self.row(rid, share) {
                self.flight.push(Flight { rid, fence, sequence: row.sequence });
                rows.push(row);
            }
        }
        rows
    }
}

/// The requests that want a row, the oldest first.
fn wanting(
    residents: &BTreeMap<RequestId, Residency>,
) -> impl Iterator<Item = (&RequestId, &Residency)> {
    residents.iter().filter(|(_, r)| r.phase() == Phase::Running && r.unseen() > 0)
}

impl Ready {
    fn gather(&mut self, residents: &BTreeMap<RequestId, Residency>, limits: &BatchLimits) {
        self.rids.clear();
        self.unseen.clear();
        for (rid, resident) in wanting(residents) {
            self.rids.push(*rid);
            self.unseen.push(resident.unseen());
        }
        batcher::shares(&self.unseen, limits, &mut self.shares);
    }

    fn shared(&self) -> impl Iterator<Item = (RequestId, Position)> + '_ {
        self.rids.iter().copied().zip(self.shares.iter().copied())
    }

    fn oldest(&self) -> Option<(RequestId, Position)> {
        self.rids.first().copied().zip(self.unseen.first().copied())
    }
}
