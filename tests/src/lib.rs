//! What tests of the whole need: a seeded world of protocol machines with faults and a reference to compare with, and
//! nodes over real models.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test")]

pub mod chaos;
pub mod fuzz;
pub mod kit;
pub mod sse;
pub mod world;
