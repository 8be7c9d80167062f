//! Router heads: small networks that give a position a score from what the model computed there anyway.
//!
//! A head reads the lm_head's input, the sampled token's embedding and the largest raw logits, or some of these. All rows
//! of a step that ask for one head go through its layers together, after sampling, on our linear kernel, so a row's score
//! is the same bits whatever else is in the step. Only an lm_head of its own, which one network has, is passed row by row. A head never sees a request, a policy or a threshold; what a score means is
//! for the policy to say.

use crate::arch::Arch;
use crate::linear::with_slice;
use crate::weights::{Tensors, Weights, WeightsError};
use candle_core::Tensor;
use network::Network;
use std::borrow::Cow;
use tokenrouter_policies::{HeadIx, HeadKind, Token};
use tokenrouter_protocol::RowOutput;

mod affine;
mod card;
mod network;
mod plan;

pub use card::HeadCard;
use network::Norm;
use plan::Plan;

/// The files of a head.
#[derive(Clone, Debug)]
pub struct HeadFiles {
    /// The JSON beside the weights, see [`HeadCard`].
    pub card: Cow<'static, [u8]>,
    /// The weights, with the names that the method's own code gives them.
    pub weights: Weights,
}

/// Why a head cannot be used, or not with this model.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    /// Its description is no JSON of the right form.
    #[error("the head's description cannot be read: {0}")]
    Card(#[from] serde_json::Error),
    /// Its weights cannot be read, or one is missing.
    #[error("the head's weights: {0}")]
    Weights(#[from] WeightsError),
    /// A network that we do not know.
    #[error("the head is a {found:?}, which is not supported; supported are {supported}")]
    Kind {
        /// What its description says.
        found: String,
        /// What it may say.
        supported: String,
    },
    /// An option of the network that we do not know.
    #[error("the head has `{option}`, which is not supported")]
    Option {
        /// The option of `init_args`.
        option: &'static str,
    },
    /// It was made for another model.
    #[error(
        "the head reads hidden states of {head} numbers, but the model's have {model}; take the head that was trained for this model"
    )]
    Hidden {
        /// Size of the hidden states that it reads.
        head: usize,
        /// Size of those that the model has.
        model: usize,
    },
    /// Its table of embeddings is smaller than the model's vocabulary.
    #[error(
        "the head knows {head} tokens, but the model has {model}; take the head that was trained for this model"
    )]
    Vocabulary {
        /// Tokens in the head's table.
        head: usize,
        /// Tokens of the model.
        model: usize,
    },
    /// It wants more logits than there are.
    #[error(
        "the head reads the {head} largest logits, but the model has only {model}; take a model with a larger vocabulary"
    )]
    Logits {
        /// Logits that it reads.
        head: usize,
        /// Logits that the model has.
        model: usize,
    },
    /// The weights of a head do not fit each other.
    #[error(
        "tensor {name} of the head has shape {found:?}, but its other tensors ask for {wanted}"
    )]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that would fit.
        wanted: String,
    },
    /// A failure of the tensor library.
    #[error("the head's weights cannot be combined: {0}")]
    Tensor(#[from] candle_core::Error),
}

/// What a head is, once it is known to fit its model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadFacts {
    /// What its score means.
    pub kind: HeadKind,
    /// The threshold that its makers chose.
    pub threshold: Option<f64>,
    /// Bytes of its weights in memory, at most.
    pub bytes: u64,
}

/// Checks that a head fits a model, without reading its weights.
///
/// # Errors
/// Names both sizes where they differ.
pub fn describe_head(files: &HeadFiles, arch: &Arch) -> Result<HeadFacts, HeadError> {
    let card = HeadCard::parse(&files.card)?;
    let tensors = Tensors::open(&files.weights)?;
    Plan::new(&card, &tensors, arch)?;
    let bytes = 4 * tensors.numbers();
    Ok(HeadFacts { kind: card.kind()?, threshold: card.threshold, bytes })
}

/// A loaded head.
#[derive(Debug)]
pub(crate) struct Head {
    inputs: Vec<Input>,
    network: Network,
}

/// One part of what a head reads, in the order in which its first layer takes them.
#[derive(Debug)]
enum Input {
    /// The hidden state.
    Hidden(Option<Norm>),
    /// The embedding of the sampled token, from a table `[vocabulary, width]`.
    Token(Tensor, Option<Norm>),
    /// So many of the largest raw logits, descending; as probabilities among themselves where `softmax`.
    Logits { count: usize, softmax: bool },
    /// The same of the logits that the head's own lm_head gives.
    OwnLogits { head: crate::linear::Linear, norm: Option<Norm>, count: usize },
}

/// What a model gives at one position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) hidden: &'a [f32],
    pub(crate) token: Token,
    pub(crate) logits: &'a [f32],
}

impl Head {
    /// Reads a head for a model whose embedding, `[vocabulary, hidden]`, it borrows unless it brings its own.
    pub(crate) fn load(
        files: &HeadFiles,
        arch: &Arch,
        embedding: &Tensor,
    ) -> Result<Self, HeadError> {
        let card = HeadCard::parse(&files.card)?;
        let tensors = Tensors::open(&files.weights)?;
        let plan = Plan::new(&card, &tensors, arch)?;
        network::load(&plan, &tensors, embedding)
    }

    /// Appends what the head reads of one position.
    fn read(&self, seen: &Seen<'_>, features: &mut Vec<f32>) -> candle_core::Result<()> {
        for input in &self.inputs {
            let start = features.len();
            match input {
                Input::Hidden(_) => features.extend_from_slice(seen.hidden),
                Input::Token(table, _) => {
                    let width = table.dim(1)?;
                    let from = seen.token as usize * width;
                    with_slice(table, |table| features.extend(&table[from..from + width]))?;
                }
                Input::Logits { count, .. } => {
                    features.extend(crate::signals::largest(seen.logits, *count));
                }
                Input::OwnLogits { head, norm, count } => {
                    let mut hidden = seen.hidden.to_vec();
                    norm.iter().for_each(|norm| norm.apply(&mut hidden));
                    features.extend(crate::signals::largest(&head.rows(&hidden), *count));
                }
            }
            let part = &mut features[start..];
            match input {
                Input::Hidden(Some(norm)) | Input::Token(_, Some(norm)) => norm.apply(part),
                Input::Logits { softmax: true, .. } => network::softmax(part),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The positions of one step that ask for heads.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    heads: Vec<Lines>,
}

/// The positions that ask for one head.
#[derive(Debug, Default)]
struct Lines {
    /// What it reads of them, one after the other.
    features: Vec<f32>,
    /// Row and output of each.
    places: Vec<(usize, usize)>,
}

impl Asked {
    /// Notes that output `place` (row and output) asks for a head.
    pub(crate) fn push(
        &mut self,
        heads: &[Head],
        head: HeadIx,
        place: (usize, usize),
        seen: &Seen<'_>,
    ) -> candle_core::Result<()> {
        let index = usize::from(head.0);
        if self.heads.len() <= index {
            self.heads.resize_with(index + 1, Lines::default);
        }
        let lines = &mut self.heads[index];
        lines.places.push(place);
        heads[index].read(seen, &mut lines.features)
    }

    /// Scores them all, each head once, and writes the scores where they belong.
    pub(crate) fn answer(self, heads: &[Head], outputs: &mut [RowOutput]) {
        for (head, Lines { features, places }) in heads.iter().zip(self.heads) {
            if places.is_empty() {
                continue;
            }
            let scores = head.network.scores(features, places.len());
            for ((row, output), score) in places.into_iter().zip(scores) {
                outputs[row][output].signals.head = Some(score);
            }
        }
    }
}

#[cfg(test)]
mod tests;
