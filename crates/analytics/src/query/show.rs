//! Answers as JSON and CSV.

use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use serde_json::{Map, Value as Json, json};
use sluicegate_model::analytics::Times;

use super::*;

/// The quantiles p50, p95 and p99.
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];

impl Answer {
    /// The media type of [`write`](Self::write).
    #[must_use]
    pub fn content_type(&self) -> &'static str {
        match self.query.format {
            Format::Json => "application/json",
            Format::Csv => "text/csv; charset=utf-8; header=present",
        }
    }

    /// Writes the answer, group by group.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        match self.query.format {
            Format::Json => self.write_json(out),
            Format::Csv => self.write_csv(out),
        }
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let Query { from, to, step, by, .. } = &self.query;
        let by: Vec<_> = by.iter().map(|dimension| dimension.name()).collect();
        write!(out, "{{\"from\":\"{}\",\"to\":\"{}\",", rfc3339(*from), rfc3339(*to))?;
        if let Some(step) = step {
            write!(out, "\"step\":{step},")?;
        }
        write!(out, "\"by\":{},\"truncated\":{},\"groups\":[", json!(by), self.is_truncated)?;
        for (nth, group) in self.groups.iter().enumerate() {
            let of: Map<_, _> =
                by.iter().zip(&group.of).map(|(name, of)| ((*name).to_owned(), of.json())).collect();
            let comma = if nth == 0 { "" } else { "," };
            write!(out, "{comma}\n{{\"of\":{},\"total\":{}", Json::Object(of), group.total.json())?;
            if self.query.step.is_some() {
                out.write_all(b",\"points\":[")?;
                for (nth, (time, sum)) in self.points(group).enumerate() {
                    let mut point = sum.json();
                    point["time"] = rfc3339(time).into();
                    write!(out, "{}{point}", if nth == 0 { "" } else { "," })?;
                }
                out.write_all(b"]")?;
            }
            out.write_all(b"}")?;
        }
        out.write_all(b"]}\n")
    }

    fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let by = self.query.by.iter().map(|dimension| dimension.name().to_owned());
        let times = ["latency", "upstream", "gateway"]
            .into_iter()
            .flat_map(|of| ["mean", "p50", "p95", "p99"].map(|name| format!("{of}_ms_{name}")));
        let counts = [
            "time",
            "requests",
            "request_bytes",
            "response_bytes",
            "status_2xx",
            "status_3xx",
            "status_4xx",
            "status_5xx",
            "status_other",
            "errors",
            "limited",
            "cache_hit",
            "cache_miss",
        ];
        let header: Vec<_> = by.chain(counts.map(str::to_owned)).chain(times).collect();
        writeln!(out, "{}", header.join(","))?;
        for group in &self.groups {
            let of: String = group.of.iter().map(|name| name.csv() + ",").collect();
            if self.query.step.is_some() {
                for (time, sum) in self.points(group) {
                    writeln!(out, "{of}{},{}", rfc3339(time), sum.csv())?;
                }
            } else {
                writeln!(out, "{of}{},{}", rfc3339(self.query.from), group.total.csv())?;
            }
        }
        Ok(())
    }

    /// Each point of the window with its time, also points without requests.
    fn points<'g>(&self, group: &'g Group) -> impl Iterator<Item = (i64, &'g Sum)> {
        static NOTHING: std::sync::LazyLock<Sum> = std::sync::LazyLock::new(Sum::default);
        let Query { from, to, step, .. } = self.query;
        let step = step.unwrap_or(1);
        (0..(to - from) / step)
            .map(move |point| (from + point * step, group.points.get(&point).unwrap_or(&NOTHING)))
    }
}

impl Name {
    fn json(&self) -> Json {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Status(status) => (*status).into(),
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Text(text) => cell(text),
            Self::Status(status) => status.to_string(),
        }
    }
}

/// A cell of CSV (RFC 4180). A spreadsheet must not take a text for a formula.
pub(crate) fn cell(text: &str) -> String {
    let quoted = text.replace('"', "\"\"");
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("\"'{quoted}\"")
    } else if text.contains([',', '"', '\n', '\r']) {
        format!("\"{quoted}\"")
    } else {
        text.to_owned()
    }
}

impl Sum {
    fn json(&self) -> Json {
        let Self { values, classes: [two, three, four, five, other], errors } = self;
        let of = |times: &Times| {
            let [mean, p50, p95, p99] = figures(times);
            json!({"mean": mean, "p50": p50, "p95": p95, "p99": p99})
        };
        json!({
            "requests": values.requests,
            "request_bytes": values.request_bytes,
            "response_bytes": values.response_bytes,
            "status": {"2xx": two, "3xx": three, "4xx": four, "5xx": five, "other": other},
            "errors": errors,
            "limited": values.limited,
            "cache": {"hit": values.cache_hits, "miss": values.cache_misses},
            "latency_ms": of(&values.total),
            "upstream_ms": of(&values.upstream),
            "gateway_ms": of(&values.gateway),
        })
    }

    fn csv(&self) -> String {
        let Self { values, classes, errors } = self;
        let sizes = [values.requests, values.request_bytes, values.response_bytes];
        let rest = [*errors, values.limited, values.cache_hits, values.cache_misses];
        let counts = sizes.into_iter().chain(*classes).chain(rest).map(|count| count.to_string());
        let times = [&values.total, &values.upstream, &values.gateway];
        let times = times.into_iter().flat_map(figures).map(|figure| figure.to_string());
        counts.chain(times).collect::<Vec<_>>().join(",")
    }
}

/// The mean and the quantiles in milliseconds.
fn figures(times: &Times) -> [f64; 4] {
    let count = times.histogram.count();
    let mean = if count == 0 { 0.0 } else { times.micros as f64 / count as f64 };
    let [p50, p95, p99] = QUANTILES.map(|share| times.histogram.quantile(share));
    [mean, p50, p95, p99].map(|micros| micros.round() / 1000.0)
}

fn rfc3339(seconds: i64) -> String {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    format_rfc3339_seconds(UNIX_EPOCH + since).to_string()
}
