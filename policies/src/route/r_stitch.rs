//! R-Stitch (arXiv 2507.17307; TokenRouter, figure 3): entropy decides in both directions.
//!
//! The entry model hands over where its normalised entropy is above `threshold_up`, its token discarded. The other model
//! keeps writing until its own entropy is at most `threshold_down`; the token it says that with is committed, otherwise
//! the two would pass one position back and forth for ever.

use crate::registry::Built;
use crate::roster::Roster;
use crate::route::{Policy, StepView, Verdict};
use crate::settings::within;
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::ModelIx;
use serde::Deserialize;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use tokenrouter_config::PolicySection;

/// Normalised entropies (divided by ln V) in `[0, 1]`; the paper uses one threshold for both directions.
#[derive(Clone, Copy, Debug)]
pub struct RStitch {
    /// The model that writes while it is sure.
    pub entry: ModelIx,
    /// The model that takes over while entropy is high.
    pub to: ModelIx,
    /// Handed over strictly above this.
    pub threshold_up: f32,
    /// Given back at or below this.
    pub threshold_down: f32,
}

impl Policy for RStitch {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet { entropy: true, ..SignalSet::NONE }
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        let entropy = step.entropy_normalised();
        match step.model == self.to {
            true if entropy <= self.threshold_down => Verdict::commit_to(self.entry),
            false if entropy > self.threshold_up => Verdict::discard_to(self.to),
            _ => Verdict::Stay,
        }
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![self.entry, self.to]
    }
}

pub(crate) fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        threshold: Option<f64>,
        threshold_up: Option<f64>,
        threshold_down: Option<f64>,
    }
    let settings: Settings = section.parse()?;
    let pick = |key: &str, own: Option<f64>| {
        // A fault is told of the key that was written.
        let written = own.map(|value| (key, value));
        match written.or(settings.threshold.map(|value| ("threshold", value))) {
            Some((key, value)) => within(section, key, value, 0.0, 1.0).map(|()| value as f32),
            None => {
                Err(section.error(key, "set `threshold`, or `threshold_up` and `threshold_down`"))
            }
        }
    };
    Ok(Arc::new(RStitch {
        entry: roster.entry,
        to: roster.find_other(section, "to", &settings.to)?,
        threshold_up: pick("threshold_up", settings.threshold_up)?,
        threshold_down: pick("threshold_down", settings.threshold_down)?,
    }))
}

#[cfg(test)]
mod tests;
