//! Policies know numbers: which model writes the next token, and the random draws and signals that decide it.
//!
//! A policy sees one request at one decode step and answers with a [`Verdict`]. It never sees a batch, a KV cache or a
//! socket, and this crate has no clock, no unseeded randomness and no await. The runtime around it guarantees what no
//! policy should have to think about: minimal suffixes, fencing, and EOS, stop and length on committed tokens only.

pub mod backoff;
pub mod batching;
pub mod draw;
pub mod head;
pub mod list;
pub mod planner;
pub mod registry;
pub mod restart;
pub mod roster;
pub mod route;
mod settings;
pub mod signals;
pub mod state;
#[cfg(test)]
mod testing;
pub mod tuner;
pub mod unit;

pub use backoff::Backoff;
pub use batching::{Thresholds, Unusable};
pub use draw::{Draws, Purpose};
pub use head::{Head, HeadIx, HeadKind};
pub use registry::build;
pub use restart::{Budget, Tally};
pub use roster::{Assets, Roster, TokenName};
pub use route::{
    Aux, Hidden, JustSampled, Patterns, Policy, Proposal, StepView, TextFacts, Verdict,
};
pub use signals::{SignalSet, Signals};
pub use state::PolicyState;
pub use unit::{ModelIx, Position, Token};
