//! The server as its clients see it: real models, real sockets, one server for each test.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of the functions that the lint spares"
)]

mod admin;
mod client;
mod deaths;
mod endings;
mod metrics;
mod refusals;
mod replies;
