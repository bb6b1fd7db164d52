//! In-process back ends: HTTP/1.1 servers that do as they are told, count what they see, die and come back.

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

/// A running back end. It ends, as if killed, when it is dropped. Its tasks live on the runtime that
/// started it.
#[derive(Debug)]
pub struct Backend {
    addr: SocketAddr,
    shared: Arc<Shared>,
    running: Option<Running>,
    /// While it is dead: its port, so that no other test comes to listen there.
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
    /// Starts a back end at a free port of 127.0.0.1.
    pub async fn start(behaviour: Behaviour) -> io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), behaviour).await
    }

    /// Starts a back end at this address; port 0 takes a free one.
    pub async fn start_at(addr: SocketAddr, behaviour: Behaviour) -> io::Result<Self> {
        Self::serve(TcpListener::bind(addr).await?, behaviour)
    }

    /// Starts a back end on a listener from elsewhere, such as a pod (see [`Pod::listen`](sluicegate_netns::Pod::listen)).
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

    /// Starts `count` back ends that share a port, as the pods of a Service do: at 127.0.1.1, 127.0.1.2 and
    /// so on.
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

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address without the port.
    pub fn ip(&self) -> IpAddr {
        self.addr.ip()
    }

    /// Behaves like this from the next connection and the next request on.
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

    /// Comes back at the same address after a kill. The counters and the journal go on.
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

    /// Comes back like [`Self::restart`], on a listener from elsewhere at the same address.
    pub async fn restart_on(&mut self, listener: std::net::TcpListener) -> io::Result<()> {
        self.end(Life::Closed).await;
        self.reserved = None;
        self.running = Some(Running::start(from_std(listener)?, &self.shared));
        Ok(())
    }

    /// How many connections it has accepted so far.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// How many connections are open now.
    pub fn open(&self) -> u64 {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// How many request heads it has read so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// How many times it was sent something that is not HTTP.
    pub fn malformed(&self) -> u64 {
        self.shared.malformed.load(Ordering::Relaxed)
    }

    /// The `X-Id` of every request whose head it has read, in order.
    pub fn ids(&self) -> Vec<String> {
        lock(&self.shared.journal).ids.clone()
    }

    /// The request it read last; without its body if it has not read that yet.
    pub fn last_request(&self) -> Option<Request> {
        lock(&self.shared.journal).last.clone()
    }

    /// Waits until `condition` holds; fails after 10 s with what it saw.
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
            // A panic in a behaviour has been printed; what matters here is that all tasks are gone.
            let _ = running.accepting.await;
            // Where that cannot be done, as from outside its network namespace, nobody else comes to listen either.
            self.reserved = reserve(self.addr).ok();
        }
    }
}

/// Takes a port without listening there.
fn reserve(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

/// The ids that more than one request carried, over all of these back ends: each is a request that was sent
/// twice.
pub fn repeated_ids<'a>(backends: impl IntoIterator<Item = &'a Backend>) -> Vec<String> {
    let mut seen = BTreeMap::<String, u64>::new();
    for id in backends.into_iter().flat_map(Backend::ids) {
        *seen.entry(id).or_default() += 1;
    }
    seen.into_iter().filter(|(_, times)| *times > 1).map(|(id, _)| id).collect()
}

/// A request as a back end read it.
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
    /// The head as it was on the wire.
    pub head: Vec<u8>,
    /// The body without its transfer coding.
    pub body: Vec<u8>,
    /// The body as it was on the wire.
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
            // Out of descriptors, most likely: let some connections end.
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
