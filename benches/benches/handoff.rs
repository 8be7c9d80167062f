//! A local handoff, engine excluded: from the moment the policy names the next model to the moment that model's next
//! row is composed. Hot (engines take no time), and with both engine threads busy computing.
//!
//! The policy itself holds the stop-watch: `route` starts it, and `needs`, which the host asks for every row it
//! composes, stops it.

use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokenrouter_benches::{next_token, nodes, quantile, request};
use tokenrouter_engine::{Engine, Script};
use tokenrouter_policies::{
    JustSampled, ModelIx, Policy, PolicyState, SignalSet, StepView, Verdict,
};
use tokenrouter_protocol::RouteIx;

/// Every step hands the request to the other model.
#[derive(Debug)]
struct PingPong {
    /// When the last handoff was decided, and to whom.
    decided: Mutex<Option<(ModelIx, Instant)>>,
    measured: Sender<Duration>,
}

impl Policy for PingPong {
    fn needs(&self, at: ModelIx) -> SignalSet {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, since)) = decided.take_if(|(to, _)| *to == at) {
            // The receiver outlives the node, so nothing is lost.
            self.measured.send(since.elapsed()).unwrap_or_default();
        }
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        let to = ModelIx(1 - step.model.0);
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        *decided = Some((to, Instant::now()));
        Verdict::Handoff { to, just_sampled: JustSampled::Commit }
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![ModelIx(0), ModelIx(1)]
    }
}

fn policy() -> (Arc<PingPong>, Receiver<Duration>) {
    let (measured, measurements) = channel();
    (Arc::new(PingPong { decided: Mutex::new(None), measured }), measurements)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("| case | handoffs | p50 | p90 | p99 |");
    println!("|---|---|---|---|---|");
    for workers in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build()?;
        let threads = if workers == 1 { "1 worker" } else { "2 workers" };
        report(&format!("hot, {threads}"), runtime.block_on(hot())?);
        report(&format!("engines busy, {threads}"), runtime.block_on(busy())?);
    }
    Ok(())
}

fn report(case: &str, mut measured: Vec<Duration>) {
    measured.sort();
    let at = |share| format!("{:.1} µs", quantile(&measured, share).as_secs_f64() * 1e6);
    println!("| {case} | {} | {} | {} | {} |", measured.len(), at(0.5), at(0.9), at(0.99));
}

/// One request, engines that take no time.
async fn hot() -> Result<Vec<Duration>, Box<dyn std::error::Error>> {
    let (policy, measurements) = policy();
    let engine = || Engine::scripted(Script::new(next_token).with_blocks(1 << 16));
    let node = nodes::start(vec![engine(), engine()], policy).await?;
    nodes::run(&node.gateway(), vec![request(RouteIx(0), 8, 20_000, 1)]).await;
    node.stop().await;
    Ok(measurements.try_iter().skip(1000).collect())
}

/// Both engine threads compute all the time, for requests that stay with them; one more request is handed to and fro.
async fn busy() -> Result<Vec<Duration>, Box<dyn std::error::Error>> {
    let (policy, measurements) = policy();
    let engines = [spinning()?, spinning()?];
    let node = nodes::start(engines.into(), policy).await?;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let load: Vec<_> = (0..2).map(|_| spin(Arc::clone(&stop))).collect();
    nodes::run(&node.gateway(), vec![request(RouteIx(0), 8, 4_000, 1)]).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for thread in load {
        thread.join().map_err(|_| "a load thread panicked")?;
    }
    node.stop().await;
    Ok(measurements.try_iter().skip(200).collect())
}

/// An engine on its own thread, whose steps take no time themselves.
fn spinning() -> Result<Engine, tokenrouter_engine::Error> {
    let script = Script::new(next_token).with_blocks(1 << 16);
    Engine::real(Box::new(tokenrouter_engine::Scripted::new(script)), "bench")
}

/// A thread that computes without pause, as an engine in a long forward pass does.
fn spin(stop: Arc<std::sync::atomic::AtomicBool>) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut x = 1u64;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        x
    })
}
