//! What a decoder looks like: read from a model's `config.json`, without its weights.
//!
//! A family is a set of options over one plain pre-norm decoder with rotary positions, grouped-query attention and a
//! gated MLP. Supporting another family means one more line in `FAMILIES`, with its reference values in the tests.

use crate::memory::Footprint;
use serde::Deserialize;
use std::borrow::Cow;
use tokenrouter_policies::Position;

/// Which projections of the attention carry a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// None of them.
    None,
    /// Query, key and value.
    Qkv,
    /// All four.
    All,
}

/// What distinguishes a family, by the name that `model_type` gives it.
struct Family {
    name: &'static str,
    qk_norm: bool,
    /// The bias where `attention_bias` is true, and where it is not.
    bias: [Bias; 2],
}

/// The families that are supported.
const FAMILIES: &[Family] =
    &[Family { name: "qwen3", qk_norm: true, bias: [Bias::All, Bias::None] }];

/// A decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Arch {
    /// The family's name.
    pub family: &'static str,
    /// Size of the hidden state.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; `heads` is a multiple of it.
    pub kv_heads: usize,
    /// Size of a head.
    pub head_dim: usize,
    /// Inner size of the MLP.
    pub intermediate: usize,
    /// Entries of the vocabulary: the logits' last dimension.
    pub vocabulary: usize,
    /// The most positions that the model was made for.
    pub context: Position,
    /// The epsilon of every norm.
    pub eps: f64,
    /// The base of the rotary frequencies.
    pub rope_theta: f64,
    /// The lm_head is the embedding.
    pub tied: bool,
    /// Queries and keys are normalised per head.
    pub qk_norm: bool,
    /// Biases of the attention.
    pub bias: Bias,
    /// For each layer, how many positions it looks back, itself included; `None` is all.
    pub windows: Vec<Option<Position>>,
    /// Bytes of a weight as stored.
    pub weight_bytes: usize,
}

/// What is wrong with a `config.json`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON, a key of the wrong type, or a required key that is missing.
    #[error("cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A family that is not supported.
    #[error("`model_type` {found:?} is not supported; supported are: {supported}")]
    Family {
        /// What it says.
        found: String,
        /// What it may say.
        supported: String,
    },
    /// An option that is not supported.
    #[error("`{key}` is {found}, which is not supported; supported is {supported}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        supported: &'static str,
    },
    /// A value that makes no sense.
    #[error("`{key}` is {found}; it must be {wanted}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
        /// What it must be.
        wanted: Cow<'static, str>,
    },
}

impl Arch {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// Names the key that is wrong and what is possible there.
    pub fn parse(config: &[u8]) -> Result<Self, ConfigError> {
        let file: File = serde_json::from_slice(config)?;
        let family = family(&file.model_type)?;
        file.check()?;
        let head_dim = match file.head_dim {
            Some(head_dim) => head_dim,
            None => file.hidden_size / file.num_attention_heads,
        };
        Ok(Self {
            family: family.name,
            hidden: file.hidden_size,
            heads: file.num_attention_heads,
            kv_heads: file.kv_heads(),
            head_dim,
            intermediate: file.intermediate_size,
            vocabulary: file.vocab_size,
            context: file.max_position_embeddings,
            eps: file.rms_norm_eps,
            rope_theta: file.rope_theta()?,
            tied: file.tie_word_embeddings,
            qk_norm: family.qk_norm,
            bias: family.bias[usize::from(!file.attention_bias)],
            windows: file.windows()?,
            weight_bytes: file.weight_bytes(),
        })
    }

    /// Layers.
    pub fn layers(&self) -> usize {
        self.windows.len()
    }

    /// The tensors that the weights must have, each with its shape.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let (hidden, inner) = (self.hidden, self.intermediate);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let mut tensors = vec![
            ("model.embed_tokens.weight".to_owned(), vec![self.vocabulary, hidden]),
            ("model.norm.weight".to_owned(), vec![hidden]),
        ];
        if !self.tied {
            tensors.push(("lm_head.weight".to_owned(), vec![self.vocabulary, hidden]));
        }
        for layer in 0..self.layers() {
            let mut add = |name: &str, shape: &[usize]| {
                tensors.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
            };
            add("input_layernorm.weight", &[hidden]);
            add("post_attention_layernorm.weight", &[hidden]);
            add("mlp.gate_proj.weight", &[inner, hidden]);
            add("mlp.up_proj.weight", &[inner, hidden]);
            add("mlp.down_proj.weight", &[hidden, inner]);
            for (name, outputs) in [("q_proj", q), ("k_proj", kv), ("v_proj", kv)] {
                add(&format!("self_attn.{name}.weight"), &[outputs, hidden]);
                if self.bias != Bias::None {
                    add(&format!("self_attn.{name}.bias"), &[outputs]);
                }
            }
            add("self_attn.o_proj.weight", &[hidden, q]);
            if self.bias == Bias::All {
                add("self_attn.o_proj.bias", &[hidden]);
            }
            if self.qk_norm {
                add("self_attn.q_norm.weight", &[self.head_dim]);
                add("self_attn.k_norm.weight", &[self.head_dim]);
            }
        }
        tensors
    }

    /// The memory that the model takes on the CPU.
    pub fn footprint(&self) -> Footprint {
        let tied = self.tied.then(|| (String::new(), vec![self.vocabulary, self.hidden]));
        let weights = self.tensors().into_iter().chain(tied).map(|(name, shape)| {
            // Matrices keep their stored precision, except the table of embeddings; vectors are widened.
            let wide = shape.len() < 2 || name.contains("embed_tokens");
            let bytes = if wide { size_of::<f32>() } else { self.weight_bytes };
            shape.iter().map(|size| *size as u64).product::<u64>() * bytes as u64
        });
        let vectors = 2 * self.layers() * self.kv_heads * self.head_dim;
        Footprint {
            weights: weights.sum(),
            position: (vectors * size_of::<f32>()) as u64,
            context: self.context,
        }
    }
}

/// The keys of a `config.json` that matter here. Others are left to whom they concern.
#[derive(Deserialize)]
struct File {
    model_type: String,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    vocab_size: usize,
    max_position_embeddings: Position,
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    rope_parameters: Option<Rope>,
    rope_scaling: Option<Rope>,
    #[serde(default)]
    tie_word_embeddings: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default = "silu")]
    hidden_act: String,
    sliding_window: Option<Position>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    layer_types: Option<Vec<String>>,
    dtype: Option<String>,
    torch_dtype: Option<String>,
}

#[derive(Deserialize)]
struct Rope {
    rope_theta: Option<f64>,
    #[serde(alias = "type")]
    rope_type: Option<String>,
}

/// Most layers of a model; ten times what the deepest have.
const LAYERS_MAX: usize = 4096;

impl File {
    fn kv_heads(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// What every family has in common.
    fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.kv_heads()),
            ("intermediate_size", self.intermediate_size),
            ("vocab_size", self.vocab_size),
            ("max_position_embeddings", self.max_position_embeddings as usize),
            ("head_dim", self.head_dim.unwrap_or(2)),
        ];
        for (key, found) in sizes {
            // A product of three such sizes fits in 64 bits.
            if found == 0 || found > 1 << 20 && key != "max_position_embeddings" {
                return Err(value(key, found, "between 1 and 1048576"));
            }
        }
        if self.num_hidden_layers > LAYERS_MAX {
            let wanted = format!("between 1 and {LAYERS_MAX}");
            return Err(value("num_hidden_layers", self.num_hidden_layers, wanted));
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps > 0.0) {
            return Err(value("rms_norm_eps", self.rms_norm_eps, "a positive number"));
        }
        let heads = self.num_attention_heads;
        if !heads.is_multiple_of(self.kv_heads()) {
            let wanted = format!("a divisor of num_attention_heads, which is {heads}");
            return Err(value("num_key_value_heads", self.kv_heads(), wanted));
        }
        if self.head_dim.is_none() && !self.hidden_size.is_multiple_of(heads) {
            let wanted = format!("a multiple of num_attention_heads ({heads}), without `head_dim`");
            return Err(value("hidden_size", self.hidden_size, wanted));
        }
        let head_dim = self.head_dim.unwrap_or(self.hidden_size / heads);
        if !head_dim.is_multiple_of(2) {
            return Err(value("head_dim", head_dim, "even, for rotary positions"));
        }
        if self.hidden_act != "silu" {
            return Err(unsupported("hidden_act", &self.hidden_act, "silu"));
        }
        if self.mlp_bias {
            return Err(unsupported("mlp_bias", "true", "false"));
        }
        Ok(())
    }

    /// The base of the rotary frequencies: at top level, or among the parameters.
    fn rope_theta(&self) -> Result<f64, ConfigError> {
        let parameters = self.rope_parameters.iter().chain(&self.rope_scaling);
        for kind in parameters.clone().filter_map(|rope| rope.rope_type.as_deref()) {
            if kind != "default" {
                return Err(unsupported("rope_type", kind, "default"));
            }
        }
        let inner = parameters.filter_map(|rope| rope.rope_theta).next();
        let theta = self.rope_theta.or(inner).unwrap_or(10_000.0);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(value("rope_theta", theta, "a positive number"));
        }
        Ok(theta)
    }

    fn windows(&self) -> Result<Vec<Option<Position>>, ConfigError> {
        let layers = self.num_hidden_layers;
        let window = self.sliding_window.filter(|_| self.use_sliding_window != Some(false));
        let Some(kinds) = &self.layer_types else {
            let first = self.max_window_layers.filter(|_| self.use_sliding_window.is_some());
            let slides = |layer| layer >= first.unwrap_or(0);
            return Ok((0..layers).map(|layer| window.filter(|_| slides(layer))).collect());
        };
        if kinds.len() != layers {
            return Err(value("layer_types", format!("{} long", kinds.len()), "one per layer"));
        }
        kinds
            .iter()
            .map(|kind| match kind.as_str() {
                "full_attention" => Ok(None),
                "sliding_attention" => match self.sliding_window {
                    None | Some(0) => Err(value("sliding_window", "missing", "at least 1")),
                    window => Ok(window),
                },
                other => {
                    Err(unsupported("layer_types", other, "full_attention or sliding_attention"))
                }
            })
            .collect()
    }

    fn weight_bytes(&self) -> usize {
        match self.dtype.as_deref().or(self.torch_dtype.as_deref()) {
            Some("bfloat16") => 2,
            _ => 4,
        }
    }
}

fn silu() -> String {
    "silu".to_owned()
}

fn family(name: &str) -> Result<&'static Family, ConfigError> {
    FAMILIES.iter().find(|family| family.name == name).ok_or_else(|| {
        let names: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
        ConfigError::Family { found: name.to_owned(), supported: names.join(", ") }
    })
}

fn value(
    key: &'static str,
    found: impl ToString,
    wanted: impl Into<Cow<'static, str>>,
) -> ConfigError {
    ConfigError::Value { key, found: found.to_string(), wanted: wanted.into() }
}

fn unsupported(key: &'static str, found: &str, supported: &'static str) -> ConfigError {
    ConfigError::Unsupported { key, found: format!("{found:?}"), supported }
}

#[cfg(test)]
mod tests;
