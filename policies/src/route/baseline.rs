//! Baselines: one model alone, a coin, a metronome. They measure what a cleverer policy is worth.

use crate::draw::Draws;
use crate::route::{JustSampled, Policy, StepView, Verdict};
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::{ModelIx, Position};
use smallvec::{SmallVec, smallvec};

/// One model writes everything. Every single model of a topology is also a route of this kind.
#[derive(Clone, Copy, Debug)]
pub struct Always {
    /// The model that writes.
    pub model: ModelIx,
}

impl Policy for Always {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet::NONE
    }

    fn route(&self, _step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        Verdict::Stay
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![self.model]
    }

    fn entry(&self, _draws: &Draws, _position: Position) -> Option<ModelIx> {
        Some(self.model)
    }
}

/// A coin per position: with `probability` the other model writes that one token, then control returns.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    /// The model that writes when the coin says nothing.
    pub entry: ModelIx,
    /// The model that writes the drawn tokens.
    pub to: ModelIx,
    /// The chance of each position to be handed over, in `[0, 1]`.
    pub probability: f64,
}

impl Policy for Random {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        if step.model == self.to {
            return Verdict::Handoff { to: self.entry, just_sampled: JustSampled::Commit };
        }
        if step.draw() < self.probability {
            return Verdict::Handoff { to: self.to, just_sampled: JustSampled::Discard };
        }
        Verdict::Stay
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![self.entry, self.to]
    }
}

/// Every `period`-th token of the reply is written by the other model.
#[derive(Clone, Copy, Debug)]
pub struct FixedPeriod {
    /// The model that writes the tokens between.
    pub entry: ModelIx,
    /// The model that writes every `period`-th token.
    pub to: ModelIx,
    /// The distance between two tokens of `to`, at least 1.
    pub period: u32,
}

impl Policy for FixedPeriod {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        if step.model == self.to {
            return Verdict::Handoff { to: self.entry, just_sampled: JustSampled::Commit };
        }
        if (step.position - step.prompt + 1).is_multiple_of(self.period) {
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
