//! The engine's step on the large demo model, against the same model on the stock layers and candle's matrix products;
//! and the small one's with its router heads.
//!
//! First every case is run in turn, many rounds, and medians are given as ratios to the stock step of one row: on a busy
//! machine all cases then suffer alike. Then criterion measures each case by itself.

use candle_core::{DType, Device as Candle, Module, Result, Tensor};
use criterion::{Criterion, criterion_group};
use mistralrs_core::layers::{Activation, Mlp, RmsNorm, RotaryEmbedding};
use mistralrs_quant::{
    ColumnParallelLayer, Comm, Id, QuantMethod, RowParallelLayer, ShardedSafeTensors,
    ShardedVarBuilder,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokenrouter_engine::{
    Arch, Device, HeadFiles, LoadOptions, ModelFiles, Weights, describe, load,
};
use tokenrouter_policies::{Draws, HeadIx, SignalSet};
use tokenrouter_protocol::{CacheOp, Row, Sampling, SequenceId};

macro_rules! file {
    ($path:literal) => {
        include_bytes!(concat!("../../models/", $path))
    };
}

const CONFIG: &[u8] = file!("large/config.json");
const WEIGHTS: &[u8] = file!("large/model.safetensors");

/// The router heads of the small demo model, by name.
const HEADS: [(&str, &[u8], &[u8]); 2] = [
    ("R2R", file!("heads/r2r.json"), file!("heads/r2r.safetensors")),
    ("CITER", file!("heads/citer.json"), file!("heads/citer.safetensors")),
];

/// Positions that every sequence holds before the step.
const CONTEXT: u32 = 64;

/// Rounds in which every case runs once.
const ROUNDS: usize = 300;

criterion_group!(benches, each_by_itself);

fn main() {
    // One thread, as an engine has by default.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    pool.install(|| {
        in_turn();
        benches();
        Criterion::default().configure_from_args().final_summary();
    });
}

/// A case: what is run, and under which name.
struct Case {
    name: String,
    run: Box<dyn FnMut()>,
}

fn cases() -> Vec<Case> {
    let mut stock = Stock::load().expect("the stock model");
    let mut cases = vec![Case {
        name: "stock, 1 row".to_owned(),
        run: Box::new(move || drop(black_box(stock.step().expect("a stock step")))),
    }];
    for rows in [1, 2, 4, 8, 16] {
        cases
            .push(Case { name: format!("engine, {rows} rows"), run: step(large(), rows, 1, None) });
    }
    for tokens in [4, 16] {
        let run = step(large(), 1, tokens, None);
        cases.push(Case { name: format!("engine, 1 row of {tokens}"), run });
    }
    for rows in [1, 8] {
        cases.push(Case { name: format!("small, {rows} rows"), run: step(small(), rows, 1, None) });
        for (index, (name, ..)) in HEADS.iter().enumerate() {
            let run = step(small(), rows, 1, Some(HeadIx(index as u8)));
            cases.push(Case { name: format!("small, {rows} rows, {name}"), run });
        }
    }
    cases
}

fn large() -> ModelFiles {
    let weights = Weights::Embedded(WEIGHTS);
    ModelFiles { config: CONFIG.into(), weights, heads: Vec::new(), defer: None }
}

/// The small demo model with its heads.
fn small() -> ModelFiles {
    let head = |&(_, card, weights): &(&str, &'static [u8], _)| HeadFiles {
        card: card.into(),
        weights: Weights::Embedded(weights),
    };
    ModelFiles {
        config: file!("small/config.json").as_slice().into(),
        weights: Weights::Embedded(file!("small/model.safetensors")),
        heads: HEADS.iter().map(head).collect(),
        defer: None,
    }
}

fn in_turn() {
    let mut cases = cases();
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (case, times) in cases.iter_mut().zip(&mut times) {
            let start = Instant::now();
            (case.run)();
            times.push(start.elapsed());
        }
    }
    let medians: Vec<Duration> = times.into_iter().map(median).collect();
    for (case, median) in cases.iter().zip(&medians) {
        let ratio = median.as_secs_f64() / medians[0].as_secs_f64();
        println!("{:<22} {:>8.1} us {ratio:>6.2} x", case.name, median.as_secs_f64() * 1e6);
    }
}

fn each_by_itself(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    group.sample_size(30).measurement_time(Duration::from_secs(2));
    for mut case in cases() {
        group.bench_function(&case.name, |bencher| bencher.iter(&mut case.run));
    }
    group.finish();
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// A step of so many rows, each of so many new tokens after [`CONTEXT`], greedy with entropy and a head's score; then
/// back again.
fn step(files: ModelFiles, rows: u64, tokens: u32, head: Option<HeadIx>) -> Box<dyn FnMut()> {
    let options = LoadOptions { device: Device::Cpu, blocks: 16 * 8, threads: 1 };
    let mut runner = load(&files, &options).expect("the demo model");
    let row = move |sequence, start, tokens: u32| Row {
        sequence: SequenceId(sequence),
        start,
        tokens: (0..tokens).map(|token| 5 + token % 7).collect(),
        outputs: 1,
        signals: SignalSet { entropy: true, head, ..SignalSet::NONE },
        sampling: Sampling::GREEDY,
        draws: Draws::new(0, 0),
    };
    for sequence in 0..rows {
        runner.step(&[row(sequence, 0, CONTEXT)]).expect("the context");
    }
    let rows: Vec<_> = (0..rows).map(|sequence| row(sequence, CONTEXT, tokens)).collect();
    Box::new(move || {
        black_box(runner.step(&rows).expect("a step"));
        for row in &rows {
            runner.apply(CacheOp::Truncate { sequence: row.sequence, to: CONTEXT });
        }
    })
}

/// The same model on stock layers, one sequence, with its keys and values in plain vectors.
struct Stock {
    arch: Arch,
    embedding: Tensor,
    layers: Vec<StockLayer>,
    norm: RmsNorm,
    rotary: [Tensor; 2],
    kept: Vec<[Vec<f32>; 2]>,
}

struct StockLayer {
    qkv: [Arc<dyn QuantMethod>; 3],
    output: Arc<dyn QuantMethod>,
    norms: [RmsNorm; 4],
    mlp: Mlp,
}

impl Stock {
    fn load() -> Result<Self> {
        let arch = describe(CONFIG).map_err(candle_core::Error::wrap)?;
        let tensors = candle_core::safetensors::load_buffer(WEIGHTS, &Candle::Cpu)?;
        let root = ShardedSafeTensors::wrap(Box::new(tensors), DType::F32, Candle::Cpu);
        let comm = Arc::new(Comm::from_device(Id::new(), &Candle::Cpu, 0, 1)?);
        let model = root.pp("model");
        let layers = (0..arch.layers())
            .map(|index| StockLayer::load(&arch, model.pp("layers").pp(index), &comm))
            .collect::<Result<_>>()?;
        let theta = arch.rope_theta as f32;
        let rotary =
            RotaryEmbedding::new(theta, arch.head_dim, 256, &Candle::Cpu, true, DType::F32)?;
        let (cos, sin) = rotary.get_cos_sin()?;
        let mut stock = Self {
            embedding: model.pp("embed_tokens").get((arch.vocabulary, arch.hidden), "weight")?,
            norm: RmsNorm::new(arch.hidden, arch.eps, model.pp("norm"))?,
            rotary: [cos, sin],
            kept: vec![[Vec::new(), Vec::new()]; arch.layers()],
            layers,
            arch,
        };
        for position in 0..CONTEXT as usize {
            stock.feed(position)?;
        }
        Ok(stock)
    }

    /// Feeds one token after the context, then forgets it.
    fn step(&mut self) -> Result<Vec<f32>> {
        let logits = self.feed(CONTEXT as usize)?;
        let length = CONTEXT as usize * self.arch.kv_heads * self.arch.head_dim;
        self.kept.iter_mut().flatten().for_each(|kept| kept.truncate(length));
        Ok(logits)
    }

    fn feed(&mut self, position: usize) -> Result<Vec<f32>> {
        let (heads, kv, size) = (self.arch.heads, self.arch.kv_heads, self.arch.head_dim);
        let at = |table: &Tensor| table.narrow(0, position, 1);
        let (cos, sin) = (at(&self.rotary[0])?, at(&self.rotary[1])?);
        let turn = |x: Tensor, heads: usize, norm: &RmsNorm| {
            let x = norm.forward(&x.reshape((1, 1, heads, size))?)?.transpose(1, 2)?;
            candle_nn::rotary_emb::rope(&x.contiguous()?, &cos, &sin)?.flatten_all()?.to_vec1()
        };
        let mut x = self.embedding.narrow(0, 5 + position % 7, 1)?;
        for (layer, kept) in self.layers.iter().zip(&mut self.kept) {
            let [norm, query_norm, key_norm, mlp_norm] = &layer.norms;
            let y = norm.forward(&x)?;
            let [q, k, v] = &layer.qkv;
            let query: Vec<f32> = turn(q.forward(&y)?, heads, query_norm)?;
            kept[0].extend(turn(k.forward(&y)?, kv, key_norm)?);
            kept[1].extend(v.forward(&y)?.flatten_all()?.to_vec1::<f32>()?);
            let seen = attend(&query, kept, [heads, kv, size]);
            let seen = Tensor::from_vec(seen, (1, heads * size), &Candle::Cpu)?;
            x = (x + layer.output.forward(&seen)?)?;
            x = (&x + layer.mlp.forward(&mlp_norm.forward(&x)?)?)?;
        }
        self.norm.forward(&x)?.matmul(&self.embedding.t()?)?.flatten_all()?.to_vec1()
    }
}

impl StockLayer {
    fn load(arch: &Arch, layer: ShardedVarBuilder, comm: &Arc<Comm>) -> Result<Self> {
        let (hidden, eps) = (arch.hidden, arch.eps);
        let (q, kv) = (arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim);
        let attention = layer.pp("self_attn");
        let column = |name, outputs| {
            ColumnParallelLayer::new(hidden, outputs, &None, false, comm, attention.pp(name))
        };
        Ok(Self {
            qkv: [column("q_proj", q)?, column("k_proj", kv)?, column("v_proj", kv)?],
            output: RowParallelLayer::new(q, hidden, &None, false, comm, attention.pp("o_proj"))?,
            norms: [
                RmsNorm::new(hidden, eps, layer.pp("input_layernorm"))?,
                RmsNorm::new(arch.head_dim, eps, attention.pp("q_norm"))?,
                RmsNorm::new(arch.head_dim, eps, attention.pp("k_norm"))?,
                RmsNorm::new(hidden, eps, layer.pp("post_attention_layernorm"))?,
            ],
            mlp: Mlp::new(
                layer.pp("mlp"),
                hidden,
                arch.intermediate,
                &None,
                Activation::Silu,
                comm,
            )?,
        })
    }
}

/// Attention of one query over plain keys and values.
fn attend(query: &[f32], kept: &[Vec<f32>; 2], [heads, kv_heads, size]: [usize; 3]) -> Vec<f32> {
    let scale = 1.0 / (size as f32).sqrt();
    let mut out = vec![0.0; heads * size];
    for (head, out) in out.chunks_exact_mut(size).enumerate() {
        let query = &query[head * size..][..size];
        let from = head / (heads / kv_heads) * size;
        let width = kv_heads * size;
        let dot = |key: &[f32]| key.iter().zip(query).map(|(k, q)| k * q).sum::<f32>() * scale;
        let scores: Vec<f32> =
            kept[0].chunks_exact(width).map(|keys| dot(&keys[from..][..size])).collect();
        let largest = scores.iter().copied().fold(f32::MIN, f32::max);
        let powers: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
        let total: f32 = powers.iter().sum();
        for (power, values) in powers.iter().zip(kept[1].chunks_exact(width)) {
            let weight = power / total;
            out.iter_mut().zip(&values[from..]).for_each(|(out, value)| *out += weight * value);
        }
    }
    out
}
