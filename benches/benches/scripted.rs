//! The actor system against its own simulation: two models with steps of 6.0 and 27.9 ms, one token in three from the
//! slow one. The simulation replays the same routing with the durations that the steps really took and charges nothing
//! for anything else, so what is missing to 100% is what messages, mailboxes and threads cost.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tokenrouter_benches::timed::{Timed, simulate};
use tokenrouter_benches::{next_token, nodes, request};
use tokenrouter_engine::{Engine, Script};
use tokenrouter_policies::ModelIx;
use tokenrouter_policies::route::baseline::Random;
use tokenrouter_protocol::RouteIx;

const TIMES: [Duration; 2] = [Duration::from_micros(6_000), Duration::from_micros(27_900)];
const SHARE: f64 = 0.35;
const PROMPT: u32 = 32;
const TOKENS: u32 = 128;

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!("| requests | tokens/s | simulation | of it |\n|---|---|---|---|");
    for requests in [1, 2, 4, 8, 16] {
        let (took, simulated) = runtime.block_on(measure(requests))?;
        let tokens = (u64::from(TOKENS) * requests) as f64;
        let (speed, ideal) = (tokens / took.as_secs_f64(), tokens / simulated.as_secs_f64());
        println!("| {requests} | {speed:.1} | {ideal:.1} | {:.1}% |", 100.0 * speed / ideal);
    }
    Ok(())
}

/// How long the replies took, and how long they take in the simulation.
async fn measure(requests: u64) -> Result<(Duration, Duration), Fault> {
    let script = || Script::new(next_token).with_blocks(1 << 12);
    let (fast, fast_took) = Timed::new(script(), TIMES[0]);
    let (slow, slow_took) = Timed::new(script(), TIMES[1]);
    let engines =
        vec![Engine::real(Box::new(fast), "fast")?, Engine::real(Box::new(slow), "slow")?];
    let policy = Random { entry: ModelIx(0), to: ModelIx(1), probability: SHARE };
    let node = nodes::start(engines, Arc::new(policy)).await?;
    let all: Vec<_> =
        (0..requests).map(|seed| request(RouteIx(0), PROMPT as usize, TOKENS, seed)).collect();
    let draws: Vec<_> = all.iter().map(|request| request.draws).collect();
    let begun = Instant::now();
    nodes::run(&node.gateway(), all).await;
    let took = begun.elapsed();
    node.stop().await;
    let durations = [&fast_took, &slow_took].map(|took| match took.lock() {
        Ok(took) => took.clone(),
        Err(poisoned) => poisoned.into_inner().clone(),
    });
    Ok((took, simulate(&draws, (PROMPT, TOKENS), SHARE, &durations)))
}
