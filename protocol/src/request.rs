//! A request as it enters a home, and what leaves for its client: progress, then exactly one outcome.

use crate::step::{Sampling, Tokens};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use thiserror::Error;
use tokenrouter_policies::{Draws, ModelIx, Position, Token};

/// A route of the topology, by its place in the sorted list of routes: the same number on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RouteIx(pub u16);

impl RouteIx {
    /// The index as a `usize`.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// One choice to generate. Validated at the edge: the prompt is not empty, its tokens are in the vocabulary, and
/// `prompt.len() + max_tokens` is at most the route's context.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// How models are combined.
    pub route: RouteIx,
    /// The rendered prompt.
    pub prompt: Vec<Token>,
    /// The most tokens to commit, at least 1.
    pub max_tokens: Position,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Seed and choice.
    pub draws: Draws,
    /// Strings that end the reply and are not part of it; none is empty.
    pub stop: Vec<String>,
    /// Go on past the entry model's EOS tokens, which are then text like any other.
    pub ignore_eos: bool,
}

/// A piece of the reply: tokens of one model, and the text that may be shown now. Text that may still turn out to be
/// half a character or the start of a stop string comes with a later piece.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The model that wrote the tokens.
    pub model: ModelIx,
    /// The committed tokens.
    pub tokens: Tokens,
    /// New text; may be empty.
    pub text: String,
}

/// Why a reply ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The entry model's EOS token.
    Eos(Token),
    /// A stop string of the request.
    Stop(String),
    /// `max_tokens` were committed.
    Length,
}

/// What one model did for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Tokens it wrote that became part of the reply.
    pub committed: u32,
    /// Tokens it sampled, those that were discarded or cut off included.
    pub generated: u32,
    /// Positions its forward passes computed.
    pub computed: u32,
    /// Turns that were handed to it by another model.
    pub handoffs: u32,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Committed tokens of the reply.
    pub completion_tokens: u32,
    /// What each model of the route did.
    pub shares: SmallVec<[(ModelIx, Share); 4]>,
    /// The models that were out of reach, without which the reply was finished.
    pub without: SmallVec<[ModelIx; 4]>,
}

/// Why a request could not be finished.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// As many requests as `limits.requests` allows are in flight.
    #[error("the server is handling as many requests as it may ({limit}); try again later")]
    Busy {
        /// The limit.
        limit: usize,
    },
    /// The server is shutting down and takes no new requests.
    #[error("the server is shutting down")]
    Draining,
    /// A model did not answer, although its turn was granted again and again.
    #[error("the model stopped answering ({grants} grants without progress)")]
    Stalled {
        /// The model that owns the turn.
        model: ModelIx,
        /// Grants without an accepted row.
        grants: u32,
    },
    /// The policy hands the request to and fro without a token.
    #[error("the policy hands the request from model to model and none writes a token")]
    Circling,
    /// The node of a model was out of reach for too long.
    #[error("a model of the route is on a node that is out of reach; try again later")]
    OutOfReach {
        /// The model.
        model: ModelIx,
    },
    /// A model cannot be kept alive.
    #[error("the model is not available: {reason}")]
    ModelLost {
        /// The model.
        model: ModelIx,
        /// Why.
        reason: String,
    },
}
