//! The registry: from the `policy:` section of a topology to a policy. Adding one is a
//! file in `route/`, and here its name in [`KINDS`], an arm of [`build`] and a function that reads its settings.

use crate::route::Policy;
use crate::route::baseline::{Always, FixedPeriod, Random};
use crate::route::r_stitch::RStitch;
use crate::unit::ModelIx;
use serde::Deserialize;
use std::sync::Arc;
use tokenrouter_config::{Error, PolicySection};

/// The kinds a topology may name, in the order an error lists them.
pub const KINDS: [&str; 4] = ["r-stitch", "random", "fixed-period", "always"];

/// The models of the topology, as a policy's settings name them.
#[derive(Clone, Copy, Debug)]
pub struct Roster<'a> {
    /// Names of all models, sorted; a [`ModelIx`] is a place in this list.
    pub names: &'a [String],
    /// The entry model of the route that is being built.
    pub entry: ModelIx,
}

impl Roster<'_> {
    fn find(&self, section: &PolicySection, key: &str, name: &str) -> Result<ModelIx, Error> {
        match self.names.iter().position(|n| n == name) {
            Some(at) => Ok(ModelIx(at as u8)),
            None => Err(section.error(
                key,
                format!("there is no model `{name}`; the topology has {}", self.names.join(", ")),
            )),
        }
    }

    /// As [`Self::find`], for a model that a request is handed over to.
    fn find_other(&self, section: &PolicySection, key: &str, name: &str) -> Result<ModelIx, Error> {
        let to = self.find(section, key, name)?;
        if to == self.entry {
            return Err(section.error(key, format!("`{name}` is the entry model itself")));
        }
        Ok(to)
    }
}

/// Builds the policy that `section` describes.
///
/// # Errors
/// An unknown kind, an unknown or missing setting, a model that is not in the topology, a number out of range: each
/// names the key and what would be right.
pub fn build(section: &PolicySection, roster: &Roster<'_>) -> Result<Arc<dyn Policy>, Error> {
    match section.kind.as_str() {
        "r-stitch" => r_stitch(section, roster),
        "random" => random(section, roster),
        "fixed-period" => fixed_period(section, roster),
        "always" => always(section, roster),
        other => Err(section.error(
            "kind",
            format!("there is no policy `{other}`; known are {}", KINDS.join(", ")),
        )),
    }
}

fn r_stitch(section: &PolicySection, roster: &Roster<'_>) -> Result<Arc<dyn Policy>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        threshold: Option<f64>,
        threshold_up: Option<f64>,
        threshold_down: Option<f64>,
    }
    let settings: Settings = section.parse()?;
    let pick = |key: &str, own: Option<f64>| {
        // A fault is told of the key that was written.
        let written = own.map(|value| (key, value));
        match written.or(settings.threshold.map(|value| ("threshold", value))) {
            Some((key, value)) => within(section, key, value, 0.0, 1.0).map(|()| value as f32),
            None => {
                Err(section.error(key, "set `threshold`, or `threshold_up` and `threshold_down`"))
            }
        }
    };
    Ok(Arc::new(RStitch {
        entry: roster.entry,
        to: roster.find_other(section, "to", &settings.to)?,
        threshold_up: pick("threshold_up", settings.threshold_up)?,
        threshold_down: pick("threshold_down", settings.threshold_down)?,
    }))
}

fn random(section: &PolicySection, roster: &Roster<'_>) -> Result<Arc<dyn Policy>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        probability: f64,
    }
    let settings: Settings = section.parse()?;
    within(section, "probability", settings.probability, 0.0, 1.0)?;
    let to = roster.find_other(section, "to", &settings.to)?;
    Ok(Arc::new(Random { entry: roster.entry, to, probability: settings.probability }))
}

fn fixed_period(section: &PolicySection, roster: &Roster<'_>) -> Result<Arc<dyn Policy>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        to: String,
        period: u32,
    }
    let settings: Settings = section.parse()?;
    within(section, "period", f64::from(settings.period), 1.0, f64::from(u32::MAX))?;
    let to = roster.find_other(section, "to", &settings.to)?;
    Ok(Arc::new(FixedPeriod { entry: roster.entry, to, period: settings.period }))
}

fn always(section: &PolicySection, roster: &Roster<'_>) -> Result<Arc<dyn Policy>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Settings {
        model: Option<String>,
    }
    let settings: Settings = section.parse()?;
    let model = match settings.model {
        Some(name) => roster.find(section, "model", &name)?,
        None => roster.entry,
    };
    Ok(Arc::new(Always { model }))
}

/// Refuses a number outside `[least, most]`, NaN included.
fn within(
    section: &PolicySection,
    key: &str,
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(section.error(key, format!("{value} is not between {least} and {most}")))
}

#[cfg(test)]
mod tests;
