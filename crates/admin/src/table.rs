//! Formats the JSON documents as text tables.

use std::fmt::Write as _;

use sluicegate_model::text::is_hidden;

use crate::state::{EndpointState, Health, ServedRoute, UpstreamState};

/// Formats one line for each route, with its policies.
#[must_use]
pub fn routes_table(routes: &[ServedRoute]) -> String {
    let header = ["HOST", "PATH", "TYPE", "UPSTREAM", "ENDPOINTS", "FROM"];
    let rows = routes.iter().map(|route| {
        [
            match &route.listener {
                None => route.host.clone(),
                Some(listener) => format!("{} at {listener}", route.host),
            },
            route.path.clone(),
            route.path_type.to_string(),
            match route.weight {
                None => route.upstream.clone(),
                Some(weight) => format!("{}, weight {weight}", route.upstream),
            },
            format!("{}/{}", route.ready, route.endpoints),
            route.from.clone(),
        ]
    });
    if routes.iter().all(|route| route.policies.is_empty()) {
        return aligned(header, rows);
    }
    let [host, path, path_type, upstream, endpoints, from] = header;
    let rows = rows.zip(routes).map(|([host, path, path_type, upstream, endpoints, from], route)| {
        let policies = if route.policies.is_empty() { "-".to_owned() } else { route.policies.join(", ") };
        [host, path, path_type, upstream, endpoints, from, policies]
    });
    aligned([host, path, path_type, upstream, endpoints, from, "POLICIES"], rows)
}

/// Formats one line for each endpoint, and one line for each upstream without endpoints.
#[must_use]
pub fn upstreams_table(upstreams: &[UpstreamState]) -> String {
    let rows = upstreams.iter().flat_map(|upstream| {
        let none = upstream.endpoints.is_empty().then(|| {
            let mut row = std::array::from_fn(|_| "-".to_owned());
            (row[0], row[2]) = (upstream.upstream.clone(), "no endpoint".to_owned());
            row
        });
        let endpoints = upstream.endpoints.iter().map(|endpoint| {
            [
                upstream.upstream.clone(),
                endpoint.address.to_string(),
                conditions(endpoint).to_owned(),
                health(endpoint),
                endpoint.requests_in_flight.to_string(),
                ewma(endpoint),
                endpoint.idle.to_string(),
                endpoint.attempts.to_string(),
                endpoint.failures.to_string(),
            ]
        });
        none.into_iter().chain(endpoints)
    });
    let header =
        ["UPSTREAM", "ENDPOINT", "CONDITIONS", "HEALTH", "IN-FLIGHT", "EWMA", "IDLE", "ATTEMPTS", "FAILURES"];
    aligned(header, rows)
}

fn conditions(endpoint: &EndpointState) -> &'static str {
    match (endpoint.ready, endpoint.serving, endpoint.terminating) {
        (true, _, false) => "ready",
        (true, _, true) => "ready,terminating",
        (false, true, true) => "serving,terminating",
        (false, true, false) => "serving",
        (false, false, true) => "terminating",
        (false, false, false) => "not ready",
    }
}

fn health(endpoint: &EndpointState) -> String {
    match (endpoint.health, endpoint.unhealthy_for) {
        (Health::Unhealthy, Some(seconds)) => format!("unhealthy {seconds:.1}s"),
        (Health::Unhealthy, None) => "unhealthy".to_owned(),
        (Health::Failing, _) => "failing".to_owned(),
        (Health::Healthy, _) if endpoint.share < 1.0 => format!("slow start {:.0}%", endpoint.share * 100.0),
        (Health::Healthy, _) => "healthy".to_owned(),
    }
}

/// The lowest and the highest estimate of the workers.
fn ewma(endpoint: &EndpointState) -> String {
    let estimates = endpoint.ewma_ms.iter().copied();
    let Some(highest) = estimates.clone().reduce(f64::max) else { return "-".to_owned() };
    let lowest = estimates.fold(highest, f64::min);
    match (format!("{lowest:.1}"), format!("{highest:.1}")) {
        (lowest, highest) if lowest == highest => format!("{highest}ms"),
        (lowest, highest) => format!("{lowest}-{highest}ms"),
    }
}

/// Aligns the rows: each column is as wide as its widest cell.
/// Formats rows in columns.
pub fn aligned<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> =
        std::iter::once(header.map(str::to_owned)).chain(rows.map(|row| row.map(shown))).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut table = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a String does not fail.
            let _ = write!(line, "{cell:<width$}   ");
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

/// Removes characters that control a terminal or forge a row, because users choose names and paths.
fn shown(cell: String) -> String {
    cell.replace(is_hidden, "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::UpstreamCounters;

    fn endpoint(ready: bool, terminating: bool) -> EndpointState {
        EndpointState {
            address: ([10, 0, 0, 1], 8080).into(),
            ready,
            serving: true,
            terminating,
            health: Health::Healthy,
            unhealthy_for: None,
            share: 1.0,
            requests_in_flight: 2,
            ewma_ms: vec![],
            idle: 3,
            attempts: 1000,
            failures: 0,
        }
    }

    fn upstream(name: &str, endpoints: Vec<EndpointState>) -> UpstreamState {
        UpstreamState {
            upstream: name.to_owned(),
            balance: "ResponseTime".into(),
            max_requests: None,
            max_requests_per_endpoint: None,
            counters: UpstreamCounters::default(),
            endpoints,
        }
    }

    #[test]
    fn table_of_routes_has_aligned_columns() {
        let route = |host: &str, path: &str, ready| ServedRoute {
            host: host.to_owned(),
            path: path.to_owned(),
            path_type: "Prefix".into(),
            upstream: "shop/web:http".to_owned(),
            weight: None,
            ready,
            endpoints: 5,
            from: "Ingress shop/web".to_owned(),
            listener: None,
            policies: Vec::new(),
        };
        let guarded = ServedRoute {
            policies: vec!["SecurityPolicy shop/p".into(), "RateLimitPolicy shop/l".into()],
            ..route("a", "/", 5)
        };
        assert_eq!(
            routes_table(&[guarded, route("b", "/", 5)]),
            "\
HOST   PATH   TYPE     UPSTREAM        ENDPOINTS   FROM               POLICIES
a      /      Prefix   shop/web:http   5/5         Ingress shop/web   SecurityPolicy shop/p, RateLimitPolicy shop/l
b      /      Prefix   shop/web:http   5/5         Ingress shop/web   -
"
        );
        let at_gateway = ServedRoute { listener: Some(":8080".to_owned()), ..route("a", "/", 5) };
        assert_eq!(
            routes_table(&[route("shop.example.com", "/", 5), route("*", "/very/long", 0), at_gateway]),
            "\
HOST               PATH         TYPE     UPSTREAM        ENDPOINTS   FROM
shop.example.com   /            Prefix   shop/web:http   5/5         Ingress shop/web
*                  /very/long   Prefix   shop/web:http   0/5         Ingress shop/web
a at :8080         /            Prefix   shop/web:http   5/5         Ingress shop/web
"
        );
    }

    #[test]
    fn table_of_upstreams_shows_conditions_health_and_load() {
        let plain = endpoint(true, false);
        let unhealthy = EndpointState {
            health: Health::Unhealthy,
            unhealthy_for: Some(3.21),
            ewma_ms: vec![1.04, 0.26, 12.0],
            ..endpoint(false, true)
        };
        let failing = EndpointState { health: Health::Failing, ..endpoint(true, false) };
        assert_eq!(health(&failing), "failing");
        let starting = EndpointState { share: 0.4, ewma_ms: vec![1.01, 1.02], ..endpoint(true, false) };
        let upstreams =
            [upstream("shop/web:http", vec![plain, unhealthy, starting]), upstream("a/b:80", vec![])];
        assert_eq!(
            upstreams_table(&upstreams),
            "\
UPSTREAM        ENDPOINT        CONDITIONS            HEALTH           IN-FLIGHT   EWMA         IDLE   ATTEMPTS   FAILURES
shop/web:http   10.0.0.1:8080   ready                 healthy          2           -            3      1000       0
shop/web:http   10.0.0.1:8080   serving,terminating   unhealthy 3.2s   2           0.3-12.0ms   3      1000       0
shop/web:http   10.0.0.1:8080   ready                 slow start 40%   2           1.0ms        3      1000       0
a/b:80          -               no endpoint           -                -           -            -      -          -
"
        );
    }

    #[test]
    fn table_escapes_terminal_control_characters_in_names() {
        for control in ['\u{1b}', '\n', '\u{9b}', '\u{85}', '\u{202e}', '\u{2028}'] {
            let table = upstreams_table(&[upstream(&format!("a{control}[2J/b:80"), vec![])]);
            assert_eq!(table.lines().count(), 2, "{table:?}");
            assert!(!table.lines().any(|line| line.contains(control)), "{table:?}");
        }
    }
}
