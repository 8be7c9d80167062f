//! Which clusters can be: every fault names its key.

use super::*;
use crate::topology::Sources;

const MODELS: &str = "models: { a: x, b: y }
routes: { r: { entry: a, on_loss: fallback, policy: { kind: k, to: b, threshold: 0.5 } } }\n";

fn parse(text: &str) -> Result<Topology, Error> {
    Topology::from_text(text, &Sources::default())
}

fn with_nodes(nodes: &str) -> Result<Topology, Error> {
    parse(&format!("{MODELS}nodes:\n{nodes}"))
}

const TWO: &str =
    "  n: { quic: 10.0.0.1:7000, bind: 0.0.0.0:7000, http: 127.0.0.1:8080, models: [a] }
  m: { quic: 10.0.0.2:7000, models: [b] }\n";

#[test]
fn each_node_reads_the_same_file_with_its_own_eyes() {
    let topology = with_nodes(TWO).unwrap();
    assert_eq!(topology.cluster.certs, PathBuf::from("certs"));
    assert_eq!(topology.routes["r"].on_loss, OnLoss::Fallback);
    assert_eq!((topology.node_of("a"), topology.node_of("b")), (Some("n"), Some("m")));
    let n = topology.clone().on("n").unwrap();
    assert_eq!(n.http_address(), Some("127.0.0.1:8080".parse().unwrap()));
    assert_eq!(topology.clone().on("m").unwrap().http_address(), None);
    assert_eq!(topology.clone().alone().http_address(), Some(topology.http.listen));
    let told = topology.on("o").unwrap_err().to_string();
    assert!(told.contains("there is no node `o`; there are m, n"), "{told}");
    let told = parse(MODELS).unwrap().on("n").unwrap_err().to_string();
    assert!(told.contains("the topology has no `nodes`"), "{told}");
}

#[test]
fn nodes_that_cannot_be_are_refused() {
    let cases = [
        ("  n: { models: [a, b] }", "`nodes.n.quic`: is missing"),
        ("  n: { quic: here, models: [a, b] }", "`nodes.n.quic`: `here` is not an address"),
        ("  N: { quic: '1.1.1.1:1', models: [a, b] }", "`nodes.N`: a node's name consists of"),
        ("  n-: { quic: '1.1.1.1:1', models: [a, b] }", "`nodes.n-`: a node's name consists of"),
        ("  n: { quic: '0.0.0.0:1', models: [a, b] }", "`nodes.n.quic`: others cannot reach"),
        ("  n: { quic: '1.1.1.1:0', models: [a, b] }", "`nodes.n.quic`: others cannot reach"),
        ("  n: { quic: '1.1.1.1:1', models: [a] }", "`nodes`: no node has the model `b`"),
        ("  n: { quic: '1.1.1.1:1', models: [a, c] }", "`nodes.n.models.1`: there is no model `c`"),
        ("  n: { quic: '1.1.1.1:1', models: [a, a] }", "`nodes.n.models.1`: `a` is named twice"),
        ("  n: { quic: '1.1.1.1:1', peer: 1 }", "`nodes.n.peer`: there is no such setting"),
        (
            "  m: { quic: '1.1.1.1:1', models: [a, b] }\n  n: { quic: '1.1.1.1:1' }",
            "`nodes.m.quic`: `n` has the same address",
        ),
        (
            "  m: { quic: '1.1.1.1:1', models: [a, b] }\n  n: { quic: '1.1.1.1:2', models: [b] }",
            "`nodes`: several nodes have the model `b`",
        ),
    ];
    for (nodes, expected) in cases {
        let told = with_nodes(nodes).unwrap_err().to_string();
        assert!(told.contains(expected), "{told:?} should say {expected:?}");
    }
    let text = MODELS.replace("fallback", "panic");
    let told = parse(&text).unwrap_err().to_string();
    assert!(told.contains("`routes.r.on_loss`: `panic` is not one of"), "{told}");
}

#[test]
fn admin_is_judged_by_where_the_node_listens() {
    let topology = with_nodes(&format!("{TWO}admin: {{ enabled: true }}\n")).unwrap();
    assert!(topology.clone().on("n").is_ok() && topology.on("m").is_ok());
    let open = TWO.replace("127.0.0.1:8080", "0.0.0.0:8080");
    let topology = with_nodes(&format!("{open}admin: {{ enabled: true }}\n")).unwrap();
    let told = topology.on("n").unwrap_err().to_string();
    assert!(told.contains("others could kill actors through 0.0.0.0:8080"), "{told}");
}

#[test]
fn the_digest_is_of_what_nodes_must_agree_on() {
    let digest = |text: &str| parse(text).unwrap().digest();
    let text = format!("{MODELS}nodes:\n{TWO}");
    let same = digest(&text);
    // Where a model's files lie, and where a node takes HTTP, is its own business.
    for (from, to) in [("a: x", "a: /models/x"), ("http: 127.0.0.1:8080, ", ""), ("0.5", "0.50")] {
        assert!(text.contains(from));
        assert_eq!(digest(&text.replace(from, to)), same, "{from}");
    }
    let others =
        [("0.5", "0.6"), ("fallback", "fail"), ("10.0.0.2", "10.0.0.3"), ("entry: a", "entry: b")];
    for (from, to) in others {
        assert!(text.contains(from));
        assert_ne!(digest(&text.replace(from, to)), same, "{from}");
    }
}
