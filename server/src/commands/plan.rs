//! `tokenrouter plan`: which thresholds of delayed batching give the most tokens a second, from given numbers or from a
//! topology that is profiled on this machine. The planning itself is [`tokenrouter_policies::planner`]; nothing is changed
//! in a server that runs.

use super::{CommandError, print, start_log};
use crate::boot::{self, objective};
use crate::catalog::{Catalog, Route};
use crate::cli;
use report::Report;
use std::path::Path;
use tokenrouter_config::Topology;
use tokenrouter_policies::planner::{Aim, Objective, Planner, Refused};

mod numbers;
mod profile;
mod report;
mod traffic;

/// More vectors than this are not all predicted.
const TABLE_MAX: usize = 1_000;

/// Plans and prints.
///
/// # Errors
/// Numbers or a topology that cannot be planned for, a model that fails, a file that cannot be written.
pub fn run(arguments: &cli::Plan) -> Result<(), CommandError> {
    match &arguments.numbers.times {
        Some(times) => from_numbers(arguments, times),
        None => from_topology(arguments),
    }
}

fn from_numbers(arguments: &cli::Plan, times: &str) -> Result<(), CommandError> {
    let system = numbers::system(&arguments.numbers, times)?;
    let limit = arguments.p99_tpot.map(|limit| Objective::P99Tpot(limit.as_secs_f64()));
    let aim = Aim { objective: limit.unwrap_or_default(), ..Aim::default() };
    let mut planner = Planner::new(system, aim).map_err(refused)?;
    let thresholds = &arguments.numbers.thresholds;
    let report = match thresholds.is_empty() {
        true => Report::of(&mut planner, arguments.live)?,
        false => Report::single(planner.predict(arguments.live, thresholds).map_err(refused)?),
    };
    print(&if arguments.json { report.json() } else { report.tables() })
}

fn from_topology(arguments: &cli::Plan) -> Result<(), CommandError> {
    // All models in this process, wherever else they live.
    let topology = Topology::load(&arguments.sources())?.alone();
    start_log(&topology)?;
    let limit = arguments.p99_tpot.map(|limit| Objective::P99Tpot(limit.as_secs_f64()));
    let aim = Aim { objective: limit.unwrap_or(objective(&topology)), ..Aim::default() };
    let live = arguments.live;
    let most = topology.limits.requests;
    if live as usize > most {
        let reason = format!("flag --live: {live} are more than the {most} of `limits.requests`");
        return Err(CommandError::Input(reason));
    }
    let plan = boot::Plan::new(topology)?;
    let route = route(plan.catalog(), arguments.profile.route.as_deref())?.clone();
    let prompts = traffic::prompts(&route, &arguments.profile)?;
    let profile = profile::measure(&plan, &route, &arguments.profile.contexts, live)?;
    let names = route.reaches.iter().map(|model| plan.catalog().model(*model).to_owned());
    let names: Vec<String> = names.collect();
    let caps = route.reaches.iter().map(|model| Some(plan.batch(*model).rows_max));
    let caps: Vec<Option<u32>> = caps.collect();
    let task = traffic::Task { route: &route, prompts, profile: &profile, caps, aim, names };
    let report = super::block_on(task.run(plan, arguments))??;
    if let Some(path) = &arguments.profile.out {
        let text = serde_json::to_string_pretty(&report.stored())
            .map_err(|e| CommandError::Other(format!("the plan is no JSON: {e}")))?;
        write(path, &(text + "\n"))?;
    }
    if let Some(path) = &arguments.profile.svg {
        write(path, &report.picture())?;
    }
    print(&if arguments.json { report.json() } else { report.tables() })
}

/// The route called `name`, or the first that joins models.
fn route<'a>(catalog: &'a Catalog, name: Option<&str>) -> Result<&'a Route, CommandError> {
    let joined: Vec<&Route> = catalog.routes.iter().filter(|r| r.reaches.len() > 1).collect();
    let names: Vec<&str> = joined.iter().map(|route| route.name.as_str()).collect();
    let known = match names.is_empty() {
        true => "the topology has none that joins models".to_owned(),
        false => format!("there are {}", names.join(", ")),
    };
    let found = match name {
        Some(name) => joined.iter().find(|route| route.name == name),
        None => joined.first(),
    };
    found.copied().ok_or_else(|| {
        let name = name.map_or(String::new(), |name| format!(" `{name}`"));
        CommandError::Input(format!("flag --route: there is no route{name} to plan for; {known}"))
    })
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    std::fs::write(path, text).map_err(|e| {
        CommandError::Other(format!("{}: the file cannot be written: {e}", path.display()))
    })
}

/// What the planner refuses came from the user.
fn refused(error: Refused) -> CommandError {
    let flag = match &error {
        Refused::Live(_) => "flag --live: ",
        Refused::Thresholds(_) | Refused::Count { .. } => "flag --thresholds: ",
        Refused::Limit(_) => "flag --p99-tpot: ",
        Refused::System(_) => "",
    };
    CommandError::Input(format!("{flag}{error}"))
}
