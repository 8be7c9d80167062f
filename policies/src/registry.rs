//! The registry: from the `policy:` section of a topology to a policy. Adding one is a file in `route/`, and here a line
//! in [`POLICIES`].

use crate::roster::Roster;
use crate::route::{
    Policy, baseline, citer, co_llm, ensemble, expression, glimp, r_stitch, r2r, relay,
    split_reason,
};
use std::sync::Arc;
use tokenrouter_config::{Error, PolicySection};

/// A policy, or what is wrong with its settings.
pub type Built = Result<Arc<dyn Policy>, Error>;

/// Reads the settings of one kind of policy.
type Build = fn(&PolicySection, &mut Roster<'_>) -> Built;

/// The kinds a topology may name, in the order an error lists them.
const POLICIES: [(&str, Build); 12] = [
    ("r-stitch", r_stitch::build),
    ("r2r", r2r::build),
    ("citer", citer::build),
    ("co-llm", co_llm::build),
    ("glimp", glimp::build),
    ("ensemble", ensemble::build),
    ("split-reason", split_reason::build),
    ("relay", relay::build),
    ("expression", expression::build),
    ("random", baseline::build_random),
    ("fixed-period", baseline::build_fixed_period),
    ("always", baseline::build_always),
];

/// The kinds a topology may name.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|(kind, _)| *kind)
}

/// Builds the policy that `section` describes.
///
/// # Errors
/// An unknown kind, an unknown or missing setting, a model, head or token that is not there, a number out of range: each
/// names the key and what would be right.
pub fn build(section: &PolicySection, roster: &mut Roster<'_>) -> Built {
    match POLICIES.iter().find(|(kind, _)| *kind == section.kind) {
        Some((_, build)) => build(section, roster),
        None => {
            let (unknown, known) = (&section.kind, kinds().collect::<Vec<_>>().join(", "));
            Err(section.error("kind", format!("there is no policy `{unknown}`; known are {known}")))
        }
    }
}

#[cfg(test)]
mod tests;
