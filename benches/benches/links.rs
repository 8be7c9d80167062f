//! Two processes with a QUIC link between them, on loopback: how long a handoff takes, how many bytes it is, and what the
//! link costs beside a single process.
//!
//! `cargo bench -p tokenrouter-benches --bench links`. The second process is this program once more, with `--peer`.

use smallvec::{SmallVec, smallvec};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokenrouter_actors::{Cluster, LinkView, Node, NodeAddress};
use tokenrouter_benches::timed::Timed;
use tokenrouter_benches::{next_token, nodes, quantile, request};
use tokenrouter_engine::{Engine, Script, Scripted};
use tokenrouter_policies::route::baseline::Random;
use tokenrouter_policies::{
    JustSampled, ModelIx, Policy, PolicyState, SignalSet, StepView, Thresholds, Verdict,
};
use tokenrouter_protocol::{Reach, RouteIx};
use tokenrouter_transport::{Endpoint, Identity, Timing, certs};

const TIMES: [Duration; 2] = [Duration::from_micros(6_000), Duration::from_micros(27_900)];
const SHARE: f64 = 0.35;
const PROMPT: u32 = 8;
const TOKENS: u32 = 256;
const ROUNDS: usize = 3;
const HANDOFFS: u32 = 10_000;
const TIMING: Timing =
    Timing { idle_timeout: Duration::from_secs(3), keep_alive: Duration::from_millis(750) };

type Fault = Box<dyn std::error::Error>;

fn main() -> Result<(), Fault> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--peer") {
        let [folder, kind] = &arguments[at + 1..at + 3] else { return Err("two arguments".into()) };
        return runtime.block_on(peer(Path::new(folder), kind));
    }
    runtime.block_on(handoffs(&[8, 8_000]))?;
    runtime.block_on(throughput())
}

/// Every step hands the request to the other model.
#[derive(Debug)]
struct PingPong {
    /// When the first model last handed the request over.
    decided: Mutex<Option<Instant>>,
    measured: Sender<Duration>,
}

impl Policy for PingPong {
    fn needs(&self, at: ModelIx) -> SignalSet {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        if at == ModelIx(0)
            && let Some(since) = decided.take()
        {
            // The receiver outlives the node, so nothing is lost.
            self.measured.send(since.elapsed()).unwrap_or_default();
        }
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        if step.model == ModelIx(0) {
            let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
            *decided = Some(Instant::now());
        }
        let to = ModelIx(1 - step.model.0);
        Verdict::Handoff { to, just_sampled: JustSampled::Commit }
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![ModelIx(0), ModelIx(1)]
    }
}

/// There and back again, with contexts of these lengths.
async fn handoffs(contexts: &[u32]) -> Result<(), Fault> {
    println!("| context | handoffs | p50 | p90 | p99 | bytes to the other node | bytes back |");
    println!("|---|---|---|---|---|---|---|");
    for &context in contexts {
        let (sender, measurements) = channel();
        let policy = Arc::new(PingPong { decided: Mutex::new(None), measured: sender });
        let pair = Pair::start("ping-pong", policy, engine("ping-pong", 0)?).await?;
        // The first visit carries the prompt.
        let first = request(RouteIx(0), context as usize, 2, 1);
        nodes::run(&pair.node.gateway(), vec![first]).await;
        let before = pair.link().await;
        let all = request(RouteIx(0), context as usize, HANDOFFS, 2);
        nodes::run(&pair.node.gateway(), vec![all]).await;
        let after = pair.link().await;
        pair.stop().await?;
        // Half of the way there and back is one handoff, with one crossing of the link.
        let mut measured: Vec<Duration> =
            measurements.try_iter().skip(500).map(|both| both / 2).collect();
        measured.sort();
        let at = |share| format!("{:.1} µs", quantile(&measured, share).as_secs_f64() * 1e6);
        // The prompt goes once, two bytes a token.
        let crossings = u64::from(HANDOFFS / 2);
        let there = after.counts.payload_sent - before.counts.payload_sent;
        let there = there.saturating_sub(2 * u64::from(context)) / crossings;
        let back = (after.counts.payload_heard - before.counts.payload_heard) / crossings;
        println!(
            "| {context} | {} | {} | {} | {} | {there} | {back} |",
            2 * measured.len(),
            at(0.5),
            at(0.9),
            at(0.99)
        );
    }
    Ok(())
}

/// Scripted steps of 6.0 and 27.9 ms, in one process and in two by turns.
async fn throughput() -> Result<(), Fault> {
    println!("\n| requests | one process, tokens/s | two processes | of it |");
    println!("|---|---|---|---|");
    for requests in [1, 4, 16] {
        let mut speeds = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let engines = vec![engine("timed", 0)?, engine("timed", 1)?];
            let node = nodes::start(engines, random()).await?;
            speeds[0].push(speed(&node, requests).await);
            node.stop().await;
            let pair = Pair::start("timed", random(), engine("timed", 0)?).await?;
            speeds[1].push(speed(&pair.node, requests).await);
            pair.stop().await?;
        }
        let [one, two] = speeds.map(|mut all| {
            all.sort_by(f64::total_cmp);
            all[ROUNDS / 2]
        });
        println!("| {requests} | {one:.1} | {two:.1} | {:.1}% |", 100.0 * two / one);
    }
    Ok(())
}

async fn speed(node: &Node, requests: u32) -> f64 {
    let all = (0..u64::from(requests))
        .map(|seed| request(RouteIx(0), PROMPT as usize, TOKENS, 1000 + seed))
        .collect();
    let begun = Instant::now();
    let tokens = nodes::run(&node.gateway(), all).await;
    tokens as f64 / begun.elapsed().as_secs_f64()
}

fn random() -> Arc<dyn Policy> {
    Arc::new(Random { entry: ModelIx(0), to: ModelIx(1), probability: SHARE })
}

fn engine(kind: &str, model: usize) -> Result<Engine, Fault> {
    let script = Script::new(next_token).with_blocks(1 << 16);
    if kind == "ping-pong" {
        return Ok(Engine::scripted(script));
    }
    let (timed, _) = Timed::new(Box::new(Scripted::new(script)), Some(TIMES[model]));
    Ok(Engine::real(Box::new(timed), "bench")?)
}

/// This process with the first model, and another with the second.
struct Pair {
    node: Node,
    child: Child,
    _folder: TempDir,
}

impl Pair {
    async fn start(kind: &str, policy: Arc<dyn Policy>, engine: Engine) -> Result<Self, Fault> {
        let folder = TempDir::new()?;
        certs::init(folder.path(), &["a".to_owned(), "b".to_owned()])?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--peer")
            .arg(folder.path())
            .arg(kind)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or("no output")?;
        BufReader::new(out).read_line(&mut line)?;
        let endpoint = bind(folder.path(), "a")?;
        let addresses = [endpoint.local_addr()?, line.trim().parse()?];
        let mut spec = nodes::spec(vec![Some(engine), None], policy, &eager());
        spec.cluster = Some(cluster(0, endpoint, addresses));
        let node = Node::start(spec).await?;
        let linked =
            async || node.gateway().links().await.iter().any(|link| link.reach == Reach::Here);
        while !linked().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Self { node, child, _folder: folder })
    }

    async fn link(&self) -> LinkView {
        self.node.gateway().links().await.remove(0)
    }

    /// The other process ends with its input.
    async fn stop(mut self) -> Result<(), Fault> {
        self.node.stop().await;
        drop(self.child.stdin.take());
        self.child.wait()?;
        Ok(())
    }
}

/// The second process: says where it listens, and runs until its input ends.
async fn peer(folder: &Path, kind: &str) -> Result<(), Fault> {
    let endpoint = bind(folder, "b")?;
    let own = endpoint.local_addr()?;
    let policy: Arc<dyn Policy> = match kind {
        "ping-pong" => Arc::new(PingPong { decided: Mutex::new(None), measured: channel().0 }),
        _ => random(),
    };
    let mut spec = nodes::spec(vec![None, Some(engine(kind, 1)?)], policy, &eager());
    // It is called, so nobody asks where the other listens.
    spec.cluster = Some(cluster(1, endpoint, [own, own]));
    let node = Node::start(spec).await?;
    let mut out = std::io::stdout();
    writeln!(out, "{own}")?;
    out.flush()?;
    let waiting = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    waiting.await??;
    node.stop().await;
    Ok(())
}

fn eager() -> [Thresholds; 2] {
    [Thresholds::default(), Thresholds::default()]
}

fn bind(folder: &Path, name: &str) -> Result<Endpoint, Fault> {
    let identity = Identity::read(folder, name)?;
    Ok(Endpoint::bind(&identity, SocketAddr::from(([127, 0, 0, 1], 0)), TIMING)?)
}

fn cluster(here: u8, endpoint: Endpoint, addresses: [SocketAddr; 2]) -> Cluster {
    let names = ["a", "b"].map(str::to_owned);
    let nodes = names.into_iter().zip(addresses);
    let nodes = nodes.map(|(name, address)| NodeAddress { name, address }).collect();
    Cluster { here, endpoint, nodes, places: vec![0, 1], topology: 1 }
}
