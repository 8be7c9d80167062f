//! `recovery`: how long a killed DecodeLoop keeps its requests waiting, against what a restart of the process costs.

use clap::Args;
use futures::future::{join_all, try_join_all};
use reqwest::Client;
use serde_json::json;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tokenrouter_tests::sse::Chunks;

/// Kill the DecodeLoop of `large`, then the whole process, with requests in flight, and time the way back.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Requests in flight.
    #[arg(long, default_value_t = 16)]
    requests: usize,
    /// Tokens each of them has when its server dies.
    #[arg(long, default_value_t = 1000)]
    tokens: usize,
    /// How often each death is timed.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    times: u64,
}

/// Tokens that are read after a kill: more than can have been on their way.
const TOKENS_AFTER: usize = 50;

/// From the death to the first and to the last request's next token.
#[derive(Clone, Copy, Debug)]
struct Back {
    first: Duration,
    last: Duration,
}

/// A server process, killed when it is dropped.
struct Process {
    child: Child,
    url: String,
}

type Fault = Box<dyn std::error::Error>;

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let measured = tokio::runtime::Runtime::new()
        .map_err(Fault::from)
        .and_then(|runtime| runtime.block_on(measure(arguments)));
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments) -> Result<(), Fault> {
    let Arguments { requests, tokens, times } = *arguments;
    let times = times as usize;
    println!("{requests} requests with {tokens} tokens each; medians of {times}");
    let (mut decode, mut process, mut written) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..times {
        let (writing, back) = after_a_kill(requests, tokens).await?;
        written.push(writing);
        decode.push(back);
        process.push(after_a_restart(requests, tokens).await?);
    }
    let report = |what: &dyn Display, mut all: Vec<Back>| {
        let middle = all.len() / 2;
        all.sort_by_key(|back| back.first);
        let first = all[middle].first.as_secs_f64() * 1e3;
        all.sort_by_key(|back| back.last);
        let last = all[middle].last.as_secs_f64() * 1e3;
        println!(
            "{what}: next token of the first request after {first:.1} ms, of the last after {last:.1} ms"
        );
    };
    report(&"DecodeLoop killed", decode);
    report(&"process killed, started again and asked to go on from the same tokens", process);
    written.sort();
    let written = written[times / 2].as_secs_f64();
    println!(
        "writing these tokens took {written:.1} s: what clients pay again that cannot say where they were"
    );
    Ok(())
}

/// Kills `large/decode` once every request has its tokens, and says how long it took to get there. Clients do nothing.
async fn after_a_kill(requests: usize, tokens: usize) -> Result<(Duration, Back), Fault> {
    let process = Process::start()?;
    let http = Client::new();
    let prompt: Vec<u32> = (20..36).collect();
    let begun = Instant::now();
    let open = (0..requests).map(|seed| stream(&http, &process.url, &prompt, seed));
    let mut streams = try_join_all(open).await?;
    join_all(streams.iter_mut().map(|stream| read(stream, tokens - prompt.len()))).await;
    let written = begun.elapsed();
    let dead = Instant::now();
    let kill = http.post(format!("{}/admin/kill", process.url));
    kill.json(&json!({ "actor": "large/decode" })).send().await?.error_for_status()?;
    let next = join_all(streams.iter_mut().map(|stream| after_the_gap(stream, dead)));
    Ok((written, Back::of(&next.await)))
}

/// Kills the process, starts another, and has every client ask again with all the tokens it has: the cheapest a restart
/// can be, for a client that keeps count of them.
async fn after_a_restart(requests: usize, tokens: usize) -> Result<Back, Fault> {
    let process = Process::start()?;
    let http = Client::new();
    let dead = Instant::now();
    drop(process);
    let process = Process::start()?;
    let prompt: Vec<u32> = (20..).take(tokens).map(|token| 20 + token % 400).collect();
    let next = (0..requests).map(|seed| {
        let (http, url, prompt) = (&http, &process.url, &prompt);
        async move {
            let mut stream = stream(http, url, prompt, seed).await?;
            read(&mut stream, 1).await;
            Ok::<_, Fault>(dead.elapsed())
        }
    });
    Ok(Back::of(&try_join_all(next).await?))
}

async fn stream(http: &Client, url: &str, prompt: &[u32], seed: usize) -> Result<Chunks, Fault> {
    let body = json!({
        "model": "large", "prompt": prompt, "max_tokens": 4000, "ignore_eos": true, "stream": true,
        "seed": seed, "temperature": 0.8,
    });
    let response = http.post(format!("{url}/v1/completions")).json(&body).send().await?;
    Ok(Chunks::of(response.error_for_status()?))
}

impl Back {
    fn of(all: &[Duration]) -> Self {
        let (first, last) = (all.iter().min(), all.iter().max());
        Self { first: first.copied().unwrap_or_default(), last: last.copied().unwrap_or_default() }
    }
}

/// From `dead` to the end of the longest silence in what comes next: tokens of the old life may still be on their way, and
/// those of the new one come closely.
async fn after_the_gap(stream: &mut Chunks, dead: Instant) -> Duration {
    let (mut last, mut longest, mut end) = (dead, Duration::ZERO, Duration::ZERO);
    for _ in 0..TOKENS_AFTER {
        read(stream, 1).await;
        let now = Instant::now();
        if now - last > longest {
            (longest, end) = (now - last, now - dead);
        }
        last = now;
    }
    end
}

/// Reads until at least `count` more tokens have come, or the reply ends.
async fn read(stream: &mut Chunks, count: usize) {
    let mut tokens = 0;
    while tokens < count {
        let Some(chunk) = stream.next().await else { return };
        tokens += chunk["token_routing"]["tokens"].as_u64().unwrap_or(0) as usize;
    }
}

impl Process {
    /// Starts the server of this build, and waits until it listens.
    fn start() -> Result<Self, Fault> {
        let program = std::env::current_exe()?.with_file_name("tokenrouter");
        let mut child = Command::new(&program)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("TOKENROUTER_ADMIN__ENABLED", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| {
                format!("{}: {e}; build it with `cargo build --release`", program.display())
            })?;
        let lines = child.stdout.take().ok_or("the server has no output")?;
        for line in BufReader::new(lines).lines() {
            let line = line?;
            if let Some(at) = line.find("http://") {
                let url: String =
                    line[at..].chars().take_while(|c| !matches!(c, ' ' | ';')).collect();
                return Ok(Self { child, url });
            }
        }
        Err("the server ended before it listened".into())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended by itself is as good.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
