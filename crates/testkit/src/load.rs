//! A load that checks every answer: many kept-alive connections, closed loop or at a constant rate.
//!
//! It runs on a thread and a runtime of its own, so that a busy test does not disturb it, and counts a
//! failure wherever a user would see one. A server that closes politely between two requests is followed by
//! a reconnect; a close after a request was sent is a failure.

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

/// What to send, to whom, how fast, and what must come back.
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

/// What a good answer is, besides its status 200 and a complete body.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expect {
    Anything,
    Body(Vec<u8>),
    OwnId,
}

impl Load {
    /// GET / with `Host: localhost`, 10 connections, closed loop, 5 s for each answer.
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

    /// How it connects; in clear text unless told.
    #[must_use]
    pub fn transport(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// The Host field.
    #[must_use]
    pub fn host(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    /// The path; `{id}` in it stands for the request's id.
    #[must_use]
    pub fn path(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// How many kept-alive connections.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// Each request on a connection of its own, by HTTP/1.1's `Connection: close`.
    #[must_use]
    pub fn new_connections(self) -> Self {
        Self { is_new_each: true, ..self }
    }

    /// A constant rate in requests per second, open loop: the next free connection sends the request that is
    /// due, and latency counts from when it was due. Without it each connection sends its next request as
    /// soon as it has its answer.
    #[must_use]
    pub fn rate(self, per_second: f64) -> Self {
        Self { rate: Some(per_second), ..self }
    }

    /// The share of requests that are POSTs with a body of `body` bytes (0.0 to 1.0).
    #[must_use]
    pub fn posts(self, share: f64, body: usize) -> Self {
        Self { posts: share, body, ..self }
    }

    /// How long one answer may take, connecting included.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Any other body is a failure.
    #[must_use]
    pub fn expect_body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { expect: Expect::Body(body.into()), ..self }
    }

    /// An answer whose body does not hold the request's own id is a failure: it was meant for another
    /// request. For back ends that tell it (`Behaviour::ok`, `Behaviour::echo`, or a URI with `{id}`).
    #[must_use]
    pub fn expect_own_id(self) -> Self {
        Self { expect: Expect::OwnId, ..self }
    }

    /// Starts sending. The thread is in the network namespace of the caller.
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

    /// Sends for this long, then waits for the answers that are due.
    pub async fn run(self, duration: Duration) -> anyhow::Result<Report> {
        let running = self.start()?;
        tokio::time::sleep(duration).await;
        running.stop().await
    }
}

/// A load that is being sent. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    stop: Option<watch::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Running {
    /// What has been counted so far.
    pub fn snapshot(&self) -> Report {
        self.shared.snapshot()
    }

    /// Waits until this many requests have been answered well; an error after `limit`.
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

    /// Sends no new request, waits for the answers to those that were sent, and reports.
    pub async fn stop(mut self) -> anyhow::Result<Report> {
        self.stop.take();
        let thread = self.thread.take().context("a load is stopped once")?;
        let shared = Arc::clone(&self.shared);
        // A thread and not spawn_blocking: the caller's runtime may have time paused or be about to end.
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
    /// The next request's number, and when it is due if the rate is constant.
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
