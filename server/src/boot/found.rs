//! What a policy may name of the models' files: router heads and tokens.
//!
//! A head that is named is checked against its model here and loaded with it later. A token that is named never becomes
//! text at that model, on any route.

use super::Model;
use crate::assets;
use tokenrouter_engine::{HeadFacts, describe_head};
use tokenrouter_policies::{Assets, Head, HeadIx, ModelIx, Token, TokenName};

/// A head of a model.
#[derive(Clone, Debug)]
pub(super) struct NamedHead {
    /// What policies call it.
    pub(super) name: String,
    /// What it is.
    pub(super) facts: HeadFacts,
}

/// The models, as policies look things up in them.
pub(super) struct Found<'a> {
    pub(super) models: &'a mut [Model],
}

impl Assets for Found<'_> {
    fn head(&mut self, model: ModelIx, name: &str) -> Result<Head, String> {
        let model = &mut self.models[model.index()];
        let at = match model.heads.iter().position(|head| head.name == name) {
            Some(at) => at,
            None => model.add_head(name)?,
        };
        let facts = &model.heads[at].facts;
        let ix = u8::try_from(at).map_err(|_| format!("`{}` has too many heads", model.name))?;
        let threshold = facts.threshold.map(|threshold| threshold as f32);
        Ok(Head { ix: HeadIx(ix), kind: facts.kind, threshold })
    }

    fn token(&mut self, model: ModelIx, name: &TokenName) -> Result<Token, String> {
        let model = &mut self.models[model.index()];
        let token = match name {
            TokenName::Id(token) => Some(*token),
            TokenName::Text(text) => model.language.tokenizer.token(text),
        };
        let rows = model.arch.vocabulary;
        let token = token.filter(|token| (*token as usize) < rows);
        let missing = || format!("`{}` has no token `{name}` among its {rows}", model.name);
        let token = token.ok_or_else(missing)?;
        // A `<|defer|>` of the model's own stays masked too.
        model.files.defer.get_or_insert(token);
        Ok(token)
    }
}

impl Model {
    /// Finds a head's files and checks that they fit; gives its place.
    fn add_head(&mut self, name: &str) -> Result<usize, String> {
        let files = assets::head(name).map_err(|e| e.to_string())?;
        let facts = describe_head(&files, &self.arch)
            .map_err(|e| format!("`{name}` does not fit model `{}`: {e}", self.name))?;
        self.files.heads.push(files);
        self.heads.push(NamedHead { name: name.to_owned(), facts });
        Ok(self.heads.len() - 1)
    }
}
