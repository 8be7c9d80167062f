//! The `policy:` section of a route: its kind, and settings that only the registry of policies understands.

use crate::document::{Document, Flag};
use crate::error::Error;
use crate::topology::{Sources, write_value};
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

    /// The same section with the setting `key`, its parts joined by dots, as the flag `flag` gives it.
    ///
    /// # Errors
    /// A `kind` that is no text.
    pub fn with(&self, flag: &'static str, key: &str, value: &str) -> Result<Self, Error> {
        let path: Vec<String> =
            self.path.iter().cloned().chain(key.split('.').map(str::to_owned)).collect();
        let document = self.document.with(Flag::new(flag, &path, value))?;
        Self::find(&Arc::new(document), self.path.clone())
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

    /// Writes the section so that the same settings give the same text, wherever they came from.
    pub(crate) fn write(&self, text: &mut String) {
        if let Some(value) = self.document.find(&self.path) {
            write_value(value, text);
        }
    }

    /// An error about `key`, which is relative to this section; its parts are joined by dots.
    pub fn error(&self, key: &str, reason: impl Into<String>) -> Error {
        let relative = key.split('.').filter(|part| !part.is_empty()).map(str::to_owned);
        let full: Vec<String> = self.path.iter().cloned().chain(relative).collect();
        self.document.error(&full, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        threshold: f32,
    }

    #[test]
    fn a_flag_gives_a_setting_another_value() {
        let section = PolicySection::from_yaml("kind: k\nto: b\nthreshold: 0.1").unwrap();
        let other = section.with("--sweep", "threshold", "0.5").unwrap();
        let settings = |section: &PolicySection| section.parse::<Settings>().unwrap();
        assert_eq!((settings(&section).threshold, settings(&other).threshold), (0.1, 0.5));
        assert_eq!(settings(&other).to, "b");
        let told = other.error("threshold", "no").to_string();
        assert_eq!(told, "flag --sweep: `policy.threshold`: no");
        let unknown = section.with("--sweep", "treshold", "0.5").unwrap();
        let told = unknown.parse::<Settings>().unwrap_err().to_string();
        let expected = "flag --sweep: `policy.treshold`: there is no such setting";
        assert!(told.starts_with(expected), "{told}");
        assert!(section.with("--sweep", "kind", "1").is_err());
    }
}
