//! Chaos: a server of the demo pair is asked the same things twice, once in peace and once while its actors die. Half of
//! the requests come over HTTP as streams, half through the gateway, where token ids can be seen.
//!
//! Deaths are paced by tokens and by handoffs, never by a clock, so that a slow machine sees as many as a quick one.

use crate::kit::{self, Manner, at_rest, questions};
use crate::sse::Chunks;
use futures::{StreamExt, stream};
use reqwest::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokenrouter_actors::{Admin, Event, Faults, Point, Target};
use tokenrouter_config::{Sources, Topology};
use tokenrouter_policies::{ModelIx, Token};
use tokenrouter_protocol::Sampling;
use tokenrouter_server::{Plan, Server};

/// Requests at a time.
pub const CONCURRENCY: usize = 16;

/// One kill for so many tokens, and one death inside a handoff for so many points that handoffs pass.
const TOKENS_A_KILL: u64 = 80;
const POINTS_A_DEATH: u64 = 300;

/// Longer than any round takes, so that a hang is a failure and not a hang.
const PATIENCE: Duration = Duration::from_secs(180);

const TOPOLOGY: &str = "http: { listen: '127.0.0.1:0' }\n\
    models: { small: 'demo:small', large: 'demo:large' }\n\
    routes: { demo: { entry: small, policy: { kind: r-stitch, to: large, threshold: 0.03 } } }\n\
    limits: { grace: 500ms, stall_timeout: 1s }\n";

const LARGE: ModelIx = ModelIx(0);
const SMALL: ModelIx = ModelIx(1);

/// Who is killed, in turn. Only small has work for its home.
const TARGETS: [Target; 10] = [
    Target::Decode(LARGE),
    Target::Client(SMALL),
    Target::Peer(SMALL),
    Target::Subserver(LARGE),
    Target::Http,
    Target::Decode(SMALL),
    Target::Client(SMALL),
    Target::Peer(LARGE),
    Target::Subserver(SMALL),
    Target::Http,
];

/// A server and what befalls it.
#[derive(Debug)]
pub struct Chaos {
    server: Server,
    http: Client,
    hail: Arc<Hail>,
}

/// A reply, without what may differ: ids, times, and what was computed twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Token ids; none over HTTP.
    pub tokens: Vec<Token>,
    /// The text.
    pub text: String,
    /// Why it ended.
    pub finish: String,
    /// Tokens of prompt and reply.
    pub usage: (u64, u64),
    /// Tokens by the model that wrote them.
    pub written: BTreeMap<String, u64>,
}

/// How many died.
#[derive(Clone, Debug, Default)]
pub struct Toll {
    /// By kind of actor.
    pub kinds: BTreeMap<&'static str, u32>,
    /// While at least 8 requests were in the middle of their replies.
    pub busy: u32,
    /// At a point of a handoff.
    pub handoffs: u32,
}

#[derive(Debug, Default)]
struct Hail {
    falling: AtomicBool,
    tokens: AtomicU64,
    points: AtomicU64,
    next: AtomicUsize,
    /// Requests in the middle of their replies.
    writing: AtomicUsize,
    toll: Mutex<Toll>,
    admin: OnceLock<Admin>,
}

/// One request in the middle of its reply.
struct Writing<'a>(&'a Hail);

impl Chaos {
    /// Starts the server.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Self {
        let topology = Topology::from_text(TOPOLOGY, &Sources::default()).unwrap();
        let hail = Arc::new(Hail::default());
        let dies = Arc::clone(&hail);
        let faults = Faults::new(move |point| dies.point(point));
        let plan = Plan::new(topology).unwrap();
        let server = Server::start_with(plan, |spec| spec.faults = faults).await.unwrap();
        hail.admin.set(server.app().gateway().admin()).unwrap();
        let http = Client::builder().timeout(PATIENCE).build().unwrap();
        Self { server, http, hail }
    }

    /// Asks the first `count` demo problems, each with a seed of its own; actors die meanwhile if `disturbed`.
    ///
    /// # Panics
    /// When a reply is refused, broken or takes too long.
    pub async fn round(&self, count: usize, disturbed: bool) -> Vec<Answer> {
        self.hail.falling.store(disturbed, Ordering::Relaxed);
        let replies = stream::iter(questions(count).into_iter().enumerate())
            .map(|(at, question)| self.reply(at, question))
            .buffered(CONCURRENCY)
            .collect();
        let replies = tokio::time::timeout(PATIENCE, replies).await.expect("a round hangs");
        self.hail.falling.store(false, Ordering::Relaxed);
        at_rest(self.server.app().gateway()).await;
        replies
    }

    /// Who died so far.
    ///
    /// # Panics
    /// Never.
    pub fn toll(&self) -> Toll {
        self.hail.toll.lock().unwrap().clone()
    }

    /// Stops the server, and waits until `tasks` tasks are left in the runtime.
    ///
    /// # Panics
    /// When more are left after a long time.
    pub async fn stop(self, tasks: usize) {
        drop(self.http);
        assert_eq!(self.server.stop(std::future::pending()).await, 0, "nothing is cut off");
        let metrics = tokio::runtime::Handle::current().metrics();
        let ended = async {
            while metrics.num_alive_tasks() > tasks {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        assert!(ended.is_ok(), "{} tasks are left", metrics.num_alive_tasks());
    }

    async fn reply(&self, at: usize, question: String) -> Answer {
        if at.is_multiple_of(2) {
            self.by_http(at, &question).await
        } else {
            self.by_gateway(at, &question).await
        }
    }

    async fn by_gateway(&self, at: usize, question: &str) -> Answer {
        let app = self.server.app();
        let sampling = Sampling { temperature: temperature(at), ..Sampling::GREEDY };
        let manner = Manner { sampling, max_tokens: 300, concurrency: CONCURRENCY };
        let request = kit::request(app.catalog(), "demo", question, at as u64, manner);
        let mut session = app.gateway().open(request).await.unwrap();
        let mut answer = Answer::empty();
        let mut writing = None;
        loop {
            match session.next().await.unwrap() {
                Event::Progress(progress) => {
                    writing.get_or_insert_with(|| self.hail.writing());
                    answer.text.push_str(&progress.text);
                    answer.tokens.extend(&progress.tokens);
                    let tokens = progress.tokens.len() as u64;
                    answer.write(app.catalog().model(progress.model), tokens);
                    self.hail.tokens(tokens);
                }
                Event::Done(result) => {
                    let outcome = result.unwrap();
                    answer.finish = format!("{:?}", outcome.finish);
                    answer.usage = (outcome.prompt_tokens.into(), outcome.completion_tokens.into());
                    return answer;
                }
            }
        }
    }

    async fn by_http(&self, at: usize, question: &str) -> Answer {
        let body = json!({
            "model": "demo", "seed": at, "temperature": temperature(at), "max_tokens": 300, "stream": true,
            "stream_options": { "include_usage": true },
            "messages": [{ "role": "user", "content": question }],
        });
        let url =
            format!("http://{}/v1/chat/completions", self.server.address().expect("it takes HTTP"));
        let response = self.http.post(url).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let (mut chunks, mut answer) = (Chunks::of(response), Answer::empty());
        let mut writing = None;
        while let Some(chunk) = chunks.next().await {
            writing.get_or_insert_with(|| self.hail.writing());
            self.hail.tokens(answer.read(&chunk));
        }
        answer
    }
}

/// Half of the requests are greedy.
fn temperature(at: usize) -> f32 {
    if at % 4 < 2 { 0.0 } else { 0.8 }
}

impl Answer {
    fn empty() -> Self {
        let (text, finish) = (String::new(), String::new());
        Self { tokens: Vec::new(), text, finish, usage: (0, 0), written: BTreeMap::new() }
    }

    fn write(&mut self, model: &str, tokens: u64) {
        *self.written.entry(model.to_owned()).or_default() += tokens;
    }

    /// Takes a chunk of a stream; how many tokens it holds.
    fn read(&mut self, chunk: &Value) -> u64 {
        if let Some(usage) = chunk["usage"].as_object() {
            let count = |key: &str| usage[key].as_u64().unwrap();
            self.usage = (count("prompt_tokens"), count("completion_tokens"));
        }
        let choice = &chunk["choices"][0];
        self.text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        if let Some(finish) = choice["finish_reason"].as_str() {
            finish.clone_into(&mut self.finish);
            return 0;
        }
        let routing = &chunk["token_routing"];
        let (Some(model), Some(tokens)) = (routing["model"].as_str(), routing["tokens"].as_u64())
        else {
            return 0;
        };
        self.write(model, tokens);
        tokens
    }
}

impl Hail {
    fn writing(&self) -> Writing<'_> {
        self.writing.fetch_add(1, Ordering::Relaxed);
        Writing(self)
    }

    /// So many tokens came; from time to time somebody dies of it.
    fn tokens(&self, count: u64) {
        let before = self.tokens.fetch_add(count, Ordering::Relaxed);
        let due = before / TOKENS_A_KILL != (before + count) / TOKENS_A_KILL;
        if !due || !self.falling.load(Ordering::Relaxed) {
            return;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let target = TARGETS[next % TARGETS.len()];
        if self.admin.get().is_some_and(|admin| admin.kill(target)) {
            self.count(target, false);
        }
    }

    /// An actor passed a point; from time to time it dies in the middle of a handoff.
    fn point(&self, point: Point) -> bool {
        if !matches!(point.about, "handoff" | "grant") || !self.falling.load(Ordering::Relaxed) {
            return false;
        }
        let dies =
            self.points.fetch_add(1, Ordering::Relaxed) % POINTS_A_DEATH == POINTS_A_DEATH - 1;
        if dies {
            self.count(point.actor, true);
        }
        dies
    }

    fn count(&self, target: Target, handoff: bool) {
        let kind = match target {
            Target::Client(_) => "client",
            Target::Decode(_) => "decode",
            Target::Peer(_) => "peer",
            Target::Subserver(_) => "subserver",
            Target::Http => "http",
            Target::Pacer => "pacer",
            Target::Tuner => "tuner",
            Target::Links => "links",
            Target::Listener => "listener",
            Target::Remote(_) => "remote",
        };
        let mut toll = self.toll.lock().unwrap();
        *toll.kinds.entry(kind).or_default() += 1;
        toll.busy += u32::from(self.writing.load(Ordering::Relaxed) >= 8);
        toll.handoffs += u32::from(handoff);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Toll {
    /// All together.
    pub fn total(&self) -> u32 {
        self.kinds.values().sum()
    }
}

impl fmt::Display for Toll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let (total, busy, handoffs) = (self.total(), self.busy, self.handoffs);
        write!(
            f,
            "{total} deaths ({}), {busy} under load, {handoffs} in a handoff",
            kinds.join(", ")
        )
    }
}
