//! Sweeps: one route with several values of a setting of its policy. Each value is a route of its own beside the
//! others, so all of them share one node and one copy of the weights. What a value means is for the policy to say.

use crate::commands::CommandError;
use serde::Serialize;
use std::str::FromStr;
use tokenrouter_config::{Route, Topology};

/// The flag, as errors name it.
const FLAG: &str = "--sweep";

/// A route, a key of its policy, and the values to measure: `demo:threshold=0.01,0.03`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    route: String,
    key: String,
    values: Vec<String>,
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('=').and_then(|(left, values)| {
            let (route, key) = left.rsplit_once(':')?;
            let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
            let whole = ![route, key].contains(&"") && values.iter().all(|v| !v.is_empty());
            whole.then(|| Self { route: route.to_owned(), key: key.to_owned(), values })
        });
        parsed
            .ok_or_else(|| "expected ROUTE:KEY=VALUES, such as demo:threshold=0.01,0.03".to_owned())
    }
}

/// One value of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Variant {
    /// The route that is varied.
    pub(super) route: String,
    /// The key of its policy.
    pub(super) key: String,
    /// The value.
    pub(super) value: String,
}

impl Variant {
    /// What its route is called.
    pub(super) fn name(&self) -> String {
        format!("{}={}", self.series(), self.value)
    }

    /// What all values of its sweep have in common.
    pub(super) fn series(&self) -> String {
        format!("{}:{}", self.route, self.key)
    }
}

/// Adds a route for each value of each sweep, and says which.
///
/// # Errors
/// A route that is not in the topology. Whether a key or value fits is found when the policies are built.
pub(super) fn add(topology: &mut Topology, sweeps: &[Sweep]) -> Result<Vec<Variant>, CommandError> {
    let mut variants: Vec<Variant> = Vec::new();
    for sweep in sweeps {
        let Some(base) = topology.routes.get(&sweep.route).cloned() else {
            let known: Vec<&str> = topology.routes.keys().map(String::as_str).collect();
            return Err(CommandError::Input(format!(
                "flag {FLAG}: there is no route `{}` with a policy; there are {}",
                sweep.route,
                known.join(", ")
            )));
        };
        for value in &sweep.values {
            let policy = base.policy.with(FLAG, &sweep.key, value)?;
            let (route, key) = (sweep.route.clone(), sweep.key.clone());
            let variant = Variant { route, key, value: value.clone() };
            let route = Route { policy, ..base.clone() };
            // The same value twice is measured once.
            if topology.routes.insert(variant.name(), route).is_none() {
                variants.push(variant);
            }
        }
    }
    Ok(variants)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenrouter_config::Sources;

    fn sweep(text: &str) -> Sweep {
        text.parse().unwrap()
    }

    #[test]
    fn a_sweep_is_a_route_a_key_and_values() {
        let parsed = sweep("a:b:weights.large=0.1, 0.2");
        let expected = Sweep {
            route: "a:b".into(),
            key: "weights.large".into(),
            values: vec!["0.1".into(), "0.2".into()],
        };
        assert_eq!(parsed, expected);
        for bad in
            ["", "demo", "demo:threshold", "threshold=1", "demo:=1", ":k=1", "demo:k=", "demo:k=1,"]
        {
            assert!(
                bad.parse::<Sweep>().unwrap_err().starts_with("expected ROUTE:KEY=VALUES"),
                "{bad}"
            );
        }
    }

    #[test]
    fn each_value_becomes_a_route_once() {
        let mut topology = Topology::load(&Sources::default()).unwrap();
        let before = topology.routes.len();
        let sweeps = [sweep("demo:threshold=0.1,0.2,0.1"), sweep("demo-random:probability=0.5")];
        let variants = add(&mut topology, &sweeps).unwrap();
        let names: Vec<String> = variants.iter().map(Variant::name).collect();
        assert_eq!(
            names,
            ["demo:threshold=0.1", "demo:threshold=0.2", "demo-random:probability=0.5"]
        );
        assert_eq!(topology.routes.len(), before + 3);
        assert_eq!(topology.routes["demo:threshold=0.2"].entry, "small");
        let told = add(&mut topology, &[sweep("small:threshold=1")]).unwrap_err().to_string();
        assert!(
            told.starts_with(
                "flag --sweep: there is no route `small` with a policy; there are demo"
            ),
            "{told}"
        );
    }
}
