//! `tokenrouter eval`: how often each route is right, who wrote its tokens, and how fast; compared, where it is wanted,
//! with one model alone and with query-level routing. Runs in this process, through the same gateway as HTTP requests, and
//! leaves nothing behind but the files that `--out` asks for.

use super::problem::{Problem, Selection};
use super::{CommandError, block_on, print, start_log};
use crate::boot::Plan;
use crate::catalog::{Catalog, Route};
use crate::cli::Eval;
use measure::Bench;
use query::{MIXES, Mix, QueryLevel};
use report::{References, Report};
use score::{Replies, Score};
use std::path::Path;
use std::sync::Arc;
use sweep::Variant;
use tokenrouter_actors::Node;
use tokenrouter_config::Topology;
use tokenrouter_policies::ModelIx;

pub(super) mod measure;
mod picture;
mod query;
mod report;
mod score;
mod sweep;

pub use sweep::Sweep;

/// Measures and prints.
///
/// # Errors
/// A topology, a route, a sweep or a file of problems that cannot be used, a request that fails, a folder that cannot be
/// written.
pub fn run(arguments: &Eval) -> Result<(), CommandError> {
    // All models in this process, wherever else they live.
    let mut topology = Topology::load(&arguments.sources())?.alone();
    start_log(&topology)?;
    let (file, count) = (arguments.problems_file.as_deref(), arguments.problems.as_ref());
    let problems = Selection::new(file, count, arguments.skip)?.load()?;
    let mut routes = routes(&topology, arguments)?;
    let variants = sweep::add(&mut topology, &arguments.sweep)?;
    routes.extend(variants.into_iter().map(|variant| (variant.name(), Some(variant))));
    let plan = Plan::new(topology)?;
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder).map_err(|e| {
            let folder = folder.display();
            CommandError::Input(format!("flag --out: {folder}: the folder cannot be made: {e}"))
        })?;
    }
    let compared = arguments.out.is_some() || !arguments.sweep.is_empty();
    let pair = if compared { Pair::new(&plan, &problems)? } else { None };
    let report = block_on(measure(plan, arguments, &Task { routes, pair, problems }))??;
    if let Some(folder) = &arguments.out {
        write(folder, &report)?;
    }
    print(&if arguments.json { format!("{}\n", report.json()) } else { report.tables() })
}

/// What is measured.
struct Task {
    /// The routes by name, with what a sweep set for them.
    routes: Vec<(String, Option<Variant>)>,
    /// What they are compared with.
    pair: Option<Pair>,
    problems: Vec<Problem>,
}

/// The smallest and the largest model, each a route of its own.
struct Pair {
    small: Route,
    large: Route,
    /// The problems by their places, in the order in which query-level routing sends them to the large model.
    order: Vec<usize>,
}

impl Pair {
    /// The pair of a plan; `None` where there is only one model.
    fn new(plan: &Plan, problems: &[Problem]) -> Result<Option<Self>, CommandError> {
        let [smallest, .., largest] = plan.by_size()[..] else { return Ok(None) };
        let catalog = plan.catalog();
        let alone = |model| catalog.find(catalog.model(model)).cloned();
        let (Some(small), Some(large)) = (alone(smallest), alone(largest)) else { return Ok(None) };
        let order = query::order(plan, &small, problems)?;
        Ok(Some(Self { small, large, order }))
    }
}

/// One thing that is measured: a route, or a mix of two.
struct Target<'a> {
    /// What it is called.
    name: String,
    /// Where each problem goes.
    routes: Vec<&'a Route>,
    /// The route that its shares are seen from.
    base: &'a Route,
    sweep: Option<Variant>,
}

impl Task {
    /// The routes in the order of the report: the pair first, unless it is named among the others.
    fn targets<'a>(&'a self, catalog: &'a Catalog) -> Vec<Target<'a>> {
        let pair = self.pair.iter().flat_map(|pair| [&pair.small.name, &pair.large.name]);
        let pair = pair.filter(|alone| self.routes.iter().all(|(name, _)| name != *alone));
        let named = self.routes.iter().map(|(name, variant)| (name, variant.clone()));
        let all = pair.map(|alone| (alone, None)).chain(named);
        let target = |(name, sweep): (&String, Option<Variant>)| {
            let base = catalog.find(name)?;
            let routes = vec![base; self.problems.len()];
            Some(Target { name: name.clone(), routes, base, sweep })
        };
        all.filter_map(target).collect()
    }
}

impl Pair {
    /// Query-level routing at the cut-offs that are run.
    fn mixes(&self) -> Vec<Target<'_>> {
        let mix = |&questions: &f64| {
            let to_large = query::chosen(&self.order, questions);
            let route = |large: bool| if large { &self.large } else { &self.small };
            let routes = to_large.into_iter().map(route).collect();
            let name = format!("query-level, {:.0}%", 100.0 * questions);
            Target { name, routes, base: &self.small, sweep: None }
        };
        MIXES.iter().map(mix).collect()
    }

    /// What routes are compared with. `measured` has the two models alone, `mixes` what came of [`Self::mixes`].
    fn references(
        &self,
        measured: &[(Score, Replies)],
        mixes: Vec<(Score, Replies)>,
    ) -> References {
        let alone = |route: &Route| measured.iter().find(|(score, _)| score.route == route.name);
        let curve = match (alone(&self.small), alone(&self.large)) {
            (Some((_, small)), Some((_, large))) => query::curve(&self.order, small, large),
            _ => Vec::new(),
        };
        let scores = mixes.into_iter().map(|(score, _)| score);
        let measured =
            MIXES.into_iter().zip(scores).map(|(questions, score)| Mix { questions, score });
        References {
            small: self.small.name.clone(),
            large: self.large.name.clone(),
            query_level: QueryLevel { curve, measured: measured.collect() },
        }
    }
}

async fn measure(plan: Plan, arguments: &Eval, task: &Task) -> Result<Report, CommandError> {
    let catalog = Arc::clone(plan.catalog());
    let largest = plan.by_size().last().copied().unwrap_or(ModelIx(0));
    let most = plan.topology().limits.requests;
    let mut targets = task.targets(&catalog);
    let alone = targets.len();
    targets.extend(task.pair.iter().flat_map(Pair::mixes));
    let node = Node::start(plan.load()?).await.map_err(|e| CommandError::Other(e.to_string()))?;
    let bench = Bench {
        gateway: node.gateway(),
        problems: &task.problems,
        max_tokens: arguments.max_tokens,
        concurrency: (arguments.concurrency as usize).min(most),
        bar: measure::bar(targets.len() * task.problems.len() * arguments.rounds as usize),
    };
    // Round by round, so that what else the machine does meets all targets alike.
    let mut rounds: Vec<Vec<Replies>> = targets.iter().map(|_| Vec::new()).collect();
    for _ in 0..arguments.rounds {
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            rounds.push(bench.run(&target.name, &target.routes).await?);
        }
    }
    bench.bar.finish_and_clear();
    node.stop().await;
    let score = |(target, rounds): (&Target<'_>, Vec<Replies>)| {
        // What else the machine does can only slow a round down.
        let replies = rounds.into_iter().min_by_key(|round| round.took)?;
        let score = Score::new(&replies, target.base, largest, &catalog);
        let (route, sweep) = (target.name.clone(), target.sweep.clone());
        Some((Score { route, sweep, ..score }, replies))
    };
    let mut measured: Vec<_> = targets.iter().zip(rounds).filter_map(score).collect();
    let mixes = measured.split_off(alone);
    Ok(Report {
        references: task.pair.as_ref().map(|pair| pair.references(&measured, mixes)),
        routes: measured.into_iter().map(|(score, _)| score).collect(),
        skipped: arguments.skip,
        concurrency: bench.concurrency,
        rounds: arguments.rounds,
        max_tokens: arguments.max_tokens,
    })
}

/// The routes that the arguments name: without any, and without a sweep, all.
fn routes(
    topology: &Topology,
    arguments: &Eval,
) -> Result<Vec<(String, Option<Variant>)>, CommandError> {
    let known: Vec<&String> = topology.models.keys().chain(topology.routes.keys()).collect();
    let all = arguments.routes.is_empty() && arguments.sweep.is_empty();
    let mut routes: Vec<(String, Option<Variant>)> = Vec::new();
    for name in if all { known.clone() } else { arguments.routes.iter().collect() } {
        let name = name.trim().to_owned();
        if !known.contains(&&name) {
            let known: Vec<&str> = known.into_iter().map(String::as_str).collect();
            let known = known.join(", ");
            let reason = format!("flag --routes: there is no route `{name}`; there are {known}");
            return Err(CommandError::Input(reason));
        }
        if routes.iter().all(|(other, _)| *other != name) {
            routes.push((name, None));
        }
    }
    Ok(routes)
}

/// Writes the three files of `--out`.
fn write(folder: &Path, report: &Report) -> Result<(), CommandError> {
    let json = serde_json::to_string_pretty(report)
        .map_err(|e| CommandError::Other(format!("the report is no JSON: {e}")))?;
    let files = [
        ("eval.md", report.tables()),
        ("eval.json", json + "\n"),
        ("eval.svg", picture::draw(report)),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|e| {
            CommandError::Other(format!("{}: the file cannot be written: {e}", path.display()))
        })?;
    }
    Ok(())
}
