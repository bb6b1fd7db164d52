//! The memory of a gateway for idle connections.

use super::contest::slot;
use super::table::{Cell, Column, Row, Table};
use super::words::{count, number};
use crate::results::{Idle, Results};

/// The table; [`None`] if the experiment did not measure it.
pub(super) fn table(results: &Results) -> Option<Table> {
    let rows = results.gateways.iter().enumerate().filter_map(|(index, gateway)| {
        let Idle { connections, http_kib, https_kib } = gateway.idle?;
        Some(Row::of([
            Cell::contestant(gateway.title.clone(), slot(results, index)),
            Cell::plain(count(connections)),
            Cell::plain(format!("{} KiB", number(http_kib))),
            Cell::plain(format!("{} KiB", number(https_kib))),
        ]))
    });
    let rows: Vec<Row> = rows.collect();
    let columns = vec![
        Column::words("gateway"),
        Column::number("connections"),
        Column::number("each, HTTP"),
        Column::number("each, HTTPS"),
    ];
    let caption = "Memory of a connection that waits for its next request".to_owned();
    (!rows.is_empty()).then_some(Table { caption, columns, rows })
}

#[cfg(test)]
mod tests {
    use super::super::sample_costs;
    use super::*;

    #[test]
    fn table_of_idle_connections_contains_only_measured_gateways() {
        let (_, mut results) = sample_costs::all().swap_remove(0);
        assert!(table(&results).is_none());
        results.gateways[1].idle = Some(Idle { connections: 1500, http_kib: 2.68, https_kib: 6.6 });
        let text = table(&results).unwrap().text();
        assert!(text.contains("1,500") && text.contains("2.68 KiB") && text.contains("6.60 KiB"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
}
