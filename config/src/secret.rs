//! Texts that nobody should read in a log or an error.

use figment::value::Value;
use serde::de::{Deserialize, Deserializer, Error};
use std::fmt;

/// A text that shows itself only where it is asked to.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Whatever else it is, an error must not repeat it.
        match <Value as Deserialize>::deserialize(deserializer)? {
            Value::String(_, text) => Ok(Self(text)),
            _ => Err(D::Error::custom("expected a text; put it in quotes")),
        }
    }
}

impl Secret {
    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
