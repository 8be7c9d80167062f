//! The demo pair, or scripted runners, behind a real node of actors, with each of its schedulers. What passes took is
//! written down beside.

use super::{Case, Fault, Outcome, System, draws, plan, prompts, route};
use crate::timed::{Record, Step, Timed, idle, steps};
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokenrouter_actors::{Event, Gateway, Node, NodeSpec, Scheduler};
use tokenrouter_engine::{Engine, Script, Scripted};
use tokenrouter_policies::planner::{self, Aim, Observations, Planner, StepTimes};
use tokenrouter_policies::{ModelIx, Thresholds, Token};
use tokenrouter_protocol::{Request, Rhythm, Sampling};

/// Tokens of each request that is run first, so that the planner has something to go by.
const LEARNING: u32 = 256;

/// Ticks of the planner in the shortest pass.
const TICKS: f64 = 20.0;

/// Runs a case.
///
/// # Errors
/// A node that does not start, a request that fails.
pub async fn run(case: &Case) -> Result<Outcome, Fault> {
    let (spec, records, entry) = spec(case)?;
    let models = spec.models.len();
    let node = Node::start(spec).await?;
    let gateway = node.gateway();
    let mut outcome = Outcome::default();
    let mut thresholds = vec![Thresholds::default(); models];
    gateway.set_thresholds(&thresholds)?;
    if case.system == System::Delayed {
        let short = Case { tokens: LEARNING.min(case.tokens), turns: 1, ..case.clone() };
        all(&gateway, &short).await?;
        let seen = gateway.observed().await;
        let best = Planner::new(system(&seen, entry), Aim::default())?.best(case.requests)?;
        thresholds = best.thresholds.iter().map(|at| Thresholds::fixed(*at)).collect();
        gateway.set_thresholds(&thresholds)?;
        outcome.thresholds = best.thresholds;
        for record in &records {
            record.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
    let begun = Instant::now();
    outcome.replies = all(&gateway, case).await?;
    let took = begun.elapsed();
    node.stop().await;
    let steps = steps(&records);
    outcome.seconds = took.as_secs_f64();
    outcome.outside = took.saturating_sub(covered(&steps)).as_secs_f64();
    outcome.passes = steps.iter().map(Vec::len).collect();
    outcome.idle = idle(&steps, &thresholds);
    Ok(outcome)
}

/// What is started, where each runner writes down its passes, and the place of the entry model.
fn spec(case: &Case) -> Result<(NodeSpec, Vec<Record>, usize), Fault> {
    let plan = plan()?;
    let entry = route(&plan)?.entry.index();
    let mut runners = Vec::new();
    let mut records = Vec::new();
    for (index, summary) in plan.models().iter().enumerate() {
        let model = if index == entry { 0 } else { 1 };
        let time = Duration::from_secs_f64(case.scripted[model] / 1000.0);
        let (timed, record) = if time.is_zero() {
            Timed::new(plan.runner(ModelIx(index as u8), summary.positions)?, None)
        } else {
            let script = Script::new(crate::next_token).with_blocks(summary.positions / 16);
            Timed::new(Box::new(Scripted::new(script)), Some(time))
        };
        runners.push((timed, summary.name.clone()));
        records.push(record);
    }
    let mut spec = plan.load()?;
    for (model, (runner, name)) in spec.models.iter_mut().zip(runners) {
        model.engine = Some(Engine::real(Box::new(runner), &name)?);
    }
    spec.scheduler = match case.system {
        System::StepSync => Scheduler::Rounds(Rhythm::Step),
        System::ModelSync => Scheduler::Rounds(Rhythm::Model),
        _ => Scheduler::Asynchronous,
    };
    Ok((spec, records, entry))
}

/// Runs every request to its end, and gives the tokens of its replies.
async fn all(gateway: &Gateway, case: &Case) -> Result<Vec<Vec<Token>>, Fault> {
    let plan = plan()?;
    let route = route(&plan)?;
    let mut runs = Vec::new();
    for index in 0..case.requests {
        let turns = prompts(&route, case, index)?;
        let request = Request {
            route: route.index,
            prompt: Vec::new(),
            max_tokens: case.tokens,
            sampling: Sampling::GREEDY,
            draws: draws(index),
            stop: Vec::new(),
            ignore_eos: true,
        };
        runs.push(converse(gateway, request, turns));
    }
    futures::future::try_join_all(runs).await
}

/// Turn after turn, each with everything before it.
async fn converse(
    gateway: &Gateway,
    mut request: Request,
    turns: Vec<Vec<Token>>,
) -> Result<Vec<Token>, Fault> {
    let mut replies = Vec::new();
    for turn in turns {
        request.prompt.extend(turn);
        let mut session =
            gateway.open(request.clone()).await.map_err(|failure| failure.to_string())?;
        while let Some(event) = session.next().await {
            match event {
                Event::Progress(piece) => {
                    replies.extend_from_slice(&piece.tokens);
                    request.prompt.extend_from_slice(&piece.tokens);
                }
                Event::Done(result) => drop(result.map_err(|failure| failure.to_string())?),
            }
        }
    }
    Ok(replies)
}

/// What was seen, as the planner wants it.
fn system(seen: &Observations, entry: usize) -> planner::System {
    let mut moves = Vec::new();
    let mut commits = Vec::new();
    for (model, row) in seen.moves.iter().enumerate() {
        let all = seen.moves_from(model).max(1.0);
        moves.push(row.iter().map(|moved| moved.count / all).collect());
        let each = |moved: &planner::Moved| match moved.count > 0.0 {
            true => (moved.committed / moved.count).clamp(0.0, 1.0),
            false => 1.0,
        };
        commits.push(row.iter().map(each).collect());
    }
    let times: Vec<StepTimes> = seen
        .steps
        .iter()
        .map(|sizes| {
            let points = sizes.iter().map(|(batch, steps)| (*batch, steps.seconds / steps.count));
            StepTimes::measured(points.collect())
        })
        .collect();
    let shortest = times.iter().flat_map(StepTimes::points).map(|(_, seconds)| *seconds);
    let tick = shortest.fold(f64::INFINITY, f64::min) / TICKS;
    planner::System { entry, caps: vec![None; times.len()], times, moves, commits, tick }
}

/// How long at least one pass ran.
fn covered(steps: &[Vec<Step>]) -> Duration {
    let mut all: Vec<(Instant, Instant)> =
        steps.iter().flatten().map(|step| (step.begun, step.ended)).collect();
    all.sort_unstable();
    let mut covered = Duration::ZERO;
    let mut until: Option<Instant> = None;
    for (begun, ended) in all {
        let from = until.map_or(begun, |until| until.max(begun));
        covered += ended.saturating_duration_since(from);
        until = Some(until.map_or(ended, |until| until.max(ended)));
    }
    covered
}
