//! The open connections. The backend closes them after a long idle time, when the pod drains, or all at once without
//! notice.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_socket_linger;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

/// The number of checks after which an idle connection is closed.
pub(super) const IDLE_TICKS: u32 = 4;

/// All connections of a pod. Only its single thread uses them: locks never wait.
#[derive(Debug)]
pub(super) struct Connections {
    open: Mutex<Open>,
    /// The number of checks for idle connections, used as a clock without a cost for requests.
    ticks: AtomicU32,
    /// Whether the backend resets the connections that it closes, as a machine does that does not know them.
    is_reset: AtomicBool,
    is_draining: watch::Sender<bool>,
    /// Notified when a connection is closed.
    fewer: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    tasks: HashMap<u64, (AbortHandle, Arc<Activity>)>,
}

/// The activity of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    connections: Arc<Connections>,
    /// Requests in flight.
    requests: AtomicU32,
    /// The tick of the last request.
    last: AtomicU32,
}

impl Connections {
    pub(super) fn new() -> Self {
        Self {
            open: Mutex::default(),
            ticks: AtomicU32::new(0),
            is_reset: AtomicBool::new(false),
            is_draining: watch::Sender::new(false),
            fewer: Notify::new(),
        }
    }

    /// Serves a connection by the future of this function.
    pub(super) fn spawn<F>(
        self: &Arc<Self>,
        stream: TcpStream,
        serve: impl FnOnce(Socket, Arc<Activity>) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let last = AtomicU32::new(self.ticks.load(Ordering::Relaxed));
        let activity = Arc::new(Activity { connections: self.clone(), requests: AtomicU32::new(0), last });
        let socket = Socket { io: TokioIo::new(stream), connections: self.clone() };
        let serving = serve(socket, activity.clone());
        let mut open = self.open();
        let id = open.next;
        open.next += 1;
        let entry = Entry { id, connections: self.clone() };
        let task = tokio::spawn(async move {
            let _entry = entry;
            serving.await;
        });
        open.tasks.insert(id, (task.abort_handle(), activity));
    }

    /// Must be called at even intervals: closes connections that were idle for [`IDLE_TICKS`] intervals.
    pub(super) fn close_idle(&self) {
        let now = self.ticks.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        for (task, activity) in self.open().tasks.values() {
            let is_busy = activity.requests.load(Ordering::Relaxed) > 0;
            if !is_busy && now.wrapping_sub(activity.last.load(Ordering::Relaxed)) > IDLE_TICKS {
                task.abort();
            }
        }
    }

    /// Begins the drain of the pod.
    pub(super) fn drain(&self) {
        self.is_draining.send_replace(true);
    }

    /// Returns when the pod drains.
    pub(super) fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_draining = self.is_draining.subscribe();
        async move {
            // An error means that the sender is gone.
            let _ = is_draining.wait_for(|is| *is).await;
        }
    }

    /// Resets all connections.
    pub(super) async fn reset(&self) {
        self.is_reset.store(true, Ordering::Relaxed);
        for (task, _) in self.open().tasks.values() {
            task.abort();
        }
        self.all_closed().await;
        self.is_reset.store(false, Ordering::Relaxed);
    }

    /// Returns when no connection is open.
    pub(super) async fn all_closed(&self) {
        loop {
            let fewer = self.fewer.notified();
            if self.open().tasks.is_empty() {
                return;
            }
            fewer.await;
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    /// Returns when the pod drains.
    pub(super) fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        self.connections.draining()
    }

    /// A request is in flight until the returned value is dropped.
    pub(super) fn begin(self: Arc<Self>) -> InFlight {
        self.requests.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
    }
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Activity>);

impl InFlight {
    /// Whether the connection ends with this request.
    pub(super) fn is_last(&self) -> bool {
        *self.0.connections.is_draining.borrow()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
        self.0.last.store(self.0.connections.ticks.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A connection's place among the open connections, until its task ends in any way.
struct Entry {
    id: u64,
    connections: Arc<Connections>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.open().tasks.remove(&self.id);
        self.connections.fewer.notify_waiters();
    }
}

/// A stream that is closed as its [`Connections`] require.
pub(super) struct Socket {
    io: TokioIo<TcpStream>,
    connections: Arc<Connections>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.connections.is_reset.load(Ordering::Relaxed) {
            // Without this option the kernel closes the connection gracefully. The call fails if the connection is
            // gone.
            let _ = set_socket_linger(self.io.inner(), Some(Duration::ZERO));
        }
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }
}
