//! The chat template of a model: a conversation to the text of a prompt, as Hugging Face's renderer does it.
//!
//! It also tells which parts of the text clients wrote, so that those never become control tokens.

use crate::date;
use crate::openai::Message;
use minijinja::value::{Kwargs, Value as Jinja, ViaDeserialize};
use minijinja::{Environment, ErrorKind, context};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::ops::Range;

/// Why a template cannot be used, or refuses a conversation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The model has none.
    #[error(
        "the model has no chat template; use /v1/completions, or put one into tokenizer_config.json"
    )]
    Missing,
    /// The configuration around it is broken.
    #[error("tokenizer_config.json cannot be read: {0}")]
    Config(String),
    /// It is no template.
    #[error("the chat template cannot be read: {0}")]
    Syntax(String),
    /// It refuses the messages; the text is its own.
    #[error("the chat template refuses the messages: {0}")]
    Refused(String),
}

/// A rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The prompt.
    pub text: String,
    /// The byte ranges of `text` that are contents of messages; `None` where the template changes them so much that
    /// they cannot be found again.
    pub contents: Option<Vec<Range<usize>>>,
}

/// A compiled chat template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    /// Names such as `bos_token` that templates use.
    tokens: Map<String, Value>,
}

const NAME: &str = "chat";

impl Template {
    /// Reads the template from `tokenizer_config.json`, or from a `chat_template.jinja` beside it, which wins.
    ///
    /// # Errors
    /// No template at all, or one that does not parse.
    pub fn new(tokenizer_config: Option<&str>, jinja: Option<&str>) -> Result<Self, TemplateError> {
        let config: Value = match tokenizer_config {
            None => Value::Null,
            Some(text) => {
                serde_json::from_str(text).map_err(|e| TemplateError::Config(e.to_string()))?
            }
        };
        let source = match jinja {
            Some(text) => text.to_owned(),
            None => source(&config["chat_template"]).ok_or(TemplateError::Missing)?,
        };
        let mut environment = environment();
        environment
            .add_template_owned(NAME, source)
            .map_err(|e| TemplateError::Syntax(told(&e)))?;
        Ok(Self { environment, tokens: special_tokens(&config) })
    }

    /// Renders a conversation, ready for the assistant's reply. `arguments` are the client's own variables.
    ///
    /// # Errors
    /// A template that refuses the messages, with its own words.
    pub fn render(
        &self,
        messages: &[Message],
        arguments: &Map<String, Value>,
    ) -> Result<Rendered, TemplateError> {
        let contents: Vec<&str> = messages.iter().map(|message| message.content.as_str()).collect();
        let text = self.render_with(messages, &contents, arguments)?;
        let contents = self.locate(messages, arguments, &text);
        Ok(Rendered { text, contents })
    }

    fn render_with(
        &self,
        messages: &[Message],
        contents: &[&str],
        arguments: &Map<String, Value>,
    ) -> Result<String, TemplateError> {
        let messages: Vec<Jinja> = messages
            .iter()
            .zip(contents)
            .map(|(message, content)| context! { role => message.role, content => content })
            .collect();
        let mut variables = Map::new();
        variables.extend(self.tokens.clone());
        variables.extend(arguments.clone());
        let fixed =
            context! { messages, add_generation_prompt => true, tools => (), documents => () };
        let variables = context! { ..fixed, ..Jinja::from_serialize(&variables) };
        let template =
            self.environment.get_template(NAME).map_err(|e| TemplateError::Syntax(told(&e)))?;
        template.render(variables).map_err(|e| TemplateError::Refused(told(&e)))
    }

    /// Finds the contents in `text`: a second rendering has marks in their place, and what stands between the marks is
    /// the template's own. A template that trims is followed; one that does more gives `None`.
    fn locate(
        &self,
        messages: &[Message],
        arguments: &Map<String, Value>,
        text: &str,
    ) -> Option<Vec<Range<usize>>> {
        let prefix = unused_prefix(text);
        let marks: Vec<String> = (0..messages.len()).map(|index| mark(&prefix, index)).collect();
        let references: Vec<&str> = marks.iter().map(String::as_str).collect();
        let marked = self.render_with(messages, &references, arguments).ok()?;
        let pieces = cut(&marked, &prefix, messages.len());
        let whole = |index: usize| messages[index].content.as_str();
        let trimmed = |index: usize| messages[index].content.trim();
        ranges(&pieces, text, whole).or_else(|| ranges(&pieces, text, trimmed))
    }
}

/// What opens and closes a mark: characters of private use, which a template has no reason to touch.
const MARK_START: char = '\u{e000}';
const MARK_END: char = '\u{e001}';

/// The beginning of all marks, which `text` does not contain. The text is read once, however many such beginnings a
/// client has put into it.
fn unused_prefix(text: &str) -> String {
    let numbers = text.split(MARK_START).skip(1).filter_map(|rest| rest.split_once(':'));
    let taken: HashSet<u32> = numbers.filter_map(|(number, _)| number.parse().ok()).collect();
    let free = (0..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
    format!("{MARK_START}{free}:")
}

fn mark(prefix: &str, index: usize) -> String {
    format!("{prefix}{index}{MARK_END}")
}

/// What a marked text consists of.
enum Part<'a> {
    Own(&'a str),
    Content(usize),
}

/// Cuts a marked text at its marks, of which there are `count` different ones.
fn cut<'a>(marked: &'a str, prefix: &str, count: usize) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut pieces = marked.split(prefix);
    parts.extend(pieces.next().map(Part::Own));
    for piece in pieces {
        let mark = piece.split_once(MARK_END);
        match mark.and_then(|(index, own)| Some((index.parse::<usize>().ok()?, own))) {
            Some((index, own)) if index < count => {
                parts.extend([Part::Content(index), Part::Own(own)]);
            }
            // A mark that the template took apart: what it stood for cannot be found, and nothing will match.
            _ => parts.push(Part::Own(piece)),
        }
    }
    parts
}

/// The ranges of the contents in `text`, if `parts` with the contents in them are `text`.
fn ranges<'a>(
    parts: &[Part<'_>],
    text: &str,
    content: impl Fn(usize) -> &'a str,
) -> Option<Vec<Range<usize>>> {
    let mut found = Vec::new();
    let mut at = 0;
    for part in parts {
        let piece = match part {
            Part::Own(own) => own,
            Part::Content(index) => content(*index),
        };
        if !text[at..].starts_with(piece) {
            return None;
        }
        if matches!(part, Part::Content(_)) {
            found.push(at..at + piece.len());
        }
        at += piece.len();
    }
    (at == text.len()).then_some(found)
}

/// The template's source: a string, or a list of named ones of which `default` is taken.
fn source(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let default = list.iter().find(|entry| entry["name"] == "default");
            default.or(list.first())?["template"].as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// `bos_token` and its like, which are strings or objects with a `content`.
fn special_tokens(config: &Value) -> Map<String, Value> {
    let mut tokens = Map::new();
    for (key, value) in config.as_object().into_iter().flatten() {
        let text = value.as_str().or_else(|| value["content"].as_str());
        if let (true, Some(text)) = (key.ends_with("_token"), text) {
            tokens.insert(key.clone(), Value::from(text));
        }
    }
    tokens
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", to_json);
    environment
}

fn raise_exception(message: String) -> Result<Jinja, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: &str) -> String {
    date::format(format, date::now())
}

/// As Python's `json.dumps` spaces it, and without the HTML escapes of the engine's own filter.
fn to_json(value: ViaDeserialize<Value>, arguments: Kwargs) -> Result<String, minijinja::Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    let mut bytes = Vec::new();
    let written = match indent {
        Some(width) => {
            let spaces = vec![b' '; width.min(16)];
            let formatter = serde_json::ser::PrettyFormatter::with_indent(&spaces);
            serde::Serialize::serialize(
                &value.0,
                &mut serde_json::Serializer::with_formatter(&mut bytes, formatter),
            )
        }
        None => serde::Serialize::serialize(
            &value.0,
            &mut serde_json::Serializer::with_formatter(&mut bytes, Spaced),
        ),
    };
    let fault = |e: &dyn std::fmt::Display| {
        minijinja::Error::new(ErrorKind::BadSerialization, e.to_string())
    };
    written.map_err(|e| fault(&e))?;
    String::from_utf8(bytes).map_err(|e| fault(&e))
}

/// One line, with a space after each comma and colon.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        w: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { w.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, w: &mut W) -> std::io::Result<()> {
        w.write_all(b": ")
    }
}

/// An error in the template's own words, without the engine's.
fn told(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests;
