//! What both ends of the protocol know of a route: its models, its policy, and the vocabulary they share.

use crate::text::{HiddenSet, PatternSet, Vocabulary};
use smallvec::SmallVec;
use std::sync::Arc;
use tokenrouter_policies::{Draws, ModelIx, Policy, Position};

/// A route as homes and hosts use it. Built once at start, the same on every node.
#[derive(Clone, Debug)]
pub struct Route {
    /// The model of the first token unless the policy says otherwise; its EOS tokens and vocabulary are the route's.
    pub entry: ModelIx,
    /// Every model that can get a turn.
    pub models: SmallVec<[ModelIx; 4]>,
    /// Decides after every step.
    pub policy: Arc<dyn Policy>,
    /// Bytes and EOS tokens, of the entry model.
    pub vocabulary: Arc<Vocabulary>,
    /// The strings the policy wants to be told of.
    pub patterns: PatternSet,
    /// The text that the policy keeps from clients.
    pub hidden: HiddenSet,
    /// What becomes of its requests when one of its models is out of reach for good.
    pub on_loss: OnLoss,
}

/// What becomes of a request when a model that it needs is out of reach for longer than `grace`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// It waits until the model is back.
    #[default]
    Wait,
    /// It is finished by one of the models that are left, and its client is told so.
    Fallback,
    /// It fails.
    Fail,
}

impl Route {
    /// A route that enters at `entry`.
    pub fn new(entry: ModelIx, policy: Arc<dyn Policy>, vocabulary: Arc<Vocabulary>) -> Self {
        let mut models = policy.models();
        if !models.contains(&entry) {
            models.push(entry);
        }
        models.sort();
        models.dedup();
        let patterns = PatternSet::new(policy.patterns());
        let hidden = HiddenSet::new(policy.hidden());
        let on_loss = OnLoss::default();
        Self { entry, models, policy, vocabulary, patterns, hidden, on_loss }
    }

    /// The same route, on which a loss has other consequences.
    pub fn on_loss(self, on_loss: OnLoss) -> Self {
        Self { on_loss, ..self }
    }

    /// The owner of the first turn of a request whose prompt has `prompt` tokens.
    pub fn first_owner(&self, draws: &Draws, prompt: Position) -> ModelIx {
        self.policy.entry(draws, prompt).unwrap_or(self.entry)
    }
}
