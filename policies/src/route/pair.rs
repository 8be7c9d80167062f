//! Two models: the one that writes, and the one that helps. Most published policies are a condition on top of this.

use crate::roster::Roster;
use crate::route::{StepView, Verdict};
use crate::unit::ModelIx;
use smallvec::{SmallVec, smallvec};
use tokenrouter_config::{Error, PolicySection};

/// The entry model and the one it hands over to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The model that writes as a rule.
    pub entry: ModelIx,
    /// The model that takes over.
    pub to: ModelIx,
}

impl Pair {
    /// The pair of the route's entry model and the model that setting `to` names.
    ///
    /// # Errors
    /// A model that is not in the topology, or the entry model itself.
    pub fn build(section: &PolicySection, roster: &Roster<'_>, to: &str) -> Result<Self, Error> {
        Ok(Self { entry: roster.entry, to: roster.find_other(section, "to", to)? })
    }

    /// Both models, for [`crate::Policy::models`].
    pub fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![self.entry, self.to]
    }

    /// Hands over single tokens: where `wanted` says so the entry model's token is discarded, `to` writes that one
    /// position, and control returns. `wanted` is asked at the entry model alone.
    pub fn one_token(&self, step: &StepView<'_>, wanted: impl FnOnce() -> bool) -> Verdict {
        if step.model == self.to {
            return Verdict::commit_to(self.entry);
        }
        match wanted() {
            true => Verdict::discard_to(self.to),
            false => Verdict::Stay,
        }
    }
}
