//! The OpenAI API: requests in, responses out.

pub mod error;
pub mod fields;
pub mod request;
pub mod response;

pub use error::ApiError;
pub use request::{ChatRequest, CompletionRequest, Message, Options, Prompt};
