//! Measures the time of a lookup. `make bench-rules` prints the time; no test checks the time.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use sluicegate_http1::{HeadLimits, HeadScan, RequestHead};
use sluicegate_model::rule::{HeaderMatch, PathMatch, Pattern, Rule, RuleMatch, ValueMatch};
use sluicegate_model::{HostPattern, ObjectId, PathPattern, UpstreamKey, VirtualHost};

use super::*;
use crate::counters::Counters;

const ROUTES: usize = 5_000;

fn rule(of: RuleMatch) -> Rule {
    let id = ObjectId { kind: "Ingress", namespace: "default".into(), name: "a".into() };
    let path = PathPattern::Prefix("/".into());
    Rule { matches: vec![of], ..Rule::new(id, path, UpstreamKey::new("default", "s", "80")) }
}

fn prefix(path: String) -> RuleMatch {
    RuleMatch::path(PathPattern::Prefix(path.into()))
}

fn path(n: usize) -> String {
    format!("/service-{}/v1/resource-{n}", n % 50)
}

/// A host with 5,000 paths, and the matches `before` ahead of one path.
fn host(before: impl IntoIterator<Item = RuleMatch>) -> Table {
    let matches = before.into_iter().chain((0..ROUTES).map(|n| prefix(path(n))));
    let host = VirtualHost::new(HostPattern::Any, matches.map(rule).collect());
    table(vec![host])
}

fn table(hosts: Vec<VirtualHost>) -> Table {
    let config = Config { hosts: hosts.into_iter().map(Arc::new).collect(), ..Config::default() };
    Table::new(
        &config,
        (&Table::default(), None),
        (&TlsTables::default(), Layer4Table::default()),
        &Resources::new(Counters::new(1, Arc::default()).into()),
        |_| 0,
    )
}

/// The mean time of a lookup in nanoseconds: the lowest of five runs.
fn nanos(table: &Table, targets: &[(String, String)]) -> f64 {
    let mut head = RequestHead::default();
    let mut text = "GET / HTTP/1.1\r\nHost: a\r\n".to_owned();
    for n in 0..12 {
        write!(text, "X-Header-{n}: value-{n}\r\n").unwrap();
    }
    text.push_str("\r\n");
    assert!(head.parse(text.as_bytes(), &mut HeadScan::default(), &HeadLimits::default()).unwrap());
    let view = HeadView { head: &head, buf: text.as_bytes() };
    let run = |_| {
        let begin = Instant::now();
        for (host, path) in targets.iter().cycle().take(200_000) {
            assert!(
                black_box(table.find(Entrance::FlagHttp, host.as_bytes(), path.as_bytes(), view)).is_some()
            );
        }
        begin.elapsed().as_secs_f64() * 1e9 / 200_000.0
    };
    (0..5).map(run).fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "prints times; checks nothing"]
fn route_lookup_times_are_measured_and_printed() {
    let any_path: Vec<_> = (0..ROUTES).step_by(7).map(|n| ("a".to_owned(), path(n) + "/item")).collect();
    let one_path = vec![("a".to_owned(), path(4_999) + "/item")];
    let hosts = (0..ROUTES).map(|n| {
        VirtualHost::new(
            HostPattern::Exact(format!("host-{n}.example.com").into()),
            vec![rule(prefix("/".into()))],
        )
    });
    let any_host: Vec<_> =
        (0..ROUTES).step_by(7).map(|n| (format!("host-{n}.example.com"), "/item".into())).collect();
    let header = |n: usize| HeaderMatch {
        name: format!("x-header-{}", n % 12).into(),
        value: ValueMatch::Exact("another".into()),
    };
    let conditions = |count: usize| {
        let with_header = |n| RuleMatch { headers: vec![header(n)], precedence: 0, ..prefix(path(4_999)) };
        (0..count).map(with_header).collect::<Vec<_>>()
    };
    let regex = |n: usize, precedence| RuleMatch {
        path: PathMatch::Regex(Pattern::new(format!("^/regex-{n}/[a-z]+/[0-9]+$"), false).unwrap()),
        precedence,
        ..prefix("/".into())
    };
    let regexes = |precedence| (0..500).map(|n| regex(n, precedence)).collect::<Vec<_>>();
    let by_regex = vec![("a".to_owned(), "/regex-250/shop/17".to_owned())];
    let print = |what: &str, table: &Table, targets: &[(String, String)]| {
        println!("{what:<58} {:>7.0} ns", nanos(table, targets));
    };
    print("5,000 hosts", &table(hosts.collect()), &any_host);
    print("5,000 paths of a host", &host([]), &any_path);
    print("one of them, no other match at its leaf", &host([]), &one_path);
    print("one of them, 1 match with a header before it", &host(conditions(1)), &one_path);
    print("one of them, 20 matches with a header before it", &host(conditions(20)), &one_path);
    print("one of them, 500 expressions behind it", &host(regexes(u32::MAX - 1)), &one_path);
    print("one of them, 500 expressions before it", &host(regexes(0)), &one_path);
    print("an expression of 500", &host(regexes(0)), &by_regex);
}
