//! The time of the last change of the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The time when the current configuration was published. Clones share the time.
#[derive(Clone, Debug, Default)]
pub struct LastChange(Arc<Changes>);

#[derive(Debug, Default)]
struct Changes {
    /// The time of the last change in seconds since 1970; 0 before the first.
    last: AtomicU64,
    count: AtomicU64,
}

impl LastChange {
    /// The state before the first configuration.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time to now, and counts the change.
    pub fn set_now(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.0.last.store(now, Ordering::Relaxed);
        self.0.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The time in seconds since 1970. `None` before the first configuration.
    #[must_use]
    pub fn seconds(&self) -> Option<u64> {
        Some(self.0.last.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0)
    }

    /// The number of changes.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }
}
