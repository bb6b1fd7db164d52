//! Errors, in the study's layout: rows of errors, a column for each gateway, and the published figures beside.

use std::collections::{BTreeMap, BTreeSet};

use super::contest::Contestant;
use super::table::{Cell, Column, Row, Table};
use super::words::{count, share};
use crate::published::{self, Published};
use crate::results::Errors;

/// The load's names of errors, with names for readers: the parts of the study's classes.
const CONNECT: [(&str, &str); 5] = [
    ("connect_refused", "refused"),
    ("connect_other", "not reachable"),
    ("connect_no_port", "no port left on the load's side"),
    ("tls_handshake", "TLS handshake failed"),
    ("tls_closed", "TLS handshake broken off"),
];
const TIMEOUT: [(&str, &str); 3] = [
    ("connect_timeout", "of connecting"),
    ("tls_timeout", "of the TLS handshake"),
    ("answer_timeout", "of the answer"),
];
const READ: [(&str, &str); 5] = [
    ("read_closed", "closed before the answer"),
    ("read_reset", "reset before the answer"),
    ("read_tls_alert", "ended by a TLS alert"),
    ("read_truncated", "broken off within the answer"),
    ("read_malformed", "not HTTP"),
];
const WRONG: [(&str, &str); 4] = [
    ("missing_id", "without the request's id"),
    ("other_id", "with the id of another request"),
    ("wrong_length", "of a wrong length"),
    ("surplus_bytes", "bytes that belong to no answer"),
];

pub(super) fn table(contestants: &[Contestant<'_>], published: Option<&Published>) -> Table {
    let others = published.map_or(&[][..], |published| &published.contestants);
    let year = published.map_or("", |published| &published.short);
    let mut columns = vec![Column::words("")];
    columns.extend(contestants.iter().map(|each| Column::number(each.title())));
    columns.extend(
        others
            .iter()
            .map(|other| Column::published(&other.name, format!("{}, {}, {year}", other.version, other.way))),
    );

    let mut rows = Rows { contestants, others, rows: Vec::new() };
    rows.class("connection errors", |errors| errors.connect, |theirs| Some(theirs.connect));
    rows.kinds(&CONNECT, |errors| &errors.kinds);
    rows.class("connection timeouts", |errors| errors.timeout, |theirs| Some(theirs.timeout));
    rows.kinds(&TIMEOUT, |errors| &errors.kinds);
    rows.class("read errors", |errors| errors.read, |theirs| Some(theirs.read));
    rows.kinds(&READ, |errors| &errors.kinds);
    rows.class("write errors", |errors| errors.write, |_| None);
    rows.class("answers that are not 2xx", |errors| errors.not_2xx, |_| None);
    rows.statuses();
    rows.class("wrong answers", |errors| errors.wrong.values().sum(), |_| None);
    rows.kinds(&WRONG, |errors| &errors.wrong);
    rows.add("due and never sent", false, |each| each.run.load.requests.unsent, |_| None);
    if contestants.iter().any(|each| each.run.deliveries.is_some()) {
        let duplicated = |each: &Contestant<'_>| each.run.deliveries.map(|deliveries| deliveries.duplicated);
        rows.add("delivered more than once", false, duplicated, |_| None);
    }
    rows.totals();
    Table { caption: "Errors".to_owned(), columns, rows: rows.rows }
}

/// The rows so far.
struct Rows<'t, 'r> {
    contestants: &'t [Contestant<'r>],
    others: &'t [published::Contestant],
    rows: Vec<Row>,
}

impl<'r> Rows<'_, 'r> {
    fn add(
        &mut self,
        title: &str,
        is_detail: bool,
        figure: impl Fn(&Contestant<'r>) -> Option<u64>,
        theirs: impl Fn(&published::Errors) -> Option<u64>,
    ) {
        let mut cells = vec![Cell::plain(title)];
        cells.extend(self.contestants.iter().map(|each| figure(each).map_or(Cell::quiet("–"), Cell::errors)));
        cells.extend(
            self.others.iter().map(|other| theirs(&other.errors).map_or(Cell::quiet(""), Cell::errors)),
        );
        self.rows.push(Row { cells, is_detail });
    }

    fn class(
        &mut self,
        title: &str,
        figure: impl Fn(&Errors) -> u64,
        theirs: impl Fn(&published::Errors) -> Option<u64>,
    ) {
        self.add(title, false, |each| Some(figure(&each.run.load.errors)), theirs);
    }

    /// The parts of a class: errors that occurred in at least one run.
    fn kinds(&mut self, kinds: &[(&str, &str)], counts: fn(&Errors) -> &BTreeMap<String, u64>) {
        for (name, title) in kinds {
            let of = |each: &Contestant<'r>| counts(&each.run.load.errors).get(*name).copied().unwrap_or(0);
            if self.contestants.iter().any(|each| of(each) > 0) {
                self.add(title, true, |each| Some(of(each)), |_| None);
            }
        }
    }

    /// The statuses other than 2xx in at least one run.
    fn statuses(&mut self) {
        let all = self.contestants.iter().flat_map(|each| each.run.load.statuses.keys().copied());
        let all: BTreeSet<u16> = all.filter(|status| !(200..300).contains(status)).collect();
        for status in all {
            let of = |each: &Contestant<'r>| each.run.load.statuses.get(&status).copied().unwrap_or(0);
            self.add(&format!("status {status}"), true, |each| Some(of(each)), |_| None);
        }
    }

    fn totals(&mut self) {
        let mut row = |title: &str, figure: &dyn Fn(&Contestant<'r>) -> Cell| {
            let mut cells = vec![Cell::plain(title)];
            cells.extend(self.contestants.iter().map(figure));
            cells.extend(self.others.iter().map(|_| Cell::quiet("")));
            self.rows.push(Row::of(cells));
        };
        row("requests that were due", &|each| Cell::plain(count(each.due())));
        row("of them without an answer", &|each| Cell::errors(each.unanswered()));
        row("share without an answer", &|each| match each.unanswered() {
            0 => Cell::quiet("none"),
            unanswered => Cell::bad(share(unanswered, each.due())),
        });
    }
}
