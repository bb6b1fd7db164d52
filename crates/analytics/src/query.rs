//! The query API of analytics.
//!
//! A query selects a window, and adds its rows up by group and point. The rows of complete hours and days come from their own tables
//! if the step allows it. The newest hours come from the rows of minutes until they are summed up.

use std::collections::HashMap;
use std::time::Duration;

use humantime::{format_rfc3339_seconds, parse_duration, parse_rfc3339};
use sluicegate_model::analytics::Values;

use crate::background::Retention;
use crate::rows::{Row, scan};
use crate::schema::Level;
use crate::sql::{Sql, SqlError, Value};

pub(crate) mod parse;
pub(crate) mod show;

/// The largest number of points in a window.
const POINTS: i64 = 1000;
/// The largest number of groups.
const GROUPS: usize = 1000;
/// The largest number of points of all groups.
const ALL_POINTS: usize = 50_000;
/// The names that one statement fetches.
const NAMES: usize = 500;

/// The reason why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// A parameter is invalid.
    #[error("{0}")]
    Parameter(String),
    /// The database failed, is unavailable, or took too long.
    #[error("the database has no answer: {0}; narrow the window if the query took too long")]
    Database(String),
}

/// A dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    Route,
    Api,
    Version,
    Environment,
    Operation,
    Consumer,
    Plan,
    Endpoint,
    Status,
}

impl Dimension {
    /// In the order of [`Dimensions`](crate::rows::Dimensions).
    const ALL: [Self; 9] = [
        Self::Route,
        Self::Api,
        Self::Version,
        Self::Environment,
        Self::Operation,
        Self::Consumer,
        Self::Plan,
        Self::Endpoint,
        Self::Status,
    ];

    /// The name in queries, and the column.
    fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Api => "api",
            Self::Version => "version",
            Self::Environment => "environment",
            Self::Operation => "operation",
            Self::Consumer => "consumer",
            Self::Plan => "plan",
            Self::Endpoint => "endpoint",
            Self::Status => "status",
        }
    }
}

/// A condition on a dimension.
#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Name(Dimension, String),
    /// The first and the last status.
    Status(u16, u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Json,
    Csv,
}

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Query {
    from: i64,
    to: i64,
    step: Option<i64>,
    by: Vec<Dimension>,
    conditions: Vec<Condition>,
    limit: usize,
    format: Format,
}

/// The answer to a query.
#[derive(Clone, Debug)]
pub struct Answer {
    query: Query,
    is_truncated: bool,
    groups: Vec<Group>,
}

#[derive(Clone, Debug)]
struct Group {
    /// The names of the dimensions of the query.
    of: Vec<Name>,
    total: Sum,
    /// By the number of the point.
    points: HashMap<i64, Sum>,
}

#[derive(Clone, Debug, PartialEq)]
enum Name {
    Text(String),
    Status(i64),
}

/// The sums of a group in a point.
#[derive(Clone, Debug, Default)]
struct Sum {
    values: Values,
    /// 2xx, 3xx, 4xx, 5xx, other.
    classes: [u64; 5],
    /// 5xx, and responses that broke off.
    errors: u64,
}

impl Sum {
    fn add(&mut self, status: i64, values: &Values) {
        self.values.add(values);
        let class = match status / 100 {
            class @ 2..=5 => usize::try_from(class - 2).unwrap_or(4),
            _ => 4,
        };
        self.classes[class] += values.requests;
        if status == 0 || class == 3 {
            self.errors += values.requests;
        }
    }
}

impl Query {
    /// Answers the query.
    pub(crate) fn run(
        mut self,
        sql: &mut dyn Sql,
        retention: Retention,
        now: i64,
    ) -> Result<Answer, SqlError> {
        let level = self.level();
        self.align(level);
        let parts = parts(sql, level, (self.from, self.to), retention, now)?;
        let Some(condition) = self.condition(sql)? else {
            return Ok(Answer { query: self, is_truncated: false, groups: Vec::new() });
        };
        let (keys, is_truncated) = self.keys(sql, &parts, &condition)?;
        let places: Vec<_> = self.by.iter().map(|dimension| *dimension as usize).collect();
        let mut sums: HashMap<Vec<i64>, (Sum, HashMap<i64, Sum>)> =
            keys.iter().map(|key| (key.clone(), Default::default())).collect();
        let mut key = Vec::new();
        for (level, from, to) in parts {
            scan::<SqlError>(sql, level, (from, to), &condition, |Row { time, of, values }| {
                key.clear();
                key.extend(places.iter().map(|place| of[*place]));
                if let Some((total, points)) = sums.get_mut(&key) {
                    total.add(of[8], &values);
                    if let Some(step) = self.step {
                        points.entry((time - self.from).max(0) / step).or_default().add(of[8], &values);
                    }
                }
                Ok(())
            })?;
        }
        let names = self.names(sql, &keys)?;
        let groups = keys.into_iter().zip(names).filter_map(|(key, of)| {
            let (total, points) = sums.remove(&key)?;
            Some(Group { of, total, points })
        });
        let mut groups: Vec<_> = groups.collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.total.values.requests));
        Ok(Answer { groups, query: self, is_truncated })
    }

    /// The coarsest granularity that the step allows.
    fn level(&self) -> Level {
        const DAY: i64 = 86_400;
        match self.step {
            Some(step) if step % DAY == 0 => Level::Days,
            Some(step) if step % 3600 == 0 => Level::Hours,
            Some(_) => Level::Minutes,
            None if self.to - self.from > 14 * DAY => Level::Days,
            None if self.to - self.from > 6 * 3600 => Level::Hours,
            None => Level::Minutes,
        }
    }

    /// Extends the window to whole steps, or to whole periods of the granularity.
    fn align(&mut self, level: Level) {
        let unit = self.step.unwrap_or_else(|| level.seconds());
        self.from -= self.from.rem_euclid(unit);
        self.to += (-self.to).rem_euclid(if self.step.is_some() { unit } else { 60 });
    }

    /// The conditions as SQL, each after `AND`. `None` if no row can have a name.
    fn condition(&self, sql: &mut dyn Sql) -> Result<Option<String>, SqlError> {
        let mut condition = String::new();
        for dimension in Dimension::ALL {
            let mut alternatives = Vec::new();
            let mut is_wanted = false;
            for wanted in &self.conditions {
                match wanted {
                    Condition::Name(of, name) if *of == dimension => {
                        is_wanted = true;
                        let id = match &**name {
                            "" => Some(0),
                            name => id_of(sql, name)?,
                        };
                        alternatives.extend(id.map(|id| format!("{} = {id}", dimension.name())));
                    }
                    Condition::Status(first, last) if dimension == Dimension::Status => {
                        is_wanted = true;
                        alternatives.push(format!("(status >= {first} AND status <= {last})"));
                    }
                    _ => {}
                }
            }
            if is_wanted && alternatives.is_empty() {
                return Ok(None);
            }
            if is_wanted {
                condition.push_str(&format!(" AND ({})", alternatives.join(" OR ")));
            }
        }
        Ok(Some(condition))
    }

    /// The groups with the most requests, and whether there are more groups.
    fn keys(
        &self,
        sql: &mut dyn Sql,
        parts: &[(Level, i64, i64)],
        condition: &str,
    ) -> Result<(Vec<Vec<i64>>, bool), SqlError> {
        if self.by.is_empty() || parts.is_empty() {
            return Ok((vec![Vec::new(); usize::from(self.by.is_empty())], false));
        }
        let columns = self.by.iter().map(|dimension| dimension.name()).collect::<Vec<_>>().join(", ");
        let rows = parts.iter().map(|(level, from, to)| {
            let table = level.table();
            format!("SELECT {columns}, requests FROM {table} WHERE time >= {from} AND time < {to}{condition}")
        });
        let rows = rows.collect::<Vec<_>>().join(" UNION ALL ");
        let query = format!(
            "SELECT {columns}, CAST(SUM(requests) AS BIGINT) AS requests FROM ({rows}) AS parts GROUP BY {columns} \
             ORDER BY requests DESC, {columns} LIMIT {}",
            self.limit + 1
        );
        let mut keys = sql.fetch(&query, &[])?;
        let is_truncated = keys.len() > self.limit;
        keys.truncate(self.limit);
        let keys = keys.iter().map(|row| row[..self.by.len()].iter().map(Value::int).collect());
        Ok((keys.collect::<Result<_, _>>()?, is_truncated))
    }

    /// The names of groups.
    fn names(&self, sql: &mut dyn Sql, keys: &[Vec<i64>]) -> Result<Vec<Vec<Name>>, SqlError> {
        let mut ids: Vec<i64> = keys
            .iter()
            .flat_map(|key| {
                let of_names =
                    key.iter().zip(&self.by).filter(|(_, dimension)| **dimension != Dimension::Status);
                of_names.map(|(id, _)| *id)
            })
            .collect();
        ids.sort_unstable();
        ids.dedup();
        let mut names = HashMap::new();
        for ids in ids.chunks(NAMES) {
            let list = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
            let query = format!("SELECT id, name FROM sluicegate_names WHERE id IN ({list})");
            for row in sql.fetch(&query, &[])? {
                if let [id, name] = &row[..] {
                    names.insert(id.int()?, name.text()?.to_owned());
                }
            }
        }
        let name = |(id, dimension): (&i64, &Dimension)| match dimension {
            Dimension::Status => Name::Status(*id),
            _ => Name::Text(names.get(id).cloned().unwrap_or_default()),
        };
        Ok(keys.iter().map(|key| key.iter().zip(&self.by).map(name).collect()).collect())
    }
}

fn id_of(sql: &mut dyn Sql, name: &str) -> Result<Option<i64>, SqlError> {
    let rows = sql.fetch("SELECT id FROM sluicegate_names WHERE name = $1", &[name.into()])?;
    rows.first().and_then(|row| row.first()).map(Value::int).transpose()
}

/// The rows of a window: a granularity, its first and its last time (exclusive).
fn parts(
    sql: &mut dyn Sql,
    level: Level,
    (from, to): (i64, i64),
    retention: Retention,
    now: i64,
) -> Result<Vec<(Level, i64, i64)>, SqlError> {
    // The first period that is not summed up. Later periods may not be either.
    let mut first_dirty = |level: Level| -> Result<i64, SqlError> {
        let query = format!(
            "SELECT time FROM sluicegate_dirty WHERE level = {} ORDER BY time LIMIT 1",
            level.number()
        );
        let rows = sql.fetch(&query, &[])?;
        let dirty = rows.first().and_then(|row| row.first()).map(Value::int).transpose()?;
        Ok(dirty.unwrap_or(i64::MAX).min(level.start(now)))
    };
    let hours_end = first_dirty(Level::Hours)?;
    let days_end = first_dirty(Level::Days)?.min(Level::Days.start(hours_end));
    // Each granularity has rows up to its end; the older rows of the finer granularity are deleted.
    let minutes_from = match level {
        Level::Minutes => retention.start(Level::Minutes, now).min(hours_end),
        _ => hours_end,
    };
    let hours_from = match level {
        Level::Days => days_end,
        _ => retention.start(Level::Hours, now).min(days_end),
    };
    let parts = [
        // The period that includes the start of the window counts as a whole.
        (Level::Days, Level::Days.start(from), to.min(hours_from)),
        (Level::Hours, Level::Hours.start(from).max(hours_from), to.min(minutes_from)),
        (Level::Minutes, from.max(minutes_from), to),
    ];
    Ok(parts.into_iter().filter(|(_, from, to)| from < to).collect())
}
