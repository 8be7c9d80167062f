//! CITER (Zheng et al., COLM 2025; reference code aiming-lab/CITER): a head says how likely the entry model is good
//! enough for its next token. Below the threshold the other model writes that one token.
//!
//! The sense is opposite to R2R's: here a low score hands over, so a higher threshold means more of the other model.

use crate::head::{HeadIx, HeadKind};
use crate::registry::Built;
use crate::roster::Roster;
use crate::route::{Pair, Policy, StepView, Verdict};
use crate::settings::threshold;
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::ModelIx;
use serde::Deserialize;
use smallvec::SmallVec;
use std::sync::Arc;
use tokenrouter_config::PolicySection;

/// One token of the other model wherever the head's score is strictly below the threshold.
#[derive(Clone, Copy, Debug)]
pub struct Citer {
    /// The models.
    pub pair: Pair,
    /// The head at the entry model.
    pub head: HeadIx,
    /// A probability; handed over strictly below it.
    pub threshold: f32,
}

impl Policy for Citer {
    fn needs(&self, at: ModelIx) -> SignalSet {
        SignalSet { head: (at == self.pair.entry).then_some(self.head), ..SignalSet::NONE }
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        self.pair.one_token(step, || step.head() < self.threshold)
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        self.pair.models()
    }
}

pub(crate) fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        head: String,
        threshold: Option<f64>,
    }
    let settings: Settings = section.parse()?;
    let pair = Pair::build(section, roster, &settings.to)?;
    let kinds = [HeadKind::Citer, HeadKind::Linear];
    let head = roster.find_head(section, &settings.head, &kinds)?;
    let threshold = threshold(section, "threshold", settings.threshold, &head)?;
    Ok(Arc::new(Citer { pair, head: head.ix, threshold }))
}

#[cfg(test)]
mod tests;
