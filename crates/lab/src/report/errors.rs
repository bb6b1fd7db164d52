//! What went wrong, in the study's layout: rows of errors, a column for each gateway, and what was published beside.

use std::collections::BTreeSet;

use super::contest::Contestant;
use super::table::{Cell, Column, Row, Table};
use super::words::{count, share};
use crate::published::Published;
use crate::results::Errors;

/// How a row's figures come about.
type Figure<'f> = Box<dyn Fn(&Contestant<'_>) -> Option<u64> + 'f>;

pub(super) fn table(contestants: &[Contestant<'_>], published: Option<&Published>) -> Table {
    let mut columns = vec![Column::words("")];
    columns.extend(contestants.iter().map(|each| Column::number(each.title())));
    let others = published.map_or(&[][..], |published| &published.contestants);
    let year = published.map_or("", |published| &published.short);
    columns.extend(
        others
            .iter()
            .map(|other| Column::published(&other.name, format!("{}, {}, {year}", other.version, other.way))),
    );

    let mut rows = Vec::new();
    let mut row = |title: &str,
                   is_detail: bool,
                   figure: Figure<'_>,
                   theirs: fn(&crate::published::Errors) -> Option<u64>| {
        let mut cells = vec![Cell::plain(title)];
        cells.extend(contestants.iter().map(|each| figure(each).map_or(Cell::quiet("–"), Cell::errors)));
        cells.extend(others.iter().map(|other| theirs(&other.errors).map_or(Cell::quiet(""), Cell::errors)));
        rows.push(Row { cells, is_detail });
    };
    row("connection errors", false, class(|errors| errors.connect), |theirs| Some(theirs.connect));
    row("connection timeouts", false, class(|errors| errors.timeout), |theirs| Some(theirs.timeout));
    row("read errors", false, class(|errors| errors.read), |theirs| Some(theirs.read));
    row("write errors", false, class(|errors| errors.write), |_| None);
    row("answers that are not 2xx", false, class(|errors| errors.not_2xx), |_| None);
    for status in statuses(contestants) {
        let figure =
            move |each: &Contestant<'_>| Some(each.run.load.statuses.get(&status).copied().unwrap_or(0));
        row(&format!("status {status}"), true, Box::new(figure), |_| None);
    }
    row("wrong answers", false, class(|errors| errors.wrong.values().sum()), |_| None);
    for (kind, title) in
        [("tls_handshake", "TLS handshakes refused"), ("tls_closed", "TLS handshakes broken off")]
    {
        // Part of the connection errors, and rare: only where there is one.
        if contestants.iter().any(|each| kind_of(&each.run.load.errors, kind) > 0) {
            row(
                &format!("{title} (among connection errors)"),
                true,
                class(move |errors| kind_of(errors, kind)),
                |_| None,
            );
        }
    }
    row("due and never sent", false, Box::new(|each| each.run.load.requests.unsent), |_| None);
    if contestants.iter().any(|each| each.run.deliveries.is_some()) {
        let figure = |each: &Contestant<'_>| each.run.deliveries.map(|deliveries| deliveries.duplicated);
        row("delivered more than once", false, Box::new(figure), |_| None);
    }
    rows.extend(totals(contestants, others.len()));
    Table { caption: "What went wrong".to_owned(), columns, rows }
}

fn class<'f>(figure: impl Fn(&Errors) -> u64 + 'f) -> Figure<'f> {
    Box::new(move |each| Some(figure(&each.run.load.errors)))
}

pub(super) fn kind_of(errors: &Errors, kind: &str) -> u64 {
    errors.kinds.get(kind).copied().unwrap_or(0)
}

/// Those other than 2xx that anyone gave.
fn statuses(contestants: &[Contestant<'_>]) -> BTreeSet<u16> {
    let all = contestants.iter().flat_map(|each| each.run.load.statuses.keys().copied());
    all.filter(|status| !(200..300).contains(status)).collect()
}

fn totals(contestants: &[Contestant<'_>], others: usize) -> [Row; 3] {
    let row = |title: &str, figure: &dyn Fn(&Contestant<'_>) -> Cell| {
        let mut cells = vec![Cell::plain(title)];
        cells.extend(contestants.iter().map(figure));
        cells.extend((0..others).map(|_| Cell::quiet("")));
        Row::of(cells)
    };
    [
        row("requests that were due", &|each| Cell::plain(count(each.due()))),
        row("of them without an answer", &|each| Cell::errors(each.unanswered())),
        row("share without an answer", &|each| match each.unanswered() {
            0 => Cell::quiet("none"),
            unanswered => Cell::bad(share(unanswered, each.due())),
        }),
    ]
}
