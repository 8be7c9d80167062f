//! Thresholds that follow what the models do: the Tuner finds better ones, its death costs only what it had learned, and no
//! reply changes.

use crate::kit::*;
use std::time::Duration;
use tokenrouter_actors::{Gateway, Node, NodeSpec, Target, Tuning};
use tokenrouter_policies::planner::{Aim, Plan, StepTimes, System};
use tokenrouter_policies::tuner::TunerConfig;
use tokenrouter_policies::{Thresholds, Unusable};

/// A node whose right model takes eight times as long as the left one, whoever is in the pass; nothing of that is in the
/// plan it begins with.
fn tuned() -> NodeSpec {
    let slow = |time| plain().with_step_time(move |_| Duration::from_millis(time));
    let system = System {
        entry: 0,
        times: vec![StepTimes::fixed(0.01); 2],
        moves: vec![vec![0.5; 2]; 2],
        commits: vec![vec![1.0; 2]; 2],
        caps: vec![None; 2],
        tick: 1e-3,
    };
    let tuning = Tuning {
        models: vec![LEFT, RIGHT],
        tuned: vec![true; 2],
        live_max: 256,
        config: TunerConfig { moves_min: 50.0, ..TunerConfig::default() },
        plan: Plan::eager(system, Aim::default()),
    };
    NodeSpec { tunings: vec![tuning], ..spec([slow(1), slow(8)]) }
}

/// Eight mixed replies side by side.
async fn replies(gateway: &Gateway) {
    let prompts: Vec<_> = (1..=8).map(|n| [n, 7, n + 3]).collect();
    let all = prompts.iter().map(|prompt| async {
        read(gateway.open(request(MIXED, prompt, 40)).await.unwrap()).await
    });
    for (prompt, (tokens, _, outcome)) in prompts.iter().zip(futures::future::join_all(all).await) {
        assert_eq!(tokens, expected(prompt, 40));
        assert!(outcome.is_ok());
    }
}

/// The same again and again, until thresholds were changed so often.
async fn until_tuned(gateway: &Gateway, changes: u64) {
    for _ in 0..200 {
        replies(gateway).await;
        if gateway.tuned() >= changes {
            return;
        }
    }
    panic!("thresholds were changed {} times", gateway.tuned());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tuner_finds_thresholds_and_its_next_life_finds_them_again() {
    let node = Node::start(tuned()).await.unwrap();
    let gateway = node.gateway();
    until_tuned(&gateway, 1).await;
    let tree = gateway.admin().tree().await;
    assert!(tree.tuner.is_some() && tree.pacer.is_none());
    node.kill(Target::Tuner);
    until_tuned(&gateway, 2).await;
    let tree = gateway.admin().tree().await;
    assert_eq!(tree.tuner.unwrap().restarts, 1);
    assert_empty(&gateway).await;
    node.stop().await;
}

#[tokio::test]
async fn thresholds_set_from_outside_outlive_a_loop() {
    let node = Node::start(spec([plain(), plain()])).await.unwrap();
    let gateway = node.gateway();
    let deadlock = [Thresholds::fixed(2), Thresholds::fixed(2)];
    let refused = gateway.set_thresholds(&deadlock).unwrap_err();
    assert_eq!(refused, Unusable::Deadlock { live: 2, thresholds: vec![2, 2] });
    gateway.set_thresholds(&[Thresholds::fixed(1), Thresholds::fixed(3)]).unwrap();
    node.kill(Target::Decode(RIGHT));
    replies(&gateway).await;
    let right = gateway.observe().await[RIGHT.index()].decode.unwrap().counters;
    assert!(right.rows as f64 / right.steps as f64 > 2.0, "{right:?}");
    let seen = gateway.observed().await;
    assert!(seen.moves_from(LEFT.index()) > 0.0 && seen.moves[0][1].count > 0.0, "{seen:?}");
    node.stop().await;
}
