//! `POST /v1/completions`

use super::response::Kind;
use super::{ApiError, answer, request};
use crate::http::{App, JsonBody, prepare};
use crate::{admission, random};
use axum::extract::State;
use axum::response::Response;

/// Continues texts.
///
/// # Errors
/// Whatever is wrong with the request, or no room for it.
pub async fn create(
    State(app): State<App>,
    JsonBody(body): JsonBody,
) -> Result<Response, ApiError> {
    let flight = app.take_off()?;
    let request = request::completion(&body, app.most_choices())?;
    let route = app.route(&request.options.model)?.clone();
    let (stream, include_usage) = (request.options.stream, request.options.include_usage);
    answer::log_unknown(&request.options);
    let target = route.clone();
    let admitted =
        prepare(body.len(), move || admission::completion(&target, &request, random::bits()))
            .await?;
    let head = answer::head(Kind::Completion, route, include_usage);
    answer::answer(&app, head, admitted, stream, flight).await
}
