//! Several real processes, linked by QUIC on loopback: the text is that of one process, whatever becomes of them.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of the functions that the lint spares"
)]

mod kit;
mod relay;

use futures::{StreamExt, stream};
use kit::{Cluster, Process};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::OnceCell;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

const REPLIES: usize = 100;
const AT_ONCE: usize = 8;

const TWO: &[(&str, &str)] =
    &[("a", "http: '127.0.0.1:0', models: [small]"), ("b", "models: [large]")];

/// What a single process writes.
async fn expected() -> &'static [String] {
    static EXPECTED: OnceCell<Vec<String>> = OnceCell::const_new();
    EXPECTED
        .get_or_init(async || {
            let cluster = Cluster::new("wait", &[]);
            let texts = replies(&cluster.alone(), REPLIES, |_| {}).await;
            texts.into_iter().map(|(text, _)| text).collect()
        })
        .await
}

/// The first `count` replies of a process, a few at a time. `heard` is told how many pieces came so far.
async fn replies(process: &Process, count: usize, heard: impl Fn(usize)) -> Vec<(String, Value)> {
    let pieces = AtomicUsize::new(0);
    let count_piece = || heard(pieces.fetch_add(1, Ordering::Relaxed));
    let all = stream::iter(0..count).map(|number| process.reply(number, count_piece));
    all.buffered(AT_ONCE).collect().await
}

/// Tells somebody that it is time, once.
fn at(when: usize, pieces: usize, told: &UnboundedSender<()>) {
    if pieces == when {
        told.send(()).unwrap();
    }
}

fn texts(replies: Vec<(String, Value)>) -> Vec<String> {
    replies.into_iter().map(|(text, _)| text).collect()
}

#[tokio::test]
async fn two_processes_write_what_one_would() {
    let cluster = Cluster::new("wait", TWO);
    let (a, _b) = (cluster.start("a"), cluster.start("b"));
    a.ready().await;
    let replies = replies(&a, REPLIES, |_| {}).await;
    assert!(replies.iter().all(|(_, routing)| routing["without"].is_null()));
    let both = |routing: &Value| routing["models"]["large"]["committed"].as_u64() > Some(0);
    assert!(replies.iter().filter(|(_, routing)| both(routing)).count() > REPLIES / 2);
    assert_eq!(texts(replies), expected().await);
    let metrics = a.get("/metrics").await.1;
    let of = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    assert!(of("tokenrouter_link_frames_sent_total{node=\"b\"}") > 100.0, "{metrics}");
    assert_eq!(of("tokenrouter_link_connections_total{node=\"b\"}"), 1.0);
    assert_eq!(of("tokenrouter_link_refused_total{node=\"b\"}"), 0.0);
}

#[tokio::test]
async fn a_network_that_loses_delays_and_reorders_packets_costs_no_token() {
    let bind = kit::free();
    let nodes = [TWO[0], ("b", &format!("bind: '{bind}', models: [large]"))];
    let cluster = Cluster::new("wait", &nodes);
    let toll = relay::relay(cluster.address("b"), bind).await;
    let (a, _b) = (cluster.start("a"), cluster.start("b"));
    a.ready().await;
    assert_eq!(texts(replies(&a, REPLIES, |_| {}).await), expected().await);
    let [passed, lost] = [&toll.passed, &toll.lost].map(|count| count.load(Ordering::Relaxed));
    assert!(passed > 1000 && lost > passed / 200, "{lost} of {passed} were lost");
}

#[tokio::test]
async fn three_processes_of_which_one_has_no_model_write_the_same() {
    let nodes = [
        ("a", "models: [large]"),
        ("b", "http: '127.0.0.1:0', models: [small]"),
        ("front", "http: '127.0.0.1:0'"),
    ];
    let cluster = Cluster::new("wait", &nodes);
    let (_a, b, front) = (cluster.start("a"), cluster.start("b"), cluster.start("front"));
    front.ready().await;
    b.ready().await;
    let half = REPLIES / 2;
    let (at_front, at_b) = tokio::join!(replies(&front, half, |_| {}), replies(&b, half, |_| {}),);
    assert_eq!(texts(at_front), expected().await[..half]);
    assert_eq!(texts(at_b), expected().await[..half]);
}

#[tokio::test]
async fn a_node_that_is_killed_under_load_and_comes_back_costs_no_token() {
    let cluster = Cluster::new("wait", TWO);
    let (a, mut b) = (cluster.start("a"), cluster.start("b"));
    a.ready().await;
    let (kill, mut killed) = unbounded_channel();
    let heard = |pieces| at(300, pieces, &kill);
    let again = async {
        killed.recv().await;
        b.signal("KILL");
        a.linked(0).await;
        cluster.start("b")
    };
    let (replies, _b) = tokio::join!(replies(&a, REPLIES, heard), again);
    assert_eq!(texts(replies), expected().await);
}

#[tokio::test]
async fn a_node_that_stands_still_for_a_moment_or_for_long_costs_no_token() {
    for long in [false, true] {
        let cluster = Cluster::new("wait", TWO);
        let (a, mut b) = (cluster.start("a"), cluster.start("b"));
        a.ready().await;
        let (stop, mut stopped) = unbounded_channel();
        let heard = |pieces| at(300, pieces, &stop);
        let again = async {
            stopped.recv().await;
            b.signal("STOP");
            if long {
                a.linked(0).await;
            }
            b.signal("CONT");
        };
        let (replies, ()) = tokio::join!(replies(&a, REPLIES, heard), again);
        assert_eq!(texts(replies), expected().await, "long: {long}");
    }
}

#[tokio::test]
async fn without_its_node_a_reply_is_finished_by_others_and_says_so() {
    let cluster = Cluster::new("fallback", TWO);
    let (a, mut b) = (cluster.start("a"), cluster.start("b"));
    a.ready().await;
    let (kill, mut killed) = unbounded_channel();
    let heard = |pieces| at(300, pieces, &kill);
    let gone = async {
        killed.recv().await;
        b.signal("KILL");
    };
    let (replies, ()) = tokio::join!(replies(&a, REPLIES, heard), gone);
    let (without, with): (Vec<_>, Vec<_>) =
        replies.iter().partition(|(_, routing)| routing["without"] == json!(["large"]));
    assert!(without.len() > REPLIES / 2, "{} of {REPLIES} without", without.len());
    assert!(with.iter().all(|(_, routing)| routing["without"].is_null()));
    for ((text, routing), expected) in replies.iter().zip(expected().await) {
        assert!(!routing["without"].is_null() || text == expected);
    }
}

#[tokio::test]
async fn without_its_node_a_route_that_fails_says_so_and_closes() {
    let cluster = Cluster::new("fail", TWO);
    let (a, mut b) = (cluster.start("a"), cluster.start("b"));
    a.ready().await;
    b.signal("STOP");
    let events = a.stream(0, || {}).await;
    let [.., error, done] = events.as_slice() else { panic!("{events:?}") };
    let error: Value = serde_json::from_str(error).unwrap();
    assert_eq!(error["error"]["code"], "model_out_of_reach", "{events:?}");
    assert_eq!(done, "[DONE]");
    let body = json!({"model": "mixed", "prompt": "1", "max_tokens": 40, "ignore_eos": true});
    let url = format!("{}/v1/completions", a.url.as_ref().unwrap());
    let response = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
    assert_eq!(response.status(), 503);
}

#[tokio::test]
async fn nodes_of_different_topologies_refuse_each_other_and_say_so_once() {
    let cluster = Cluster::new("wait", TWO);
    let b = cluster.start("b");
    // The same file, but for one number.
    let a = cluster.other("a", ("0.3", "0.4"));
    kit::until(async || ["a", "b"].iter().all(|name| cluster.log(name).contains("digest"))).await;
    a.ready().await;
    assert!(a.get("/metrics").await.1.contains("tokenrouter_link_up{node=\"b\"} 0"));
    for name in ["a", "b"] {
        let log = cluster.log(name);
        let told = log.lines().filter(|line| line.contains("has digest")).count();
        assert_eq!(told, 1, "{name}: {log}");
        assert!(log.contains("give both the same file"), "{log}");
    }
    drop(b);
}

#[test]
fn a_node_is_told_what_is_wrong_with_its_files() {
    let cluster = Cluster::new("wait", TWO);
    let told = |arguments: &[&str]| cluster.refused(arguments);
    let several = told(&["serve", "cluster.yaml"]);
    assert!(several.contains("say which one this is with --node"), "{several}");
    let nobody = told(&["serve", "cluster.yaml", "--node", "c"]);
    assert!(nobody.contains("there is no node `c`; there are a, b"), "{nobody}");
    cluster.open_key("b");
    let open = told(&["serve", "cluster.yaml", "--node", "b"]);
    assert!(open.contains("can be read by others") && open.contains("chmod 600"), "{open}");
    cluster.remove("a.pem");
    let missing = told(&["serve", "cluster.yaml", "--node", "a"]);
    assert!(missing.contains("cluster.certs") && missing.contains("certs init"), "{missing}");
}
