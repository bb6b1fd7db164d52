//! The CPU time and memory of a gateway under a load, and the time until changes took effect.

use super::contest::{Contestant, median};
use super::table::{Cell, Column, Row, Table};
use super::words::{counted, number, time};
use crate::results::{Followed, Run};

/// CPU time and memory; [`None`] if they were not measured.
pub(super) fn table(contestants: &[Contestant<'_>]) -> Option<Table> {
    if contestants.iter().all(|each| each.run.cpu.is_empty()) {
        return None;
    }
    let has_baseline = contestants.iter().any(|each| each.baseline.is_some());
    let mut columns = vec![
        Column::words("gateway"),
        Column::number("CPU/answer"),
        Column::number("CPUs busy").with_note("mean"),
        Column::number("CPUs busy").with_note("most"),
        Column::number("memory").with_note("most, resident"),
    ];
    if has_baseline {
        columns.push(Column::number("CPU/answer").with_note("while nothing changes"));
        columns.push(Column::number("memory").with_note("while nothing changes"));
    }
    let rows = contestants.iter().map(|each| {
        let mut cells = vec![
            Cell::contestant(each.title(), each.slot),
            known(per_answer(each.run), micros),
            known(mean(each.run), number),
            known(each.run.cpu.iter().map(|sample| sample.cpus).reduce(f64::max), number),
            known(Some(each.run.peak_rss_mib).filter(|mib| *mib > 0.0), mib),
        ];
        if has_baseline {
            cells.push(known(each.baseline.and_then(per_answer), micros));
            cells.push(known(each.baseline.map(|run| run.peak_rss_mib).filter(|mib| *mib > 0.0), mib));
        }
        Row::of(cells)
    });
    Some(Table {
        caption: "CPU time and memory of the gateway, all its processes together".to_owned(),
        rows: rows.collect(),
        columns,
    })
}

fn known(value: Option<f64>, text: impl Fn(f64) -> String) -> Cell {
    value.map_or(Cell::quiet("–"), |value| Cell::plain(text(value)))
}

fn micros(value: f64) -> String {
    format!("{} µs", number(value))
}

fn mib(value: f64) -> String {
    format!("{} MiB", number(value))
}

/// CPU seconds, and the seconds in which they were used.
fn used(run: &Run) -> (f64, f64) {
    let (mut busy, mut before) = (0.0, 0.0);
    for sample in &run.cpu {
        busy += sample.cpus * (sample.at_s - before).max(0.0);
        before = sample.at_s;
    }
    (busy, before)
}

fn mean(run: &Run) -> Option<f64> {
    let (busy, seconds) = used(run);
    (seconds > 0.0).then(|| busy / seconds)
}

/// CPU time per response, in microseconds.
fn per_answer(run: &Run) -> Option<f64> {
    let (busy, _) = used(run);
    let answered = run.load.requests.answered;
    (answered > 0 && busy > 0.0).then(|| busy * 1e6 / answered as f64)
}

/// The time until changes took effect; [`None`] if it was not measured.
pub(super) fn followed(contestants: &[Contestant<'_>]) -> Option<Table> {
    let rows: Vec<Row> = contestants.iter().flat_map(rows).collect();
    let columns = vec![
        Column::words("gateway"),
        Column::words("change"),
        Column::number("how often"),
        Column::number("median"),
        Column::number("longest"),
        Column::number("superseded"),
        Column::number("never"),
    ];
    let caption = "The delay from the notification of the gateway until each change took effect".to_owned();
    (!rows.is_empty()).then_some(Table { caption, columns, rows })
}

/// A row for each kind of change.
fn rows(each: &Contestant<'_>) -> Vec<Row> {
    let mut kinds: Vec<&str> = Vec::new();
    for followed in &each.run.followed {
        if !kinds.contains(&followed.kind.as_str()) {
            kinds.push(&followed.kind);
        }
    }
    let of_kind = |kind: &str| {
        let all: Vec<&Followed> = each.run.followed.iter().filter(|followed| followed.kind == kind).collect();
        let took: Vec<f64> = all.iter().filter_map(|followed| followed.took_ms).collect();
        let overtaken = all.iter().filter(|followed| followed.is_overtaken).count();
        Row::of([
            Cell::contestant(each.title(), each.slot),
            Cell::plain(kind),
            Cell::plain(all.len().to_string()),
            known(median(&took), time),
            known(took.iter().copied().reduce(f64::max), time),
            Cell::plain(overtaken.to_string()),
            Cell::errors((all.len() - took.len() - overtaken) as u64),
        ])
    };
    kinds.into_iter().map(of_kind).collect()
}

/// The number of changes without an effect, in words.
pub(super) fn never(each: &Contestant<'_>) -> Option<String> {
    let never = each.never_followed() as u64;
    (never > 0).then(|| {
        format!("{} ({never} of {})", each.title(), counted(each.run.followed.len() as u64, "change"))
    })
}
