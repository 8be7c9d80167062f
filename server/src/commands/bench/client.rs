//! One client of an OpenAI-compatible server: it streams a reply and writes down when each piece came. It knows nothing of
//! what other requests do.

use super::dataset::Prompt;
use crate::cli::bench::{Backend, Bench};
use crate::commands::CommandError;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{RequestBuilder, Response};
use serde_json::{Map, Value, json};
use std::error::Error;
use std::time::{Duration, Instant};

/// A client of one server and one model.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    /// Without a slash or `/v1` at its end.
    base: String,
    endpoint: String,
    backend: Backend,
    /// Fields of every request.
    fields: Map<String, Value>,
    timeout: Duration,
}

/// A reply and its times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reply {
    /// From the request to the first piece, and from each piece to the next.
    pub(super) first: Option<Duration>,
    pub(super) gaps: Vec<Duration>,
    /// From the request to the last piece.
    pub(super) took: Duration,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) text: String,
    /// What the server says of who wrote it; null where it says nothing.
    pub(super) routing: Value,
}

impl Client {
    /// A client that sends what these arguments say.
    ///
    /// # Errors
    /// A header or `--extra-body` that is none, another scheme than http or https.
    pub(super) fn new(arguments: &Bench) -> Result<Self, CommandError> {
        let target = &arguments.target;
        let base = match &target.base_url {
            Some(url) => url.clone(),
            None => format!("http://{}:{}", target.host, target.port),
        };
        if !base.starts_with("http://") && !base.starts_with("https://") {
            let reason = format!("flag --base-url: `{base}` does not begin with http://");
            return Err(CommandError::Input(reason));
        }
        let base = base.trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).to_owned();
        let path = match target.backend {
            Backend::Openai => "/v1/completions",
            Backend::OpenaiChat => "/v1/chat/completions",
        };
        let endpoint = target.endpoint.clone().unwrap_or_else(|| path.to_owned());
        let http = reqwest::Client::builder()
            .default_headers(headers(&target.header)?)
            .tcp_nodelay(true)
            .build()
            .map_err(|e| CommandError::Other(format!("there is no HTTP client: {}", told(&e))))?;
        let (backend, timeout) = (target.backend, arguments.results.timeout);
        let fields = fields(arguments)?;
        Ok(Self { http, base, endpoint, backend, fields, timeout })
    }

    /// The server, for people.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Sends requests for this model from now on.
    pub(super) fn ask_for(&mut self, model: &str) {
        self.fields.insert("model".to_owned(), json!(model));
    }

    /// The models that the server lists.
    ///
    /// # Errors
    /// No server, or one that lists none; in words.
    pub(super) async fn models(&self) -> Result<Vec<String>, String> {
        let answer = self.json(self.http.get(format!("{}/v1/models", self.base))).await?;
        let models = answer["data"].as_array().into_iter().flatten();
        let names: Vec<String> =
            models.filter_map(|model| Some(model["id"].as_str()?.to_owned())).collect();
        if names.is_empty() { Err("it lists no models".to_owned()) } else { Ok(names) }
    }

    /// The tokens of `text`.
    ///
    /// # Errors
    /// A server without a tokeniser; in words.
    pub(super) async fn tokenize(&self, text: &str) -> Result<Vec<u64>, String> {
        let body = json!({"model": self.fields["model"], "prompt": text});
        let answer =
            self.json(self.http.post(format!("{}/tokenize", self.base)).json(&body)).await?;
        let tokens = answer["tokens"].as_array().ok_or("it gives no tokens")?;
        Ok(tokens.iter().filter_map(Value::as_u64).collect())
    }

    /// The text of `tokens`.
    ///
    /// # Errors
    /// A server without a tokeniser; in words.
    pub(super) async fn detokenize(&self, tokens: &[u64]) -> Result<String, String> {
        let body = json!({"model": self.fields["model"], "tokens": tokens});
        let answer =
            self.json(self.http.post(format!("{}/detokenize", self.base)).json(&body)).await?;
        answer["prompt"].as_str().map(str::to_owned).ok_or_else(|| "it gives no text".to_owned())
    }

    async fn json(&self, request: RequestBuilder) -> Result<Value, String> {
        let response = refused(self.within(request.send()).await?).await?;
        self.within(response.json()).await
    }

    /// Streams one reply.
    ///
    /// # Errors
    /// Whatever keeps it from its end, in words.
    pub(super) async fn reply(&self, prompt: &Prompt) -> Result<Reply, String> {
        let mut body = self.fields.clone();
        match self.backend {
            Backend::Openai => body.insert("prompt".to_owned(), json!(prompt.text)),
            Backend::OpenaiChat => body
                .insert("messages".to_owned(), json!([{"role": "user", "content": prompt.text}])),
        };
        if let Some(tokens) = prompt.output_tokens {
            body.insert("max_tokens".to_owned(), json!(tokens));
        }
        let url = format!("{}{}", self.base, self.endpoint);
        let mut listener = Listener::new();
        let sent = self.http.post(url).json(&body).send();
        let mut response = refused(self.within(sent).await?).await?;
        while let Some(bytes) = self.within(response.chunk()).await? {
            if listener.hear(&bytes)? {
                return Ok(listener.reply);
            }
        }
        Err("the stream broke off before [DONE]".to_owned())
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, String> {
        match tokio::time::timeout(self.timeout, work).await {
            Ok(result) => result.map_err(|e| told(&e)),
            Err(_) => Err(format!("nothing came for {:?}", self.timeout)),
        }
    }
}

/// Reads a stream of events.
struct Listener {
    begun: Instant,
    last: Duration,
    /// Bytes of a line that has not ended.
    waiting: Vec<u8>,
    reply: Reply,
    /// Pieces with something in them, for servers that give no usage.
    pieces: u64,
}

impl Listener {
    fn new() -> Self {
        let (reply, last) = (Reply::default(), Duration::ZERO);
        Self { begun: Instant::now(), last, waiting: Vec::new(), reply, pieces: 0 }
    }

    /// Takes bytes, however they are cut; whether that was the end.
    fn hear(&mut self, bytes: &[u8]) -> Result<bool, String> {
        let now = self.begun.elapsed();
        self.waiting.extend_from_slice(bytes);
        let mut read = 0;
        while let Some(length) = self.waiting[read..].iter().position(|byte| *byte == b'\n') {
            let line = &self.waiting[read..read + length];
            read += length + 1;
            // Comments keep a connection alive and say nothing.
            let Some(data) = line.strip_prefix(b"data:") else { continue };
            if data.trim_ascii() == b"[DONE]" {
                if self.reply.completion_tokens == 0 {
                    self.reply.completion_tokens = self.pieces;
                }
                return Ok(true);
            }
            let chunk = serde_json::from_slice(data)
                .map_err(|e| format!("a chunk of the stream is no JSON: {e}"))?;
            self.chunk(now, &chunk)?;
        }
        self.waiting.drain(..read);
        Ok(false)
    }

    fn chunk(&mut self, now: Duration, chunk: &Value) -> Result<(), String> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned));
        }
        let reply = &mut self.reply;
        if let Some(usage) = chunk.get("usage").filter(|usage| !usage.is_null()) {
            reply.prompt_tokens = usage["prompt_tokens"].as_u64().unwrap_or(0);
            reply.completion_tokens = usage["completion_tokens"].as_u64().unwrap_or(0);
        }
        if chunk["token_routing"].get("models").is_some() {
            reply.routing = json!({"llm_ratio": chunk["llm_ratio"], "models": chunk["token_routing"]["models"]});
        }
        for choice in chunk["choices"].as_array().into_iter().flatten() {
            let text = choice["text"].as_str().or_else(|| choice["delta"]["content"].as_str());
            // The first with a choice counts for the first token, as for other benchmark clients.
            if reply.first.is_none() {
                reply.first = Some(now);
            } else if text.is_some_and(|text| !text.is_empty()) {
                reply.gaps.push(now.saturating_sub(self.last));
            } else {
                continue;
            }
            self.pieces += 1;
            (self.last, reply.took) = (now, now);
            reply.text.push_str(text.unwrap_or_default());
        }
        Ok(())
    }
}

/// The answer, unless it is a refusal.
async fn refused(response: Response) -> Result<Response, String> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
    let message = body["error"]["message"].as_str().or_else(|| body["message"].as_str());
    Err(format!("{status}: {}", message.unwrap_or_else(|| text.trim())))
}

/// An error with what lies under it.
fn told(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

fn headers(pairs: &[String]) -> Result<HeaderMap, CommandError> {
    let fault = |text: &str| {
        CommandError::Input(format!("flag --header: `{text}` is no header; write NAME=VALUE"))
    };
    let mut headers = HeaderMap::new();
    if let Some(key) = std::env::var("OPENAI_API_KEY").ok().filter(|key| !key.is_empty()) {
        let value = HeaderValue::from_str(&format!("Bearer {key}"));
        let reason = "OPENAI_API_KEY has characters that no header can have".to_owned();
        headers.insert(AUTHORIZATION, value.map_err(|_| CommandError::Input(reason))?);
    }
    for pair in pairs {
        let (name, value) = pair.split_once('=').ok_or_else(|| fault(pair))?;
        let name: HeaderName = name.trim().parse().map_err(|_| fault(pair))?;
        headers.insert(name, value.trim().parse().map_err(|_| fault(pair))?);
    }
    Ok(headers)
}

/// What every request says.
fn fields(arguments: &Bench) -> Result<Map<String, Value>, CommandError> {
    let prompts = &arguments.prompts;
    let mut fields = Map::new();
    fields.insert("max_tokens".to_owned(), json!(prompts.output_len));
    fields.insert("stream".to_owned(), json!(true));
    fields.insert("stream_options".to_owned(), json!({"include_usage": true}));
    if prompts.ignore_eos {
        fields.insert("ignore_eos".to_owned(), json!(true));
    }
    for (name, value) in [("temperature", prompts.temperature), ("top_p", prompts.top_p)] {
        if let Some(value) = value {
            fields.insert(name.to_owned(), json!(value));
        }
    }
    if let Some(text) = &prompts.extra_body {
        let extra: Map<String, Value> = serde_json::from_str(text).map_err(|e| {
            CommandError::Input(format!("flag --extra-body: `{text}` is no JSON object: {e}"))
        })?;
        fields.extend(extra);
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream with a comment, two pieces, the writers, and the usage.
    const STREAM: &str = ": hello\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"a\"}}],\"usage\":null}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"llm_ratio\":0.5,\"token_routing\":{\"models\":{\"small\":{\"generated\":1}}}}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

    #[test]
    fn a_stream_is_read_however_it_is_cut() {
        for size in 1..STREAM.len() {
            let mut listener = Listener::new();
            let ended: Vec<bool> = STREAM
                .as_bytes()
                .chunks(size)
                .map(|bytes| listener.hear(bytes).unwrap())
                .take_while(|ended| !ended)
                .collect();
            let reply = listener.reply;
            assert!(ended.len() < STREAM.len().div_ceil(size), "the end was not seen");
            assert_eq!((reply.text.as_str(), reply.gaps.len()), ("ab", 1));
            assert_eq!((reply.prompt_tokens, reply.completion_tokens), (7, 2));
            assert_eq!(reply.routing["llm_ratio"], 0.5);
            assert_eq!(reply.routing["models"]["small"]["generated"], 1);
        }
    }

    #[test]
    fn pieces_count_where_there_is_no_usage_and_an_error_ends_it() {
        let mut listener = Listener::new();
        let text = b"data: {\"choices\":[{\"text\":\"a\"}]}\ndata: {\"choices\":[{\"text\":\"b\"}]}\ndata: [DONE]\n";
        assert_eq!(listener.hear(text), Ok(true));
        assert_eq!(listener.reply.completion_tokens, 2);
        let error = Listener::new().hear(b"data: {\"error\":{\"message\":\"no room\"}}\n");
        assert_eq!(error, Err("no room".to_owned()));
        assert!(Listener::new().hear(b"data: {\n").unwrap_err().contains("is no JSON"));
    }

    #[test]
    fn headers_are_pairs() {
        let made = headers(&["x-a=b=c".to_owned()]).unwrap();
        assert_eq!(made["x-a"], "b=c");
        for bad in ["x-a", "x a=b"] {
            let told = headers(&[bad.to_owned()]).unwrap_err().to_string();
            assert!(told.contains("write NAME=VALUE"), "{told}");
        }
    }
}
