//! R-Stitch (arXiv 2507.17307; TokenRouter, figure 3): entropy decides in both directions.
//!
//! The entry model hands over where its normalised entropy is above `threshold_up`, its token discarded. The other model
//! keeps writing until its own entropy is at most `threshold_down`; the token it says that with is committed, otherwise
//! the two would pass one position back and forth for ever.

use crate::route::{JustSampled, Policy, StepView, Verdict};
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::ModelIx;
use smallvec::{SmallVec, smallvec};

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
        if step.model == self.to {
            if entropy <= self.threshold_down {
                return Verdict::Handoff { to: self.entry, just_sampled: JustSampled::Commit };
            }
            return Verdict::Stay;
        }
        if entropy > self.threshold_up {
            return Verdict::Handoff { to: self.to, just_sampled: JustSampled::Discard };
        }
        Verdict::Stay
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![self.entry, self.to]
    }
}

#[cfg(test)]
mod tests;
