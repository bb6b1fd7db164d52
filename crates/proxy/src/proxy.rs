//! Starting, changing and stopping a data plane.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sluicegate_model::Change;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::counters::Counters;
use crate::listener::Sockets;
use crate::options::{Options, StartError};
use crate::publish::Publisher;
use crate::record::Sinks;
use crate::record::access_log::{AccessLog, WriterThread};
use crate::record::analytics::Collector;
use crate::record::refusals::Refusals;
use crate::record::trace::Exporter;
use crate::registry::{OwnListeners, Registry};
use crate::rule::Table;
use crate::runtime::{self, Mailbox, Start};
use crate::worker::Stop;

/// A running data plane.
pub struct Proxy {
    addresses: Vec<SocketAddr>,
    registry: Arc<Registry>,
    mailboxes: Arc<[Mailbox]>,
    publisher: Mutex<Publisher>,
    threads: Mutex<Vec<JoinHandle<io::Result<()>>>>,
    /// The thread that writes the access log. It ends when no worker is left.
    writer: Mutex<Option<WriterThread>>,
    /// The thread of analytics. It ends when no worker is left.
    collector: Mutex<Option<JoinHandle<()>>>,
    grace_over: Notify,
}

/// How a data plane shuts down (Z10). Responses announce `Connection: close` from the first moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long the proxy still accepts connections, so that load balancers have time to react. Default 5 s.
    pub grace: Duration,
    /// How long idle connections stay open after the grace: their clients may be about to send a request, and then learn
    /// that the connection ends. Default 5 s.
    pub idle: Duration,
    /// How long requests in flight may continue after the grace. Default 30 s.
    pub timeout: Duration,
}

impl Drain {
    /// A shutdown without waiting.
    pub const AT_ONCE: Self = Self { grace: Duration::ZERO, idle: Duration::ZERO, timeout: Duration::ZERO };
}

impl Default for Drain {
    fn default() -> Self {
        Self { grace: Duration::from_secs(5), idle: Duration::from_secs(5), timeout: Duration::from_secs(30) }
    }
}

impl Proxy {
    /// Listens, and starts the workers. The workers accept connections once they have a configuration.
    ///
    /// # Errors
    /// If the proxy cannot listen at an address, or cannot start a thread.
    pub fn start(options: Options) -> Result<Self, StartError> {
        Self::start_with(options, |start| {
            let thread = std::thread::Builder::new().name(format!("worker-{}", start.id));
            thread.spawn(move || runtime::run(start)).map(Some).map_err(StartError::Worker)
        })
    }

    /// Starts with workers that `start_worker` runs, in a thread of their own or not.
    pub(crate) fn start_with(
        options: Options,
        mut start_worker: impl FnMut(Start) -> Result<Option<JoinHandle<io::Result<()>>>, StartError>,
    ) -> Result<Self, StartError> {
        let workers = options.workers.max(1);
        let lost = options.access_log.as_ref().map(AccessLog::lost).cloned();
        let refusals = Arc::new(Refusals::new(options.refused_requests, workers));
        let counters = Counters::new(workers, lost.unwrap_or_default());
        let registry = Arc::new(Registry::new(counters, refusals.clone()));
        let mailboxes: Arc<[Mailbox]> = (0..workers).map(|_| Mailbox::new()).collect();
        let (sockets, listeners) = Sockets::start(&options, workers)?;
        let addresses = sockets.fixed();
        let (http, https) = addresses.split_at(options.http.len().min(addresses.len()));
        registry.set_own_listeners(OwnListeners { http: http.into(), https: https.into() });
        let table = Arc::<Table>::default();
        let (exporter, spans) = Exporter::new(registry.counters().spans().clone());
        let collector = options.analytics.as_ref().map(|analytics| Collector::start(analytics, workers));
        let collector = collector.transpose().map_err(StartError::Analytics)?;
        let mut threads = Vec::new();
        for (id, listeners) in listeners.into_iter().enumerate() {
            let start = Start {
                id,
                counters: registry.counters().clone(),
                mailboxes: mailboxes.clone(),
                listeners,
                table: table.clone(),
                sinks: Sinks::new(
                    options.access_log.as_ref().map(AccessLog::buffer),
                    collector.as_ref().map(Collector::buffer),
                    refusals.ring(id),
                    spans.buffer(),
                ),
            };
            threads.extend(start_worker(start)?);
        }
        Ok(Self {
            addresses,
            publisher: Mutex::new(Publisher::new(registry.clone(), mailboxes.clone(), sockets, exporter)),
            registry,
            mailboxes,
            threads: Mutex::new(threads),
            writer: Mutex::new(options.access_log.map(AccessLog::into_writer)),
            collector: Mutex::new(collector.map(Collector::into_thread)),
            grace_over: Notify::new(),
        })
    }

    /// The addresses of the listeners, in the order of [`Options::http`] and then [`Options::https`].
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Every listening socket, for a process that takes over.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        self.publisher().sockets.all()
    }

    /// Tries again to open listeners of the configuration that could not be opened, for example because another process
    /// had their port.
    pub fn retry_listeners(&self) {
        self.publisher().retry_listeners();
    }

    /// The counters, and the configuration that is served now.
    #[must_use]
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Passes a change to the workers, in order with other changes. The returned future is ready once every worker serves
    /// the change. The change takes effect whether or not the future is awaited.
    pub fn apply(&self, change: Change) -> impl Future<Output = ()> + Send + use<> {
        self.apply_since(change, std::time::Instant::now())
    }

    /// Like [`apply`](Self::apply), for a change that its source `heard` earlier: [`propagation`](Counters::propagation)
    /// counts from that time.
    pub fn apply_since(
        &self,
        change: Change,
        heard: std::time::Instant,
    ) -> impl Future<Output = ()> + Send + use<> {
        let number = self.publisher().publish(change);
        let (mailboxes, counters) = (self.mailboxes.clone(), self.registry.counters().clone());
        async move {
            for mailbox in mailboxes.iter() {
                mailbox.applied(number).await;
            }
            counters.record_propagation(heard.elapsed());
        }
    }

    /// Shuts down without losing a request, as [`Drain`] says; sooner if no connection is left.
    pub async fn shutdown(&self, drain: Drain) {
        self.drain(drain).await;
        self.join().await;
    }

    /// Ends all connections as [`Drain`] says, and tells the workers to end.
    pub(crate) async fn drain(&self, drain: Drain) {
        self.tell(Stop::Announce);
        // After the timeout or the notification, the grace is over.
        let _ = timeout(drain.grace, self.grace_over.notified()).await;
        let end = Instant::now() + drain.timeout;
        self.publisher().sockets.close();
        self.tell(Stop::CloseListeners);
        self.until_empty(end.min(Instant::now() + drain.idle)).await;
        self.tell(Stop::CloseIdle);
        self.until_empty(end).await;
        let requests = self.registry.counters().workers().sum(|worker| &worker.in_flight);
        if requests > 0 {
            tracing::warn!(
                requests,
                "the drain timeout is over; the gateway drops the requests and tunnels in flight"
            );
        }
        self.tell(Stop::CloseAll);
    }

    /// Returns once the threads have ended.
    async fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let collector = self.collector.lock().unwrap_or_else(PoisonError::into_inner).take();
        let exporter = self.publisher().exporter.close();
        let join = tokio::task::spawn_blocking(move || {
            for thread in threads {
                match thread.join() {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::error!(%error, "a worker failed"),
                    Err(_) => tracing::error!("a worker panicked"),
                }
            }
            if let Some(writer) = writer {
                writer.finish();
            }
            if collector.is_some_and(|collector| collector.join().is_err()) {
                tracing::error!("the thread of analytics panicked");
            }
            if exporter.is_some_and(|exporter| exporter.join().is_err()) {
                tracing::error!("the thread that sends spans panicked");
            }
        });
        // The join fails only if the runtime shuts down, which is the goal here.
        let _ = join.await;
    }

    /// Ends the grace of a current or later shutdown: another process accepts connections at the same sockets, with newer
    /// routes.
    pub fn end_grace(&self) {
        self.grace_over.notify_one();
    }

    fn publisher(&self) -> MutexGuard<'_, Publisher> {
        self.publisher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, stop: Stop) {
        for mailbox in self.mailboxes.iter() {
            mailbox.post(|pending| pending.stop = pending.stop.max(Some(stop)));
        }
    }

    /// Returns when no client connection is left and none can come, or at `end`.
    async fn until_empty(&self, end: Instant) {
        const LOOK: Duration = Duration::from_millis(10);
        while Instant::now() < end && !self.is_empty() {
            sleep_until(end.min(Instant::now() + LOOK)).await;
        }
    }

    fn is_empty(&self) -> bool {
        // In the order in which a connection moves.
        self.mailboxes.iter().all(|mailbox| !mailbox.is_accepting() && mailbox.arriving() == 0)
            && self
                .registry
                .counters()
                .workers()
                .iter()
                .all(|worker| worker.open.get() + worker.udp_flows.get() == 0)
    }
}
