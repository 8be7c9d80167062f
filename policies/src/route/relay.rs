//! RelayLLM (arXiv 2601.05167): the entry model writes `<call>n</call>`, and the other model writes the next `n` tokens.
//!
//! The tag stays in every model's view and is hidden from the client alone. (The paper also hides it from the larger
//! model; here all models of a route see one sequence.)

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

/// Spans of the other model whose length the entry model asks for; every token is committed.
#[derive(Clone, Debug)]
pub struct Relay {
    /// The models.
    pub pair: Pair,
    /// Calls beyond this many in a reply are without effect.
    pub calls_max: u32,
    hidden: [Hidden; 1],
}

/// The tag, without the number in it.
const OPEN: &str = "<call>";
const CLOSE: &str = "</call>";
/// Numbers with more digits are no calls.
const DIGITS_MAX: u8 = 6;

/// The words of the state: how much of a tag the text ends with, the number in it, tokens that the other model still
/// has to write, calls made.
const MATCHED: usize = 0;
const NUMBER: usize = 1;
const LEFT: usize = 2;
const CALLS: usize = 3;

impl Relay {
    /// The policy with this bound.
    pub fn new(pair: Pair, calls_max: u32) -> Self {
        let (open, close) = (OPEN.to_owned(), CLOSE.to_owned());
        Self { pair, calls_max, hidden: [Hidden::Number { open, close, digits_max: DIGITS_MAX }] }
    }
}

impl Policy for Relay {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, state: &mut PolicyState) -> Verdict {
        if step.model == self.pair.to {
            let left = state.word(LEFT).saturating_sub(1);
            state.set_word(LEFT, left);
            return if left == 0 { Verdict::commit_to(self.pair.entry) } else { Verdict::Stay };
        }
        let mut tag = Tag { matched: state.word(MATCHED) as usize, number: state.word(NUMBER) };
        let called = step.bytes.iter().filter_map(|&byte| tag.advance(byte)).last().unwrap_or(0);
        let calls = state.word(CALLS);
        let taken = called > 0 && calls < u64::from(self.calls_max);
        if taken {
            tag = Tag::default();
        }
        state.set_word(MATCHED, tag.matched as u64);
        state.set_word(NUMBER, tag.number);
        if !taken {
            return Verdict::Stay;
        }
        state.set_word(LEFT, called);
        state.set_word(CALLS, calls + 1);
        Verdict::commit_to(self.pair.to)
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        self.pair.models()
    }

    fn hidden(&self) -> &[Hidden] {
        &self.hidden
    }
}

/// How much of `<call>n</call>` is matched: the bytes of `OPEN`, then a place for each digit there may be, then the bytes
/// of `CLOSE`.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    matched: usize,
    number: u64,
}

const DIGITS_FROM: usize = OPEN.len();
const DIGITS_TO: usize = DIGITS_FROM + DIGITS_MAX as usize;
const WHOLE: usize = DIGITS_TO + CLOSE.len();

impl Tag {
    /// Takes a byte; the number of the tag that ends with it.
    fn advance(&mut self, byte: u8) -> Option<u64> {
        let at = self.matched;
        let next = match at {
            _ if at < DIGITS_FROM => (byte == OPEN.as_bytes()[at]).then_some(at + 1),
            _ if at < DIGITS_TO && byte.is_ascii_digit() => Some(at + 1),
            _ if at == DIGITS_FROM => None,
            _ if at <= DIGITS_TO => (byte == CLOSE.as_bytes()[0]).then_some(DIGITS_TO + 1),
            _ => (byte == CLOSE.as_bytes()[at - DIGITS_TO]).then_some(at + 1),
        };
        match next {
            None => *self = Self { matched: Self::restart(at, byte), number: 0 },
            Some(WHOLE) => return Some(std::mem::take(self).number),
            Some(next) => {
                self.matched = next;
                if (DIGITS_FROM + 1..=DIGITS_TO).contains(&next) {
                    self.number = self.number * 10 + u64::from(byte - b'0');
                }
            }
        }
        None
    }

    /// How much of a new tag the text ends with where `byte` did not go on with the old one at `at`. Both halves of a tag
    /// begin with the same byte, and neither has it again.
    fn restart(at: usize, byte: u8) -> usize {
        match at == DIGITS_TO + 1 && byte == OPEN.as_bytes()[1] {
            true => 2,
            false => usize::from(byte == OPEN.as_bytes()[0]),
        }
    }
}

pub(crate) fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        calls_max: Option<u32>,
    }
    let settings: Settings = section.parse()?;
    let pair = Pair::build(section, roster, &settings.to)?;
    // The bound of the paper.
    Ok(Arc::new(Relay::new(pair, settings.calls_max.unwrap_or(5))))
}

#[cfg(test)]
mod tests;
