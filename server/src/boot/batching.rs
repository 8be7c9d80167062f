//! When each model launches: its batching settings, checked against the routes that its requests take.

use crate::catalog::Catalog;
use tokenrouter_actors::Scheduler;
use tokenrouter_config::{Error, SchedulerMode, Threshold, Topology};
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
