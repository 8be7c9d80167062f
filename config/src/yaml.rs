//! YAML text to untyped values and the line of each, as a `figment` provider.
//!
//! Duplicate keys are errors. No file is opened here.

use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Spanned, UserMessageFormatter};
use std::collections::BTreeMap;
use std::fmt;

/// The lines of a document, by path of keys.
pub(crate) type Lines = BTreeMap<Vec<String>, u64>;

/// A parsed document.
#[derive(Clone, Debug)]
pub(crate) struct Yaml {
    name: &'static str,
    values: Dict,
    /// Where each value stands.
    pub(crate) lines: Lines,
}

/// A text that is no YAML, or no mapping.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) line: Option<u64>,
    pub(crate) reason: String,
}

impl Yaml {
    /// Parses `text`; `name` is what the provider calls itself.
    pub(crate) fn parse(name: &'static str, text: &str) -> Result<Self, SyntaxError> {
        // Otherwise a model named `y` or `no` would be a boolean.
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        let root: Node = serde_saphyr::from_str_with_options(text, options).map_err(|e| {
            let line = e.location().map(|at| at.line());
            // The plain wording advises on options of the library, which users of a topology cannot reach.
            SyntaxError { line, reason: e.render_with_formatter(&UserMessageFormatter) }
        })?;
        let mut lines = Lines::new();
        match root.into_value(&mut Vec::new(), &mut lines) {
            Value::Dict(_, values) => Ok(Self { name, values, lines }),
            _ => Err(SyntaxError {
                line: Some(1),
                reason: "the document is not a mapping of keys to values".to_owned(),
            }),
        }
    }
}

impl Provider for Yaml {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

/// A value and where it stands.
struct Node(Spanned<Tree>);

enum Tree {
    Mapping(Vec<(String, Node)>),
    Sequence(Vec<Node>),
    Scalar(Value),
    Null,
}

impl Node {
    /// The value without its place; the place goes to `lines` under `path`.
    fn into_value(self, path: &mut Vec<String>, lines: &mut Lines) -> Value {
        let line = self.0.referenced.line();
        if line > 0 {
            lines.insert(path.clone(), line);
        }
        match self.0.value {
            Tree::Scalar(value) => value,
            // An empty value reads as an empty mapping, so that a section with all lines commented out is no error.
            Tree::Null => Value::from(Dict::new()),
            Tree::Sequence(items) => {
                let values = items.into_iter().enumerate().map(|(index, item)| {
                    within(path, index.to_string(), |path| item.into_value(path, lines))
                });
                Value::from(values.collect::<Vec<_>>())
            }
            Tree::Mapping(entries) => {
                let mut values = Dict::new();
                for (key, node) in entries {
                    let value = within(path, key.clone(), |path| node.into_value(path, lines));
                    values.insert(key, value);
                }
                Value::from(values)
            }
        }
    }
}

fn within<T>(path: &mut Vec<String>, key: String, work: impl FnOnce(&mut Vec<String>) -> T) -> T {
    path.push(key);
    let value = work(path);
    path.pop();
    value
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar, a sequence or a mapping with string keys")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::from(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::from(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::from(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::from(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::from(value)))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Tree::Sequence(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Mapping(entries))
    }
}
