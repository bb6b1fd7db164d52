//! Requests of Ingresses, with the labels of ingress-nginx.

use std::collections::BTreeMap;
use std::fmt;

use sluicegate_model::UpstreamKey;
use sluicegate_proxy::counters::{
    BOUNDS_BYTES, BOUNDS_MICROS, HistogramTotal, RouteLabels, SeriesKey, SeriesTotal,
};
use sluicegate_proxy::registry::Registry;

use super::super::families::{Families, Scale};
use super::ControllerLabels;

/// The buckets of durations: `--time-buckets` of ingress-nginx, in microseconds.
const TIMES: Scale = Scale {
    bounds: &BOUNDS_MICROS,
    shown: &[
        5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000,
    ],
    per_unit: 1e6,
};

/// The buckets of `request_size` and `response_size`: `--length-buckets` of ingress-nginx, in bytes.
const LENGTHS: Scale =
    Scale { bounds: &BOUNDS_BYTES, shown: &[10, 20, 30, 40, 50, 60, 70, 80, 90, 100], per_unit: 1.0 };

/// The buckets of `bytes_sent`: `--size-buckets` of ingress-nginx, in bytes.
const SIZES: Scale = Scale {
    bounds: &BOUNDS_BYTES,
    shown: &[10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    per_unit: 1.0,
};

/// A series, with the texts of its labels.
struct Row<'r> {
    route: &'r RouteLabels,
    key: SeriesKey,
    status: String,
    canary: String,
    total: SeriesTotal,
}

type Labels<'r> = (ControllerLabels<'r>, [(&'static str, &'r str); 8]);

impl Row<'_> {
    fn labels<'s>(&'s self, controller: ControllerLabels<'s>) -> Labels<'s> {
        let id = self.route.id.as_ref();
        let host = if &*self.route.host == "*" { "_" } else { &*self.route.host };
        let labels = [
            ("host", host),
            ("namespace", id.map_or("", |id| &id.namespace)),
            ("ingress", id.map_or("", |id| &id.name)),
            ("service", self.service()),
            ("canary", &*self.canary),
            ("path", &*self.route.path),
            ("method", self.key.method),
            ("status", &*self.status),
        ];
        (controller, labels)
    }

    fn service(&self) -> &str {
        self.route.upstream.as_ref().map_or("", |upstream| &upstream.service)
    }
}

pub(super) fn encode(
    families: &mut Families<'_>,
    registry: &Registry,
    controller: ControllerLabels<'_>,
) -> fmt::Result {
    let routes = registry.routes();
    let with_series = routes.iter().filter(|(_, stats)| stats.has_series());
    let rows: Vec<_> = with_series
        .flat_map(|(route, stats)| {
            stats.series().into_iter().map(move |(key, total)| Row {
                route,
                status: key.status.to_string(),
                canary: key.canary.as_ref().map(upstream_name).unwrap_or_default(),
                key,
                total,
            })
        })
        .collect();
    families.plain_counters(
        "nginx_ingress_controller_requests",
        "Requests of clients",
        rows.iter().map(|row| (row.labels(controller), row.total.requests)),
    )?;
    let mut histogram = |name: &str, help: &str, scale: &Scale, of: fn(&SeriesTotal) -> &HistogramTotal| {
        let rows = rows.iter().filter(|row| of(&row.total).count() > 0);
        families.scaled_histograms(
            name,
            help,
            scale,
            rows.map(|row| (row.labels(controller), of(&row.total))),
        )
    };
    histogram(
        "nginx_ingress_controller_request_duration_seconds",
        "Time from the end of a request head to the end of the response",
        &TIMES,
        |total| &total.latency,
    )?;
    histogram(
        "nginx_ingress_controller_connect_duration_seconds",
        "Time to connect to the endpoint; zero for a connection that was open already",
        &TIMES,
        |total| &total.connect,
    )?;
    histogram(
        "nginx_ingress_controller_header_duration_seconds",
        "Time from the start of the connect to the head of the endpoint's response",
        &TIMES,
        |total| &total.head,
    )?;
    histogram(
        "nginx_ingress_controller_response_duration_seconds",
        "Time from the start of the connect to the end of the response",
        &TIMES,
        |total| &total.response,
    )?;
    histogram(
        "nginx_ingress_controller_request_size",
        "Size of requests in bytes, including heads",
        &LENGTHS,
        |total| &total.request_size,
    )?;
    histogram(
        "nginx_ingress_controller_response_size",
        "Size of responses in bytes, including heads",
        &LENGTHS,
        |total| &total.response_size,
    )?;
    histogram(
        "nginx_ingress_controller_bytes_sent",
        "Size of responses in bytes, including heads",
        &SIZES,
        |total| &total.response_size,
    )?;
    encode_latency(families, &rows, controller)
}

/// The summary of connect times. Its name remains from an older version of ingress-nginx.
fn encode_latency(
    families: &mut Families<'_>,
    rows: &[Row<'_>],
    controller: ControllerLabels<'_>,
) -> fmt::Result {
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for row in rows {
        let id = row.route.id.as_ref();
        let (namespace, ingress) = (id.map_or("", |id| &id.namespace), id.map_or("", |id| &id.name));
        let (micros, count) = sums.entry((namespace, ingress, row.service(), &*row.canary)).or_default();
        *micros += row.total.connect.sum;
        *count += row.total.connect.count();
    }
    sums.retain(|_, (_, count)| *count > 0);
    let labels = |(namespace, ingress, service, canary): &(_, _, _, _)| {
        let of =
            [("namespace", *namespace), ("ingress", *ingress), ("service", *service), ("canary", *canary)];
        (controller, of)
    };
    families.plain_counters(
        "nginx_ingress_controller_ingress_upstream_latency_seconds_sum",
        "Time to connect to endpoints, in seconds in total",
        sums.iter().map(|(key, (micros, _))| (labels(key), TIMES.value(*micros))),
    )?;
    families.plain_counters(
        "nginx_ingress_controller_ingress_upstream_latency_seconds_count",
        "Requests to endpoints with a response",
        sums.iter().map(|(key, (_, count))| (labels(key), *count)),
    )
}

/// The name of an upstream in ingress-nginx.
fn upstream_name(UpstreamKey { namespace, service, port, .. }: &UpstreamKey) -> String {
    format!("{namespace}-{service}-{port}")
}
