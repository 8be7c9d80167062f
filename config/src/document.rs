//! The merged settings before they have types: file, then environment, then flags, with the origin of every value.
//!
//! The environment comes in as an argument; nothing here reads it.

use crate::error::{Error, Origin};
use crate::topology::Sources;
use crate::yaml::{Lines, Yaml};
use figment::error::Kind;
use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::de::DeserializeOwned;
use std::path::PathBuf;

/// Variables with this prefix and a `__` in them are settings. Those without are not ours: an orchestrator may set
/// `TOKENROUTER_PORT` and the like for a service of that name.
const PREFIX: &str = "TOKENROUTER_";
const NESTING: &str = "__";

const FILE: &str = "file";
const BUILT_IN: &str = "built-in";
const ENVIRONMENT: &str = "environment";

/// The merged settings.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    figment: Figment,
    root: Value,
    file: Option<PathBuf>,
    lines: Lines,
    /// The variables that are settings, with their paths.
    variables: Vec<(String, Vec<String>)>,
}

impl Document {
    /// Merges the sources, later over earlier: text, environment, flags.
    pub(crate) fn merge(text: &str, sources: &Sources) -> Result<Self, Error> {
        let whole = |line| match &sources.file {
            Some(path) => Origin::File { path: path.clone(), line },
            None => Origin::BuiltIn { line },
        };
        let name = if sources.file.is_some() { FILE } else { BUILT_IN };
        let yaml = Yaml::parse(name, text).map_err(|e| Error {
            origin: whole(e.line),
            key: String::new(),
            reason: e.reason,
        })?;
        let lines = yaml.lines.clone();
        let environment = Environment::new(&sources.environment);
        let variables = environment.variables.clone();
        let mut figment = Figment::from(yaml).merge(environment);
        for setting in &sources.flags {
            let path: Vec<String> = setting.key.split('.').map(str::to_owned).collect();
            figment = figment.merge(Flag::new(setting.flag, &path, &setting.value));
        }
        let root = root(&figment, whole(None))?;
        Ok(Self { figment, root, file: sources.file.clone(), lines, variables })
    }

    /// The same document with one more flag over it.
    pub(crate) fn with(&self, flag: Flag) -> Result<Self, Error> {
        let figment = self.figment.clone().merge(flag);
        let root = root(&figment, self.in_text(&[]))?;
        Ok(Self { figment, root, ..self.clone() })
    }

    /// The value at `path`.
    pub(crate) fn find(&self, path: &[String]) -> Option<&Value> {
        path.iter().try_fold(&self.root, |value, key| value.as_dict()?.get(key))
    }

    /// The value `value`, found at `path`, as a type.
    pub(crate) fn parse<T: DeserializeOwned>(
        &self,
        path: &[String],
        value: &Value,
    ) -> Result<T, Error> {
        T::deserialize(value).map_err(|fault| {
            let mut full = path.to_vec();
            full.extend(fault.path);
            if let Kind::MissingField(field) = &fault.kind {
                full.push(field.to_string());
            }
            self.error(&full, reason(fault.kind))
        })
    }

    /// The whole document as a type.
    pub(crate) fn parse_all<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.parse(&[], &self.root)
    }

    /// An error about the value at `path`.
    pub(crate) fn error(&self, path: &[String], reason: impl Into<String>) -> Error {
        Error { origin: self.origin(path), key: path.join("."), reason: reason.into() }
    }

    /// Where the value at `path`, or the nearest one around it, came from.
    fn origin(&self, path: &[String]) -> Origin {
        let mut value = &self.root;
        let mut depth = 0;
        while let Some(next) = path.get(depth).and_then(|key| value.as_dict()?.get(key)) {
            value = next;
            depth += 1;
        }
        let found = &path[..depth];
        match self.layer(value.tag()) {
            Some(name) if name.starts_with("--") => Origin::Flag(name.to_owned()),
            Some(ENVIRONMENT) if !found.is_empty() => self.variable(found),
            _ => self.in_text(found),
        }
    }

    /// The variable that sets the value at `path`, or one within it.
    fn variable(&self, path: &[String]) -> Origin {
        let exact = self.variables.iter().find(|(_, own)| own == path);
        match exact.or_else(|| self.variables.iter().find(|(_, own)| own.starts_with(path))) {
            Some((name, _)) => Origin::Environment(name.clone()),
            None => self.in_text(path),
        }
    }

    fn layer(&self, tag: Tag) -> Option<&str> {
        self.figment.get_metadata(tag).map(|metadata| metadata.name.as_ref())
    }

    fn in_text(&self, path: &[String]) -> Origin {
        let line = (0..=path.len()).rev().find_map(|end| self.lines.get(&path[..end])).copied();
        match &self.file {
            Some(path) => Origin::File { path: path.clone(), line },
            None => Origin::BuiltIn { line },
        }
    }
}

/// All settings as one value.
fn root(figment: &Figment, origin: Origin) -> Result<Value, Error> {
    let fault = |e: figment::Error| Error { origin, key: String::new(), reason: e.to_string() };
    figment.find_value("").map_err(fault)
}

/// A fault of `figment`'s in our words.
fn reason(kind: Kind) -> String {
    match kind {
        Kind::UnknownField(_, []) => "there is no such setting".to_owned(),
        Kind::UnknownField(_, known) => {
            format!("there is no such setting; known here are {}", known.join(", "))
        }
        Kind::MissingField(_) => "is missing".to_owned(),
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("expected {}, found {found}", described(&expected.to_string()))
        }
        Kind::UnknownVariant(found, known) => {
            format!("`{found}` is not one of {}", known.join(", "))
        }
        Kind::Message(text) => text,
        other => other.to_string(),
    }
}

/// What was expected, in words for people who do not know our types.
fn described(expected: &str) -> &str {
    match expected {
        "usize" | "u64" => "a whole number, not negative",
        "u32" => "a whole number between 0 and 4294967295",
        "f32" | "f64" => "a number",
        "a map" => "settings with their names",
        other => other.strip_prefix("enum ").map_or(other, |_| "one of a few names"),
    }
}

/// Settings from environment variables.
struct Environment {
    values: Dict,
    variables: Vec<(String, Vec<String>)>,
}

impl Environment {
    fn new(environment: &[(String, String)]) -> Self {
        let (mut values, mut variables) = (Dict::new(), Vec::new());
        for (name, value) in environment {
            let Some(key) = name.strip_prefix(PREFIX) else { continue };
            if key.contains(NESTING) {
                let path: Vec<String> = key.split(NESTING).map(str::to_lowercase).collect();
                insert(&mut values, &path, value);
                variables.push((name.clone(), path));
            }
        }
        Self { values, variables }
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named(ENVIRONMENT)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// One setting from a command line flag.
pub(crate) struct Flag(&'static str, Dict);

impl Flag {
    /// The flag `name` that sets the value at `path`.
    pub(crate) fn new(name: &'static str, path: &[String], value: &str) -> Self {
        let mut values = Dict::new();
        insert(&mut values, path, value);
        Self(name, values)
    }
}

impl Provider for Flag {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.0)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.1.clone()))
    }
}

/// Puts `text`, read as a number or a boolean where it looks like one, at `path`. A value that stands where a mapping
/// is needed gives way to it; two such variables contradict each other in any case.
fn insert(values: &mut Dict, path: &[String], text: &str) {
    let Some((key, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        values.insert(key.clone(), scalar(text));
        return;
    }
    let mut inner = match values.remove(key) {
        Some(Value::Dict(_, inner)) => inner,
        _ => Dict::new(),
    };
    insert(&mut inner, rest, text);
    values.insert(key.clone(), Value::from(inner));
}

/// A text as a value. One with more brackets than any setting has stays a text: the parser calls itself for each of them,
/// and would run out of stack.
fn scalar(text: &str) -> Value {
    const MOST: usize = 32;
    if text.chars().filter(|c| matches!(c, '[' | '{')).count() > MOST {
        return Value::from(text);
    }
    let Ok(value) = text.parse::<Value>();
    value
}
