//! What is refused, and how it is told: always a status and OpenAI's error object, and the next request is answered.

use crate::client::{Host, endless, question, question_with, text};
use reqwest::Method;
use serde_json::{Value, json};

async fn told(response: reqwest::Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    let error = body["error"].clone();
    for key in ["message", "type", "param", "code"] {
        assert!(error.get(key).is_some(), "{body} has no {key}");
    }
    (status, error)
}

#[tokio::test]
async fn bad_requests_have_their_status_and_name_the_parameter() {
    let host = Host::with("").await;
    let cases = [
        (json!({"model": "none"}), 404, "model"),
        (json!({"messages": []}), 400, "messages"),
        (json!({"n": 0}), 400, "n"),
        (json!({"n": 0, "stream": true}), 400, "n"),
        (json!({"temperature": -1}), 400, "temperature"),
        (json!({"stop": [""]}), 400, "stop"),
        (json!({"tools": [{"type": "function"}]}), 400, "tools"),
        (json!({"max_tokens": 32768}), 400, "messages"),
        (json!({"messages": [{"role": "user", "content": "1 ".repeat(40_000)}]}), 400, "messages"),
        (
            json!({"messages": [{"role": "user", "content": "1 ".repeat(40_000)}], "stream": true}),
            400,
            "messages",
        ),
    ];
    for (extra, status, param) in cases {
        let response = host.post("/v1/chat/completions", &question_with(&extra)).await;
        let (found, error) = told(response).await;
        assert_eq!((found, error["param"].as_str()), (status, Some(param)), "{error}");
    }
    host.at_rest().await;
    assert!(text(&host.chat(&question()).await).contains("1717"));
}

#[tokio::test]
async fn what_no_handler_takes_is_told_in_the_same_shape() {
    let host = Host::with("limits: { body: 10kB }\n").await;
    let send = |method: Method, path: &str, kind: &str, body: String| {
        let request = host.http.request(method, format!("{}{path}", host.url));
        request.header("content-type", kind).body(body).send()
    };
    let (json, chat) = ("application/json", "/v1/chat/completions");
    let cases = [
        (Method::GET, "/nothing", json, String::new(), 404),
        (Method::GET, "/v1/models/%FF", json, String::new(), 400),
        (Method::GET, chat, json, String::new(), 405),
        (Method::POST, "/health", json, String::new(), 405),
        (Method::POST, chat, "text/plain", question().to_string(), 415),
        (Method::POST, chat, json, " ".repeat(20_000), 413),
        (Method::POST, chat, json, "{".to_owned(), 400),
        (Method::POST, chat, json, "{\"temperature\": 1e999}".to_owned(), 400),
    ];
    for (method, path, kind, body, status) in cases {
        let (found, error) = told(send(method, path, kind, body).await.unwrap()).await;
        assert_eq!(found, status, "{error}");
    }
}

#[tokio::test]
async fn a_request_id_is_echoed_or_made() {
    let host = Host::with("").await;
    let send = |id: &'static str| {
        host.http.get(format!("{}/nothing", host.url)).header("x-request-id", id).send()
    };
    assert_eq!(send("mine").await.unwrap().headers()["x-request-id"], "mine");
    assert_eq!(host.get("/health").await.headers()["x-request-id"].len(), 32);
}

#[tokio::test]
async fn one_request_too_many_is_told_to_come_back() {
    let host = Host::with("limits: { requests: 2 }\n").await;
    let (_, error) =
        told(host.post("/v1/chat/completions", &question_with(&json!({"n": 3}))).await).await;
    assert_eq!(error["param"], "n", "what can never be admitted is no matter of waiting");
    let busy = host.post("/v1/chat/completions", &endless(&json!({"n": 2, "stream": true}))).await;
    assert_eq!(busy.status(), 200);
    for stream in [false, true] {
        let body = question_with(&json!({ "stream": stream }));
        let response = host.post("/v1/chat/completions", &body).await;
        assert!(response.headers().contains_key("retry-after"));
        let (status, error) = told(response).await;
        assert_eq!((status, error["code"].as_str()), (429, Some("queue_full")));
    }
    drop(busy);
    host.at_rest().await;
    assert!(text(&host.chat(&question()).await).contains("1717"));
}

#[tokio::test]
async fn the_smallest_pool_of_a_route_is_its_context() {
    let host = Host::of(
        "http: { listen: '127.0.0.1:0' }\n\
         models: { small: 'demo:small', large: { path: 'demo:large', kv_positions: 64 } }\n\
         routes: { demo: { entry: small, policy: { kind: r-stitch, to: large, threshold: 0.03 } } }\n",
    )
    .await;
    let (status, error) =
        told(host.post("/v1/chat/completions", &question_with(&json!({"max_tokens": 50}))).await)
            .await;
    assert_eq!((status, error["code"].as_str()), (400, Some("context_length_exceeded")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(" 64 ") && message.contains(" 23 "), "{message}");
    let filled = host.chat(&question_with(&json!({"ignore_eos": true}))).await;
    assert_eq!(
        filled["usage"]["total_tokens"], 64,
        "without max_tokens the rest of the context is used"
    );
    assert_eq!(filled["choices"][0]["finish_reason"], "length");
}
