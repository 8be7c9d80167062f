//! Co-LLM (Shen et al., ACL 2024; reference code clinicalml/co-llm): the entry model itself says when to defer, by the
//! logit of a token that it was trained to raise there and that never becomes text.
//!
//! That token is masked at both models: it is sampled at neither, so it can travel to neither.

use crate::registry::Built;
use crate::roster::{Roster, TokenName};
use crate::route::{Pair, Policy, StepView, Verdict};
use crate::settings::within;
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::{ModelIx, Token};
use serde::Deserialize;
use smallvec::SmallVec;
use std::sync::Arc;
use tokenrouter_config::PolicySection;

/// The name of the token in the published models.
const DEFER: &str = "<|defer|>";
/// The threshold of the TokenRouter paper's measurements.
const THRESHOLD: f64 = 0.15;

/// One token of the other model wherever the sigmoid of the defer token's logit is strictly above the threshold.
#[derive(Clone, Copy, Debug)]
pub struct CoLlm {
    /// The models.
    pub pair: Pair,
    /// The token by which the entry model defers.
    pub defer: Token,
    /// Whether the other model has a row for that token, which is then masked.
    pub known_to_other: bool,
    /// A probability; handed over strictly above it.
    pub threshold: f32,
}

impl Policy for CoLlm {
    fn needs(&self, at: ModelIx) -> SignalSet {
        let known = at == self.pair.entry || self.known_to_other;
        SignalSet { defer: known.then_some(self.defer), ..SignalSet::NONE }
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        self.pair.one_token(step, || step.defer() > self.threshold)
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
        defer: Option<TokenName>,
        threshold: Option<f64>,
    }
    let settings: Settings = section.parse()?;
    let pair = Pair::build(section, roster, &settings.to)?;
    let name = settings.defer.unwrap_or_else(|| TokenName::Text(DEFER.to_owned()));
    let defer = roster.find_token(section, "defer", &name)?;
    let threshold = settings.threshold.unwrap_or(THRESHOLD);
    within(section, "threshold", threshold, 0.0, 1.0)?;
    let known_to_other = roster.assets.token(pair.to, &TokenName::Id(defer)).is_ok();
    Ok(Arc::new(CoLlm { pair, defer, known_to_other, threshold: threshold as f32 }))
}

#[cfg(test)]
mod tests;
