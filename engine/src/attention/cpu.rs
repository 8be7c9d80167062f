//! Paged attention on the CPU. A query is computed alone, over its blocks in order, so its bits depend on nothing but its
//! own sequence; what the queries of a few tokens share is the reading of the blocks they see, which is what a long context
//! costs. Several threads share the queries, never one query.
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
use tokenrouter_policies::Position;

/// Positions in a block.
const LANES: usize = BLOCK as usize;

/// Most tokens of a row that look together.
const TOGETHER: usize = 4;

/// Multiply-adds below which a second thread costs more than it gives.
const PARALLEL: usize = 1 << 19;

/// The pool of a model on the CPU.
pub(crate) struct CpuAttention {
    shape: Shape,
    scale: f32,
    layers: Vec<Layer>,
    scratch: Scratch,
}

/// Keys `[blocks][kv_heads][head_dim][16]` and values `[blocks][kv_heads][16][head_dim]`.
struct Layer {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Tokens of one row that look together, so that each block they see is read once for all of them.
struct Group<'a> {
    table: &'a [u32],
    /// Of the first token; the others follow.
    position: usize,
    /// `[tokens][heads][head_dim]`, like `out`.
    queries: &'a [f32],
    out: &'a mut [f32],
}

/// What a group needs meanwhile.
#[derive(Default)]
struct Scratch {
    /// For each query of a key head, its scores with every block of the group.
    scores: Vec<f32>,
    /// For each query, the sum of its weights.
    totals: Vec<f32>,
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
        Ok(Self { shape, scale, layers, scratch: Scratch::default() })
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
        let width = self.shape.heads * self.shape.head_dim;
        let groups = groups(batch, queries, out, width);
        let seen: usize = batch.tokens.iter().map(|(_, position)| *position as usize + 1).sum();
        if rayon::current_num_threads() == 1 || 2 * seen * width < PARALLEL {
            let mut scratch = std::mem::take(&mut self.scratch);
            groups.into_iter().for_each(|group| self.look(layer, group, &mut scratch));
            self.scratch = scratch;
            return;
        }
        let look = |scratch: &mut Scratch, group| self.look(layer, group, scratch);
        groups.into_par_iter().for_each_init(Scratch::default, look);
    }

    /// The queries of a group: scores block by block, their softmax, then the sum of values position by position. What is
    /// done for a query, and in which order, does not depend on the others; only the reading of blocks is shared.
    fn look(&self, layer: usize, group: Group<'_>, scratch: &mut Scratch) {
        let Layer { keys, values } = &self.layers[layer];
        let (heads, kv_heads, head_dim) =
            (self.shape.heads, self.shape.kv_heads, self.shape.head_dim);
        let (size, share, tokens) =
            (head_dim * LANES, heads / kv_heads, group.queries.len() / (heads * head_dim));
        let window = self.shape.windows[layer].map_or(usize::MAX, |window| window as usize);
        let sight = |token: usize| {
            let end = group.position + token + 1;
            end.saturating_sub(window)..end
        };
        let blocks = |token| sight(token).start / LANES..sight(token).end.div_ceil(LANES);
        let all = blocks(0).start..blocks(tokens - 1).end;
        let Scratch { scores, totals } = scratch;
        scores.resize(tokens * share * all.len() * LANES, 0.0);
        // Where the scores of a query with a block lie.
        let line = |query: usize, block: usize| (query * all.len() + block - all.start) * LANES;
        for kv_head in 0..kv_heads {
            let place = |block: usize| (group.table[block] as usize * kv_heads + kv_head) * size;
            let at =
                |query: usize| (query / share * heads + kv_head * share + query % share) * head_dim;
            let those_that_see = |block: usize| {
                let see = (0..tokens).filter(move |token| blocks(*token).contains(&block));
                see.flat_map(move |token| token * share..(token + 1) * share)
            };
            for block in all.clone() {
                let keys = &keys[place(block)..][..size];
                for query in those_that_see(block) {
                    let products = score(&group.queries[at(query)..][..head_dim], keys);
                    let lanes = products.map(|product| product * self.scale);
                    scores[line(query, block)..][..LANES].copy_from_slice(&lanes);
                }
            }
            totals.clear();
            for query in 0..tokens * share {
                let (blocks, sight) = (blocks(query / share), sight(query / share));
                let from = line(query, blocks.start);
                let scores = &mut scores[from..][..blocks.len() * LANES];
                // Lanes that hold no position of this sequence, or one out of sight, weigh nothing, whatever lies in them.
                scores[..sight.start - blocks.start * LANES].fill(f32::NEG_INFINITY);
                scores[sight.end - blocks.start * LANES..].fill(f32::NEG_INFINITY);
                totals.push(soften(scores));
                group.out[at(query)..][..head_dim].fill(0.0);
            }
            for block in all.clone() {
                let values = &values[place(block)..][..size];
                for query in those_that_see(block) {
                    let valid = LANES.min(sight(query / share).end - block * LANES);
                    let lanes = &scores[line(query, block)..][..valid];
                    add(lanes, values, &mut group.out[at(query)..][..head_dim]);
                }
            }
            for (query, total) in totals.iter().enumerate() {
                group.out[at(query)..][..head_dim].iter_mut().for_each(|out| *out /= total);
            }
        }
    }
}

/// The tokens of a step in groups that look together: consecutive ones of one row.
fn groups<'a>(
    batch: &Batch<'a>,
    mut queries: &'a [f32],
    mut out: &'a mut [f32],
    width: usize,
) -> Vec<Group<'a>> {
    let mut groups = Vec::new();
    for row in batch.tokens.chunk_by(|a, b| a.0 == b.0) {
        for tokens in row.chunks(TOGETHER) {
            let (asked, other_queries) = queries.split_at(tokens.len() * width);
            let (given, other_out) = out.split_at_mut(tokens.len() * width);
            (queries, out) = (other_queries, other_out);
            let (row, position) = tokens[0];
            let (table, position) = (batch.tables[row], position as usize);
            groups.push(Group { table, position, queries: asked, out: given });
        }
    }
    groups
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
