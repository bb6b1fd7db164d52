//! A simulated network in one thread, by the clock of its runtime.
//!
//! The bytes, the end and the reset of one side of a connection reach the kernel of the other side after the latency of the
//! connection. A moment later, the runtime of the other side notices them. In between, only a question to the kernel shows
//! them, as with epoll.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;
use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::ReadBuf;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

/// How many bytes may be on their way, or received and unread.
const ROOM: usize = 16 * 1024;

thread_local! {
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// The network of a thread.
struct Network {
    epoch: Instant,
    random: fastrand::Rng,
    hosts: BTreeMap<SocketAddr, Host>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    /// Wakes the task of [`run`].
    runner: Option<Waker>,
    /// The number of arrivals and connections so far.
    order: u64,
    seen: Vec<Seen>,
}

/// How the address of a host responds to connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Its listeners accept connections. Without a listener, connects are refused.
    #[default]
    Open,
    /// Nothing is delivered or answered.
    Silent,
}

#[derive(Default)]
struct Host {
    reach: Reach,
    latency: Duration,
    listeners: Vec<Weak<Mutex<Queue>>>,
    /// The parts that were not delivered while the host was silent. Their senders repeat them.
    undelivered: Vec<Arrival>,
}

/// The first bytes of a request, or a connect, as the network has seen them.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Duration,
    pub(crate) to: SocketAddr,
    pub(crate) event: SeenEvent,
}

#[derive(Clone, Debug)]
pub(crate) enum SeenEvent {
    Connect,
    Request {
        connection: u64,
        target: String,
        /// Whether the sender's kernel knew already that the peer had closed the connection.
        is_dead: bool,
    },
}

/// A part of a stream on its way.
struct Arrival {
    at: Instant,
    order: u64,
    link: Arc<Mutex<Link>>,
    to: usize,
    part: Part,
}

enum Part {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// A connection.
struct Link {
    id: u64,
    latency: Duration,
    /// The side that connected, and the side that accepted.
    sides: [Side; 2],
}

#[derive(Default)]
struct Side {
    address: Option<SocketAddr>,
    received: BytesMut,
    has_ended: bool,
    is_reset: bool,
    /// Whether the runtime assumes that a read would not block. The runtime assumes that of a new socket.
    is_ready: bool,
    readers: Vec<Waker>,
    writers: Vec<Waker>,
    has_shut: bool,
    is_closed: bool,
    resets_on_close: bool,
    unacknowledged: usize,
}

/// One side of a connection.
pub(crate) struct Stream {
    link: Arc<Mutex<Link>>,
    side: usize,
}

/// A socket that accepts connections. Clones share a queue, as processes share an inherited socket.
#[derive(Clone)]
pub(crate) struct Listener {
    queue: Arc<Mutex<Queue>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Stream, SocketAddr)>,
    acceptors: Vec<Waker>,
}

fn with<T>(use_network: impl FnOnce(&mut Network) -> T) -> T {
    NETWORK.with_borrow_mut(|network| use_network(network.as_mut().expect("a simulated network")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this thread has a simulated network.
pub(crate) fn is_running() -> bool {
    NETWORK.with_borrow(Option::is_some)
}

/// Starts the network of this thread. Connects of this thread use the network until [`stop`].
pub(crate) fn start(seed: u64) {
    let network = Network {
        epoch: Instant::now(),
        random: fastrand::Rng::with_seed(seed),
        hosts: BTreeMap::new(),
        arrivals: BinaryHeap::new(),
        runner: None,
        order: 0,
        seen: Vec::new(),
    };
    NETWORK.replace(Some(network));
}

/// The start of the simulated clock.
pub(crate) fn start_of_clock() -> Option<Instant> {
    NETWORK.with_borrow(|network| network.as_ref().map(|network| network.epoch))
}

pub(crate) fn stop() {
    // Dropped outside of the borrow: streams and listeners in the network use the network.
    drop(NETWORK.take());
}

/// Adds a host, or changes how it responds.
pub(crate) fn set_host(address: SocketAddr, reach: Reach, latency: Duration) {
    with(|network| {
        let host = network.hosts.entry(address).or_default();
        (host.reach, host.latency) = (reach, latency);
        if reach == Reach::Open {
            // With their old times, so that they come before later parts of the same streams.
            network.arrivals.extend(std::mem::take(&mut host.undelivered).into_iter().map(Reverse));
            if let Some(runner) = network.runner.take() {
                runner.wake();
            }
        }
    });
}

/// Another host receives the address of a host that is gone with everything that it had sent.
pub(crate) fn replace_host(address: SocketAddr, latency: Duration) {
    let gone = with(|network| {
        let host = network.hosts.get_mut(&address);
        host.map(|host| host.undelivered.extract_if(.., |arrival| arrival.to == 0).collect::<Vec<_>>())
    });
    // Streams use the network when they are dropped.
    drop(gone);
    set_host(address, Reach::Open, latency);
}

/// Listens at the address of a host. Connections are distributed over all listeners of an address.
pub(crate) fn listen(address: SocketAddr) -> Listener {
    let listener = Listener { queue: Arc::default() };
    with(|network| {
        let host = network.hosts.get_mut(&address).expect("a host");
        host.listeners.push(Arc::downgrade(&listener.queue));
    });
    listener
}

/// Connects to a host.
pub(crate) async fn connect(to: SocketAddr) -> io::Result<Stream> {
    let latency = with(|network| {
        network.observe(to, SeenEvent::Connect);
        network.hosts.get(&to).map_or(Duration::ZERO, |host| host.latency)
    });
    pause(latency).await;
    let near = match with(|network| network.reach(to)) {
        Reach::Silent => pending().await,
        Reach::Open => with(|network| network.choose_listener(to)).map(|queue| {
            let (near, far, peer) = with(|network| network.link(to, latency));
            let mut queue = lock(&queue);
            queue.waiting.push_back((far, peer));
            wake(std::mem::take(&mut queue.acceptors));
            near
        }),
    };
    pause(latency).await;
    if with(|network| network.reach(to)) == Reach::Silent {
        return pending().await;
    }
    near.ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
}

async fn pause(latency: Duration) {
    if !latency.is_zero() {
        sleep(latency).await;
    }
}

/// Delivers everything that is sent, in simulated time. Never returns.
pub(crate) async fn run() {
    let mut unnoticed: Vec<(Arc<Mutex<Link>>, usize)> = Vec::new();
    loop {
        let next = with(|network| network.arrivals.peek().map(|Reverse(arrival)| arrival.at));
        let is_due = next.is_some_and(|at| at <= Instant::now());
        if !is_due && unnoticed.is_empty() {
            tokio::select! {
                biased;
                () = sent_earlier(next) => {}
                () = async { sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {}
            }
            continue;
        }
        let now = Instant::now();
        while let Some(arrival) = with(|network| network.pop_due(now)) {
            unnoticed.extend(arrival.deliver());
        }
        // The tasks that run now find the kernel changed, and the runtime unchanged.
        yield_now().await;
        let later = unnoticed.split_off(0);
        for (link, side) in later {
            match with(|network| network.random.u8(..8)) {
                0 => unnoticed.push((link, side)),
                _ => notice(&link, side),
            }
        }
    }
}

/// Returns once a part arrives before `next`.
async fn sent_earlier(next: Option<Instant>) {
    poll_fn(|cx| {
        with(|network| {
            let first = network.arrivals.peek().map(|Reverse(arrival)| arrival.at);
            if first == next {
                network.runner = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
    })
    .await;
}

fn notice(link: &Mutex<Link>, side: usize) {
    let wakers = {
        let mut link = lock(link);
        let side = &mut link.sides[side];
        side.is_ready = true;
        std::mem::take(&mut side.readers)
    };
    wake(wakers);
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}

fn wait(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}

impl Network {
    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn observe(&mut self, to: SocketAddr, event: SeenEvent) {
        self.seen.push(Seen { at: self.epoch.elapsed(), to, event });
    }

    fn reach(&self, address: SocketAddr) -> Reach {
        self.hosts.get(&address).map_or(Reach::Silent, |host| host.reach)
    }

    fn choose_listener(&mut self, address: SocketAddr) -> Option<Arc<Mutex<Queue>>> {
        let host = self.hosts.get_mut(&address)?;
        host.listeners.retain(|queue| queue.strong_count() > 0);
        let chosen = match host.listeners.len() {
            0 => return None,
            count => self.random.usize(..count),
        };
        host.listeners[chosen].upgrade()
    }

    fn link(&mut self, to: SocketAddr, latency: Duration) -> (Stream, Stream, SocketAddr) {
        let id = self.next_order();
        let peer = SocketAddr::from(([10, 0, 0, 1], (id % 60_000) as u16 + 1024));
        let side = |address| Side { address: Some(address), is_ready: true, ..Side::default() };
        let link = Arc::new(Mutex::new(Link { id, latency, sides: [side(peer), side(to)] }));
        (Stream { link: link.clone(), side: 0 }, Stream { link, side: 1 }, peer)
    }

    fn send(&mut self, link: &Arc<Mutex<Link>>, to: usize, latency: Duration, part: Part) {
        let arrival =
            Arrival { at: Instant::now() + latency, order: self.next_order(), link: link.clone(), to, part };
        self.arrivals.push(Reverse(arrival));
        if let Some(runner) = self.runner.take() {
            runner.wake();
        }
    }

    fn pop_due(&mut self, now: Instant) -> Option<Arrival> {
        self.arrivals.peek().filter(|Reverse(arrival)| arrival.at <= now)?;
        self.arrivals.pop().map(|Reverse(arrival)| arrival)
    }
}

impl Arrival {
    /// The side that has news, if any.
    fn deliver(self) -> Option<(Arc<Mutex<Link>>, usize)> {
        let host = lock(&self.link).sides[1].address;
        if let Some(host) = host
            && with(|network| network.reach(host)) == Reach::Silent
        {
            with(|network| network.hosts.entry(host).or_default().undelivered.push(self));
            return None;
        }
        let Self { link: shared, to, part, .. } = self;
        let mut wakers = Vec::new();
        let changed = {
            let mut link = lock(&shared);
            let latency = link.latency;
            if let Part::Bytes(bytes) = &part {
                let sender = &mut link.sides[1 - to];
                sender.unacknowledged -= bytes.len().min(sender.unacknowledged);
                wakers.append(&mut sender.writers);
            }
            let side = &mut link.sides[to];
            match part {
                // A closed socket answers with a reset.
                Part::Bytes(_) if side.is_closed => {
                    with(|network| network.send(&shared, 1 - to, latency, Part::Reset));
                    false
                }
                _ if side.is_closed || side.is_reset => false,
                Part::Bytes(bytes) => {
                    side.received.extend_from_slice(&bytes);
                    true
                }
                Part::End => {
                    side.has_ended = true;
                    true
                }
                Part::Reset => {
                    side.is_reset = true;
                    wakers.append(&mut side.writers);
                    true
                }
            }
        };
        wake(wakers);
        changed.then_some((shared, to))
    }
}

impl Stream {
    pub(super) fn local_addr(&self) -> SocketAddr {
        lock(&self.link).sides[self.side].address.expect("every side has an address")
    }

    /// Unique in the network.
    pub(crate) fn id(&self) -> u64 {
        lock(&self.link).id
    }

    /// Whether the peer has closed its side, and the end or reset has arrived.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        let link = lock(&self.link);
        let side = &link.sides[self.side];
        side.has_ended || side.is_reset
    }

    pub(super) fn unacknowledged(&self) -> usize {
        lock(&self.link).sides[self.side].unacknowledged
    }

    pub(super) fn is_silent(&self) -> bool {
        let link = lock(&self.link);
        let side = &link.sides[self.side];
        side.received.is_empty() && !side.has_ended && !side.is_reset
    }

    pub(crate) fn reset_on_close(&self) {
        lock(&self.link).sides[self.side].resets_on_close = true;
    }

    /// Sends the end of the stream.
    pub(crate) fn shut(&self) {
        let mut link = lock(&self.link);
        let latency = link.latency;
        if !std::mem::replace(&mut link.sides[self.side].has_shut, true) {
            with(|network| network.send(&self.link, 1 - self.side, latency, Part::End));
        }
    }

    pub(super) fn poll_read_ready(&self, cx: &Context<'_>) -> Poll<()> {
        let mut link = lock(&self.link);
        let side = &mut link.sides[self.side];
        if side.is_ready {
            return Poll::Ready(());
        }
        wait(&mut side.readers, cx);
        Poll::Pending
    }

    pub(crate) fn poll_receive(
        &self,
        cx: &Context<'_>,
        buf: &mut ReadBuf<'_>,
        peeks: bool,
    ) -> Poll<io::Result<usize>> {
        let mut link = lock(&self.link);
        match link.receive(self.side, buf, peeks) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(&mut link.sides[self.side].readers, cx);
                Poll::Pending
            }
            received => Poll::Ready(received),
        }
    }

    pub(super) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        lock(&self.link).receive(self.side, &mut ReadBuf::new(buf), false)
    }

    pub(crate) fn poll_send(&self, cx: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.try_write(data) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(&mut lock(&self.link).sides[self.side].writers, cx);
                Poll::Pending
            }
            sent => Poll::Ready(sent),
        }
    }

    pub(super) fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        let mut link = lock(&self.link);
        let waiting = link.sides[1 - self.side].received.len();
        let (id, latency, to) = (link.id, link.latency, link.sides[1].address);
        let side = &mut link.sides[self.side];
        let room = ROOM.saturating_sub(side.unacknowledged + waiting);
        if side.is_reset || side.has_shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if data.is_empty() {
            return Ok(0);
        }
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = data.len().min(room);
        side.unacknowledged += sent;
        with(|network| {
            if let (0, Some(target), Some(to)) = (self.side, target_of(data), to) {
                let is_dead = side.has_ended || side.is_reset;
                network.observe(to, SeenEvent::Request { connection: id, target, is_dead });
            }
            network.send(&self.link, 1 - self.side, latency, Part::Bytes(data[..sent].to_vec()));
        });
        Ok(sent)
    }
}

/// The target of a request, if the bytes begin a request.
fn target_of(data: &[u8]) -> Option<String> {
    let start = data.iter().take(8).position(|byte| *byte == b' ')? + 1;
    let end = start + data[start..].iter().position(|byte| *byte == b' ')?;
    if data.get(start) != Some(&b'/') {
        return None;
    }
    String::from_utf8(data[start..end].to_vec()).ok()
}

/// Returns the events of the network since the last call.
pub(crate) fn take_seen() -> Vec<Seen> {
    with(|network| std::mem::take(&mut network.seen))
}

impl Link {
    fn receive(&mut self, at: usize, buf: &mut ReadBuf<'_>, peeks: bool) -> io::Result<usize> {
        let [one, other] = &mut self.sides;
        let (side, peer) = if at == 0 { (one, other) } else { (other, one) };
        if !side.is_ready {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if side.received.is_empty() {
            match (side.is_reset, side.has_ended) {
                (true, _) => return Err(io::ErrorKind::ConnectionReset.into()),
                (false, true) => return Ok(0),
                (false, false) => {
                    side.is_ready = false;
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
        }
        let taken = side.received.len().min(buf.remaining());
        buf.put_slice(&side.received[..taken]);
        if !peeks {
            side.received.advance(taken);
            if buf.remaining() > 0 {
                // The runtime assumes that a partial read emptied the kernel's buffer.
                side.is_ready = side.has_ended || side.is_reset;
            }
            wake(std::mem::take(&mut peer.writers));
        }
        Ok(taken)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Streams that outlive the simulation, in tasks of its runtime, are of no interest.
        if !is_running() {
            return;
        }
        let mut link = lock(&self.link);
        let latency = link.latency;
        let side = &mut link.sides[self.side];
        side.is_closed = true;
        if side.is_reset {
            return;
        }
        if side.resets_on_close || !side.received.is_empty() {
            with(|network| network.send(&self.link, 1 - self.side, latency, Part::Reset));
        } else if !side.has_shut {
            side.has_shut = true;
            with(|network| network.send(&self.link, 1 - self.side, latency, Part::End));
        }
    }
}

impl Listener {
    pub(crate) async fn accept(&self) -> (Stream, SocketAddr) {
        poll_fn(|cx| {
            let mut queue = lock(&self.queue);
            match queue.waiting.pop_front() {
                Some(accepted) => Poll::Ready(accepted),
                None => {
                    wait(&mut queue.acceptors, cx);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The kernel resets connections that no program accepted.
        self.waiting.iter().for_each(|(stream, _)| stream.reset_on_close());
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id()).field("side", &self.side).finish_non_exhaustive()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

impl PartialEq for Arrival {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Arrival {}

impl PartialOrd for Arrival {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Arrival {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
