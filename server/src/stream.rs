//! A reply in pieces: server-sent events, ended by `[DONE]` in every case.
//!
//! Dropping the stream, which is what a client's disconnect does, cancels the request everywhere.

use crate::flights::Flight;
use crate::generation::Generation;
use crate::http::App;
use crate::openai::ApiError;
use crate::openai::response::Head;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::sse::{Event as Frame, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use futures::stream;
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokenrouter_actors::Event;
use tokenrouter_protocol::Outcome;

/// A comment goes out after this long without a chunk, so that no proxy takes the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Turns events into chunks.
#[derive(Debug)]
pub struct Chunks {
    head: Head,
    app: App,
    prompt_tokens: u32,
    /// For each choice, whether it has had a chunk.
    begun: Vec<bool>,
    outcomes: Vec<Option<Outcome>>,
}

impl Chunks {
    /// For `choices` choices.
    pub fn new(head: Head, app: App, prompt_tokens: u32, choices: usize) -> Self {
        Self {
            head,
            app,
            prompt_tokens,
            begun: vec![false; choices],
            outcomes: vec![None; choices],
        }
    }

    /// The chunk of an event of choice `index`.
    ///
    /// # Errors
    /// The failure that ends the stream.
    pub fn render(&mut self, index: usize, event: Event) -> Result<Value, ApiError> {
        let first = !std::mem::replace(&mut self.begun[index], true);
        match event {
            Event::Progress(progress) => {
                Ok(self.head.piece(index, first, &progress, self.app.catalog()))
            }
            Event::Done(result) => {
                let outcome = result.map_err(|failure| self.app.fault(failure))?;
                let chunk = self.head.last(index, first, &outcome, self.app.catalog());
                self.outcomes[index] = Some(outcome);
                Ok(chunk)
            }
        }
    }

    /// The chunk after the last choice, if the client asked for it.
    pub fn usage(&self) -> Option<Value> {
        let outcomes: Vec<&Outcome> = self.outcomes.iter().flatten().collect();
        self.head.include_usage.then(|| self.head.usage(self.prompt_tokens, &outcomes))
    }
}

/// The response that streams `generation`. `first` is its first event, which has been taken already so that a request
/// that fails at once gets a status of its own.
pub fn respond(
    generation: Generation,
    first: Option<(usize, Event)>,
    chunks: Chunks,
    flight: Flight,
) -> Response {
    let state = Streaming {
        generation,
        first,
        chunks,
        ready: VecDeque::new(),
        ended: false,
        _flight: flight,
    };
    let mut response =
        Sse::new(frames(state)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

struct Streaming {
    generation: Generation,
    first: Option<(usize, Event)>,
    chunks: Chunks,
    ready: VecDeque<String>,
    ended: bool,
    _flight: Flight,
}

fn frames(state: Streaming) -> impl Stream<Item = Result<Frame, Infallible>> + Send {
    stream::unfold(state, |mut state| async move {
        let data = state.next().await?;
        Some((Ok(Frame::default().data(data)), state))
    })
}

impl Streaming {
    /// The next frame's data; `None` after `[DONE]`.
    async fn next(&mut self) -> Option<String> {
        if let Some(data) = self.ready.pop_front() {
            return Some(data);
        }
        if self.ended {
            return None;
        }
        let event = match self.first.take() {
            Some(first) => Some(first),
            None => self.generation.next().await,
        };
        match event {
            Some((index, event)) => match self.chunks.render(index, event) {
                Ok(chunk) => return Some(chunk.to_string()),
                Err(error) => self.end(Some(error.body())),
            },
            None => self.end(self.chunks.usage()),
        }
        self.ready.pop_front()
    }

    fn end(&mut self, last: Option<Value>) {
        self.ended = true;
        self.ready.extend(last.map(|value| value.to_string()));
        self.ready.push_back("[DONE]".to_owned());
    }
}
