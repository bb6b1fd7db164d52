//! The thread of a worker: its event loop, its mailbox, its listeners, and the tasks of its connections.

mod accept;
mod mailbox;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Incoming, ServerConfig};
use slab::Slab;
use tokio::runtime::LocalOptions;
use tokio::task::{AbortHandle, JoinHandle, spawn_local};
use tokio::time::{MissedTickBehavior, interval, sleep};

pub(crate) use mailbox::{Mailbox, Placed};

use crate::counters::Counters;
use crate::http::{connection, http3};
use crate::layer4;
use crate::listener::{Arrival, Listener, Place, Protocol, QuicListener};
use crate::net::TcpStream;
use crate::record::Sinks;
use crate::rule::{Entrance, Table};
use crate::worker::{LAST_IDLE, Phase, Stop, Worker};
use mailbox::{Accepted, Pending};

/// The interval of background work: closing idle connections, freeing unused buffers, passing on access log lines and
/// spans.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// A worker with its listeners and connections. It never leaves its thread.
struct Runtime {
    worker: Rc<Worker>,
    counters: Arc<Counters>,
    mailboxes: Arc<[Mailbox]>,
    connections: RefCell<Slab<Open>>,
    /// The sockets from which the worker accepts connections and datagrams.
    listening: RefCell<Vec<(Place, JoinHandle<()>)>>,
    /// The places of HTTP/3. During a shutdown they refuse new connections, and serve the others.
    listening_quic: RefCell<Vec<(Place, JoinHandle<()>)>>,
}

/// A client connection of the worker.
struct Open {
    task: Option<AbortHandle>,
    phase: Rc<Cell<Phase>>,
}

/// The parameters of a worker's thread.
pub(crate) struct Start {
    pub(crate) id: usize,
    pub(crate) counters: Arc<Counters>,
    pub(crate) mailboxes: Arc<[Mailbox]>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) table: Arc<Table>,
    pub(crate) sinks: Sinks,
}

/// Runs a worker on this thread until the worker is stopped.
pub(crate) fn run(start: Start) -> io::Result<()> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(serve(start))
}

/// Runs a worker in the runtime of this thread until the worker is stopped.
pub(crate) async fn serve(mut start: Start) -> io::Result<()> {
    let listeners = std::mem::take(&mut start.listeners);
    let runtime = Rc::new(Runtime::new(start));
    let worker = runtime.worker.clone();
    spawn_local(runtime.clone().run_housekeeping());
    spawn_local(async move { worker.watch_idle().await });
    runtime.obey(listeners).await
}

impl Runtime {
    fn new(start: Start) -> Self {
        let Start { id, counters, mailboxes, listeners: _, table, sinks } = start;
        Self {
            worker: Rc::new(Worker::new(id, counters.clone(), table, sinks)),
            counters,
            mailboxes,
            connections: RefCell::default(),
            listening: RefCell::default(),
            listening_quic: RefCell::default(),
        }
    }

    /// Serves a client connection in a separate task.
    fn open(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, local: SocketAddr, protocol: Protocol) {
        let (guard, phase) = self.enter();
        let key = guard.key;
        let arrival = Box::new(Arrival::new(stream, peer, local));
        let task = spawn_local(async move {
            connection::serve(&guard.runtime.worker, arrival, protocol, &phase).await;
        });
        self.note_task(key, task.abort_handle());
    }

    /// Serves a client connection of HTTP/3 in a separate task.
    fn open_quic(
        self: &Rc<Self>,
        incoming: Incoming,
        config: Arc<ServerConfig>,
        listener: (Entrance, SocketAddr),
    ) {
        let (guard, phase) = self.enter();
        let key = guard.key;
        let task = spawn_local(async move {
            http3::serve(&guard.runtime.worker, incoming, config, listener, &phase).await;
        });
        self.note_task(key, task.abort_handle());
    }

    /// Adds a client connection to the list.
    fn enter(self: &Rc<Self>) -> (OpenGuard, Rc<Cell<Phase>>) {
        let phase = Rc::new(Cell::new(Phase::Fresh));
        let key = self.connections.borrow_mut().insert(Open { task: None, phase: phase.clone() });
        self.worker.stats().open.add(1);
        (OpenGuard { runtime: self.clone(), key }, phase)
    }

    fn note_task(&self, key: usize, task: AbortHandle) {
        if let Some(open) = self.connections.borrow_mut().get_mut(key) {
            open.task = Some(task);
        }
    }

    /// Follows the mailbox until the end. Connections wait in the listen queues until the worker serves the first
    /// configuration.
    async fn obey(self: &Rc<Self>, mut waiting: Vec<Listener>) -> io::Result<()> {
        loop {
            let mut pending = self.mailbox().take().await;
            let change = pending.change;
            let stop = pending.stop;
            let configured = pending.table.is_some();
            let (opened, closed) = (std::mem::take(&mut pending.opened), std::mem::take(&mut pending.closed));
            let opened_quic = std::mem::take(&mut pending.opened_quic);
            self.apply(pending);
            self.move_listeners(opened, &closed).await;
            self.listen_quic(opened_quic);
            self.mailbox().acknowledge(change);
            if configured {
                for listener in waiting.drain(..) {
                    self.listen(listener)?;
                }
            }
            if let Some(stop) = stop {
                self.worker.set_stop(stop);
                if stop >= Stop::CloseListeners {
                    self.mailbox().stop_accepting();
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
                    while !self.connections.borrow().is_empty() || self.worker.stats().in_flight.get() > 0 {
                        tokio::task::yield_now().await;
                    }
                    self.worker.finish_records();
                    return Ok(());
                }
            }
        }
    }

    /// Accepts connections from a socket from now on.
    fn listen(self: &Rc<Self>, listener: Listener) -> io::Result<()> {
        let place = listener.place;
        let task = match listener.protocol {
            Protocol::Udp => spawn_local(layer4::serve_datagrams(self.worker.clone(), listener)?),
            _ => spawn_local(accept::accept(self.clone(), listener)?),
        };
        self.listening.borrow_mut().push((place, task));
        Ok(())
    }

    /// Returns once the closed listeners receive nothing any more.
    async fn move_listeners(self: &Rc<Self>, opened: Vec<Listener>, closed: &[Place]) {
        let mut gone: Vec<_> =
            self.listening.borrow_mut().extract_if(.., |(place, _)| closed.contains(place)).collect();
        gone.extend(self.listening_quic.borrow_mut().extract_if(.., |(place, _)| closed.contains(place)));
        for (_, task) in gone {
            task.abort();
            // The task was aborted or had failed: its socket is closed.
            let _ = task.await;
        }
        for listener in opened {
            let address = listener.place.address;
            if !self.worker.has_closed_listeners()
                && let Err(error) = self.listen(listener)
            {
                tracing::error!(%address, %error, "a worker cannot accept connections at this address");
            }
        }
    }

    /// Accepts connections of HTTP/3 from now on.
    fn listen_quic(self: &Rc<Self>, opened: Vec<QuicListener>) {
        for listener in opened {
            let place = listener.place;
            match accept::accept_quic(self.clone(), listener) {
                Ok(task) => self.listening_quic.borrow_mut().push((place, spawn_local(task))),
                Err(error) => {
                    tracing::error!(address = %place.address, %error, "a worker cannot accept HTTP/3 at this address");
                }
            }
        }
    }

    fn apply(self: &Rc<Self>, pending: Pending) {
        let changes = pending.upstreams.into_iter();
        let changes = changes
            .map(|(slot, placed)| (slot, placed.map(|Placed { upstream, endpoints }| (upstream, endpoints))));
        // One worker checks for all workers.
        self.worker.apply_upstreams(changes, |slot| slot % self.mailboxes.len() == self.worker.id);
        if let Some(table) = pending.table {
            self.worker.apply_table(table);
        }
        for Accepted { stream, peer, local, protocol } in pending.connections {
            match TcpStream::from_std(stream) {
                Ok(stream) => self.open(stream, peer, local, protocol),
                Err(error) => {
                    tracing::warn!(%error, %peer, "cannot serve a connection; the gateway closes the connection");
                }
            }
            self.mailbox().arrived();
        }
    }

    /// The mailbox of this worker.
    fn mailbox(&self) -> &Mailbox {
        &self.mailboxes[self.worker.id]
    }

    /// Closes connections whose first request does not arrive either.
    async fn close_silent(self: Rc<Self>) {
        sleep(LAST_IDLE).await;
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
            self.worker.run_housekeeping();
        }
    }
}

/// Removes a connection from the worker's list when its task ends, however the task ends.
struct OpenGuard {
    runtime: Rc<Runtime>,
    key: usize,
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.runtime.worker.stats().open.sub(1);
        let open = self.runtime.connections.borrow_mut().try_remove(self.key);
        drop(open);
    }
}
