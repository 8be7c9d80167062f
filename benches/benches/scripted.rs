//! The actor system against its own simulation: two models with steps of 6.0 and 27.9 ms, one token in three from the
//! slow one, whose passes wait for a threshold of requests. The simulation replays the same routing with the durations
//! that the steps really took and charges nothing for anything else, so what is missing to 100% is what messages,
//! mailboxes and threads cost. Beside it what the planner expects in the long run.
//!
//! `cargo bench -p tokenrouter-benches --bench scripted [TOKENS]`: the length of each reply, 512 if it is not named.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tokenrouter_benches::timed::{Record, Replay, Timed, idle, simulate, steps};
use tokenrouter_benches::{next_token, nodes, request};
use tokenrouter_engine::{Engine, Script, Scripted};
use tokenrouter_policies::planner::{Aim, Planner, StepTimes, System};
use tokenrouter_policies::route::baseline::Random;
use tokenrouter_policies::{ModelIx, Thresholds};
use tokenrouter_protocol::RouteIx;

const TIMES: [Duration; 2] = [Duration::from_micros(6_000), Duration::from_micros(27_900)];
const SHARE: f64 = 0.35;
const PROMPT: u32 = 8;

/// Requests, and the thresholds of the slow model that are tried with them.
const CELLS: [(u32, &[u32]); 6] = [
    (1, &[1]),
    (2, &[1, 2]),
    (3, &[1, 2, 3]),
    (4, &[1, 2, 3, 4]),
    (8, &[1, 2, 3, 4, 5, 6]),
    (16, &[1, 4, 8, 10, 12]),
];

type Fault = Box<dyn std::error::Error>;

/// What came of one cell.
struct Measured {
    took: Duration,
    simulated: Duration,
    idle: Vec<f64>,
}

fn main() -> Result<(), Fault> {
    let tokens = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(512);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut planner = Planner::new(system(), Aim::default())?;
    println!(
        "| requests | threshold | tokens/s | simulation | of it | expected | idle fast, slow |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut per_user = Vec::new();
    for (requests, thresholds) in CELLS {
        let mut best = 0.0_f64;
        for &threshold in thresholds {
            let measured = runtime.block_on(measure(requests, threshold, tokens))?;
            let all = f64::from(tokens * requests);
            let speed = all / measured.took.as_secs_f64();
            let ideal = all / measured.simulated.as_secs_f64();
            let expected = planner.predict(requests, &[1, threshold])?.tokens_per_s;
            let [fast, slow] = [measured.idle[0], measured.idle[1]].map(|share| 100.0 * share);
            println!(
                "| {requests} | {threshold} | {speed:.1} | {ideal:.1} | {:.1}% | {expected:.1} | {fast:.2}%, {slow:.2}% |",
                100.0 * speed / ideal
            );
            best = best.max(speed);
        }
        per_user.push((requests, best));
    }
    println!(
        "\n| requests | best tokens/s | of one request's | each, of one alone |\n|---|---|---|---|"
    );
    let alone = per_user[0].1;
    for (requests, best) in per_user {
        let times = best / alone;
        let each = 100.0 * times / f64::from(requests);
        println!("| {requests} | {best:.1} | {times:.2} times | {each:.1}% |");
    }
    Ok(())
}

/// The two models as the planner sees them.
fn system() -> System {
    System {
        times: TIMES.map(|time| StepTimes::fixed(time.as_secs_f64())).to_vec(),
        moves: vec![vec![1.0 - SHARE, SHARE], vec![1.0, 0.0]],
        commits: vec![vec![1.0, 0.0], vec![1.0, 0.0]],
        entry: 0,
        caps: vec![None, None],
        tick: 1e-4,
    }
}

async fn measure(requests: u32, threshold: u32, tokens: u32) -> Result<Measured, Fault> {
    let blocks = requests * (PROMPT + tokens).div_ceil(16) + requests;
    let timed = |time| {
        let script = Script::new(next_token).with_blocks(blocks);
        Timed::new(Box::new(Scripted::new(script)), Some(time))
    };
    let (fast, fast_record) = timed(TIMES[0]);
    let (slow, slow_record) = timed(TIMES[1]);
    let engines =
        vec![Engine::real(Box::new(fast), "fast")?, Engine::real(Box::new(slow), "slow")?];
    let policy = Random { entry: ModelIx(0), to: ModelIx(1), probability: SHARE };
    let thresholds = [Thresholds::fixed(1), Thresholds::fixed(threshold)];
    let node = nodes::start_with(engines, Arc::new(policy), &thresholds).await?;
    let seeds = u64::from(requests) * 1000..;
    let all: Vec<_> = seeds
        .take(requests as usize)
        .map(|seed| request(RouteIx(0), PROMPT as usize, tokens, seed))
        .collect();
    let draws: Vec<_> = all.iter().map(|request| request.draws).collect();
    let begun = Instant::now();
    nodes::run(&node.gateway(), all).await;
    let took = begun.elapsed();
    node.stop().await;
    let records: [Record; 2] = [fast_record, slow_record];
    let steps = steps(&records);
    let replay =
        Replay { draws: &draws, tokens: (PROMPT, tokens), share: SHARE, thresholds: &thresholds };
    Ok(Measured { took, simulated: simulate(replay, &steps), idle: idle(&steps, &thresholds) })
}
