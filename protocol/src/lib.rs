//! The protocol knows requests: who owns one, what of it is final, and what each model holds of it.
//!
//! Pure state machines. No clock, no randomness, no await, no IO: time and messages come in as arguments, effects come
//! out in a list, and the same inputs always give the same effects. Actors translate mailboxes to inputs and perform effects.

pub mod batcher;
pub mod home;
pub mod host;
pub mod id;
pub mod ledger;
pub mod message;
pub mod outbox;
pub mod pacer;
pub mod request;
pub mod residency;
pub mod route;
pub mod step;
pub mod text;

#[cfg(test)]
mod testing;

pub use batcher::BatchLimits;
pub use home::reach::Reach;
pub use home::{Adoption, Home, HomeConfig, Time};
pub use host::{Host, HostConfig};
pub use id::{Fence, HomeId, Life, RequestId};
pub use ledger::{Ledger, Standing};
pub use message::{
    Admission, HomeSays, HomeWord, ModelSays, ModelWord, Parcel, PeerReq, ReportRow, RowOutcome,
};
pub use outbox::{Arrival, Full, Inbox, Outbox, OutboxLimits};
pub use pacer::{Pacer, Rhythm, Standing as Pace};
pub use request::{Failure, Finish, Outcome, Progress, Request, RouteIx, Share};
pub use residency::Residency;
pub use route::{OnLoss, Route};
pub use step::{CacheOp, Job, PoolSize, Row, RowOutput, Sampled, Sampling, SequenceId, Tokens};
pub use text::{Detokenizer, PatternSet, PatternState, Piece, Vocabulary};
