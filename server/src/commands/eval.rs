//! `tokenrouter eval`: how often each route is right, and who wrote its tokens. Runs in this process, through the same
//! gateway as HTTP requests.

use super::{CommandError, block_on, print, start_log};
use crate::admission;
use crate::boot::Plan;
use crate::catalog::{Catalog, Route};
use crate::cli::Eval;
use crate::generation::Generation;
use crate::openai::response::{Choice, llm_ratio, total};
use crate::openai::{ChatRequest, Message, Options};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokenrouter_actors::{Gateway, Node};
use tokenrouter_config::Topology;
use tokenrouter_policies::ModelIx;
use tokenrouter_protocol::{Finish, Outcome, Share};

/// A problem and its answer.
#[derive(Clone, Debug, Deserialize)]
struct Problem {
    question: String,
    answer: String,
}

/// What one route achieved.
struct Score {
    route: Route,
    problems: usize,
    right: usize,
    cut: usize,
    shares: Vec<(ModelIx, Share)>,
    took: Duration,
}

/// What every run needs.
struct Run {
    gateway: Gateway,
    catalog: Arc<Catalog>,
    largest: ModelIx,
    max_tokens: u32,
    concurrency: usize,
}

/// Measures and prints.
///
/// # Errors
/// A topology or a file of problems that cannot be used, a request that fails.
pub fn run(arguments: &Eval) -> Result<(), CommandError> {
    let topology = Topology::load(&arguments.sources())?;
    start_log(&topology)?;
    let plan = Plan::new(topology)?;
    let routes = routes(&plan, &arguments.routes)?;
    let problems = problems(arguments)?;
    let scores = block_on(measure(plan, arguments, routes, &problems))??;
    print(&format!("{scores}\n"))
}

async fn measure(
    plan: Plan,
    arguments: &Eval,
    routes: Vec<Route>,
    problems: &[Problem],
) -> Result<String, CommandError> {
    let (catalog, largest) = (Arc::clone(plan.catalog()), plan.largest());
    let most = plan.topology().limits.requests;
    let node = Node::start(plan.load()?).await.map_err(|e| CommandError::Other(e.to_string()))?;
    let run = Run {
        gateway: node.gateway(),
        catalog,
        largest,
        max_tokens: arguments.max_tokens,
        concurrency: (arguments.concurrency as usize).min(most),
    };
    let bar = bar(routes.len() * problems.len());
    let mut scores = Vec::new();
    for route in routes {
        bar.set_message(route.name.clone());
        scores.push(run.score(route, problems, &bar).await?);
    }
    bar.finish_and_clear();
    node.stop().await;
    Ok(if arguments.json { run.json(&scores).to_string() } else { run.table(&scores) })
}

impl Run {
    async fn score(
        &self,
        route: Route,
        problems: &[Problem],
        bar: &ProgressBar,
    ) -> Result<Score, CommandError> {
        let begun = Instant::now();
        let replies: Vec<(bool, Choice)> = stream::iter(problems)
            .map(|problem| self.reply(&route, problem))
            .buffer_unordered(self.concurrency)
            .inspect_ok(|_| bar.inc(1))
            .try_collect()
            .await?;
        let took = begun.elapsed();
        let outcomes: Vec<&Outcome> = replies.iter().map(|(_, choice)| &choice.outcome).collect();
        let shares = total(&route, &outcomes);
        Ok(Score {
            problems: replies.len(),
            right: replies.iter().filter(|(right, _)| *right).count(),
            cut: outcomes.iter().filter(|outcome| outcome.finish == Finish::Length).count(),
            route,
            shares,
            took,
        })
    }

    async fn reply(
        &self,
        route: &Route,
        problem: &Problem,
    ) -> Result<(bool, Choice), CommandError> {
        let fault = |e: &dyn std::fmt::Display| CommandError::Other(format!("{}: {e}", route.name));
        let message = Message { role: "user".to_owned(), content: problem.question.clone() };
        let options = Options { n: 1, seed: Some(0), ..Options::default() };
        let request =
            ChatRequest { messages: vec![message], template_arguments: Map::new(), options };
        let mut admitted = admission::chat(route, &request, 0).map_err(|e| fault(&e))?;
        // Without a limit of its own a reply gets the rest of the context, which may be less than the limit here.
        for choice in &mut admitted.choices {
            choice.max_tokens = choice.max_tokens.min(self.max_tokens);
        }
        let generation =
            Generation::open(&self.gateway, admitted.choices).await.map_err(|e| fault(&e))?;
        let choices = generation.collect().await.map_err(|e| fault(&e))?;
        let choice =
            choices.into_iter().next().ok_or_else(|| fault(&"a reply ended without a result"))?;
        Ok((is_right(&choice.text, &problem.answer), choice))
    }

    fn json(&self, scores: &[Score]) -> Value {
        let routes: Vec<Value> = scores
            .iter()
            .map(|score| {
                let shares: Map<String, Value> = score
                    .shares
                    .iter()
                    .map(|&(model, _)| (self.catalog.model(model).to_owned(), json!(score.share(model))))
                    .collect();
                json!({
                    "route": score.route.name, "problems": score.problems, "right": score.right,
                    "accuracy": score.accuracy(), "large_share": score.share(self.largest), "shares": shares,
                    "llm_ratio": llm_ratio(score.route.entry, &score.shares),
                    "handoffs_per_reply": score.handoffs(), "tokens_per_s": score.speed(),
                    "tokens": score.tokens(), "cut_by_length": score.cut, "seconds": score.took.as_secs_f64(),
                })
            })
            .collect();
        json!({ "routes": routes })
    }

    fn table(&self, scores: &[Score]) -> String {
        let wide = scores.iter().map(|score| score.route.name.len()).max().unwrap_or(0).max(5);
        let mut text = format!(
            "{:<wide$}  accuracy  handoffs/reply  tokens/s  cut  tokens written by\n",
            "route"
        );
        for score in scores {
            let shares: Vec<String> = score
                .shares
                .iter()
                .map(|&(model, _)| {
                    format!("{} {:.1}%", self.catalog.model(model), 100.0 * score.share(model))
                })
                .collect();
            text += &format!(
                "{:<wide$}  {:>8.3}  {:>14.2}  {:>8.1}  {:>3}  {}\n",
                score.route.name,
                score.accuracy(),
                score.handoffs(),
                score.speed(),
                score.cut,
                shares.join(", ")
            );
        }
        text.trim_end().to_owned()
    }
}

impl Score {
    fn accuracy(&self) -> f64 {
        self.right as f64 / self.problems.max(1) as f64
    }

    fn tokens(&self) -> u64 {
        self.shares.iter().map(|(_, share)| u64::from(share.committed)).sum()
    }

    /// The share of the tokens that `model` wrote.
    fn share(&self, model: ModelIx) -> f64 {
        let own = self.shares.iter().find(|(known, _)| *known == model);
        let committed = own.map_or(0, |(_, share)| share.committed);
        f64::from(committed) / self.tokens().max(1) as f64
    }

    fn handoffs(&self) -> f64 {
        let handoffs: u64 = self.shares.iter().map(|(_, share)| u64::from(share.handoffs)).sum();
        handoffs as f64 / self.problems.max(1) as f64
    }

    fn speed(&self) -> f64 {
        self.tokens() as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// Whether a reply gives the answer, and not one that only begins like it.
fn is_right(reply: &str, answer: &str) -> bool {
    reply.contains(&format!("The answer is {answer}."))
}

fn routes(plan: &Plan, names: &[String]) -> Result<Vec<Route>, CommandError> {
    let catalog = plan.catalog();
    if names.is_empty() {
        return Ok(catalog.routes.clone());
    }
    let find = |name: &String| {
        let name = name.trim();
        catalog.find(name).cloned().ok_or_else(|| {
            let known = catalog.names().join(", ");
            CommandError::Other(format!("there is no route `{name}`; there are {known}"))
        })
    };
    names.iter().map(find).collect()
}

fn problems(arguments: &Eval) -> Result<Vec<Problem>, CommandError> {
    let (name, text) = match &arguments.problems_file {
        None => ("the built-in problems".to_owned(), tokenrouter_models::PROBLEMS.to_owned()),
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|e| {
                CommandError::Other(format!("{name}: the file cannot be read: {e}"))
            })?;
            (name, text)
        }
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(index, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|e| CommandError::Other(format!("{name}:{}: not a problem: {e}", index + 1)))
    };
    let problems: Vec<Problem> =
        lines.take(arguments.problems as usize).map(parse).collect::<Result<_, _>>()?;
    if problems.is_empty() {
        return Err(CommandError::Other(format!("{name}: there are no problems in it")));
    }
    Ok(problems)
}

fn bar(length: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:<16} {wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::new(length as u64);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_right_only_with_the_whole_answer() {
        assert!(is_right("<think>\n\n</think>\n\nThe answer is 17.", "17"));
        assert!(!is_right("The answer is 171.", "17"));
        assert!(!is_right("17", "17"));
    }
}
