//! What the tests of all policies share: steps made of the numbers that matter, a topology of three models, and heads
//! and tokens that exist nowhere else.

use crate::draw::Draws;
use crate::head::{Head, HeadIx, HeadKind};
use crate::registry;
use crate::roster::{Assets, Roster, TokenName};
use crate::route::{Policy, StepView, TextFacts, Verdict};
use crate::signals::Signals;
use crate::state::PolicyState;
use crate::unit::{ModelIx, Position, Token};
use std::sync::Arc;
use tokenrouter_config::PolicySection;

/// The models of [`built`], sorted by name.
pub(crate) const LARGE: ModelIx = ModelIx(0);
pub(crate) const MID: ModelIx = ModelIx(1);
pub(crate) const SMALL: ModelIx = ModelIx(2);

/// The length of every prompt here.
pub(crate) const PROMPT: Position = 5;

/// One decode step; the rest is as it would be for the first token of a reply.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) model: ModelIx,
    pub(crate) position: Position,
    pub(crate) token: Token,
    pub(crate) bytes: &'static str,
    pub(crate) signals: Signals,
    pub(crate) text: TextFacts,
    pub(crate) seed: u64,
}

/// A step of `model` with these signals.
pub(crate) fn step(model: ModelIx, signals: Signals) -> Step {
    let text = TextFacts::default();
    Step { model, position: PROMPT, token: 1, bytes: "", signals, text, seed: 1 }
}

impl Step {
    /// What `policy` decides about it.
    pub(crate) fn route(&self, policy: &dyn Policy, state: &mut PolicyState) -> Verdict {
        let view = StepView {
            model: self.model,
            position: self.position,
            prompt: PROMPT,
            token: self.token,
            bytes: self.bytes.as_bytes(),
            signals: &self.signals,
            text: self.text,
            draws: Draws::new(self.seed, 0),
        };
        policy.route(&view, state)
    }
}

/// The next larger float.
pub(crate) fn above(x: f32) -> f32 {
    f32::from_bits(x.to_bits() + 1)
}

/// The next smaller float.
pub(crate) fn below(x: f32) -> f32 {
    f32::from_bits(x.to_bits() - 1)
}

/// The policy of a section, for a route that enters at `small`; otherwise key and reason.
pub(crate) fn built(text: &str) -> Result<Arc<dyn Policy>, String> {
    let names = ["large".to_owned(), "mid".to_owned(), "small".to_owned()];
    let section = PolicySection::from_yaml(text).map_err(|e| e.to_string())?;
    let mut roster = Roster { names: &names, entry: SMALL, assets: &mut Shelf };
    registry::build(&section, &mut roster).map_err(|e| format!("{}: {}", e.key, e.reason))
}

/// Three heads, all at every model, and a vocabulary in which only small and mid know how to defer.
#[derive(Debug)]
struct Shelf;

impl Assets for Shelf {
    fn head(&mut self, _model: ModelIx, name: &str) -> Result<Head, String> {
        let (ix, kind, threshold) = match name {
            "demo:r2r" => (1, HeadKind::R2r, Some(0.25)),
            "demo:citer" => (2, HeadKind::Citer, Some(0.75)),
            "linear" => (3, HeadKind::Linear, None),
            _ => return Err(format!("there is no head `{name}`")),
        };
        Ok(Head { ix: HeadIx(ix), kind, threshold })
    }

    fn token(&mut self, model: ModelIx, name: &TokenName) -> Result<Token, String> {
        let rows = if model == LARGE { 100 } else { 110 };
        match name {
            TokenName::Id(id) if *id < rows => Ok(*id),
            TokenName::Text(text) if text == "<|defer|>" && rows == 110 => Ok(105),
            TokenName::Text(text) if text == "<pad>" => Ok(7),
            _ => Err(format!("there is no token `{name}`")),
        }
    }
}
