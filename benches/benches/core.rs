//! The pure machines: nanoseconds per token of home and hosts together, of a ledger alone, of the batcher,
//! of a draw and of the sampler.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use tokenrouter_benches::machines::Machines;
use tokenrouter_benches::{request, vocabulary};
use tokenrouter_engine::sampler::Sampler;
use tokenrouter_engine::signals;
use tokenrouter_policies::route::baseline::{Always, Random};
use tokenrouter_policies::{Draws, ModelIx, Policy, PolicyState, Purpose};
use tokenrouter_protocol::{
    BatchLimits, HomeId, Ledger, Life, ReportRow, RequestId, Route, RouteIx, RowOutcome, Sampling,
    Tokens, batcher,
};

const TOKENS: u32 = 512;

fn machines(c: &mut Criterion) {
    let alone: Arc<dyn Policy> = Arc::new(Always { model: ModelIx(0) });
    let mixed: Arc<dyn Policy> =
        Arc::new(Random { entry: ModelIx(0), to: ModelIx(1), probability: 0.35 });
    let mut group = c.benchmark_group("machines, per token");
    for (name, policy) in [("one model", alone), ("random 0.35", mixed)] {
        for requests in [1, 16] {
            group.throughput(Throughput::Elements(u64::from(TOKENS) * requests));
            group.bench_function(BenchmarkId::new(name, requests), |b| {
                let mut machines = Machines::new(Arc::clone(&policy), 2);
                b.iter(|| machines.run((0..requests).map(|s| request(RouteIx(0), 32, TOKENS, s))));
            });
        }
    }
    group.finish();
}

fn ledger(c: &mut Criterion) {
    let route = Route::new(ModelIx(0), Arc::new(Always { model: ModelIx(0) }), vocabulary());
    let home = HomeId { node: 0, model: ModelIx(0) };
    let rid = RequestId { home, born: Life::default(), number: 1 };
    let mut group = c.benchmark_group("ledger, per token");
    group.throughput(Throughput::Elements(u64::from(TOKENS)));
    for (name, stop) in [("plain", vec![]), ("two stop strings", vec!["END", "\n\nUser:"])] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut request = request(RouteIx(0), 32, TOKENS + 1, 1);
                request.stop = stop.iter().map(ToString::to_string).collect();
                let mut ledger = Ledger::open(rid, request, &route);
                let fence = ledger.grant(Life::default(), Life::default()).fence;
                for position in 32..32 + TOKENS {
                    let row = ReportRow {
                        rid,
                        fence,
                        start: position,
                        tokens: Tokens::from_slice(&[3 + position % 500]),
                        cached: position,
                        outcome: RowOutcome::Going,
                        state: PolicyState::default(),
                        computed: 1,
                        generated: 1,
                    };
                    black_box(ledger.take(ModelIx(0), Life::default(), row, &route));
                }
            });
        });
    }
    group.finish();
}

fn small_parts(c: &mut Criterion) {
    let waiting: Vec<u32> = (0..64).map(|i| if i % 16 == 0 { 700 } else { 1 }).collect();
    c.bench_function("batcher, 64 rows", |b| {
        let mut shares = Vec::new();
        b.iter(|| batcher::shares(black_box(&waiting), &BatchLimits::default(), &mut shares));
    });
    let draws = Draws::new(7, 0);
    c.bench_function("draw", |b| {
        let mut position = 0;
        b.iter(|| {
            position += 1;
            draws.uniform(black_box(position), Purpose::Token)
        });
    });
}

fn sampler(c: &mut Criterion) {
    // Logits as a model gives them: a few likely tokens, many unlikely ones.
    for vocabulary in [512u32, 151_936] {
        let draws = Draws::new(1, 0);
        let logit = |token| (12.0 * draws.uniform(token, Purpose::Token).powi(3)) as f32;
        let logits: Vec<f32> = (0..vocabulary).map(logit).collect();
        let mut group = c.benchmark_group(format!("sampler, vocabulary {vocabulary}"));
        let warm = Sampling { temperature: 0.8, ..Sampling::GREEDY };
        for (name, sampling) in [
            ("greedy", Sampling::GREEDY),
            ("temperature", warm),
            ("top-k 40, top-p 0.95", Sampling { top_k: 40, top_p: 0.95, ..warm }),
            ("top-p 0.95", Sampling { top_p: 0.95, ..warm }),
        ] {
            group.bench_function(name, |b| {
                let mut sampler = Sampler::default();
                b.iter(|| {
                    let top = signals::top(black_box(&logits))?;
                    Some(sampler.sample(&logits, &top, &sampling, || 0.4))
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, machines, ledger, small_parts, sampler);
criterion_main!(benches);
