//! What is wrong with a setting: where its value came from, its key, and the reason.
//!
//! An error never carries more than one fault: the first is mended before the next is looked for.

use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A topology file, with the line if it is known, counted from 1.
    File {
        /// The file, as the user named it.
        path: PathBuf,
        /// The line.
        line: Option<u64>,
    },
    /// The topology that is used where no file is named.
    BuiltIn {
        /// The line.
        line: Option<u64>,
    },
    /// An environment variable.
    Environment(String),
    /// A command line flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
            Self::File { path, line: None } => write!(f, "{}", path.display()),
            Self::BuiltIn { line: Some(line) } => write!(f, "built-in topology, line {line}"),
            Self::BuiltIn { line: None } => f.write_str("built-in topology"),
            Self::Environment(variable) => write!(f, "environment variable {variable}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{origin}: {}{reason}", prefix(key))]
pub struct Error {
    /// Where the value came from; for a missing one, where it should have stood.
    pub origin: Origin,
    /// The full key, its parts joined by dots; empty for the document as a whole.
    pub key: String,
    /// What is wrong, and what would be right.
    pub reason: String,
}

fn prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("`{key}`: ") }
}
