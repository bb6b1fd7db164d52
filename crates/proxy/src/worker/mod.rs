//! One worker: a thread with its own runtime, listeners, connections and counters.

mod accept;
mod mailbox;
mod scratch;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use slab::Slab;
use sluicegate_model::Settings;
use tokio::net::TcpStream;
use tokio::runtime::LocalOptions;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{AbortHandle, JoinHandle, spawn_local};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

pub(crate) use mailbox::{Accepted, Mailbox, Placed, Stop};
pub(crate) use scratch::Scratch;

use crate::date::{HttpDate, http_date};
use crate::http::connection;
use crate::layer4;
use crate::listener::{Listener, Place, Protocol};
use crate::policy::basic::PasswordMemory;
use crate::policy::external::Externals;
use crate::policy::tokens::TokenMemory;
use crate::rule::Table;
use crate::stream::Stream;
use crate::telemetry::access_log::LogBuffer;
use crate::telemetry::{Telemetry, WorkerStats};
use crate::trace::SpanBuffer;
use crate::upstream::{IdleEvent, IdleEvents, LocalUpstream, Socket};
use mailbox::Pending;
use scratch::Spares;

/// The interval of background work: closing idle connections, freeing unused buffers, passing on access log lines and
/// spans.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// The state of one worker. It never leaves its thread.
pub(crate) struct Worker {
    pub(crate) id: usize,
    telemetry: Arc<Telemetry>,
    mailboxes: Arc<[Mailbox]>,
    snapshot: RefCell<Rc<Snapshot>>,
    upstreams: RefCell<Vec<Option<Rc<LocalUpstream>>>>,
    idle_events: Arc<IdleEvents>,
    next_socket: Cell<u64>,
    spares: Spares,
    connections: RefCell<Slab<Open>>,
    /// The sockets from which the worker accepts connections and datagrams.
    listening: RefCell<Vec<(Place, JoinHandle<()>)>>,
    /// Limits TLS handshakes that compute at the same time.
    pub(crate) handshakes: Semaphore,
    stop: Cell<Option<Stop>>,
    /// Notified when `stop` is set.
    stopped: Notify,
    date: Cell<(u64, HttpDate)>,
    /// The tokens that the worker has verified.
    pub(crate) tokens: RefCell<TokenMemory>,
    /// The passwords that the worker has checked.
    pub(crate) passwords: RefCell<PasswordMemory>,
    /// The external services that the worker asks about requests.
    pub(crate) externals: Externals,
    pub(crate) log: Option<LogBuffer>,
    pub(crate) spans: SpanBuffer,
}

/// The current configuration, as one worker holds it: reference-counted without writing memory that other workers use.
pub(crate) struct Snapshot {
    pub(crate) table: Arc<Table>,
    pub(crate) settings: Rc<Settings>,
}

/// A client connection of the worker.
struct Open {
    task: Option<AbortHandle>,
    phase: Rc<Cell<Phase>>,
}

/// The state of a client connection, which decides when it may be closed as idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The connection was accepted, and its first request may be on its way.
    Fresh,
    /// A request is being read or served.
    Busy,
    /// The connection waits for its next request.
    Idle,
}

/// The parameters of a worker's thread.
pub(crate) struct Start {
    pub(crate) id: usize,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) table: Arc<Table>,
    pub(crate) log: Option<LogBuffer>,
    pub(crate) spans: SpanBuffer,
}

/// Runs a worker on this thread until the worker is stopped.
pub(crate) fn run(mut start: Start) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let listeners = std::mem::take(&mut start.listeners);
        let worker = Rc::new(Worker::new(start));
        spawn_local(worker.clone().run_housekeeping());
        spawn_local(worker.clone().watch_idle());
        worker.obey(listeners).await
    })
}

impl Worker {
    fn new(start: Start) -> Self {
        Self {
            id: start.id,
            telemetry: start.telemetry.clone(),
            mailboxes: start.mailboxes.clone(),
            snapshot: RefCell::new(Rc::new(Snapshot::new(start.table.clone()))),
            upstreams: RefCell::default(),
            idle_events: Arc::default(),
            next_socket: Cell::new(0),
            spares: Spares::default(),
            connections: RefCell::default(),
            listening: RefCell::default(),
            handshakes: Semaphore::new(1),
            stop: Cell::new(None),
            stopped: Notify::new(),
            date: Cell::new((0, http_date(0))),
            tokens: RefCell::default(),
            passwords: RefCell::default(),
            externals: Externals::default(),
            log: start.log,
            spans: start.spans,
        }
    }

    /// The current configuration.
    pub(crate) fn snapshot(&self) -> Rc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// The current settings.
    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.snapshot.borrow().settings.clone()
    }

    /// The upstream of a slot that the current routing table names.
    pub(crate) fn upstream(&self, slot: usize) -> Option<Rc<LocalUpstream>> {
        self.upstreams.borrow().get(slot)?.clone()
    }

    pub(crate) fn stats(&self) -> &WorkerStats {
        self.telemetry.workers().of(self.id)
    }

    /// Buffers for a request.
    pub(crate) fn scratch(&self) -> Box<Scratch> {
        self.spares.take()
    }

    /// Takes back the buffers of a request.
    pub(crate) fn give_back(&self, scratch: Box<Scratch>) {
        self.spares.give(scratch);
    }

    /// Whether responses announce that the connection ends.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.get().is_some()
    }

    /// Returns once responses announce that the connection ends.
    pub(crate) async fn stopping(&self) {
        let stopped = self.stopped.notified();
        if !self.is_stopping() {
            stopped.await;
        }
    }

    /// Whether clients can send only on existing connections.
    pub(crate) fn has_closed_listeners(&self) -> bool {
        self.stop.get() >= Some(Stop::CloseListeners)
    }

    /// Whether everything must end now.
    pub(crate) fn is_closing_all(&self) -> bool {
        self.stop.get() >= Some(Stop::CloseAll)
    }

    /// Returns when the worker takes the next step of its shutdown.
    pub(crate) fn stop_changes(&self) -> Notified<'_> {
        self.stopped.notified()
    }

    /// Whether idle connections were closed.
    pub(crate) fn closes_idle(&self) -> bool {
        self.stop.get() >= Some(Stop::CloseIdle)
    }

    /// The current `Date` (RFC 9110, 6.6.1).
    pub(crate) fn date(&self) -> HttpDate {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if self.date.get().0 != now {
            self.date.set((now, http_date(now)));
        }
        self.date.get().1
    }

    /// A connection to an endpoint of the upstream in this slot.
    pub(crate) fn new_socket(&self, stream: Stream, upstream: usize, endpoint: u64) -> Socket {
        let socket = self.next_socket.get();
        self.next_socket.set(socket + 1);
        Socket::new(stream, IdleEvent { upstream, endpoint, socket }, &self.idle_events)
    }

    /// Serves a client connection in a separate task.
    fn open(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, local: SocketAddr, protocol: Protocol) {
        let phase = Rc::new(Cell::new(Phase::Fresh));
        let key = self.connections.borrow_mut().insert(Open { task: None, phase: phase.clone() });
        let guard = OpenGuard { worker: self.clone(), key };
        self.stats().open.add(1);
        let task = spawn_local(async move {
            connection::serve(&guard.worker, stream, protocol, peer, local, &phase).await;
        });
        if let Some(open) = self.connections.borrow_mut().get_mut(key) {
            open.task = Some(task.abort_handle());
        }
    }

    /// Follows the mailbox until the end. Connections wait in the listen queues until the worker serves the first
    /// configuration.
    async fn obey(self: &Rc<Self>, mut waiting: Vec<Listener>) -> io::Result<()> {
        loop {
            let mut pending = self.mailboxes[self.id].take().await;
            let change = pending.change;
            let stop = pending.stop;
            let configured = pending.table.is_some();
            let (opened, closed) = (std::mem::take(&mut pending.opened), std::mem::take(&mut pending.closed));
            self.apply(pending);
            self.move_listeners(opened, &closed).await;
            self.mailboxes[self.id].acknowledge(change);
            if configured {
                for listener in waiting.drain(..) {
                    self.listen(listener)?;
                }
            }
            if let Some(stop) = stop {
                self.stop.set(Some(stop));
                self.stopped.notify_waiters();
                if stop >= Stop::CloseListeners {
                    self.mailboxes[self.id].stop_accepting();
                    self.listening.borrow_mut().drain(..).for_each(|(_, task)| task.abort());
                    waiting.clear();
                }
                if stop >= Stop::CloseIdle {
                    self.close_connections(|phase| phase == Phase::Idle);
                    spawn_local(self.clone().close_silent());
                }
                if stop >= Stop::CloseAll {
                    self.close_connections(|_| true);
                    // Aborted tasks record their end in the next turns of the runtime, some tasks in each turn.
                    while !self.connections.borrow().is_empty() || self.stats().in_flight.get() > 0 {
                        tokio::task::yield_now().await;
                    }
                    if let Some(log) = &self.log {
                        log.flush(self.stats());
                    }
                    self.spans.flush(self.stats());
                    return Ok(());
                }
            }
        }
    }

    /// Accepts connections from a socket from now on.
    fn listen(self: &Rc<Self>, listener: Listener) -> io::Result<()> {
        let place = listener.place;
        let task = match listener.protocol {
            Protocol::Udp => spawn_local(layer4::serve_datagrams(self.clone(), listener)?),
            _ => spawn_local(accept::accept(self.clone(), listener)?),
        };
        self.listening.borrow_mut().push((place, task));
        Ok(())
    }

    /// Returns once the closed listeners receive nothing any more.
    async fn move_listeners(self: &Rc<Self>, opened: Vec<Listener>, closed: &[Place]) {
        let gone: Vec<_> =
            self.listening.borrow_mut().extract_if(.., |(place, _)| closed.contains(place)).collect();
        for (_, task) in gone {
            task.abort();
            // The task was aborted or had failed: its socket is closed.
            let _ = task.await;
        }
        for listener in opened {
            let address = listener.place.address;
            if !self.has_closed_listeners()
                && let Err(error) = self.listen(listener)
            {
                tracing::error!(%address, %error, "a worker cannot accept connections at this address");
            }
        }
    }

    fn apply(self: &Rc<Self>, pending: Pending) {
        let drain = self.settings().timeouts.drain;
        for (slot, change) in pending.upstreams {
            let mut upstreams = self.upstreams.borrow_mut();
            if upstreams.len() <= slot {
                upstreams.resize_with(slot + 1, || None);
            }
            let current = upstreams[slot].take();
            let stays =
                |shared: &Arc<_>| current.as_ref().is_some_and(|old| Arc::ptr_eq(&old.shared, shared));
            if let Some(Placed { upstream: shared, endpoints: set }) = change {
                if stays(&shared) {
                    upstreams[slot].clone_from(&current);
                } else {
                    upstreams[slot] = Some(Rc::new(LocalUpstream::new(shared, self.id)));
                }
                if let Some(upstream) = &upstreams[slot] {
                    upstream.update(&set, drain);
                    // One worker checks for all workers.
                    if slot % self.mailboxes.len() == self.id {
                        upstream.start_health_checks();
                    }
                }
            }
            if let Some(old) = current
                && upstreams[slot].as_ref().is_none_or(|new| !Rc::ptr_eq(new, &old))
            {
                old.retire(drain);
            }
        }
        if let Some(table) = pending.table {
            self.snapshot.replace(Rc::new(Snapshot::new(table)));
        }
        for Accepted { stream, peer, local, protocol } in pending.connections {
            match TcpStream::from_std(stream) {
                Ok(stream) => self.open(stream, peer, local, protocol),
                Err(error) => tracing::warn!(%error, %peer, "cannot serve a connection; it is closed"),
            }
            self.mailboxes[self.id].arrived();
        }
    }

    /// Closes connections whose first request does not arrive either.
    async fn close_silent(self: Rc<Self>) {
        sleep(connection::LAST_IDLE).await;
        self.close_connections(|phase| phase == Phase::Fresh);
    }

    fn close_connections(&self, which: impl Fn(Phase) -> bool) {
        // An abort drops the connection's guard, now or later, and the guard needs the list.
        let doomed: Vec<_> = self
            .connections
            .borrow()
            .iter()
            .filter(|(_, open)| which(open.phase.get()))
            .filter_map(|(_, open)| open.task.clone())
            .collect();
        doomed.iter().for_each(AbortHandle::abort);
    }

    async fn run_housekeeping(self: Rc<Self>) {
        let mut ticks = interval(HOUSEKEEPING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (now, idle) = (Instant::now(), self.settings().timeouts.pool_idle);
            let upstreams: Vec<_> = self.upstreams.borrow().iter().flatten().cloned().collect();
            for upstream in upstreams {
                upstream.expire_idle(now, idle);
            }
            self.externals.run_housekeeping(now);
            self.spares.trim();
            if let Some(log) = &self.log {
                log.flush(self.stats());
            }
            self.spans.flush(self.stats());
        }
    }

    /// Closes idle connections to endpoints as soon as their peer closes them.
    async fn watch_idle(self: Rc<Self>) {
        loop {
            self.idle_events.notify.notified().await;
            for event in self.idle_events.take() {
                if let Some(upstream) = self.upstream(event.upstream) {
                    upstream.close_idle(event.endpoint, event.socket);
                }
            }
        }
    }
}

impl Snapshot {
    fn new(table: Arc<Table>) -> Self {
        let settings = Rc::new((*table.settings).clone());
        Self { table, settings }
    }
}

/// Removes a connection from the worker's list when its task ends, however the task ends.
struct OpenGuard {
    worker: Rc<Worker>,
    key: usize,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.worker.stats().open.sub(1);
        let open = self.worker.connections.borrow_mut().try_remove(self.key);
        drop(open);
    }
}
