//! Background work: the sums of hours and days, and the end of old rows.

use std::fmt::Write as _;

use crate::rows::{Sums, insert, scan};
use crate::schema::{Level, NAMES};
use crate::sql::{Isolation, Sql, SqlError, Value};

/// How long after its end a period is summed up, in seconds: data planes hand over a minute some seconds after its end.
const DELAY: [i64; 3] = [90, 150, 600];
/// The series that are summed up at once. Beyond, a series has several rows in a period.
const SERIES: usize = 200_000;
/// The rows that one statement deletes.
const DELETED: i64 = 20_000;
/// How long the store knows a batch, in seconds: a data plane repeats a batch after some seconds, or after an outage.
const BATCHES: i64 = 14 * 86_400;
/// How long a name stays after its last use by a writer, in days.
const UNUSED_NAMES: i64 = 8;

/// How long rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The days for which the sums of minutes are kept. Default 2.
    pub minutes: u32,
    /// The days for which the sums of hours are kept. Default 60.
    pub hours: u32,
    /// The days for which the sums of days are kept. Default 730.
    pub days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self { minutes: 2, hours: 60, days: 730 }
    }
}

impl Retention {
    /// The time before which there are no rows, in seconds.
    pub(crate) fn start(self, level: Level, now: i64) -> i64 {
        let days = match level {
            Level::Minutes => self.minutes,
            Level::Hours => self.hours,
            Level::Days => self.days,
        };
        // Whole hours of minutes, and whole days of hours: a period is summed up from all its rows.
        let coarser = if level == Level::Minutes { Level::Hours } else { Level::Days };
        coarser.start(now - i64::from(days) * 86_400)
    }

    /// The granularity of the rows for new sums of a time. The sums of a time whose rows are about to be deleted are added to the next
    /// granularity.
    pub(crate) fn level(self, time: i64, now: i64) -> Level {
        let is_kept = |level: &Level| time >= self.start(*level, now) + 2 * 3600;
        Level::ALL.into_iter().find(is_kept).unwrap_or(Level::Days)
    }
}

/// Marks the periods of new rows, whose sums are now incomplete.
pub(crate) fn mark(sql: &mut dyn Sql, level: Level, time: i64) -> Result<(), SqlError> {
    // The update takes the lock of the row. So no other process reads the rows of the period before they are committed.
    const MARK: &str = "INSERT INTO sluicegate_dirty (level, time) VALUES ($1, $2) \
                        ON CONFLICT (level, time) DO UPDATE SET time = excluded.time";
    sql.execute(MARK, &[Value::Int(level.number()), Value::Int(level.start(time))])?;
    Ok(())
}

/// Does one piece of work. Returns whether there may be more.
pub(crate) fn work(sql: &mut dyn Sql, retention: Retention, now: i64) -> Result<bool, SqlError> {
    for level in Level::ALL {
        let until = now - level.seconds() - DELAY[level as usize];
        let due = sql.fetch(
            &format!(
                "SELECT time FROM sluicegate_dirty WHERE level = {} AND time <= {until} ORDER BY time LIMIT 1",
                level.number()
            ),
            &[],
        )?;
        if let Some(time) = due.first().and_then(|row| row.first()) {
            let time = time.int()?;
            return sql.transaction(Isolation::Snapshot, |sql| {
                Ok::<_, SqlError>(sql.is_alone()? && sum_up(sql, level, time)?)
            });
        }
    }
    delete_old(sql, retention, now)
}

/// Replaces the rows of a period by the sums of its finer rows. Returns true.
fn sum_up(sql: &mut dyn Sql, level: Level, time: i64) -> Result<bool, SqlError> {
    let finer = level.finer();
    // First, because the deletion conflicts with a process that marks the period again.
    sql.execute(
        "DELETE FROM sluicegate_dirty WHERE level = $1 AND time = $2",
        &[Value::Int(level.number()), Value::Int(time)],
    )?;
    let period = (time, time + level.seconds());
    let (mut sums, mut rows, mut summed) = (Sums::default(), 0_usize, Vec::new());
    scan::<SqlError>(sql, finer, period, "", |row| {
        sums.add(&row);
        rows += 1;
        if sums.len() >= SERIES {
            summed.append(&mut sums.take(time));
        }
        Ok(())
    })?;
    summed.append(&mut sums.take(time));
    if level == finer && summed.len() == rows {
        return Ok(true);
    }
    let table = level.table();
    sql.execute(
        &format!("DELETE FROM {table} WHERE time >= $1 AND time < $2"),
        &[Value::Int(period.0), Value::Int(period.1)],
    )?;
    insert(sql, level, &summed)?;
    if level == Level::Hours {
        mark(sql, Level::Days, time)?;
    }
    Ok(true)
}

/// Deletes some old rows. Returns whether there may be more.
fn delete_old(sql: &mut dyn Sql, retention: Retention, now: i64) -> Result<bool, SqlError> {
    let mut may_be_more = false;
    for level in Level::ALL {
        let (table, end) = (level.table(), retention.start(level, now));
        let deletion = format!(
            "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE time < $1 ORDER BY time, id LIMIT {DELETED})"
        );
        may_be_more |= sql.execute(&deletion, &[Value::Int(end)])? == DELETED as u64;
    }
    sql.execute("DELETE FROM sluicegate_batches WHERE stored < $1", &[Value::Int(now - BATCHES)])?;
    Ok(may_be_more)
}

/// Deletes names without rows. A writer notes each day that it uses a name, so that no other process deletes the name.
pub(crate) fn delete_names(sql: &mut dyn Sql, today: i64) -> Result<u64, SqlError> {
    let mut condition = String::new();
    for level in Level::ALL {
        for column in NAMES {
            // Writing to a String does not fail.
            let _ = write!(condition, " AND id NOT IN (SELECT {column} FROM {})", level.table());
        }
    }
    sql.execute(
        &format!("DELETE FROM sluicegate_names WHERE seen < $1{condition}"),
        &[Value::Int(today - UNUSED_NAMES)],
    )
}

/// Deletes the oldest rows of a database that is too large: an hour of minutes, or else a day of hours, or else a day. Returns the
/// number of deleted rows.
pub(crate) fn shrink(sql: &mut dyn Sql) -> Result<u64, SqlError> {
    for level in Level::ALL {
        let table = level.table();
        let oldest = sql.fetch(&format!("SELECT time FROM {table} ORDER BY time LIMIT 1"), &[])?;
        if let Some(time) = oldest.first().and_then(|row| row.first()) {
            let coarser = if level == Level::Minutes { Level::Hours } else { Level::Days };
            let end = coarser.start(time.int()?) + coarser.seconds();
            return sql.execute(&format!("DELETE FROM {table} WHERE time < $1"), &[Value::Int(end)]);
        }
    }
    Ok(0)
}
