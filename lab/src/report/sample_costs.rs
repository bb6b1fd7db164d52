//! Invented results of experiments that compare costs.

use super::sample::{experiment, gateway, point};
use crate::results::{Added, Checked, Checks, OfGateway, Point, Results, WithFunctions};

pub(super) fn all() -> Vec<(&'static str, Results)> {
    vec![("bench", bench()), ("sizing", sizing()), ("rates", rates()), ("gateway", api_gateways())]
}

fn with(name: &str, title: &str, points: Vec<Point>) -> OfGateway {
    OfGateway { points, ..gateway(name, title, Vec::new()) }
}

fn bench() -> Results {
    let mut results = experiment("bench", "What each kind of work costs");
    let works = [
        ("HTTP", 1.0),
        ("HTTPS", 1.5),
        ("HTTP/2", 1.8),
        ("gRPC unary", 2.2),
        ("new TLS, RSA", 60.0),
        ("new TLS, P-256", 14.0),
    ];
    let points = |factor: f64, skip: usize| {
        let mut random = fastrand::Rng::with_seed((factor * 1e3) as u64);
        let mut points = Vec::new();
        for (work, cost) in works.into_iter().skip(skip) {
            for turn in 1..=5 {
                let cost = 18.0 * cost * factor * (0.93 + 0.2 * random.f64());
                points.push(point(work, 1, turn, 0.9e6 / cost, cost));
            }
        }
        points
    };
    let mut lua = points(1.9, 0);
    lua.truncate(12);
    if let Some(point) = lua.last_mut() {
        point.errors = 3;
    }
    let mut floor = points(0.45, 0);
    floor.truncate(5);
    let signature = (1..=3).map(|turn| point("signature, RSA", 1, turn, 1450.0 + turn as f64, 690.0));
    results.gateways = vec![
        with("sluicegate", "Sluicegate", points(1.0, 0)),
        with("nginx", "nginx, reload", points(1.07, 0)),
        with("nginx-lua", "nginx, balancer_by_lua", lua),
        with("haproxy", "HAProxy, runtime API", points(0.95, 1)),
        with("envoy", "Envoy, EDS", points(2.6, 0)),
        with("floor", "the floor: a byte forwarder", floor.into_iter().chain(signature).collect()),
    ];
    results
}

fn sizing() -> Results {
    let mut results = experiment("sizing", "What more CPUs bring");
    results.published = Some("sizing-2021".to_owned());
    let points = |rps: f64, tps: f64| {
        let mut points = Vec::new();
        for workers in [1_usize, 2, 4, 8] {
            for turn in 1..=3 {
                let factor = workers as f64 * (1.0 - 0.012 * workers as f64) * (1.0 + 0.01 * turn as f64);
                points.push(point("HTTP", workers, turn, rps * factor, 1e6 / rps));
                points.push(point("new TLS, RSA", workers, turn, tps * factor, 1e6 / tps));
            }
        }
        points
    };
    let signatures =
        [1, 2, 4, 8].map(|workers| point("signature, RSA", workers, 1, 1500.0 * workers as f64, 660.0));
    let forwarded = [1, 2, 4, 8].map(|workers| point("HTTP", workers, 1, 61_000.0 * workers as f64, 16.0));
    results.gateways = vec![
        with("sluicegate", "Sluicegate", points(31_000.0, 1150.0)),
        with("nginx", "nginx, reload", points(29_000.0, 1010.0)),
        with("envoy", "Envoy, EDS", points(14_000.0, 930.0)),
        with("floor", "the floor: a byte forwarder", forwarded.into_iter().chain(signatures).collect()),
    ];
    results
}

fn rates() -> Results {
    let mut results = experiment("rates", "CPU over rate");
    let points = |cost: f64| {
        let all = (1..=10).map(|step| {
            let wanted = 5_000.0 * f64::from(step);
            let achieved = wanted.min(0.98e6 / cost);
            Point { rate: Some(wanted), ..point("HTTP", 1, 1, achieved, cost) }
        });
        all.collect::<Vec<_>>()
    };
    results.gateways = vec![
        with("sluicegate", "Sluicegate", points(21.0)),
        with("nginx", "nginx, reload", points(23.0)),
        with("envoy", "Envoy, EDS", points(52.0)),
    ];
    results
}

fn api_gateways() -> Results {
    let mut results = experiment("gateway", "API gateways");
    results.published = Some("gateway-2019".to_owned());
    results.gateways = vec![
        OfGateway { checks: vec![checks(200)], ..with("sluicegate", "Sluicegate", api_points(1.0, true)) },
        OfGateway { checks: vec![checks(401)], ..with("nginx-lua", "nginx, Lua", api_points(2.0, true)) },
        with("nginx", "nginx, reload", api_points(1.5, false)),
    ];
    results
}

/// A gateway that responds to an expired token with this status.
pub(super) fn checks(expired: u16) -> Checks {
    let call =
        |call: &str, expected, status| Checked { call: call.to_owned(), expected, status: Some(status) };
    let calls = vec![call("good", 200, 200), call("no token", 401, 401), call("expired", 401, expired)];
    Checks { functions: "JWT HS256".to_owned(), calls, failure: None }
}

/// Sample points of a gateway that costs `factor` times as much as Sluicegate.
pub(super) fn api_points(factor: f64, has_functions: bool) -> Vec<Point> {
    let single = |work: &str, turn: usize| {
        let added = Some(Added { straight_ms: 0.1, added_ms: 0.05 * factor + 0.001 * turn as f64 });
        Point { added, p50_ms: 0.1 + 0.05 * factor, ..point(work, 1, turn, 5000.0, 50.0 * factor) }
    };
    let mut points = vec![single("One request, 0 KB", 1), single("One request, 0 KB", 2)];
    points
        .extend(["HTTP, 0 KB", "HTTP, 1 KB"].map(|work| point(work, 1, 1, 20_000.0 / factor, 40.0 * factor)));
    points.extend([1000.0, 5000.0, 20_000.0].map(|rate| {
        let reached = f64::min(rate, 18_000.0 / factor);
        Point { rate: Some(rate), ..point("HTTP", 1, 1, reached, 40.0 * factor) }
    }));
    let functions =
        [("JWT HS256", 1, 4.0), ("API key and rate limit", 1, 3.0), ("API key and rate limit", 10_000, 6.0)];
    for (name, callers, more) in functions.into_iter().filter(|_| has_functions) {
        let without = "HTTP, 1 KB".to_owned();
        let work = format!("{without}, {name}, {callers} callers");
        let functions = Some(WithFunctions { name: name.to_owned(), callers, without });
        let cost = (40.0 + more) * factor;
        points.push(Point { functions, ..point(&work, 1, 1, 0.8e6 / cost, cost) });
    }
    points
}
