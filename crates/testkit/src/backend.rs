//! In-process backends: programmable HTTP/1.1 servers that count requests, die and restart.

mod behaviour;
mod connection;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use self::behaviour::Behaviour;
use self::connection::Connection;
use crate::wire;

/// A running backend. Dropping the value kills the backend. The tasks run on the runtime of the caller of `start`.
#[derive(Debug)]
pub struct Backend {
    addr: SocketAddr,
    shared: Arc<Shared>,
    running: Option<Running>,
    /// Reserves the port while the backend is dead, so that no other test listens there.
    reserved: Option<Socket>,
}

#[derive(Debug)]
struct Running {
    life: watch::Sender<Life>,
    accepting: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Serving,
    Closed,
    Reset,
}

impl Backend {
    /// Starts a backend at a free port of 127.0.0.1.
    pub async fn start(behaviour: Behaviour) -> io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), behaviour).await
    }

    /// Starts a backend at this address; port 0 selects a free port.
    pub async fn start_at(addr: SocketAddr, behaviour: Behaviour) -> io::Result<Self> {
        Self::serve(TcpListener::bind(addr).await?, behaviour)
    }

    /// Starts a backend on an existing listener, such as the listener of a pod (see
    /// [`Pod::listen`](sluicegate_netns::Pod::listen)).
    pub fn start_on(listener: std::net::TcpListener, behaviour: Behaviour) -> io::Result<Self> {
        Self::serve(from_std(listener)?, behaviour)
    }

    fn serve(listener: TcpListener, behaviour: Behaviour) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            addr,
            behaviour: Mutex::new(behaviour),
            journal: Mutex::default(),
            accepted: AtomicU64::new(0),
            open: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
        });
        let running = Some(Running::start(listener, &shared));
        Ok(Self { addr, shared, running, reserved: None })
    }

    /// Starts `count` backends with the same port, as the pods of a Service: at 127.0.1.1, 127.0.1.2 and so on.
    pub async fn group(count: u8, behaviour: Behaviour) -> io::Result<Vec<Self>> {
        let at = |host, port| SocketAddr::from(([127, 0, 1, host], port));
        for _ in 0..50 {
            let first = Self::start_at(at(1, 0), behaviour.clone()).await?;
            let port = first.addr.port();
            let mut group = vec![first];
            for host in 2..=count {
                match Self::start_at(at(host, port), behaviour.clone()).await {
                    Ok(backend) => group.push(backend),
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => break,
                    Err(error) => return Err(error),
                }
            }
            if group.len() == usize::from(count) {
                return Ok(group);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no port is free at all of the addresses"))
    }

    /// The address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address without the port.
    pub fn ip(&self) -> IpAddr {
        self.addr.ip()
    }

    /// Sets the behaviour of the next connections and requests.
    pub fn set(&self, behaviour: Behaviour) {
        *lock(&self.shared.behaviour) = behaviour;
    }

    /// Dies as a process does under SIGKILL: the listener and all connections are closed when this returns.
    pub async fn kill(&mut self) {
        self.end(Life::Closed).await;
    }

    /// Dies like [`Self::kill`], but with a reset on every connection.
    pub async fn kill_with_reset(&mut self) {
        self.end(Life::Reset).await;
    }

    /// Restarts at the same address after a kill. The counters and the journal continue.
    pub async fn restart(&mut self) -> io::Result<()> {
        self.end(Life::Closed).await;
        self.reserved = None;
        let mut tries = 0;
        let listener = loop {
            match TcpListener::bind(self.addr).await {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < 100 => tries += 1,
                done => break done?,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        self.running = Some(Running::start(listener, &self.shared));
        Ok(())
    }

    /// Restarts like [`Self::restart`], on an existing listener at the same address.
    pub async fn restart_on(&mut self, listener: std::net::TcpListener) -> io::Result<()> {
        self.end(Life::Closed).await;
        self.reserved = None;
        self.running = Some(Running::start(from_std(listener)?, &self.shared));
        Ok(())
    }

    /// The number of accepted connections.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// The number of open connections.
    pub fn open(&self) -> u64 {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// The number of request heads.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// The number of malformed requests.
    pub fn malformed(&self) -> u64 {
        self.shared.malformed.load(Ordering::Relaxed)
    }

    /// The `X-Id` of every request head, in order.
    pub fn ids(&self) -> Vec<String> {
        lock(&self.shared.journal).ids.clone()
    }

    /// The last request; without its body before the end of the body.
    pub fn last_request(&self) -> Option<Request> {
        lock(&self.shared.journal).last.clone()
    }

    /// Waits until `condition` holds; after 10 s, fails with the observed counts.
    pub async fn wait_until(&self, condition: impl Fn(&Self) -> bool) -> io::Result<()> {
        let deadline = tokio::time::Instant::now() + crate::client::LIMIT;
        while !condition(self) {
            if tokio::time::Instant::now() > deadline {
                let (accepted, open, requests) = (self.accepted(), self.open(), self.requests());
                let seen = format!(
                    "{} waited in vain: accepted {accepted}, open {open}, requests {requests}",
                    self.addr
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, seen));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    async fn end(&mut self, how: Life) {
        if let Some(running) = self.running.take() {
            running.life.send_replace(how);
            // The panic of a behaviour is already printed. Here only the end of all tasks matters.
            let _ = running.accepting.await;
            // If the reservation fails, as from outside the network namespace, no other test listens there either.
            self.reserved = reserve(self.addr).ok();
        }
    }
}

/// Binds a port without listening.
fn reserve(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// The ids of more than one request, over all of these backends. The gateway sent each of these requests twice.
pub fn repeated_ids<'a>(backends: impl IntoIterator<Item = &'a Backend>) -> Vec<String> {
    let mut seen = BTreeMap::<String, u64>::new();
    for id in backends.into_iter().flat_map(Backend::ids) {
        *seen.entry(id).or_default() += 1;
    }
    seen.into_iter().filter(|(_, times)| *times > 1).map(|(id, _)| id).collect()
}

/// A request as received by a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The request target as sent.
    pub target: String,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub minor_version: u8,
    /// The header fields, in the order of the wire.
    pub headers: Vec<(String, String)>,
    /// The head on the wire.
    pub head: Vec<u8>,
    /// The body without its transfer coding.
    pub body: Vec<u8>,
    /// The body on the wire.
    pub raw_body: Vec<u8>,
    /// The number of this request on its connection, from 1.
    pub nth: u64,
    /// The number of the connection, from 1.
    pub connection: u64,
}

impl Request {
    /// The first value of this header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        wire::find(&self.headers, name)
    }
}

#[derive(Debug)]
struct Shared {
    addr: SocketAddr,
    behaviour: Mutex<Behaviour>,
    journal: Mutex<Journal>,
    accepted: AtomicU64,
    open: AtomicU64,
    requests: AtomicU64,
    malformed: AtomicU64,
}

#[derive(Debug, Default)]
struct Journal {
    ids: Vec<String>,
    last: Option<Request>,
}

impl Running {
    fn start(listener: TcpListener, shared: &Arc<Shared>) -> Self {
        let (life, watched) = watch::channel(Life::Serving);
        let accepting = tokio::spawn(accept(listener, Arc::clone(shared), watched));
        Self { life, accepting }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut life: watch::Receiver<Life>) {
    let mut connections = JoinSet::new();
    let for_connections = life.clone();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = life.changed() => break,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) => {
                let connection = Connection::new(stream, &shared);
                connections.spawn(connection.run(for_connections.clone()));
            }
            // The likely cause is a lack of file descriptors, until some connections end.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
