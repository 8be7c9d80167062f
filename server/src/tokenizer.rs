//! The tokeniser of a model: text to tokens, and the bytes of every token.
//!
//! Text that a client wrote never becomes a control token, see [`Tokenizer::encode_prompt`]. Nothing here turns tokens
//! back to text for a reply: that is done from the vocabulary's bytes, where the reply is committed.

use serde_json::Value;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use tokenizers::AddedToken;
use tokenrouter_policies::Token;
use tokenrouter_protocol::{Piece, Vocabulary};

mod bytes;

use bytes::Scheme;

/// Tokens are numbered below this: as many as a model's `vocab_size` may say.
const MOST_TOKENS: Token = 1 << 20;

/// The token by which a model trained for Co-LLM defers to another, as its published tokenisers call it.
const DEFER: &str = "<|defer|>";

/// A tokeniser that cannot be used, or a text that it refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerError {
    /// The file is no tokeniser.
    #[error("tokenizer.json cannot be read: {0}")]
    File(String),
    /// Its tokens have no bytes that we know of.
    #[error(
        "tokenizer.json has the decoder `{0}`; only byte-level and SentencePiece ones are supported"
    )]
    Decoder(String),
    /// A token far beyond all others; a table of all tokens would not fit into memory.
    #[error("tokenizer.json has a token {0}; tokens beyond {MOST_TOKENS} are not supported")]
    Sparse(Token),
    /// A text cannot be encoded.
    #[error("the text cannot be tokenised: {0}")]
    Encode(String),
}

/// A tokeniser with its vocabulary.
pub struct Tokenizer {
    plain: tokenizers::Tokenizer,
    /// Reads the names of special tokens as text.
    verbatim: tokenizers::Tokenizer,
    /// Special tokens by name.
    specials: Vec<(String, Token)>,
    vocabulary: Arc<Vocabulary>,
    /// The token [`DEFER`], which no text ever becomes.
    defer: Option<Token>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.vocabulary.len()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. `end_of_sequence` are the tokens that end a reply of the model.
    ///
    /// # Errors
    /// A file that is no tokeniser, or of a kind whose tokens have no bytes.
    pub fn new(json: &[u8], end_of_sequence: Vec<Token>) -> Result<Self, TokenizerError> {
        let file = |e: &dyn std::fmt::Display| TokenizerError::File(e.to_string());
        let mut value: Value = serde_json::from_slice(json).map_err(|e| file(&e))?;
        let scheme = Scheme::of_decoder(&value["decoder"])?;
        let defer = take_defer(&mut value);
        let mut plain = match defer {
            None => tokenizers::Tokenizer::from_bytes(json),
            Some(_) => tokenizers::Tokenizer::from_bytes(value.to_string()),
        }
        .map_err(|e| file(&e))?;
        plain.with_padding(None);
        plain.with_truncation(None).map_err(|e| file(&e))?;
        let added: HashMap<Token, AddedToken> =
            plain.get_added_tokens_decoder().into_iter().collect();
        let ids = plain.get_vocab(true).into_values();
        if let Some(token) = ids.max().filter(|token| *token >= MOST_TOKENS) {
            return Err(TokenizerError::Sparse(token));
        }
        let vocabulary = Arc::new(vocabulary(&plain, &added, scheme, end_of_sequence));
        let specials = added
            .into_iter()
            .filter(|(_, token)| token.special && !token.content.is_empty())
            .map(|(id, token)| (token.content, id))
            .collect();
        let mut verbatim = plain.clone();
        verbatim.set_encode_special_tokens(true);
        Ok(Self { plain, verbatim, specials, vocabulary, defer })
    }

    /// The bytes of the tokens.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// The tokens of a text; the names of special tokens in it are those tokens. `add_special` puts before and after
    /// what the tokeniser adds by itself, such as a token for the beginning.
    ///
    /// # Errors
    /// A text that the tokeniser refuses.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<Token>, TokenizerError> {
        encode(&self.plain, text, add_special)
    }

    /// The tokens of a rendered prompt. `content` are the byte ranges that clients wrote, in order and apart from each
    /// other: names of special tokens in there are text like any other.
    ///
    /// # Errors
    /// A text that the tokeniser refuses.
    pub fn encode_prompt(
        &self,
        text: &str,
        content: &[Range<usize>],
    ) -> Result<Vec<Token>, TokenizerError> {
        // Cutting the text changes nothing where there is nothing to guard, but it is only done where there is.
        let forged = |(name, _): &(String, Token)| {
            text.match_indices(name.as_str()).any(|(at, _)| touches(content, at..at + name.len()))
        };
        if !self.specials.iter().any(forged) {
            return self.encode(text, false);
        }
        let mut tokens = Vec::new();
        let mut start = 0;
        for (at, name, id) in self.specials_outside(text, content) {
            tokens.extend(encode(&self.verbatim, &text[start..at], false)?);
            tokens.push(id);
            start = at + name.len();
        }
        tokens.extend(encode(&self.verbatim, &text[start..], false)?);
        Ok(tokens)
    }

    /// The token that is called so.
    pub fn token(&self, name: &str) -> Option<Token> {
        if name == DEFER { self.defer } else { self.plain.token_to_id(name) }
    }

    /// The token by which the model defers to another.
    pub fn defer(&self) -> Option<Token> {
        self.defer
    }

    /// Whether the name of a special token is in `text`.
    pub fn names_special(&self, text: &str) -> bool {
        self.specials.iter().any(|(name, _)| text.contains(name.as_str()))
    }

    /// The text of tokens, special ones included.
    pub fn decode(&self, tokens: &[Token]) -> String {
        let bytes: Vec<u8> =
            tokens.iter().flat_map(|&token| self.vocabulary.bytes(token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The special tokens that do not touch any of the ranges, in order; of those that begin at one place the longest.
    fn specials_outside(&self, text: &str, content: &[Range<usize>]) -> Vec<(usize, &str, Token)> {
        let mut found: Vec<(usize, &str, Token)> = Vec::new();
        for (name, id) in &self.specials {
            let places = text.match_indices(name.as_str()).map(|(at, _)| (at, name.as_str(), *id));
            found.extend(places.filter(|(at, name, _)| !touches(content, *at..at + name.len())));
        }
        found.sort_by_key(|(at, name, _)| (*at, std::cmp::Reverse(name.len())));
        let mut end = 0;
        found.retain(|(at, name, _)| {
            let free = *at >= end;
            if free {
                end = at + name.len();
            }
            free
        });
        found
    }
}

/// Takes the defer token out of a tokeniser. It is an output of the model and no part of any text, so the tokeniser of a
/// model that was given one is still that of the other models of its family.
fn take_defer(tokenizer: &mut Value) -> Option<Token> {
    let added = tokenizer["added_tokens"].as_array_mut()?;
    let at = added.iter().position(|token| token["content"] == DEFER)?;
    Token::try_from(added.remove(at)["id"].as_u64()?).ok()
}

/// Whether `span` overlaps one of the ranges, which are in order and apart from each other.
fn touches(ranges: &[Range<usize>], span: Range<usize>) -> bool {
    let next = ranges.partition_point(|range| range.end <= span.start);
    ranges.get(next).is_some_and(|range| range.start < span.end)
}

fn encode(
    tokenizer: &tokenizers::Tokenizer,
    text: &str,
    add: bool,
) -> Result<Vec<Token>, TokenizerError> {
    if text.is_empty() && !add {
        return Ok(Vec::new());
    }
    let encoding =
        tokenizer.encode_fast(text, add).map_err(|e| TokenizerError::Encode(e.to_string()))?;
    Ok(encoding.get_ids().to_vec())
}

fn vocabulary(
    tokenizer: &tokenizers::Tokenizer,
    added: &HashMap<Token, AddedToken>,
    scheme: Scheme,
    end_of_sequence: Vec<Token>,
) -> Vocabulary {
    let mut pieces: Vec<Piece> = Vec::new();
    for (name, id) in tokenizer.get_vocab(true) {
        let index = id as usize;
        if pieces.len() <= index {
            pieces.resize(index + 1, Piece::default());
        }
        pieces[index] = match added.get(&id) {
            Some(token) => {
                Piece { bytes: token.content.clone().into_bytes(), visible: !token.special }
            }
            None => Piece { bytes: scheme.bytes(&name), visible: true },
        };
    }
    Vocabulary::new(pieces, end_of_sequence)
}

/// Texts on which tokenisers of different vocabularies, merges or rules part ways.
const PROBES: [&str; 8] = [
    "Hello world! Café déjà vu — 123 😊",
    "What is (37 * 46) + 15?\n\n  x\t= 3.14e-10;",
    "The answer is 1717.  Two  spaces, THREE   more.",
    "def f(a, b):\n    return a[0] // b  # done\n",
    "天地玄黄，宇宙洪荒。 Привет, мир! ﷽ नमस्ते",
    "👩‍👩‍👧‍👦 e\u{301} \u{200b} ﬁ Å",
    "<s>G </s> <unk> [INST] 's're've 'LL",
    "0001000 1e9 -7 ½ ²",
];

/// Whether two tokenisers are the same to every model: the bytes of all tokens, and the tokens of the probes. Gives the
/// first difference in words.
pub fn difference(left: &Tokenizer, right: &Tokenizer) -> Option<String> {
    let (a, b) = (&left.vocabulary, &right.vocabulary);
    if a.len() != b.len() {
        return Some(format!("one has {} tokens, the other {}", a.len(), b.len()));
    }
    let differs =
        |&token: &Token| a.bytes(token) != b.bytes(token) || a.visible(token) != b.visible(token);
    if let Some(token) = (0..a.len() as Token).find(differs) {
        let text = |v: &Vocabulary| String::from_utf8_lossy(v.bytes(token)).into_owned();
        return Some(format!(
            "token {token} is {:?} in one and {:?} in the other",
            text(a),
            text(b)
        ));
    }
    let probe =
        PROBES.iter().find(|probe| left.encode(probe, false) != right.encode(probe, false))?;
    Some(format!("they split {probe:?} differently"))
}

#[cfg(test)]
mod tests;
