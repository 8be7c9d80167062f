//! Attention of the new tokens of all rows over the paged pool, one call for a whole layer of a step.
//!
//! What a device keeps of keys and values, and in which layout, is its own affair; block tables are the same everywhere.
//! `attention/cpu.rs` is the only implementation: one for CUDA would take the same [`Batch`], keep its pool in two
//! tensors a layer and call the paged-attention kernels; it is not written.

use candle_core::{Result, Tensor};
use tokenrouter_policies::Position;

mod cpu;

pub(crate) use cpu::CpuAttention;

/// The shape of a model's attention.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Query heads.
    pub(crate) heads: usize,
    /// Key and value heads; query head `h` looks at head `h / (heads / kv_heads)`.
    pub(crate) kv_heads: usize,
    /// Size of a head.
    pub(crate) head_dim: usize,
    /// How far each layer looks back.
    pub(crate) windows: Vec<Option<Position>>,
    /// Blocks in the pool.
    pub(crate) blocks: u32,
}

/// The new tokens of a step, in order: those of the first row, then those of the second, and so on.
#[derive(Debug, Default)]
pub(crate) struct Batch<'a> {
    /// For each token, its row and its position.
    pub(crate) tokens: Vec<(usize, Position)>,
    /// For each row, its blocks, those of its new tokens included.
    pub(crate) tables: Vec<&'a [u32]>,
}

/// Keys and values of all layers, and what queries make of them.
pub(crate) trait Attention: Send {
    /// Keeps the keys and values `[tokens, kv_heads · head_dim]` of the new tokens, then lets every query
    /// `[tokens, heads · head_dim]` look at its sequence up to its own position. Gives `[tokens, heads · head_dim]`.
    fn forward(&mut self, layer: usize, qkv: [&Tensor; 3], batch: &Batch<'_>) -> Result<Tensor>;
}
