//! The audit trail: who changed which object when.
//!
//! Inputs: the reports of a source ([`Report`]), and a database. Output: entries that are never changed, each with the hash of the
//! entry before. A thread compares each reported version with the last recorded version in the database, so that a change is recorded
//! once: after a restart, and by several processes with one database. Reports wait in memory of bounded size while the database is
//! unavailable.
//!
//! | module | contents |
//! |---|---|
//! | [`tables`] | the tables |
//! | [`mod@write`] | from reports to entries |
//! | [`difference`] | the changed fields between two versions |
//! | [`meaning`] | a change in the words of its field |
//! | [`entry`] | the line of an entry, and the check of the chain |
//! | [`query`] | queries and their answers |

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sluicegate_model::audit::Report;

use crate::location::Location;
use crate::query::QueryError;
use crate::sql::{Isolation, Sql, SqlError};

mod difference;
pub mod entry;
mod meaning;
pub mod query;
mod tables;
#[cfg(test)]
mod tests;
mod write;

pub use entry::{Chain, ChainError, TRAIL, Verified};
pub use query::AuditAnswer;

use write::{Rules, Writer};

/// The maximum number of reports that wait for the database.
const WAITING: usize = 10_000;
/// The maximum size of the reports that wait for the database, in bytes.
const WAITING_BYTES: usize = 16 << 20;
/// The reports in one transaction.
const BATCH: usize = 200;
/// The pause after a failure of the database.
const PAUSE: Duration = Duration::from_secs(1);
/// The timeout of a statement.
const STATEMENT: Duration = Duration::from_secs(50);
/// The timeout of a query.
const QUERY: Duration = Duration::from_secs(20);
/// The interval of background work.
const BACKGROUND: Duration = Duration::from_secs(60);
/// The minimum time between two log lines about a failure.
const COMPLAINTS: Duration = Duration::from_secs(60);
/// A report that fails this many times alone, while the database is available, is dropped.
const ATTEMPTS: u32 = 10;

/// The options of an audit trail.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// The place of the database.
    pub location: Location,
    /// The days for which entries are kept; `None` for ever.
    pub keep_days: Option<u32>,
    /// The source of the objects. Objects of different scopes are different objects.
    pub scope: String,
    /// The kinds of which an object that a source does not report may still exist.
    pub may_be_absent: &'static [&'static str],
    /// The time for which a change waits, until requests that other processes received are in the database.
    pub delay: Duration,
}

/// The numbers of an audit trail.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditStatus {
    /// The entries that this process wrote.
    pub written: u64,
    /// The reports that were dropped.
    pub dropped: u64,
    /// The failures of the database.
    pub failures: u64,
    /// The reports that wait.
    pub waiting: usize,
}

/// An audit trail.
#[derive(Debug)]
pub struct Audit {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: AuditOptions,
    queue: Mutex<Queue>,
    wake: Condvar,
    reader: Connection,
    written: AtomicU64,
    dropped: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// The number of reports that the thread writes now, which are not in the queue.
    writing: usize,
    /// Whether no report waits longer than necessary, because the process ends.
    hurries: bool,
}

#[derive(Debug)]
struct Waiting {
    report: Report,
    bytes: usize,
    due: Instant,
}

/// A connection that may be closed.
#[derive(Default)]
struct Connection(Mutex<Option<Box<dyn Sql>>>);

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

impl Audit {
    /// Starts the thread, which connects to the database. While the database is unavailable, the thread tries again.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(options: AuditOptions) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            options,
            queue: Mutex::default(),
            wake: Condvar::new(),
            reader: Connection::default(),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        });
        let mut thread = Thread { shared: shared.clone(), connection: None, complained: None, attempts: 0 };
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || thread.run())?;
        Ok(Self { shared })
    }

    /// Takes a report. If too many reports wait, the oldest is dropped. The next entry of its object then has the changes of both.
    pub fn record(&self, report: Report) {
        let now = Instant::now();
        let due = match &report {
            Report::Request(_) => now,
            Report::Start(_) | Report::Change(_) => now + self.shared.options.delay,
        };
        let bytes = size(&report);
        let mut queue = self.shared.queue();
        queue.bytes += bytes;
        match &report {
            // A version must find its request.
            Report::Request(_) => queue.waiting.push_front(Waiting { report, bytes, due }),
            Report::Start(_) | Report::Change(_) => queue.waiting.push_back(Waiting { report, bytes, due }),
        }
        let mut dropped = 0;
        while queue.waiting.len() > WAITING || queue.bytes > WAITING_BYTES && queue.waiting.len() > 1 {
            queue.drop_oldest();
            dropped += 1;
        }
        drop(queue);
        self.shared.dropped.fetch_add(dropped, Ordering::Relaxed);
        self.shared.wake.notify_one();
    }

    /// Waits until all reports are written, but not longer than `limit`. Returns the number of reports that are not written. Blocks.
    #[must_use]
    pub fn finish(&self, limit: Duration) -> usize {
        let end = Instant::now() + limit;
        let mut queue = self.shared.queue();
        queue.hurries = true;
        self.shared.wake.notify_all();
        while queue.waiting.len() + queue.writing > 0 && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now()).min(Duration::from_millis(20));
            queue = self.shared.wake.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        queue.waiting.len() + queue.writing
    }

    /// Answers a query, such as `since=1d&kind=Plan`. Blocks.
    ///
    /// # Errors
    /// If a parameter is invalid, or the database is unavailable.
    pub fn answer(&self, query: &str) -> Result<AuditAnswer, QueryError> {
        let query = query::Query::parse(query, now() / 1000)?;
        self.shared.read(|sql| query.run(sql))
    }

    /// The number and the hash of the last entry, as JSON. Blocks.
    ///
    /// # Errors
    /// If the database is unavailable.
    pub fn head(&self) -> Result<String, QueryError> {
        let head = self.shared.read(tables::head)?;
        Ok(serde_json::json!({"number": head.number, "hash": head.hash}).to_string())
    }

    /// The numbers for metrics.
    #[must_use]
    pub fn status(&self) -> AuditStatus {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Shared { written, dropped, failures, .. } = &*self.shared;
        let waiting = self.shared.queue().waiting.len();
        AuditStatus { written: of(written), dropped: of(dropped), failures: of(failures), waiting }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, work: impl FnOnce(&mut dyn Sql) -> Result<T, SqlError>) -> Result<T, QueryError> {
        let mut connection = self.reader.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = connected(&mut connection, &self.options.location, QUERY).and_then(|sql| {
            sql.set_deadline(Some(Instant::now() + QUERY))?;
            let result = work(sql);
            sql.set_deadline(None)?;
            result
        });
        if result.is_err() {
            // The connection may be lost.
            *connection = None;
        }
        result.map_err(|error| QueryError::Database(error.to_string()))
    }
}

impl Queue {
    /// Drops the oldest report of a change, or else of a request.
    fn drop_oldest(&mut self) {
        let is_change = |waiting: &Waiting| matches!(waiting.report, Report::Change(_));
        let place = self.waiting.iter().position(is_change).unwrap_or(self.waiting.len() - 1);
        if let Some(dropped) = self.waiting.remove(place) {
            self.bytes -= dropped.bytes;
        }
    }

    /// Takes the next due reports, or the time of the next.
    fn take_due(&mut self) -> Result<Vec<Waiting>, Option<Instant>> {
        let now = Instant::now();
        let hurries = self.hurries;
        let due = self.waiting.iter().take(BATCH).take_while(|waiting| hurries || waiting.due <= now).count();
        if due == 0 {
            return Err(self.waiting.front().map(|next| next.due));
        }
        let batch: Vec<_> = self.waiting.drain(..due).collect();
        self.bytes -= batch.iter().map(|waiting| waiting.bytes).sum::<usize>();
        self.writing = due;
        Ok(batch)
    }

    /// Puts reports back that could not be written.
    fn put_back(&mut self, batch: Vec<Waiting>) {
        self.bytes += batch.iter().map(|waiting| waiting.bytes).sum::<usize>();
        for waiting in batch.into_iter().rev() {
            self.waiting.push_front(waiting);
        }
    }
}

/// The thread that writes.
struct Thread {
    shared: Arc<Shared>,
    connection: Option<Box<dyn Sql>>,
    complained: Option<Instant>,
    /// The failures of the first report alone.
    attempts: u32,
}

impl Thread {
    /// Runs for ever: the process has one audit trail.
    fn run(&mut self) {
        let mut next_work = Instant::now();
        loop {
            match self.wait(next_work) {
                Some(batch) => self.write(batch),
                None => {
                    self.background();
                    next_work = Instant::now() + BACKGROUND;
                }
            }
        }
    }

    /// The next reports; `None` if background work is due first.
    fn wait(&self, next_work: Instant) -> Option<Vec<Waiting>> {
        let mut queue = self.shared.queue();
        loop {
            let next = match queue.take_due() {
                Ok(batch) => return Some(batch),
                Err(next) => next,
            };
            let now = Instant::now();
            if now >= next_work {
                return None;
            }
            let until = next.unwrap_or(next_work).min(next_work);
            let left = until.saturating_duration_since(now);
            let woken = self.shared.wake.wait_timeout(queue, left);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn write(&mut self, mut batch: Vec<Waiting>) {
        if self.attempts > 0 && batch.len() > 1 {
            // The first report may be the cause of the failure.
            let rest = batch.split_off(1);
            self.shared.queue().put_back(rest);
        }
        self.shared.queue().writing = batch.len();
        let rules = self.rules();
        let result = self.transaction(|sql| {
            let mut writer = Writer::new(sql, &rules, now())?;
            for waiting in &batch {
                writer.take(&waiting.report)?;
            }
            Ok(writer.written)
        });
        match result {
            Ok(written) => {
                self.attempts = 0;
                self.shared.written.fetch_add(written, Ordering::Relaxed);
                self.shared.queue().writing = 0;
                if self.complained.take().is_some() {
                    tracing::info!(database = %self.shared.options.location, "the database of the audit trail is available again");
                }
                self.shared.wake.notify_all();
            }
            Err((error, is_connected)) => {
                self.attempts += u32::from(is_connected);
                if self.attempts >= ATTEMPTS && batch.len() == 1 {
                    tracing::error!(
                        "the audit trail drops a report that the database rejects again and again: {error}"
                    );
                    self.attempts = 0;
                    self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                } else {
                    self.shared.queue().put_back(batch);
                }
                self.shared.queue().writing = 0;
                self.failed(&error);
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn rules(&self) -> Rules {
        let AuditOptions { scope, may_be_absent, .. } = &self.shared.options;
        Rules { scope: scope.clone(), may_be_absent }
    }

    fn background(&mut self) {
        let (rules, keep_days) = (self.rules(), self.shared.options.keep_days);
        let worked = self.transaction(|sql| {
            let mut writer = Writer::new(sql, &rules, now())?;
            writer.tidy()?;
            if let Some(days) = keep_days {
                writer.prune(days)?;
            }
            Ok(writer.written)
        });
        match worked {
            Ok(written) => {
                self.shared.written.fetch_add(written, Ordering::Relaxed);
            }
            Err((error, _)) => self.failed(&error),
        }
    }

    /// Works in a transaction. The error tells whether there was a connection.
    fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Sql) -> Result<T, SqlError>,
    ) -> Result<T, (String, bool)> {
        let location = self.shared.options.location.clone();
        let sql = connected(&mut self.connection, &location, STATEMENT)
            .map_err(|error| (error.to_string(), false))?;
        let worked = sql.transaction(Isolation::Committed, |sql| work(sql));
        worked.map_err(|error| {
            self.connection = None;
            (error.to_string(), true)
        })
    }

    fn failed(&mut self, error: &str) {
        self.shared.failures.fetch_add(1, Ordering::Relaxed);
        if self.complained.is_none_or(|before| before.elapsed() > COMPLAINTS) {
            self.complained = Some(Instant::now());
            tracing::warn!(
                database = %self.shared.options.location,
                "the database of the audit trail is unavailable: {error}; changes wait in memory, and the process tries again every second"
            );
        }
    }
}

/// The connection, which is opened if it is closed.
fn connected<'c>(
    connection: &'c mut Option<Box<dyn Sql>>,
    location: &Location,
    statement: Duration,
) -> Result<&'c mut dyn Sql, SqlError> {
    let open = match connection.take() {
        Some(open) => open,
        None => {
            let mut open = location.connect(statement)?;
            tables::migrate(&mut *open)?;
            open
        }
    };
    Ok(&mut **connection.insert(open))
}

/// About the memory of a report. The source itself keeps the versions of a start.
fn size(report: &Report) -> usize {
    512 + match report {
        Report::Start(_) => 0,
        Report::Change(observed) => observed.version.as_ref().map_or(0, |version| version.content.len()),
        Report::Request(requested) => requested.groups.iter().map(|group| group.len() + 16).sum(),
    }
}

/// The time in milliseconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
