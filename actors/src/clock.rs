//! The two clocks: time since start for the machines, and lives that never repeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokenrouter_protocol::Life;
use tokio::time::Instant;

/// Time since the node started, as the protocol machines take it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Counts the lives of one actor. The node holds it, so that the count survives every supervisor below.
#[derive(Clone, Debug)]
pub(crate) struct Lives {
    process: u64,
    next: Arc<AtomicU32>,
}

impl Lives {
    /// Lives of the process that starts now.
    pub(crate) fn new(process: u64) -> Self {
        Self { process, next: Arc::new(AtomicU32::new(0)) }
    }

    /// The next life.
    pub(crate) fn next(&self) -> Life {
        Life { process: self.process, restarts: self.next.fetch_add(1, Ordering::Relaxed) }
    }
}

/// The start of this process in nanoseconds since the epoch.
pub(crate) fn process_start() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
