//! From what a client asks to what is generated: prompts become tokens, gaps are filled, lengths are checked.
//!
//! Pure: the seed comes in, nothing goes out to a model.

use crate::catalog::Route;
use crate::openai::{ApiError, ChatRequest, CompletionRequest, Message, Options, Prompt};
use crate::tokenizer::Tokenizer;
use tokenrouter_policies::{Draws, Position, Token};
use tokenrouter_protocol::{Request, Sampling};

/// What a completion writes at most where the request does not say, as in OpenAI's API.
const COMPLETION_TOKENS: Position = 16;

/// The choices of one client's request, in the order of their indices.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// One for each choice.
    pub choices: Vec<Request>,
    /// Tokens of all prompts, each counted once.
    pub prompt_tokens: u32,
}

/// Turns a chat request into choices. `seed` is used where the request has none.
///
/// # Errors
/// A template that refuses, a prompt that is too long.
pub fn chat(route: &Route, request: &ChatRequest, seed: u64) -> Result<Admitted, ApiError> {
    let prompt = chat_prompt(route, request)?;
    admit(route, &request.options, seed, vec![prompt], Kind::Chat)
}

/// Turns a completion request into choices. `seed` is used where the request has none.
///
/// # Errors
/// Tokens outside the vocabulary, a prompt that is too long.
pub fn completion(
    route: &Route,
    request: &CompletionRequest,
    seed: u64,
) -> Result<Admitted, ApiError> {
    let prompts: Result<Vec<_>, _> =
        request.prompts.iter().map(|prompt| completion_prompt(route, prompt)).collect();
    admit(route, &request.options, seed, prompts?, Kind::Completion)
}

/// The tokens of a conversation.
///
/// # Errors
/// A model without a template, a template that refuses, an argument with a control token in it.
pub fn chat_prompt(route: &Route, request: &ChatRequest) -> Result<Vec<Token>, ApiError> {
    let language = &route.language;
    let template = language.template.as_ref().map_err(|e| ApiError::invalid(e.to_string()))?;
    let arguments = &request.template_arguments;
    if language.tokenizer.names_special(&serde_json::Value::Object(arguments.clone()).to_string()) {
        let message = "`chat_template_kwargs` must not contain control tokens";
        return Err(ApiError::parameter("chat_template_kwargs", message));
    }
    let rendered = template
        .render(&request.messages, arguments)
        .map_err(|e| ApiError::parameter("messages", e.to_string()))?;
    if rendered.contents.is_none() {
        refuse_control_tokens(&language.tokenizer, &request.messages)?;
    }
    let contents = rendered.contents.as_deref().unwrap_or_default();
    let tokens = language
        .tokenizer
        .encode_prompt(&rendered.text, contents)
        .map_err(|e| ApiError::parameter("messages", e.to_string()))?;
    if tokens.is_empty() {
        return Err(ApiError::parameter(
            "messages",
            "the chat template makes an empty prompt of the messages",
        ));
    }
    Ok(tokens)
}

/// Where the template rewrites what clients wrote, a control token in it could not be told from the template's own.
fn refuse_control_tokens(tokenizer: &Tokenizer, messages: &[Message]) -> Result<(), ApiError> {
    match messages.iter().position(|message| tokenizer.names_special(&message.content)) {
        None => Ok(()),
        Some(index) => {
            let param = format!("messages[{index}].content");
            let message = format!("`{param}` contains the name of a control token; leave it out");
            Err(ApiError::parameter(param, message))
        }
    }
}

/// The tokens of a prompt.
///
/// # Errors
/// A token outside the vocabulary, a text without tokens.
pub fn completion_prompt(route: &Route, prompt: &Prompt) -> Result<Vec<Token>, ApiError> {
    let tokenizer = &route.language.tokenizer;
    let tokens = match prompt {
        Prompt::Text(text) => tokenizer
            .encode(text, true)
            .map_err(|e| ApiError::parameter("prompt", e.to_string()))?,
        Prompt::Tokens(tokens) => tokens.clone(),
    };
    check_tokens("prompt", &tokens, tokenizer.vocabulary().len())?;
    if tokens.is_empty() {
        return Err(ApiError::parameter("prompt", "`prompt` has no tokens"));
    }
    Ok(tokens)
}

/// Refuses tokens outside the vocabulary.
///
/// # Errors
/// The first such token.
pub fn check_tokens(param: &str, tokens: &[Token], vocabulary: usize) -> Result<(), ApiError> {
    match tokens.iter().find(|&&token| token as usize >= vocabulary) {
        None => Ok(()),
        Some(token) => {
            let message = format!("token {token} is not in the vocabulary of {vocabulary} tokens");
            Err(ApiError::parameter(param, message))
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Chat,
    Completion,
}

fn admit(
    route: &Route,
    options: &Options,
    seed: u64,
    prompts: Vec<Vec<Token>>,
    kind: Kind,
) -> Result<Admitted, ApiError> {
    let sampling = sampling(options, route.language.defaults);
    let seed = options.seed.unwrap_or(seed);
    let mut admitted = Admitted { choices: Vec::new(), prompt_tokens: 0 };
    for prompt in prompts {
        let max_tokens = max_tokens(route.context, prompt.len(), options.max_tokens, kind)?;
        admitted.prompt_tokens += prompt.len() as u32;
        admitted.choices.extend((0..options.n).map(|choice| Request {
            route: route.index,
            prompt: prompt.clone(),
            max_tokens,
            sampling,
            draws: Draws::new(seed, choice),
            stop: options.stop.clone(),
            ignore_eos: options.ignore_eos,
        }));
    }
    Ok(admitted)
}

fn sampling(options: &Options, defaults: Sampling) -> Sampling {
    Sampling {
        temperature: options.temperature.unwrap_or(defaults.temperature),
        top_p: options.top_p.unwrap_or(defaults.top_p),
        top_k: options.top_k.unwrap_or(defaults.top_k),
        min_p: options.min_p.unwrap_or(defaults.min_p),
    }
}

fn max_tokens(
    context: Position,
    prompt: usize,
    asked: Option<u32>,
    kind: Kind,
) -> Result<Position, ApiError> {
    let param = if kind == Kind::Chat { "messages" } else { "prompt" };
    let room = (context as usize).saturating_sub(prompt);
    if room == 0 || asked.is_some_and(|asked| asked as usize > room) {
        return Err(ApiError::too_long(param, prompt, asked, context));
    }
    let room = room as Position;
    Ok(match (asked, kind) {
        (Some(asked), _) => asked,
        (None, Kind::Chat) => room,
        (None, Kind::Completion) => room.min(COMPLETION_TOKENS),
    })
}

#[cfg(test)]
mod tests;
