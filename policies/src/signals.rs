//! The numbers a policy may ask for. The engine computes them batched, from raw logits before temperature, on the
//! model's device; only what is asked for is computed.

use crate::head::HeadIx;
use crate::unit::Token;

/// Which signals a policy needs at one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalSet {
    /// Entropy of the next-token distribution, in nats and divided by ln V.
    pub entropy: bool,
    /// Probability of the most likely token.
    pub max_probability: bool,
    /// Difference between the two largest raw logits.
    pub margin: bool,
    /// How many of the largest raw logits, sorted descending; 0 for none.
    pub top_logits: u16,
    /// The final hidden state after the last norm (the lm_head input).
    pub hidden: bool,
    /// The sigmoid of this token's logit (Co-LLM). The token is then masked: it enters no other signal and is never sampled.
    pub defer: Option<Token>,
    /// The score of this router head.
    pub head: Option<HeadIx>,
}

impl SignalSet {
    /// Nothing but the sampled token.
    pub const NONE: Self = Self {
        entropy: false,
        max_probability: false,
        margin: false,
        top_logits: 0,
        hidden: false,
        defer: None,
        head: None,
    };
}

/// The signals of one position. A signal nobody asked for is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    /// Entropy in nats over the full vocabulary.
    pub entropy: Option<f32>,
    /// Entropy divided by ln V, where V is the logits' last dimension: in `[0, 1]`.
    pub entropy_normalised: Option<f32>,
    /// Probability of the most likely token, in `(0, 1]`.
    pub max_probability: Option<f32>,
    /// Largest raw logit minus the second largest, at least 0.
    pub margin: Option<f32>,
    /// Sigmoid of the defer token's logit, in `(0, 1)`.
    pub defer: Option<f32>,
    /// Score of the router head.
    pub head: Option<f32>,
    /// The largest raw logits, sorted descending.
    pub top_logits: Option<Box<[f32]>>,
    /// The final hidden state after the last norm, `[hidden]`.
    pub hidden: Option<Box<[f32]>>,
}
