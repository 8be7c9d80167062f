//! Whole nodes over scripted engines: real actors, no tensors, steps of no or little time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokenrouter_actors::{
    Budget, Event, Gateway, Limits, ModelSpec, Node, NodeSpec, RouteSpec, Session, Target,
};
use tokenrouter_engine::{Engine, Script};
use tokenrouter_policies::route::baseline::{Always, Random};
use tokenrouter_policies::{Draws, ModelIx, Policy, Token};
use tokenrouter_protocol::{
    BatchLimits, Failure, Finish, Outcome, Piece, Request, RouteIx, Sampling, Vocabulary,
};

const LEFT: ModelIx = ModelIx(0);
const RIGHT: ModelIx = ModelIx(1);
/// Routes of [`spec`], by index.
const LEFT_ALONE: RouteIx = RouteIx(0);
const MIXED: RouteIx = RouteIx(1);

/// A token that depends on the whole history, so that a wrong cache shows in the text.
fn next_token(history: &[Token]) -> Token {
    let hash = history.iter().fold(7u32, |h, &t| (h ^ t).wrapping_mul(0x0100_0193).rotate_left(5));
    hash % 500 + 3
}

fn vocabulary() -> Arc<Vocabulary> {
    let piece = |t: u32| Piece { bytes: format!("{t} ").into_bytes(), visible: true };
    Arc::new(Vocabulary::new((0..512).map(piece), vec![2]))
}

fn spec(scripts: [Script; 2]) -> NodeSpec {
    let names = ["left", "right"];
    let models = names.into_iter().zip(scripts).map(|(name, script)| ModelSpec {
        name: name.to_owned(),
        engine: Engine::scripted(script),
        vocabulary: vocabulary(),
        batch: BatchLimits::default(),
    });
    let route = |name: &str, policy: Arc<dyn Policy>| RouteSpec {
        name: name.to_owned(),
        entry: LEFT,
        policy,
    };
    NodeSpec {
        models: models.collect(),
        routes: vec![
            route("left", Arc::new(Always { model: LEFT })),
            route("mixed", Arc::new(Random { entry: LEFT, to: RIGHT, probability: 0.5 })),
        ],
        limits: Limits::default(),
        through_wire: false,
    }
}

fn plain() -> Script {
    Script::new(next_token)
}

fn request(route: RouteIx, prompt: &[Token], max_tokens: u32) -> Request {
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

async fn read(mut session: Session) -> (Vec<Token>, String, Result<Outcome, Failure>) {
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
fn expected(prompt: &[Token], count: usize) -> Vec<Token> {
    let mut history = prompt.to_vec();
    for _ in 0..count {
        history.push(next_token(&history));
    }
    history.split_off(prompt.len())
}

/// Waits until no loop holds anything of any request.
async fn assert_empty(gateway: &Gateway) {
    for _ in 0..10_000 {
        let views = gateway.observe().await;
        let empty = views.iter().all(|view| {
            let client = view.client.is_some_and(|c| c.live == 0 && c.closing == 0);
            client && view.decode.is_some_and(|d| d.held == 0 && d.blocks_used == 0)
        });
        if empty {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("something is still held: {:?}", gateway.observe().await);
}

#[tokio::test]
async fn two_models_write_one_reply() {
    for through_wire in [false, true] {
        let node =
            Node::start(NodeSpec { through_wire, ..spec([plain(), plain()]) }).await.unwrap();
        let gateway = node.gateway();
        let sessions = (1..=20).map(|n| gateway.open(request(MIXED, &[n, 9, n + 2], 60)));
        let sessions = futures::future::join_all(sessions).await;
        for (n, session) in (1..).zip(sessions) {
            let (tokens, text, outcome) = read(session.unwrap()).await;
            let expected = expected(&[n, 9, n + 2], 60);
            assert_eq!(tokens, expected);
            assert_eq!(text, expected.iter().map(|t| format!("{t} ")).collect::<String>());
            let outcome = outcome.unwrap();
            assert_eq!((outcome.finish, outcome.completion_tokens), (Finish::Length, 60));
            assert_eq!(outcome.shares.iter().map(|(_, s)| s.committed).sum::<u32>(), 60);
            for (_, share) in &outcome.shares {
                assert!((10..50).contains(&share.committed), "{share:?}");
                assert!(share.computed <= 62, "a position was computed twice: {share:?}");
            }
        }
        assert_empty(&gateway).await;
        node.stop().await;
    }
}

#[tokio::test]
async fn a_dropped_session_frees_everything_everywhere() {
    let slow = || plain().with_step_time(|_| Duration::from_millis(1));
    let node = Node::start(spec([slow(), slow()])).await.unwrap();
    let gateway = node.gateway();
    let mut session = gateway.open(request(MIXED, &[5, 6], 2000)).await.unwrap();
    for _ in 0..40 {
        session.next().await.unwrap();
    }
    let held: Vec<_> = gateway.observe().await.iter().map(|v| v.decode.unwrap().held).collect();
    assert_eq!(held, [1, 1]);
    drop(session);
    assert_eq!(gateway.live(), 0);
    assert_empty(&gateway).await;
    node.stop().await;
}

#[tokio::test]
async fn a_panicking_step_costs_no_token() {
    let steps = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&steps);
    let stumbling = plain().with_output(move |history, row, _| {
        assert!(counted.fetch_add(1, Ordering::Relaxed) % 37 != 30, "a planted panic");
        let signals = tokenrouter_policies::Signals::default();
        assert!(row.outputs > 0);
        tokenrouter_protocol::Sampled { token: next_token(history), signals }
    });
    let node = Node::start(spec([plain(), stumbling])).await.unwrap();
    let gateway = node.gateway();
    let sessions = (1..=8).map(|n| gateway.open(request(MIXED, &[n, 4], 100)));
    let sessions = futures::future::join_all(sessions).await;
    for (n, session) in (1..).zip(sessions) {
        let (tokens, _, outcome) = read(session.unwrap()).await;
        outcome.unwrap();
        assert_eq!(tokens, expected(&[n, 4], 100));
    }
    assert!(steps.load(Ordering::Relaxed) > 3 * 37, "several deaths");
    assert_empty(&gateway).await;
    node.stop().await;
}

#[tokio::test]
async fn a_model_that_cannot_live_fails_its_requests_and_the_node_says_why() {
    let broken = plain().with_output(|_, _, _| panic!("bad weights"));
    let limits = Limits {
        restarts: Budget { restarts: 3, within: Duration::from_secs(60) },
        ..Limits::default()
    };
    let node = Node::start(NodeSpec { limits, ..spec([plain(), broken]) }).await.unwrap();
    let gateway = node.gateway();
    let alone = gateway.open(request(LEFT_ALONE, &[3], 10)).await.unwrap();
    assert!(read(alone).await.2.is_ok());
    let mixed = gateway.open(request(MIXED, &[3], 50)).await.unwrap();
    let Err(Failure::ModelLost { model, reason }) = read(mixed).await.2 else {
        panic!("the request outlived its model")
    };
    assert_eq!(model, RIGHT);
    assert!(reason.contains("bad weights"), "{reason}");
    let reason = node.failed().await;
    assert!(reason.contains("`right`") && reason.contains("bad weights"), "{reason}");
    node.stop().await;
}

#[tokio::test]
async fn the_limit_of_requests_holds_and_a_closed_gateway_takes_none() {
    let limits = Limits { requests: 2, ..Limits::default() };
    let slow = || plain().with_step_time(|_| Duration::from_millis(1));
    let node = Node::start(NodeSpec { limits, ..spec([slow(), slow()]) }).await.unwrap();
    let gateway = node.gateway();
    let first = gateway.open(request(MIXED, &[1], 20)).await.unwrap();
    let _second = gateway.open(request(MIXED, &[2], 20)).await.unwrap();
    let third = gateway.open(request(MIXED, &[3], 20)).await;
    assert_eq!(third.unwrap_err(), Failure::Busy { limit: 2 });
    assert!(read(first).await.2.is_ok());
    let third = gateway.open(request(MIXED, &[3], 20)).await.unwrap();
    gateway.close();
    assert!(!gateway.ready());
    assert_eq!(gateway.open(request(MIXED, &[4], 20)).await.unwrap_err(), Failure::Draining);
    assert!(read(third).await.2.is_ok(), "what was admitted goes on");
    node.stop().await;
}

#[tokio::test]
async fn full_pools_delay_but_never_alter() {
    // Room for one and a half of the longest requests at each model.
    let small = || plain().with_blocks(6).with_step_time(|_| Duration::from_micros(100));
    let block = small().facts.pool.block;
    let node = Node::start(spec([small(), small()])).await.unwrap();
    let gateway = node.gateway();
    let length = block * 4 - 3;
    let sessions = (1..=8).map(|n| gateway.open(request(MIXED, &[n, 8, 8], length - 3)));
    let sessions = futures::future::join_all(sessions).await;
    for (n, session) in (1..).zip(sessions) {
        let (tokens, _, outcome) = read(session.unwrap()).await;
        outcome.unwrap();
        assert_eq!(tokens, expected(&[n, 8, 8], length as usize - 3));
    }
    let views = gateway.observe().await;
    let taken = |v: &tokenrouter_actors::ModelView| {
        let counters = v.decode.unwrap().counters;
        counters.evictions + counters.preemptions
    };
    assert!(views.iter().all(|v| taken(v) > 0), "the pools were never full: {views:?}");
    assert_empty(&gateway).await;
    node.stop().await;
}

/// Kills actors of the node until every session is read, each kind in turn, at most 600; how many.
async fn kill_until_done(node: &Node, done: &std::sync::atomic::AtomicBool) -> usize {
    let targets = [LEFT, RIGHT].into_iter().flat_map(|model| {
        [
            Target::Decode(model),
            Target::Peer(model),
            Target::Client(model),
            Target::Subserver(model),
        ]
    });
    let mut kills = 0;
    for target in targets.cycle().take(600) {
        if done.load(Ordering::Relaxed) {
            break;
        }
        node.kill(target);
        kills += 1;
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    kills
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_death_of_any_actor_costs_a_token() {
    let paced = || plain().with_step_time(|_| Duration::from_micros(200));
    let limits = Limits {
        grace: Duration::from_millis(200),
        stall_timeout: Duration::from_millis(500),
        ..Limits::default()
    };
    let node = Node::start(NodeSpec { limits, ..spec([paced(), paced()]) }).await.unwrap();
    let gateway = node.gateway();
    let done = std::sync::atomic::AtomicBool::new(false);
    let requests = async {
        for round in 0..4 {
            let prompts: Vec<_> = (1..=16).map(|n| [round * 16 + n, 7, n]).collect();
            let read_all = prompts.iter().map(|prompt| async {
                read(gateway.open(request(MIXED, prompt, 150)).await.unwrap()).await
            });
            for (prompt, reply) in prompts.iter().zip(futures::future::join_all(read_all).await) {
                let (tokens, text, outcome) = reply;
                let expected = expected(prompt, 150);
                assert_eq!(tokens, expected);
                assert_eq!(text, expected.iter().map(|t| format!("{t} ")).collect::<String>());
                let outcome = outcome.unwrap();
                assert_eq!((outcome.finish, outcome.completion_tokens), (Finish::Length, 150));
                let committed: u32 = outcome.shares.iter().map(|(_, s)| s.committed).sum();
                assert_eq!(committed, 150, "every token has one writer");
            }
        }
        done.store(true, Ordering::Relaxed);
    };
    let (kills, ()) = tokio::join!(kill_until_done(&node, &done), requests);
    assert!(kills >= 100, "only {kills} kills");
    assert_empty(&gateway).await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_stops_tells_those_it_cuts_off() {
    let slow = || plain().with_step_time(|_| Duration::from_millis(1));
    let node = Node::start(spec([slow(), slow()])).await.unwrap();
    let gateway = node.gateway();
    let mut session = gateway.open(request(MIXED, &[5, 6], 2000)).await.unwrap();
    session.next().await.unwrap();
    node.stop().await;
    let end = tokio::time::timeout(Duration::from_secs(30), read(session)).await;
    assert_eq!(end.expect("a session hangs").2, Err(Failure::Draining));
}
