//! A server on a port of its own, and the few things that tests ask of it.

use futures::StreamExt;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use std::time::Duration;
use tokenrouter_config::{Sources, Topology};
use tokenrouter_server::Server;
use tokenrouter_tests::kit::at_rest;

/// Longer than anything here takes, so that a hang is a failure and not a hang.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const MODELS: &str = "models: { small: 'demo:small', large: 'demo:large' }\n\
    routes: { demo: { entry: small, policy: { kind: r-stitch, to: large, threshold: 0.03 } } }\n";

pub(crate) struct Host {
    pub(crate) server: Server,
    pub(crate) http: Client,
    pub(crate) url: String,
}

impl Host {
    /// Two models, one route, and whatever `more` of a topology says.
    pub(crate) async fn with(more: &str) -> Self {
        Self::of(&format!("http: {{ listen: '127.0.0.1:0' }}\n{MODELS}{more}")).await
    }

    pub(crate) async fn of(topology: &str) -> Self {
        let topology = Topology::from_text(topology, &Sources::default()).unwrap();
        let server = Server::start(topology).await.unwrap();
        let url = format!("http://{}", server.address().unwrap());
        Self { server, http: Client::builder().timeout(PATIENCE).build().unwrap(), url }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.http.get(format!("{}{path}", self.url)).send().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.http.post(format!("{}{path}", self.url)).json(body).send().await.unwrap()
    }

    pub(crate) async fn chat(&self, body: &Value) -> Value {
        let response = self.post("/v1/chat/completions", body).await;
        let (status, value) = (response.status(), response.json::<Value>().await.unwrap());
        assert_eq!(status, 200, "{value}");
        value
    }

    /// All chunks of a streamed reply; the stream must have ended as it should.
    pub(crate) async fn chunks(&self, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let response = self.post("/v1/chat/completions", &body).await;
        assert_eq!(response.status(), 200);
        frames(&response.text().await.unwrap())
    }

    /// Waits until no model holds anything of any request.
    pub(crate) async fn at_rest(&self) {
        at_rest(self.server.app().gateway()).await;
        let landed = self.server.app().flights().landed();
        tokio::time::timeout(PATIENCE, landed).await.expect("a request is still being answered");
    }

    /// Waits until `count` requests are being generated.
    pub(crate) async fn live(&self, count: usize) {
        let gateway = self.server.app().gateway();
        let live = async {
            while gateway.live() != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, live).await.expect("the requests do not come");
    }
}

/// The chunks of a whole stream.
pub(crate) fn frames(text: &str) -> Vec<Value> {
    let mut data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"));
    data.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Reads the first bytes of a stream and gives the rest.
pub(crate) async fn begin(response: Response) -> impl futures::Stream<Item = String> + Unpin {
    assert_eq!(response.status(), 200);
    let mut pieces = Box::pin(
        response.bytes_stream().map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap()),
    );
    let first = pieces.next().await.unwrap();
    futures::stream::iter([first]).chain(pieces)
}

/// A question that both models of the route answer together.
pub(crate) fn question() -> Value {
    json!({"model": "demo", "messages": [{"role": "user", "content": "What is (37 * 46) + 15?"}]})
}

/// The same with `extra` fields over it.
pub(crate) fn question_with(extra: &Value) -> Value {
    let mut body = question();
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// A question whose reply goes on for much longer than any test looks.
pub(crate) fn endless(extra: &Value) -> Value {
    let mut body = question_with(&json!({"ignore_eos": true, "max_tokens": 30000}));
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// The text of the first choice.
pub(crate) fn text(reply: &Value) -> &str {
    reply["choices"][0]["message"]["content"].as_str().unwrap()
}

/// The text of a stream's choice `index`.
pub(crate) fn streamed(chunks: &[Value], index: usize) -> String {
    let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
    choices
        .filter(|choice| choice["index"] == index)
        .filter_map(|choice| choice["delta"]["content"].as_str())
        .collect()
}
