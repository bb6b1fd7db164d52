//! Idle connections to one endpoint.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::counters::EndpointShard;
use crate::stream::Stream;

/// The idle connections of one endpoint, the last used first.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Vec<Idle>,
}

struct Idle {
    socket: Socket,
    /// When the connection is closed because it was idle for too long.
    expires: Instant,
}

/// A connection to an endpoint, with the watch that reports its close to the pool.
pub(crate) struct Socket {
    pub(crate) stream: Stream,
    /// How many requests it has served.
    pub(crate) uses: u64,
    /// Whether the connection is reset rather than closed: no one waits for the response of the endpoint. After a close, the kernel
    /// would hold the local port for a minute (TIME_WAIT), and clients that cancel requests could use up all ports.
    pub(super) is_reset: bool,
    id: u64,
    watch: Waker,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_reset {
            self.stream.break_off();
        }
    }
}

impl Socket {
    pub(crate) fn new(stream: Stream, event: IdleEvent, events: &Arc<IdleEvents>) -> Self {
        let id = event.socket;
        let watch = Waker::from(Arc::new(Watch { event, events: events.clone() }));
        Self { stream, uses: 0, is_reset: false, id, watch }
    }

    /// Whether nothing can be read: neither the peer's close nor unexpected bytes. From now on the pool is notified when
    /// that changes.
    fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet(&mut Context::from_waker(&self.watch))
    }
}

impl Pool {
    /// Adds an idle connection, unless it is readable.
    pub(super) fn put(&mut self, mut socket: Socket, expires: Instant, limit: usize, stats: &EndpointShard) {
        if self.idle.len() < limit && socket.is_quiet() {
            self.idle.push(Idle { socket, expires });
            stats.idle.set(self.idle.len() as u64);
        }
    }

    /// The connection that was used last. Connections that were unused for long remain until they expire. Connections
    /// that became readable in this turn of the runtime are closed: these bytes do not answer a later request.
    pub(super) fn take(&mut self, now: Instant, stats: &EndpointShard) -> Option<Socket> {
        while self.idle.pop_if(|idle| !idle.socket.is_quiet()).is_some() {}
        let idle = self.idle.pop();
        stats.idle.set(self.idle.len() as u64);
        let idle = idle?;
        if idle.expires <= now {
            self.clear(stats);
            return None;
        }
        Some(idle.socket)
    }

    /// Closes a readable connection. False if it is in use or gone.
    pub(super) fn close_if_readable(&mut self, id: u64, stats: &EndpointShard) -> bool {
        let Some(at) = self.idle.iter().position(|idle| idle.socket.id == id) else { return false };
        if self.idle[at].socket.is_quiet() {
            return false;
        }
        self.idle.remove(at);
        stats.idle.set(self.idle.len() as u64);
        true
    }

    /// Closes the expired connections.
    pub(super) fn expire(&mut self, now: Instant, stats: &EndpointShard) {
        self.idle.retain(|idle| idle.expires > now);
        stats.idle.set(self.idle.len() as u64);
    }

    /// Closes all connections.
    pub(super) fn clear(&mut self, stats: &EndpointShard) {
        self.idle = Vec::new();
        stats.idle.set(0);
    }
}

/// Idle connections of one worker that became readable since the worker last checked.
#[derive(Debug, Default)]
pub(crate) struct IdleEvents {
    queue: Mutex<Vec<IdleEvent>>,
    pub(crate) notify: Notify,
}

/// An idle connection became readable: most likely its peer closed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleEvent {
    /// The slot of its upstream.
    pub(crate) upstream: usize,
    pub(crate) endpoint: u64,
    pub(crate) socket: u64,
}

impl IdleEvents {
    pub(crate) fn take(&self) -> Vec<IdleEvent> {
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A waker that wakes no task directly, but records the connection.
struct Watch {
    event: IdleEvent,
    events: Arc<IdleEvents>,
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.events.queue.lock().unwrap_or_else(PoisonError::into_inner).push(self.event);
        self.events.notify.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn idle_connection_with_unsolicited_bytes_is_not_reused() -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr()?), listener.accept());
        let (near, (mut far, _)) = (near?, far?);
        // The runtime assumes that a new socket is readable until a read would block.
        assert!(near.try_read(&mut [0]).is_err());
        let events = Arc::default();
        let socket = Socket::new(
            Stream::Plain(near.into()),
            IdleEvent { upstream: 0, endpoint: 0, socket: 7 },
            &events,
        );
        let (mut pool, stats, now) = (Pool::default(), EndpointShard::default(), Instant::now());
        pool.put(socket, now + Duration::from_secs(60), 1, &stats);
        assert_eq!(stats.idle.get(), 1);
        far.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await?;
        events.notify.notified().await;
        assert_eq!(events.take().len(), 1);
        // A request may arrive before the runtime processes the event.
        assert!(pool.take(now, &stats).is_none());
        assert_eq!(stats.idle.get(), 0);
        Ok(())
    }
}
