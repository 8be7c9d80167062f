//! Whole nodes over scripted engines: real actors, no tensors, steps of no or little time.

#![allow(clippy::unwrap_used, reason = "a test panics where something fails")]

mod deaths;
mod faults;
mod kit;
mod links;
mod replies;
mod schedulers;
mod tuner;
