//! How things end: clients that leave, and a server that is asked to stop.

use crate::client::{Host, begin, endless, frames, question, question_with, streamed, text};
use futures::StreamExt;
use serde_json::{Value, json};

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_everything_everywhere() {
    let host = Host::with("").await;
    for n in [1, 4] {
        let response =
            host.post("/v1/chat/completions", &endless(&json!({"stream": true, "n": n}))).await;
        let stream = begin(response).await;
        host.live(n).await;
        drop(stream);
        host.at_rest().await;
    }
    assert!(text(&host.chat(&question()).await).contains("1717"));
}

#[tokio::test]
async fn a_client_that_leaves_without_a_stream_frees_as_much() {
    let host = Host::with("").await;
    for n in [1, 4] {
        let leaving = {
            let request = host.http.post(format!("{}/v1/chat/completions", host.url));
            tokio::spawn(request.json(&endless(&json!({ "n": n }))).send())
        };
        host.live(n).await;
        leaving.abort();
        host.at_rest().await;
    }
    assert!(text(&host.chat(&question()).await).contains("1717"));
}

#[tokio::test]
async fn a_server_that_stops_finishes_what_it_admitted_and_refuses_the_rest() {
    let host = Host::with("").await;
    let body = question_with(&json!({"ignore_eos": true, "max_tokens": 1500}));
    let expected = host.chat(&body).await;
    let mut streaming = body.clone();
    streaming["stream"] = json!(true);
    let stream = begin(host.post("/v1/chat/completions", &streaming).await).await;
    let Host { server, http, url } = host;
    let app = server.app().clone();
    let stopping = tokio::spawn(server.stop(std::future::pending()));
    while !app.draining() {
        tokio::task::yield_now().await;
    }
    let ready = http.get(format!("{url}/ready")).send().await.unwrap();
    assert_eq!(ready.status(), 503);
    assert_eq!(http.get(format!("{url}/health")).send().await.unwrap().status(), 200);
    let refused = http.post(format!("{url}/v1/chat/completions")).json(&body).send().await.unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refused.json::<Value>().await.unwrap()["error"]["code"], "draining");

    let chunks = frames(&stream.collect::<String>().await);
    assert_eq!(streamed(&chunks, 0), text(&expected));
    assert_eq!(stopping.await.unwrap(), 0, "nothing was cut off");
    assert!(http.get(format!("{url}/health")).send().await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_server_in_a_hurry_tells_those_it_cuts_off() {
    let host = Host::with("").await;
    let stream =
        begin(host.post("/v1/chat/completions", &endless(&json!({"stream": true}))).await).await;
    let cut = tokio::spawn(host.server.stop(std::future::ready(())));
    let chunks = frames(&stream.collect::<String>().await);
    assert_eq!(chunks.last().unwrap()["error"]["code"], "draining");
    assert_eq!(cut.await.unwrap(), 1);
}

#[tokio::test]
async fn a_server_lets_go_after_its_time_to_drain() {
    let host = Host::with("limits: { drain: 10ms }\n").await;
    let stream =
        begin(host.post("/v1/chat/completions", &endless(&json!({"stream": true}))).await).await;
    let reading = tokio::spawn(stream.collect::<String>());
    assert_eq!(host.server.stop(std::future::pending()).await, 1);
    assert!(frames(&reading.await.unwrap()).last().unwrap()["error"].is_object());
}
