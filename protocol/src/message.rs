//! What homes and models say to each other. Everything here may arrive late, twice, or out of order; fences and lives
//! say what is still meant.
//!
//! These types are the wire: `transport` encodes them as they are.

use crate::id::{Fence, HomeId, Life, RequestId};
use crate::request::RouteIx;
use crate::step::{Sampling, Tokens};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tokenrouter_policies::{Aux, Draws, ModelIx, PolicyState, Position, list};

/// Everything one home has to say to one model after handling one input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HomeSays {
    /// Who speaks.
    pub home: HomeId,
    /// Its life.
    pub life: Life,
    /// How many messages this life has said so far, this one included: of two counts the later one holds.
    pub number: u64,
    /// How many live requests of this home can reach the model: absolute, so that a lost message loses no count.
    pub live: u32,
    /// What it says, in order.
    #[serde(deserialize_with = "list::deserialize")]
    pub words: SmallVec<[HomeWord; 1]>,
}

/// One thing a home says to a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HomeWord {
    /// The request is yours now.
    Grant(PeerReq),
    /// The request is over: forget it.
    Finish {
        /// The request.
        rid: RequestId,
        /// The last fence of the ledger, or that of the words it answers.
        fence: Fence,
    },
    /// Do you still work on this?
    Probe {
        /// The request.
        rid: RequestId,
        /// The fence of the turn that is asked about.
        fence: Fence,
    },
}

/// A grant of one turn. It is absolute: cut history and cache back to `from`, append `suffix`, go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerReq {
    /// The request.
    pub rid: RequestId,
    /// The turn.
    pub fence: Fence,
    /// The life of the model that it is for; another life takes nothing and says so.
    pub life: Life,
    /// How many leading positions that life has, as home knows it; less than the committed length, since one token must
    /// be left to feed.
    pub from: Position,
    /// The committed tokens from position `from` on. Never empty.
    #[serde(deserialize_with = "list::deserialize")]
    pub suffix: Tokens,
    /// Tokens the last owner proposes after the suffix; they are not committed.
    #[serde(deserialize_with = "list::deserialize")]
    pub proposal: Tokens,
    /// Algorithm-specific bytes of the last owner.
    #[serde(deserialize_with = "list::deserialize")]
    pub aux: Aux,
    /// What the policy remembers.
    pub state: PolicyState,
    /// What a model must know to open the request. Present in every grant from 0.
    pub admission: Option<Box<Admission>>,
}

/// What a model must know of a request besides its tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admission {
    /// The route.
    pub route: RouteIx,
    /// Length of the prompt.
    pub prompt: Position,
    /// The longest prompt + reply allowed.
    pub length_max: Position,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Seed and choice.
    pub draws: Draws,
    /// EOS tokens are text like any other.
    pub ignore_eos: bool,
}

/// Everything one model has to say to one home after handling one input. The rows among the words are its step report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSays {
    /// Who speaks.
    pub model: ModelIx,
    /// Its life.
    pub life: Life,
    /// What it says, in order.
    #[serde(deserialize_with = "list::deserialize")]
    pub words: SmallVec<[ModelWord; 1]>,
}

/// One thing a model says to a home.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ModelWord {
    /// What one step did for one request.
    Row(ReportRow),
    /// The grant does not join what the model holds, or its cache was taken: grant again from at most `have`.
    Missing {
        /// The request.
        rid: RequestId,
        /// The fence of the grant.
        fence: Fence,
        /// How many leading positions the model holds.
        have: Position,
    },
    /// The request is closed here; its blocks are free.
    Closed {
        /// The request.
        rid: RequestId,
    },
    /// The request is held here under this fence: the answer to a probe, or a reminder that it has not moved for long.
    Holding {
        /// The request.
        rid: RequestId,
        /// The fence it is held under; `None` where the model does not hold it at all.
        fence: Option<Fence>,
        /// The length of the history here if the model works on it under that fence; `None` where it is pending.
        working: Option<Position>,
        /// The fence of the probe this answers.
        probe: Option<Fence>,
    },
    /// This life of the model has begun; what earlier lives held is gone.
    Reborn,
    /// Words on their way to or from the model were lost; it goes on with what it holds.
    DoorLost,
}

/// What one step did for one request. An offer: home decides what of it is committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportRow {
    /// The request.
    pub rid: RequestId,
    /// The turn under which it was computed.
    pub fence: Fence,
    /// The position of the first of `tokens`: the committed length as the model knows it.
    pub start: Position,
    /// The offered tokens; none for a chunk of a prompt, or where the sampled token was discarded.
    #[serde(deserialize_with = "list::deserialize")]
    pub tokens: Tokens,
    /// How many leading positions this model's cache holds now.
    pub cached: Position,
    /// What happens next.
    pub outcome: RowOutcome,
    /// What the policy remembers now.
    pub state: PolicyState,
    /// Positions computed for this request since its last row.
    pub computed: u32,
    /// Tokens sampled for this request since its last row.
    pub generated: u32,
}

/// What happens after a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowOutcome {
    /// The model goes on.
    Going,
    /// The policy named the next owner.
    Next {
        /// The next owner.
        to: ModelIx,
        /// Algorithm-specific bytes for it.
        #[serde(deserialize_with = "list::deserialize")]
        aux: Aux,
        /// Tokens proposed to it.
        #[serde(deserialize_with = "list::deserialize")]
        proposal: Tokens,
    },
    /// The model sampled an EOS token or the last allowed one, and stopped.
    Ended,
}

/// One message between subservers, as their doors see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Parcel {
    /// A home speaks to a model.
    ToModel {
        /// The model.
        to: ModelIx,
        /// The words.
        says: HomeSays,
    },
    /// A model speaks to a home.
    ToHome {
        /// The home.
        to: HomeId,
        /// The words.
        says: ModelSays,
    },
}

impl Parcel {
    /// The model whose subserver takes it in.
    pub fn subserver(&self) -> ModelIx {
        match self {
            Self::ToModel { to, .. } => *to,
            Self::ToHome { to, .. } => to.model,
        }
    }
}
