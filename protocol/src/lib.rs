//! The protocol knows requests: who owns one, what of it is final, and what each model holds of it.
//!
//! Pure state machines. No clock, no randomness, no await, no IO: time and messages come in as arguments, effects come
//! out in a list, and the same inputs always give the same effects. Actors translate mailboxes to inputs and perform effects.

pub mod id;
pub mod request;
pub mod step;

pub use id::{Fence, Home, Life, RequestId};
pub use request::{Failure, Finish, Outcome, Progress, Request, RouteIx, Share};
pub use step::{CacheOp, Job, PoolSize, Row, RowOutput, Sampled, Sampling, SequenceId, Tokens};
