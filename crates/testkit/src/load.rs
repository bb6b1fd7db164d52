//! A load that checks every response: many persistent connections, closed loop or at a constant rate.
//!
//! The load runs on a thread and a runtime of its own, so that a busy test does not disturb the load. The load counts
//! every failure that a user would see. After a graceful close between two requests the load reconnects; a close after
//! a request was sent is a failure.

mod connection;
mod report;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::report::{Failure, Kind, Report};
use crate::stream::Transport;

/// The requests, the address, the rate, and the expected responses.
#[derive(Clone, Debug)]
pub struct Load {
    addr: SocketAddr,
    transport: Transport,
    host: String,
    path: String,
    connections: usize,
    is_new_each: bool,
    rate: Option<f64>,
    posts: f64,
    body: usize,
    timeout: Duration,
    expect: Expect,
}

/// The expected body of a complete response with status 200.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expect {
    Anything,
    Body(Vec<u8>),
    OwnId,
}

impl Load {
    /// GET / with `Host: localhost`, 10 connections, closed loop, 5 s for each response.
    pub fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            transport: Transport::Http,
            host: "localhost".to_owned(),
            path: "/".to_owned(),
            connections: 10,
            is_new_each: false,
            rate: None,
            posts: 0.0,
            body: 64,
            timeout: Duration::from_secs(5),
            expect: Expect::Anything,
        }
    }

    /// The transport. Default: clear text.
    #[must_use]
    pub fn transport(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// The Host field.
    #[must_use]
    pub fn host(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    /// The path. `{id}` in the path stands for the request's id.
    #[must_use]
    pub fn path(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// The number of persistent connections.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// Uses a new connection for each request, with `Connection: close` of HTTP/1.1.
    #[must_use]
    pub fn new_connections(self) -> Self {
        Self { is_new_each: true, ..self }
    }

    /// Sets a constant rate in requests per second, open loop: the next free connection sends the due request, and
    /// latency starts at the due time. Without a rate each connection sends its next request after its last response.
    #[must_use]
    pub fn rate(self, per_second: f64) -> Self {
        Self { rate: Some(per_second), ..self }
    }

    /// The share of requests that are POSTs with a body of `body` bytes (0.0 to 1.0).
    #[must_use]
    pub fn posts(self, share: f64, body: usize) -> Self {
        Self { posts: share, body, ..self }
    }

    /// The timeout of one response, including the connect.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Requires this body; any other body is a failure.
    #[must_use]
    pub fn expect_body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { expect: Expect::Body(body.into()), ..self }
    }

    /// Requires the request's own id in the body: a response without the id is for another request. For backends that
    /// return the id (`Behaviour::ok`, `Behaviour::echo`, or a URI with `{id}`).
    #[must_use]
    pub fn expect_own_id(self) -> Self {
        Self { expect: Expect::OwnId, ..self }
    }

    /// Starts sending. The thread runs in the network namespace of the caller.
    pub fn start(self) -> anyhow::Result<Running> {
        let (stop, stopped) = watch::channel(());
        let shared = Arc::new(Shared {
            load: self,
            id_prefix: format!("{:08x}", fastrand::u32(..)),
            started: Instant::now(),
            tickets: AtomicU64::new(0),
            report: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("load".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let mut connections = JoinSet::new();
                for _ in 0..for_thread.load.connections {
                    connections.spawn(connection::run(Arc::clone(&for_thread), stopped.clone()));
                }
                drop(stopped);
                while connections.join_next().await.is_some() {}
            });
        })?;
        Ok(Running { stop: Some(stop), thread: Some(thread), shared })
    }

    /// Sends requests for this long, then waits for the responses in flight.
    pub async fn run(self, duration: Duration) -> anyhow::Result<Report> {
        let running = self.start()?;
        tokio::time::sleep(duration).await;
        running.stop().await
    }
}

/// A running load. Dropping the value stops the load.
#[derive(Debug)]
pub struct Running {
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Running {
    /// The counts so far.
    pub fn snapshot(&self) -> Report {
        self.shared.snapshot()
    }

    /// Waits until this many requests have succeeded; an error after `limit`.
    pub async fn wait_for_ok(&self, ok: u64, limit: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        while self.shared.lock().ok < ok {
            if Instant::now() > deadline {
                return Err(anyhow!("{ok} good answers did not come within {limit:?}: {}", self.snapshot()));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Stops sending, waits for the responses in flight, and returns the report.
    pub async fn stop(mut self) -> anyhow::Result<Report> {
        self.stop.take();
        let thread = self.thread.take().context("a load is stopped once")?;
        let shared = Arc::clone(&self.shared);
        // A thread instead of spawn_blocking: the runtime of the caller may have paused its clock, or may be about to
        // end.
        while !thread.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        thread.join().map_err(|_| anyhow!("the load panicked"))?;
        Ok(shared.snapshot())
    }
}

#[derive(Debug)]
struct Shared {
    load: Load,
    id_prefix: String,
    started: Instant,
    tickets: AtomicU64,
    report: Mutex<Report>,
}

impl Shared {
    /// The next request's number, and its due time at a constant rate.
    fn ticket(&self) -> (u64, Option<Instant>) {
        let number = self.tickets.fetch_add(1, Ordering::Relaxed);
        let due = self.load.rate.map(|rate| self.started + Duration::from_secs_f64(number as f64 / rate));
        (number, due)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn snapshot(&self) -> Report {
        let mut report = self.lock().clone();
        report.elapsed = self.started.elapsed();
        report
    }
}
