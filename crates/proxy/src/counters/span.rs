//! The fate of spans.

use std::sync::atomic::{AtomicU64, Ordering};

/// The fate of spans that workers passed on.
#[derive(Debug, Default)]
pub struct SpanStats {
    exported: AtomicU64,
    lost: [AtomicU64; SpanLoss::ALL.len()],
}

/// Why spans from workers were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanLoss {
    /// The collector was unreachable, did not respond in time or not in HTTP, or requested one pause too many.
    Unreachable,
    /// The collector rejected the request finally: 400 or 404, for example.
    Refused,
    /// The collector accepted the request but not these spans (`rejected_spans`).
    Rejected,
    /// There was no collector any more, or the process ended.
    Ended,
}

impl SpanLoss {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Unreachable, Self::Refused, Self::Rejected, Self::Ended];

    /// The stable name for metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
            Self::Ended => "ended",
        }
    }
}

impl SpanStats {
    /// Spans that a collector accepted.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Spans that were dropped for this reason.
    #[must_use]
    pub fn lost(&self, loss: SpanLoss) -> u64 {
        self.lost[loss as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn add_exported(&self, count: u64) {
        self.exported.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn lose(&self, loss: SpanLoss, count: u64) {
        self.lost[loss as usize].fetch_add(count, Ordering::Relaxed);
    }
}
