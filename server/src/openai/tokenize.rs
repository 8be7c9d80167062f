//! `POST /tokenize` and `POST /detokenize`, in the shapes of vLLM, whose benchmark client calls them.

use super::fields::{Fields, missing, wrong_type};
use super::{ApiError, request};
use crate::admission::{self, check_tokens};
use crate::http::{App, JsonBody};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

/// The tokens of a `prompt`, or of `messages` as the chat template renders them.
///
/// # Errors
/// Whatever is wrong with the request.
pub async fn tokenize(
    State(app): State<App>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, ApiError> {
    let mut fields = Fields::of_body(&body)?;
    let model = fields.string("model")?.ok_or_else(|| missing("model"))?;
    let route = app.route(&model)?.clone();
    let context = route.context;
    let tokens = if fields.take("messages").is_some() {
        let request = request::chat(&body, app.most_choices())?;
        app.prepare(body.len(), move || admission::chat_prompt(&route, &request)).await?
    } else {
        let prompt = fields.string("prompt")?.ok_or_else(|| missing("prompt"))?;
        let add_special = fields.boolean("add_special_tokens")?.unwrap_or(true);
        let encode = move || {
            let encoded = route.language.tokenizer.encode(&prompt, add_special);
            encoded.map_err(|e| ApiError::parameter("prompt", e.to_string()))
        };
        app.prepare(body.len(), encode).await?
    };
    Ok(Json(json!({"count": tokens.len(), "max_model_len": context, "tokens": tokens})))
}

/// The text of `tokens`, control tokens included.
///
/// # Errors
/// Whatever is wrong with the request.
pub async fn detokenize(
    State(app): State<App>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, ApiError> {
    let mut fields = Fields::of_body(&body)?;
    let model = fields.string("model")?.ok_or_else(|| missing("model"))?;
    let tokenizer = &app.route(&model)?.language.tokenizer;
    let tokens = match fields.need("tokens")? {
        Value::Array(list) => request::tokens("tokens", list)?,
        other => return Err(wrong_type("tokens", "an array of token ids", &other)),
    };
    check_tokens("tokens", &tokens, tokenizer.vocabulary().len())?;
    Ok(Json(json!({"prompt": tokenizer.decode(&tokens)})))
}
