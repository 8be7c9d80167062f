//! Replies of undisturbed nodes, their limits and their end.

use crate::kit::*;
use std::time::Duration;
use tokenrouter_actors::{Limits, ModelView, Node, NodeSpec};
use tokenrouter_protocol::{Failure, Finish};

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
    let taken = |v: &ModelView| {
        let counters = v.decode.unwrap().counters;
        counters.evictions + counters.preemptions
    };
    assert!(views.iter().all(|v| taken(v) > 0), "the pools were never full: {views:?}");
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
