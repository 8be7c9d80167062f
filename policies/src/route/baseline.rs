//! Baselines: one model alone, a coin, a metronome. They measure what a cleverer policy is worth.

use crate::draw::Draws;
use crate::registry::Built;
use crate::roster::Roster;
use crate::route::{Pair, Policy, StepView, Verdict};
use crate::settings::within;
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::{ModelIx, Position};
use serde::Deserialize;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use tokenrouter_config::PolicySection;

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
        Pair { entry: self.entry, to: self.to }.one_token(step, || step.draw() < self.probability)
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
        let nth = step.position - step.prompt + 1;
        Pair { entry: self.entry, to: self.to }.one_token(step, || nth.is_multiple_of(self.period))
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![self.entry, self.to]
    }
}

pub(crate) fn build_random(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        probability: f64,
    }
    let settings: Settings = section.parse()?;
    within(section, "probability", settings.probability, 0.0, 1.0)?;
    let Pair { entry, to } = Pair::build(section, roster, &settings.to)?;
    Ok(Arc::new(Random { entry, to, probability: settings.probability }))
}

pub(crate) fn build_fixed_period(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        period: u32,
    }
    let settings: Settings = section.parse()?;
    within(section, "period", f64::from(settings.period), 1.0, f64::from(u32::MAX))?;
    let Pair { entry, to } = Pair::build(section, roster, &settings.to)?;
    Ok(Arc::new(FixedPeriod { entry, to, period: settings.period }))
}

pub(crate) fn build_always(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        model: Option<String>,
    }
    let settings: Settings = section.parse()?;
    let model = match settings.model {
        Some(name) => roster.find(section, "model", &name)?,
        None => roster.entry,
    };
    Ok(Arc::new(Always { model }))
}

#[cfg(test)]
mod tests;
