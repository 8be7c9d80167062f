//! What the tests of whole nodes share: two models that continue a text by a hash of all of it, and ways to read.

use std::sync::Arc;
use std::time::Duration;
use tokenrouter_actors::{
    Event, Faults, Gateway, Limits, ModelSpec, NodeSpec, RouteSpec, Scheduler, Session,
};
use tokenrouter_engine::{Engine, Script};
use tokenrouter_policies::route::baseline::{Always, Random};
use tokenrouter_policies::{Draws, ModelIx, Policy, Token};
use tokenrouter_protocol::{
    BatchLimits, Failure, OnLoss, Outcome, Piece, Request, RouteIx, Sampling, Vocabulary,
};

pub(crate) const LEFT: ModelIx = ModelIx(0);
pub(crate) const RIGHT: ModelIx = ModelIx(1);
/// Routes of [`spec`], by index.
pub(crate) const LEFT_ALONE: RouteIx = RouteIx(0);
pub(crate) const MIXED: RouteIx = RouteIx(1);

/// A token that depends on the whole history, so that a wrong cache shows in the text.
pub(crate) fn next_token(history: &[Token]) -> Token {
    let hash = history.iter().fold(7u32, |h, &t| (h ^ t).wrapping_mul(0x0100_0193).rotate_left(5));
    hash % 500 + 3
}

pub(crate) fn vocabulary() -> Arc<Vocabulary> {
    let piece = |t: u32| Piece { bytes: format!("{t} ").into_bytes(), visible: true };
    Arc::new(Vocabulary::new((0..512).map(piece), vec![2]))
}

pub(crate) fn spec(scripts: [Script; 2]) -> NodeSpec {
    let names = ["left", "right"];
    let models = names.into_iter().zip(scripts).map(|(name, script)| ModelSpec {
        name: name.to_owned(),
        engine: Some(Engine::scripted(script)),
        vocabulary: vocabulary(),
        batch: BatchLimits::default(),
    });
    let route = |name: &str, policy: Arc<dyn Policy>| RouteSpec {
        name: name.to_owned(),
        entry: LEFT,
        policy,
        on_loss: OnLoss::default(),
    };
    NodeSpec {
        models: models.collect(),
        routes: vec![
            route("left", Arc::new(Always { model: LEFT })),
            route("mixed", Arc::new(Random { entry: LEFT, to: RIGHT, probability: 0.5 })),
        ],
        scheduler: Scheduler::default(),
        tunings: Vec::new(),
        limits: Limits::default(),
        cluster: None,
        through_wire: false,
        faults: Faults::default(),
    }
}

pub(crate) fn plain() -> Script {
    Script::new(next_token)
}

pub(crate) fn request(route: RouteIx, prompt: &[Token], max_tokens: u32) -> Request {
    Request {
        route,
        prompt: prompt.to_vec(),
        max_tokens,
        sampling: Sampling::GREEDY,
        draws: Draws::new(u64::from(prompt[0]), 0),
        stop: Vec::new(),
        ignore_eos: false,
    }
}

pub(crate) async fn read(mut session: Session) -> (Vec<Token>, String, Result<Outcome, Failure>) {
    let (mut tokens, mut text) = (Vec::new(), String::new());
    while let Some(event) = session.next().await {
        match event {
            Event::Progress(progress) => {
                tokens.extend(&progress.tokens);
                text.push_str(&progress.text);
            }
            Event::Done(result) => return (tokens, text, result),
        }
    }
    panic!("the session ended without an outcome");
}

/// The tokens that follow `prompt`, without any server.
pub(crate) fn expected(prompt: &[Token], count: usize) -> Vec<Token> {
    let mut history = prompt.to_vec();
    for _ in 0..count {
        history.push(next_token(&history));
    }
    history.split_off(prompt.len())
}

/// Waits until no loop holds anything of any request.
pub(crate) async fn assert_empty(gateway: &Gateway) {
    for _ in 0..10_000 {
        let views = gateway.observe().await;
        let empty = views.iter().all(|view| {
            let client = view.client.is_some_and(|c| c.live == 0 && c.closing == 0);
            let idle = view.decode.is_some_and(|d| d.held == 0 && d.blocks_used == 0);
            client && (view.pool.is_none() || idle)
        });
        if empty {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("something is still held: {:?}", gateway.observe().await);
}
