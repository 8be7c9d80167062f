//! `/metrics`: what happened to requests, counted as it happens, and what the models did, read when somebody asks.
//!
//! The format is OpenMetrics, the names are those of the field behind `tokenrouter_`. No prompt and no reply is in it, and
//! no label takes a value that a client chooses.

use crate::http::App;
use crate::openai::response::finish_reason;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokenrouter_actors::Event;
use tokenrouter_protocol::{Failure, Outcome};

mod snapshot;

/// Seconds to the first token: the buckets of vLLM.
const FIRST: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
/// Seconds per token: those of vLLM, and four below for models that are small.
const TOKEN: [f64; 23] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Seconds of a whole reply: those of vLLM, and three below.
const WHOLE: [f64; 24] = [
    0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0,
    60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
];

type Times = Family<ByRoute, Histogram, fn() -> Histogram>;

/// What is counted as it happens.
pub struct Metrics {
    registry: Registry,
    answers: Family<Answered, Counter>,
    finished: Family<Finished, Counter>,
    prompt: Family<ByRoute, Counter>,
    generated: Family<Written, Counter>,
    handoffs: Family<ByRoute, Counter>,
    first: Times,
    between: Times,
    per_token: Times,
    whole: Times,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRoute {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Finished {
    route: String,
    finished_reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Written {
    route: String,
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    path: String,
    status: u16,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("tokenrouter"),
            answers: Family::default(),
            finished: Family::default(),
            prompt: Family::default(),
            generated: Family::default(),
            handoffs: Family::default(),
            first: Family::new_with_constructor(|| Histogram::new(FIRST)),
            between: Family::new_with_constructor(|| Histogram::new(TOKEN)),
            per_token: Family::new_with_constructor(|| Histogram::new(TOKEN)),
            whole: Family::new_with_constructor(|| Histogram::new(WHOLE)),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let all = &mut self.registry;
        let (answers, finished) = (self.answers.clone(), self.finished.clone());
        all.register("http_requests", "HTTP requests by path and status", answers);
        all.register("requests", "Choices that came to an end, by reason", finished);
        all.register("prompt_tokens", "Tokens of prompts", self.prompt.clone());
        let generated = self.generated.clone();
        all.register(
            "generation_tokens",
            "Tokens of replies by the model that wrote them",
            generated,
        );
        let handoffs = self.handoffs.clone();
        all.register("handoffs", "Turns that a model handed to another", handoffs);
        let mut times = |name: &str, help: &str, times: &Times| {
            all.register(name, help, times.clone());
        };
        times("time_to_first_token_seconds", "From arrival to the first token", &self.first);
        times("inter_token_latency_seconds", "Between two pieces of a reply", &self.between);
        let help = "Mean time per token after the first, by reply";
        times("request_time_per_output_token_seconds", help, &self.per_token);
        times("e2e_request_latency_seconds", "From arrival to the end", &self.whole);
    }

    /// Counts an answer. `path` is the path as it was routed, never as it was sent.
    pub(crate) fn answered(&self, path: &str, status: StatusCode) {
        let labels = Answered { path: path.to_owned(), status: status.as_u16() };
        self.answers.get_or_create(&labels).inc();
    }

    /// Watches the `choices` choices of a request of `route` that arrived at `arrived`.
    pub(crate) fn meter(self: &Arc<Self>, route: &str, arrived: Instant, choices: usize) -> Meter {
        let label = ByRoute { route: route.to_owned() };
        Meter {
            first: self.first.get_or_create(&label).clone(),
            between: self.between.get_or_create(&label).clone(),
            metrics: Arc::clone(self),
            label,
            arrived,
            choices: vec![Pace::default(); choices],
        }
    }

    fn ended(&self, route: &ByRoute, finished_reason: &'static str) {
        let labels = Finished { route: route.route.clone(), finished_reason };
        self.finished.get_or_create(&labels).inc();
    }

    fn wrote(&self, route: &ByRoute, outcome: &Outcome, names: &[String]) {
        self.prompt.get_or_create(route).inc_by(u64::from(outcome.prompt_tokens));
        for (model, share) in &outcome.shares {
            let model = names[model.index()].clone();
            let labels = Written { route: route.route.clone(), model };
            self.generated.get_or_create(&labels).inc_by(u64::from(share.committed));
            self.handoffs.get_or_create(route).inc_by(u64::from(share.handoffs));
        }
    }
}

/// Watches one request. A choice that has not ended when this is dropped was aborted by its client.
pub(crate) struct Meter {
    metrics: Arc<Metrics>,
    label: ByRoute,
    arrived: Instant,
    choices: Vec<Pace>,
    first: Histogram,
    between: Histogram,
}

/// When a choice had pieces, from the arrival of its request.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    first: Option<Duration>,
    last: Duration,
    done: bool,
}

impl Meter {
    /// Takes note of an event of choice `index`. `names` are those of all models.
    pub(crate) fn note(&mut self, index: usize, event: &Event, names: &[String]) {
        let now = self.arrived.elapsed();
        let pace = &mut self.choices[index];
        match event {
            Event::Progress(_) => {
                match pace.first {
                    None => self.first.observe(now.as_secs_f64()),
                    Some(_) => self.between.observe((now - pace.last).as_secs_f64()),
                }
                pace.first.get_or_insert(now);
                pace.last = now;
            }
            Event::Done(result) => {
                pace.done = true;
                let pace = *pace;
                self.done(now, pace, result, names);
            }
        }
    }

    fn done(&self, now: Duration, pace: Pace, result: &Result<Outcome, Failure>, names: &[String]) {
        let Ok(outcome) = result else { return self.metrics.ended(&self.label, "error") };
        self.metrics.ended(&self.label, finish_reason(&outcome.finish));
        self.metrics.wrote(&self.label, outcome, names);
        self.metrics.whole.get_or_create(&self.label).observe(now.as_secs_f64());
        if let (Some(first), Some(tokens)) =
            (pace.first, outcome.completion_tokens.checked_sub(1).filter(|tokens| *tokens > 0))
        {
            let each = (pace.last - first).as_secs_f64() / f64::from(tokens);
            self.metrics.per_token.get_or_create(&self.label).observe(each);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        for _ in self.choices.iter().filter(|pace| !pace.done) {
            self.metrics.ended(&self.label, "abort");
        }
    }
}

/// `GET /metrics`
pub(crate) async fn show(State(app): State<App>) -> Response {
    let mut text = String::new();
    let snapshot = snapshot::take(&app).await;
    let written = encode_registry(&mut text, &app.metrics().registry)
        .and_then(|()| encode_registry(&mut text, &snapshot))
        .and_then(|()| encode_eof(&mut text));
    if let Err(error) = written {
        tracing::error!(%error, "the metrics cannot be written");
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
