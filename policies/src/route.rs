//! The routing trait: route, send, receive, from the viewpoint of one request (TokenRouter, section 4).

use crate::draw::{Draws, Purpose};
use crate::signals::{SignalSet, Signals};
use crate::state::PolicyState;
use crate::unit::{ModelIx, Position, Token};
use smallvec::SmallVec;
use std::fmt::Debug;

pub mod baseline;
pub mod citer;
pub mod co_llm;
pub mod ensemble;
pub mod expression;
pub mod glimp;
pub mod pair;
pub mod r2r;
pub mod r_stitch;
pub mod relay;
pub mod split_reason;

pub use pair::Pair;

/// A routing algorithm. One value serves every request of a route, on every model of it, so what it remembers of a
/// request lives in [`PolicyState`] and nowhere else.
pub trait Policy: Debug + Send + Sync {
    /// Which signals the engine must compute at model `at`.
    fn needs(&self, at: ModelIx) -> SignalSet;

    /// Where the request goes after this step, and what becomes of the token just sampled.
    fn route(&self, step: &StepView<'_>, state: &mut PolicyState) -> Verdict;

    /// Every model this policy may name, the entry model included. Known at start, so that a topology can be checked
    /// and `Finish` reaches all of them.
    fn models(&self) -> SmallVec<[ModelIx; 4]>;

    /// The model of the first token; `None` for the route's entry model. `position` is the length of the prompt.
    fn entry(&self, _draws: &Draws, _position: Position) -> Option<ModelIx> {
        None
    }

    /// Strings of the text this policy wants to be told of; at most 64. Their order numbers them in [`Patterns`].
    fn patterns(&self) -> &[String] {
        &[]
    }

    /// Text by which models steer and which no client is to see; every model sees it.
    fn hidden(&self) -> &[Hidden] {
        &[]
    }

    /// Algorithm-specific bytes that travel to the next owner with a handoff.
    fn send(&self, _step: &StepView<'_>, _to: ModelIx, _state: &PolicyState) -> Aux {
        Aux::new()
    }

    /// How many of the proposed tokens, from the first, the receiving model accepts. The receiver has computed its own
    /// view of every proposed position; what it accepts it commits.
    fn receive(&self, _proposal: &Proposal<'_>, _state: &mut PolicyState) -> usize {
        0
    }
}

/// What a policy decides after a decode step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The token is offered and this model goes on.
    Stay,
    /// Another model takes over.
    Handoff {
        /// The model that owns the next turn.
        to: ModelIx,
        /// What becomes of the token this model just sampled.
        just_sampled: JustSampled,
    },
}

impl Verdict {
    /// The token is part of the text, and `to` writes the next one.
    pub const fn commit_to(to: ModelIx) -> Self {
        Self::Handoff { to, just_sampled: JustSampled::Commit }
    }

    /// The token enters nothing, and `to` writes that position instead.
    pub const fn discard_to(to: ModelIx) -> Self {
        Self::Handoff { to, just_sampled: JustSampled::Discard }
    }
}

/// What becomes of the just-sampled token at a handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JustSampled {
    /// It is offered to home and becomes part of the text.
    Commit,
    /// It enters nothing: the next model writes that position.
    Discard,
    /// It travels apart from the text; the next model's [`Policy::receive`] judges it.
    Propose,
}

/// Algorithm-specific bytes of a handoff; up to 32 stay inline.
pub type Aux = SmallVec<[u8; 32]>;

/// Text that is kept from the client. It is matched as soon as it can be, and what has to wait for more text to be one of
/// these is held back so long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// This text.
    Text(String),
    /// A number between two texts.
    Number {
        /// What stands before the number; not empty.
        open: String,
        /// What stands after it; not empty, and its first byte is no digit.
        close: String,
        /// The number has 1 to so many decimal digits.
        digits_max: u8,
    },
}

/// A set of pattern numbers (the order of [`Policy::patterns`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patterns(pub u64);

impl Patterns {
    /// Whether pattern number `index` is in the set.
    pub fn contains(self, index: usize) -> bool {
        index < 64 && self.0 >> index & 1 == 1
    }
}

/// Facts about the text, from the byte automaton over the policy's patterns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextFacts {
    /// The patterns that the just-sampled token completes, if it is committed.
    pub completed: Patterns,
    /// The pattern completed most recently before this token, the prompt included.
    pub latest: Option<u8>,
}

/// What a policy sees of one request after one decode step.
#[derive(Debug)]
pub struct StepView<'a> {
    /// The model that computed this step.
    pub model: ModelIx,
    /// The position the sampled token stands at.
    pub position: Position,
    /// The length of the prompt: the first token of the reply stands at `position == prompt`.
    pub prompt: Position,
    /// The token sampled from this model's distribution.
    pub token: Token,
    /// The bytes that token stands for; a control token's are its name.
    pub bytes: &'a [u8],
    /// The signals [`Policy::needs`] asked for at this model.
    pub signals: &'a Signals,
    /// Facts about the text up to and including the sampled token.
    pub text: TextFacts,
    /// The request's random draws.
    pub draws: Draws,
}

impl StepView<'_> {
    /// Entropy in nats.
    pub fn entropy(&self) -> f32 {
        needed(self.signals.entropy, "entropy")
    }

    /// Entropy divided by ln V, in `[0, 1]`.
    pub fn entropy_normalised(&self) -> f32 {
        needed(self.signals.entropy_normalised, "entropy")
    }

    /// Probability of the most likely token.
    pub fn max_probability(&self) -> f32 {
        needed(self.signals.max_probability, "max_probability")
    }

    /// Difference between the two largest raw logits.
    pub fn margin(&self) -> f32 {
        needed(self.signals.margin, "margin")
    }

    /// Sigmoid of the defer token's logit.
    pub fn defer(&self) -> f32 {
        needed(self.signals.defer, "defer")
    }

    /// Score of the router head.
    pub fn head(&self) -> f32 {
        needed(self.signals.head, "head")
    }

    /// The largest raw logits, sorted descending: as many as were asked for, if the vocabulary has them.
    pub fn top_logits(&self) -> &[f32] {
        needed(self.signals.top_logits.as_deref(), "top_logits")
    }

    /// The route draw of this step's own position, uniform in `[0, 1)`.
    pub fn draw(&self) -> f64 {
        self.draws.uniform(self.position, Purpose::Route)
    }

    /// The route draw of the position after this one, uniform in `[0, 1)`.
    pub fn draw_next(&self) -> f64 {
        self.draws.uniform(self.position + 1, Purpose::Route)
    }
}

/// The proposed tokens and what the receiving model thinks of each.
#[derive(Debug)]
pub struct Proposal<'a> {
    /// The proposed tokens, in order.
    pub tokens: &'a [Token],
    /// The receiver's own view of each proposed position: `own[i].token` is what it would have written there.
    pub own: &'a [StepView<'a>],
    /// The bytes [`Policy::send`] gave along.
    pub aux: &'a [u8],
}

/// A signal the policy has asked for. A policy that reads one it did not list in `needs` is wrong in every step, so it
/// is told at its first.
fn needed<T>(signal: Option<T>, name: &str) -> T {
    match signal {
        Some(value) => value,
        None => panic!("the policy reads the signal `{name}` but does not list it in `needs`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_patterns_has_sixty_four_places() {
        let set = Patterns(1 | 1 << 5 | 1 << 63);
        let found: Vec<usize> = (0..200).filter(|&index| set.contains(index)).collect();
        assert_eq!(found, [0, 5, 63]);
    }
}
