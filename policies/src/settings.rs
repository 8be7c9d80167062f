//! What the settings of several policies have in common: bounds on numbers, and faults told in the same words.

use crate::head::Head;
use tokenrouter_config::{Error, PolicySection};

/// Refuses a number outside `[least, most]`, NaN included.
pub(crate) fn within(
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

/// The threshold on a probability, `key`, within `[0, 1]`: the one that is set, or else the head's own.
pub(crate) fn threshold(
    section: &PolicySection,
    key: &str,
    set: Option<f64>,
    head: &Head,
) -> Result<f32, Error> {
    match (set, head.threshold) {
        (Some(value), _) => within(section, key, value, 0.0, 1.0).map(|()| value as f32),
        (None, Some(own)) => Ok(own),
        (None, None) => Err(section.error(key, "is missing, and the head has none of its own")),
    }
}
