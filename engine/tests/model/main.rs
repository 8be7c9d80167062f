//! Whole models: their numbers against reference values, and their bits against themselves.

#![allow(clippy::unwrap_used, reason = "a helper of a test may panic like the test")]

mod bits;
mod heads;
mod kit;
mod parity;
mod signals;
