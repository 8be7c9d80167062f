//! SplitReason (arXiv 2504.16379): the entry model asks for help by writing a tag, and the other model writes until it
//! closes it.
//!
//! Both tags are tokens like any other to the models; only the client does not see them.

use crate::registry::Built;
use crate::roster::Roster;
use crate::route::{Hidden, Pair, Policy, StepView, Verdict};
use crate::signals::SignalSet;
use crate::state::PolicyState;
use crate::unit::ModelIx;
use serde::Deserialize;
use smallvec::SmallVec;
use std::sync::Arc;
use tokenrouter_config::PolicySection;

/// A span of the other model between two tags; every token is committed.
#[derive(Clone, Debug)]
pub struct SplitReason {
    /// The models.
    pub pair: Pair,
    /// The tag that hands over, and the one that gives back.
    tags: [String; 2],
    hidden: [Hidden; 2],
}

const OPEN: usize = 0;
const CLOSE: usize = 1;

impl SplitReason {
    /// The policy with these tags, neither of them empty.
    pub fn new(pair: Pair, open: String, close: String) -> Self {
        let hidden = [Hidden::Text(open.clone()), Hidden::Text(close.clone())];
        Self { pair, tags: [open, close], hidden }
    }
}

impl Policy for SplitReason {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        let done = |tag| step.text.completed.contains(tag);
        match step.model == self.pair.to {
            true if done(CLOSE) => Verdict::commit_to(self.pair.entry),
            // A token with both tags in it asks for nothing.
            false if done(OPEN) && !done(CLOSE) => Verdict::commit_to(self.pair.to),
            _ => Verdict::Stay,
        }
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        self.pair.models()
    }

    fn patterns(&self) -> &[String] {
        &self.tags
    }

    fn hidden(&self) -> &[Hidden] {
        &self.hidden
    }
}

pub(crate) fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        open: Option<String>,
        close: Option<String>,
    }
    let settings: Settings = section.parse()?;
    let pair = Pair::build(section, roster, &settings.to)?;
    let open = settings.open.unwrap_or_else(|| "<bigmodel>".to_owned());
    let close = settings.close.unwrap_or_else(|| "</bigmodel>".to_owned());
    for (key, tag) in [("open", &open), ("close", &close)] {
        if !(1..=TAG_MAX).contains(&tag.len()) {
            let length = tag.len();
            return Err(section.error(key, format!("a tag has 1 to {TAG_MAX} bytes, not {length}")));
        }
    }
    if open == close {
        return Err(section.error("close", format!("`{close}` is the opening tag as well")));
    }
    Ok(Arc::new(SplitReason::new(pair, open, close)))
}

/// So much text at most is held back from a client until it is known not to be a tag.
const TAG_MAX: usize = 256;

#[cfg(test)]
mod tests;
