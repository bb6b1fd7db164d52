//! Whether the process wants traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Where the process is in its life. It only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No configuration is served yet (Z11).
    Starting,
    /// It serves.
    Ready,
    /// It comes to its end (Z10).
    Draining,
}

/// The phase of the process, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// A process that is starting.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on to this phase. An earlier phase than the current one is ignored: a first configuration that
    /// comes after the drain began does not call for traffic again.
    pub fn set(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::Relaxed);
    }

    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drain_is_not_undone_by_a_late_configuration() {
        let readiness = Readiness::new();
        let clone = readiness.clone();
        assert_eq!(readiness.phase(), Phase::Starting);
        clone.set(Phase::Ready);
        assert_eq!(readiness.phase(), Phase::Ready);
        clone.set(Phase::Draining);
        clone.set(Phase::Ready);
        assert_eq!(readiness.phase(), Phase::Draining);
    }
}
