//! Links between endpoints on loopback: who is let in, what is carried, and what breaks one.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of the functions that the lint spares"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tokenrouter_transport::wire::FRAME_MAX;
use tokenrouter_transport::{
    Call, Endpoint, Heard, Hello, Identity, Link, LinkError, Mismatch, Stream, Timing, certs,
};
use tokio::sync::mpsc;

const TIMING: Timing =
    Timing { idle_timeout: Duration::from_secs(5), keep_alive: Duration::from_secs(1) };

fn cluster(nodes: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let nodes: Vec<String> = nodes.iter().map(|&node| node.to_owned()).collect();
    certs::init(folder.path(), &nodes).unwrap();
    folder
}

fn endpoint(folder: &Path, node: &str) -> Endpoint {
    let identity = Identity::read(folder, node).unwrap();
    Endpoint::bind(&identity, SocketAddr::from(([127, 0, 0, 1], 0)), TIMING).unwrap()
}

fn hello(node: &str) -> Hello {
    Hello { node: node.to_owned(), topology: 7, life: 5, knows: 0, heard: [0, 0], after: [0, 0] }
}

/// What `from` gets when it calls `to`, which lets nobody in, and what `to` gets.
async fn call(
    from: &Endpoint,
    to: &Endpoint,
    peer: &str,
    says: Hello,
) -> (Result<Call, LinkError>, Result<(), LinkError>) {
    let address = to.local_addr().unwrap();
    let answer = async {
        let caller = to.accept().await.unwrap().answer().await?;
        caller.refuse("nobody is at home");
        Ok(())
    };
    tokio::join!(from.dial(peer, address, &says), answer)
}

type Frames = mpsc::UnboundedReceiver<Heard>;

fn channel() -> (impl Fn(Heard) + Send + Sync + 'static, Frames) {
    let (sender, frames) = mpsc::unbounded_channel();
    let hear = move |heard| drop(sender.send(heard));
    (hear, frames)
}

/// A link between two endpoints, with what each end hears.
async fn linked(from: &Endpoint, to: &Endpoint) -> ((Link, Frames), (Link, Frames)) {
    let address = to.local_addr().unwrap();
    let answer = async {
        let caller = to.accept().await.unwrap().answer().await.unwrap();
        assert_eq!(caller.hello.node, "a");
        let (hear, frames) = channel();
        (caller.welcome(&hello("b"), hear).unwrap(), frames)
    };
    let says = hello("a");
    let (call, accepted) = tokio::join!(from.dial("b", address, &says), answer);
    let call = call.unwrap();
    assert_eq!(call.hello, hello("b"));
    let (hear, frames) = channel();
    ((call.link(hear), frames), accepted)
}

async fn frame(frames: &mut Frames) -> (Stream, Vec<u8>) {
    match frames.recv().await.unwrap() {
        Heard::Frame { stream, bytes, .. } => (stream, bytes.to_vec()),
        Heard::Closed { reason } => panic!("closed: {reason}"),
    }
}

async fn closed(frames: &mut Frames) -> String {
    loop {
        match frames.recv().await.unwrap() {
            Heard::Frame { .. } => {}
            Heard::Closed { reason } => return reason,
        }
    }
}

#[tokio::test]
async fn frames_arrive_in_order_on_both_streams_both_ways() {
    let folder = cluster(&["a", "b"]);
    let (a, b) = (endpoint(folder.path(), "a"), endpoint(folder.path(), "b"));
    let ((from_a, mut to_a), (from_b, mut to_b)) = linked(&a, &b).await;
    for (link, frames) in [(&from_a, &mut to_b), (&from_b, &mut to_a)] {
        for number in 0..100u8 {
            link.send(Stream::Express, vec![number; 1 + usize::from(number)].into());
            link.send(Stream::Bulk, vec![number; 20_000].into());
        }
        let mut next = [0u8; 2];
        for _ in 0..200 {
            let (stream, bytes) = frame(frames).await;
            let at = &mut next[stream as usize];
            let length = if stream == Stream::Express { 1 + usize::from(*at) } else { 20_000 };
            assert_eq!(bytes, vec![*at; length]);
            *at += 1;
        }
    }
    assert!(from_a.stats().sent > 2_000_000 && from_a.stats().rtt > Duration::ZERO);
}

#[tokio::test]
async fn the_largest_frame_passes_and_its_room_comes_back() {
    let folder = cluster(&["a", "b"]);
    let (a, b) = (endpoint(folder.path(), "a"), endpoint(folder.path(), "b"));
    let ((link, _to_a), (_from_b, mut frames)) = linked(&a, &b).await;
    for _ in 0..5 {
        link.send(Stream::Bulk, vec![1; FRAME_MAX].into());
    }
    for _ in 0..5 {
        assert_eq!(frame(&mut frames).await.1.len(), FRAME_MAX);
    }
}

#[tokio::test]
async fn each_end_hears_once_that_a_link_is_closed_and_why() {
    let folder = cluster(&["a", "b"]);
    let (a, b) = (endpoint(folder.path(), "a"), endpoint(folder.path(), "b"));
    let ((link, mut to_a), (_from_b, mut to_b)) = linked(&a, &b).await;
    link.close("a frame was replayed");
    assert_eq!(closed(&mut to_a).await, "closed");
    assert!(closed(&mut to_b).await.contains("a frame was replayed"));
    assert!(to_b.recv().await.is_none(), "nothing comes after the end");
}

#[tokio::test]
async fn the_authority_of_another_cluster_counts_for_nothing() {
    let (ours, theirs) = (cluster(&["a", "b"]), cluster(&["a", "b"]));
    let (a, b) = (endpoint(theirs.path(), "a"), endpoint(ours.path(), "b"));
    let (dialled, answered) = call(&a, &b, "b", hello("a")).await;
    assert!(matches!(dialled, Err(LinkError::Unreachable(_))), "{dialled:?}");
    assert!(matches!(answered, Err(LinkError::Unreachable(_))), "{answered:?}");
}

#[tokio::test]
async fn nobody_passes_under_another_name() {
    let folder = cluster(&["a", "b", "c"]);
    let (a, b) = (endpoint(folder.path(), "a"), endpoint(folder.path(), "b"));
    // The callee's name is not the one that was dialled.
    let (dialled, _) = call(&a, &b, "c", hello("a")).await;
    assert!(matches!(dialled, Err(LinkError::Unreachable(_))), "{dialled:?}");
    // The caller says another name than its certificate.
    let (dialled, answered) = call(&a, &b, "b", hello("c")).await;
    assert!(matches!(answered, Err(LinkError::Impostor(name)) if name == "c"));
    let Err(LinkError::Refused(reason)) = dialled else { panic!("{dialled:?}") };
    assert!(reason.contains("node `c`"), "{reason}");
}

#[tokio::test]
async fn a_refusal_reaches_the_caller_with_its_reason() {
    let folder = cluster(&["a", "b"]);
    let (a, b) = (endpoint(folder.path(), "a"), endpoint(folder.path(), "b"));
    let (dialled, _) = call(&a, &b, "b", hello("a")).await;
    assert!(matches!(dialled, Err(LinkError::Refused(why)) if why == "nobody is at home"));
    let other = Hello { topology: 8, ..hello("a") };
    let mismatch = hello("b").agree(&other);
    assert_eq!(mismatch, Err(Mismatch::Topology { theirs: 8, ours: 7 }));
}

#[test]
fn certificates_are_kept_and_a_node_that_joins_later_belongs() {
    let folder = cluster(&["a"]);
    let before = std::fs::read(folder.path().join("a.key")).unwrap();
    let nodes = ["a".to_owned(), "b".to_owned()];
    let written = certs::init(folder.path(), &nodes).unwrap();
    let names: Vec<_> = written.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(names, ["b.key", "b.pem"]);
    assert_eq!(std::fs::read(folder.path().join("a.key")).unwrap(), before);
    std::fs::remove_file(folder.path().join("a.pem")).unwrap();
    let half = certs::init(folder.path(), &nodes).unwrap_err().to_string();
    assert!(half.contains("a.key is there and"), "{half}");
}

#[tokio::test]
async fn a_node_that_joins_later_is_let_in() {
    let folder = cluster(&["b"]);
    let b = endpoint(folder.path(), "b");
    certs::init(folder.path(), &["a".to_owned()]).unwrap();
    let a = endpoint(folder.path(), "a");
    let ((link, _to_a), (_from_b, mut frames)) = linked(&a, &b).await;
    link.send(Stream::Express, vec![1].into());
    assert_eq!(frame(&mut frames).await, (Stream::Express, vec![1]));
}

#[cfg(unix)]
#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = cluster(&["a"]);
    let key = folder.path().join("a.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Identity::read(folder.path(), "a").unwrap_err().to_string();
    assert!(error.contains("mode 644") && error.contains("chmod 600"), "{error}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&key, "rubbish").unwrap();
    let error = Identity::read(folder.path(), "a").unwrap_err().to_string();
    assert!(error.contains("holds no private key"), "{error}");
    let error = Identity::read(folder.path(), "z").unwrap_err().to_string();
    assert!(error.contains("certs init"), "{error}");
}
