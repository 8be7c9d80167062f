//! However passes are launched, the replies are the same, whoever dies.

use crate::kit::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokenrouter_actors::{Limits, Node, NodeSpec, Scheduler, Target};
use tokenrouter_policies::Thresholds;
use tokenrouter_protocol::Rhythm;

const SCHEDULERS: [Scheduler; 3] =
    [Scheduler::Asynchronous, Scheduler::Rounds(Rhythm::Model), Scheduler::Rounds(Rhythm::Step)];

/// A node whose right model waits for three, with steps of a millisecond.
fn delayed(scheduler: Scheduler) -> NodeSpec {
    let slow = || plain().with_step_time(|_| Duration::from_millis(1));
    let limits = Limits {
        grace: Duration::from_millis(200),
        stall_timeout: Duration::from_millis(500),
        ..Limits::default()
    };
    let mut spec = NodeSpec { scheduler, limits, ..spec([slow(), slow()]) };
    spec.models[RIGHT.index()].batch.thresholds = Thresholds::fixed(3);
    spec
}

/// Reads eight mixed replies of 60 tokens side by side and compares them.
async fn replies(node: &Node) {
    let gateway = node.gateway();
    let prompts: Vec<_> = (1..=8).map(|n| [n, 7, n + 3]).collect();
    let all = prompts.iter().map(|prompt| async {
        read(gateway.open(request(MIXED, prompt, 60)).await.unwrap()).await
    });
    for (prompt, (tokens, _, outcome)) in prompts.iter().zip(futures::future::join_all(all).await) {
        assert_eq!(tokens, expected(prompt, 60));
        assert_eq!(outcome.unwrap().completion_tokens, 60);
    }
}

#[tokio::test]
async fn every_scheduler_writes_the_same() {
    for scheduler in SCHEDULERS {
        let node = Node::start(delayed(scheduler)).await.unwrap();
        replies(&node).await;
        let gateway = node.gateway();
        assert_empty(&gateway).await;
        let views = gateway.observe().await;
        let steps: Vec<_> = views.iter().map(|view| view.decode.unwrap().counters).collect();
        // Three in four passes of a model that waits for three have three rows; the last requests are too few.
        let right = steps[RIGHT.index()];
        if scheduler == Scheduler::Asynchronous {
            assert!(right.rows as f64 / right.steps as f64 > 2.5, "{right:?}");
        }
        // In rounds of one step every request moves by one token a round.
        if scheduler == Scheduler::Rounds(Rhythm::Step) {
            let left = steps[LEFT.index()];
            assert!(left.steps <= 75, "not in step: {left:?}");
        }
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_death_stops_a_scheduler() {
    for scheduler in SCHEDULERS {
        let node = Node::start(delayed(scheduler)).await.unwrap();
        let done = AtomicBool::new(false);
        let killing = async {
            let targets = [
                Target::Decode(LEFT),
                Target::Pacer,
                Target::Peer(RIGHT),
                Target::Subserver(RIGHT),
            ];
            for target in targets.into_iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                node.kill(target);
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        };
        let reading = async {
            replies(&node).await;
            done.store(true, Ordering::Relaxed);
        };
        tokio::join!(killing, reading);
        assert_empty(&node.gateway()).await;
        node.stop().await;
    }
}
