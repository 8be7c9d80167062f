//! The seeded world once more, over copies of the machines in which bugs are planted: what a world cannot catch, it does
//! not check. The originals know nothing of this crate.
//!
//! `build.rs` makes the copies. Every bug has a switch, and all are off until [`plant`] turns one on.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "the originals are checked, and a planted bug need not be beautiful"
)]

use std::cell::Cell;

pub mod bugs;

include!(concat!(env!("OUT_DIR"), "/copies.rs"));

thread_local! {
    static PLANTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Turns one bug of [`bugs::BUGS`] on in this thread, and all others off.
pub fn plant(bug: Option<usize>) {
    PLANTED.set(bug);
}

fn on(bug: usize) -> bool {
    PLANTED.get() == Some(bug)
}
