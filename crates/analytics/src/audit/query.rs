//! Queries of the audit trail.

use std::io::{self, Write};

use humantime::parse_duration;
use serde_json::Value as Json;

use super::entry::exported;
use crate::query::QueryError;
use crate::query::parse::{decode, time, wrong};
use crate::query::show::cell;
use crate::sql::{Sql, SqlError, Value};

/// The largest number of entries of an answer.
const ENTRIES: usize = 1000;

/// The columns that a parameter of the same name compares.
const FILTERS: [&str; 5] = ["kind", "namespace", "name", "actor", "operation"];

/// The columns of CSV.
const COLUMNS: [&str; 15] = [
    "number",
    "time",
    "actor_type",
    "actor",
    "operation",
    "kind",
    "namespace",
    "name",
    "applied",
    "fault",
    "summary",
    "changes",
    "manifest",
    "uid",
    "hash",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
}

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Query {
    /// The values of the parameters in [`FILTERS`].
    filters: [Option<String>; FILTERS.len()],
    /// The window in seconds since 1970.
    from: Option<i64>,
    to: Option<i64>,
    /// The entries after this number, the oldest first.
    after: Option<i64>,
    /// The entries before this number, the newest first.
    before: Option<i64>,
    limit: usize,
    format: Format,
}

/// The answer to a query.
#[derive(Debug)]
pub struct AuditAnswer {
    format: Format,
    /// The lines with their hashes.
    entries: Vec<(String, String)>,
}

impl Query {
    pub(super) fn parse(text: &str, now: i64) -> Result<Self, QueryError> {
        let mut query = Self {
            filters: Default::default(),
            from: None,
            to: None,
            after: None,
            before: None,
            limit: 100,
            format: Format::Json,
        };
        let mut given = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode(name)?, decode(value)?);
            if given.contains(&name) {
                return Err(wrong(&name, &value, "a parameter that is given twice", "give it once"));
            }
            let number = || {
                let number = value.parse().ok().filter(|number| *number >= 0);
                number.ok_or_else(|| {
                    wrong(&name, &value, "no number of an entry", "write the number of an entry")
                })
            };
            match &*name {
                "since" => {
                    let seconds =
                        parse_duration(&value).ok().and_then(|since| i64::try_from(since.as_secs()).ok());
                    let since = seconds
                        .ok_or_else(|| wrong("since", &value, "no duration", "write 15m, 24h or 7d"))?;
                    query.from = Some(now.saturating_sub(since));
                }
                "from" => query.from = Some(time("from", &value)?),
                "to" => query.to = Some(time("to", &value)?),
                "after" => query.after = Some(number()?),
                "before" => query.before = Some(number()?),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=ENTRIES).contains(limit));
                    query.limit = limit.ok_or_else(|| {
                        wrong("limit", &value, "no number of entries", "write a number from 1 to 1000")
                    })?;
                }
                "format" => {
                    query.format = match &*value {
                        "json" => Format::Json,
                        "csv" => Format::Csv,
                        _ => return Err(wrong("format", &value, "no format", "write json or csv")),
                    }
                }
                name => {
                    let filter = FILTERS.iter().position(|filter| *filter == name).ok_or_else(|| {
                        wrong(
                            name,
                            &value,
                            "no parameter of the audit trail",
                            "the parameters are since, from, to, kind, namespace, name, actor, operation, after, before, limit and \
                             format",
                        )
                    })?;
                    query.filters[filter] = Some(value);
                }
            }
            given.push(name);
        }
        let both =
            |one: &str, other: &str| given.iter().any(|of| of == one) && given.iter().any(|of| of == other);
        for (one, other) in [("since", "from"), ("after", "before")] {
            if both(one, other) {
                return Err(QueryError::Parameter(format!(
                    "{one} and {other} exclude each other; remove one of them"
                )));
            }
        }
        Ok(query)
    }

    pub(super) fn run(&self, sql: &mut dyn Sql) -> Result<AuditAnswer, SqlError> {
        let mut values = Vec::new();
        let mut conditions = Vec::new();
        let mut add = |condition: &str, value: Value| {
            values.push(value);
            conditions.push(format!("{condition} ${}", values.len()));
        };
        for (column, value) in FILTERS.iter().zip(&self.filters) {
            if let Some(value) = value {
                add(&format!("{column} ="), value.as_str().into());
            }
        }
        let millis = |seconds: i64| Value::Int(seconds.saturating_mul(1000));
        for (condition, value) in [
            ("time >=", self.from.map(millis)),
            ("time <", self.to.map(millis)),
            ("number >", self.after.map(Value::Int)),
            ("number <", self.before.map(Value::Int)),
        ] {
            if let Some(value) = value {
                add(condition, value);
            }
        }
        let conditions = if conditions.is_empty() { "1 = 1".to_owned() } else { conditions.join(" AND ") };
        let order = if self.after.is_some() { "ASC" } else { "DESC" };
        let text = format!(
            "SELECT entry, hash FROM sluicegate_audit WHERE {conditions} ORDER BY number {order} LIMIT {}",
            self.limit
        );
        let rows = sql.fetch(&text, &values)?;
        let entries = rows.iter().map(|row| match &row[..] {
            [line, hash] => Ok((line.text()?.to_owned(), hash.text()?.to_owned())),
            _ => Err(SqlError::Type),
        });
        Ok(AuditAnswer { format: self.format, entries: entries.collect::<Result<_, _>>()? })
    }
}

impl AuditAnswer {
    /// The media type of [`write`](Self::write).
    #[must_use]
    pub fn content_type(&self) -> &'static str {
        match self.format {
            Format::Json => "application/jsonl",
            Format::Csv => "text/csv; charset=utf-8; header=present",
        }
    }

    /// Writes the answer, entry by entry.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.format == Format::Csv {
            writeln!(out, "{}", COLUMNS.join(","))?;
        }
        for (line, hash) in &self.entries {
            match self.format {
                Format::Json => writeln!(out, "{}", exported(line, hash))?,
                Format::Csv => writeln!(out, "{}", csv(line, hash))?,
            }
        }
        Ok(())
    }
}

fn csv(line: &str, hash: &str) -> String {
    let entry: Json = serde_json::from_str(line).unwrap_or_default();
    let text = |value: &Json| match value {
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        value => value.to_string(),
    };
    let cells = COLUMNS.map(|column| match column {
        "actor_type" => text(&entry["actor"]["type"]),
        "actor" => text(&entry["actor"]["name"]),
        "manifest" => match (&entry["manifest"]["file"], &entry["manifest"]["line"]) {
            (file, Json::Null) => text(file),
            (file, line) => format!("{}:{line}", text(file)),
        },
        "hash" => hash.to_owned(),
        column => text(&entry[column]),
    });
    cells.map(|text| cell(&text)).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_url() {
        let query =
            Query::parse("since=1h&kind=Plan&name=a%2Fb&limit=7&format=csv&after=3", 10_000).expect("valid");
        assert_eq!(
            (query.from, query.limit, query.after, query.format),
            (Some(6400), 7, Some(3), Format::Csv)
        );
        assert_eq!(query.filters[0].as_deref(), Some("Plan"));
        for (text, part) in [
            ("limit=0", "from 1 to 1000"),
            ("limit=5&limit=6", "given twice"),
            ("since=1h&from=1", "exclude each other"),
            ("after=1&before=2", "exclude each other"),
            ("after=-1", "number of an entry"),
            ("since=x", "24h"),
            ("format=xml", "json or csv"),
            ("x=1", "the parameters are since"),
        ] {
            let error = Query::parse(text, 0).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn csv_has_no_formulas_and_one_row_for_each_entry() {
        let line =
            r#"{"actor":{"name":"=cmd","type":"user"},"changes":[{"field":"/a","new":"x\ny"}],"number":1}"#;
        let expected = r#"1,,user,"'=cmd",,,,,,,,"[{""field"":""/a"",""new"":""x\ny""}]",,,h"#;
        assert_eq!(csv(line, "h"), expected);
    }
}
