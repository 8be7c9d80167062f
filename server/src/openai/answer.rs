//! From admitted choices to a response, whole or in pieces.

use super::response::{Head, Kind};
use super::{ApiError, Options};
use crate::admission::Admitted;
use crate::catalog::Route;
use crate::date::now;
use crate::flights::Flight;
use crate::generation::Generation;
use crate::http::App;
use crate::random;
use crate::stream::{self, Chunks};
use axum::Json;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokenrouter_actors::Event;

/// What the parts of a new response share.
pub(super) fn head(kind: Kind, route: Route, include_usage: bool) -> Head {
    let prefix = match kind {
        Kind::Chat => "chatcmpl",
        Kind::Completion => "cmpl",
    };
    let id = format!("{prefix}-{}", random::identifier());
    Head { kind, id, created: now(), route, include_usage }
}

/// Says which fields were passed over.
pub(super) fn log_unknown(options: &Options) {
    if !options.unknown.is_empty() {
        tracing::debug!(
            fields = options.unknown.join(", "),
            "the request has fields that nobody knows"
        );
    }
}

/// Generates the choices and answers. If the client leaves, the future is dropped or the stream is, and with it every
/// session.
pub(super) async fn answer(
    app: &App,
    head: Head,
    admitted: Admitted,
    stream: bool,
    flight: Flight,
) -> Result<Response, ApiError> {
    let Admitted { choices, prompt_tokens } = admitted;
    let meter = app.metrics().meter(&head.route.name, flight.begun(), choices.len());
    let generation = Generation::open(app.gateway(), choices).await.map_err(|e| app.fault(e))?;
    let mut generation = generation.watched(meter, Arc::clone(app.catalog()));
    if !stream {
        let expected = generation.choices();
        let choices = generation.collect().await.map_err(|e| app.fault(e))?;
        if choices.len() < expected {
            return Err(ApiError::internal("a choice ended without a result"));
        }
        return Ok(Json(head.whole(prompt_tokens, &choices, app.catalog())).into_response());
    }
    let count = generation.choices();
    let first = generation.next().await;
    if let Some((_, Event::Done(Err(failure)))) = first {
        return Err(app.fault(failure));
    }
    let chunks = Chunks::new(head, app.clone(), prompt_tokens, count);
    Ok(stream::respond(generation, first, chunks, flight))
}
