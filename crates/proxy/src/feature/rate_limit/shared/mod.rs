//! Limits that several data planes count together, through a Redis or Valkey server.
//!
//! No request waits for the server. Each process counts and decides alone. In each interval, a task beside the workers
//! sends the allowed calls to the server. The task receives the calls of the other data planes, which count from then on.
//! So the excess of a limit is at most the calls that the other data planes allow in an interval and a round trip. There
//! is one count for a process, not for each worker: the workers of a process share exact counts anyway, and the server
//! has fewer connections.
//!
//! A failure of the server has only one effect: the process learns no calls of other data planes. Each key on the server
//! expires when its value has no effect any more, so that no keys are left over. A key that returns after its eviction
//! here receives the others' count with the next interval.
//!
//! | module | purpose |
//! |---|---|
//! | `batch` | the commands with the counts of a limit, and their script |
//! | `quotas` | the uses of quotas, and their script |
//! | `connection` | the connection, and its errors |
//! | `reply` | replies of servers |

mod batch;
mod connection;
mod quotas;
pub(crate) mod reply;

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use sluicegate_model::ObjectId;
use sluicegate_model::feature::Limit;
use sluicegate_model::policy::Redis;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::buckets::Buckets;
use super::clock::{Clock, nanos};
use super::window::Pace;
use crate::feature::quota::Counter;
use batch::{Batch, Member, set_clock, write_probe};
use connection::{Connection, ServerError};
use quotas::{QuotaBatch, SharedQuotas};
use reply::Reply;

/// The time limit for connecting, TLS and authentication.
const OPENING: Duration = Duration::from_secs(2);

/// The pause after the first failure. The pause doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(50);

/// After this time without errors, a failure counts as new: it is logged, and the retry is immediate. A server that comes
/// and goes neither fills the log nor receives constant retries.
const STEADY: Duration = Duration::from_secs(10);

/// The longest pause between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The time without counts to send after which the gateway probes the server.
const PROBE: Duration = Duration::from_millis(500);

/// The limit of batches that are sent at once.
const BATCHES: usize = 8;

/// The limit of different errors that are logged until the server works again.
const TOLD_MAX: usize = 8;

/// Every server that shares limits.
#[derive(Debug, Default)]
pub(crate) struct Servers(Mutex<Vec<Weak<Server>>>);

/// A server, shared by all limits that name it.
pub(crate) struct Server {
    source: Arc<Redis>,
    clock: Arc<Clock>,
    members: Mutex<Vec<Member<Weak<Buckets>>>>,
    /// The next limit to send, so that every limit has its turn when there are too many counts.
    next: AtomicU64,
    is_up: AtomicBool,
    exchanged: AtomicU64,
    failed: AtomicU64,
    /// The quotas that are counted through the server.
    quotas: Mutex<SharedQuotas>,
    task: OnceLock<AbortHandle>,
}

/// The state of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerState {
    pub(crate) is_up: bool,
    pub(crate) exchanged: u64,
    pub(crate) failed: u64,
}

impl Servers {
    /// The server of this configuration. The first call starts the exchange with the server.
    pub(super) fn at(&self, source: &Arc<Redis>) -> Arc<Server> {
        let mut servers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|server| server.strong_count() > 0);
        let is_it = |server: &Arc<Server>| *server.source == **source;
        if let Some(known) = servers.iter().filter_map(Weak::upgrade).find(is_it) {
            return known;
        }
        let server = Arc::new(Server {
            source: source.clone(),
            clock: Arc::new(Clock::of_server()),
            members: Mutex::default(),
            next: AtomicU64::new(0),
            is_up: AtomicBool::new(false),
            exchanged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            quotas: Mutex::default(),
            task: OnceLock::new(),
        });
        servers.push(Arc::downgrade(&server));
        // A table that is compiled without a runtime serves no requests.
        if let Ok(runtime) = Handle::try_current() {
            let task = runtime.spawn(follow(Arc::downgrade(&server), source.clone()));
            // The task cell was created above and is empty.
            let _ = server.task.set(task.abort_handle());
        }
        server
    }
}

impl Server {
    /// The counts of a limit, shared with all data planes that have the same limit of the same policy.
    pub(super) fn buckets(&self, id: &ObjectId, limit: &Limit, pace: &Pace) -> Arc<Buckets> {
        let identity = identity(limit);
        let prefix = &self.source.prefix;
        let name = format!("{prefix}:{}/{}/{}:{identity:016x}", id.namespace, id.name, limit.name);
        // The hash is the same for all processes that know the password. So no other process can tell whose a key is.
        let mut hasher = DefaultHasher::new();
        hasher.write(self.source.password.as_deref().unwrap_or_default());
        hasher.write(name.as_bytes());
        let buckets = Arc::new(Buckets::shared(hasher, self.clock.clone()));
        let member = Member { name: name.into(), pace: pace.clone(), buckets: Arc::downgrade(&buckets) };
        let mut members = self.members();
        // While the server is unreachable, no other code removes dropped limits.
        members.retain(|member| member.buckets.strong_count() > 0);
        members.push(member);
        drop(members);
        buckets
    }

    pub(crate) fn state(&self) -> ServerState {
        ServerState {
            is_up: self.is_up.load(Ordering::Relaxed),
            exchanged: self.exchanged.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// The next batches to send, and whether these are all.
    fn gather(&self) -> (Vec<Batch>, Option<Arc<QuotaBatch>>, bool) {
        let (quotas, are_all) = self.quotas().take(&self.source.prefix);
        let (batches, is_all) = self.gather_limits();
        (batches, quotas, is_all && are_all)
    }

    /// Counts a quota through the server.
    pub(crate) fn add_quota(&self, counter: &Arc<Counter>) {
        self.quotas().add(counter);
    }

    /// What identifies the counts at the server.
    pub(crate) fn place(&self) -> String {
        let Redis { address, prefix, database, .. } = &*self.source;
        format!("{}/{}/{prefix}", &**address, database.get())
    }

    fn quotas(&self) -> std::sync::MutexGuard<'_, SharedQuotas> {
        self.quotas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gather_limits(&self) -> (Vec<Batch>, bool) {
        let mut members = self.members();
        members.retain(|member| member.buckets.strong_count() > 0);
        let (mut batches, now) = (Vec::new(), Instant::now());
        let first = usize::try_from(self.next.load(Ordering::Relaxed)).unwrap_or(0);
        for n in 0..members.len() {
            let index = (first + n) % members.len();
            let Member { name, pace, buckets } = &members[index];
            let Some(buckets) = buckets.upgrade() else { continue };
            let member = Member { name: name.clone(), pace: pace.clone(), buckets };
            if let Some((batch, is_all)) = Batch::take(member, now) {
                batches.push(batch);
                if !is_all || batches.len() == BATCHES {
                    self.next.store(index as u64 + 1, Ordering::Relaxed);
                    return (batches, false);
                }
            }
        }
        (batches, true)
    }

    fn members(&self) -> std::sync::MutexGuard<'_, Vec<Member<Weak<Buckets>>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.source.address).finish_non_exhaustive()
    }
}

/// The properties that identify a limit. A change of them starts new counts.
fn identity(limit: &Limit) -> u64 {
    let Limit { name: _, requests, per, burst: _, algorithm: _, key, groups, dry_run: _, status_code: _ } =
        limit;
    let window = limit.window();
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{requests} {} {window:?} {key:?} {groups:?}", nanos(per.get())).as_bytes());
    hasher.finish()
}

/// Exchanges counts with a server until no limit uses the server.
async fn follow(server: Weak<Server>, source: Arc<Redis>) {
    let (mut told, mut retry): (Vec<String>, _) = (Vec::new(), RETRY_FIRST);
    let mut is_news = true;
    loop {
        let mut begun = None;
        let Err(error) = share(&server, &source, &mut begun, &mut is_news).await else { return };
        let Some(server) = server.upgrade() else { return };
        server.is_up.store(false, Ordering::Relaxed);
        server.failed.fetch_add(1, Ordering::Relaxed);
        if begun.is_some_and(|begun| begun.elapsed() >= STEADY) {
            (told, retry) = (Vec::new(), RETRY_FIRST);
        }
        let error = error.to_string();
        if told.len() < TOLD_MAX && !told.contains(&error) {
            tracing::warn!(
                address = &*source.address,
                error,
                "cannot share limits through the server; each data plane counts by itself; trying again"
            );
            told.push(error);
            is_news = true;
        }
        drop(server);
        // Jitter: data planes that lost the server together do not return together.
        sleep(retry.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// Exchanges counts with a server until no limit uses the server, or until an error. `begun` is the time since which the
/// server has worked, and `is_news` whether to log that the server works.
async fn share(
    server: &Weak<Server>,
    source: &Redis,
    begun: &mut Option<Instant>,
    is_news: &mut bool,
) -> Result<(), ServerError> {
    let opening = timeout(OPENING, Connection::open(source)).await;
    let mut connection = opening.map_err(|_| ServerError::Timeout(OPENING))??;
    let mut ticks = interval(source.interval.get());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut probed: Option<Instant> = None;
    let (mut is_all, mut commands) = (true, Vec::new());
    loop {
        if is_all {
            ticks.tick().await;
        }
        let Some(server) = server.upgrade() else { return Ok(()) };
        let (batches, quotas);
        // Counts are sent only once the server is known to accept them.
        (batches, quotas, is_all) = if begun.is_some() { server.gather() } else { (Vec::new(), None, true) };
        if batches.is_empty() && quotas.is_none() && probed.is_some_and(|probed| probed.elapsed() < PROBE) {
            continue;
        }
        commands.clear();
        if batches.is_empty() && quotas.is_none() {
            write_probe(&source.prefix, &mut commands);
        }
        batches.iter().for_each(|batch| batch.write(&mut commands));
        quotas.iter().for_each(|quotas| quotas.write(&mut commands));
        let exchange = exchange(&mut connection, &commands, (&batches, quotas.as_deref()), &server.clock);
        // After an abort, the process cannot know whether the server counted the calls. The calls of limits are not sent again: a
        // missing count is better than a double count. The uses of quotas are sent again with the same number.
        timeout(source.timeout.get(), exchange)
            .await
            .map_err(|_| ServerError::Timeout(source.timeout.get()))??;
        probed = Some(Instant::now());
        if quotas.is_some() {
            server.quotas().answered();
        }
        server.exchanged.fetch_add(1, Ordering::Relaxed);
        if begun.is_none() {
            *begun = Some(Instant::now());
            server.is_up.store(true, Ordering::Relaxed);
            if std::mem::take(is_news) {
                tracing::info!(address = &*source.address, "limits are shared through the server");
            }
        }
    }
}

/// Sends the counts to the server, and applies its answers.
async fn exchange(
    connection: &mut Connection,
    commands: &[u8],
    (batches, quotas): (&[Batch], Option<&QuotaBatch>),
    clock: &Clock,
) -> Result<(), ServerError> {
    let asked = Instant::now();
    connection.send(commands).await?;
    let mut numbers = async || match connection.receive().await? {
        Reply::Numbers(numbers) => Ok(numbers),
        _ => Err(ServerError::Unexpected),
    };
    if batches.is_empty() && quotas.is_none() {
        set_clock(&numbers().await?, clock, asked)?;
    }
    for batch in batches {
        batch.read(&numbers().await?, clock, asked)?;
    }
    if let Some(quotas) = quotas {
        quotas.read(&numbers().await?)?;
    }
    if connection.is_at_rest() { Ok(()) } else { Err(ServerError::Unexpected) }
}
