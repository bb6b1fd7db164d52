//! Limits that several data planes count together, through a server of Redis or Valkey.
//!
//! No request waits for it. Each process counts and decides alone, as if there were no others; a task beside the workers tells
//! the server every interval what was let in, and learns what the others have let in, which counts from then on. So a limit is
//! overshot at most by what comes to the others within an interval and a round trip. One count for a process, and not one for
//! each worker: the workers of a process are exact among each other anyway, and the server has fewer to talk to.
//!
//! Whatever happens to the server, the only thing that changes is that nothing is learnt from others. A key is told with a time
//! at which its value means nothing any more, so that nothing is left over in the server. A key that comes again after it was
//! pushed out here learns the others' count with the next interval.
//!
//! | module | what |
//! |---|---|
//! | `batch` | what is told of a limit, by which script |
//! | `connection` | the connection, and what can be wrong with it |
//! | `reply` | what servers answer |

mod batch;
mod connection;
pub(crate) mod reply;

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use sluicegate_model::RouteId;
use sluicegate_model::policy::{self, Redis};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::buckets::Buckets;
use super::clock::{Clock, nanos};
use super::window::Pace;
use batch::{Batch, Member, set_clock, write_probe};
use connection::{Connection, ServerError};
use reply::Reply;

/// For connecting, encrypting and logging in.
const OPENING: Duration = Duration::from_secs(2);

/// The time after the first failure; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(50);

/// How long it has to go well until a failure is a new one, that is told and tried again at once: a server that comes and goes
/// neither fills the log nor is asked all the time.
const STEADY: Duration = Duration::from_secs(10);

/// The time between two attempts, at most.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// How long nothing is told until it is tried whether the server is there.
const PROBE: Duration = Duration::from_millis(500);

/// Batches that are told at once.
const BATCHES: usize = 8;

/// How many different things that are wrong are told until all is well again.
const TOLD_MAX: usize = 8;

/// Every server through which limits are shared.
#[derive(Debug, Default)]
pub(crate) struct Servers(Mutex<Vec<Weak<Server>>>);

/// A server, which all limits that name it share.
pub(crate) struct Server {
    source: Arc<Redis>,
    clock: Arc<Clock>,
    members: Mutex<Vec<Member<Weak<Buckets>>>>,
    /// Where to go on, so that every limit has its turn when there is too much to tell.
    next: AtomicU64,
    is_up: AtomicBool,
    exchanged: AtomicU64,
    failed: AtomicU64,
    task: OnceLock<AbortHandle>,
}

/// How it stands with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerState {
    pub(crate) is_up: bool,
    pub(crate) exchanged: u64,
    pub(crate) failed: u64,
}

impl Servers {
    /// A server. Talking to it begins with the first who names it.
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
            task: OnceLock::new(),
        });
        servers.push(Arc::downgrade(&server));
        // A table that is compiled without a runtime is not served.
        if let Ok(runtime) = Handle::try_current() {
            let task = runtime.spawn(follow(Arc::downgrade(&server), source.clone()));
            // It was made just now.
            let _ = server.task.set(task.abort_handle());
        }
        server
    }
}

impl Server {
    /// What a limit is counted in, together with those who have the same limit of the same policy.
    pub(super) fn buckets(&self, id: &RouteId, limit: &policy::Limit, pace: &Pace) -> Arc<Buckets> {
        let identity = identity(limit);
        let prefix = &self.source.prefix;
        let name = format!("{prefix}:{}/{}/{}:{identity:016x}", id.namespace, id.name, limit.name);
        // The same for all who know the password, so that nobody else can tell whose a key is.
        let mut hasher = DefaultHasher::new();
        hasher.write(self.source.password.as_deref().unwrap_or_default());
        hasher.write(name.as_bytes());
        let buckets = Arc::new(Buckets::shared(hasher, self.clock.clone()));
        let member = Member { name: name.into(), pace: pace.clone(), buckets: Arc::downgrade(&buckets) };
        let mut members = self.members();
        // While the server is away nobody else takes out what is gone.
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

    /// What is to be told next, and whether that is all.
    fn gather(&self) -> (Vec<Batch>, bool) {
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

/// What makes a limit another one than it was.
fn identity(limit: &policy::Limit) -> u64 {
    let policy::Limit { name: _, requests, per, window, key, groups, dry_run: _ } = limit;
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{requests} {} {window:?} {key:?} {groups:?}", nanos(*per)).as_bytes());
    hasher.finish()
}

/// Talks to a server until nobody needs it.
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
        // Data planes that lost it at once do not come back at once.
        sleep(retry.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        retry = (retry * 2).min(RETRY_MAX);
    }
}

/// Talks to a server until nobody needs it, or something is wrong. `begun` is since when it has been of use, and `is_news` whether
/// that is to be told.
async fn share(
    server: &Weak<Server>,
    source: &Redis,
    begun: &mut Option<Instant>,
    is_news: &mut bool,
) -> Result<(), ServerError> {
    let opening = timeout(OPENING, Connection::open(source)).await;
    let mut connection = opening.map_err(|_| ServerError::Timeout(OPENING))??;
    let mut ticks = interval(source.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut probed: Option<Instant> = None;
    let (mut is_all, mut commands) = (true, Vec::new());
    loop {
        if is_all {
            ticks.tick().await;
        }
        let Some(server) = server.upgrade() else { return Ok(()) };
        let batches;
        // What was let in is not told before it is known that the server takes it.
        (batches, is_all) = if begun.is_some() { server.gather() } else { (Vec::new(), true) };
        if batches.is_empty() && probed.is_some_and(|probed| probed.elapsed() < PROBE) {
            continue;
        }
        commands.clear();
        if batches.is_empty() {
            write_probe(&source.prefix, &mut commands);
        }
        batches.iter().for_each(|batch| batch.write(&mut commands));
        let exchange = exchange(&mut connection, &commands, &batches, &server.clock);
        // If it breaks off nobody knows whether it was counted there. It is not told again: the others may rather miss it than
        // count it twice.
        timeout(source.timeout, exchange).await.map_err(|_| ServerError::Timeout(source.timeout))??;
        probed = Some(Instant::now());
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

/// Tells a server what was let in, and takes over what it answers.
async fn exchange(
    connection: &mut Connection,
    commands: &[u8],
    batches: &[Batch],
    clock: &Clock,
) -> Result<(), ServerError> {
    let asked = Instant::now();
    connection.send(commands).await?;
    let mut numbers = async || match connection.receive().await? {
        Reply::Numbers(numbers) => Ok(numbers),
        _ => Err(ServerError::Unexpected),
    };
    if batches.is_empty() {
        set_clock(&numbers().await?, clock, asked)?;
    }
    for batch in batches {
        batch.read(&numbers().await?, clock, asked)?;
    }
    if connection.is_at_rest() { Ok(()) } else { Err(ServerError::Unexpected) }
}
