//! Settings, and nothing but settings: the topology file as types, units, and errors that name file, key and reason.
//!
//! Never opens a model, a socket or a clock, and knows no policy: a policy's settings stay untyped here and are parsed
//! strictly by the registry that knows them.

mod document;
pub mod error;
pub mod secret;
pub mod section;
pub mod topology;
pub mod units;
mod yaml;

pub use error::{Error, Origin};
pub use secret::Secret;
pub use section::PolicySection;
pub use topology::{
    Admin, Batching, Cluster, Http, Limits, Log, LogFormat, Memory, Model, Node, Objective, OnLoss,
    Restart, Route, Scheduler, SchedulerMode, Setting, Sources, Threshold, Topology, Tune, digest,
};
pub use units::Bytes;
