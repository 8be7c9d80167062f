//! Transport knows bytes: what subservers say to each other, as frames on a wire.
//!
//! It never looks at what a message means, and knows no request, model or actor.

pub mod wire;
