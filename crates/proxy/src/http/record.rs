//! The record of a request while it is served, and its end, however the request ends.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use sluicegate_model::ObjectId;
use sluicegate_model::rule::PathMatch;
use tokio::time::Instant;

use super::exchange::Exchange;
use crate::feature::Guard;
use crate::record::trace::{Decision, Trace};
use crate::record::{RequestRecord, RouteRecord};
use crate::rule::RouteIndex;
use crate::upstream::LocalUpstream;
use crate::worker::Scratch;

/// The record of a request so far.
pub(super) struct OpenRecord {
    pub(super) started: Instant,
    /// When the last attempt began.
    pub(super) asked: Instant,
    /// The status that the client received; 0 before a status is sent.
    pub(super) status: u16,
    /// The index of the request's route.
    pub(super) route: Option<RouteIndex>,
    pub(super) upstream: Option<Rc<LocalUpstream>>,
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) endpoint_duration: Option<Duration>,
    pub(super) attempts: u32,
    pub(super) bytes: u64,
    /// Why the request failed.
    pub(super) reason: Option<&'static str>,
    /// Whether the response ended properly.
    pub(super) complete: bool,
    pub(super) request_id: u128,
    /// The number of the consumer in the table.
    pub(super) consumer: Option<u32>,
    /// The policy that denied the request.
    pub(super) policy: Option<ObjectId>,
    /// The limit of the policy that is reached.
    pub(super) limit: Option<Box<str>>,
    /// The limits in a dry run that would have rejected the request: `namespace/policy/limit`.
    pub(super) dry_runs: Vec<String>,
    /// The gateway's span, if it has one.
    pub(super) trace: Option<Box<Trace>>,
    /// The effect of the cache.
    pub(super) cache: Option<&'static str>,
}

impl OpenRecord {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            asked: started,
            status: 0,
            route: None,
            upstream: None,
            endpoint: None,
            endpoint_duration: None,
            attempts: 0,
            bytes: 0,
            reason: None,
            complete: false,
            request_id: fastrand::u128(..),
            consumer: None,
            policy: None,
            limit: None,
            dry_runs: Vec::new(),
            trace: None,
            cache: None,
        }
    }
}

/// Records in `Drop`, so that a request whose task is aborted is counted and logged too.
impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let duration = self.record.started.elapsed();
        self.permits.clear();
        let stats = self.worker.stats();
        stats.in_flight.sub(1);
        self.worker.sinks.request(&self.finished(duration), stats);
    }
}

impl Exchange<'_> {
    /// The record of the request, which has ended.
    fn finished(&self, duration: Duration) -> RequestRecord<'_> {
        let (record, table, worker) = (&self.record, &self.snapshot.table, self.worker.id);
        let target = record.route.map(|route| table.target(route));
        // For a request without a route, and for the URL of another page, the policy is unknown.
        let all_secrets = table.secret_parameters();
        RequestRecord {
            head: self.head(),
            client: self.client_view(),
            request_id: record.request_id,
            duration,
            status: record.status,
            bytes: record.bytes,
            is_complete: record.complete,
            reason: record.reason,
            route: record.route.zip(target).map(|(index, target)| RouteRecord {
                id: &target.id,
                // Only spans need the pattern, and finding it may miss the CPU's cache.
                pattern: record.trace.as_ref().and_then(|_| table.path(index)).map(PathMatch::as_str),
                shard: target.stats.shards().of(worker),
            }),
            upstream: record.upstream.as_ref().map(|upstream| upstream.shared.key()),
            endpoint: record.endpoint,
            endpoint_duration: record.endpoint_duration,
            attempts: record.attempts,
            consumer: record.consumer.map(|number| {
                let known = table.consumers().get(number);
                (&known.consumer.id, known.stats.of(worker))
            }),
            policy: record.policy.as_ref(),
            limit: record.limit.as_deref(),
            dry_runs: &record.dry_runs,
            trace: record.trace.as_deref(),
            cache: record.cache,
            is_logged: !self.traffic().is_some_and(|policy| policy.source().features.unrecorded.access_log),
            secrets: match target {
                Some(target) => target.guard.as_deref().map_or(&[][..], Guard::secret_parameters),
                None => all_secrets,
            },
            all_secrets,
        }
    }

    /// Ends the span of a request whose rule has no traces.
    pub(super) fn end_trace(&mut self) {
        self.record.trace = None;
        self.scratch.request_lines.drain(..self.trace_lines);
        self.trace_lines = 0;
    }

    /// Starts a span of the request, or forwards its trace without a span.
    pub(super) fn begin_trace(&mut self) {
        let Some(tracing) = &self.snapshot.settings.tracing else { return };
        let Scratch { input, head, request_lines, .. } = &mut *self.scratch;
        let (spans, now) = (&self.worker.sinks.spans, self.record.started.into_std());
        match spans.decide(head, input.filled(), tracing, now, self.worker.stats()) {
            Decision::PassOn | Decision::TooMany => {}
            Decision::Forget => Decision::forget(head),
            Decision::Take(trace) => {
                trace.propagate(head, request_lines);
                self.trace_lines = request_lines.len();
                self.record.trace = Some(Box::new(trace));
            }
        }
    }
}
