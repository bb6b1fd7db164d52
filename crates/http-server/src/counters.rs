//! Counters of connections.

use std::sync::atomic::{AtomicU64, Ordering};

/// The reason why a server closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The connection was the oldest silent connection, and another client connected.
    OldestSilent,
    /// No complete head arrived before the timeout.
    HeadTimeout,
    /// The connection reached its maximum age.
    Age,
}

impl Closed {
    /// Every reason, by [`index`](Self::index).
    pub const ALL: [Self; 3] = [Self::OldestSilent, Self::HeadTimeout, Self::Age];

    fn index(self) -> usize {
        self as usize
    }

    /// The stable name for metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::OldestSilent => "made_room",
            Self::HeadTimeout => "head_timeout",
            Self::Age => "age",
        }
    }
}

/// Counters of the connections to one server.
#[derive(Debug, Default)]
pub struct Counters {
    closed: [AtomicU64; Closed::ALL.len()],
    refused: AtomicU64,
}

impl Counters {
    pub(crate) fn count_closed(&self, closed: Closed) {
        self.closed[closed.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that the handler denied because only connections of the reserve were left.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections closed for this reason.
    pub fn closed(&self, closed: Closed) -> u64 {
        self.closed[closed.index()].load(Ordering::Relaxed)
    }

    /// Requests that the handler denied because only connections of the reserve were left.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}
