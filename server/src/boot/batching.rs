//! When each model launches: its batching settings, checked against the routes that its requests take.

use super::cluster::Nodes;
use crate::catalog::Catalog;
use std::fs;
use tokenrouter_actors::{Scheduler, Tuning};
use tokenrouter_config::{Error, Objective, SchedulerMode, Threshold, Topology, Tune};
use tokenrouter_policies::planner::{self, Aim, Plan, Prediction, StepTimes, System};
use tokenrouter_policies::tuner::TunerConfig;
use tokenrouter_policies::{ModelIx, Thresholds, batching};
use tokenrouter_protocol::{BatchLimits, Rhythm};

/// The batching of every model, by index.
///
/// # Errors
/// A table without a meaning, and thresholds under which requests could wait for each other for ever.
pub(super) fn batches(topology: &Topology, catalog: &Catalog) -> Result<Vec<BatchLimits>, Error> {
    let limits: Result<Vec<BatchLimits>, Error> =
        catalog.models.iter().map(|name| limits(topology, name)).collect();
    let limits = limits?;
    let live_max = u32::try_from(topology.limits.requests).unwrap_or(u32::MAX);
    for group in groups(catalog) {
        let thresholds: Vec<&Thresholds> =
            group.iter().map(|model| &limits[model.index()].thresholds).collect();
        if let Err(error) = batching::check(&thresholds, live_max) {
            let delayed = group.iter().find(|model| !limits[model.index()].thresholds.is_eager());
            let name = &catalog.models[delayed.unwrap_or(&group[0]).index()];
            return Err(topology.error(&["batching", name, "threshold"], error.to_string()));
        }
    }
    Ok(limits)
}

/// Who waits for whom.
pub(super) fn scheduler(topology: &Topology) -> Scheduler {
    match topology.scheduler.mode {
        SchedulerMode::Asynchronous => Scheduler::Asynchronous,
        SchedulerMode::ModelSync => Scheduler::Rounds(Rhythm::Model),
        SchedulerMode::StepSync => Scheduler::Rounds(Rhythm::Step),
    }
}

pub(super) fn limits(topology: &Topology, name: &str) -> Result<BatchLimits, Error> {
    let batching = topology.batching.get(name).cloned().unwrap_or_default();
    let thresholds = match batching.threshold {
        Threshold::Auto => Thresholds::default(),
        Threshold::Fixed(threshold) => Thresholds::fixed(threshold),
        Threshold::Table(table) => Thresholds::table(table)
            .map_err(|error| topology.error(&["batching", name, "threshold"], error.to_string()))?,
    };
    Ok(BatchLimits {
        tokens_max: batching.max_batch_tokens,
        rows_max: batching.max_batch_rows,
        thresholds,
        max_wait: batching.max_wait,
    })
}

/// What the Tuner is to keep up: the groups of models of which some have `auto` for their threshold. Where a plan is named
/// and is of just these models it begins with that, and else with launching as soon as anybody is ready.
///
/// # Errors
/// A plan that cannot be read or used.
pub(super) fn tunings(
    topology: &Topology,
    catalog: &Catalog,
    nodes: &Nodes,
) -> Result<Vec<Tuning>, Error> {
    let auto = |model: &ModelIx| {
        let batching = topology.batching.get(&catalog.models[model.index()]);
        batching.is_some_and(|batching| batching.threshold == Threshold::Auto)
    };
    let plan = stored(topology)?;
    let live_max = u32::try_from(topology.limits.requests).unwrap_or(u32::MAX);
    let mut tunings = Vec::new();
    for models in groups(catalog) {
        let tuned: Vec<bool> = models.iter().map(auto).collect();
        if !tuned.contains(&true) {
            continue;
        }
        // A Tuner sees the models of its own node only.
        if let Some(first) = models.iter().find(|model| !nodes.is_here(model.index())) {
            if models.iter().any(|model| nodes.is_here(model.index())) {
                let model = &catalog.models[first.index()];
                tracing::warn!(
                    model,
                    "`threshold: auto` has no effect where models that share requests live on several nodes; name a number or a table"
                );
            }
            continue;
        }
        let names: Vec<&str> = models.iter().map(|m| catalog.models[m.index()].as_str()).collect();
        let plan = match &plan {
            Some(stored) => widen(stored, &names, unknown(catalog, &models)),
            None => Plan::eager(unknown(catalog, &models), aim(topology)),
        };
        tunings.push(Tuning { models, tuned, live_max, config: config(topology), plan });
    }
    Ok(tunings)
}

/// A plan in a file, as `tokenrouter plan` writes it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct StoredPlan {
    /// The models, by name, in the order of the plan.
    pub models: Vec<String>,
    /// The plan.
    pub plan: Plan,
}

fn stored(topology: &Topology) -> Result<Option<StoredPlan>, Error> {
    let Some(path) = &topology.scheduler.plan else { return Ok(None) };
    let fault = |reason: String| {
        let hint = "make it with `tokenrouter plan TOPOLOGY --out FILE`";
        topology.error(&["scheduler", "plan"], format!("{}: {reason}; {hint}", path.display()))
    };
    let text = fs::read_to_string(path).map_err(|e| fault(e.to_string()))?;
    let stored: StoredPlan = serde_json::from_str(&text).map_err(|e| fault(e.to_string()))?;
    stored.plan.thresholds().map_err(|e| fault(e.to_string()))?;
    stored.plan.system.validate().map_err(|e| fault(e.to_string()))?;
    let unknown = stored.models.iter().find(|name| !topology.models.contains_key(*name));
    match unknown {
        Some(name) => Err(fault(format!("it is of a model `{name}`, which the topology has not"))),
        None => Ok(Some(stored)),
    }
}

fn config(topology: &Topology) -> TunerConfig {
    // Nothing is concluded where the plan is to stay.
    let moves_min = match topology.scheduler.tune {
        Tune(true) => TunerConfig::default().moves_min,
        Tune(false) => f64::INFINITY,
    };
    TunerConfig { aim: aim(topology), moves_min, ..TunerConfig::default() }
}

fn aim(topology: &Topology) -> Aim {
    Aim { objective: objective(topology), ..Aim::default() }
}

/// What thresholds are to reach.
pub(crate) fn objective(topology: &Topology) -> planner::Objective {
    match topology.scheduler.objective {
        Objective::Throughput => planner::Objective::Throughput,
        Objective::P99Tpot(limit) => planner::Objective::P99Tpot(limit.as_secs_f64()),
    }
}

/// A plan for all of these models from one for some of them: the others launch as soon as anybody is ready. One that is of
/// other models says nothing.
fn widen(stored: &StoredPlan, names: &[&str], mut system: System) -> Plan {
    let place = |name: &String| names.iter().position(|other| other == name);
    let Some(places) = stored.models.iter().map(place).collect::<Option<Vec<usize>>>() else {
        return Plan::eager(system, stored.plan.aim);
    };
    let known = &stored.plan.system;
    for (from, &at) in places.iter().enumerate() {
        system.times[at] = known.times[from].clone();
        system.caps[at] = known.caps[from];
        system.moves[at].fill(0.0);
        for (to, &there) in places.iter().enumerate() {
            system.moves[at][there] = known.moves[from][to];
            system.commits[at][there] = known.commits[from][to];
        }
    }
    system.entry = places[known.entry];
    system.tick = system.tick.min(known.tick);
    let widened = |best: &Prediction| {
        let mut thresholds = vec![1; names.len()];
        for (threshold, &at) in best.thresholds.iter().zip(&places) {
            thresholds[at] = *threshold;
        }
        Prediction { thresholds, ..best.clone() }
    };
    Plan { system, aim: stored.plan.aim, best: stored.plan.best.iter().map(widened).collect() }
}

/// Models of which nothing is known yet: what is seen soon counts for more than this.
fn unknown(catalog: &Catalog, models: &[ModelIx]) -> System {
    let count = models.len();
    let enters = |model: &ModelIx| catalog.routes.iter().filter(|r| r.entry == *model).count();
    let entry = (0..count).max_by_key(|&at| enters(&models[at])).unwrap_or(0);
    System {
        entry,
        times: vec![StepTimes::fixed(0.01); count],
        moves: vec![vec![1.0 / count as f64; count]; count],
        commits: vec![vec![1.0; count]; count],
        caps: vec![None; count],
        tick: 0.001,
    }
}

/// The models in groups: those that some route joins, directly or through others, are together.
pub(super) fn groups(catalog: &Catalog) -> Vec<Vec<ModelIx>> {
    let mut groups: Vec<Vec<ModelIx>> = Vec::new();
    for route in &catalog.routes {
        let touches = |group: &Vec<ModelIx>| group.iter().any(|m| route.reaches.contains(m));
        let (joined, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(touches);
        let mut together: Vec<ModelIx> =
            joined.into_iter().flatten().chain(route.reaches.iter().copied()).collect();
        together.sort_unstable();
        together.dedup();
        groups = others;
        groups.push(together);
    }
    groups
}
