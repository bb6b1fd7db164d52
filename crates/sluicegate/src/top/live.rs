//! Rates from the metrics of running gateways: what they counted between two scrapes.

use std::collections::BTreeMap;

use sluicegate_admin::state::UpstreamState;

use super::lines::Line;
use super::samples::{Histogram, Sample, Samples, whole};

/// The kind of things that have a line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Route,
    Host,
    Upstream,
    Endpoint,
    Consumer,
    Error,
}

/// The metrics and the endpoints of one gateway at one moment.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    pub(crate) samples: Samples,
    /// For endpoints, which have no metrics of their own.
    pub(crate) upstreams: Vec<UpstreamState>,
}

/// The metric without a reason that counts errors.
const UNROUTED: &str = "sluicegate_requests_unrouted_total";

/// The sums of one line.
#[derive(Default)]
struct Sums {
    count: f64,
    failures: f64,
    retries: f64,
    bytes: f64,
    seconds: f64,
    histogram: Histogram,
    in_flight: Option<u64>,
    endpoints: Option<(u64, u64)>,
    total: Option<f64>,
}

type Key = BTreeMap<&'static str, String>;

/// The lines of all gateways together, with the highest rate first. A pair has the scrapes of one gateway, the earlier first.
pub(crate) fn lines(of: Of, pairs: &[(&Scrape, &Scrape)], seconds: f64) -> Vec<Line> {
    let mut sums = BTreeMap::<Key, Sums>::new();
    for (earlier, later) in pairs {
        match of {
            Of::Route => requests(&mut sums, earlier, later, route),
            Of::Host => requests(&mut sums, earlier, later, |sample| {
                Key::from([("host", sample.label("host").to_owned())])
            }),
            Of::Upstream => upstreams(&mut sums, earlier, later),
            Of::Endpoint => endpoints(&mut sums, earlier, later),
            Of::Consumer => consumers(&mut sums, earlier, later),
            Of::Error => errors(&mut sums, earlier, later),
        }
    }
    let mut lines: Vec<Line> = sums.into_iter().map(|(key, sums)| line(of, key, &sums, seconds)).collect();
    // Equal rates keep the order of the names.
    lines.sort_by(|a, b| b.per_second.total_cmp(&a.per_second));
    lines
}

fn line(of: Of, key: Key, sums: &Sums, seconds: f64) -> Line {
    let rate = |count: f64| count / seconds;
    let has_requests = matches!(of, Of::Route | Of::Host | Of::Consumer);
    let quantile = |quantile| sums.histogram.quantile(quantile).map(|seconds| seconds * 1000.0);
    Line {
        per_second: rate(sums.count),
        error_share: (of != Of::Error)
            .then(|| if sums.count > 0.0 { sums.failures / sums.count } else { 0.0 }),
        retries_per_second: (of == Of::Upstream).then(|| rate(sums.retries)),
        bytes_per_second: has_requests.then(|| rate(sums.bytes)),
        mean_ms: (of == Of::Consumer && sums.count > 0.0).then(|| 1000.0 * sums.seconds / sums.count),
        p50_ms: quantile(0.5),
        p90_ms: quantile(0.9),
        p99_ms: quantile(0.99),
        in_flight: sums.in_flight,
        ready_endpoints: sums.endpoints.map(|(ready, _)| ready),
        endpoints: sums.endpoints.map(|(_, all)| all),
        total: sums.total,
        of: key.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ..Line::default()
    }
}

/// The kind, namespace and name in the labels.
fn object(sample: &Sample) -> String {
    let (kind, namespace, name) = (sample.label("kind"), sample.label("namespace"), sample.label("name"));
    match (kind, namespace) {
        ("", "") => name.to_owned(),
        ("", _) => format!("{namespace}/{name}"),
        (_, "") => format!("{kind} {name}"),
        _ => format!("{kind} {namespace}/{name}"),
    }
}

fn route(sample: &Sample) -> Key {
    Key::from([
        ("host", sample.label("host").to_owned()),
        ("path", sample.label("path").to_owned()),
        ("from", object(sample)),
        ("upstream", sample.label("upstream").to_owned()),
    ])
}

fn requests(sums: &mut BTreeMap<Key, Sums>, earlier: &Scrape, later: &Scrape, key: impl Fn(&Sample) -> Key) {
    responses(sums, earlier, later, "sluicegate", &key);
    for (sample, count) in later.samples.since(&earlier.samples, "sluicegate_request_duration_seconds_bucket")
    {
        sums.entry(key(sample)).or_default().histogram.add(sample.label("le"), count);
    }
}

fn consumers(sums: &mut BTreeMap<Key, Sums>, earlier: &Scrape, later: &Scrape) {
    let key = |sample: &Sample| Key::from([("consumer", object(sample))]);
    responses(sums, earlier, later, "sluicegate_consumer", key);
    for (sample, seconds) in
        later.samples.since(&earlier.samples, "sluicegate_consumer_request_seconds_total")
    {
        sums.entry(key(sample)).or_default().seconds += seconds;
    }
}

/// Adds requests, failures and bytes, from the metrics whose names have this prefix.
fn responses(
    sums: &mut BTreeMap<Key, Sums>,
    earlier: &Scrape,
    later: &Scrape,
    prefix: &str,
    key: impl Fn(&Sample) -> Key,
) {
    let names = ["requests_total", "requests_aborted_total", "response_bytes_total"];
    let [complete, aborted, bytes] = names.map(|name| format!("{prefix}_{name}"));
    for (sample, count) in later.samples.since(&earlier.samples, &complete) {
        let sums = sums.entry(key(sample)).or_default();
        sums.count += count;
        if sample.label("code") == "5xx" {
            sums.failures += count;
        }
    }
    for (sample, count) in later.samples.since(&earlier.samples, &aborted) {
        let sums = sums.entry(key(sample)).or_default();
        sums.count += count;
        sums.failures += count;
    }
    for (sample, bytes) in later.samples.since(&earlier.samples, &bytes) {
        sums.entry(key(sample)).or_default().bytes += bytes;
    }
}

fn upstreams(sums: &mut BTreeMap<Key, Sums>, earlier: &Scrape, later: &Scrape) {
    let key = |sample: &Sample| Key::from([("upstream", sample.label("upstream").to_owned())]);
    let since = |name| later.samples.since(&earlier.samples, name);
    for (sample, count) in since("sluicegate_upstream_attempts_total") {
        sums.entry(key(sample)).or_default().count += count;
    }
    for (sample, count) in since("sluicegate_upstream_failures_total") {
        sums.entry(key(sample)).or_default().failures += count;
    }
    for (sample, count) in since("sluicegate_upstream_retries_total") {
        sums.entry(key(sample)).or_default().retries += count;
    }
    for (sample, count) in since("sluicegate_upstream_duration_seconds_bucket") {
        sums.entry(key(sample)).or_default().histogram.add(sample.label("le"), count);
    }
    for sample in later.samples.of("sluicegate_upstream_requests_in_flight") {
        *sums.entry(key(sample)).or_default().in_flight.get_or_insert_default() += whole(sample.value);
    }
    // Gateways may disagree about the health. The numbers of the last one are shown.
    let mut endpoints = BTreeMap::<Key, (u64, u64)>::new();
    for sample in later.samples.of("sluicegate_upstream_endpoints") {
        let (ready, all) = endpoints.entry(key(sample)).or_default();
        *all += whole(sample.value);
        if sample.label("state") == "ready" {
            *ready += whole(sample.value);
        }
    }
    for (key, numbers) in endpoints {
        sums.entry(key).or_default().endpoints = Some(numbers);
    }
}

fn endpoints(sums: &mut BTreeMap<Key, Sums>, earlier: &Scrape, later: &Scrape) {
    let before: BTreeMap<_, _> = each_endpoint(earlier).collect();
    for (key, [attempts, failures, in_flight]) in each_endpoint(later) {
        let [attempts_before, failures_before, _] = before.get(&key).copied().unwrap_or_default();
        let restarted = attempts_before > attempts;
        let since = |now: u64, before: u64| if restarted { now } else { now.saturating_sub(before) };
        let sums = sums.entry(key).or_default();
        sums.count += as_number(since(attempts, attempts_before));
        sums.failures += as_number(since(failures, failures_before));
        *sums.in_flight.get_or_insert_default() += in_flight;
    }
}

fn each_endpoint(scrape: &Scrape) -> impl Iterator<Item = (Key, [u64; 3])> {
    scrape.upstreams.iter().flat_map(|upstream| {
        upstream.endpoints.iter().map(move |endpoint| {
            let key = Key::from([
                ("endpoint", endpoint.address.to_string()),
                ("upstream", upstream.upstream.clone()),
            ]);
            (key, [endpoint.attempts, endpoint.failures, endpoint.requests_in_flight])
        })
    })
}

/// Each counter with a reason counts errors.
fn errors(sums: &mut BTreeMap<Key, Sums>, earlier: &Scrape, later: &Scrape) {
    let names = later.samples.names().filter(|name| {
        let has_reason =
            later.samples.of(name).first().is_some_and(|first| !first.label("reason").is_empty());
        name.ends_with("_total") && (has_reason || *name == UNROUTED)
    });
    for name in names {
        let what = name.trim_start_matches("sluicegate_").trim_end_matches("_total");
        for (sample, count) in later.samples.since(&earlier.samples, name) {
            let reason = if name == UNROUTED { "no_route" } else { sample.label("reason") };
            let key = Key::from([
                ("reason", reason.to_owned()),
                ("counter", what.to_owned()),
                ("at", place(sample)),
            ]);
            let sums = sums.entry(key).or_default();
            sums.count += count;
            *sums.total.get_or_insert_default() += sample.value;
        }
    }
    // A gateway has the counters of all reasons from its start.
    sums.retain(|_, sums| sums.total.is_some_and(|total| total > 0.0));
}

/// The upstream, policy or route of an error.
fn place(sample: &Sample) -> String {
    match (sample.label("upstream"), object(sample)) {
        ("", object) => object,
        (upstream, _) => upstream.to_owned(),
    }
}

fn as_number(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 attempts between two scrapes")]
    let number = count as f64;
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(page: &str) -> Scrape {
        Scrape { samples: Samples::read(page), upstreams: Vec::new() }
    }

    fn page(ok: u32, failed: u32) -> Scrape {
        let of =
            r#"host="a.example",kind="Ingress",name="web",namespace="shop",path="/",upstream="shop/web:80""#;
        scrape(&format!(
            "sluicegate_requests_total{{code=\"2xx\",{of}}} {ok}\nsluicegate_requests_total{{code=\"5xx\",{of}}} {failed}\n\
             sluicegate_request_duration_seconds_bucket{{le=\"0.001\",{of}}} {ok}\n\
             sluicegate_request_duration_seconds_bucket{{le=\"+Inf\",{of}}} {}\n\
             sluicegate_upstream_failures_total{{reason=\"timeout\",upstream=\"shop/web:80\"}} {failed}\n\
             sluicegate_upstream_failures_total{{reason=\"reset\",upstream=\"shop/web:80\"}} 0\n\
             {UNROUTED} 7\n",
            ok + failed
        ))
    }

    #[test]
    fn rates_are_sums_of_all_gateways_between_two_scrapes() {
        let pages = [page(10, 0), page(40, 10), page(0, 0), page(60, 0)];
        let pairs = [(&pages[0], &pages[1]), (&pages[2], &pages[3])];
        let [route] = &lines(Of::Route, &pairs, 10.0)[..] else { panic!("one route") };
        assert_eq!((route.per_second, route.error_share), (10.0, Some(0.1)));
        assert_eq!(route.of["from"], "Ingress shop/web");
        assert_eq!(route.p50_ms.map(|p50| (p50 * 100.0).round()), Some(56.0));
        let [host] = &lines(Of::Host, &pairs, 10.0)[..] else { panic!("one host") };
        assert_eq!(host.of["host"], "a.example");
    }

    #[test]
    fn errors_have_their_reasons() {
        let found: Vec<_> = lines(Of::Error, &[(&page(10, 0), &page(40, 10))], 5.0)
            .into_iter()
            .map(|line| (line.of["reason"].clone(), line.of["at"].clone(), line.per_second, line.total))
            .collect();
        let expected = [
            ("timeout".to_owned(), "shop/web:80".to_owned(), 2.0, Some(10.0)),
            ("no_route".to_owned(), String::new(), 0.0, Some(7.0)),
        ];
        assert_eq!(found, expected);
    }
    #[test]
    fn requests_of_a_consumer_have_a_mean_time() {
        let page = |well: u32, failed: u32| {
            let of = "name=\"a\",namespace=\"s\"";
            scrape(&format!(
                "sluicegate_consumer_requests_total{{code=\"2xx\",{of}}} {well}\n\
                 sluicegate_consumer_requests_total{{code=\"5xx\",{of}}} {failed}\n\
                 sluicegate_consumer_requests_aborted_total{{{of}}} {failed}\n\
                 sluicegate_consumer_response_bytes_total{{{of}}} {}\n\
                 sluicegate_consumer_request_seconds_total{{{of}}} {well}\n",
                well * 10
            ))
        };
        let [line] = &lines(Of::Consumer, &[(&page(0, 0), &page(8, 1))], 1.0)[..] else {
            panic!("one Consumer")
        };
        assert_eq!((line.per_second, line.error_share), (10.0, Some(0.2)));
        assert_eq!((line.bytes_per_second, line.mean_ms), (Some(80.0), Some(800.0)));
        assert_eq!(line.of["consumer"], "s/a");
    }
}
