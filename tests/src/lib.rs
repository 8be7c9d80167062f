//! What tests of the whole need: a seeded world of protocol machines with faults and a reference to compare with, and
//! nodes over real models.

pub mod kit;
pub mod world;
