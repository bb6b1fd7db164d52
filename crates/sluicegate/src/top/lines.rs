//! The lines of `sluicegate top`, from metrics or from analytics.

use std::collections::BTreeMap;

use serde::Serialize;
use sluicegate_admin::table::{Column, table};

/// A line. A number that the source does not have is missing.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Line {
    /// The values that identify the line, by name, such as `host`.
    pub(crate) of: BTreeMap<String, String>,
    /// Requests per second; of upstreams and endpoints attempts, of errors the errors themselves.
    pub(crate) per_second: f64,
    /// The fraction of requests with a 5xx, or without a complete response; of upstreams and endpoints the fraction that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limited_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retries_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mean_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p90_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ms: Option<f64>,
    /// Time in the gateway alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gateway_p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) in_flight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready_endpoints: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) endpoints: Option<u64>,
    /// The count since the start of the gateways.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<f64>,
}

/// The columns of the names that identify a line. The others are for wide tables.
pub(crate) struct Names {
    pub(crate) shown: &'static [&'static str],
    pub(crate) wide: &'static [&'static str],
    /// The header of the rate.
    pub(crate) rate: &'static str,
}

/// Formats the lines. Columns without any number are left out.
pub(crate) fn lines_table(names: &Names, lines: &[Line], is_wide: bool) -> String {
    type Cell = (&'static str, bool, fn(&Line) -> Option<String>);
    let numbers: [Cell; 13] = [
        ("ERRORS", false, |line| line.error_share.map(percent)),
        ("LIMITED/s", false, |line| line.limited_per_second.map(rate)),
        ("RETRIES/s", false, |line| line.retries_per_second.map(rate)),
        ("MEAN", false, |line| line.mean_ms.map(millis)),
        ("P50", false, |line| line.p50_ms.map(millis)),
        ("P90", true, |line| line.p90_ms.map(millis)),
        ("P99", false, |line| line.p99_ms.map(millis)),
        ("GATEWAY P99", false, |line| line.gateway_p99_ms.map(millis)),
        ("BYTES/s", false, |line| line.bytes_per_second.map(rate)),
        ("IN-FLIGHT", false, |line| line.in_flight.map(|count| count.to_string())),
        ("READY", false, |line| line.ready_endpoints.map(|count| count.to_string())),
        ("ENDPOINTS", false, |line| line.endpoints.map(|count| count.to_string())),
        ("TOTAL", false, |line| line.total.map(|total| format!("{total:.0}"))),
    ];
    let name = |name: &'static str| {
        move |line: &&Line| line.of.get(name).cloned().filter(|name| !name.is_empty()).unwrap_or_default()
    };
    let mut columns: Vec<Column<'_, &Line>> =
        names.shown.iter().map(|each| Column::new(each.to_uppercase(), name(each))).collect();
    columns.push(Column::new(names.rate, |line: &&Line| rate(line.per_second)));
    for (header, is_wide, cell) in numbers {
        if lines.iter().any(|line| cell(line).is_some()) {
            let cell = move |line: &&Line| cell(line).unwrap_or_default();
            columns.push(if is_wide { Column::wide(header, cell) } else { Column::new(header, cell) });
        }
    }
    columns.extend(names.wide.iter().map(|each| Column::wide(each.to_uppercase(), name(each))));
    table(&columns, lines, is_wide)
}

pub(crate) fn rate(rate: f64) -> String {
    format!("{rate:.1}")
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

pub(crate) fn millis(millis: f64) -> String {
    match millis {
        millis if millis >= 1000.0 => format!("{:.2} s", millis / 1000.0),
        millis if millis >= 10.0 => format!("{millis:.0} ms"),
        millis => format!("{millis:.2} ms"),
    }
}
