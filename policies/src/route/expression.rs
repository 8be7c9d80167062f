//! Conditions written in the topology, for experiments without compiling: which numbers of a step hand it over, and which
//! give it back.
//!
//! The language is CEL's (Common Expression Language) arithmetic, comparison and logic over a few variables; all numbers
//! are floating-point. An expression is checked and turned into a tree when the topology is read, so that nothing can go
//! wrong, and nothing is allocated, while tokens are written.

use crate::head::{HeadIx, HeadKind};
use crate::registry::Built;
use crate::roster::Roster;
use crate::route::{Policy, StepView, Verdict};
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::ModelIx;
use condition::{Condition, Variable};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokenrouter_config::{Error, PolicySection};

mod condition;

/// The entry model writes; where a condition holds its token is discarded and another model writes until its own step
/// meets `back`.
#[derive(Clone, Debug)]
pub struct Expression {
    entry: ModelIx,
    /// Asked at the entry model in this order; the first that holds decides.
    away: Vec<(ModelIx, Condition)>,
    /// Asked at the other models; the token it holds for is committed. Without it, every token gives back.
    back: Option<Condition>,
    /// The head of the entry model, if a condition reads it.
    head: Option<HeadIx>,
}

impl Policy for Expression {
    fn needs(&self, at: ModelIx) -> SignalSet {
        let reads = |variable| match at == self.entry {
            true => self.away.iter().any(|(_, condition)| condition.reads(variable)),
            false => self.back.as_ref().is_some_and(|condition| condition.reads(variable)),
        };
        SignalSet {
            entropy: reads(Variable::Entropy) || reads(Variable::EntropyNormalised),
            max_probability: reads(Variable::MaxProbability),
            margin: reads(Variable::Margin),
            head: self.head.filter(|_| reads(Variable::Head)),
            ..SignalSet::NONE
        }
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        if step.model == self.entry {
            let away = self.away.iter().find(|(_, condition)| condition.holds(step));
            return away.map_or(Verdict::Stay, |(to, _)| Verdict::discard_to(*to));
        }
        match self.back.as_ref().is_none_or(|condition| condition.holds(step)) {
            true => Verdict::commit_to(self.entry),
            false => Verdict::Stay,
        }
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        std::iter::once(self.entry).chain(self.away.iter().map(|(to, _)| *to)).collect()
    }
}

/// Settings: `to_NAME: CONDITION` for each model to hand over to, `back: CONDITION`, `head: HEAD`.
pub(crate) fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    let settings: BTreeMap<String, String> = section.parse()?;
    let mut policy = Expression { entry: roster.entry, away: Vec::new(), back: None, head: None };
    for (key, text) in &settings {
        match (key.as_str(), key.strip_prefix("to_")) {
            ("head", _) => {
                let kinds = [HeadKind::R2r, HeadKind::Citer, HeadKind::Linear];
                policy.head = Some(roster.find_head(section, text, &kinds)?.ix);
            }
            ("back", _) => policy.back = Some(condition(section, key, text)?),
            (_, Some(name)) => {
                let to = roster.find_other(section, key, name)?;
                policy.away.push((to, condition(section, key, text)?));
            }
            _ => {
                let known = "`to_MODEL`, `back` or `head`";
                return Err(
                    section.error(key, format!("is no setting of this policy; it has {known}"))
                );
            }
        }
    }
    if policy.away.is_empty() {
        return Err(section.error("", "write a condition for at least one model, `to_MODEL: ...`"));
    }
    policy.check_head(section)?;
    Ok(Arc::new(policy))
}

fn condition(section: &PolicySection, key: &str, text: &str) -> Result<Condition, Error> {
    Condition::parse(text).map_err(|fault| section.error(key, format!("`{text}`: {fault}")))
}

impl Expression {
    /// A head is asked for exactly where it is read, which is at the entry model alone.
    fn check_head(&self, section: &PolicySection) -> Result<(), Error> {
        let read = self.away.iter().any(|(_, condition)| condition.reads(Variable::Head));
        if self.back.as_ref().is_some_and(|condition| condition.reads(Variable::Head)) {
            return Err(section.error("back", "`head` is a number of the entry model alone"));
        }
        match (read, self.head) {
            (true, None) => Err(section.error("head", "is missing, but a condition reads `head`")),
            (false, Some(_)) => Err(section.error("head", "no condition reads `head`")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
