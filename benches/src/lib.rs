//! What the benches share: the protocol machines driven by hand, whole nodes over scripted engines, and an allocator that
//! counts. Nothing here is part of the server.

pub mod allocations;
pub mod machines;
pub mod nodes;
pub mod serving;
pub mod timed;

use std::sync::Arc;
use std::time::Duration;
use tokenrouter_policies::{Draws, Token};
use tokenrouter_protocol::{Piece, Request, RouteIx, Sampling, Vocabulary};

/// A token that depends on the last one only: the cheapest text there is.
pub fn next_token(history: &[Token]) -> Token {
    history.last().map_or(3, |last| (last * 7 + 1) % 500 + 3)
}

/// 512 tokens of four letters; token 2 ends a reply and [`next_token`] never gives it.
pub fn vocabulary() -> Arc<Vocabulary> {
    let piece = |t: u32| Piece { bytes: format!("{t:>3} ").into_bytes(), visible: true };
    Arc::new(Vocabulary::new((0..512).map(piece), vec![2]))
}

/// A greedy request for `tokens` tokens after a prompt of `prompt`.
pub fn request(route: RouteIx, prompt: usize, tokens: u32, seed: u64) -> Request {
    Request {
        route,
        prompt: (0..prompt as u32).map(|p| 3 + p % 500).collect(),
        max_tokens: tokens,
        sampling: Sampling::GREEDY,
        draws: Draws::new(seed, 0),
        stop: Vec::new(),
        ignore_eos: true,
    }
}

/// The value below which `share` of `sorted` lies.
pub fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
