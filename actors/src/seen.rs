//! What a DecodeLoop counts on the side, for planning: where its requests went, and how long passes took. Nothing here is
//! kept per request.

use std::time::Duration;
use tokenrouter_policies::ModelIx;
use tokenrouter_policies::planner::Observations;
use tokenrouter_protocol::{Job, ModelSays, ModelWord, RowOutcome};

/// A pass with more new tokens than this for one row says nothing of passes that decode.
const SHORT: usize = 16;

/// The counts of one model.
#[derive(Debug)]
pub(crate) struct Seen {
    model: usize,
    observations: Observations,
    /// Rows of the pass that is running, if it only decodes, and when it was launched.
    pass: Option<(u32, Duration)>,
    /// The most live requests.
    live: u32,
}

impl Seen {
    /// Nothing yet.
    pub(crate) fn new(model: ModelIx, models: usize) -> Self {
        let observations = Observations::new(models);
        Self { model: model.index(), observations, pass: None, live: 0 }
    }

    /// A pass is launched.
    pub(crate) fn begins(&mut self, now: Duration, job: &Job, live: u32) {
        let decodes = !job.rows.is_empty() && job.rows.iter().all(|row| row.tokens.len() <= SHORT);
        self.pass = decodes.then_some((job.rows.len() as u32, now));
        self.live = self.live.max(live);
    }

    /// Its results are here. What mailboxes and threads took counts too, since the next pass waited for it.
    pub(crate) fn ended(&mut self, now: Duration) {
        if let Some((rows, launched)) = self.pass.take() {
            let took = now.saturating_sub(launched).as_secs_f64();
            self.observations.stepped(self.model, rows, 1.0, took);
        }
    }

    /// The model reports where requests go.
    pub(crate) fn reported(&mut self, says: &ModelSays) {
        for word in &says.words {
            let ModelWord::Row(row) = word else { continue };
            let to = match row.outcome {
                // A part of a prompt was fed.
                RowOutcome::Going if row.tokens.is_empty() => continue,
                RowOutcome::Going => self.model,
                RowOutcome::Next { to, .. } => to.index(),
                // The next request takes its place where it entered.
                RowOutcome::Ended => row.rid.home.model.index(),
            };
            self.observations.moved(self.model, to, 1.0, row.tokens.len() as f64);
        }
    }

    /// What was seen since this was last asked, and the most live requests.
    pub(crate) fn take(&mut self) -> (Observations, u32) {
        let none = Observations::new(self.observations.moves.len());
        (std::mem::replace(&mut self.observations, none), std::mem::take(&mut self.live))
    }
}
