//! Real requests through a real node, as many at a time as are to be alive: where they move, what that commits, how long
//! passes take beside each other, and what thresholds really bring.

use super::profile::{self, Profile};
use super::refused;
use super::report::{Measured, Report};
use crate::boot::Plan;
use crate::catalog::Route;
use crate::cli;
use crate::commands::CommandError;
use crate::commands::eval::measure::prompt;
use crate::commands::problem::{Problems, Selection};
use futures::future::{join_all, try_join_all};
use std::cell::Cell;
use std::time::{Duration, Instant};
use tokenrouter_actors::{Event, Gateway, Node, Scheduler};
use tokenrouter_policies::planner::{Aim, Observations, Planner, StepTimes, System};
use tokenrouter_policies::{Draws, ModelIx, Thresholds, Token};
use tokenrouter_protocol::Request;

/// Problems that are put to the route where nobody says how many.
const PROBLEMS: usize = 50;

/// Ticks in the shortest step.
const TICKS: f64 = 20.0;

/// In so many rounds all thresholds are run, one after the other.
const ROUNDS: u32 = 3;

/// The part of each run that is not counted, while requests are still at their prompts.
const WARM_UP: f64 = 0.2;

/// What is to be planned for.
pub(super) struct Task<'a> {
    pub(super) route: &'a Route,
    pub(super) prompts: Vec<Vec<Token>>,
    pub(super) profile: &'a Profile,
    /// The most rows in a pass of each model of the route.
    pub(super) caps: Vec<Option<u32>>,
    pub(super) aim: Aim,
    pub(super) names: Vec<String>,
}

/// The prompts of the problems that the flags name.
///
/// # Errors
/// Problems that cannot be read, a prompt that the route refuses.
pub(super) fn prompts(
    route: &Route,
    arguments: &cli::Profile,
) -> Result<Vec<Vec<Token>>, CommandError> {
    let few = Problems::Count(PROBLEMS);
    let problems = arguments.problems.as_ref().unwrap_or(&few);
    let problems = Selection::new(None, Some(problems), 0)?.load()?;
    problems.iter().map(|problem| prompt(route, problem)).collect()
}

impl Task<'_> {
    /// Measures, plans, and where it is wanted tries the thresholds.
    ///
    /// # Errors
    /// A model that cannot be loaded, a request that fails, numbers that cannot be planned for.
    pub(super) async fn run(
        self,
        plan: Plan,
        arguments: &cli::Plan,
    ) -> Result<Report, CommandError> {
        let mut spec = plan.load()?;
        // The thresholds are ours to set here.
        spec.tunings.clear();
        spec.scheduler = Scheduler::Asynchronous;
        let models = spec.models.len();
        let node = Node::start(spec).await.map_err(|e| CommandError::Other(e.to_string()))?;
        let traffic = Traffic {
            gateway: node.gateway(),
            requests: self.requests(arguments.profile.max_tokens),
            live: arguments.live,
        };
        let eager = vec![Thresholds::default(); models];
        traffic.gateway.set_thresholds(&eager).map_err(|e| CommandError::Other(e.to_string()))?;
        let context = traffic.all().await?;
        let seen = traffic.gateway.observed().await.among(&self.places());
        let (system, scales) = self.system(&seen, context);
        let mut planner = Planner::new(system, self.aim).map_err(refused)?;
        let mut report = Report::of(&mut planner, arguments.live)?;
        report.describe(self.names.clone(), planner.plan(1..=arguments.live).map_err(refused)?);
        report.profile = self.profile.iter().flatten().cloned().collect();
        (report.context, report.scales) = (context, scales);
        if arguments.profile.verify {
            let vectors = report.worth_running();
            report.measured = self.verify(&traffic, vectors, models, arguments).await?;
        }
        node.stop().await;
        Ok(report)
    }

    fn requests(&self, max_tokens: u32) -> Vec<Request> {
        let request = |(seed, prompt): (usize, &Vec<Token>)| Request {
            route: self.route.index,
            prompt: prompt.clone(),
            max_tokens: max_tokens
                .min(self.route.context.saturating_sub(prompt.len() as u32))
                .max(1),
            sampling: self.route.language.defaults,
            draws: Draws::new(seed as u64, 0),
            stop: Vec::new(),
            ignore_eos: false,
        };
        self.prompts.iter().enumerate().map(request).collect()
    }

    fn places(&self) -> Vec<usize> {
        self.route.reaches.iter().map(|model: &ModelIx| model.index()).collect()
    }

    /// What was seen, as the planner wants it, and by how much each model's passes took longer than alone.
    fn system(&self, seen: &Observations, context: f64) -> (System, Vec<f64>) {
        let entry = self.route.reaches.iter().position(|model| *model == self.route.entry);
        let entry = entry.unwrap_or(0);
        let mut moves = Vec::new();
        let mut commits = Vec::new();
        for (model, row) in seen.moves.iter().enumerate() {
            let all = seen.moves_from(model);
            if all == 0.0 {
                tracing::warn!(
                    "no request went to `{}`: it is planned for as it is",
                    self.names[model]
                );
            }
            let share = |(to, count): (usize, f64)| match all > 0.0 {
                true => count / all,
                false => f64::from(u8::from(to == entry)),
            };
            moves.push(row.iter().map(|moved| moved.count).enumerate().map(share).collect());
            let each = |count: f64, committed: f64| match count > 0.0 {
                true => (committed / count).clamp(0.0, 1.0),
                false => 1.0,
            };
            commits.push(row.iter().map(|moved| each(moved.count, moved.committed)).collect());
        }
        let mut times = Vec::new();
        let mut scales = Vec::new();
        for (model, measured) in self.profile.iter().enumerate() {
            let alone = profile::at(measured, context);
            let scale = scale(seen, model, &alone);
            let points = alone.points().iter().map(|(batch, seconds)| (*batch, scale * seconds));
            times.push(StepTimes::measured(points.collect()));
            scales.push(scale);
        }
        let steps = times.iter().flat_map(|times| times.points()).map(|(_, seconds)| *seconds);
        let tick = steps.fold(f64::INFINITY, f64::min) / TICKS;
        (System { entry, times, moves, commits, caps: self.caps.clone(), tick }, scales)
    }

    async fn verify(
        &self,
        traffic: &Traffic,
        vectors: Vec<Vec<u32>>,
        models: usize,
        arguments: &cli::Plan,
    ) -> Result<Vec<Measured>, CommandError> {
        let mut speeds = vec![0.0; vectors.len()];
        let time = arguments.profile.verify_time / ROUNDS;
        for _ in 0..ROUNDS {
            for (vector, speed) in vectors.iter().zip(&mut speeds) {
                let mut all = vec![Thresholds::default(); models];
                for (place, threshold) in self.places().into_iter().zip(vector) {
                    all[place] = Thresholds::fixed(*threshold);
                }
                traffic
                    .gateway
                    .set_thresholds(&all)
                    .map_err(|e| CommandError::Other(format!("thresholds {vector:?}: {e}")))?;
                *speed += traffic.run_for(time).await? / f64::from(ROUNDS);
            }
        }
        let measured = |(thresholds, tokens_per_s)| Measured { thresholds, tokens_per_s };
        Ok(vectors.into_iter().zip(speeds).map(measured).collect())
    }
}

/// How much longer passes took than `alone`, over all sizes that were seen.
fn scale(seen: &Observations, model: usize, alone: &StepTimes) -> f64 {
    let (mut took, mut expected) = (0.0, 0.0);
    for (batch, steps) in &seen.steps[model] {
        took += steps.seconds;
        expected += steps.count * alone.at(*batch);
    }
    if expected > 0.0 && took > 0.0 { took / expected } else { 1.0 }
}

/// Requests that keep coming.
struct Traffic {
    gateway: Gateway,
    requests: Vec<Request>,
    live: u32,
}

impl Traffic {
    /// Runs every request once, and says at how many positions of context a token was written in the mean.
    async fn all(&self) -> Result<f64, CommandError> {
        let next = Cell::new(0);
        let (tokens, positions) = (Cell::new(0.0), Cell::new(0.0));
        let worker = async || {
            while let Some(request) = self.requests.get(next.replace(next.get() + 1)) {
                let mut session = self.gateway.open(request.clone()).await.map_err(failed)?;
                while let Some(event) = session.next().await {
                    let Event::Done(result) = event else { continue };
                    let outcome = result.map_err(failed)?;
                    let written = f64::from(outcome.completion_tokens);
                    let mean = f64::from(outcome.prompt_tokens) + written / 2.0;
                    tokens.set(tokens.get() + written);
                    positions.set(positions.get() + written * mean);
                }
            }
            Ok::<(), CommandError>(())
        };
        try_join_all((0..self.live).map(|_| worker())).await?;
        Ok(positions.get() / f64::max(tokens.get(), 1.0))
    }

    /// Keeps as many requests alive as there are to be for a time, and says how many tokens a second were written.
    async fn run_for(&self, time: Duration) -> Result<f64, CommandError> {
        let begin = Instant::now() + time.mul_f64(WARM_UP);
        let end = Instant::now() + time;
        let next = Cell::new(0);
        let tokens = Cell::new(0usize);
        let worker = async || {
            while Instant::now() < end {
                let request = &self.requests[next.replace(next.get() + 1) % self.requests.len()];
                let mut session = self.gateway.open(request.clone()).await.map_err(failed)?;
                while let Some(event) = session.next().await {
                    let now = Instant::now();
                    match event {
                        _ if now >= end => return Ok(()),
                        Event::Progress(piece) if now >= begin => {
                            tokens.set(tokens.get() + piece.tokens.len());
                        }
                        Event::Progress(_) => {}
                        Event::Done(result) => drop(result.map_err(failed)?),
                    }
                }
            }
            Ok::<(), CommandError>(())
        };
        for result in join_all((0..self.live).map(|_| worker())).await {
            result?;
        }
        Ok(tokens.get() as f64 / (end - begin).as_secs_f64())
    }
}

fn failed(failure: impl std::fmt::Display) -> CommandError {
    CommandError::Other(format!("a request failed: {failure}"))
}
