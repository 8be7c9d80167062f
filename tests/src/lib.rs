//! What tests of the whole need: a seeded world of protocol machines, with faults and a reference to compare with.

pub mod world;
