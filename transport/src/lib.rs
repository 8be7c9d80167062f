//! Transport knows bytes: what subservers say to each other, as frames on a wire, and the links that carry frames
//! between the nodes of one cluster.
//!
//! It never looks at what a message means, and knows no request, model or actor. It keeps nothing for later either: what
//! a broken link did not deliver is the business of those who keep it.

pub mod certs;
pub mod endpoint;
pub mod hello;
pub mod identity;
pub mod link;
pub mod wire;

pub use endpoint::{Call, Caller, Endpoint, LinkError, Ring, Timing};
pub use hello::{Hello, Mismatch};
pub use identity::{Identity, IdentityError};
pub use link::{Heard, Link, LinkStats, Room, Stream};
