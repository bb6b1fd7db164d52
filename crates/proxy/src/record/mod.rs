//! Records of finished requests and connections, and their sinks.
//!
//! A guard makes the record in its `Drop`, so a cancelled request is recorded too. [`Sinks`] passes each record to each
//! sink: a further sink is one more line there.
//!
//! | module | purpose |
//! |---|---|
//! | `request` | the record of a request |
//! | `connection` | the record of a connection below HTTP |
//! | `metrics` | the sink of counters |
//! | [`refusals`] | the sink of the last refused requests |
//! | [`access_log`] | the sink of lines for the access log |
//! | [`analytics`] | the sink of sums by route, operation, consumer and minute |
//! | `trace` | sampling of requests; the sink of spans, and their export to a collector |

pub mod access_log;
pub mod analytics;
mod connection;
mod metrics;
pub mod refusals;
mod request;
pub(crate) mod trace;

pub(crate) use connection::ConnectionRecord;
pub(crate) use request::{RejectedHead, RequestRecord, RouteRecord, request_id, request_line};

use crate::counters::WorkerStats;
use access_log::LogBuffer;
use analytics::AnalyticsBuffer;
use refusals::RefusalRing;
use trace::SpanBuffer;

/// nginx' status for a client that closed the connection before the response.
const CLOSED: u16 = 499;

/// The sinks of a worker's records.
#[derive(Debug)]
pub(crate) struct Sinks {
    log: Option<LogBuffer>,
    analytics: Option<AnalyticsBuffer>,
    refusals: RefusalRing,
    pub(crate) spans: SpanBuffer,
}

impl Sinks {
    pub(crate) fn new(
        log: Option<LogBuffer>,
        analytics: Option<AnalyticsBuffer>,
        refusals: RefusalRing,
        spans: SpanBuffer,
    ) -> Self {
        Self { log, analytics, refusals, spans }
    }

    /// Records a finished request.
    pub(crate) fn request(&self, record: &RequestRecord<'_>, stats: &WorkerStats) {
        metrics::count(record);
        self.refusals.request(record);
        if let Some(log) = self.log.as_ref().filter(|_| record.is_logged) {
            log.request(record, stats);
        }
        if let Some(analytics) = &self.analytics {
            analytics.request(record, stats);
        }
        if let Some(trace) = record.trace {
            self.spans.request(record, trace, stats);
        }
    }

    /// Records a rejected or incomplete head, for which there is no route and no span.
    pub(crate) fn rejected_head(&self, record: &RejectedHead<'_>, stats: &WorkerStats) {
        if let Some(log) = self.log.as_ref().filter(|_| record.is_logged) {
            log.rejected_head(record, stats);
        }
    }

    /// Records a finished connection below HTTP. The counters of its route follow it while it is open.
    pub(crate) fn connection(&self, record: &ConnectionRecord<'_>, stats: &WorkerStats) {
        if let Some(log) = self.log.as_ref().filter(|_| record.is_logged) {
            log.connection(record, stats);
        }
    }

    /// Passes on what the sinks hold back.
    pub(crate) fn flush(&self, stats: &WorkerStats) {
        if let Some(log) = &self.log {
            log.flush(stats);
        }
        self.spans.flush(stats);
        if let Some(analytics) = &self.analytics {
            analytics.flush();
        }
    }

    /// Passes on everything, at the end of the worker.
    pub(crate) fn finish(&self, stats: &WorkerStats) {
        self.flush(stats);
        if let Some(analytics) = &self.analytics {
            analytics.finish();
        }
    }
}
