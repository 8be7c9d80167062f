//! A whole policy, as an example of one: the other model writes single tokens where the two best of the entry model are
//! close, but no more of them than a budget allows.

use serde::Deserialize;
use smallvec::SmallVec;
use std::sync::Arc;
use tokenrouter_config::PolicySection;
use tokenrouter_policies::registry::Built;
use tokenrouter_policies::route::Pair;
use tokenrouter_policies::{ModelIx, Policy, PolicyState, Roster, SignalSet, StepView, Verdict};

#[derive(Debug)]
struct Margin {
    pair: Pair,
    least: f32,
    budget: u64,
}

impl Policy for Margin {
    fn needs(&self, at: ModelIx) -> SignalSet {
        SignalSet { margin: at == self.pair.entry, ..SignalSet::NONE }
    }

    fn route(&self, step: &StepView<'_>, state: &mut PolicyState) -> Verdict {
        let spent = state.word(0);
        let close = || step.margin() < self.least && spent < self.budget;
        let verdict = self.pair.one_token(step, close);
        state.set_word(0, spent + u64::from(verdict == Verdict::discard_to(self.pair.to)));
        verdict
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        self.pair.models()
    }
}

/// Reads `{ kind: margin, to: large, least: 0.5, budget: 100 }`.
fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        least: f32,
        budget: u64,
    }
    let Settings { to, least, budget } = section.parse()?;
    Ok(Arc::new(Margin { pair: Pair::build(section, roster, &to)?, least, budget }))
}

fn main() {
    // Here ends the policy. Routing needs no model: what it decides about a few margins of the entry model.
    match decide(&[2.0, 0.1, 0.4, 0.3, 0.2]) {
        Ok(verdicts) => println!("{verdicts:#?}"),
        Err(error) => eprintln!("{error}"),
    }
}

/// The verdicts about steps of the model `small` with these margins, one after the other.
fn decide(margins: &[f32]) -> Result<Vec<Verdict>, tokenrouter_config::Error> {
    use tokenrouter_policies::{Assets, Draws, Head, Signals, TextFacts, Token, TokenName};

    struct Nothing;

    impl Assets for Nothing {
        fn head(&mut self, _model: ModelIx, name: &str) -> Result<Head, String> {
            Err(format!("there is no head `{name}`"))
        }

        fn token(&mut self, _model: ModelIx, name: &TokenName) -> Result<Token, String> {
            Err(format!("there is no token `{name}`"))
        }
    }

    let names = ["large".to_owned(), "small".to_owned()];
    let entry = ModelIx(1);
    let mut roster = Roster { names: &names, entry, assets: &mut Nothing };
    let section = PolicySection::from_yaml("{ kind: margin, to: large, least: 0.5, budget: 2 }")?;
    let policy = build(&section, &mut roster)?;
    let mut state = PolicyState::default();
    let verdict = |(position, &margin): (u32, &f32)| {
        let signals = Signals { margin: Some(margin), ..Signals::default() };
        let step = StepView {
            model: entry,
            position,
            prompt: 5,
            token: 1,
            bytes: b"a",
            signals: &signals,
            text: TextFacts::default(),
            draws: Draws::new(1, 0),
        };
        policy.route(&step, &mut state)
    };
    Ok((5..).zip(margins).map(verdict).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_margins_hand_over_until_the_budget_is_spent() {
        let away = Verdict::discard_to(ModelIx(0));
        let verdicts = decide(&[2.0, 0.1, 0.5, 0.4, 0.2]);
        assert_eq!(verdicts, Ok(vec![Verdict::Stay, away, Verdict::Stay, away, Verdict::Stay]));
    }

    #[test]
    fn the_documentation_shows_this_very_policy() {
        let source = include_str!("margin.rs");
        let policy = source.split("\nfn main() {").next().unwrap();
        let documentation = include_str!("../../docs/policies.md");
        assert!(documentation.contains(policy.trim()), "copy the policy to docs/policies.md");
    }
}
