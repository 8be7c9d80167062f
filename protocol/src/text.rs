//! Tokens to text, and facts about it: a table of bytes per vocabulary and small automata stepped by bytes.
//!
//! A token's bytes do not depend on its neighbours, so text can be cut, replayed and matched anywhere without a
//! tokeniser. Nothing here sees a request, a model or a clock.

pub mod detokenizer;
pub mod hidden;
pub mod pattern;

use tokenrouter_policies::Token;

pub use detokenizer::Detokenizer;
pub use hidden::HiddenSet;
pub use pattern::{PatternSet, PatternState};

/// One entry of a vocabulary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The bytes the token stands for; a control token has its name here, since a policy may look for it.
    pub bytes: Vec<u8>,
    /// Whether a client sees them. Control tokens (turn markers, end of text) are hidden.
    pub visible: bool,
}

/// The bytes of every token, and which tokens end a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    bytes: Vec<u8>,
    /// End of each token's bytes in `bytes`, and whether they are visible.
    pieces: Vec<(u32, bool)>,
    end_of_sequence: Vec<Token>,
}

impl Vocabulary {
    /// A vocabulary whose token `i` is the `i`-th piece. `end_of_sequence` are the tokens that end a reply.
    pub fn new(pieces: impl IntoIterator<Item = Piece>, end_of_sequence: Vec<Token>) -> Self {
        let mut bytes = Vec::new();
        let pieces = pieces
            .into_iter()
            .map(|piece| {
                bytes.extend_from_slice(&piece.bytes);
                (bytes.len() as u32, piece.visible)
            })
            .collect();
        Self { bytes, pieces, end_of_sequence }
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The bytes of a token; none for a token outside the vocabulary (a padded row of the lm_head).
    pub fn bytes(&self, token: Token) -> &[u8] {
        let at = token as usize;
        let Some(&(end, _)) = self.pieces.get(at) else { return &[] };
        let start = if at == 0 { 0 } else { self.pieces[at - 1].0 };
        &self.bytes[start as usize..end as usize]
    }

    /// The bytes a client sees of a token.
    pub fn visible(&self, token: Token) -> &[u8] {
        match self.pieces.get(token as usize) {
            Some((_, true)) => self.bytes(token),
            _ => &[],
        }
    }

    /// Whether the token ends a reply.
    pub fn ends(&self, token: Token) -> bool {
        self.end_of_sequence.contains(&token)
    }

    /// The tokens that end a reply.
    pub fn end_of_sequence(&self) -> &[Token] {
        &self.end_of_sequence
    }
}
