//! The tables, and the changes from older versions of them.
//!
//! A row of `sluicegate_minutes` has the sums of one series in one minute or in a part of the minute. Rows are never changed: a reader
//! adds the rows of a series up. The tables of hours and days have the same columns. `sluicegate_quotas` has the totals of quotas.

use crate::sql::{Isolation, Sql, SqlError, Value};

/// The version of the tables that this program writes.
const VERSION: i64 = 1;

/// A granularity with its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Minutes,
    Hours,
    Days,
}

impl Level {
    pub(crate) const ALL: [Self; 3] = [Self::Minutes, Self::Hours, Self::Days];

    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::Minutes => "sluicegate_minutes",
            Self::Hours => "sluicegate_hours",
            Self::Days => "sluicegate_days",
        }
    }

    /// The length in seconds.
    pub(crate) fn seconds(self) -> i64 {
        match self {
            Self::Minutes => 60,
            Self::Hours => 3600,
            Self::Days => 86_400,
        }
    }

    /// The start of the period that includes this time.
    pub(crate) fn start(self, time: i64) -> i64 {
        time - time.rem_euclid(self.seconds())
    }

    /// The granularity from which the rows of this granularity are made.
    pub(crate) fn finer(self) -> Self {
        match self {
            Self::Minutes | Self::Hours => Self::Minutes,
            Self::Days => Self::Hours,
        }
    }

    /// The number in `sluicegate_dirty`.
    pub(crate) fn number(self) -> i64 {
        self as i64
    }
}

/// The dimensions that refer to names, in the order of [`Key::names`](sluicegate_model::analytics::Key::names).
pub(crate) const NAMES: [&str; 8] =
    ["route", "api", "version", "environment", "operation", "consumer", "plan", "endpoint"];

/// The columns of a row, after its id.
pub(crate) const COLUMNS: [&str; 22] = [
    "time",
    "route",
    "api",
    "version",
    "environment",
    "operation",
    "consumer",
    "plan",
    "endpoint",
    "status",
    "requests",
    "limited",
    "cache_hits",
    "cache_misses",
    "request_bytes",
    "response_bytes",
    "total_micros",
    "total",
    "upstream_micros",
    "upstream",
    "gateway_micros",
    "gateway",
];

/// Creates the tables, or changes older tables.
pub(crate) fn migrate(sql: &mut dyn Sql) -> Result<(), SqlError> {
    sql.run("CREATE TABLE IF NOT EXISTS sluicegate_schema (version BIGINT NOT NULL)")?;
    let version = |sql: &mut dyn Sql| {
        let rows = sql.fetch("SELECT version FROM sluicegate_schema ORDER BY version DESC LIMIT 1", &[])?;
        rows.first().and_then(|row| row.first()).map(Value::int).transpose()
    };
    if version(sql)? == Some(VERSION) {
        return Ok(());
    }
    sql.transaction(Isolation::Committed, |sql| {
        if !sql.is_alone()? {
            return Err(SqlError::Setup("another process creates the tables".to_owned()));
        }
        match version(sql)? {
            None => create(sql)?,
            Some(VERSION) => return Ok(()),
            Some(other) => {
                return Err(SqlError::Setup(format!(
                    "its tables have version {other}, and this program knows version {VERSION}; update the program, or name \
                     another database with --analytics-database"
                )));
            }
        }
        sql.execute("INSERT INTO sluicegate_schema (version) VALUES ($1)", &[Value::Int(VERSION)])?;
        Ok(())
    })
}

fn create(sql: &mut dyn Sql) -> Result<(), SqlError> {
    let dialect = sql.dialect();
    let (id, bytes) = (dialect.id, dialect.bytes);
    let columns = COLUMNS.map(|column| match column {
        "total" | "upstream" | "gateway" => format!("{column} {bytes} NOT NULL"),
        _ => format!("{column} BIGINT NOT NULL"),
    });
    let columns = columns.join(", ");
    for level in Level::ALL {
        let table = level.table();
        sql.run(&format!(
            "CREATE TABLE {table} (id {id}, {columns}); CREATE INDEX {table}_time ON {table} (time, id)"
        ))?;
    }
    sql.run(&format!(
        "CREATE TABLE sluicegate_names (id {id}, name TEXT NOT NULL UNIQUE, seen BIGINT NOT NULL);
         CREATE TABLE sluicegate_batches (instance TEXT NOT NULL, sequence BIGINT NOT NULL, minute BIGINT NOT NULL,
             stored BIGINT NOT NULL, PRIMARY KEY (instance, sequence));
         CREATE INDEX sluicegate_batches_minute ON sluicegate_batches (minute);
         CREATE TABLE sluicegate_quotas (name TEXT NOT NULL, start BIGINT NOT NULL, until BIGINT NOT NULL, total BIGINT NOT NULL,
             PRIMARY KEY (name, start));
         CREATE TABLE sluicegate_dirty (level BIGINT NOT NULL, time BIGINT NOT NULL, PRIMARY KEY (level, time))"
    ))
}
