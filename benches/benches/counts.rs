//! Messages and allocations per token, in the machines alone and in a node of actors: exact numbers, no clock.
//!
//! The difference between two lengths of the same requests is taken, so that opening and finishing do not count.

use std::sync::Arc;
use tokenrouter_benches::allocations::{self, Counting};
use tokenrouter_benches::machines::Machines;
use tokenrouter_benches::{next_token, nodes, request};
use tokenrouter_engine::{Engine, Script};
use tokenrouter_policies::route::baseline::{Always, Random};
use tokenrouter_policies::{ModelIx, Policy};
use tokenrouter_protocol::RouteIx;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SHORT: u32 = 512;
const LONG: u32 = 2560;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let alone: Arc<dyn Policy> = Arc::new(Always { model: ModelIx(0) });
    let mixed: Arc<dyn Policy> =
        Arc::new(Random { entry: ModelIx(0), to: ModelIx(1), probability: 0.35 });
    println!(
        "| route | requests | messages/token | allocations/token, machines | … node of actors |"
    );
    println!("|---|---|---|---|---|");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (name, policy) in [("one model", &alone), ("random 0.35", &mixed)] {
        for requests in [1, 16] {
            let (messages, machines) = in_machines(policy, requests);
            let node = runtime.block_on(in_node(policy, requests))?;
            println!("| {name} | {requests} | {messages:.3} | {machines:.3} | {node:.3} |");
        }
    }
    Ok(())
}

/// Messages and allocations per token of the machines.
fn in_machines(policy: &Arc<dyn Policy>, requests: u64) -> (f64, f64) {
    let mut machines = Machines::new(Arc::clone(policy), 2);
    let mut run = |tokens| {
        let before = (allocations::count(), machines.counts);
        machines.run((0..requests).map(|seed| request(RouteIx(0), 32, tokens, seed)));
        let counts = machines.counts;
        let messages = counts.to_home + counts.to_models - before.1.to_home - before.1.to_models;
        (messages as f64, (allocations::count() - before.0) as f64)
    };
    run(SHORT);
    let (short, long) = (run(SHORT), run(LONG));
    let tokens = f64::from(LONG - SHORT) * requests as f64;
    ((long.0 - short.0) / tokens, (long.1 - short.1) / tokens)
}

/// Allocations per token of a node of actors over scripted engines, theirs included.
async fn in_node(
    policy: &Arc<dyn Policy>,
    requests: u64,
) -> Result<f64, Box<dyn std::error::Error>> {
    let engine = || Engine::scripted(Script::new(next_token).with_blocks(1 << 16));
    let node = nodes::start(vec![engine(), engine()], Arc::clone(policy)).await?;
    let gateway = node.gateway();
    let mut measured = Vec::new();
    for tokens in [SHORT, SHORT, LONG] {
        let requests = (0..requests).map(|seed| request(RouteIx(0), 32, tokens, seed));
        let before = allocations::count();
        nodes::run(&gateway, requests.collect()).await;
        measured.push((allocations::count() - before) as f64);
    }
    node.stop().await;
    Ok((measured[2] - measured[1]) / (f64::from(LONG - SHORT) * requests as f64))
}
