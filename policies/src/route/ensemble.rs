//! The mixture ensemble (arXiv 2605.00419; reference code Kamichanw/Mixture-model-like-Ensemble): before each token a
//! model is drawn, and only it computes.
//!
//! Sampled without truncation, tokens then follow the mixture `Σ λ_i p_i` exactly. The draw is a function of seed,
//! choice and position, so whichever model makes it draws the same; the first token's model is drawn when the request
//! enters.

use crate::draw::{Draws, Purpose};
use crate::registry::Built;
use crate::roster::Roster;
use crate::route::{Policy, StepView, Verdict};
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::{ModelIx, Position};
use serde::Deserialize;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokenrouter_config::PolicySection;

/// Each token from a model drawn by weight; every token is committed.
#[derive(Clone, Debug)]
pub struct Ensemble {
    /// The models, and the end of each one's share of `[0, 1)`, ascending.
    shares: SmallVec<[(ModelIx, f64); 4]>,
}

impl Ensemble {
    /// The ensemble of these models, each with a positive weight; `None` if there is none or a weight is not a positive
    /// number. Shares follow the order of the models, so the same weights always draw the same.
    pub fn new(weights: &[(ModelIx, f64)]) -> Option<Self> {
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let positive = weights.iter().all(|(_, weight)| *weight > 0.0) && total.is_finite();
        if weights.is_empty() || !positive {
            return None;
        }
        let mut sorted: SmallVec<[(ModelIx, f64); 4]> = SmallVec::from_slice(weights);
        sorted.sort_by_key(|(model, _)| *model);
        let mut end = 0.0;
        for (_, weight) in &mut sorted {
            end += *weight / total;
            *weight = end;
        }
        Some(Self { shares: sorted })
    }

    fn model(&self, draw: f64) -> ModelIx {
        let at = self.shares.partition_point(|(_, end)| *end <= draw);
        // Rounding may leave the last share an ulp short of 1.
        self.shares[at.min(self.shares.len() - 1)].0
    }
}

impl Policy for Ensemble {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        match self.model(step.draw_next()) {
            next if next == step.model => Verdict::Stay,
            next => Verdict::commit_to(next),
        }
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        self.shares.iter().map(|(model, _)| *model).collect()
    }

    fn entry(&self, draws: &Draws, position: Position) -> Option<ModelIx> {
        Some(self.model(draws.uniform(position, Purpose::Route)))
    }
}

pub(crate) fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        weights: BTreeMap<String, f64>,
    }
    let Settings { weights } = section.parse()?;
    let mut found = Vec::new();
    for (name, &weight) in &weights {
        let key = format!("weights.{name}");
        let model = roster.find(section, &key, name)?;
        if !(weight >= 0.0 && weight.is_finite()) {
            return Err(
                section.error(&key, format!("{weight} is not a weight; it must be 0 or more"))
            );
        }
        found.push((model, weight));
    }
    let total = weights.values().fold(0.0, |sum, weight| sum + weight);
    // A model without weight is never drawn, so it is not part of the route.
    found.retain(|(_, weight)| *weight > 0.0);
    match Ensemble::new(&found) {
        Some(ensemble) => Ok(Arc::new(ensemble)),
        None => {
            let list: Vec<String> =
                weights.iter().map(|(name, w)| format!("{name}: {w}")).collect();
            let list = list.join(", ");
            Err(section
                .error("weights", format!("`{list}` sum to {total}, not to a positive number")))
        }
    }
}

#[cfg(test)]
mod tests;
