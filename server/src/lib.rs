//! The server knows people: HTTP, the OpenAI API, the command line.

pub mod admission;
pub mod catalog;
pub mod openai;
pub mod prompt;
pub mod tokenizer;
