//! The server as its clients see it: real models, real sockets, one server for each test.

mod client;
mod endings;
mod refusals;
mod replies;
