//! What a policy's settings may name besides numbers: models, router heads and tokens.
//!
//! Models are found here. Heads and tokens belong to files, which this crate does not know, so the one who builds a
//! topology resolves them ([`Assets`]); it learns on the way which heads a model needs.

use crate::head::{Head, HeadKind};
use crate::unit::{ModelIx, Token};
use serde::Deserialize;
use tokenrouter_config::{Error, PolicySection};

/// What stands around the route that is being built.
pub struct Roster<'a> {
    /// Names of all models, sorted; a [`ModelIx`] is a place in this list.
    pub names: &'a [String],
    /// The entry model of the route.
    pub entry: ModelIx,
    /// Where heads and tokens are found.
    pub assets: &'a mut dyn Assets,
}

/// Finds what lies in a model's files. An `Err` says what is wrong with the name, and what would be right.
pub trait Assets {
    /// The router head `name` of `model`: `demo:NAME`, or the path of a safetensors file with its sidecar next to it. The
    /// same name at the same model is the same head.
    fn head(&mut self, model: ModelIx, name: &str) -> Result<Head, String>;

    /// The token of `model` that is called so; it is one of the rows of its lm_head.
    fn token(&mut self, model: ModelIx, name: &TokenName) -> Result<Token, String>;
}

/// A token as settings name it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TokenName {
    /// By its number.
    Id(Token),
    /// By its text in the tokeniser, `<|defer|>`.
    Text(String),
}

impl std::fmt::Display for TokenName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl Roster<'_> {
    /// The model called `name`, which setting `key` names.
    ///
    /// # Errors
    /// A model that is not in the topology.
    pub fn find(&self, section: &PolicySection, key: &str, name: &str) -> Result<ModelIx, Error> {
        match self.names.iter().position(|n| n == name) {
            Some(at) => Ok(ModelIx(at as u8)),
            None => Err(section.error(
                key,
                format!("there is no model `{name}`; the topology has {}", self.names.join(", ")),
            )),
        }
    }

    /// As [`Self::find`], for a model that a request is handed over to.
    ///
    /// # Errors
    /// A model that is not in the topology, or the entry model itself.
    pub fn find_other(
        &self,
        section: &PolicySection,
        key: &str,
        name: &str,
    ) -> Result<ModelIx, Error> {
        let to = self.find(section, key, name)?;
        if to == self.entry {
            return Err(section.error(key, format!("`{name}` is the entry model itself")));
        }
        Ok(to)
    }

    /// The head called `name` at the entry model, which setting `head` names, if it is of one of `kinds`.
    ///
    /// # Errors
    /// A head that cannot be found, does not fit the model, or whose score means something else.
    pub fn find_head(
        &mut self,
        section: &PolicySection,
        name: &str,
        kinds: &[HeadKind],
    ) -> Result<Head, Error> {
        let head =
            self.assets.head(self.entry, name).map_err(|reason| section.error("head", reason))?;
        if kinds.contains(&head.kind) {
            return Ok(head);
        }
        let kinds: Vec<String> = kinds.iter().map(HeadKind::to_string).collect();
        let (is, kinds) = (head.kind, kinds.join(" or "));
        Err(section.error("head", format!("`{name}` is a head of kind {is}; name one of {kinds}")))
    }

    /// The token called `name` at the entry model, which setting `key` names.
    ///
    /// # Errors
    /// A token that the model does not have.
    pub fn find_token(
        &mut self,
        section: &PolicySection,
        key: &str,
        name: &TokenName,
    ) -> Result<Token, Error> {
        self.assets.token(self.entry, name).map_err(|reason| section.error(key, reason))
    }
}
