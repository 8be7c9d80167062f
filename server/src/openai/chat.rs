//! `POST /v1/chat/completions`

use super::response::Kind;
use super::{ApiError, answer, request};
use crate::http::{App, JsonBody};
use crate::{admission, random};
use axum::extract::State;
use axum::response::Response;

/// Answers a conversation.
///
/// # Errors
/// Whatever is wrong with the request, or no room for it.
pub async fn create(
    State(app): State<App>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let (flight, size) = (app.take_off()?, body.len());
    let reader = app.clone();
    let read = move || {
        let request = request::chat(&body, reader.most_choices())?;
        answer::log_unknown(&request.options);
        let route = reader.route(&request.options.model)?.clone();
        let admitted = admission::chat(&route, &request, random::bits())?;
        let head = answer::head(Kind::Chat, route, request.options.include_usage);
        Ok((head, admitted, request.options.stream))
    };
    let (head, admitted, stream) = app.prepare(size, read).await?;
    answer::answer(&app, head, admitted, stream, flight).await
}
