//! The store: a thread that writes batches and does the background work, and connections for queries.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use sluicegate_model::analytics::Batch;
use sluicegate_model::usage::{QuotaTotal, QuotaUse};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::background::{Retention, delete_names, mark, shrink, work};
use crate::location::Location;
use crate::packing::{PackingError, unpack};
use crate::query::{Answer, Query, QueryError};
use crate::quotas::{self, QuotaWindow};
use crate::rows::{Row, insert};
use crate::schema::{Level, migrate};
use crate::sql::{Isolation, Sql, SqlError, Value};

/// The batches that may wait for the thread. Further batches are refused, and sent again later.
const WAITING: usize = 64;
/// The connections for queries.
const READERS: usize = 2;
/// The timeout of a query.
const QUERY: Duration = Duration::from_secs(20);
/// The timeout of a statement of the writer.
const STATEMENT: Duration = Duration::from_secs(50);
/// The pause after a failed connect.
const PAUSE: Duration = Duration::from_secs(1);
/// The interval of background work if there is nothing to do.
const BACKGROUND: Duration = Duration::from_secs(5);
/// The minimum time between two log lines about a failure.
const COMPLAINTS: Duration = Duration::from_secs(60);
/// The maximum number of names that the writer remembers.
const NAMES: usize = 300_000;
/// The maximum size of a database in memory, in bytes.
const MEMORY: u64 = 64 << 20;

/// The options of a store.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// The place of the database. Default: in memory.
    pub location: Location,
    /// How long rows are kept.
    pub retention: Retention,
}

/// The result of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The batch is new.
    New,
    /// The batch was stored before, and did not count again.
    Before,
}

/// The reason why a batch is not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The bytes are no batch. They will never be stored.
    #[error("a batch cannot be decoded: {0}")]
    Batch(#[from] PackingError),
    /// Too many batches wait.
    #[error("too many batches wait for the database")]
    Busy,
    /// The database failed, or is unavailable.
    #[error("{0}")]
    Database(String),
}

impl StoreError {
    fn ended() -> Self {
        Self::Database("the thread of the store has ended".to_owned())
    }
}

impl From<SqlError> for StoreError {
    fn from(error: SqlError) -> Self {
        Self::Database(error.to_string())
    }
}

/// The numbers of a store.
#[derive(Clone, Debug, Default)]
pub struct StoreStatus {
    /// The stored batches.
    pub batches: u64,
    /// The requests of the stored batches.
    pub requests: u64,
    /// The batches that had been stored before.
    pub repeated: u64,
    /// The batches that could not be decoded.
    pub malformed: u64,
    /// The failures of the database.
    pub failures: u64,
    /// The rows that were deleted because a database in memory was too large.
    pub shrunk: u64,
}

/// A store of analytics.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
    places: Arc<Semaphore>,
}

#[derive(Debug)]
struct Shared {
    options: StoreOptions,
    readers: Vec<Connection>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    batches: AtomicU64,
    requests: AtomicU64,
    repeated: AtomicU64,
    malformed: AtomicU64,
    failures: AtomicU64,
    shrunk: AtomicU64,
}

/// A job of the thread.
struct Job {
    instance: Arc<str>,
    sequence: u64,
    work: Work,
    /// Held until the job is done.
    _place: OwnedSemaphorePermit,
}

enum Work {
    /// To store a batch.
    Batch(Bytes, oneshot::Sender<Result<Stored, StoreError>>),
    /// To count uses of quotas.
    Quotas(Vec<QuotaUse>, oneshot::Sender<Result<Vec<QuotaTotal>, StoreError>>),
}

impl Store {
    /// Starts the thread, which connects to the database. While the database is unavailable, the thread tries again.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(options: StoreOptions) -> io::Result<Self> {
        let (writer, readers) = match options.location {
            // There is one connection to a database in memory.
            Location::Memory => {
                let only = Connection::default();
                (only.clone(), vec![only])
            }
            _ => (Connection::default(), (0..READERS).map(|_| Connection::default()).collect()),
        };
        let shared = Arc::new(Shared { options, readers, counters: Counters::default() });
        let (jobs, receiver) = channel();
        let thread = std::thread::Builder::new().name("analytics-store".to_owned());
        let mut of_thread = Writer {
            shared: shared.clone(),
            connection: writer,
            names: Names::default(),
            complained: None,
            retry: Instant::now(),
        };
        thread.spawn(move || of_thread.run(&receiver))?;
        Ok(Self { shared, jobs, places: Arc::new(Semaphore::new(WAITING)) })
    }

    /// Stores a batch of an instance of a data plane, unless the batch with this number is stored.
    ///
    /// # Errors
    /// If the batch is malformed, or the database is unavailable.
    pub async fn store(&self, instance: &str, sequence: u64, body: Bytes) -> Result<Stored, StoreError> {
        let (reply, stored) = oneshot::channel();
        self.send(instance, sequence, Work::Batch(body, reply))?;
        stored.await.unwrap_or_else(|_| Err(StoreError::ended()))
    }

    /// Counts uses of quotas of an instance of a data plane, unless the uses with this number are counted. Returns the totals of all
    /// data planes.
    ///
    /// # Errors
    /// If the database is unavailable.
    pub async fn count_quotas(
        &self,
        instance: &str,
        sequence: u64,
        uses: Vec<QuotaUse>,
    ) -> Result<Vec<QuotaTotal>, StoreError> {
        let (reply, counted) = oneshot::channel();
        self.send(instance, sequence, Work::Quotas(uses, reply))?;
        counted.await.unwrap_or_else(|_| Err(StoreError::ended()))
    }

    /// The totals of the quotas of a subscription, `namespace/name`, in windows that may not have ended. Later windows come last.
    /// Blocks.
    ///
    /// # Errors
    /// If the database is unavailable.
    pub fn quotas_of(&self, subscription: &str) -> Result<Vec<QuotaWindow>, QueryError> {
        let windows = self.with_reader(|sql| {
            sql.set_deadline(Some(Instant::now() + QUERY))?;
            let windows = quotas::of(sql, subscription, now());
            sql.set_deadline(None)?;
            windows
        });
        windows.map_err(|error| QueryError::Database(error.to_string()))
    }

    fn send(&self, instance: &str, sequence: u64, work: Work) -> Result<(), StoreError> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| StoreError::Busy)?;
        let job = Job { instance: instance.into(), sequence, work, _place: place };
        self.jobs.send(job).map_err(|_| StoreError::ended())
    }

    /// Answers a query, such as `since=1h&by=api`. Blocks.
    ///
    /// # Errors
    /// If a parameter is invalid, or the database is unavailable.
    pub fn answer(&self, query: &str) -> Result<Answer, QueryError> {
        let now = now();
        let query = Query::parse(query, now)?;
        let retention = self.shared.options.retention;
        let answer = self.with_reader(|sql| {
            sql.set_deadline(Some(Instant::now() + QUERY))?;
            let answer = query.run(sql, retention, now);
            sql.set_deadline(None)?;
            answer
        });
        answer.map_err(|error| QueryError::Database(error.to_string()))
    }

    fn with_reader<T>(&self, work: impl FnOnce(&mut dyn Sql) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let Shared { readers, options, .. } = &*self.shared;
        let free = readers.iter().find_map(|reader| match reader.0.try_lock() {
            Ok(free) => Some(free),
            Err(TryLockError::Poisoned(free)) => Some(free.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        });
        let mut connection = free.unwrap_or_else(|| readers[0].lock());
        let result = connected(&mut connection, &options.location, QUERY).and_then(work);
        if result.is_err() && !matches!(options.location, Location::Memory) {
            // The connection may be lost.
            *connection = None;
        }
        result
    }

    /// The numbers for metrics.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { batches, requests, repeated, malformed, failures, shrunk } = &self.shared.counters;
        StoreStatus {
            batches: of(batches),
            requests: of(requests),
            repeated: of(repeated),
            malformed: of(malformed),
            failures: of(failures),
            shrunk: of(shrunk),
        }
    }
}

/// A connection that may be closed.
#[derive(Clone, Default)]
struct Connection(Arc<Mutex<Option<Box<dyn Sql>>>>);

impl Connection {
    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn Sql>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
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
            migrate(&mut *open)?;
            open
        }
    };
    Ok(&mut **connection.insert(open))
}

/// The thread that writes.
struct Writer {
    shared: Arc<Shared>,
    connection: Connection,
    names: Names,
    complained: Option<Instant>,
    /// The time of the next connect.
    retry: Instant,
}

impl Writer {
    fn run(&mut self, jobs: &Receiver<Job>) {
        let mut next_work = Instant::now();
        loop {
            match jobs.recv_timeout(next_work.saturating_duration_since(Instant::now())) {
                // The senders may have gone.
                Ok(Job { instance, sequence, work: Work::Batch(body, reply), _place }) => {
                    let _ = reply.send(self.batch((&instance, sequence), &body));
                }
                Ok(Job { instance, sequence, work: Work::Quotas(uses, reply), _place }) => {
                    let _ = reply.send(self.quotas((&instance, sequence), &uses));
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= next_work {
                let more = self.background();
                next_work = Instant::now() + if more { Duration::ZERO } else { BACKGROUND };
            }
        }
    }

    fn quotas(&mut self, key: (&str, u64), uses: &[QuotaUse]) -> Result<Vec<QuotaTotal>, StoreError> {
        self.is_due()?;
        let lock = self.connection.clone();
        let mut connection = lock.lock();
        let counted = connected(&mut connection, &self.shared.options.location, STATEMENT)
            .and_then(|sql| quotas::count(sql, key, uses, now()));
        drop(connection);
        Ok(counted.inspect_err(|error| self.failed(&error.to_string()))?)
    }

    /// Each failure delays the next connect, but not the jobs that come in the meantime.
    fn is_due(&self) -> Result<(), StoreError> {
        match Instant::now() < self.retry && self.connection.lock().is_none() {
            true => Err(StoreError::Database("the database is unavailable".to_owned())),
            false => Ok(()),
        }
    }

    fn batch(&mut self, (instance, sequence): (&str, u64), body: &[u8]) -> Result<Stored, StoreError> {
        self.is_due()?;
        let counters = &self.shared.counters;
        let batch = unpack(body).inspect_err(|error| {
            counters.malformed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%instance, "a batch of analytics is dropped: {error}");
        })?;
        let stored = self.store(instance, sequence, &batch);
        let counters = &self.shared.counters;
        match &stored {
            Ok(Stored::New) => {
                counters.batches.fetch_add(1, Ordering::Relaxed);
                counters.requests.fetch_add(batch.requests(), Ordering::Relaxed);
            }
            Ok(Stored::Before) => {
                counters.repeated.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                let text = error.to_string();
                self.failed(&text);
            }
        }
        stored
    }

    fn failed(&mut self, error: &str) {
        self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
        self.names = Names::default();
        if !matches!(self.shared.options.location, Location::Memory) {
            *self.connection.lock() = None;
        }
        self.retry = Instant::now() + PAUSE;
        if self.complained.is_none_or(|last| last.elapsed() >= COMPLAINTS) {
            self.complained = Some(Instant::now());
            tracing::warn!(
                database = %self.shared.options.location,
                "the database of analytics is unavailable: {error}; data planes keep their sums, and the store tries again \
                 every second"
            );
        }
    }

    fn store(&mut self, instance: &str, sequence: u64, batch: &Batch) -> Result<Stored, StoreError> {
        let lock = self.connection.clone();
        let mut connection = lock.lock();
        let Shared { options: StoreOptions { location, retention }, counters, .. } = &*self.shared.clone();
        let sql = connected(&mut connection, location, STATEMENT)?;
        let ids = self.names.ids(sql, &batch.names)?;
        let now = now();
        let stored = write(sql, (instance, sequence), batch, &ids, (*retention, now))?;
        while let Some(size) = sql.memory()?
            && size > MEMORY
        {
            let deleted = shrink(sql)?;
            counters.shrunk.fetch_add(deleted, Ordering::Relaxed);
            if deleted == 0 {
                break;
            }
        }
        if self.complained.take().is_some() {
            tracing::info!(database = %location, "the database of analytics is available again");
        }
        Ok(stored)
    }

    /// Does one piece of background work. Returns whether there may be more.
    fn background(&mut self) -> bool {
        let lock = self.connection.clone();
        let mut connection = lock.lock();
        if connection.is_none() && Instant::now() < self.retry {
            return false;
        }
        let shared = self.shared.clone();
        let StoreOptions { location, retention } = &shared.options;
        let now = now();
        let day_before = self.names.day;
        let worked = connected(&mut connection, location, STATEMENT).and_then(|sql| {
            let more = work(sql, *retention, now)?;
            if day_before != 0 && day_before != now / 86_400 {
                delete_names(sql, now / 86_400)?;
                quotas::delete(sql, now)?;
            }
            Ok(more)
        });
        drop(connection);
        match worked {
            Ok(more) => {
                if day_before != now / 86_400 {
                    self.names = Names { day: now / 86_400, ..Names::default() };
                }
                more
            }
            Err(error) => {
                self.failed(&error.to_string());
                false
            }
        }
    }
}

/// The ids of names that were used on a day.
#[derive(Debug, Default)]
struct Names {
    ids: HashMap<String, i64>,
    /// The number of the day since 1970.
    day: i64,
}

impl Names {
    /// The ids of names, which are added if they are new.
    fn ids(&mut self, sql: &mut dyn Sql, names: &[String]) -> Result<Vec<i64>, SqlError> {
        const ADD: &str = "INSERT INTO sluicegate_names (name, seen) VALUES ($1, $2) \
                           ON CONFLICT (name) DO UPDATE SET seen = excluded.seen RETURNING id";
        let today = now() / 86_400;
        if self.day != today || self.ids.len() > NAMES {
            self.ids.clear();
            self.day = today;
        }
        let mut new: Vec<_> =
            names.iter().filter(|name| !name.is_empty() && !self.ids.contains_key(*name)).collect();
        // All processes take the locks of names in the same order.
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() {
            let known = &mut self.ids;
            sql.transaction(Isolation::Committed, |sql| {
                for name in new {
                    let rows = sql.fetch(ADD, &[Value::Text(name.clone()), Value::Int(today)])?;
                    let id = rows.first().and_then(|row| row.first()).ok_or(SqlError::Type)?;
                    known.insert(name.clone(), id.int()?);
                }
                Ok::<_, SqlError>(())
            })?;
        }
        let id = |name: &String| match &**name {
            "" => 0,
            name => self.ids.get(name).copied().unwrap_or_default(),
        };
        Ok(names.iter().map(id).collect())
    }
}

/// Writes a batch, unless it is stored.
fn write(
    sql: &mut dyn Sql,
    key: (&str, u64),
    batch: &Batch,
    ids: &[i64],
    (retention, now): (Retention, i64),
) -> Result<Stored, SqlError> {
    // A data plane whose clock is wrong must not write rows that are never deleted.
    let time = i64::try_from(batch.minute.saturating_mul(60)).unwrap_or(i64::MAX).min(now + 86_400);
    let level = retention.level(time, now);
    sql.transaction(Isolation::Committed, |sql| write_rows(sql, key, (time, now), batch, ids, level))
}

/// Writes a batch at a time.
#[cfg(test)]
pub(crate) fn write_for_test(
    sql: &mut dyn Sql,
    key: (&str, u64),
    batch: &Batch,
    retention: Retention,
    now: i64,
) -> Result<Stored, SqlError> {
    let ids = Names::default().ids(sql, &batch.names)?;
    write(sql, key, batch, &ids, (retention, now))
}

fn write_rows(
    sql: &mut dyn Sql,
    (instance, sequence): (&str, u64),
    (time, now): (i64, i64),
    batch: &Batch,
    ids: &[i64],
    level: Level,
) -> Result<Stored, SqlError> {
    const BATCH: &str = "INSERT INTO sluicegate_batches (instance, sequence, minute, stored) VALUES ($1, $2, $3, $4) \
                         ON CONFLICT (instance, sequence) DO NOTHING";
    let is_first = sql
        .fetch(&format!("SELECT minute FROM sluicegate_batches WHERE minute = {time} LIMIT 1"), &[])?
        .is_empty();
    let key = [instance.into(), sequence.into(), Value::Int(time), Value::Int(now)];
    if sql.execute(BATCH, &key)? == 0 {
        return Ok(Stored::Before);
    }
    let start = level.start(time);
    let rows = batch.series.iter().map(|series| {
        let mut of = [0; 9];
        for (dimension, name) in of.iter_mut().zip(series.key.names()) {
            *dimension = ids.get(name as usize).copied().unwrap_or_default();
        }
        of[8] = series.key.status.into();
        Row { time: start, of, values: series.values.clone() }
    });
    let rows: Vec<_> = rows.collect();
    insert(sql, level, &rows)?;
    match level {
        Level::Minutes => {
            // The rows of several batches are summed up after the end of the minute.
            if !is_first {
                mark(sql, Level::Minutes, time)?;
            }
            mark(sql, Level::Hours, time)?;
        }
        Level::Hours => mark(sql, Level::Days, time)?,
        Level::Days => {}
    }
    Ok(Stored::New)
}

/// The time in seconds since 1970.
pub(crate) fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
