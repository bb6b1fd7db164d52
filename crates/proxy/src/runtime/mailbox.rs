//! How the control side reaches a worker: the newest state of each change, never a queue of old states.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

use crate::listener::{Listener, Place, Protocol, QuicListener};
use crate::net::DetachedTcpStream;
use crate::rule::Table;
use crate::upstream::{EndpointSet, SharedUpstream};
use crate::worker::Stop;

/// One worker's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pending: Mutex<Pending>,
    notify: Notify,
    /// The number of the last change that the worker serves.
    applied: watch::Sender<u64>,
    /// Whether the worker still accepts connections.
    accepting: AtomicBool,
    /// Connections that were passed to the worker, and that it does not serve yet.
    arriving: AtomicU64,
}

/// The changes that a worker has not applied yet. Newer states replace older states, so that the size is limited by the
/// configuration, however slow the worker is.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) change: u64,
    pub(crate) table: Option<Arc<Table>>,
    /// By slot; `None` for an upstream that no route uses any more.
    pub(crate) upstreams: BTreeMap<usize, Option<Placed>>,
    /// The new sockets of the worker.
    pub(crate) opened: Vec<Listener>,
    /// The new sockets of the worker for HTTP/3.
    pub(crate) opened_quic: Vec<QuicListener>,
    /// The sockets to close.
    pub(crate) closed: Vec<Place>,
    /// Connections that a busier worker accepted.
    pub(crate) connections: Vec<Accepted>,
    pub(crate) stop: Option<Stop>,
}

/// An upstream with its endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) upstream: Arc<SharedUpstream>,
    pub(crate) endpoints: Arc<EndpointSet>,
}

/// A client connection that no worker serves yet.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: DetachedTcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) protocol: Protocol,
}

impl Pending {
    /// A pending open that is no longer wanted is cancelled.
    pub(crate) fn move_listeners(
        &mut self,
        opened: Vec<Listener>,
        opened_quic: Vec<QuicListener>,
        closed: &[Place],
    ) {
        self.opened.retain(|listener| !closed.contains(&listener.place));
        self.opened_quic.retain(|listener| !closed.contains(&listener.place));
        self.opened_quic.extend(opened_quic);
        self.closed.extend_from_slice(closed);
        self.opened.extend(opened);
    }
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self {
            pending: Mutex::default(),
            notify: Notify::new(),
            applied: watch::Sender::new(0),
            accepting: AtomicBool::new(true),
            arriving: AtomicU64::new(0),
        }
    }

    /// Changes the pending state, and wakes the worker.
    pub(crate) fn post(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        self.notify.notify_one();
    }

    /// Waits for a pending state, and takes it.
    pub(crate) async fn take(&self) -> Pending {
        self.notify.notified().await;
        std::mem::take(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn acknowledge(&self, change: u64) {
        if change > 0 {
            self.applied.send_replace(change);
        }
    }

    /// Returns once the worker serves this change, or a newer one.
    pub(crate) async fn applied(&self, change: u64) {
        let mut applied = self.applied.subscribe();
        // The sender lives in self.
        let _ = applied.wait_for(|applied| *applied >= change).await;
    }

    /// Passes a connection to the worker.
    pub(crate) fn hand_over(&self, connection: Accepted) {
        self.arriving.fetch_add(1, Ordering::Relaxed);
        self.post(|pending| pending.connections.push(connection));
    }

    /// Records that the worker serves a connection that was passed to it.
    pub(crate) fn arrived(&self) {
        self.arriving.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number of connections that were passed to the worker, and that it does not serve yet.
    pub(crate) fn arriving(&self) -> u64 {
        self.arriving.load(Ordering::Relaxed)
    }

    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_accepting(&self) {
        self.accepting.store(false, Ordering::Relaxed);
    }
}
