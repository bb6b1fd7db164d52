//! When the configuration last changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// When the configuration that is served was published, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct LastChange(Arc<AtomicU64>);

impl LastChange {
    /// No configuration was published yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// It was published now.
    pub fn set_now(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.0.store(now, Ordering::Relaxed);
    }

    /// In seconds since 1970, if there was one.
    #[must_use]
    pub fn seconds(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|seconds| *seconds > 0)
    }
}
