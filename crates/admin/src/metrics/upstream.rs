//! Metrics of each upstream.

use std::fmt;

use sluicegate_model::Conditions;
use sluicegate_proxy::counters::HistogramTotal;
use sluicegate_proxy::registry::Registry;
use sluicegate_proxy::upstream::{EndpointSet, SharedUpstream};

use super::families::Families;
use crate::state::{Reasons, UpstreamCounters};

/// The values of `state`. Every endpoint has exactly one state.
const STATES: [&str; 5] = ["ready", "unhealthy", "failing", "terminating", "not_ready"];

/// An upstream's numbers, read once for all its families.
struct Totals {
    upstream: String,
    counters: UpstreamCounters,
    latency: HistogramTotal,
    endpoints: [u64; STATES.len()],
}

pub(super) fn encode(families: &mut Families<'_>, registry: &Registry) -> fmt::Result {
    let upstreams: Vec<_> = registry.upstreams().iter().map(|upstream| Totals::of(upstream)).collect();
    families.gauges(
        "sluicegate_upstream_endpoints",
        "Endpoints by state: ready and healthy (ready), ready and unhealthy (unhealthy), failing health checks (failing), terminating and still serving (terminating), other (not_ready)",
        upstreams.iter().flat_map(|upstream| {
            let states = STATES.iter().zip(upstream.endpoints);
            states.map(|(state, count)| ([upstream.label(), ("state", *state)], count))
        }),
    )?;
    families.gauges(
        "sluicegate_upstream_requests_in_flight",
        "Requests and tunnels in flight at the upstream",
        upstreams.iter().map(|upstream| ([upstream.label()], upstream.counters.requests_in_flight)),
    )?;
    let asked: Vec<_> = upstreams.iter().filter(|upstream| upstream.was_asked()).collect();
    let mut each = |name: &str, help: &str, value: fn(&UpstreamCounters) -> u64| {
        let samples = asked.iter().map(|upstream| ([upstream.label()], value(&upstream.counters)));
        families.counters(name, help, samples)
    };
    each(
        "sluicegate_upstream_attempts",
        "Attempts: requests written to an endpoint, including retries",
        |of| of.attempts,
    )?;
    each("sluicegate_upstream_connections_opened", "Connections opened to endpoints", |of| {
        of.connections_opened
    })?;
    each(
        "sluicegate_upstream_connections_reused",
        "Attempts over an idle connection of an earlier request",
        |of| of.connections_reused,
    )?;
    each(
        "sluicegate_upstream_hedges",
        "Hedged connects: second connects beside a slow first connect",
        |of| of.hedges,
    )?;
    each(
        "sluicegate_upstream_not_repeated",
        "Failed requests without a retry, because an endpoint may have processed them",
        |of| of.not_repeated,
    )?;
    each("sluicegate_upstream_ejections", "Times that an endpoint became unhealthy or was ejected", |of| {
        of.ejections
    })?;
    each("sluicegate_upstream_readmissions", "Times that an endpoint became healthy again", |of| {
        of.readmissions
    })?;
    each("sluicegate_upstream_health_checks", "Health checks of endpoints", |of| of.health_checks)?;
    each(
        "sluicegate_upstream_health_checks_failed",
        "Health checks with a wrong response, or without a response in time",
        |of| of.health_checks_failed,
    )?;
    each("sluicegate_upstream_idle_closed", "Idle connections that their endpoint closed", |of| {
        of.idle_closed
    })?;
    let mut by_reason = |name: &str, help: &str, reasons: fn(&UpstreamCounters) -> &Reasons| {
        let samples = asked.iter().flat_map(|upstream| {
            let reasons = reasons(&upstream.counters).0.iter();
            reasons.map(|(reason, count)| ([upstream.label(), ("reason", &**reason)], *count))
        });
        families.counters(name, help, samples)
    };
    by_reason("sluicegate_upstream_connect_failures", "Failed connects to endpoints, by reason", |of| {
        &of.connect_failures
    })?;
    by_reason("sluicegate_upstream_retries", "Failed attempts that the gateway retried, by reason", |of| {
        &of.retries
    })?;
    by_reason(
        "sluicegate_upstream_failures",
        "Requests that failed after their last attempt, by reason",
        |of| &of.failures,
    )?;
    families.histograms(
        "sluicegate_upstream_duration_seconds",
        "Time from the start of the attempt that got a response to the response head",
        asked.iter().map(|upstream| ([upstream.label()], upstream.latency.clone())),
    )
}

impl Totals {
    fn of(upstream: &SharedUpstream) -> Self {
        Self {
            upstream: upstream.key().to_string(),
            counters: UpstreamCounters::of(upstream.shards()),
            latency: HistogramTotal::of(upstream.shards(), |shard| &shard.latency),
            endpoints: endpoints(&upstream.endpoints()),
        }
    }

    fn label(&self) -> (&'static str, &str) {
        ("upstream", &self.upstream)
    }

    /// Whether any counter of the upstream is not zero.
    fn was_asked(&self) -> bool {
        let gauges = UpstreamCounters {
            requests_in_flight: self.counters.requests_in_flight,
            ..UpstreamCounters::default()
        };
        self.counters != gauges
    }
}

/// The number of endpoints in each of [`STATES`].
fn endpoints(set: &EndpointSet) -> [u64; STATES.len()] {
    let mut counts = [0; STATES.len()];
    for (endpoint, Conditions { ready, serving, terminating }) in &set.endpoints {
        let state = match (ready, serving, terminating) {
            (true, _, false) if endpoint.is_failing() => 2,
            (true, _, false) if endpoint.is_unhealthy() => 1,
            (true, _, false) => 0,
            (_, true, true) => 3,
            _ => 4,
        };
        counts[state] += 1;
    }
    counts
}
