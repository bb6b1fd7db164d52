//! Whether the process is ready for traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The phase of the process. Phases only advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No configuration is served yet (Z11).
    Starting,
    /// The process serves.
    Ready,
    /// The process drains (Z10).
    Draining,
}

/// The phase of the process, shared by its clones.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// A process in the phase [`Starting`](Phase::Starting).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances to this phase. The call has no effect if the current phase is later. A first configuration during the
    /// drain must not make the process ready.
    pub fn set(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::Relaxed);
    }

    /// The current phase.
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
    fn draining_process_never_becomes_ready_again() {
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
