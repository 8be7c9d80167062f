//! Paged attention on the CPU. A query is computed alone, over its blocks in order, so its bits depend on nothing but its
//! own sequence; several threads share the queries, never one query.
//!
//! Keys lie transposed within a block, `[head_dim][16]`, so that the scores of 16 positions come out of one vector loop
//! without a horizontal sum; values lie `[16][head_dim]`, so that they are added up the same way.

use super::{Attention, Batch, Shape};
use crate::error::Error;
use crate::exp::exp;
use crate::kv::BLOCK;
use crate::linear::with_slice;
use candle_core::{Device, Result, Tensor};
use rayon::prelude::*;
use std::ops::Range;
use tokenrouter_policies::Position;

/// Positions in a block.
const LANES: usize = BLOCK as usize;

/// Multiply-adds below which a second thread costs more than it gives.
const PARALLEL: usize = 1 << 19;

/// The pool of a model on the CPU.
pub(crate) struct CpuAttention {
    shape: Shape,
    scale: f32,
    layers: Vec<Layer>,
    scores: Vec<f32>,
}

/// Keys `[blocks][kv_heads][head_dim][16]` and values `[blocks][kv_heads][16][head_dim]`.
struct Layer {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// One query head of one token, and what it looks at.
struct Query<'a> {
    query: &'a [f32],
    kv_head: usize,
    table: &'a [u32],
    /// The positions it sees; the last is its own.
    seen: Range<usize>,
}

impl CpuAttention {
    /// An empty pool. The system gives the memory when a block is first used.
    ///
    /// # Errors
    /// [`Error::Pool`] where the system would never give so much.
    pub(crate) fn new(shape: Shape) -> std::result::Result<Self, Error> {
        let size = shape.blocks as usize * shape.kv_heads * shape.head_dim * LANES;
        // Asked for once and given back: a refusal is an error here, and would end the process below.
        let refused = Vec::<f32>::new().try_reserve_exact(size).is_err();
        if refused {
            let bytes = size as u64 * size_of::<f32>() as u64 * 2 * shape.windows.len() as u64;
            return Err(Error::Pool { bytes });
        }
        let layer = |_: &Option<Position>| Layer { keys: vec![0.0; size], values: vec![0.0; size] };
        let layers = shape.windows.iter().map(layer).collect();
        let scale = 1.0 / (shape.head_dim as f32).sqrt();
        Ok(Self { shape, scale, layers, scores: Vec::new() })
    }

    /// Writes the keys and values of the new tokens to their blocks.
    fn keep(&mut self, layer: usize, keys: &[f32], values: &[f32], batch: &Batch<'_>) {
        let Shape { kv_heads, head_dim, .. } = self.shape;
        let Layer { keys: kept_keys, values: kept_values } = &mut self.layers[layer];
        let size = head_dim * LANES;
        for (token, &(row, position)) in batch.tokens.iter().enumerate() {
            let (block, lane) = (position as usize / LANES, position as usize % LANES);
            for head in 0..kv_heads {
                let from = (token * kv_heads + head) * head_dim..;
                let place = (batch.tables[row][block] as usize * kv_heads + head) * size;
                let column = kept_keys[place..][..size].chunks_exact_mut(LANES);
                column.zip(&keys[from.clone()]).for_each(|(lanes, key)| lanes[lane] = *key);
                kept_values[place + lane * head_dim..][..head_dim]
                    .copy_from_slice(&values[from][..head_dim]);
            }
        }
    }

    /// All queries of the step, `[tokens][heads][head_dim]`, to as many outputs.
    fn attend(&mut self, layer: usize, queries: &[f32], batch: &Batch<'_>, out: &mut [f32]) {
        let Shape { heads, kv_heads, head_dim, .. } = self.shape;
        let window = self.shape.windows[layer].map_or(usize::MAX, |window| window as usize);
        let query = |index: usize| {
            let (row, position) = batch.tokens[index / heads];
            let end = position as usize + 1;
            Query {
                query: &queries[index * head_dim..][..head_dim],
                kv_head: index % heads / (heads / kv_heads),
                table: batch.tables[row],
                seen: end.saturating_sub(window)..end,
            }
        };
        let seen: usize = batch.tokens.iter().map(|(_, position)| *position as usize + 1).sum();
        if rayon::current_num_threads() == 1 || 2 * seen * heads * head_dim < PARALLEL {
            let mut scores = std::mem::take(&mut self.scores);
            for (index, out) in out.chunks_exact_mut(head_dim).enumerate() {
                self.look(layer, &query(index), &mut scores, out);
            }
            self.scores = scores;
            return;
        }
        out.par_chunks_exact_mut(head_dim).enumerate().for_each_init(
            Vec::new,
            |scores, (i, out)| {
                self.look(layer, &query(i), scores, out);
            },
        );
    }

    /// One query: scores block by block, their softmax, then the sum of values position by position.
    fn look(&self, layer: usize, query: &Query<'_>, scores: &mut Vec<f32>, out: &mut [f32]) {
        let Layer { keys, values } = &self.layers[layer];
        let (kv_heads, head_dim) = (self.shape.kv_heads, self.shape.head_dim);
        let size = head_dim * LANES;
        let first = query.seen.start / LANES;
        let blocks = &query.table[first..query.seen.end.div_ceil(LANES)];
        let place = |block: u32| (block as usize * kv_heads + query.kv_head) * size;

        scores.clear();
        for &block in blocks {
            let block = score(query.query, &keys[place(block)..][..size]);
            scores.extend(block.map(|score| score * self.scale));
        }
        // Lanes that hold no position of this sequence, or one out of sight, weigh nothing, whatever lies in them.
        let (start, end) = (query.seen.start - first * LANES, query.seen.end - first * LANES);
        scores[..start].fill(f32::NEG_INFINITY);
        scores[end..].fill(f32::NEG_INFINITY);
        let total = soften(scores);

        out.fill(0.0);
        for (index, &block) in blocks.iter().enumerate() {
            let lanes = &scores[index * LANES..][..LANES];
            let valid = LANES.min(end - index * LANES);
            add(&lanes[..valid], &values[place(block)..][..size], out);
        }
        out.iter_mut().for_each(|out| *out /= total);
    }
}

impl Attention for CpuAttention {
    fn forward(&mut self, layer: usize, qkv: [&Tensor; 3], batch: &Batch<'_>) -> Result<Tensor> {
        let [q, k, v] = qkv;
        with_slice(k, |k| with_slice(v, |v| self.keep(layer, k, v, batch)))??;
        let width = self.shape.heads * self.shape.head_dim;
        let mut out = vec![0.0; batch.tokens.len() * width];
        with_slice(q, |q| self.attend(layer, q, batch, &mut out))?;
        Tensor::from_vec(out, (batch.tokens.len(), width), &Device::Cpu)
    }
}

/// The products of a query with the 16 keys of a block.
fn score(query: &[f32], keys: &[f32]) -> [f32; LANES] {
    let mut sums = [0.0; LANES];
    for (query, keys) in query.iter().zip(keys.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[lane] = query.mul_add(keys[lane], sums[lane]);
        }
    }
    sums
}

/// Turns scores into weights relative to the largest, in place, and gives their sum, which is at least 1.
fn soften(scores: &mut [f32]) -> f32 {
    let (lanes, _) = scores.as_chunks_mut::<LANES>();
    let mut largest = [f32::NEG_INFINITY; LANES];
    for scores in &*lanes {
        for lane in 0..LANES {
            // `f32::max` would keep the compiler from using the instruction.
            largest[lane] = if scores[lane] > largest[lane] { scores[lane] } else { largest[lane] };
        }
    }
    let largest = largest.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let mut sums = [0.0; LANES];
    for scores in lanes {
        for lane in 0..LANES {
            scores[lane] = exp(scores[lane] - largest);
            sums[lane] += scores[lane];
        }
    }
    sums.into_iter().sum()
}

/// Adds the weighted values of a block's positions to `out`.
fn add(weights: &[f32], values: &[f32], out: &mut [f32]) {
    const WIDTH: usize = 8;
    let head_dim = out.len();
    let (wide, rest) = out.as_chunks_mut::<WIDTH>();
    for (index, out) in wide.iter_mut().enumerate() {
        let mut sums = *out;
        for (weight, values) in weights.iter().zip(values.chunks_exact(head_dim)) {
            let values = &values[index * WIDTH..][..WIDTH];
            for lane in 0..WIDTH {
                sums[lane] = weight.mul_add(values[lane], sums[lane]);
            }
        }
        *out = sums;
    }
    let from = head_dim - rest.len();
    for (weight, values) in weights.iter().zip(values.chunks_exact(head_dim)) {
        rest.iter_mut().zip(&values[from..]).for_each(|(out, v)| *out = weight.mul_add(*v, *out));
    }
}
