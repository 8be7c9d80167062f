//! Loading a model: its description, its weights, and a runner made of both.

use crate::arch::{Arch, Bias};
use crate::attention::{CpuAttention, Shape};
use crate::decoder::{Decoder, Layer, Network};
use crate::device::Device;
use crate::error::Error;
use crate::head::{Head, HeadFiles};
use crate::kv::{BLOCK, BlockTables};
use crate::linear::Linear;
use crate::runner::{Facts, Runner};
use crate::sampler::Sampler;
use crate::weights::{Tensors, Weights};
use candle_core::{DType, Result, Tensor, bail};
use mistralrs_core::layers::{Activation, Mlp, RmsNorm, RotaryEmbedding};
use mistralrs_quant::{
    ColumnParallelLayer, Comm, Id, QuantMethod, RowParallelLayer, ShardedVarBuilder,
};
use std::borrow::Cow;
use std::sync::Arc;
use tokenrouter_policies::Token;
use tokenrouter_protocol::PoolSize;

/// The files of a model, and what is to be known of it besides.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    /// The text of `config.json`.
    pub config: Cow<'static, [u8]>,
    /// The weights.
    pub weights: Weights,
    /// Its router heads: a `HeadIx` is a place in this list.
    pub heads: Vec<HeadFiles>,
    /// The token by which it defers to another model (Co-LLM), if it has one: it is never sampled, whoever asks.
    pub defer: Option<Token>,
}

/// How to load a model.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where it computes.
    pub device: Device,
    /// Blocks of its KV pool, of [`BLOCK`] positions each.
    pub blocks: u32,
    /// Threads that compute one step; at least 1 and at most one per processor are taken, since more only get in each
    /// other's way.
    pub threads: usize,
}

/// Reads a `config.json` without loading anything.
///
/// # Errors
/// [`Error::Config`], naming the key.
pub fn describe(config: &[u8]) -> std::result::Result<Arch, Error> {
    Ok(Arch::parse(config)?)
}

/// Loads a model as a runner with an empty cache.
///
/// # Errors
/// Names the device, the key of `config.json` or the tensor that is wrong.
pub fn load(
    files: &ModelFiles,
    options: &LoadOptions,
) -> std::result::Result<Box<dyn Runner>, Error> {
    Ok(Box::new(load_decoder(files, options)?))
}

/// The same, as a decoder, which shows its logits.
///
/// # Errors
/// As for [`load`].
pub fn load_decoder(
    files: &ModelFiles,
    options: &LoadOptions,
) -> std::result::Result<Decoder, Error> {
    let device = options.device.open()?;
    let arch = describe(&files.config)?;
    let tensors = Tensors::open(&files.weights)?;
    tensors.check(&arch.tensors())?;
    let pool = PoolSize { block: BLOCK, blocks: options.blocks };
    let facts = Facts {
        pool,
        vocabulary: arch.vocabulary as u32,
        context: arch.context.min(pool.positions()),
        threads: options.threads.clamp(1, processors()),
    };
    let shape = Shape {
        heads: arch.heads,
        kv_heads: arch.kv_heads,
        head_dim: arch.head_dim,
        windows: arch.windows.clone(),
        blocks: options.blocks,
    };
    let builder = Builder {
        arch: &arch,
        comm: Arc::new(Comm::from_device(Id::new(), &device, 0, 1)?),
        root: tensors.builder(&device),
    };
    let network = builder.network(facts.context as usize)?;
    let head = |files| Head::load(files, &arch, &network.embedding);
    Ok(Decoder {
        heads: files.heads.iter().map(head).collect::<std::result::Result<_, _>>()?,
        defer: files.defer,
        network,
        attention: Box::new(CpuAttention::new(shape)?),
        tables: BlockTables::new(pool),
        sampler: Sampler::default(),
        arch,
        facts,
    })
}

/// Processors that this program may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Makes layers of tensors.
struct Builder<'a> {
    arch: &'a Arch,
    comm: Arc<Comm>,
    root: ShardedVarBuilder,
}

impl Builder<'_> {
    fn network(&self, context: usize) -> Result<Network> {
        let (arch, model) = (self.arch, self.root.pp("model"));
        let embedding = model.pp("embed_tokens").get((arch.vocabulary, arch.hidden), "weight")?;
        let head = if arch.tied {
            embedding.clone()
        } else {
            self.root.pp("lm_head").get((arch.vocabulary, arch.hidden), "weight")?
        };
        let theta = arch.rope_theta as f32;
        let (device, dtype) = (embedding.device(), DType::F32);
        let rotary = RotaryEmbedding::new(theta, arch.head_dim, context, device, true, dtype)?;
        let (cos, sin) = rotary.get_cos_sin()?;
        let layers = (0..arch.layers()).map(|index| self.layer(model.pp("layers").pp(index)));
        Ok(Network {
            layers: layers.collect::<Result<_>>()?,
            norm: RmsNorm::new(arch.hidden, arch.eps, model.pp("norm"))?,
            head: Arc::new(Linear::new(&head, None)?),
            rotary: [cos, sin],
            embedding,
        })
    }

    fn layer(&self, layer: ShardedVarBuilder) -> Result<Layer> {
        let arch = self.arch;
        let (hidden, eps) = (arch.hidden, arch.eps);
        let (q, kv) = (arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim);
        let attention = layer.pp("self_attn");
        let column = |name, outputs| {
            let part = attention.pp(name);
            let layer =
                ColumnParallelLayer::new(hidden, outputs, &None, false, &self.comm, part.clone())?;
            let bias = match arch.bias {
                Bias::None => None,
                Bias::Qkv | Bias::All => Some(part.get(outputs, "bias")?),
            };
            for_cpu(&layer, bias)
        };
        let part = attention.pp("o_proj");
        let output = RowParallelLayer::new(q, hidden, &None, false, &self.comm, part.clone())?;
        let output_bias = (arch.bias == Bias::All).then(|| part.get(hidden, "bias")).transpose()?;
        let norm = |name| RmsNorm::new(arch.head_dim, eps, attention.pp(name));
        let mut mlp = Mlp::new(
            layer.pp("mlp"),
            hidden,
            arch.intermediate,
            &None,
            Activation::Silu,
            &self.comm,
        )?;
        for part in [&mut mlp.gate, &mut mlp.up, &mut mlp.down] {
            *part = for_cpu(part, None)?;
        }
        Ok(Layer {
            norm: RmsNorm::new(hidden, eps, layer.pp("input_layernorm"))?,
            query: column("q_proj", q)?,
            key: column("k_proj", kv)?,
            value: column("v_proj", kv)?,
            output: for_cpu(&output, output_bias)?,
            head_norms: match arch.qk_norm {
                true => Some([norm("q_norm")?, norm("k_norm")?]),
                false => None,
            },
            mlp_norm: RmsNorm::new(hidden, eps, layer.pp("post_attention_layernorm"))?,
            mlp,
        })
    }
}

/// The layer with our kernel in the place of the library's.
fn for_cpu(layer: &Arc<dyn QuantMethod>, bias: Option<Tensor>) -> Result<Arc<dyn QuantMethod>> {
    let Some((weight, _)) = layer.unquant_weight_bias() else {
        bail!("a {} layer has no plain weight", layer.name())
    };
    Ok(Arc::new(Linear::new(&weight, bias.as_ref())?))
}
