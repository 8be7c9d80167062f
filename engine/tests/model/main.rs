//! Whole models: their numbers against reference values, and their bits against themselves.

mod bits;
mod kit;
mod parity;
mod signals;
