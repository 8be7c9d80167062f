//! `tokenrouter convert-head`: a published checkpoint of a router head as the two files that a topology can name.

use super::{CommandError, print};
use crate::cli::ConvertHead;
use std::path::Path;
use tokenrouter_engine::Converted;

/// Converts one head; files that are there already stay as they are.
///
/// # Errors
/// A checkpoint that cannot be read, holds no head or anything to be executed; a result that exists or cannot be
/// written.
pub fn run(arguments: &ConvertHead) -> Result<(), CommandError> {
    let checkpoint = &arguments.checkpoint;
    let weights = arguments.out.clone().unwrap_or_else(|| checkpoint.with_extension("safetensors"));
    let other = |reason: String| CommandError::Other(reason);
    if weights.extension().is_none_or(|extension| extension != "safetensors") {
        let name = weights.display();
        return Err(other(format!("{name} is no name for a head; end it in .safetensors")));
    }
    let taken = |path: &Path| other(format!("{} exists; name another with --out", path.display()));
    for path in [&weights, &weights.with_extension("json")] {
        if path.exists() {
            return Err(taken(path));
        }
    }
    let mut head = Converted::read(checkpoint)
        .map_err(|e| other(format!("{} cannot be converted: {e}", checkpoint.display())))?;
    head.card.threshold = arguments.threshold.or(head.card.threshold);
    let card = head.write(&weights).map_err(|e| other(e.to_string()))?;
    let (kind, tensors) = (&head.card.model_type, head.tensors.len());
    let threshold = match head.card.threshold {
        Some(threshold) => format!("threshold {threshold}"),
        None => "no threshold of its own".to_owned(),
    };
    let (weights, card) = (weights.display(), card.display());
    print(&format!("{kind}, {tensors} tensors, {threshold}.\nWritten: {weights} and {card}\n"))
}
