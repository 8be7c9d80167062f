//! `tokenrouter check`: everything about a topology that can be wrong, short of loading weights.

use super::{CommandError, print, start_log};
use crate::boot::Plan;
use crate::cli::Check;
use tokenrouter_config::{Bytes, Topology};

/// Checks and prints a summary.
///
/// # Errors
/// The first fault.
pub fn run(arguments: &Check) -> Result<(), CommandError> {
    let topology = Topology::load(&arguments.sources())?;
    // Also so that warnings are seen, such as one about a chat template that cannot be used.
    start_log(&topology)?;
    // Each node finds its own faults.
    for node in topology.nodes.keys() {
        Plan::new(topology.clone().on(node)?)?;
    }
    print(&summary(&Plan::new(topology)?))
}

/// Models, routes and memory in words.
pub fn summary(plan: &Plan) -> String {
    let mut text = String::from("The topology is fine.\n\nModels\n");
    let mut used = 0;
    for model in plan.models() {
        used += model.weights.0 + model.pool.0;
        let node = model.node.map(|node| format!("on {node}: ")).unwrap_or_default();
        text += &format!(
            "  {:<16} {node}{}; weights {}, KV pool {} for {} positions, threads {}\n",
            model.name,
            model.architecture,
            model.weights,
            model.pool,
            model.positions,
            model.threads
        );
    }
    text += "\nRoutes\n";
    let catalog = plan.catalog();
    for route in &catalog.routes {
        let others: Vec<&str> = route
            .reaches
            .iter()
            .filter(|&&model| model != route.entry)
            .map(|&model| catalog.model(model))
            .collect();
        let entry = catalog.model(route.entry);
        let with =
            if others.is_empty() { String::new() } else { format!(" with {}", others.join(", ")) };
        text += &format!("  {:<16} {entry}{with}; context {}\n", route.name, route.context);
    }
    let limit = plan.topology().memory.cpu;
    let each = if plan.topology().nodes.is_empty() { "" } else { " of each node" };
    text += &format!("\nMemory\n  {} of {limit} on the CPU{each}\n", Bytes(used));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenrouter_config::Sources;

    #[test]
    fn the_summary_names_models_routes_and_memory() {
        let plan = Plan::new(Topology::load(&Sources::default()).unwrap()).unwrap();
        let text = summary(&plan);
        for expected in ["small", "demo-strict", "small with large", "context 32768", "of 2.0 GiB"]
        {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
    }
}
