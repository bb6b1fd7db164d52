//! The spans that a worker has not passed on yet.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use sluicegate_http1::RequestHead;
use sluicegate_model::Tracing;
use tokio::sync::mpsc;

use super::super::RequestRecord;
use super::context::{Decision, Followed, Trace, decide};
use super::span::Span;
use crate::counters::WorkerStats;
use crate::protobuf;

/// A worker passes its spans on once it has this many, and each second.
const BATCH: u64 = 512;
/// A worker also passes its spans on once they have this many bytes. The longest span has about 10 KiB.
const BATCH_BYTES: usize = 128 * 1024;

/// Spans that go to the collector together, each as a field of the message `ScopeSpans`.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(super) spans: Vec<u8>,
    pub(super) count: u64,
}

/// The spans of one worker.
#[derive(Debug)]
pub(crate) struct SpanBuffer {
    batches: mpsc::Sender<Batch>,
    followed: Arc<Followed>,
    pending: RefCell<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    spans: Vec<u8>,
    count: u64,
    /// The buffer for the span that is written: its length must be known first.
    span: Vec<u8>,
}

impl SpanBuffer {
    pub(super) fn new(batches: mpsc::Sender<Batch>, followed: Arc<Followed>) -> Self {
        Self { batches, followed, pending: RefCell::default() }
    }

    /// Decides about a request that begins at `now`.
    pub(crate) fn decide(
        &self,
        head: &RequestHead,
        buf: &[u8],
        tracing: &Tracing,
        now: Instant,
        stats: &WorkerStats,
    ) -> Decision {
        let decision = decide(head, buf, tracing, &self.followed, now);
        if decision == Decision::TooMany {
            stats.spans_over_limit.add(1);
        }
        decision
    }

    /// Adds the span of a finished request.
    pub(crate) fn request(&self, record: &RequestRecord<'_>, trace: &Trace, stats: &WorkerStats) {
        self.add(&Span::of(record, trace), stats);
    }

    fn add(&self, span: &Span<'_>, stats: &WorkerStats) {
        let mut pending = self.pending.borrow_mut();
        let Pending { spans, count, span: message } = &mut *pending;
        message.clear();
        span.write(message);
        // ScopeSpans.spans
        protobuf::bytes(spans, 2, message);
        *count += 1;
        let is_full = *count >= BATCH || spans.len() >= BATCH_BYTES;
        drop(pending);
        if is_full {
            self.flush(stats);
        }
    }

    /// Passes the spans on. They are dropped if there is no room for them.
    pub(crate) fn flush(&self, stats: &WorkerStats) {
        let mut pending = self.pending.borrow_mut();
        if pending.count == 0 {
            return;
        }
        let batch =
            Batch { spans: std::mem::take(&mut pending.spans), count: std::mem::take(&mut pending.count) };
        let count = batch.count;
        if self.batches.try_send(batch).is_err() {
            stats.spans_queue_full.add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::{Duration, SystemTime};

    use sluicegate_http1::Method;

    use super::super::export::{Exporter, QUEUE};
    use super::*;

    const SPAN_MAX: usize = 12 * 1024;

    /// Records a span of the maximum length.
    fn record(spans: &SpanBuffer, stats: &WorkerStats) {
        let long = [0xff; 64 * 1024];
        let pattern = "p".repeat(64 * 1024);
        let trace = Trace { trace: 1, parent: Some(1), span: 1, flags: 1 };
        let span = Span {
            name: None,
            trace: &trace,
            state: Some(&long[..512]),
            start: SystemTime::UNIX_EPOCH,
            duration: Duration::from_secs(1),
            method: Method::Other,
            method_name: &long,
            is_https: true,
            host: &long,
            path: &long,
            pattern: Some(&pattern),
            version: "1.1",
            user_agent: Some(&long),
            client: Ipv4Addr::LOCALHOST.into(),
            peer: Ipv4Addr::LOCALHOST.into(),
            status: 200,
            is_complete: true,
            reason: None,
            route: None,
            upstream: None,
            endpoint: None,
            endpoint_duration: None,
            attempts: 0,
            consumer: None,
            policy: None,
        };
        spans.add(&span, stats);
    }

    #[test]
    fn number_of_unsent_spans_is_bounded_and_dropped_spans_are_counted() {
        let (exporter, spans) = Exporter::new(Arc::default());
        let (buffer, stats) = (spans.buffer(), WorkerStats::default());
        for _ in 0..100_000 {
            record(&buffer, &stats);
            let pending = buffer.pending.borrow();
            assert!(pending.spans.len() <= BATCH_BYTES + SPAN_MAX, "{}", pending.spans.len());
            assert!(pending.span.len() <= SPAN_MAX, "{}", pending.span.len());
        }
        let queue = exporter.batches.as_ref().map_or(0, mpsc::Receiver::len);
        assert_eq!(queue, QUEUE);
        let (dropped, pending) = (stats.spans_queue_full.get(), buffer.pending.borrow().count);
        let each = (100_000 - dropped - pending) / QUEUE as u64;
        assert!((1..=BATCH).contains(&each), "{each}");
        assert_eq!(each * QUEUE as u64 + dropped + pending, 100_000);
    }
}
