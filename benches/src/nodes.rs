//! Whole nodes of real actors over scripted engines.

use crate::vocabulary;
use std::sync::Arc;
use tokenrouter_actors::{
    Event, Faults, Gateway, Limits, ModelSpec, Node, NodeSpec, RouteSpec, Scheduler, StartError,
};
use tokenrouter_engine::Engine;
use tokenrouter_policies::{ModelIx, Policy, Thresholds};
use tokenrouter_protocol::{BatchLimits, OnLoss, Request};

/// Starts a node with these engines and one route, which enters at the first.
///
/// # Errors
/// When an actor does not start.
pub async fn start(engines: Vec<Engine>, policy: Arc<dyn Policy>) -> Result<Node, StartError> {
    let eager = vec![Thresholds::default(); engines.len()];
    start_with(engines, policy, &eager).await
}

/// As [`start`], with thresholds for each model, and no bound on waiting.
///
/// # Errors
/// As [`start`].
pub async fn start_with(
    engines: Vec<Engine>,
    policy: Arc<dyn Policy>,
    thresholds: &[Thresholds],
) -> Result<Node, StartError> {
    let engines = engines.into_iter().map(Some).collect();
    Node::start(spec(engines, policy, thresholds)).await
}

/// What a node with these engines is started with; a model without one lives elsewhere.
pub fn spec(
    engines: Vec<Option<Engine>>,
    policy: Arc<dyn Policy>,
    thresholds: &[Thresholds],
) -> NodeSpec {
    let model = |(index, (engine, thresholds)): (usize, (Option<Engine>, &Thresholds))| ModelSpec {
        name: format!("model-{index}"),
        engine,
        vocabulary: vocabulary(),
        batch: BatchLimits { thresholds: thresholds.clone(), ..BatchLimits::default() },
    };
    NodeSpec {
        models: engines.into_iter().zip(thresholds).enumerate().map(model).collect(),
        routes: vec![RouteSpec {
            name: "bench".to_owned(),
            entry: ModelIx(0),
            policy,
            on_loss: OnLoss::default(),
        }],
        scheduler: Scheduler::default(),
        tunings: Vec::new(),
        limits: Limits::default(),
        cluster: None,
        through_wire: false,
        faults: Faults::default(),
    }
}

/// Runs requests side by side to their ends; how many tokens were committed.
///
/// # Panics
/// When a request fails.
pub async fn run(gateway: &Gateway, requests: Vec<Request>) -> u64 {
    let runs = requests.into_iter().map(|request| async {
        let mut session = gateway.open(request).await.expect("a bench stays below the limit");
        let mut tokens = 0;
        while let Some(event) = session.next().await {
            match event {
                Event::Progress(progress) => tokens += progress.tokens.len() as u64,
                Event::Done(result) => {
                    result.expect("nothing fails in a bench");
                }
            }
        }
        tokens
    });
    futures::future::join_all(runs).await.into_iter().sum()
}
