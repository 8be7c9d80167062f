//! The admin: the tree of actors over HTTP, deaths on request, and keys.

use crate::client::{Host, question, text};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};

const ADMIN: &str = "admin: { enabled: true }\n";

async fn told(response: Response) -> (StatusCode, Value) {
    (response.status(), response.json().await.unwrap())
}

/// The node of the tree that is called `actor`.
fn find<'a>(tree: &'a Value, actor: &str) -> Option<&'a Value> {
    if tree["actor"] == actor {
        return Some(tree);
    }
    tree["children"].as_array()?.iter().find_map(|child| find(child, actor))
}

async fn tree(host: &Host) -> Value {
    let (status, tree) = told(host.get("/admin/tree").await).await;
    assert_eq!(status, 200, "{tree}");
    tree
}

#[tokio::test]
async fn every_actor_is_in_the_tree_and_comes_back_when_it_is_killed() {
    let host = Host::with(ADMIN).await;
    let expected = text(&host.chat(&question()).await).to_owned();
    let actors = ["large", "small"].iter().flat_map(|model| {
        ["client", "decode", "peer", "subserver"].map(|role| format!("{model}/{role}"))
    });
    for actor in actors.chain(["http".to_owned()]) {
        let before = find(&tree(&host).await, &actor).unwrap().clone();
        assert_eq!(before["alive"], true, "{before}");
        let (status, body) = told(host.post("/admin/kill", &json!({ "actor": actor })).await).await;
        assert_eq!((status, &body), (StatusCode::OK, &json!({ "killed": actor })));
        let restarts = before["restarts"].as_u64().unwrap() + 1;
        let back = async {
            loop {
                let after = find(&tree(&host).await, &actor).unwrap().clone();
                if after["alive"] == true && after["restarts"] == restarts {
                    return after;
                }
            }
        };
        let after = tokio::time::timeout(std::time::Duration::from_secs(30), back).await.unwrap();
        if actor.ends_with("/client") || actor.ends_with("/decode") {
            assert!(after["life"]["restarts"].as_u64() > before["life"]["restarts"].as_u64());
        }
        assert_eq!(text(&host.chat(&question()).await), expected, "after a death of {actor}");
    }
    host.at_rest().await;
}

#[tokio::test]
async fn the_tree_shows_what_is_held() {
    let host = Host::with(ADMIN).await;
    let endless = json!({
        "model": "small", "stream": true, "ignore_eos": true, "max_tokens": 400,
        "messages": [{ "role": "user", "content": "What is 1 + 1?" }],
    });
    let mut reply = host.post("/v1/chat/completions", &endless).await;
    // The first chunk is on its way: one token at least is committed.
    reply.chunk().await.unwrap().unwrap();
    let tree = tree(&host).await;
    let (client, decode) =
        (find(&tree, "small/client").unwrap(), find(&tree, "small/decode").unwrap());
    assert_eq!(client["requests"]["live"], 1, "{tree}");
    assert_eq!(decode["requests"]["held"], 1, "{tree}");
    assert!(decode["kv"]["blocks_used"].as_u64().unwrap() > 0, "{tree}");
    assert!(decode["kv"]["blocks"].as_u64() > decode["kv"]["blocks_used"].as_u64(), "{tree}");
    assert!(decode["mailbox"].is_u64() && find(&tree, "large/peer").unwrap()["mailbox"] == 0);
    drop(reply);
    host.at_rest().await;
}

#[tokio::test]
async fn a_wrong_order_to_kill_is_told_what_there_is() {
    let host = Host::with(ADMIN).await;
    for (body, status) in [
        (json!({}), 400),
        (json!({ "actor": 3 }), 400),
        (json!({ "actor": "large" }), 404),
        (json!({ "actor": "large/nothing" }), 404),
        (json!({ "actor": "huge/decode" }), 404),
    ] {
        let (found, answer) = told(host.post("/admin/kill", &body).await).await;
        assert_eq!(found, status, "{body}: {answer}");
        assert_eq!(answer["error"]["param"], "actor", "{answer}");
    }
    let (_, answer) = told(host.post("/admin/kill", &json!({ "actor": "x" })).await).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("`x`") && message.contains("large/{client,decode"), "{message}");
}

#[tokio::test]
async fn without_being_asked_for_there_is_no_admin() {
    let host = Host::with("").await;
    assert_eq!(host.get("/admin/tree").await.status(), 404);
    let kill = host.post("/admin/kill", &json!({ "actor": "http" })).await;
    assert_eq!(kill.status(), 404);
}

#[tokio::test]
async fn keys_guard_what_they_are_for() {
    let host = Host::of(
        "http: { listen: '127.0.0.1:0', api_keys: [sesame, simsim] }\n\
         admin: { enabled: true, api_key: root }\n\
         models: { small: 'demo:small' }\n",
    )
    .await;
    let send = |method: Method, path: &'static str, key: Option<&'static str>| {
        let request = host.http.request(method, format!("{}{path}", host.url));
        let request = match key {
            Some(key) => request.bearer_auth(key),
            None => request,
        };
        async { request.send().await.unwrap() }
    };
    for (path, key, status) in [
        ("/v1/models", None, 401),
        ("/v1/models", Some("root"), 401),
        ("/v1/models", Some("sesame"), 200),
        ("/v1/models", Some("simsim"), 200),
        ("/admin/tree", None, 401),
        ("/admin/tree", Some("sesame"), 401),
        ("/admin/tree", Some("root"), 200),
        ("/health", None, 200),
        ("/ready", None, 200),
        ("/nothing", None, 404),
    ] {
        let response = send(Method::GET, path, key).await;
        assert_eq!(response.status(), status, "{path} with {key:?}");
        if status == 401 {
            let (_, answer) = told(response).await;
            assert_eq!(answer["error"]["code"], "invalid_api_key");
            assert_eq!(answer["error"]["type"], "authentication_error");
        }
    }
    for path in
        ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/admin/kill"]
    {
        assert_eq!(send(Method::POST, path, None).await.status(), 401, "{path}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_reach_the_models_but_not_the_admin() {
    let host = Host::with(ADMIN).await;
    let ask = |path: &'static str| {
        let request = host.http.request(Method::OPTIONS, format!("{}{path}", host.url));
        let request = request.header("origin", "https://elsewhere.example");
        let request = request.header("access-control-request-method", "POST");
        async {
            request.send().await.unwrap().headers().contains_key("access-control-allow-origin")
        }
    };
    assert!(ask("/v1/chat/completions").await);
    assert!(!ask("/admin/kill").await);
}
