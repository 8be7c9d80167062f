//! The server knows people: HTTP, the OpenAI API, the command line.
//!
//! It turns text to tokens and requests to choices, hands those to the gateway of a node, and renders what comes back.
//! It never decides which model writes a token, and nothing in it survives a request but counts.

pub mod admin;
pub mod admission;
pub mod assets;
pub mod auth;
pub mod boot;
pub mod catalog;
pub mod cli;
pub mod commands;
pub mod cpu;
pub mod date;
pub mod flights;
pub mod generation;
pub mod http;
pub mod metrics;
pub mod openai;
pub mod prompt;
pub mod random;
pub mod server;
pub mod stream;
pub mod tokenizer;

pub use boot::Plan;
pub use server::{Server, StartFailure};
