//! Actors die of panics, of kills and for good.

use crate::kit::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokenrouter_actors::{Budget, Limits, Node, NodeSpec, Target};
use tokenrouter_protocol::{Failure, Finish};

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

/// Kills actors of the node until every session is read, each kind in turn, at most 600; how many.
async fn kill_until_done(node: &Node, done: &AtomicBool) -> usize {
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
    let done = AtomicBool::new(false);
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
