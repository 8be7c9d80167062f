//! The networks of the heads: R2R's residual blocks (arXiv 2505.21600) and CITER's perceptron (arXiv 2502.01976).
//!
//! Layers between which nothing stands are one layer here, joined in double precision: R2R's projections of logits, of all
//! inputs and of the backbone; CITER's batch norm with the layer before it, and its last two layers.

use super::affine::Affine;
use super::plan::{Part, Plan, R2r};
use super::{Head, HeadError, Input};
use crate::exp::{exp, gelu, sigmoid};
use crate::linear::Linear;
use crate::weights::Tensors;
use candle_core::{DType, Tensor};

/// The epsilon of every norm, which PyTorch takes where its users name none.
const EPSILON: f64 = 1e-5;

/// What is between the features and the score.
#[derive(Debug)]
pub(super) enum Network {
    /// Residual blocks.
    Residual { input: Linear, blocks: Vec<Block>, norm: Norm, output: Linear },
    /// At most one hidden layer of rectifiers.
    Perceptron { hidden: Option<Linear>, output: Linear },
}

/// `x ↦ change(x) + down(gelu(up(norm(x))))`.
#[derive(Debug)]
pub(super) struct Block {
    norm: Norm,
    up: Linear,
    down: Linear,
    /// For a block whose width changes.
    change: Option<Linear>,
}

/// A layer norm.
#[derive(Debug)]
pub(super) struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Network {
    /// The scores in `[0, 1]` of `count` lines of features.
    pub(super) fn scores(&self, features: Vec<f32>, count: usize) -> Vec<f32> {
        let logits = match self {
            Self::Residual { input, blocks, norm, output } => {
                let mut x = blocks.iter().fold(input.rows(&features), |x, block| block.apply(x));
                norm.apply(&mut x);
                output.rows(&x)
            }
            Self::Perceptron { hidden, output } => match hidden {
                Some(hidden) => {
                    let mut x = hidden.rows(&features);
                    x.iter_mut().for_each(|x| *x = x.max(0.0));
                    output.rows(&x)
                }
                None => output.rows(&features),
            },
        };
        logits.chunks_exact(logits.len() / count).map(score).collect()
    }
}

/// The score of one line: the sigmoid of a single output, the last class's probability of three.
fn score(outputs: &[f32]) -> f32 {
    match outputs {
        [logit] => sigmoid(*logit),
        [first, second, last] => {
            let odds = f64::from(first - last).exp() + f64::from(second - last).exp();
            (1.0 / (1.0 + odds)) as f32
        }
        _ => f32::NAN,
    }
}

impl Block {
    fn apply(&self, x: Vec<f32>) -> Vec<f32> {
        let mut normed = x.clone();
        self.norm.apply(&mut normed);
        let mut inner = self.up.rows(&normed);
        inner.iter_mut().for_each(|x| *x = gelu(*x));
        let mut out = self.down.rows(&inner);
        let kept = match &self.change {
            Some(change) => change.rows(&x),
            None => x,
        };
        out.iter_mut().zip(&kept).for_each(|(out, kept)| *out += kept);
        out
    }
}

impl Norm {
    /// Normalises every line of `x`.
    pub(super) fn apply(&self, x: &mut [f32]) {
        let width = self.weight.len();
        for line in x.chunks_exact_mut(width) {
            let mean = line.iter().map(|x| f64::from(*x)).sum::<f64>() / width as f64;
            let square = |x: &f32| (f64::from(*x) - mean).powi(2);
            let variance = line.iter().map(square).sum::<f64>() / width as f64;
            let scale = 1.0 / (variance + EPSILON).sqrt();
            for (x, (weight, bias)) in line.iter_mut().zip(self.weight.iter().zip(&self.bias)) {
                *x = ((f64::from(*x) - mean) * scale) as f32 * weight + bias;
            }
        }
    }
}

/// Makes probabilities of logits that stand in descending order.
pub(super) fn softmax(logits: &mut [f32]) {
    let largest = logits.first().copied().unwrap_or_default();
    logits.iter_mut().for_each(|x| *x = exp(*x - largest));
    let total: f32 = logits.iter().sum();
    logits.iter_mut().for_each(|x| *x /= total);
}

/// Reads the weights that a plan names.
pub(super) fn load(plan: &Plan, tensors: &Tensors, embedding: &Tensor) -> Result<Head, HeadError> {
    let loader = Loader { tensors };
    match plan {
        Plan::R2r(plan) => loader.r2r(plan, embedding),
        Plan::Citer => loader.citer(),
        Plan::Linear => Ok(Head {
            inputs: vec![Input::Hidden(None)],
            network: Network::Perceptron { hidden: None, output: loader.layer("linear")? },
        }),
    }
}

struct Loader<'a> {
    tensors: &'a Tensors,
}

impl Loader<'_> {
    fn r2r(&self, plan: &R2r, embedding: &Tensor) -> Result<Head, HeadError> {
        let mut input = self.affine(plan.first)?;
        let mut inputs = Vec::new();
        for part in &plan.parts {
            inputs.push(match *part {
                Part::Hidden { norm } => Input::Hidden(self.norm_if(norm)?),
                Part::Token { norm, own_table } => {
                    let own = own_table.then(|| self.tensors.wide("token_embeddings.weight"));
                    let table = own.transpose()?.unwrap_or_else(|| embedding.clone());
                    Input::Token(table, self.norm_if(norm)?)
                }
                Part::Logits { count, softmax, projected } => {
                    if projected {
                        input = input.after_last(&self.affine("logits_projection")?)?;
                    }
                    Input::Logits { count, softmax }
                }
                Part::OwnLogits { count, norm } => {
                    let head = self.layer("lm_head")?;
                    Input::OwnLogits { head, norm: self.norm_if(norm)?, count }
                }
            });
        }
        let input = self.affine("backbone.input_projection")?.after(&input)?.layer()?;
        let blocks = plan.blocks.iter().enumerate().map(|(index, changes)| {
            let name = |part: &str| format!("backbone.blocks.{index}.{part}");
            Ok(Block {
                norm: self.norm(&name("layer_norm"))?,
                up: self.layer(&name("mlp.0"))?,
                down: self.layer(&name("mlp.3"))?,
                change: changes.then(|| self.layer(&name("dim_change"))).transpose()?,
            })
        });
        let blocks = blocks.collect::<Result<_, HeadError>>()?;
        let norm = self.norm("backbone.output_layer.0")?;
        let output = self.layer("backbone.output_layer.1")?;
        Ok(Head { inputs, network: Network::Residual { input, blocks, norm, output } })
    }

    fn citer(&self) -> Result<Head, HeadError> {
        let part = |part: &str| self.tensors.wide(&format!("mlp.1.{part}"))?.to_dtype(DType::F64);
        let scale = (part("weight")? / (part("running_var")? + EPSILON)?.sqrt()?)?;
        let shift = (part("bias")? - (part("running_mean")? * &scale)?)?;
        let hidden = self.affine("mlp.0")?.scaled(&scale, &shift)?.layer()?;
        let output = self.affine("linear")?.after(&self.affine("mlp.4")?)?.layer()?;
        let network = Network::Perceptron { hidden: Some(hidden), output };
        Ok(Head { inputs: vec![Input::Hidden(None)], network })
    }

    fn affine(&self, name: &str) -> Result<Affine, HeadError> {
        let [weight, bias] = self.pair(name)?;
        Ok(Affine::new(&weight, &bias)?)
    }

    fn layer(&self, name: &str) -> Result<Linear, HeadError> {
        let [weight, bias] = self.pair(name)?;
        Ok(Linear::new(&weight, Some(&bias))?)
    }

    fn norm_if(&self, name: Option<&str>) -> Result<Option<Norm>, HeadError> {
        name.map(|name| self.norm(name)).transpose()
    }

    fn norm(&self, name: &str) -> Result<Norm, HeadError> {
        let [weight, bias] = self.pair(name)?;
        Ok(Norm { weight: weight.to_vec1()?, bias: bias.to_vec1()? })
    }

    /// The weight and the bias of a layer.
    fn pair(&self, name: &str) -> candle_core::Result<[Tensor; 2]> {
        let part = |part: &str| self.tensors.wide(&format!("{name}.{part}"));
        Ok([part("weight")?, part("bias")?])
    }
}
