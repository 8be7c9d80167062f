//! A mask around a policy: tokens by which a model defers are never sampled, whatever the route.
//!
//! A model that was trained to defer raises its defer token wherever it is unsure, on every route it takes part in, and
//! other models would not know what to make of it.

use crate::draw::Draws;
use crate::route::{Aux, Hidden, Policy, Proposal, StepView, Verdict};
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::{ModelIx, Position, Token};
use smallvec::SmallVec;
use std::sync::Arc;

/// A policy at whose models some tokens are masked. It decides as the policy does.
#[derive(Debug)]
struct Masked {
    policy: Arc<dyn Policy>,
    masks: SmallVec<[(ModelIx, Token); 4]>,
}

/// Two routes make one model defer by different tokens. Only one can be masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The place of a policy in the list.
    pub policy: usize,
    /// A model of it, or a model that takes part in a route with it.
    pub model: ModelIx,
    /// The tokens.
    pub tokens: [Token; 2],
}

/// Masks, in each of these policies, every token by which one of its models defers under any of them. `knows` says
/// whether a model has a row for a token; one that has none cannot sample it.
///
/// # Errors
/// A model at which two tokens would have to be masked.
pub fn mask_deferrals(
    policies: &mut [Arc<dyn Policy>],
    knows: impl Fn(ModelIx, Token) -> bool,
) -> Result<(), Conflict> {
    let mut deferrals: Vec<(ModelIx, Token)> = Vec::new();
    for policy in policies.iter() {
        let models = policy.models();
        deferrals.extend(models.iter().filter_map(|&m| Some((m, policy.needs(m).defer?))));
    }
    deferrals.sort_unstable();
    deferrals.dedup();
    for (at, policy) in policies.iter_mut().enumerate() {
        let models = policy.models();
        let mut masks = SmallVec::new();
        for &model in &models {
            let own = policy.needs(model).defer;
            let others =
                deferrals.iter().filter(|(m, token)| models.contains(m) && knows(model, *token));
            let mut tokens = own.into_iter().chain(others.map(|(_, token)| *token));
            let Some(first) = tokens.next() else { continue };
            if let Some(other) = tokens.find(|token| *token != first) {
                return Err(Conflict { policy: at, model, tokens: [first, other] });
            }
            if own.is_none() {
                masks.push((model, first));
            }
        }
        if !masks.is_empty() {
            *policy = Arc::new(Masked { policy: Arc::clone(policy), masks });
        }
    }
    Ok(())
}

impl Policy for Masked {
    fn needs(&self, at: ModelIx) -> SignalSet {
        let needs = self.policy.needs(at);
        let mask = self.masks.iter().find(|(model, _)| *model == at).map(|(_, token)| *token);
        SignalSet { defer: needs.defer.or(mask), ..needs }
    }

    fn route(&self, step: &StepView<'_>, state: &mut PolicyState) -> Verdict {
        self.policy.route(step, state)
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        self.policy.models()
    }

    fn entry(&self, draws: &Draws, position: Position) -> Option<ModelIx> {
        self.policy.entry(draws, position)
    }

    fn patterns(&self) -> &[String] {
        self.policy.patterns()
    }

    fn hidden(&self) -> &[Hidden] {
        self.policy.hidden()
    }

    fn send(&self, step: &StepView<'_>, to: ModelIx, state: &PolicyState) -> Aux {
        self.policy.send(step, to, state)
    }

    fn receive(&self, proposal: &Proposal<'_>, state: &mut PolicyState) -> usize {
        self.policy.receive(proposal, state)
    }
}

#[cfg(test)]
mod tests;
