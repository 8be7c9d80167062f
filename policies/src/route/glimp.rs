//! GlimpRouter (arXiv 2601.05110; reference code Zengwh02/GlimpRouter): one look at the first token of each reasoning
//! step decides which model writes the step.
//!
//! Steps are separated by an empty line. Where the entry model is unsure how a step begins, its token is discarded and
//! the other model writes the whole step, delimiter included. The answer after the thinking is the other model's. A
//! token that the entry model is sure of is kept: writing the step anew with other sampling, as the reference code does
//! between two servers, would waste it.

use crate::registry::Built;
use crate::roster::Roster;
use crate::route::{Pair, Patterns, Policy, StepView, Verdict};
use crate::settings::within;
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::{ModelIx, Position};
use serde::Deserialize;
use smallvec::SmallVec;
use std::sync::Arc;
use tokenrouter_config::PolicySection;

/// Steps of the other model where the entry model's entropy at their first token is at or above the threshold.
#[derive(Clone, Debug)]
pub struct Glimp {
    /// The models.
    pub pair: Pair,
    /// In nats; handed over at or above it.
    pub threshold: f32,
    /// The entropy is that of this many of the largest logits, renormalised; 0 for the whole distribution.
    pub top: u16,
    /// What of the reply is divided into steps.
    pub scope: Scope,
    /// A step ends after this many tokens, if not before.
    pub step_max: u32,
    patterns: Vec<String>,
}

/// What of a reply is divided into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What stands between `<think>` and `</think>`. What comes before is the entry model's, what comes after the other's.
    Thinking {
        /// A reply with so many tokens is taken to be done with thinking.
        tokens_max: Position,
    },
    /// Everything.
    Whole,
}

/// The patterns of a policy, by their numbers. The last two tell `<think>` and `</think>` at the end of a prompt from
/// an empty line that merely stands in it.
const DELIMITER: usize = 0;
const OPEN: u8 = 1;
const CLOSE: u8 = 2;
const OPEN_DELIMITER: u8 = 3;
const CLOSE_DELIMITER: u8 = 4;
const PATTERNS: [&str; 5] = ["\n\n", "<think>", "</think>", "<think>\n\n", "</think>\n\n"];

impl Glimp {
    /// The policy of these settings.
    pub fn new(pair: Pair, threshold: f32, top: u16, scope: Scope, step_max: u32) -> Self {
        let count = if scope == Scope::Whole { 1 } else { PATTERNS.len() };
        let patterns = PATTERNS[..count].iter().map(|&pattern| pattern.to_owned()).collect();
        Self { pair, threshold, top, scope, step_max, patterns }
    }

    fn unsure(&self, step: &StepView<'_>) -> bool {
        let entropy = match self.top {
            0 => step.entropy(),
            _ => entropy_of(step.top_logits()),
        };
        entropy >= self.threshold
    }
}

impl Policy for Glimp {
    fn needs(&self, at: ModelIx) -> SignalSet {
        if at != self.pair.entry {
            return SignalSet::NONE;
        }
        SignalSet { entropy: self.top == 0, top_logits: self.top, ..SignalSet::NONE }
    }

    fn route(&self, step: &StepView<'_>, state: &mut PolicyState) -> Verdict {
        let mut place = Place::read(step, state, self.scope);
        let at_entry = step.model == self.pair.entry;
        let unsure = || place.phase == Phase::Thinking && place.at_start && self.unsure(step);
        if at_entry && (place.phase == Phase::Answer || unsure()) {
            place.at_start = false;
            place.write(state);
            return Verdict::discard_to(self.pair.to);
        }
        place.advance(step.text.completed, self.step_max);
        place.write(state);
        match (at_entry, place.phase) {
            (true, Phase::Answer) => Verdict::commit_to(self.pair.to),
            (false, Phase::Thinking) if place.at_start => Verdict::commit_to(self.pair.entry),
            _ => Verdict::Stay,
        }
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        self.pair.models()
    }

    fn patterns(&self) -> &[String] {
        &self.patterns
    }
}

/// Where a reply stands: word 0 is the phase, word 1 whether the next token begins a step, word 2 the tokens in the step.
#[derive(Clone, Copy, Debug)]
struct Place {
    phase: Phase,
    at_start: bool,
    in_step: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before = 1,
    Thinking = 2,
    Answer = 3,
}

impl Place {
    fn read(step: &StepView<'_>, state: &PolicyState, scope: Scope) -> Self {
        let mut place = match state.word(0) {
            0 => {
                return Self {
                    phase: Phase::first(step.text.latest, scope),
                    at_start: true,
                    in_step: 0,
                };
            }
            1 => Self { phase: Phase::Before, at_start: false, in_step: 0 },
            2 => Self {
                phase: Phase::Thinking,
                at_start: state.word(1) == 1,
                in_step: state.word(2) as u32,
            },
            _ => Self { phase: Phase::Answer, at_start: false, in_step: 0 },
        };
        if let Scope::Thinking { tokens_max } = scope
            && place.phase == Phase::Thinking
            && step.position - step.prompt >= tokens_max
        {
            place.phase = Phase::Answer;
        }
        place
    }

    fn write(self, state: &mut PolicyState) {
        state.set_word(0, self.phase as u64);
        state.set_word(1, u64::from(self.at_start));
        state.set_word(2, u64::from(self.in_step));
    }

    /// One more token is part of the text.
    fn advance(&mut self, completed: Patterns, step_max: u32) {
        if completed.contains(CLOSE.into()) {
            self.phase = Phase::Answer;
        } else if completed.contains(OPEN.into()) {
            *self = Self { phase: Phase::Thinking, at_start: true, in_step: 0 };
            return;
        }
        self.in_step += 1;
        self.at_start = completed.contains(DELIMITER) || self.in_step >= step_max;
        if self.at_start {
            self.in_step = 0;
        }
    }
}

impl Phase {
    /// The phase of the first token, by the pattern that was last completed in the prompt.
    fn first(latest: Option<u8>, scope: Scope) -> Self {
        match latest {
            _ if scope == Scope::Whole => Self::Thinking,
            Some(OPEN | OPEN_DELIMITER) => Self::Thinking,
            Some(CLOSE | CLOSE_DELIMITER) => Self::Answer,
            _ => Self::Before,
        }
    }
}

/// The entropy in nats of a distribution that has these logits alone, the largest first.
fn entropy_of(logits: &[f32]) -> f32 {
    let Some(&largest) = logits.first() else { return 0.0 };
    let distances = logits.iter().map(|&logit| f64::from(logit) - f64::from(largest));
    let (mut total, mut weighted) = (0.0, 0.0);
    // A token that cannot be is at minus infinity, and minus infinity times 0 would not be a number.
    for distance in distances.filter(|distance| distance.is_finite()) {
        total += distance.exp();
        weighted += distance * distance.exp();
    }
    (total.ln() - weighted / total) as f32
}

/// Defaults of the reference code: nats, logits, tokens, tokens.
const THRESHOLD: f64 = 1.0;
const TOP: u16 = 20;
const STEP_MAX: u32 = 512;
const THINKING_MAX: u32 = 8192;
/// More nats than any vocabulary has room for.
const MOST: f64 = 100.0;
const TOP_MAX: u16 = 1000;

pub(crate) fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Named {
        Thinking,
        Whole,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        threshold: Option<f64>,
        top: Option<u16>,
        scope: Option<Named>,
        step_max: Option<u32>,
        thinking_max: Option<u32>,
    }
    let settings: Settings = section.parse()?;
    let pair = Pair::build(section, roster, &settings.to)?;
    let threshold = settings.threshold.unwrap_or(THRESHOLD);
    within(section, "threshold", threshold, 0.0, MOST)?;
    let top = settings.top.unwrap_or(TOP);
    within(section, "top", top.into(), 0.0, TOP_MAX.into())?;
    let step_max = settings.step_max.unwrap_or(STEP_MAX);
    within(section, "step_max", step_max.into(), 1.0, u32::MAX.into())?;
    let scope = match (settings.scope, settings.thinking_max) {
        (Some(Named::Whole), None) => Scope::Whole,
        (Some(Named::Whole), Some(_)) => {
            return Err(section.error("thinking_max", "scope `whole` does not read it"));
        }
        (_, tokens_max) => Scope::Thinking { tokens_max: tokens_max.unwrap_or(THINKING_MAX) },
    };
    Ok(Arc::new(Glimp::new(pair, threshold as f32, top, scope, step_max)))
}

#[cfg(test)]
mod tests;
