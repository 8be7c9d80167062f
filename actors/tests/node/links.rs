//! Two nodes with a link between them, real QUIC on loopback: the left model lives on one, the right model on the other.
//! Whatever dies or goes away between them, replies are those of a single process.

use crate::kit::*;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use tokenrouter_actors::{
    Admin, Cluster, Event, Faults, Gateway, Limits, Node, NodeAddress, NodeSpec, Point, Target,
};
use tokenrouter_policies::Token;
use tokenrouter_protocol::{Failure, Finish, OnLoss, Reach};
use tokenrouter_transport::{Endpoint, Identity, Timing, certs};

const TIMING: Timing =
    Timing { idle_timeout: Duration::from_secs(2), keep_alive: Duration::from_millis(200) };
const LENGTH: u32 = 40;

/// Certificates and addresses of two nodes.
struct Pair {
    folder: TempDir,
    nodes: Vec<NodeAddress>,
    on_loss: OnLoss,
    grace: Duration,
}

impl Pair {
    /// The pair, and the sockets that hold its addresses.
    fn new(on_loss: OnLoss) -> (Self, [Endpoint; 2]) {
        let folder = TempDir::new().unwrap();
        certs::init(folder.path(), &["a".to_owned(), "b".to_owned()]).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoints = ["a", "b"].map(|name| bind(&folder, name, any));
        let node = |(name, endpoint): (&str, &Endpoint)| NodeAddress {
            name: name.to_owned(),
            address: endpoint.local_addr().unwrap(),
        };
        let nodes = ["a", "b"].into_iter().zip(&endpoints).map(node).collect();
        (Self { folder, nodes, on_loss, grace: Duration::from_millis(400) }, endpoints)
    }

    /// Node `here` of the two.
    fn spec(&self, here: u8, endpoint: Endpoint, faults: Faults) -> NodeSpec {
        let paced = || plain().with_step_time(|_| Duration::from_micros(100));
        let mut spec = spec([paced(), paced()]);
        spec.models[1 - usize::from(here)].engine = None;
        for route in &mut spec.routes {
            route.on_loss = self.on_loss;
        }
        let nodes = self.nodes.clone();
        spec.cluster = Some(Cluster { here, endpoint, nodes, places: vec![0, 1], topology: 7 });
        spec.faults = faults;
        spec.limits = Limits {
            grace: self.grace,
            stall_timeout: Duration::from_millis(800),
            ..Limits::default()
        };
        spec
    }

    async fn start(&self, here: u8, endpoint: Endpoint) -> Node {
        Node::start(self.spec(here, endpoint, Faults::default())).await.unwrap()
    }

    /// The socket of node `b`, once more.
    fn again(&self) -> Endpoint {
        bind(&self.folder, "b", self.nodes[1].address)
    }
}

fn bind(folder: &TempDir, name: &str, address: SocketAddr) -> Endpoint {
    let identity = Identity::read(folder.path(), name).unwrap();
    Endpoint::bind(&identity, address, TIMING).unwrap()
}

/// Both nodes, linked.
async fn linked(on_loss: OnLoss) -> (Pair, Node, Node) {
    let (pair, [to_a, to_b]) = Pair::new(on_loss);
    let (a, b) = (pair.start(0, to_a).await, pair.start(1, to_b).await);
    for node in [&a, &b] {
        until(&node.gateway(), Reach::Here).await;
    }
    (pair, a, b)
}

/// Waits until the other node can be reached like this.
async fn until(gateway: &Gateway, reach: Reach) {
    for _ in 0..10_000 {
        if gateway.links().await.iter().any(|link| link.reach == reach) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("the link never was {reach:?}: {:?}", gateway.links().await);
}

fn prompts() -> Vec<[Token; 3]> {
    (1..=6).map(|n| [n, 9, n + 2]).collect()
}

/// Runs all prompts side by side, and checks that each reply is what a single process would write.
async fn replies(gateway: &Gateway) {
    let all = prompts().into_iter().map(|prompt| async move {
        let session = gateway.open(request(MIXED, &prompt, LENGTH)).await.unwrap();
        let (tokens, _, result) = read(session).await;
        assert_eq!(tokens, expected(&prompt, LENGTH as usize));
        let outcome = result.unwrap();
        assert_eq!(outcome.finish, Finish::Length);
        assert!(outcome.without.is_empty());
        assert!(outcome.shares.iter().all(|(_, share)| share.committed > 0), "both models wrote");
    });
    futures::future::join_all(all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_node_takes_requests_and_writes_what_one_process_would() {
    let (_pair, a, b) = linked(OnLoss::Wait).await;
    let (at_a, at_b) = (a.gateway(), b.gateway());
    assert!(at_a.ready() && at_b.ready());
    tokio::join!(replies(&at_a), replies(&at_b));
    for gateway in [&at_a, &at_b] {
        assert_empty(gateway).await;
        let link = gateway.links().await.remove(0);
        assert_eq!((link.counts.connections, link.counts.refused), (1, 0));
        assert!(link.counts.frames_sent > 40 && link.stats.sent > link.counts.payload_sent);
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_prompt_takes_the_bulk_stream_and_a_stranger_gets_nothing() {
    let (_pair, a, b) = linked(OnLoss::Wait).await;
    let prompt: Vec<Token> = (0..3000).map(|n| n % 400 + 3).collect();
    let session = a.gateway().open(request(MIXED, &prompt, LENGTH)).await.unwrap();
    assert_eq!(read(session).await.0, expected(&prompt, LENGTH as usize));
    // A cluster of its own, with other certificates, calls and is called.
    let (mut other, [to_a, to_b]) = Pair::new(OnLoss::Fail);
    drop(to_b);
    other.nodes[1] = NodeAddress { name: "b".into(), address: _pair.nodes[1].address };
    let stranger = other.start(0, to_a).await;
    until(&stranger.gateway(), Reach::Gone).await;
    assert!(stranger.gateway().ready(), "it serves what it can");
    let session = stranger.gateway().open(request(MIXED, &[1], LENGTH)).await.unwrap();
    assert_eq!(read(session).await.2, Err(Failure::OutOfReach { model: RIGHT }));
    let link = b.gateway().links().await.remove(0);
    assert_eq!((link.reach, link.counts.connections), (Reach::Here, 1));
    for node in [a, b, stranger] {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_finds_its_requests_waiting() {
    let (pair, a, b) = linked(OnLoss::Wait).await;
    let gateway = a.gateway();
    let mut sessions = Vec::new();
    for prompt in prompts() {
        let mut session = gateway.open(request(MIXED, &prompt, LENGTH)).await.unwrap();
        let Some(Event::Progress(first)) = session.next().await else { panic!("no token") };
        sessions.push((prompt, first.tokens.to_vec(), session));
    }
    b.stop().await;
    until(&gateway, Reach::Gone).await;
    let b = pair.start(1, pair.again()).await;
    for (prompt, mut tokens, session) in sessions {
        let (rest, _, result) = read(session).await;
        tokens.extend(rest);
        assert_eq!(tokens, expected(&prompt, LENGTH as usize));
        assert!(result.unwrap().without.is_empty());
    }
    for gateway in [&gateway, &b.gateway()] {
        assert_empty(gateway).await;
    }
    a.stop().await;
    b.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_node_others_finish_or_the_request_fails_as_the_route_says() {
    for on_loss in [OnLoss::Fallback, OnLoss::Fail] {
        let (_pair, a, b) = linked(on_loss).await;
        let gateway = a.gateway();
        b.stop().await;
        for prompt in prompts() {
            let session = gateway.open(request(MIXED, &prompt, LENGTH)).await.unwrap();
            let (tokens, _, result) = read(session).await;
            let whole = expected(&prompt, LENGTH as usize);
            if on_loss == OnLoss::Fail {
                assert_eq!(result, Err(Failure::OutOfReach { model: RIGHT }));
                assert!(whole.starts_with(&tokens));
            } else {
                assert_eq!(tokens, whole);
                assert_eq!(result.unwrap().without.as_slice(), [RIGHT]);
            }
        }
        assert_empty(&gateway).await;
        a.stop().await;
    }
}

/// What the points of both nodes remember.
#[derive(Debug, Default)]
struct Watch {
    passed: Mutex<BTreeMap<(u8, Point), usize>>,
    admins: [OnceLock<Admin>; 2],
}

/// Who dies where: at the `after`-th passing of a point of a node.
#[derive(Clone, Copy, Debug)]
struct Death {
    node: u8,
    point: Point,
    after: usize,
    /// In place of whoever is there.
    other: Option<Target>,
}

fn plan(watch: &Arc<Watch>, node: u8, death: Option<Death>) -> Faults {
    let watch = Arc::clone(watch);
    Faults::new(move |point| {
        let count = {
            let mut passed = watch.passed.lock().unwrap();
            let count = passed.entry((node, point)).or_default();
            *count += 1;
            *count
        };
        let Some(death) = death.filter(|d| (d.node, d.point, d.after) == (node, point, count))
        else {
            return false;
        };
        let Some(other) = death.other else { return true };
        if let Some(admin) = watch.admins[usize::from(node)].get() {
            admin.kill(other);
        }
        false
    })
}

/// Runs all prompts on node `a` with a death; the points that were passed.
async fn play(death: Option<Death>) -> BTreeMap<(u8, Point), usize> {
    let watch = Arc::new(Watch::default());
    let (pair, [to_a, to_b]) = Pair::new(OnLoss::Wait);
    let mut nodes = Vec::new();
    for (here, endpoint) in [(0, to_a), (1, to_b)] {
        let spec = pair.spec(here, endpoint, plan(&watch, here, death));
        let node = Node::start(spec).await.unwrap();
        watch.admins[usize::from(here)].set(node.gateway().admin()).unwrap();
        nodes.push(node);
    }
    let gateway = nodes[0].gateway();
    let run = async {
        replies(&gateway).await;
        for node in &nodes {
            assert_empty(&node.gateway()).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(60), run).await.is_err() {
        panic!("{death:?}: nothing moves");
    }
    for node in nodes {
        node.stop().await;
    }
    watch.passed.lock().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_dies_between_two_nodes_no_token_is_lost() {
    let passed = play(None).await;
    let mut deaths = Vec::new();
    for (&(node, point), &count) in &passed {
        let remote = matches!(point.actor, Target::Remote(_));
        let door = matches!(point.actor, Target::Peer(_));
        if !remote && !door {
            continue;
        }
        for after in [1, count / 2 + 1] {
            deaths.push(Death { node, point, after, other: None });
        }
        if remote {
            for other in [Target::Links, Target::Listener] {
                deaths.push(Death { node, point, after: count / 2 + 1, other: Some(other) });
            }
        }
    }
    let kinds = passed.keys().filter(|(_, p)| p.actor == Target::Remote(0)).map(|(_, p)| p.about);
    let kinds: std::collections::BTreeSet<_> = kinds.collect();
    for kind in ["grant", "handoff", "finish", "closed", "flush", "frame", "joined"] {
        assert!(kinds.contains(kind), "no {kind} among {kinds:?}");
    }
    assert!(deaths.len() > 60, "{} deaths", deaths.len());
    stream::iter(deaths).map(|death| play(Some(death))).buffer_unordered(8).count().await;
}
