//! Errors as OpenAI clients read them: a status and `{"error": {message, type, param, code}}`.
//!
//! Nothing here decides what is an error.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokenrouter_protocol::Failure;

/// A refused or failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// The kind, from OpenAI's vocabulary.
    pub kind: &'static str,
    /// A short name for programs.
    pub code: Option<&'static str>,
    /// The parameter at fault.
    pub param: Option<String>,
    /// What is wrong and how to mend it.
    pub message: String,
    /// After how many seconds a new attempt makes sense.
    pub retry_after: Option<u32>,
}

impl ApiError {
    /// A request that cannot be answered as it is: 400.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            kind: "invalid_request_error",
            code: None,
            param: None,
            message: message.into(),
            retry_after: None,
        }
    }

    /// A parameter with a value that cannot be used: 400.
    pub fn parameter(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), code: Some("invalid_value"), ..Self::invalid(message) }
    }

    /// A parameter that would change the answer and is not supported: 400.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: Some("unsupported_parameter"), ..Self::parameter(param, message) }
    }

    /// A model that does not exist: 404.
    pub fn unknown_model(name: &str, known: &[&str]) -> Self {
        let message = format!("the model `{name}` does not exist; there are {}", known.join(", "));
        Self {
            status: StatusCode::NOT_FOUND,
            code: Some("model_not_found"),
            ..Self::parameter("model", message)
        }
    }

    /// A prompt that leaves no room for what is asked: 400.
    pub fn too_long(param: &str, prompt: usize, asked: Option<u32>, context: u32) -> Self {
        let message = match asked {
            Some(asked) => format!(
                "the prompt has {prompt} tokens and {asked} more are asked for, which is over the context length of \
                 {context} tokens; shorten the prompt or lower max_tokens"
            ),
            None => format!(
                "the prompt has {prompt} tokens, which leaves no room for a reply in the context length of {context} \
                 tokens; shorten the prompt"
            ),
        };
        Self { code: Some("context_length_exceeded"), ..Self::parameter(param, message) }
    }

    /// A request without a key, or with a wrong one: 401.
    pub fn unauthorized(message: &str) -> Self {
        Self {
            kind: "authentication_error",
            ..Self::status(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
        }
    }

    /// Any other refusal by status.
    pub fn status(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code: Some(code), ..Self::invalid(message) }
    }

    /// A fault of ours: 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "server_error",
            code: Some("internal_error"),
            ..Self::invalid(message)
        }
    }

    /// A server that is about to stop: 503.
    pub fn draining() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "server_error",
            code: Some("draining"),
            retry_after: Some(5),
            ..Self::invalid(Failure::Draining.to_string())
        }
    }

    /// The body.
    pub fn body(&self) -> Value {
        json!({ "error": {
            "message": self.message, "type": self.kind, "param": self.param, "code": self.code,
        }})
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Busy { .. } => Self {
                status: StatusCode::TOO_MANY_REQUESTS,
                kind: "rate_limit_error",
                code: Some("queue_full"),
                retry_after: Some(1),
                ..Self::invalid(failure.to_string())
            },
            Failure::Draining => Self::draining(),
            Failure::Stalled { .. } => {
                Self { code: Some("stalled"), ..Self::internal(failure.to_string()) }
            }
            Failure::Circling => {
                Self { code: Some("policy_circling"), ..Self::internal(failure.to_string()) }
            }
            Failure::OutOfReach { .. } => Self::status(
                StatusCode::SERVICE_UNAVAILABLE,
                "model_out_of_reach",
                failure.to_string(),
            ),
            Failure::ModelLost { .. } => {
                Self { code: Some("model_lost"), ..Self::internal(failure.to_string()) }
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_has_the_four_fields() {
        let body = ApiError::parameter("top_p", "must be above 0").body();
        assert_eq!(
            body,
            json!({"error": {"message": "must be above 0", "type": "invalid_request_error",
                "param": "top_p", "code": "invalid_value"}})
        );
    }

    #[test]
    fn failures_have_their_status() {
        let cases = [
            (Failure::Busy { limit: 3 }, 429, Some(1)),
            (Failure::Draining, 503, Some(5)),
            (Failure::Circling, 500, None),
            (Failure::Stalled { model: tokenrouter_policies::ModelIx(0), grants: 9 }, 500, None),
        ];
        for (failure, status, retry) in cases {
            let error = ApiError::from(failure);
            assert_eq!((error.status.as_u16(), error.retry_after), (status, retry));
        }
    }

    #[test]
    fn a_long_prompt_is_told_with_both_numbers() {
        let error = ApiError::too_long("messages", 120, Some(20), 128);
        assert!(error.message.contains("120") && error.message.contains("128"));
        assert_eq!(error.code, Some("context_length_exceeded"));
    }
}
