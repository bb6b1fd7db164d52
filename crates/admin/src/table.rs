//! Formats the JSON documents as text tables.

use std::borrow::Cow;
use std::fmt::Write as _;

use sluicegate_model::text::is_hidden;

use crate::state::{EndpointState, Health, Reasons, ServedRoute, UpstreamState};

/// A column of a table of `T`s.
pub struct Column<'a, T: ?Sized> {
    name: Cow<'a, str>,
    is_wide: bool,
    cell: Box<dyn Fn(&T) -> String + 'a>,
}

impl<'a, T: ?Sized> Column<'a, T> {
    /// A column with this header. An empty cell is shown as `-`.
    pub fn new(name: impl Into<Cow<'a, str>>, cell: impl Fn(&T) -> String + 'a) -> Self {
        Self { name: name.into(), is_wide: false, cell: Box::new(cell) }
    }

    /// A column of wide tables only.
    pub fn wide(name: impl Into<Cow<'a, str>>, cell: impl Fn(&T) -> String + 'a) -> Self {
        Self { is_wide: true, ..Self::new(name, cell) }
    }
}

/// Formats a line for each row. Each column is as wide as its widest cell.
pub fn table<T>(columns: &[Column<'_, T>], rows: impl IntoIterator<Item = T>, is_wide: bool) -> String {
    let columns: Vec<_> = columns.iter().filter(|column| is_wide || !column.is_wide).collect();
    let header = columns.iter().map(|column| column.name.to_string()).collect();
    let cells = rows.into_iter().map(|row| columns.iter().map(|column| shown((column.cell)(&row))).collect());
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(cells).collect();
    let mut widths = vec![0; columns.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut table = String::new();
    for cells in &lines {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(&widths) {
            // Writing to a String does not fail.
            let _ = write!(line, "{cell:<width$}   ");
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

/// Formats one line for each route, with its policies.
#[must_use]
pub fn routes_table(routes: &[ServedRoute], is_wide: bool) -> String {
    let have_policies = routes.iter().any(|route| !route.policies.is_empty());
    let columns = [
        Column::new("HOST", |route: &&ServedRoute| match &route.listener {
            None => route.host.clone(),
            Some(listener) => format!("{} at {listener}", route.host),
        }),
        Column::new("PATH", |route: &&ServedRoute| route.path.clone()),
        Column::new("TYPE", |route: &&ServedRoute| route.path_type.to_string()),
        Column::new("UPSTREAM", |route: &&ServedRoute| match route.weight {
            None => route.upstream.clone(),
            Some(weight) => format!("{}, weight {weight}", route.upstream),
        }),
        Column::new("ENDPOINTS", |route: &&ServedRoute| format!("{}/{}", route.ready, route.endpoints)),
        Column::new("FROM", |route: &&ServedRoute| route.from.clone()),
        Column {
            is_wide: !have_policies,
            ..Column::new("POLICIES", |route: &&ServedRoute| route.policies.join(", "))
        },
    ];
    table(&columns, routes, is_wide)
}

/// Formats one line for each endpoint, and one line for each upstream without endpoints.
#[must_use]
pub fn upstreams_table(upstreams: &[UpstreamState], is_wide: bool) -> String {
    let rows = upstreams.iter().flat_map(|upstream| {
        let none = upstream.endpoints.is_empty().then_some((upstream, None));
        none.into_iter().chain(upstream.endpoints.iter().map(move |endpoint| (upstream, Some(endpoint))))
    });
    type Row<'a> = (&'a UpstreamState, Option<&'a EndpointState>);
    let of_endpoint = |name, cell: fn(&EndpointState) -> String| {
        Column::new(name, move |(_, endpoint): &Row<'_>| endpoint.map(cell).unwrap_or_default())
    };
    let limit = |limit: Option<u32>| limit.map(|limit| limit.to_string()).unwrap_or_default();
    let columns = [
        Column::new("UPSTREAM", |(upstream, _): &Row<'_>| upstream.upstream.clone()),
        of_endpoint("ENDPOINT", |endpoint| endpoint.address.to_string()),
        Column::new("CONDITIONS", |(_, endpoint): &Row<'_>| {
            endpoint.map_or("no endpoint", conditions).to_owned()
        }),
        of_endpoint("HEALTH", health),
        of_endpoint("IN-FLIGHT", |endpoint| endpoint.requests_in_flight.to_string()),
        of_endpoint("EWMA", ewma),
        of_endpoint("IDLE", |endpoint| endpoint.idle.to_string()),
        of_endpoint("ATTEMPTS", |endpoint| endpoint.attempts.to_string()),
        of_endpoint("FAILURES", |endpoint| endpoint.failures.to_string()),
        Column::wide("BALANCE", |(upstream, _): &Row<'_>| upstream.balance.to_string()),
        Column::wide("MAX REQUESTS", move |(upstream, _): &Row<'_>| limit(upstream.max_requests)),
        Column::wide("MAX PER ENDPOINT", move |(upstream, _): &Row<'_>| {
            limit(upstream.max_requests_per_endpoint)
        }),
        Column::wide("RETRIES", |(upstream, _): &Row<'_>| sum(&upstream.counters.retries)),
        Column::wide("CONNECT FAILURES", |(upstream, _): &Row<'_>| sum(&upstream.counters.connect_failures)),
    ];
    table(&columns, rows, is_wide)
}

fn sum(reasons: &Reasons) -> String {
    reasons.0.values().sum::<u64>().to_string()
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
    let Some(highest) = estimates.clone().reduce(f64::max) else { return String::new() };
    let lowest = estimates.fold(highest, f64::min);
    match (format!("{lowest:.1}"), format!("{highest:.1}")) {
        (lowest, highest) if lowest == highest => format!("{highest}ms"),
        (lowest, highest) => format!("{lowest}-{highest}ms"),
    }
}

/// Removes characters that control a terminal or forge a row, because users choose names and paths.
fn shown(cell: String) -> String {
    match cell.is_empty() {
        true => "-".to_owned(),
        false => cell.replace(is_hidden, "\u{fffd}"),
    }
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
            routes_table(&[guarded, route("b", "/", 5)], false),
            "\
HOST   PATH   TYPE     UPSTREAM        ENDPOINTS   FROM               POLICIES
a      /      Prefix   shop/web:http   5/5         Ingress shop/web   SecurityPolicy shop/p, RateLimitPolicy shop/l
b      /      Prefix   shop/web:http   5/5         Ingress shop/web   -
"
        );
        let at_gateway = ServedRoute { listener: Some(":8080".to_owned()), ..route("a", "/", 5) };
        assert_eq!(
            routes_table(
                &[route("shop.example.com", "/", 5), route("*", "/very/long", 0), at_gateway],
                false
            ),
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
            upstreams_table(&upstreams, false),
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
            let table = upstreams_table(&[upstream(&format!("a{control}[2J/b:80"), vec![])], true);
            assert_eq!(table.lines().count(), 2, "{table:?}");
            assert!(!table.lines().any(|line| line.contains(control)), "{table:?}");
        }
    }
}
