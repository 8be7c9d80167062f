//! Measuring: problems go through the same gateway as HTTP requests, and each reply is judged and timed. It keeps no text.

use super::score::{Replies, Reply};
use crate::admission;
use crate::catalog::Route;
use crate::commands::CommandError;
use crate::commands::problem::{Problem, is_right};
use crate::generation::Generation;
use crate::openai::{ChatRequest, Message, Options};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Map;
use std::time::Instant;
use tokenrouter_actors::{Event, Gateway};
use tokenrouter_policies::Token;

/// What every measurement needs.
pub(super) struct Bench<'a> {
    pub(super) gateway: Gateway,
    pub(super) problems: &'a [Problem],
    /// The most tokens of a reply.
    pub(super) max_tokens: u32,
    /// How many problems at a time.
    pub(super) concurrency: usize,
    pub(super) bar: ProgressBar,
}

impl Bench<'_> {
    /// Puts every problem to its route. What the bar shows of it is `name`.
    ///
    /// # Errors
    /// The first request that fails.
    pub(super) async fn run(&self, name: &str, routes: &[&Route]) -> Result<Replies, CommandError> {
        self.bar.set_message(name.to_owned());
        let begun = Instant::now();
        let mut replies: Vec<(usize, Reply)> =
            stream::iter(self.problems.iter().zip(routes).enumerate())
                .map(|(index, (problem, route))| {
                    let reply = self.reply(route, problem);
                    async move { reply.await.map(|reply| (index, reply)) }
                })
                // In the order they end: a long reply must not keep others from starting.
                .buffer_unordered(self.concurrency)
                .inspect_ok(|_| self.bar.inc(1))
                .try_collect()
                .await?;
        let took = begun.elapsed();
        replies.sort_unstable_by_key(|(index, _)| *index);
        Ok(Replies { replies: replies.into_iter().map(|(_, reply)| reply).collect(), took })
    }

    async fn reply(&self, route: &Route, problem: &Problem) -> Result<Reply, CommandError> {
        let fault = |e: &dyn std::fmt::Display| CommandError::Other(format!("{}: {e}", route.name));
        let mut admitted =
            admission::chat(route, &request(problem), 0).map_err(|e| fault(&e))?.choices;
        // Without a limit of its own a reply gets the rest of the context, which may be less than the limit here.
        for choice in &mut admitted {
            choice.max_tokens = choice.max_tokens.min(self.max_tokens);
        }
        let begun = Instant::now();
        let mut events = Generation::open(&self.gateway, admitted).await.map_err(|e| fault(&e))?;
        let (mut text, mut first, mut last) = (String::new(), None, begun.elapsed());
        while let Some((_, event)) = events.next().await {
            match event {
                Event::Progress(progress) => {
                    last = begun.elapsed();
                    first.get_or_insert(last);
                    text.push_str(&progress.text);
                }
                Event::Done(result) => {
                    let outcome = result.map_err(|e| fault(&e))?;
                    let right = is_right(&text, &problem.answer);
                    return Ok(Reply { right, outcome, first: first.unwrap_or(last), last });
                }
            }
        }
        Err(fault(&"a reply ended without a result"))
    }
}

/// The tokens of a problem's prompt.
///
/// # Errors
/// A route whose model has no chat template, a question that it refuses.
pub(in crate::commands) fn prompt(
    route: &Route,
    problem: &Problem,
) -> Result<Vec<Token>, CommandError> {
    admission::chat_prompt(route, &request(problem))
        .map_err(|e| CommandError::Other(format!("{}: {e}", route.name)))
}

fn request(problem: &Problem) -> ChatRequest {
    let message = Message { role: "user".to_owned(), content: problem.question.clone() };
    let options = Options { n: 1, seed: Some(0), ..Options::default() };
    ChatRequest { messages: vec![message], template_arguments: Map::new(), options }
}

/// A bar of `length` replies on standard error; nothing where that is no terminal.
pub(in crate::commands) fn bar(length: usize) -> ProgressBar {
    let bar = ProgressBar::new(length as u64);
    match ProgressStyle::with_template("{msg:<28} {wide_bar} {pos}/{len} replies, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
