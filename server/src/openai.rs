//! The OpenAI API: requests in, responses out.

mod answer;
pub mod chat;
pub mod completions;
pub mod error;
pub mod fields;
pub mod models;
pub mod request;
pub mod response;
pub mod tokenize;

pub use error::ApiError;
pub use request::{ChatRequest, CompletionRequest, Message, Options, Prompt};
