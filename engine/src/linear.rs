//! The one linear kernel of the CPU: `y = x Wᵀ + b` for any number of rows, with the same bits for each row whatever
//! the others are.
//!
//! Every output is a single chain of fused multiply-adds over k from 0 up, whether one row is computed or sixteen, on
//! one thread or several. Speed comes from running many such chains side by side: weights are packed at load into tiles
//! of 16 outputs, k after k, so that one pass over a tile serves up to six rows from registers, and the tile stays in
//! the first-level cache for the next six. Weights that bf16 holds exactly are kept in bf16 and widened on the way,
//! which is lossless and halves the memory that decoding waits for.

use candle_core::{CpuStorage, DType, Device, Result, Storage, Tensor, bail};
use kernel::{TILE, Weight};
use mistralrs_quant::{IsqType, QuantMethod, QuantMethodConfig, QuantizeOntoGuard, QuantizedSerde};
use rayon::prelude::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

mod kernel;

/// Multiply-adds below which a second thread costs more than it gives.
const PARALLEL: usize = 1 << 19;

/// A linear layer on the CPU.
#[derive(Debug)]
pub(crate) struct Linear {
    inputs: usize,
    outputs: usize,
    packed: Packed,
    bias: Option<Vec<f32>>,
}

/// Tiles of 16 outputs, each `[inputs][16]`; the last one is filled up with zeros.
#[derive(Debug)]
enum Packed {
    F32(Vec<f32>),
    Bf16(Vec<Bf16>),
}

/// The upper half of an f32.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bf16(u16);

impl Weight for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Weight for Bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

impl Linear {
    /// Packs a weight `[outputs, inputs]` and a bias `[outputs]`.
    pub(crate) fn new(weight: &Tensor, bias: Option<&Tensor>) -> Result<Self> {
        let (outputs, inputs) = weight.dims2()?;
        let rows = weight.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let exact = rows.iter().all(|weight| weight.to_bits() & 0xffff == 0);
        let packed = if exact {
            let half = |weight: f32| Bf16((weight.to_bits() >> 16) as u16);
            Packed::Bf16(pack(&rows, inputs, half))
        } else {
            Packed::F32(pack(&rows, inputs, |weight| weight))
        };
        let bias = match bias {
            Some(bias) if bias.dims() != [outputs] => {
                bail!("a bias of shape {:?} does not fit {outputs} outputs", bias.dims())
            }
            Some(bias) => Some(bias.to_dtype(DType::F32)?.to_vec1()?),
            None => None,
        };
        Ok(Self { inputs, outputs, packed, bias })
    }

    /// The layer applied to `x`, `[rows, inputs]`; writes `[rows, outputs]`.
    pub(crate) fn apply(&self, x: &[f32], out: &mut [f32]) {
        debug_assert_eq!(x.len() / self.inputs, out.len() / self.outputs);
        match &self.packed {
            Packed::F32(packed) => self.multiply(packed, x, out),
            Packed::Bf16(packed) => self.multiply(packed, x, out),
        }
        if let Some(bias) = &self.bias {
            for row in out.chunks_exact_mut(self.outputs) {
                row.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
            }
        }
    }

    /// The layer applied to every line of `x`, `[rows, inputs]`; gives `[rows, outputs]`.
    pub(crate) fn rows(&self, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; x.len() / self.inputs * self.outputs];
        self.apply(x, &mut out);
        out
    }

    fn multiply<W: Weight>(&self, packed: &[W], x: &[f32], out: &mut [f32]) {
        let (inputs, outputs) = (self.inputs, self.outputs);
        let threads = rayon::current_num_threads();
        if threads == 1 || x.len() * outputs < PARALLEL {
            return kernel::multiply(packed, inputs, x, out, outputs);
        }
        // Each thread computes some tiles for all rows, in a piece of its own that is then copied to its columns.
        let tiles = outputs.div_ceil(TILE);
        let width = tiles.div_ceil(threads).max(1) * TILE;
        let rows = x.len() / inputs;
        let pieces: Vec<_> = packed
            .par_chunks(width * inputs)
            .enumerate()
            .map(|(index, packed)| {
                let columns = width.min(outputs - index * width);
                let mut piece = vec![0.0; rows * columns];
                kernel::multiply(packed, inputs, x, &mut piece, columns);
                (index * width, columns, piece)
            })
            .collect();
        for (first, columns, piece) in pieces {
            let rows = out.chunks_exact_mut(outputs).zip(piece.chunks_exact(columns));
            rows.for_each(|(out, piece)| out[first..first + columns].copy_from_slice(piece));
        }
    }

    /// The weight `[outputs, inputs]` again.
    fn unpack(&self) -> Vec<f32> {
        match &self.packed {
            Packed::F32(packed) => unpack(packed, self.inputs, self.outputs),
            Packed::Bf16(packed) => unpack(packed, self.inputs, self.outputs),
        }
    }
}

impl QuantMethod for Linear {
    fn new(_: QuantMethodConfig) -> Result<Self> {
        bail!("a CPU linear layer is made from its weight")
    }

    fn dequantize_w(&self) -> Result<Tensor> {
        Tensor::from_vec(self.unpack(), (self.outputs, self.inputs), &Device::Cpu)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut shape = x.dims().to_vec();
        if shape.pop() != Some(self.inputs) {
            bail!("{} inputs wanted, the input has shape {:?}", self.inputs, x.dims());
        }
        let out = with_slice(x, |x| self.rows(x))?;
        shape.push(self.outputs);
        Tensor::from_vec(out, shape, &Device::Cpu)
    }

    fn quantized_act_type(&self) -> Option<DType> {
        None
    }

    fn dtype_and_device(&self) -> (DType, Device) {
        (DType::F32, Device::Cpu)
    }

    fn add_delta_w(&self, delta: &Tensor) -> Result<Arc<dyn QuantMethod>> {
        let weight = (self.dequantize_w()? + delta)?;
        let bias = self.bias.as_deref().map(|bias| Tensor::new(bias, &Device::Cpu)).transpose()?;
        Ok(Arc::new(Self::new(&weight, bias.as_ref())?))
    }

    fn apply_isq(
        self: Arc<Self>,
        _: Option<IsqType>,
        _: Device,
        _: &AtomicUsize,
        _: Option<Vec<f32>>,
        _: QuantizeOntoGuard,
    ) -> Result<Arc<dyn QuantMethod>> {
        bail!("quantise a layer before it is packed for the CPU kernel")
    }
}

impl QuantizedSerde for Linear {
    fn name(&self) -> &'static str {
        "cpu-linear"
    }
}

/// Lends the numbers of a CPU tensor, copied only where they do not lie in order.
pub(crate) fn with_slice<T>(x: &Tensor, use_it: impl FnOnce(&[f32]) -> T) -> Result<T> {
    let x = x.contiguous()?;
    let (storage, layout) = x.storage_and_layout();
    match &*storage {
        Storage::Cpu(CpuStorage::F32(numbers)) => {
            let start = layout.start_offset();
            Ok(use_it(&numbers[start..start + layout.shape().elem_count()]))
        }
        _ => bail!("an f32 tensor on the CPU is wanted, not {:?} on {:?}", x.dtype(), x.device()),
    }
}

fn pack<W: Copy + Default>(rows: &[f32], inputs: usize, narrow: impl Fn(f32) -> W) -> Vec<W> {
    let outputs = rows.len() / inputs;
    let mut packed = vec![W::default(); outputs.div_ceil(TILE) * TILE * inputs];
    for (output, row) in rows.chunks_exact(inputs).enumerate() {
        let tile = &mut packed[output / TILE * TILE * inputs..];
        for (k, weight) in row.iter().enumerate() {
            tile[k * TILE + output % TILE] = narrow(*weight);
        }
    }
    packed
}

fn unpack<W: Weight>(packed: &[W], inputs: usize, outputs: usize) -> Vec<f32> {
    let mut rows = vec![0.0; outputs * inputs];
    for (output, row) in rows.chunks_exact_mut(inputs).enumerate() {
        let tile = &packed[output / TILE * TILE * inputs..];
        for (k, weight) in row.iter_mut().enumerate() {
            *weight = tile[k * TILE + output % TILE].widen();
        }
    }
    rows
}

#[cfg(test)]
mod tests;
