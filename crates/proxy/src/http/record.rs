//! The record of a request while it is served, and its end, however the request ends.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use sluicegate_http1::{Known, Line};
use sluicegate_model::ObjectId;
use sluicegate_model::rule::PathMatch;
use tokio::time::Instant;

use super::exchange::Exchange;
use crate::counters::EndpointTimes;
use crate::feature::Guard;
use crate::feature::subscriptions::Subscribed;
use crate::record::trace::{Decision, Trace};
use crate::record::{RequestRecord, RouteRecord};
use crate::rule::RouteIndex;
use crate::upstream::LocalUpstream;
use crate::worker::Scratch;

/// The record of a request so far.
pub(super) struct OpenRecord {
    pub(super) started: Instant,
    /// The time at which the request ended, if the time is known already.
    pub(super) ended: Option<Instant>,
    /// When the last attempt began.
    pub(super) asked: Instant,
    /// How long the last attempt took to connect; zero for a connection of the pool.
    pub(super) connect_duration: Duration,
    /// The status that the client received; 0 before a status is sent.
    pub(super) status: u16,
    /// The index of the request's route.
    pub(super) route: Option<RouteIndex>,
    pub(super) upstream: Option<Rc<LocalUpstream>>,
    pub(super) endpoint: Option<SocketAddr>,
    pub(super) endpoint_duration: Option<Duration>,
    pub(super) attempts: u32,
    /// Whether a canary receives the request.
    pub(super) is_diverted: bool,
    pub(super) bytes: u64,
    /// Bytes of the head of the response.
    pub(super) head_bytes: u64,
    /// The status that the endpoint sent.
    pub(super) endpoint_status: Option<u16>,
    /// Bytes of the body that the endpoint sent.
    pub(super) endpoint_bytes: u64,
    /// Why the request failed.
    pub(super) reason: Option<&'static str>,
    /// Whether the response ended properly.
    pub(super) complete: bool,
    pub(super) request_id: u128,
    /// The number of the consumer in the table.
    pub(super) consumer: Option<u32>,
    /// The place of the subscription among the subscriptions of the route.
    pub(super) subscription: Option<u32>,
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
    /// The messages that do not match the description of their operation: `request`, `response` or `both`.
    pub(super) invalid: Option<&'static str>,
}

impl OpenRecord {
    pub(super) fn new(started: Instant) -> Self {
        Self {
            started,
            ended: None,
            asked: started,
            connect_duration: Duration::ZERO,
            status: 0,
            route: None,
            upstream: None,
            endpoint: None,
            endpoint_duration: None,
            attempts: 0,
            is_diverted: false,
            bytes: 0,
            head_bytes: 0,
            endpoint_status: None,
            endpoint_bytes: 0,
            reason: None,
            complete: false,
            request_id: fastrand::u128(..),
            consumer: None,
            subscription: None,
            policy: None,
            limit: None,
            dry_runs: Vec::new(),
            trace: None,
            cache: None,
            invalid: None,
        }
    }
}

/// Records in `Drop`, so that a request whose task is aborted is counted and logged too.
impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        let ended = self.record.ended.unwrap_or_else(Instant::now);
        self.client.ended = ended;
        let duration = ended - self.record.started;
        self.permits.clear();
        let stats = self.worker.stats();
        stats.in_flight.sub(1);
        let finished = self.finished(duration);
        if let Some(subscribed) = self.subscribed() {
            subscribed.add_bytes(finished.request_bytes + finished.bytes);
        }
        self.worker.sinks.request(&finished, stats);
    }
}

impl Exchange<'_> {
    /// The subscription by which the caller called.
    fn subscribed(&self) -> Option<Subscribed<'_>> {
        let place = self.record.subscription?;
        let guard = self.snapshot.table.target(self.record.route?).guard.as_deref()?;
        guard.subscriptions.as_ref()?.compiled.get(place)
    }

    /// The record of the request, which has ended.
    fn finished(&self, duration: Duration) -> RequestRecord<'_> {
        let (record, table, worker) = (&self.record, &self.snapshot.table, self.worker.id);
        let target = record.route.map(|route| table.target(route));
        let subscribed = self.subscribed();
        let log = &self.snapshot.settings.access_log;
        // For a request without a route, and for the URL of another page, the policy is unknown.
        let all_secrets = table.secret_parameters();
        RequestRecord {
            head: self.head(),
            client: self.client_view(),
            tls: self.client.origin.session.as_ref(),
            format: log.format.as_ref().map(|format| (format, self.template_view())),
            span_name: self.traffic().filter(|_| record.trace.is_some()).and_then(|policy| {
                let name = policy.source().features.spans.name.as_ref()?;
                Some((name, self.template_view()))
            }),
            request_id: record.request_id,
            duration,
            status: record.status,
            request_bytes: (self.scratch.head.len as u64).saturating_add(self.upload.position().1),
            bytes: record.bytes,
            head_bytes: record.head_bytes,
            endpoint_status: record.endpoint_status,
            endpoint_bytes: record.endpoint_bytes,
            is_complete: record.complete,
            reason: record.reason,
            route: record.route.zip(target).map(|(index, target)| RouteRecord {
                id: &target.id,
                // Only spans need the pattern, and finding it may miss the CPU's cache.
                pattern: record.trace.as_ref().and_then(|_| table.path(index)).map(PathMatch::as_str),
                stats: &target.stats,
                worker,
                table,
                index,
                api: target.api.as_deref(),
            }),
            upstream: record.upstream.as_ref().map(|upstream| upstream.shared.key()),
            endpoint: record.endpoint,
            endpoint_duration: record.endpoint_duration,
            endpoint_times: record.endpoint_duration.map(|to_head| EndpointTimes {
                connect: record.connect_duration,
                head: record.connect_duration + to_head,
                response: (record.started + duration).saturating_duration_since(record.asked)
                    + record.connect_duration,
            }),
            upstream_duration: (record.attempts > 0).then(|| {
                (record.started + duration).saturating_duration_since(record.asked) + record.connect_duration
            }),
            attempts: record.attempts,
            canary: record.upstream.as_ref().filter(|_| record.is_diverted).map(|of| of.shared.key()),
            consumer: record.consumer.map(|number| {
                let known = table.consumers().get(number);
                (&known.consumer.id, known.stats.of(worker))
            }),
            consumer_number: record.consumer,
            plan: subscribed.map(|of| &*of.plan.label),
            subscription: subscribed.map(|of| &of.subscription.id),
            policy: record.policy.as_ref(),
            limit: record.limit.as_deref(),
            dry_runs: &record.dry_runs,
            trace: record.trace.as_deref(),
            cache: record.cache,
            invalid: record.invalid,
            is_logged: !self.traffic().is_some_and(|policy| policy.source().features.unrecorded.access_log)
                && log.has_request(self.head().target(), record.route.is_some()),
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

    /// Replaces the trace of the caller, if there is one, by a trace of the gateway or by none.
    pub(super) fn ignore_caller_trace(&mut self) {
        let snapshot = self.snapshot.clone();
        let Some(tracing) = &snapshot.settings.tracing else { return };
        let is_of_caller = |line: &Line| matches!(line.known, Known::Traceparent | Known::Tracestate);
        let is_own = self.record.trace.as_ref().is_some_and(|trace| trace.parent.is_none());
        if is_own || !self.scratch.head.lines.iter().any(is_of_caller) {
            return;
        }
        self.end_trace();
        let head = &mut self.scratch.head;
        Decision::forget(head);
        if let Some(trace) = Trace::sampled(tracing) {
            let mut lines = Vec::new();
            trace.propagate(head, &mut lines);
            self.trace_lines = lines.len();
            self.scratch.request_lines.splice(..0, lines);
            self.record.trace = Some(Box::new(trace));
        }
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
