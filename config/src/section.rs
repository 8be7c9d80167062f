//! The `policy:` section of a route: its kind, and settings that only the registry of policies understands.

use crate::document::Document;
use crate::error::Error;
use crate::topology::Sources;
use figment::value::Value;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A policy as the topology describes it.
#[derive(Clone, Debug)]
pub struct PolicySection {
    /// Which policy.
    pub kind: String,
    path: Vec<String>,
    document: Arc<Document>,
}

impl PolicySection {
    /// A section that stands alone: `text` is YAML with a `kind`. Errors name the key `policy`.
    ///
    /// # Errors
    /// A text that is no mapping, or one without a `kind`.
    pub fn from_yaml(text: &str) -> Result<Self, Error> {
        let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
        let document = Document::merge(&format!("policy:\n{indented}"), &Sources::default())?;
        Self::find(&Arc::new(document), vec!["policy".to_owned()])
    }

    /// The section at `path` of `document`.
    pub(crate) fn find(document: &Arc<Document>, path: Vec<String>) -> Result<Self, Error> {
        let found = document.find(&path);
        if !matches!(found, Some(Value::Dict(..))) {
            return Err(document.error(&path, "a policy is a mapping with a `kind`"));
        }
        let key = [path.clone(), vec!["kind".to_owned()]].concat();
        let kind = match document.find(&key) {
            Some(Value::String(_, kind)) => kind.clone(),
            Some(_) => return Err(document.error(&key, "expected the name of a policy")),
            None => return Err(document.error(&key, "is missing")),
        };
        Ok(Self { kind, path, document: document.clone() })
    }

    /// The settings other than `kind`, as a type that uses `deny_unknown_fields`.
    ///
    /// # Errors
    /// An unknown key, a missing one or a wrong type, with key and origin.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let mut settings = match self.document.find(&self.path) {
            Some(value) => value.clone(),
            None => return Err(self.document.error(&self.path, "is missing")),
        };
        if let Value::Dict(_, settings) = &mut settings {
            settings.remove("kind");
        }
        self.document.parse(&self.path, &settings)
    }

    /// An error about `key`, which is relative to this section; its parts are joined by dots.
    pub fn error(&self, key: &str, reason: impl Into<String>) -> Error {
        let relative = key.split('.').filter(|part| !part.is_empty()).map(str::to_owned);
        let full: Vec<String> = self.path.iter().cloned().chain(relative).collect();
        self.document.error(&full, reason)
    }
}
