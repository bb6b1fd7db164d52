//! Rows of the tables of sums.

use std::collections::HashMap;

use sluicegate_model::analytics::{Histogram, Times, Values};

use crate::schema::{COLUMNS, Level};
use crate::sql::{Sql, SqlError, Value};

/// The rows that one statement returns at most.
const PAGE: usize = 4000;

/// The dimensions of a row: names in the order of [`NAMES`](crate::schema::NAMES), then the status.
pub(crate) type Dimensions = [i64; 9];

/// A row of sums.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) time: i64,
    pub(crate) of: Dimensions,
    pub(crate) values: Values,
}

impl Row {
    fn values(&self) -> Vec<Value> {
        let Values {
            requests,
            limited,
            cache_hits,
            cache_misses,
            request_bytes,
            response_bytes,
            total,
            upstream,
            gateway,
        } = &self.values;
        let mut row = Vec::with_capacity(COLUMNS.len());
        row.push(Value::Int(self.time));
        row.extend(self.of.map(Value::Int));
        let counts = [requests, limited, cache_hits, cache_misses, request_bytes, response_bytes];
        row.extend(counts.map(|count| Value::from(*count)));
        for times in [total, upstream, gateway] {
            row.extend([times.micros.into(), Value::Blob(times.histogram.to_bytes())]);
        }
        row
    }

    /// From the columns `time` to `gateway`.
    fn of(row: &[Value]) -> Result<Self, SqlError> {
        let mut columns = row.iter();
        let mut next = || columns.next().ok_or(SqlError::Type);
        let time = next()?.int()?;
        let mut of = [0; 9];
        for dimension in &mut of {
            *dimension = next()?.int()?;
        }
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = next()?.count()?;
        }
        let [requests, limited, cache_hits, cache_misses, request_bytes, response_bytes] = counts;
        let mut times = [Times::default(), Times::default(), Times::default()];
        for times in &mut times {
            times.micros = next()?.count()?;
            times.histogram = Histogram::from_bytes(next()?.bytes()?).ok_or(SqlError::Type)?;
        }
        let [total, upstream, gateway] = times;
        let values = Values {
            requests,
            limited,
            cache_hits,
            cache_misses,
            request_bytes,
            response_bytes,
            total,
            upstream,
            gateway,
        };
        Ok(Self { time, of, values })
    }
}

pub(crate) fn insert(sql: &mut dyn Sql, level: Level, rows: &[Row]) -> Result<(), SqlError> {
    for rows in rows.chunks(PAGE) {
        let rows: Vec<_> = rows.iter().map(Row::values).collect();
        sql.insert(level.table(), &COLUMNS, &rows)?;
    }
    Ok(())
}

/// Passes the rows of a time to `each`. `condition` is further SQL, such as ` AND api = 3`.
pub(crate) fn scan<E: From<SqlError>>(
    sql: &mut dyn Sql,
    level: Level,
    (from, to): (i64, i64),
    condition: &str,
    mut each: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E> {
    let columns = COLUMNS.join(", ");
    let (mut time, mut id) = (from, -1);
    loop {
        let query = format!(
            "SELECT {columns}, id FROM {} WHERE (time, id) > ({time}, {id}) AND time < {to}{condition} \
             ORDER BY time, id LIMIT {PAGE}",
            level.table()
        );
        let rows = sql.fetch(&query, &[])?;
        for row in &rows {
            let row_of = Row::of(row)?;
            time = row_of.time;
            id = row.last().ok_or(SqlError::Type)?.int()?;
            each(row_of)?;
        }
        if rows.len() < PAGE {
            return Ok(());
        }
    }
}

/// Sums by dimensions.
#[derive(Default)]
pub(crate) struct Sums(HashMap<Dimensions, Values>);

impl Sums {
    pub(crate) fn add(&mut self, row: &Row) {
        self.0.entry(row.of).or_default().add(&row.values);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The sums as rows of this time. Afterwards there are no sums.
    pub(crate) fn take(&mut self, time: i64) -> Vec<Row> {
        let mut rows: Vec<_> = self.0.drain().map(|(of, values)| Row { time, of, values }).collect();
        rows.sort_unstable_by_key(|row| row.of);
        rows
    }
}
