//! Metrics of each route.

use std::fmt;

use sluicegate_proxy::counters::{RouteLabels, RouteStats, RouteTotals};
use sluicegate_proxy::registry::Registry;

use super::families::Families;

/// The values of `code`: the first digit of a response's status. 1xx is a tunnel (101).
pub(super) const CODES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// A route's numbers, read once for all its families.
struct Totals {
    labels: RouteLabels,
    upstream: String,
    of: RouteTotals,
}

pub(super) fn encode(families: &mut Families<'_>, registry: &Registry) -> fmt::Result {
    let routes: Vec<_> =
        registry.routes().into_iter().filter_map(|(labels, stats)| Totals::of(labels, &stats)).collect();
    families.counters(
        "sluicegate_requests",
        "Requests with a complete response, by route and by class of the status",
        routes.iter().flat_map(|route| {
            let codes = CODES.iter().zip(route.of.responses);
            codes.map(|(code, count)| ((route.labels(), [("code", *code)]), count))
        }),
    )?;
    families.counters(
        "sluicegate_requests_aborted",
        "Requests that ended without a complete response, by route",
        routes.iter().map(|route| (route.labels(), route.of.aborted)),
    )?;
    families.counters(
        "sluicegate_response_bytes",
        "Bytes of responses sent to clients, including heads, by route",
        routes.iter().map(|route| (route.labels(), route.of.bytes_out)),
    )?;
    families.histograms(
        "sluicegate_request_duration_seconds",
        "Time from the end of a request head to the end of the response, including aborted requests and tunnels",
        routes.iter().map(|route| (route.labels(), route.of.latency.clone())),
    )?;
    families.times(
        "sluicegate_request_endpoint_seconds",
        "Time that endpoints took for requests, from the last attempt to the response head, in seconds",
        routes.iter().map(|route| (route.labels(), route.of.endpoint_micros)),
    )
}

impl Totals {
    /// The numbers of a route that has had a request.
    fn of(labels: RouteLabels, stats: &RouteStats) -> Option<Self> {
        let of = stats.totals();
        let upstream = labels.upstream.as_ref().map(ToString::to_string).unwrap_or_default();
        let is_used = of.aborted > 0 || of.responses.iter().any(|count| *count > 0);
        is_used.then_some(Self { labels, upstream, of })
    }

    fn labels(&self) -> [(&'static str, &str); 6] {
        let id = self.labels.id.as_ref();
        [
            ("kind", id.map_or("", |id| id.kind)),
            ("namespace", id.map_or("", |id| &id.namespace)),
            ("name", id.map_or("", |id| &id.name)),
            ("host", &self.labels.host),
            ("path", &self.labels.path),
            ("upstream", &self.upstream),
        ]
    }
}
