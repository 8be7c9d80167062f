//! R2R (Fu et al., NeurIPS 2025; reference code thu-nics/R2R): single tokens of the other model wherever the entry
//! model's own numbers say that its token may lead the text elsewhere.
//!
//! All strategies look at the entry model's numbers alone, discard its token, take one token of the other model, and
//! decide anew at the next position. Those with a memory keep it in [`PolicyState`]; there "the other model keeps
//! writing" means that the entry model's tokens are discarded one after the other.

use crate::head::{HeadIx, HeadKind};
use crate::registry::Built;
use crate::roster::Roster;
use crate::route::{Pair, Policy, StepView, Verdict};
use crate::settings::{threshold, within};
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::ModelIx;
use evidence::Evidence;
use serde::Deserialize;
use smallvec::SmallVec;
use std::cell::LazyCell;
use std::sync::Arc;
use tokenrouter_config::{Error, PolicySection};

mod evidence;
mod memory;

/// One token of the other model wherever the strategy says so.
#[derive(Clone, Copy, Debug)]
pub struct R2r {
    /// The models.
    pub pair: Pair,
    /// What decides.
    pub strategy: Strategy,
}

/// What decides about a position. Aleatoric and epistemic uncertainty are those of the ten largest logits taken as
/// evidence (`evidence.rs`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// The score of a trained head, at or above a probability.
    Neural {
        /// The head at the entry model.
        head: HeadIx,
        /// Handed over at or above it.
        threshold: f32,
    },
    /// Entropy in nats, at or above this.
    Entropy {
        /// Handed over at or above it.
        threshold: f32,
    },
    /// All of the bounds that are set are reached.
    Immediate {
        /// Bound of the aleatoric uncertainty.
        aleatoric: Option<f64>,
        /// Bound of the epistemic uncertainty.
        epistemic: Option<f64>,
        /// Bound of the entropy in nats.
        entropy: Option<f32>,
    },
    /// A coin for each position.
    Random {
        /// The chance to be handed over.
        probability: f64,
    },
    /// A moving average of "the aleatoric uncertainty is below this", with hysteresis.
    Momentum {
        /// Simple is strictly below it.
        aleatoric: f64,
    },
    /// A mean over the last few positions holds the other model; what opens and closes it.
    Rolling(Rolling),
}

/// The strategies with a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rolling {
    /// Opens at an uncertain position whose entropy is not tiny either; the window begins with it.
    Aleatoric {
        /// Opens and holds at or above it.
        aleatoric: f64,
        /// A position with less entropy, in nats, is simple all the same.
        entropy: f32,
    },
    /// Opens at an uncertain position; the window begins after it.
    Duo {
        /// Opens and holds at or above it.
        aleatoric: f64,
    },
    /// The same with a trained head's score; the window begins with the position that opens it.
    Neural {
        /// The head at the entry model.
        head: HeadIx,
        /// Opens and holds at or above it.
        threshold: f32,
    },
}

/// How many of the largest logits are evidence.
const EVIDENCE: u16 = 10;

impl Policy for R2r {
    fn needs(&self, at: ModelIx) -> SignalSet {
        if at == self.pair.entry { self.strategy.needs() } else { SignalSet::NONE }
    }

    fn route(&self, step: &StepView<'_>, state: &mut PolicyState) -> Verdict {
        self.pair.one_token(step, || self.strategy.hands_over(step, state))
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        self.pair.models()
    }
}

impl Strategy {
    fn needs(&self) -> SignalSet {
        let none = SignalSet::NONE;
        match *self {
            Self::Neural { head, .. } | Self::Rolling(Rolling::Neural { head, .. }) => {
                SignalSet { head: Some(head), ..none }
            }
            Self::Entropy { .. } => SignalSet { entropy: true, ..none },
            Self::Immediate { aleatoric, epistemic, entropy } => {
                let evidence = aleatoric.is_some() || epistemic.is_some();
                let top_logits = if evidence { EVIDENCE } else { 0 };
                SignalSet { top_logits, entropy: entropy.is_some(), ..none }
            }
            Self::Random { .. } => none,
            Self::Momentum { .. } | Self::Rolling(Rolling::Duo { .. }) => {
                SignalSet { top_logits: EVIDENCE, ..none }
            }
            Self::Rolling(Rolling::Aleatoric { .. }) => {
                SignalSet { top_logits: EVIDENCE, entropy: true, ..none }
            }
        }
    }

    fn hands_over(&self, step: &StepView<'_>, state: &mut PolicyState) -> bool {
        match *self {
            Self::Neural { threshold, .. } => step.head() >= threshold,
            Self::Entropy { threshold } => step.entropy() >= threshold,
            Self::Immediate { aleatoric, epistemic, entropy } => {
                let evidence = LazyCell::new(|| Evidence::of(step.top_logits()));
                aleatoric.is_none_or(|bound| evidence.aleatoric >= bound)
                    && epistemic.is_none_or(|bound| evidence.epistemic >= bound)
                    && entropy.is_none_or(|bound| step.entropy() >= bound)
            }
            Self::Random { probability } => step.draw() < probability,
            Self::Momentum { aleatoric } => {
                let simple = Evidence::of(step.top_logits()).aleatoric < aleatoric;
                memory::momentum(simple, state)
            }
            Self::Rolling(rolling) => rolling.hands_over(step, state),
        }
    }
}

impl Rolling {
    fn hands_over(self, step: &StepView<'_>, state: &mut PolicyState) -> bool {
        let uncertainty = || Evidence::of(step.top_logits()).aleatoric;
        match self {
            Self::Aleatoric { aleatoric, entropy } => {
                let value = uncertainty();
                let opens = value >= aleatoric && step.entropy() >= entropy;
                memory::Window { opens, includes_opening: true }.step(value, aleatoric, state)
            }
            Self::Duo { aleatoric } => {
                let value = uncertainty();
                let opens = value >= aleatoric;
                memory::Window { opens, includes_opening: false }.step(value, aleatoric, state)
            }
            Self::Neural { threshold, .. } => {
                let (value, threshold) = (f64::from(step.head()), f64::from(threshold));
                let opens = value >= threshold;
                memory::Window { opens, includes_opening: true }.step(value, threshold, state)
            }
        }
    }
}

/// Defaults of the reference code: nats, aleatoric uncertainty, nats, a probability.
const ENTROPY: f64 = 0.45;
const ALEATORIC: f64 = 2.275;
const TINY_ENTROPY: f64 = 0.02;
const PROBABILITY: f64 = 0.5;
/// More than any of these numbers can be.
const MOST: f64 = 100.0;

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    #[default]
    Neural,
    Entropy,
    Immediate,
    Random,
    Momentum,
    Rolling,
    DuoRolling,
    NeuralRolling,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    to: String,
    #[serde(default)]
    strategy: Name,
    head: Option<String>,
    threshold: Option<f64>,
    aleatoric: Option<f64>,
    epistemic: Option<f64>,
    entropy: Option<f64>,
    probability: Option<f64>,
}

pub(crate) fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    let settings: Settings = section.parse()?;
    let pair = Pair::build(section, roster, &settings.to)?;
    settings.only_of_the_strategy(section)?;
    let strategy = settings.strategy(section, roster)?;
    Ok(Arc::new(R2r { pair, strategy }))
}

impl Settings {
    /// Refuses a setting that the strategy does not read: it would be without effect.
    fn only_of_the_strategy(&self, section: &PolicySection) -> Result<(), Error> {
        let (name, read): (_, &[&str]) = match self.strategy {
            Name::Neural => ("neural", &["head", "threshold"]),
            Name::Entropy => ("entropy", &["threshold"]),
            Name::Immediate => ("immediate", &["aleatoric", "epistemic", "entropy"]),
            Name::Random => ("random", &["probability"]),
            Name::Momentum => ("momentum", &["aleatoric"]),
            Name::Rolling => ("rolling", &["aleatoric", "entropy"]),
            Name::DuoRolling => ("duo_rolling", &["aleatoric"]),
            Name::NeuralRolling => ("neural_rolling", &["head", "threshold"]),
        };
        let given = [
            ("head", self.head.is_some()),
            ("threshold", self.threshold.is_some()),
            ("aleatoric", self.aleatoric.is_some()),
            ("epistemic", self.epistemic.is_some()),
            ("entropy", self.entropy.is_some()),
            ("probability", self.probability.is_some()),
        ];
        match given.iter().find(|(key, given)| *given && !read.contains(key)) {
            None => Ok(()),
            Some((key, _)) => {
                let known = read.join(", ");
                Err(section
                    .error(key, format!("strategy `{name}` does not read it; it has {known}")))
            }
        }
    }

    fn strategy(
        &self,
        section: &PolicySection,
        roster: &mut Roster<'_>,
    ) -> Result<Strategy, Error> {
        let number = |key: &str, set: Option<f64>, default: f64, most: f64| {
            let value = set.unwrap_or(default);
            within(section, key, value, 0.0, most).map(|()| value)
        };
        let aleatoric = number("aleatoric", self.aleatoric, ALEATORIC, MOST)?;
        Ok(match self.strategy {
            Name::Neural => {
                let (head, threshold) = self.head(section, roster)?;
                Strategy::Neural { head, threshold }
            }
            Name::Entropy => {
                let threshold = number("threshold", self.threshold, ENTROPY, MOST)? as f32;
                Strategy::Entropy { threshold }
            }
            Name::Immediate => {
                let epistemic = number("epistemic", self.epistemic, 0.0, 1.0)?;
                let entropy = number("entropy", self.entropy, 0.0, MOST)? as f32;
                let none_given = self.epistemic.is_none() && self.entropy.is_none();
                Strategy::Immediate {
                    aleatoric: (self.aleatoric.is_some() || none_given).then_some(aleatoric),
                    epistemic: self.epistemic.map(|_| epistemic),
                    entropy: self.entropy.map(|_| entropy),
                }
            }
            Name::Random => {
                let probability = number("probability", self.probability, PROBABILITY, 1.0)?;
                Strategy::Random { probability }
            }
            Name::Momentum => Strategy::Momentum { aleatoric },
            Name::Rolling => {
                let entropy = number("entropy", self.entropy, TINY_ENTROPY, MOST)? as f32;
                Strategy::Rolling(Rolling::Aleatoric { aleatoric, entropy })
            }
            Name::DuoRolling => Strategy::Rolling(Rolling::Duo { aleatoric }),
            Name::NeuralRolling => {
                let (head, threshold) = self.head(section, roster)?;
                Strategy::Rolling(Rolling::Neural { head, threshold })
            }
        })
    }

    fn head(
        &self,
        section: &PolicySection,
        roster: &mut Roster<'_>,
    ) -> Result<(HeadIx, f32), Error> {
        let Some(name) = &self.head else {
            return Err(section.error("head", "is missing; name a head such as `demo:r2r`"));
        };
        let head = roster.find_head(section, name, &[HeadKind::R2r, HeadKind::Linear])?;
        Ok((head.ix, threshold(section, "threshold", self.threshold, &head)?))
    }
}

#[cfg(test)]
mod tests;
