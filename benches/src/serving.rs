//! Serving the demo pair in several ways, one case in one process: what is run, the prompts, and what came of it. The ways
//! themselves are in the parts; all get the same prompts, the same weights and the same routing, a pure function of seed
//! and position.

pub mod official;
pub mod ours;
pub mod standard;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokenrouter_config::{Sources, Topology};
use tokenrouter_policies::{Draws, Position, Purpose, Token};
use tokenrouter_server::Plan;
use tokenrouter_server::admission;
use tokenrouter_server::catalog::Route;
use tokenrouter_server::openai::{ChatRequest, Message, Options};

/// Anything that keeps a case from its end.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// How likely the large model writes a token.
pub const SHARE: f64 = 0.35;

/// How tokens are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// An engine of mistral.rs for each model, every token a request of its own, without prefix cache.
    StandardAsDocumented,
    /// The same with the prefix cache made to work.
    StandardBestEffort,
    /// One synchronous loop over a fixed batch.
    Official,
    /// Actors; models take turns, all requests wait for each.
    StepSync,
    /// Actors; all models run one pass a round.
    ModelSync,
    /// Actors; each model launches as soon as anybody is ready.
    Eager,
    /// Actors; models wait for the thresholds that the planner found.
    Delayed,
}

impl System {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::StandardAsDocumented => "(a) standard, as documented",
            Self::StandardBestEffort => "(a) standard, best effort",
            Self::Official => "(b) official style",
            Self::StepSync => "(c) step-sync",
            Self::ModelSync => "(c) model-sync",
            Self::Eager => "(c) eager",
            Self::Delayed => "(c) delayed",
        }
    }
}

/// What is run in one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// How.
    pub system: System,
    /// Requests, all at once.
    pub requests: u32,
    /// Turns of each; the prompt of one is everything before it and something new.
    pub turns: u32,
    /// New tokens of each prompt; 0 for one question as it is.
    pub prompt: usize,
    /// Tokens of each reply.
    pub tokens: u32,
    /// After so many seconds nobody begins another token; 0 for never. Only standard serving looks at it.
    pub seconds: f64,
    /// Milliseconds of each model's passes, which then compute nothing; 0 for the real models.
    pub scripted: [f64; 2],
}

/// What came of a case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// From the first request to the last token, in seconds.
    pub seconds: f64,
    /// The tokens of each request's replies.
    pub replies: Vec<Vec<Token>>,
    /// Seconds in which no model ran a pass. Only ours and the official style know.
    pub outside: f64,
    /// The share of time in which each model could have run and did not. Only ours knows.
    pub idle: Vec<f64>,
    /// Passes of each model. Only ours knows.
    pub passes: Vec<usize>,
    /// Thresholds that held.
    pub thresholds: Vec<u32>,
    /// Megabytes of memory at the most.
    pub memory: f64,
}

impl Outcome {
    /// Tokens of all replies.
    pub fn tokens(&self) -> usize {
        self.replies.iter().map(Vec::len).sum()
    }

    /// Tokens a second.
    pub fn speed(&self) -> f64 {
        self.tokens() as f64 / self.seconds
    }

    /// The share of `reference`'s tokens, as far as this one got, that are the same here.
    pub fn agreement(&self, reference: &Self) -> f64 {
        let pairs = self.replies.iter().zip(&reference.replies);
        let same = pairs.flat_map(|(own, other)| own.iter().zip(other)).filter(|(a, b)| a == b);
        same.count() as f64 / self.tokens().max(1) as f64
    }
}

/// The demo pair behind one route, each model with one thread, whatever the machine has: passes of so small models are
/// slower on two.
///
/// # Errors
/// None that a bench would survive.
pub fn plan() -> Result<Plan, Fault> {
    let text = format!(
        "models: {{ small: {{ path: 'demo:small', threads: 1 }}, large: {{ path: 'demo:large', threads: 1 }} }}\n\
         routes: {{ pair: {{ entry: small, policy: {{ kind: random, to: large, probability: {SHARE} }} }} }}\n"
    );
    Ok(Plan::new(Topology::from_text(&text, &Sources::default())?)?)
}

/// The route of [`plan`].
///
/// # Errors
/// As [`plan`].
pub fn route(plan: &Plan) -> Result<Route, Fault> {
    Ok(plan.catalog().find("pair").ok_or("the route is missing")?.clone())
}

/// What is new in each prompt of request `index`, turn by turn: chats of built-in problems, as many as fill the length.
///
/// # Errors
/// A tokeniser that refuses them.
pub fn prompts(route: &Route, case: &Case, index: u32) -> Result<Vec<Vec<Token>>, Fault> {
    let mut problems = tokenrouter_models::PROBLEMS.lines().cycle().skip(index as usize * 7);
    let mut next = || -> Result<Vec<Token>, Fault> {
        let problem: Value = serde_json::from_str(problems.next().unwrap_or_default())?;
        let content = problem["question"].as_str().unwrap_or_default().to_owned();
        let messages = vec![Message { role: "user".to_owned(), content }];
        let options = Options { n: 1, ..Options::default() };
        let chat = ChatRequest { messages, template_arguments: Map::new(), options };
        admission::chat_prompt(route, &chat).map_err(|e| e.to_string().into())
    };
    let mut turns = Vec::new();
    for _ in 0..case.turns {
        let mut prompt = next()?;
        while prompt.len() < case.prompt {
            prompt.extend(next()?);
        }
        if case.prompt > 0 {
            prompt.truncate(case.prompt);
        }
        turns.push(prompt);
    }
    Ok(turns)
}

/// The draws of request `index`.
pub fn draws(index: u32) -> Draws {
    Draws::new(1000 + u64::from(index), 0)
}

/// Whether the large model writes the token at this position.
pub fn to_large(draws: Draws, position: Position) -> bool {
    draws.uniform(position, Purpose::Route) < SHARE
}

/// The most memory this process ever had, in megabytes.
pub fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}
