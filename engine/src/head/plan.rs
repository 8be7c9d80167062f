//! What a head is made of: read from the names and shapes of its weights and checked against the model. Reads no weight.

use super::{HeadCard, HeadError};
use crate::arch::Arch;
use crate::weights::{Tensors, WeightsError};
use tokenrouter_policies::HeadKind;

/// The makings of a head. Every tensor it names is there and has the right shape.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// R2R's residual network.
    R2r(R2r),
    /// CITER's perceptron.
    Citer,
    /// One row.
    Linear,
}

/// An R2R network.
#[derive(Debug, PartialEq)]
pub(super) struct R2r {
    /// What it reads, in order.
    pub(super) parts: Vec<Part>,
    /// The layer that takes all parts at once.
    pub(super) first: &'static str,
    /// Blocks of its backbone, and whether each changes the width.
    pub(super) blocks: Vec<bool>,
}

/// One input, with the name of its norm where inputs are normalised.
#[derive(Debug, PartialEq)]
pub(super) enum Part {
    Hidden {
        norm: Option<&'static str>,
    },
    Token {
        norm: Option<&'static str>,
        own_table: bool,
    },
    /// The largest logits; `projected` where they pass a layer of their own before the first.
    Logits {
        count: usize,
        softmax: bool,
        projected: bool,
    },
    OwnLogits {
        count: usize,
        norm: Option<&'static str>,
    },
}

impl Plan {
    pub(super) fn new(card: &HeadCard, tensors: &Tensors, arch: &Arch) -> Result<Self, HeadError> {
        let shapes = Shapes { tensors, arch };
        if card.says("use_position_embedding") {
            return Err(HeadError::Option { option: "use_position_embedding" });
        }
        let normalised = card.says("normalize_input");
        match card.kind()? {
            HeadKind::R2r => Ok(Self::R2r(shapes.r2r(&card.model_type, normalised)?)),
            HeadKind::Citer => shapes.citer(),
            HeadKind::Linear => {
                shapes.hidden(shapes.inputs("linear")?)?;
                shapes.score("linear", arch.hidden)?;
                Ok(Self::Linear)
            }
        }
    }
}

/// The shapes of a head's weights, beside the model that they must fit.
#[derive(Clone, Copy)]
struct Shapes<'a> {
    tensors: &'a Tensors,
    arch: &'a Arch,
}

impl Shapes<'_> {
    fn citer(&self) -> Result<Plan, HeadError> {
        self.hidden(self.inputs("mlp.0")?)?;
        let inner = self.linear("mlp.0", self.arch.hidden)?;
        for part in ["weight", "bias", "running_mean", "running_var"] {
            self.vector(&format!("mlp.1.{part}"), inner)?;
        }
        let outer = self.linear("mlp.4", inner)?;
        self.score("linear", outer)?;
        Ok(Plan::Citer)
    }

    fn r2r(&self, kind: &str, normalised: bool) -> Result<R2r, HeadError> {
        let norm = |name: &'static str| normalised.then_some(name);
        let hidden = Part::Hidden { norm: norm("layer_norm_hidden_states") };
        let token = || Part::Token {
            norm: norm("layer_norm_token"),
            own_table: self.tensors.shape("token_embeddings.weight").is_some(),
        };
        let logits = |projected| -> Result<Part, HeadError> {
            let count = self.inputs("logits_projection")?;
            Ok(Part::Logits { count, softmax: normalised, projected })
        };
        let (parts, first) = match kind {
            "HiddenStatesTokenLMHeadLogitsClassifier" => {
                (vec![hidden, token(), logits(true)?], "combined_projection")
            }
            "HiddenStatesTokenLMHeadClassifier" => (vec![hidden, token()], "combined_projection"),
            "HiddenStatesLogitsClassifier" => (vec![hidden, logits(true)?], "combined_projection"),
            "HiddenStatesClassifier" => {
                (vec![Part::Hidden { norm: norm("layer_norm") }], "hidden_states_projection")
            }
            "HiddenStatesClassifierWithLMHead" => {
                let count = self.inputs("post_lm_projection")?;
                (vec![Part::OwnLogits { count, norm: norm("layer_norm") }], "post_lm_projection")
            }
            _ => (vec![logits(false)?], "logits_projection"),
        };
        self.hidden_of(&parts, first)?;
        let mut inputs = 0;
        for part in &parts {
            inputs += self.part(part)?;
        }
        let width = self.linear(first, inputs)?;
        Ok(R2r { parts, first, blocks: self.backbone(width)? })
    }

    /// Checks the size of the hidden states before anything else, so that a head of another model is told as such.
    fn hidden_of(&self, parts: &[Part], first: &str) -> Result<(), HeadError> {
        let head = match parts {
            [.., Part::Logits { projected: true, .. }] => self.outputs("logits_projection")?,
            [Part::Hidden { .. }, Part::Token { .. }] => self.inputs(first)? / 2,
            [Part::Hidden { .. }] => self.inputs(first)?,
            [Part::OwnLogits { .. }] => self.inputs("lm_head")?,
            _ => return Ok(()),
        };
        self.hidden(head)
    }

    fn hidden(&self, head: usize) -> Result<(), HeadError> {
        let model = self.arch.hidden;
        if head == model { Ok(()) } else { Err(HeadError::Hidden { head, model }) }
    }

    /// Checks one part, and gives how many numbers the first layer gets of it.
    fn part(&self, part: &Part) -> Result<usize, HeadError> {
        let (hidden, vocabulary) = (self.arch.hidden, self.arch.vocabulary);
        match part {
            Part::Hidden { norm } => self.norm(*norm, hidden).map(|()| hidden),
            Part::Token { norm, own_table } => {
                if *own_table && self.outputs("token_embeddings")? < vocabulary {
                    let head = self.outputs("token_embeddings")?;
                    return Err(HeadError::Vocabulary { head, model: vocabulary });
                }
                let width = if *own_table { self.inputs("token_embeddings")? } else { hidden };
                self.norm(*norm, width).map(|()| width)
            }
            Part::Logits { count, projected, .. } => {
                if *count > vocabulary {
                    return Err(HeadError::Logits { head: *count, model: vocabulary });
                }
                if *projected { self.linear("logits_projection", *count) } else { Ok(*count) }
            }
            Part::OwnLogits { count, norm } => {
                self.norm(*norm, hidden)?;
                let own = self.linear("lm_head", hidden)?;
                if *count > own {
                    return Err(HeadError::Logits { head: *count, model: own });
                }
                Ok(*count)
            }
        }
    }

    fn backbone(&self, inputs: usize) -> Result<Vec<bool>, HeadError> {
        let mut width = self.linear("backbone.input_projection", inputs)?;
        let mut blocks = Vec::new();
        loop {
            let block = format!("backbone.blocks.{}", blocks.len());
            if self.tensors.shape(&format!("{block}.mlp.0.weight")).is_none() {
                break;
            }
            self.norm(Some(&format!("{block}.layer_norm")), width)?;
            let inner = self.linear(&format!("{block}.mlp.0"), width)?;
            let next = self.linear(&format!("{block}.mlp.3"), inner)?;
            blocks.push(next != width);
            if next != width {
                let change = format!("{block}.dim_change");
                if self.linear(&change, width)? != next {
                    return Err(self.misfit(&format!("{change}.weight"), format!("{next} outputs")));
                }
            }
            width = next;
        }
        self.norm(Some("backbone.output_layer.0"), width)?;
        self.score("backbone.output_layer.1", width)?;
        Ok(blocks)
    }

    /// Checks a last layer: one output, or three classes.
    fn score(&self, name: &str, inputs: usize) -> Result<(), HeadError> {
        match self.linear(name, inputs)? {
            1 | 3 => Ok(()),
            _ => Err(self.misfit(&format!("{name}.weight"), "1 or 3 outputs".to_owned())),
        }
    }

    /// Checks a layer, and gives its outputs.
    fn linear(&self, name: &str, inputs: usize) -> Result<usize, HeadError> {
        let outputs = self.outputs(name)?;
        if self.inputs(name)? != inputs {
            return Err(self.misfit(&format!("{name}.weight"), format!("{inputs} inputs")));
        }
        self.vector(&format!("{name}.bias"), outputs).map(|()| outputs)
    }

    fn norm(&self, name: Option<&str>, width: usize) -> Result<(), HeadError> {
        let Some(name) = name else { return Ok(()) };
        self.vector(&format!("{name}.weight"), width)?;
        self.vector(&format!("{name}.bias"), width)
    }

    fn vector(&self, name: &str, width: usize) -> Result<(), HeadError> {
        if self.shape(name)? == [width] {
            return Ok(());
        }
        Err(self.misfit(name, format!("{:?}", [width])))
    }

    fn inputs(&self, name: &str) -> Result<usize, HeadError> {
        self.matrix(name).map(|[_, inputs]| inputs)
    }

    fn outputs(&self, name: &str) -> Result<usize, HeadError> {
        self.matrix(name).map(|[outputs, _]| outputs)
    }

    fn matrix(&self, name: &str) -> Result<[usize; 2], HeadError> {
        let name = format!("{name}.weight");
        match *self.shape(&name)? {
            [outputs, inputs] if outputs > 0 && inputs > 0 => Ok([outputs, inputs]),
            _ => Err(self.misfit(&name, "a matrix".to_owned())),
        }
    }

    fn shape(&self, name: &str) -> Result<&[usize], HeadError> {
        let missing = || WeightsError::Missing { name: name.to_owned() };
        Ok(self.tensors.shape(name).ok_or_else(missing)?)
    }

    fn misfit(&self, name: &str, wanted: String) -> HeadError {
        let found = self.tensors.shape(name).unwrap_or_default().to_vec();
        HeadError::Shape { name: name.to_owned(), found, wanted }
    }
}
