//! The uses of quotas by all data planes.
//!
//! A row of `sluicegate_quotas` has the total of a quota in a window.

use sluicegate_model::usage::{QuotaName, QuotaTotal, QuotaUse};

use crate::sql::{Isolation, Sql, SqlError, Value};

/// How long a window of the calendar is kept from its start on, in seconds: longer than a year.
const CALENDAR: u64 = 400 * 86_400;

/// Adds uses, unless the uses of this instance with this number are counted. Returns the totals.
pub(crate) fn count(
    sql: &mut dyn Sql,
    (instance, sequence): (&str, u64),
    uses: &[QuotaUse],
    now: i64,
) -> Result<Vec<QuotaTotal>, SqlError> {
    const BATCH: &str = "INSERT INTO sluicegate_batches (instance, sequence, minute, stored) VALUES ($1, $2, $3, $4) \
                         ON CONFLICT (instance, sequence) DO NOTHING";
    // All processes take the locks of rows in the same order.
    let mut uses: Vec<&QuotaUse> = uses.iter().collect();
    uses.sort_by(|one, other| (&one.name, one.window).cmp(&(&other.name, other.window)));
    sql.transaction(Isolation::Committed, |sql| {
        let key = [instance.into(), sequence.into(), Value::Int(now), Value::Int(now)];
        let is_new = sql.execute(BATCH, &key)? > 0;
        let mut totals = Vec::with_capacity(uses.len());
        for each in uses {
            totals.extend(total(sql, each, is_new)?);
        }
        Ok(totals)
    })
}

/// Adds a use, and returns the total; `None` for a question about a window without uses.
fn total(sql: &mut dyn Sql, of: &QuotaUse, is_new: bool) -> Result<Option<QuotaTotal>, SqlError> {
    const OPEN: &str = "SELECT start FROM sluicegate_quotas WHERE name = $1 AND start <= $2 AND until > $3 ORDER BY start LIMIT 1";
    const ADD: &str = "INSERT INTO sluicegate_quotas (name, start, until, total) VALUES ($1, $2, $3, $4) \
                       ON CONFLICT (name, start) DO UPDATE SET total = sluicegate_quotas.total + excluded.total";
    // A data plane knows more if the database was lost.
    const RAISE: &str =
        "UPDATE sluicegate_quotas SET total = $1 WHERE name = $2 AND start = $3 AND total < $4";
    const TOTAL: &str = "SELECT total FROM sluicegate_quotas WHERE name = $1 AND start = $2 LIMIT 1";
    let name = text(&of.name);
    let named = || Value::Text(name.clone());
    // Of windows that start with the first request, the earliest is open until its end.
    let mut start = int(of.window);
    if of.length > 0 {
        let open = sql.fetch(OPEN, &[named(), Value::Int(start), Value::Int(start)])?;
        if let Some(open) = open.first().and_then(|row| row.first()) {
            start = open.int()?;
        }
    }
    let is_question = of.count == 0 && of.known == 0;
    if is_new && !is_question {
        let length = if of.length > 0 { of.length } else { CALENDAR };
        let until = Value::Int(start.saturating_add(int(length)));
        sql.execute(ADD, &[named(), Value::Int(start), until, Value::Int(int(of.count))])?;
        if start == int(of.window) {
            let known = || Value::Int(int(of.known));
            sql.execute(RAISE, &[known(), named(), Value::Int(start), known()])?;
        }
    }
    let rows = sql.fetch(TOTAL, &[named(), Value::Int(start)])?;
    let total = rows.first().and_then(|row| row.first()).map(Value::int).transpose()?;
    let of = |total: i64| QuotaTotal {
        name: of.name.clone(),
        window: start.unsigned_abs(),
        count: total.unsigned_abs(),
    };
    Ok(total.or((!is_question).then_some(0)).map(of))
}

/// The total of a quota in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaWindow {
    /// The name of the quota.
    pub quota: String,
    /// The start of the window, in seconds since 1970.
    pub start: u64,
    /// The end of windows that start with the first request, in seconds since 1970. Windows of the calendar end earlier.
    pub until: u64,
    /// The uses.
    pub total: u64,
}

/// The totals of the quotas of a subscription, `namespace/name`, in windows that may not have ended. Later windows come last.
pub(crate) fn of(sql: &mut dyn Sql, subscription: &str, now: i64) -> Result<Vec<QuotaWindow>, SqlError> {
    const OF: &str = "SELECT name, start, until, total FROM sluicegate_quotas WHERE name LIKE $1 AND until > $2 \
                      ORDER BY start LIMIT 1000";
    let first = format!("{subscription}/");
    let rows = sql.fetch(OF, &[Value::Text(format!("{first}%")), Value::Int(now)])?;
    let mut windows = Vec::new();
    for row in rows {
        let [name, start, until, total] = &row[..] else { continue };
        let Some(rest) = name.text()?.strip_prefix(&first) else { continue };
        let quota = rest.split(' ').next().unwrap_or_default();
        windows.push(QuotaWindow {
            quota: quota.to_owned(),
            start: start.int()?.unsigned_abs(),
            until: until.int()?.unsigned_abs(),
            total: total.int()?.unsigned_abs(),
        });
    }
    Ok(windows)
}

/// Deletes the windows that ended.
pub(crate) fn delete(sql: &mut dyn Sql, now: i64) -> Result<u64, SqlError> {
    sql.execute("DELETE FROM sluicegate_quotas WHERE until < $1", &[Value::Int(now - 86_400)])
}

fn text(QuotaName { subscription, quota, terms }: &QuotaName) -> String {
    format!("{subscription}/{quota} {terms}")
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;
    use crate::schema::migrate;

    const HOUR: u64 = 3600;
    const NOW: u64 = 1_800_000_000;

    fn database() -> Box<dyn Sql> {
        let mut sql = Location::Memory.connect(std::time::Duration::from_secs(5)).unwrap();
        migrate(&mut *sql).unwrap();
        sql
    }

    fn used(window: u64, length: u64, count: u64, known: u64) -> QuotaUse {
        let name = QuotaName { subscription: "shop/a".into(), quota: "month".into(), terms: "x".into() };
        QuotaUse { name, window, length, count, known }
    }

    /// The window and the total after a use.
    fn counted(sql: &mut dyn Sql, key: (&str, u64), of: QuotaUse) -> (u64, u64) {
        let totals = count(sql, key, &[of], 0).unwrap();
        (totals[0].window, totals[0].count)
    }

    #[test]
    fn question_opens_no_window_and_finds_the_open_one() {
        let mut sql = database();
        let ask = |sql: &mut dyn Sql, sequence, window, length| {
            count(sql, ("new", sequence), &[used(window, length, 0, 0)], 0).unwrap()
        };
        assert_eq!(ask(&mut *sql, 1, NOW, HOUR), []);
        assert_eq!(counted(&mut *sql, ("a", 1), used(NOW + 60, HOUR, 2, 2)), (NOW + 60, 2));
        let [total] = &ask(&mut *sql, 2, NOW + 90, HOUR)[..] else { panic!("no total") };
        assert_eq!((total.window, total.count), (NOW + 60, 2));
        assert_eq!(ask(&mut *sql, 3, NOW, 0), [], "another window");
    }

    #[test]
    fn windows_of_a_subscription_are_found_and_no_others() {
        let mut sql = database();
        let mut other = used(NOW, HOUR, 7, 7);
        other.name.subscription = "shop/ab".into();
        let ended = used(NOW - 10 * HOUR, HOUR, 3, 3);
        let uses = [used(NOW, HOUR, 2, 2), other, ended];
        count(&mut *sql, ("a", 1), &uses, int(NOW)).unwrap();
        let window = QuotaWindow { quota: "month".into(), start: NOW, until: NOW + HOUR, total: 2 };
        assert_eq!(of(&mut *sql, "shop/a", int(NOW)).unwrap(), [window]);
        assert_eq!(of(&mut *sql, "shop/_", int(NOW)).unwrap(), []);
    }

    #[test]
    fn uses_of_all_data_planes_are_added_and_repeated_uses_count_once() {
        let mut sql = database();
        assert_eq!(counted(&mut *sql, ("a", 1), used(NOW, 0, 3, 3)), (NOW, 3));
        assert_eq!(counted(&mut *sql, ("b", 1), used(NOW, 0, 4, 4)), (NOW, 7));
        assert_eq!(counted(&mut *sql, ("b", 1), used(NOW, 0, 4, 4)), (NOW, 7), "again");
        assert_eq!(
            counted(&mut *sql, ("b", 2), used(NOW + HOUR, 0, 1, 1)),
            (NOW + HOUR, 1),
            "the next window"
        );
        assert_eq!(counted(&mut *sql, ("a", 2), used(NOW, 0, 1, 4)), (NOW, 8), "late");
    }

    #[test]
    fn data_planes_restore_the_totals_that_the_database_lost() {
        let mut sql = database();
        assert_eq!(counted(&mut *sql, ("a", 9), used(NOW, 0, 2, 100)), (NOW, 100));
        assert_eq!(counted(&mut *sql, ("b", 9), used(NOW, 0, 1, 99)), (NOW, 101));
    }

    #[test]
    fn first_request_of_all_data_planes_opens_the_window() {
        let mut sql = database();
        assert_eq!(counted(&mut *sql, ("a", 1), used(NOW, HOUR, 1, 1)), (NOW, 1));
        assert_eq!(counted(&mut *sql, ("b", 1), used(NOW + 10, HOUR, 1, 50)), (NOW, 2), "the window of a");
        assert_eq!(counted(&mut *sql, ("b", 2), used(NOW + HOUR, HOUR, 1, 1)), (NOW + HOUR, 1));
        assert_eq!(delete(&mut *sql, i64::try_from(NOW + 2 * 86_400).unwrap()).unwrap(), 2);
    }
}
