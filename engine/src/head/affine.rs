//! Affine maps `y = W x + b` in double precision, joined at load where nothing stands between them.

use crate::linear::Linear;
use candle_core::{DType, Result, Tensor};

/// A map from `inputs` to `outputs` numbers: weight `[outputs, inputs]`, bias `[outputs]`, both f64.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    pub(super) weight: Tensor,
    pub(super) bias: Tensor,
}

impl Affine {
    pub(super) fn new(weight: &Tensor, bias: &Tensor) -> Result<Self> {
        Ok(Self { weight: weight.to_dtype(DType::F64)?, bias: bias.to_dtype(DType::F64)? })
    }

    /// This map after another.
    pub(super) fn after(&self, inner: &Self) -> Result<Self> {
        let bias = self.weight.matmul(&inner.bias.unsqueeze(1)?)?.squeeze(1)?;
        Ok(Self { weight: self.weight.matmul(&inner.weight)?, bias: (bias + &self.bias)? })
    }

    /// This map after another that concerns only its last inputs.
    pub(super) fn after_last(&self, inner: &Self) -> Result<Self> {
        let (width, inputs) = (inner.weight.dim(0)?, self.weight.dim(1)?);
        let rest = self.weight.narrow(1, 0, inputs - width)?;
        let last = self.weight.narrow(1, inputs - width, width)?.contiguous()?;
        let last = Self { weight: last, bias: self.bias.clone() }.after(inner)?;
        Ok(Self { weight: Tensor::cat(&[&rest, &last.weight], 1)?, bias: last.bias })
    }

    /// This map with its outputs scaled and shifted: `y · scale + shift`.
    pub(super) fn scaled(&self, scale: &Tensor, shift: &Tensor) -> Result<Self> {
        let weight = self.weight.broadcast_mul(&scale.unsqueeze(1)?)?;
        Ok(Self { weight, bias: ((&self.bias * scale)? + shift)? })
    }

    /// The map as a layer.
    pub(super) fn layer(&self) -> Result<Linear> {
        Linear::new(&self.weight, Some(&self.bias))
    }
}
