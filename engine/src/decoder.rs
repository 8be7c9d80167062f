//! The decoder: a language model whose rows go through one ragged forward pass, built from mistral.rs's layers.
//!
//! It holds the weights, the KV pool and nothing of requests. All tokens of all rows are flattened to `[tokens]`; linear
//! layers, norms and rotary positions work on each token alone, and only attention knows which row a token is of.

use crate::arch::Arch;
use crate::attention::{Attention, Batch};
use crate::error::Error;
use crate::exp::silu;
use crate::head::{Asked, Head, Seen};
use crate::kv::BlockTables;
use crate::linear::with_slice;
use crate::runner::{Facts, RowError, Runner};
use crate::sampler::Sampler;
use crate::signals;
use candle_core::{Module, Result, Tensor};
use mistralrs_core::layers::{Mlp, RmsNorm};
use mistralrs_quant::QuantMethod;
use std::fmt;
use std::sync::Arc;
use tokenrouter_policies::{Purpose, Token};
use tokenrouter_protocol::{CacheOp, Row, RowOutput, Sampled};

/// A model with its KV pool.
pub struct Decoder {
    pub(crate) arch: Arch,
    pub(crate) facts: Facts,
    pub(crate) network: Network,
    pub(crate) attention: Box<dyn Attention>,
    pub(crate) tables: BlockTables,
    pub(crate) sampler: Sampler,
    pub(crate) heads: Vec<Head>,
    pub(crate) defer: Option<Token>,
}

/// The weights.
pub(crate) struct Network {
    pub(crate) embedding: Tensor,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: RmsNorm,
    pub(crate) head: Arc<dyn QuantMethod>,
    /// Cosines and sines of every position, `[context, head_dim / 2]`.
    pub(crate) rotary: [Tensor; 2],
}

/// One layer.
pub(crate) struct Layer {
    pub(crate) norm: RmsNorm,
    pub(crate) query: Arc<dyn QuantMethod>,
    pub(crate) key: Arc<dyn QuantMethod>,
    pub(crate) value: Arc<dyn QuantMethod>,
    pub(crate) output: Arc<dyn QuantMethod>,
    /// Norms of queries and keys.
    pub(crate) head_norms: Option<[RmsNorm; 2]>,
    pub(crate) mlp_norm: RmsNorm,
    pub(crate) mlp: Mlp,
}

/// What a pass gives: one line for each output of each row, in order.
#[derive(Debug)]
pub struct Outputs {
    /// Raw logits, `[outputs, vocabulary]`.
    pub logits: Tensor,
    /// The lm_head's inputs, `[outputs, hidden]`.
    pub hidden: Tensor,
}

impl Decoder {
    /// What the model looks like.
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// Feeds the rows and gives the raw logits and hidden states of their outputs; `None` where no row asks for any.
    /// [`Runner::step`] is this and what is made of it.
    ///
    /// # Errors
    /// As for [`Runner::step`].
    pub fn forward(&mut self, rows: &[Row]) -> std::result::Result<Option<Outputs>, Error> {
        self.tables.reserve(rows, &self.facts)?;
        let outputs = self.pass(rows)?;
        self.tables.commit(rows);
        Ok(outputs)
    }

    /// Asserts that the pool's books are in order.
    ///
    /// # Panics
    /// When they are not.
    pub fn check(&self) {
        self.tables.check();
    }

    fn pass(&mut self, rows: &[Row]) -> Result<Option<Outputs>> {
        let mut batch = Batch::default();
        let (mut ids, mut wanted) = (Vec::new(), Vec::new());
        for (index, row) in rows.iter().enumerate() {
            ids.extend_from_slice(&row.tokens);
            batch.tokens.extend((row.start..).take(row.tokens.len()).map(|at| (index, at)));
            batch.tables.push(self.tables.blocks(row.sequence));
            let end = ids.len() as u32;
            wanted.extend(end - u32::from(row.outputs)..end);
        }
        if ids.is_empty() {
            return Ok(None);
        }
        self.network.forward(ids, &wanted, &mut *self.attention, &batch)
    }

    /// The sampled tokens and signals of the rows' outputs.
    fn sample(
        &mut self,
        rows: &[Row],
        outputs: &Outputs,
    ) -> std::result::Result<Vec<RowOutput>, Error> {
        let (vocabulary, hidden) = (outputs.logits.dim(1)?, outputs.hidden.dim(1)?);
        let mut logits = outputs.logits.flatten_all()?.to_vec1::<f32>()?;
        let (sampler, heads, mut asked) = (&mut self.sampler, &self.heads, Asked::default());
        let mut all: Vec<RowOutput> = Vec::with_capacity(rows.len());
        with_slice(&outputs.hidden, |states| {
            let mut lines = logits.chunks_exact_mut(vocabulary).zip(states.chunks_exact(hidden));
            for row in rows {
                let mut output = RowOutput::new();
                let first = row.start + row.tokens.len() as u32 - u32::from(row.outputs);
                for (position, line) in (first..).zip(lines.by_ref().take(row.outputs.into())) {
                    let (logits, hidden) = line;
                    let sampled = sample(sampler, row, self.defer, (logits, hidden), position)
                        .ok_or(Error::Logits { sequence: row.sequence, position })?;
                    if let Some(head) = row.signals.head {
                        let seen = Seen { hidden, token: sampled.token, logits };
                        asked.push(heads, head, (all.len(), output.len()), &seen)?;
                    }
                    output.push(sampled);
                }
                all.push(output);
            }
            asked.answer(heads, &mut all);
            Ok(all)
        })?
    }
}

impl Runner for Decoder {
    fn facts(&self) -> Facts {
        self.facts
    }

    fn step(&mut self, rows: &[Row]) -> std::result::Result<Vec<RowOutput>, Error> {
        for row in rows {
            let head = row.signals.head;
            if let Some(head) = head.filter(|head| usize::from(head.0) >= self.heads.len()) {
                return Err(RowError::Head { sequence: row.sequence, head }.into());
            }
        }
        match self.forward(rows)? {
            Some(outputs) => self.sample(rows, &outputs),
            None => Ok(rows.iter().map(|_| RowOutput::new()).collect()),
        }
    }

    fn apply(&mut self, op: CacheOp) {
        match op {
            CacheOp::Truncate { sequence, to } => self.tables.truncate(sequence, to),
            CacheOp::Close { sequence } => self.tables.close(sequence),
        }
    }

    fn reset(&mut self) {
        self.tables.reset();
    }

    fn blocks_used(&self) -> u32 {
        self.tables.used()
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("arch", &self.arch).field("facts", &self.facts).finish()
    }
}

impl Network {
    /// One pass over all tokens. `wanted` says at which of them logits are computed.
    fn forward(
        &self,
        ids: Vec<u32>,
        wanted: &[u32],
        attention: &mut dyn Attention,
        batch: &Batch<'_>,
    ) -> Result<Option<Outputs>> {
        let (count, device) = (ids.len(), self.embedding.device());
        let mut x = self.embedding.index_select(&Tensor::from_vec(ids, count, device)?, 0)?;
        let positions: Vec<u32> = batch.tokens.iter().map(|(_, position)| *position).collect();
        let positions = Tensor::from_vec(positions, count, device)?;
        let [cos, sin] = &self.rotary;
        let rotary = [cos.index_select(&positions, 0)?, sin.index_select(&positions, 0)?];
        for (index, layer) in self.layers.iter().enumerate() {
            let normed = layer.norm.forward(&x)?;
            let qkv = layer.project(&normed, &rotary)?;
            let seen = attention.forward(index, qkv.each_ref(), batch)?;
            x = (x + layer.output.forward(&seen)?)?;
            x = (&x + layer.feed_forward(&layer.mlp_norm.forward(&x)?)?)?;
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        if wanted.len() < count {
            x = x.index_select(&Tensor::new(wanted, device)?, 0)?;
        }
        let hidden = self.norm.forward(&x)?;
        Ok(Some(Outputs { logits: self.head.forward(&hidden)?, hidden }))
    }
}

impl Layer {
    /// Queries, keys and values of all tokens, the first two normalised and turned to their positions.
    fn project(&self, x: &Tensor, [cos, sin]: &[Tensor; 2]) -> Result<[Tensor; 3]> {
        let turn = |layer: &dyn QuantMethod, norm: Option<&RmsNorm>| {
            let head_dim = 2 * cos.dim(1)?;
            let y = layer.forward(x)?;
            let (tokens, width) = y.dims2()?;
            let mut y = y.reshape((1, tokens, width / head_dim, head_dim))?;
            if let Some(norm) = norm {
                y = norm.forward(&y)?;
            }
            candle_nn::rotary_emb::rope_thd(&y, cos, sin)?.reshape((tokens, width))
        };
        let norms = self.head_norms.as_ref();
        let query = turn(&*self.query, norms.map(|[query, _]| query))?;
        let key = turn(&*self.key, norms.map(|[_, key]| key))?;
        Ok([query, key, self.value.forward(x)?])
    }

    /// The MLP, with our activation in the place of the library's, which takes a call of `exp` for every number.
    fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        let (gate, up) = (self.mlp.gate.forward(x)?, self.mlp.up.forward(x)?);
        let mut gated = Vec::new();
        with_slice(&gate, |gate| {
            with_slice(&up, |up| {
                gated.extend(gate.iter().zip(up).map(|(gate, up)| silu(*gate) * up))
            })
        })??;
        self.mlp.down.forward(&Tensor::from_vec(gated, gate.shape(), gate.device())?)
    }
}

/// The token and the signals of one position; `None` where its logits are not numbers. `defer` is the model's own defer
/// token, which is masked whether the row asks for it or not.
fn sample(
    sampler: &mut Sampler,
    row: &Row,
    defer: Option<Token>,
    (logits, hidden): (&mut [f32], &[f32]),
    position: u32,
) -> Option<Sampled> {
    let score = row.signals.defer.and_then(|token| signals::defer(logits, token));
    if let Some(logit) = defer.and_then(|token| logits.get_mut(token as usize)) {
        *logit = f32::NEG_INFINITY;
    }
    let top = signals::top(logits)?;
    let mut signals = signals::compute(logits, &top, hidden, &row.signals);
    signals.defer = score;
    let draw = || row.draws.uniform(position + 1, Purpose::Token);
    Some(Sampled { token: sampler.sample(logits, &top, &row.sampling, draw), signals })
}
