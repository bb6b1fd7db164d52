//! Counters and logs of a request, however it ends.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use sluicegate_http1::{Known, Version};
use sluicegate_model::ObjectId;
use sluicegate_model::rule::PathMatch;
use tokio::time::Instant;

use super::connection::Client;
use super::exchange::Exchange;
use crate::policy::Guard;
use crate::policy::credential::mask;
use crate::record::access_log::Entry;
use crate::record::trace::{Decision, Span, Trace};
use crate::rule::RouteIndex;
use crate::upstream::LocalUpstream;
use crate::worker::{Scratch, Worker};

/// The facts about a request so far.
pub(super) struct Record {
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

impl Record {
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
        self.worker.stats().in_flight.sub(1);
        if let Some(route) = self.record.route {
            let shard = self.snapshot.table.target(route).stats.shards().of(self.worker.id);
            let class = usize::from(self.record.status / 100);
            if self.record.complete
                && let Some(responses) = class.checked_sub(1).and_then(|class| shard.responses.get(class))
            {
                responses.add(1);
            } else {
                shard.aborted.add(1);
            }
            shard.latency.record(duration);
            shard.endpoint_micros.add(micros(self.record.endpoint_duration));
            shard.bytes_out.add(self.record.bytes);
        }
        if let Some(consumer) = self.record.consumer {
            let stats = &self.snapshot.table.consumers().get(consumer).stats;
            let (shard, class) = (stats.of(self.worker.id), usize::from(self.record.status / 100));
            match class.checked_sub(1).and_then(|class| shard.responses.get(class)) {
                Some(responses) if self.record.complete => responses.add(1),
                _ => shard.aborted.add(1),
            }
            shard.micros.add(micros(Some(duration)));
            shard.endpoint_micros.add(micros(self.record.endpoint_duration));
            shard.bytes_out.add(self.record.bytes);
        }
        if self.worker.log.is_some() {
            self.log(duration);
        }
        if let Some(trace) = self.record.trace.take() {
            self.end_trace(&trace, duration);
        }
    }
}

fn micros(duration: Option<Duration>) -> u64 {
    duration.map_or(0, |duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}

impl Exchange<'_> {
    fn log(&self, duration: Duration) {
        let Some(log) = &self.worker.log else { return };
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let header = |known| head.header(buf, known).unwrap_or_default();
        let ours;
        let request_id = match header(Known::XRequestId) {
            theirs if self.trusted && !theirs.is_empty() => theirs,
            _ => {
                ours = format!("{:032x}", self.record.request_id);
                ours.as_bytes()
            }
        };
        let target = self.record.route.map(|route| self.snapshot.table.target(route));
        // For a request without a route, and for the URL of another page, the policy is unknown.
        let all_secrets = self.snapshot.table.secret_parameters();
        let secrets = match target {
            Some(target) => target.guard.as_deref().map_or(&[][..], Guard::secret_parameters),
            None => all_secrets,
        };
        let masked = if secrets.is_empty() { None } else { mask(head.target.of(buf), secrets) };
        let referer = header(Known::Referer);
        let masked_referer = if all_secrets.is_empty() { None } else { mask(referer, all_secrets) };
        let consumer = self.record.consumer.map(|number| self.snapshot.table.consumers().get(number));
        let entry = Entry {
            at: SystemTime::now() - duration,
            remote: self.client_address(),
            method: head.method_name.of(buf),
            target: masked.as_deref().unwrap_or(head.target.of(buf)),
            version: match head.version {
                _ if self.client.is_http2() => b"HTTP/2.0",
                Version::Http10 => b"HTTP/1.0",
                Version::Http11 => b"HTTP/1.1",
            },
            host: head.authority.map_or(&[], |authority| authority.of(buf)),
            referer: masked_referer.as_deref().unwrap_or(referer),
            user_agent: header(Known::UserAgent),
            request_id,
            // nginx' code for a client that closed the connection before the response.
            status: if self.record.status == 0 { 499 } else { self.record.status },
            bytes: self.record.bytes,
            duration,
            route: target.map(|target| &target.id),
            upstream: self.record.upstream.as_ref().map(|upstream| upstream.shared.key()),
            endpoint: self.record.endpoint,
            endpoint_duration: self.record.endpoint_duration,
            attempts: self.record.attempts,
            consumer: consumer.map(|known| &known.consumer.id),
            policy: self.record.policy.as_ref(),
            limit: self.record.limit.as_deref(),
            dry_runs: &self.record.dry_runs,
            trace: self.record.trace.as_deref().map(|trace| (trace.trace, trace.span)),
            cache: self.record.cache,
            reason: self.record.reason.or((!self.record.complete).then_some("aborted")),
        };
        log.log(&entry, self.worker.stats());
    }

    /// Starts a span of the request, or forwards its trace without a span.
    pub(super) fn begin_trace(&mut self) {
        let Some(tracing) = &self.snapshot.settings.tracing else { return };
        let Scratch { input, head, request_lines, .. } = &mut *self.scratch;
        let (spans, now) = (&self.worker.spans, self.record.started.into_std());
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

    fn end_trace(&self, trace: &Trace, duration: Duration) {
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let route = self.record.route;
        let is_https = self.client.origin.is_https(self.trusted, head, buf);
        let consumer = self.record.consumer.map(|number| self.snapshot.table.consumers().get(number));
        let span = Span {
            trace,
            state: head.header(buf, Known::Tracestate).filter(|_| trace.parent.is_some()),
            start: SystemTime::now() - duration,
            duration,
            method: head.method,
            method_name: head.method_name.of(buf),
            is_https,
            host: head.authority.map_or(&[], |authority| authority.of(buf)),
            path: head.path.of(buf),
            pattern: route.and_then(|route| self.snapshot.table.path(route)).map(PathMatch::as_str),
            version: match head.version {
                _ if self.client.is_http2() => "2",
                Version::Http10 => "1.0",
                Version::Http11 => "1.1",
            },
            user_agent: head.header(buf, Known::UserAgent),
            client: self.client_address(),
            peer: self.client.origin.peer,
            status: self.record.status,
            is_complete: self.record.complete,
            reason: self.record.reason,
            route: route.map(|route| &self.snapshot.table.target(route).id),
            upstream: self.record.upstream.as_ref().map(|upstream| upstream.shared.key()),
            endpoint: self.record.endpoint,
            endpoint_duration: self.record.endpoint_duration,
            attempts: self.record.attempts,
            consumer: consumer.map(|known| &known.consumer.id),
            policy: self.record.policy.as_ref(),
        };
        self.worker.spans.record(&span, self.worker.stats());
    }
}

/// A head that was rejected or incomplete.
pub(super) struct Headless<'h> {
    /// The received part of the head.
    pub(super) buf: &'h [u8],
    pub(super) status: u16,
    pub(super) reason: &'static str,
    /// The size of the response.
    pub(super) bytes: usize,
    pub(super) duration: Duration,
}

/// Logs a request whose head was rejected, with the known parts of the head.
pub(super) fn log_headless(worker: &Worker, client: &Client, headless: &Headless<'_>) {
    let Some(log) = &worker.log else { return };
    let [method, target, version] = request_line(headless.buf);
    let masked = mask(target, worker.snapshot().table.secret_parameters());
    let entry = Entry {
        at: SystemTime::now() - headless.duration,
        remote: client.origin.peer,
        method,
        target: masked.as_deref().unwrap_or(target),
        version,
        host: &[],
        referer: &[],
        user_agent: &[],
        request_id: &[],
        status: headless.status,
        bytes: headless.bytes as u64,
        duration: headless.duration,
        route: None,
        upstream: None,
        endpoint: None,
        endpoint_duration: None,
        attempts: 0,
        consumer: None,
        policy: None,
        limit: None,
        dry_runs: &[],
        trace: None,
        cache: None,
        reason: Some(headless.reason),
    };
    log.log(&entry, worker.stats());
}

/// The words of the unchecked first line, for people.
pub(super) fn request_line(buf: &[u8]) -> [&[u8]; 3] {
    const LONGEST: usize = 4096;
    let line = buf.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let mut words = line[..line.len().min(LONGEST)].split(|byte| *byte == b' ');
    [(); 3].map(|()| words.next().unwrap_or_default())
}
