//! A node over real models, driven through its gateway, for tests that compare whole replies.

use futures::{StreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_actors::{Event, Gateway, Node, NodeSpec};
use tokenrouter_config::{Sources, Topology};
use tokenrouter_policies::{Draws, ModelIx, Token};
use tokenrouter_protocol::{Outcome, Request, RouteIx, Sampling, Share};
use tokenrouter_server::Plan;
use tokenrouter_server::catalog::Catalog;

/// Longer than anything takes, so that a hang is a failure and not a hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running node and what it offers.
#[derive(Debug)]
pub struct Kit {
    node: Node,
    catalog: Arc<Catalog>,
}

/// A whole reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Its committed tokens.
    pub tokens: Vec<Token>,
    /// Its text.
    pub text: String,
    /// How it ended, and who did what.
    pub outcome: Outcome,
}

/// How a batch of requests is to be answered.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens of a reply.
    pub max_tokens: u32,
    /// Requests at a time.
    pub concurrency: usize,
}

impl Kit {
    /// Starts a node from a topology; `change` may alter what it is started with.
    ///
    /// # Panics
    /// When the topology is wrong or its models do not load.
    pub async fn start(topology: &str, change: impl FnOnce(&mut NodeSpec)) -> Self {
        let topology = Topology::from_text(topology, &Sources::default()).unwrap();
        let plan = Plan::new(topology).unwrap();
        let catalog = Arc::clone(plan.catalog());
        let mut spec = plan.load().unwrap();
        change(&mut spec);
        Self { node: Node::start(spec).await.unwrap(), catalog }
    }

    /// Asks the first `count` demo problems on `route`; problem `i` has seed `i`. The replies in order.
    ///
    /// # Panics
    /// When a request fails or takes too long.
    pub async fn ask(&self, route: &str, count: usize, manner: Manner) -> Vec<Reply> {
        let requests = (0..).zip(questions(count));
        let word = |(seed, question): (u64, String)| {
            request(&self.catalog, route, &question, seed, manner)
        };
        self.answer(requests.map(word), manner.concurrency).await
    }

    /// As [`Self::ask`], with a seed and the tokens of a prompt for each request.
    ///
    /// # Panics
    /// When a request fails or takes too long.
    pub async fn ask_tokens(
        &self,
        route: &str,
        prompts: impl Iterator<Item = (u64, Vec<Token>)>,
        manner: Manner,
    ) -> Vec<Reply> {
        let route = self.catalog.find(route).unwrap().index;
        let requests = prompts.map(|(seed, prompt)| bare_request(route, prompt, seed, manner));
        self.answer(requests, manner.concurrency).await
    }

    async fn answer(
        &self,
        requests: impl Iterator<Item = Request>,
        concurrency: usize,
    ) -> Vec<Reply> {
        let gateway = self.node.gateway();
        let replies = requests.map(|request| read(&gateway, request));
        let replies = stream::iter(replies).buffered(concurrency).collect();
        tokio::time::timeout(PATIENCE, replies).await.expect("the requests take too long")
    }

    /// Waits until no loop holds anything of any request.
    ///
    /// # Panics
    /// When something is still held after a long time.
    pub async fn at_rest(&self) {
        at_rest(&self.node.gateway()).await;
    }

    /// The way in.
    pub fn gateway(&self) -> Gateway {
        self.node.gateway()
    }

    /// Ends the node.
    pub async fn stop(self) {
        self.node.stop().await;
    }
}

/// Waits until no loop of a node holds anything of any request.
///
/// # Panics
/// When something is still held after a long time.
pub async fn at_rest(gateway: &Gateway) {
    let rest = async {
        loop {
            let views = gateway.observe().await;
            let idle = views.iter().all(|view| {
                let client = view.client.is_some_and(|c| c.live == 0 && c.closing == 0);
                client && view.decode.is_some_and(|d| d.held == 0 && d.blocks_used == 0)
            });
            if idle && gateway.live() == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, rest).await.expect("something is still held");
}

/// A request for `route` with this question as its whole conversation.
///
/// # Panics
/// When there is no such route.
pub fn request(
    catalog: &Catalog,
    route: &str,
    question: &str,
    seed: u64,
    manner: Manner,
) -> Request {
    let route = catalog.find(route).unwrap();
    let prompt = format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n");
    let prompt = route.language.tokenizer.encode(&prompt, false).unwrap();
    bare_request(route.index, prompt, seed, manner)
}

fn bare_request(route: RouteIx, prompt: Vec<Token>, seed: u64, manner: Manner) -> Request {
    Request {
        route,
        prompt,
        max_tokens: manner.max_tokens,
        sampling: manner.sampling,
        draws: Draws::new(seed, 0),
        stop: Vec::new(),
        ignore_eos: false,
    }
}

impl Reply {
    /// What a model did for it.
    ///
    /// # Panics
    /// When the model is not of its route.
    pub fn share(&self, model: ModelIx) -> Share {
        self.outcome.shares.iter().find(|(m, _)| *m == model).unwrap().1
    }
}

async fn read(gateway: &Gateway, request: Request) -> Reply {
    let mut session = gateway.open(request).await.unwrap();
    let (mut tokens, mut text) = (Vec::new(), String::new());
    loop {
        match session.next().await.expect("a session ends with an outcome") {
            Event::Progress(progress) => {
                tokens.extend(&progress.tokens);
                text.push_str(&progress.text);
            }
            Event::Done(outcome) => return Reply { tokens, text, outcome: outcome.unwrap() },
        }
    }
}

/// The questions of the first `count` demo problems.
///
/// # Panics
/// Never: the problems are built in.
pub fn questions(count: usize) -> Vec<String> {
    let problems = tokenrouter_models::PROBLEMS.lines().take(count);
    let question = |line: &str| {
        let problem: serde_json::Value = serde_json::from_str(line).unwrap();
        problem["question"].as_str().unwrap().to_owned()
    };
    problems.map(question).collect()
}
