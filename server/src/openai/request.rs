//! Requests of the OpenAI API, read and checked: everything that needs neither a model nor a tokeniser.
//!
//! Pure functions from bytes to a request or to the error that a client gets. What would change the answer and is not
//! supported is refused by name; what is unknown is passed over and handed back for the log.

use super::error::ApiError;
use super::fields::{Fields, missing, wrong_type};
use serde_json::{Map, Value, json};
use tokenrouter_policies::Token;

/// The most stop strings.
pub const MAX_STOPS: usize = 16;

/// A request for a chat reply.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The conversation, at least one message.
    pub messages: Vec<Message>,
    /// What the chat template gets besides.
    pub template_arguments: Map<String, Value>,
    /// Everything that both kinds of request have.
    pub options: Options,
}

/// One message; text parts are joined by line breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks.
    pub role: String,
    /// What.
    pub content: String,
}

/// A request to continue text.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// The prompts, at least one, none empty.
    pub prompts: Vec<Prompt>,
    /// Everything that both kinds of request have.
    pub options: Options,
}

/// A prompt of a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// To be tokenised.
    Text(String),
    /// Ready tokens.
    Tokens(Vec<Token>),
}

/// What both kinds of request have. `None` means that the request does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The route.
    pub model: String,
    /// The most tokens to write.
    pub max_tokens: Option<u32>,
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// In `(0, 1]`.
    pub top_p: Option<f32>,
    /// 0 keeps all.
    pub top_k: Option<u32>,
    /// In `[0, 1]`.
    pub min_p: Option<f32>,
    /// The seed, its bits taken as they are.
    pub seed: Option<u64>,
    /// How many choices, at least 1.
    pub n: u32,
    /// Stop strings, none empty.
    pub stop: Vec<String>,
    /// Go on past the end-of-sequence token.
    pub ignore_eos: bool,
    /// Answer in pieces.
    pub stream: bool,
    /// End the stream with a chunk that has the usage.
    pub include_usage: bool,
    /// Fields that nobody knows, for the log.
    pub unknown: Vec<String>,
}

/// Reads a chat request.
///
/// # Errors
/// 400 with the parameter at fault.
pub fn chat(body: &[u8], most_choices: u32) -> Result<ChatRequest, ApiError> {
    let mut fields = Fields::of_body(body)?;
    let model = model(&mut fields)?;
    let messages = messages(&mut fields)?;
    let template_arguments = match fields.take("chat_template_kwargs") {
        None => Map::new(),
        Some(Value::Object(map)) => map,
        Some(other) => return Err(wrong_type("chat_template_kwargs", "an object", &other)),
    };
    let options = options(fields, model, most_choices)?;
    Ok(ChatRequest { messages, template_arguments, options })
}

/// Reads a completion request.
///
/// # Errors
/// 400 with the parameter at fault.
pub fn completion(body: &[u8], most_choices: u32) -> Result<CompletionRequest, ApiError> {
    let mut fields = Fields::of_body(body)?;
    let model = model(&mut fields)?;
    let prompts = prompts(fields.need("prompt")?)?;
    let options = options(fields, model, most_choices)?;
    let choices = prompts.len() as u64 * u64::from(options.n);
    if choices > u64::from(most_choices) {
        let message =
            format!("prompts times `n` is {choices}, more than the {most_choices} choices allowed");
        return Err(ApiError::parameter("prompt", message));
    }
    Ok(CompletionRequest { prompts, options })
}

fn model(fields: &mut Fields) -> Result<String, ApiError> {
    fields.string("model")?.ok_or_else(|| missing("model"))
}

fn options(mut fields: Fields, model: String, most_choices: u32) -> Result<Options, ApiError> {
    refuse_unsupported(&mut fields)?;
    let old = positive(&mut fields, "max_tokens")?;
    let new = positive(&mut fields, "max_completion_tokens")?;
    let stream = fields.boolean("stream")?.unwrap_or(false);
    let mut options = Options {
        model,
        max_tokens: new.or(old),
        temperature: fields.number("temperature", 0.0..=2.0)?.map(|value| value as f32),
        top_p: top_p(&mut fields)?,
        top_k: fields.integer("top_k", -1..=i64::from(u32::MAX))?.map(|k| k.max(0) as u32),
        min_p: fields.number("min_p", 0.0..=1.0)?.map(|value| value as f32),
        seed: fields.integer("seed", i64::MIN..=i64::MAX)?.map(|seed| seed as u64),
        n: fields.integer("n", 1..=i64::from(most_choices))?.unwrap_or(1) as u32,
        stop: stops(fields.take("stop"))?,
        ignore_eos: fields.boolean("ignore_eos")?.unwrap_or(false),
        stream,
        include_usage: include_usage(&mut fields, stream)?,
        unknown: Vec::new(),
    };
    let user = fields.string("user")?;
    if let Some(user) = user {
        tracing::trace!(user, "the request names a user");
    }
    options.unknown = fields.rest().into_iter().map(str::to_owned).collect();
    Ok(options)
}

fn positive(fields: &mut Fields, key: &str) -> Result<Option<u32>, ApiError> {
    Ok(fields.integer(key, 1..=i64::from(u32::MAX))?.map(|value| value as u32))
}

fn top_p(fields: &mut Fields) -> Result<Option<f32>, ApiError> {
    match fields.number("top_p", 0.0..=1.0)? {
        Some(value) if value <= 0.0 => {
            Err(ApiError::parameter("top_p", "`top_p` must be above 0 and at most 1"))
        }
        // The smallest positive value, so that a tiny one does not round to none at all.
        Some(value) => Ok(Some((value as f32).max(f32::MIN_POSITIVE))),
        None => Ok(None),
    }
}

fn stops(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(one) => vec![one],
    };
    if list.len() > MAX_STOPS {
        let message = format!("`stop` has {} strings, at most {MAX_STOPS} are allowed", list.len());
        return Err(ApiError::parameter("stop", message));
    }
    list.into_iter().map(stop).collect()
}

fn stop(value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) if text.is_empty() => Err(ApiError::parameter(
            "stop",
            "`stop` contains an empty string, which would match at once",
        )),
        Value::String(text) => Ok(text),
        other => Err(wrong_type("stop", "a string or an array of strings", &other)),
    }
}

fn include_usage(fields: &mut Fields, stream: bool) -> Result<bool, ApiError> {
    let Some(value) = fields.take("stream_options") else { return Ok(false) };
    if !stream {
        let message = "`stream_options` is only allowed with `stream: true`";
        return Err(ApiError::parameter("stream_options", message));
    }
    let mut inner = Fields::of_value("stream_options", value)?;
    Ok(inner.boolean("include_usage")?.unwrap_or(false))
}

fn messages(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let list = match fields.need("messages")? {
        Value::Array(list) => list,
        other => return Err(wrong_type("messages", "an array of messages", &other)),
    };
    if list.is_empty() {
        return Err(ApiError::parameter(
            "messages",
            "`messages` is empty; send at least one message",
        ));
    }
    let read = |(index, value)| message(&format!("messages[{index}]"), value);
    list.into_iter().enumerate().map(read).collect()
}

fn message(param: &str, value: Value) -> Result<Message, ApiError> {
    let mut fields = Fields::of_value(param, value)?;
    let role = fields.string("role")?.ok_or_else(|| missing(&fields.name("role")))?;
    // A template writes the role between control tokens: only a plain word may stand there.
    if role.is_empty()
        || role.len() > 32
        || !role.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    {
        let message = format!("`{param}.role` must be a word such as system, user or assistant");
        return Err(ApiError::parameter(fields.name("role"), message));
    }
    for key in ["tool_calls", "function_call", "audio"] {
        match fields.take(key) {
            None => {}
            Some(Value::Array(list)) if list.is_empty() => {}
            Some(_) => {
                let name = fields.name(key);
                let message = format!("`{name}` is not supported");
                return Err(ApiError::unsupported(name, message));
            }
        }
    }
    let content = content(&fields.name("content"), fields.need("content")?)?;
    Ok(Message { role, content })
}

fn content(param: &str, value: Value) -> Result<String, ApiError> {
    let parts = match value {
        Value::String(text) => return Ok(text),
        Value::Array(parts) if !parts.is_empty() => parts,
        Value::Array(_) => return Err(ApiError::parameter(param, format!("`{param}` is empty"))),
        other => return Err(wrong_type(param, "a string or an array of text parts", &other)),
    };
    let texts: Result<Vec<String>, ApiError> = parts
        .into_iter()
        .enumerate()
        .map(|(index, part)| text_part(&format!("{param}[{index}]"), part))
        .collect();
    Ok(texts?.join("\n"))
}

fn text_part(param: &str, value: Value) -> Result<String, ApiError> {
    let mut fields = Fields::of_value(param, value)?;
    let kind = fields.string("type")?.ok_or_else(|| missing(&fields.name("type")))?;
    if kind != "text" {
        let message = format!("`{param}` is of type `{kind}`; only text is supported");
        return Err(ApiError::unsupported(fields.name("type"), message));
    }
    fields.string("text")?.ok_or_else(|| missing(&fields.name("text")))
}

fn prompts(value: Value) -> Result<Vec<Prompt>, ApiError> {
    let list = match value {
        Value::String(text) => return Ok(vec![Prompt::Text(not_empty("prompt", text)?)]),
        Value::Array(list) => list,
        other => {
            return Err(wrong_type(
                "prompt",
                "a string, strings, tokens or lists of tokens",
                &other,
            ));
        }
    };
    match list.first() {
        None => Err(ApiError::parameter("prompt", "`prompt` is empty")),
        Some(Value::Number(_)) => Ok(vec![Prompt::Tokens(tokens("prompt", list)?)]),
        Some(_) => list
            .into_iter()
            .enumerate()
            .map(|(index, value)| prompt(&format!("prompt[{index}]"), value))
            .collect(),
    }
}

fn prompt(param: &str, value: Value) -> Result<Prompt, ApiError> {
    match value {
        Value::String(text) => Ok(Prompt::Text(not_empty(param, text)?)),
        Value::Array(list) if list.is_empty() => {
            Err(ApiError::parameter(param, format!("`{param}` is empty")))
        }
        Value::Array(list) => Ok(Prompt::Tokens(tokens(param, list)?)),
        other => Err(wrong_type(param, "a string or a list of tokens", &other)),
    }
}

fn not_empty(param: &str, text: String) -> Result<String, ApiError> {
    if text.is_empty() {
        return Err(ApiError::parameter(param, format!("`{param}` is empty")));
    }
    Ok(text)
}

/// Reads a list of token ids.
///
/// # Errors
/// 400 for anything that is no token id.
pub fn tokens(param: &str, list: Vec<Value>) -> Result<Vec<Token>, ApiError> {
    let read = |(index, value): (usize, Value)| {
        value.as_u64().and_then(|id| Token::try_from(id).ok()).ok_or_else(|| {
            let message = format!("`{param}[{index}]` is {value}, which is not a token id");
            ApiError::parameter(param, message)
        })
    };
    list.into_iter().enumerate().map(read).collect()
}

/// Refuses what would change the answer and is not supported, unless it has the one value that changes nothing.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    let harmless: [(&str, &[Value]); 37] = [
        ("tools", &[json!([])]),
        ("tool_choice", &[json!("none"), json!("auto")]),
        ("functions", &[json!([])]),
        ("function_call", &[json!("none"), json!("auto")]),
        ("response_format", &[json!({"type": "text"})]),
        ("logprobs", &[json!(false)]),
        ("top_logprobs", &[json!(0)]),
        ("prompt_logprobs", &[]),
        ("logit_bias", &[json!({})]),
        ("presence_penalty", &[json!(0), json!(0.0)]),
        ("frequency_penalty", &[json!(0), json!(0.0)]),
        ("repetition_penalty", &[json!(1), json!(1.0)]),
        ("length_penalty", &[json!(1), json!(1.0)]),
        ("best_of", &[json!(1)]),
        ("use_beam_search", &[json!(false)]),
        ("suffix", &[json!("")]),
        ("echo", &[json!(false)]),
        ("stop_token_ids", &[json!([])]),
        ("stop_regex", &[json!([])]),
        ("bad_words", &[json!([])]),
        ("min_tokens", &[json!(0)]),
        ("include_stop_str_in_output", &[json!(false)]),
        ("skip_special_tokens", &[json!(true)]),
        ("truncate_prompt_tokens", &[]),
        ("continue_final_message", &[json!(false)]),
        ("add_generation_prompt", &[json!(true)]),
        ("chat_template", &[]),
        ("documents", &[json!([])]),
        ("modalities", &[json!(["text"])]),
        ("audio", &[]),
        ("web_search_options", &[]),
        ("guided_json", &[]),
        ("guided_regex", &[]),
        ("guided_choice", &[]),
        ("guided_grammar", &[]),
        ("structured_outputs", &[]),
        ("grammar", &[]),
    ];
    for (key, allowed) in harmless {
        match fields.take(key) {
            Some(value) if !allowed.contains(&value) => {
                return Err(ApiError::unsupported(
                    key,
                    format!("`{key}` is not supported; leave it out"),
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
