//! Actors know mailboxes: they bring messages to the pure machines of `protocol`, and perform what those want done.
//!
//! ```text
//! Node                          root supervisor; holds engines, weights, KV pools, seats and the counts of lives
//! ├─ Subserver "small"          supervisor of one model
//! │   ├─ ClientLoop             home: commits, moves and finishes the requests that enter here
//! │   ├─ DecodeLoop             batches, runs the engine's thread, routes, reports
//! │   └─ PeerLoop               the only door to other subservers, both ways
//! ├─ Subserver "large"          the same three
//! ├─ Pacer                      only where models run in rounds
//! ├─ Tuner                      only where thresholds follow what is measured
//! ├─ Links                      only where there are other nodes: supervisor of
//! │   ├─ Listener               answers nodes that call
//! │   └─ Remote "b"             stands for another node, and takes what a PeerLoop here would
//! └─ Http                       the accept loop; connections are tasks, not children
//! ```
//!
//! Every handler translates its message, steps a machine, and performs the effects; none waits for another actor, an
//! engine or the network. An actor that dies is replaced on its seat; what was lost is found missing and said again.

mod admin;
mod client_loop;
mod clock;
mod decode_loop;
mod doors;
mod faults;
mod gateway;
mod http;
mod links;
mod node;
mod pacer;
mod peer_loop;
mod seat;
mod seen;
mod spec;
mod subserver;
mod tuner;

pub use admin::{Admin, Branch, LinksBranch, ModelView, Target, Tree};
pub use client_loop::ClientView;
pub use decode_loop::DecodeView;
pub use faults::{Faults, Point, Stage};
pub use gateway::{Event, Gateway, Session};
pub use http::Service;
pub use links::{LinkCounts, LinkView};
pub use node::{Node, StartError};
pub use seat::SeatView;
pub use spec::{Cluster, Limits, ModelSpec, NodeAddress, NodeSpec, RouteSpec, Scheduler, Tuning};
pub use tokenrouter_policies::Budget;
