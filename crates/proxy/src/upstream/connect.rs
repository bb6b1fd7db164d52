//! A connection for a request: from the pool, or new connects that race.
//!
//! The address of a dead pod does not respond at all, so a connect hangs for seconds. So if a connect has no answer after
//! a few times the usual connect time, a second connect to another endpoint races it. The first connection wins. The
//! other connect continues in the background: if it succeeds, its connection goes to the pool; if not, its endpoint
//! becomes unhealthy.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use sluicegate_model::{Protocol, Settings};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::balance::{AvoidedEndpoints, EndpointPreference};
use super::local::{LocalEndpoint, LocalUpstream};
use super::pool::Socket;
use super::shared::Security;
use crate::deadline::after;
use crate::failure::Failure;
use crate::net::{connect, is_silent};
use crate::stream::{Http2Connections, Stream};

/// The shortest time before a second connect starts.
const MIN_HEDGE: Duration = Duration::from_millis(5);
/// A second connect starts after this many times the usual connect time.
const HEDGE_FACTOR: f64 = 4.0;
/// The limit of connects in flight for one request.
const MAX_CONNECT_ATTEMPTS: usize = 4;
/// The pause between two rounds over endpoints that all refuse.
const ROUND: Duration = Duration::from_millis(25);

/// A connection to an endpoint, in use by one request.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    in_flight_guard: InFlightGuard,
}

/// A request's place at an endpoint, counted until the value is dropped.
pub(crate) struct InFlightGuard {
    upstream: Rc<LocalUpstream>,
    endpoint: Rc<LocalEndpoint>,
    /// Whether a limit counts the request over all workers too.
    counted: bool,
}

impl Connection {
    pub(crate) fn endpoint(&self) -> &Rc<LocalEndpoint> {
        &self.in_flight_guard.endpoint
    }

    /// Sets whether a drop resets the connection. A request must be harmless if the endpoint never reads it.
    pub(crate) fn set_reset(&mut self, is_reset: bool) {
        self.socket.is_reset = is_reset;
    }

    /// Whether an earlier request used the connection.
    pub(crate) fn is_reused(&self) -> bool {
        self.socket.uses > 0
    }

    /// Returns the connection to the pool for another request. `peer_timeout` is the keep-alive time that the endpoint
    /// announced.
    pub(crate) fn recycle(self, settings: &Settings, now: Instant, peer_timeout: Option<Duration>) {
        let Self { mut socket, in_flight_guard } = self;
        // A tunnel serves one client: the endpoint would not notice another client on the connection.
        let is_own = in_flight_guard.upstream.shared.key().transport.protocol == Protocol::Tcp;
        if is_own || in_flight_guard.endpoint.is_removed() || socket.stream.is_shared() {
            return;
        }
        socket.uses += 1;
        // A second of margin, so that the connection is gone before the peer closes it.
        let kept = peer_timeout.map_or(settings.timeouts.pool_idle, |peer| {
            settings.timeouts.pool_idle.min(peer.saturating_sub(Duration::from_secs(1)))
        });
        if !kept.is_zero() {
            let (limit, stats) = (settings.limits.pool_per_endpoint, in_flight_guard.endpoint.stats());
            in_flight_guard.endpoint.pool.borrow_mut().put(socket, after(now, kept), limit, stats);
        }
    }
}

impl InFlightGuard {
    pub(crate) fn new(upstream: &Rc<LocalUpstream>, endpoint: Rc<LocalEndpoint>) -> Self {
        endpoint.stats().in_flight.add(1);
        let counted = upstream.members.borrow().limits.max_requests_per_endpoint.is_some();
        if counted {
            endpoint.shared.in_flight.fetch_add(1, Ordering::Relaxed);
        }
        Self { upstream: upstream.clone(), endpoint, counted }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.endpoint.stats().in_flight.sub(1);
        if self.counted {
            self.endpoint.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl LocalUpstream {
    /// A connection from the endpoint's pool, if there is one. `careful` asks the kernel whether the peer has closed
    /// the connection, which the worker may not know yet: for requests that cannot be repeated.
    pub(crate) fn pooled(
        self: &Rc<Self>,
        endpoint: &Rc<LocalEndpoint>,
        careful: bool,
        now: Instant,
    ) -> Option<Connection> {
        endpoint.close_purged_connections();
        if !self.speaks_http2() {
            return self.pooled_http1(endpoint, careful, now);
        }
        let call = endpoint.http2.stream()?;
        let (slot, id) = (self.shared.slot, endpoint.shared.id);
        let mut socket = self.context.new_socket(Stream::Http2(Box::new(call)), slot, id);
        socket.uses = 1;
        self.stats().reused.add(1);
        Some(Connection { socket, in_flight_guard: InFlightGuard::new(self, endpoint.clone()) })
    }

    fn pooled_http1(
        self: &Rc<Self>,
        endpoint: &Rc<LocalEndpoint>,
        careful: bool,
        now: Instant,
    ) -> Option<Connection> {
        let socket = loop {
            let socket = endpoint.pool.borrow_mut().take(now, endpoint.stats())?;
            if !careful || socket.stream.tcp().is_some_and(is_silent) {
                break socket;
            }
        };
        self.stats().reused.add(1);
        Some(Connection { socket, in_flight_guard: InFlightGuard::new(self, endpoint.clone()) })
    }

    /// A new connection: to the endpoint `turn`, or to another endpoint if that one does not respond. Takes at most
    /// `endpoint_wait` plus the limit of one connect.
    pub(crate) async fn connect(
        self: &Rc<Self>,
        ways: (&Settings, &EndpointPreference),
        tried: &mut AvoidedEndpoints,
        turn: Option<Rc<LocalEndpoint>>,
    ) -> Result<Connection, Failure> {
        self.connect_with(ways, tried, turn, None).await
    }

    /// The same, with a header that starts each connection. The header is in clear text, also in front of TLS.
    pub(crate) async fn connect_with(
        self: &Rc<Self>,
        (settings, preference): (&Settings, &EndpointPreference),
        tried: &mut AvoidedEndpoints,
        mut turn: Option<Rc<LocalEndpoint>>,
        header: Option<Rc<[u8]>>,
    ) -> Result<Connection, Failure> {
        let give_up = after(Instant::now(), settings.resilience.endpoint_wait);
        let mut race = Race {
            upstream: self,
            preference,
            header,
            connect_attempts: Vec::new(),
            hedge_at: None,
            is_starved: false,
            give_up,
            end: after(give_up, settings.timeouts.connect),
            last: Failure::NoEndpoint,
            round_failed: false,
        };
        loop {
            if race.connect_attempts.is_empty() {
                let next = turn.take().or_else(|| race.pick(tried, settings));
                match next {
                    Some(endpoint) => race.start(endpoint, tried, settings),
                    None => race.next_round(tried, settings).await?,
                }
                continue;
            }
            match race.next().await {
                Event::Connected(racer, stream) => return race.finish_race(racer, stream, settings),
                Event::Failed(racer, failure) => race.lost(&racer, failure),
                Event::Hedge => race.hedge(tried, settings),
                Event::Changed => race.follow_change(tried, settings),
                Event::End => return Err(Failure::ConnectTimeout),
            }
        }
    }

    fn speaks_http2(&self) -> bool {
        self.shared.key().transport.protocol == Protocol::Http2
    }

    /// Closes idle connections that have expired.
    pub(crate) fn expire_idle(&self, now: Instant, idle: Duration) {
        for endpoint in self.endpoints() {
            endpoint.http2.expire(now, idle);
            endpoint.pool.borrow_mut().expire(now, endpoint.stats());
        }
    }

    /// Closes an idle connection that became readable: its peer closed it.
    pub(crate) fn close_idle(&self, endpoint: u64, socket: u64) {
        if let Some(endpoint) = self.endpoint(endpoint)
            && endpoint.pool.borrow_mut().close_if_readable(socket, endpoint.stats())
        {
            self.stats().pool_closed.add(1);
        }
    }

    fn hedge_delay(&self, settings: &Settings) -> Option<Duration> {
        let longest = settings.resilience.connect_hedge;
        let usual = self.connect_time.usual().mul_f64(HEDGE_FACTOR);
        match (longest.is_zero(), usual.is_zero()) {
            (true, _) => None,
            (_, true) => Some(longest),
            _ => Some(usual.max(MIN_HEDGE).min(longest)),
        }
    }
}

/// The connects of one request in flight.
struct Race<'r> {
    upstream: &'r Rc<LocalUpstream>,
    preference: &'r EndpointPreference,
    /// The first bytes of each connection.
    header: Option<Rc<[u8]>>,
    connect_attempts: Vec<ConnectAttempt>,
    /// The time at which the next connect starts.
    hedge_at: Option<Instant>,
    /// Whether no endpoint was left for another connect.
    is_starved: bool,
    /// The end of retries at endpoints that failed.
    give_up: Instant,
    /// The deadline of the connects in flight.
    end: Instant,
    last: Failure,
    /// Whether a connect failed in the current round over the endpoints.
    round_failed: bool,
}

struct ConnectAttempt {
    in_flight_guard: InFlightGuard,
    started: Instant,
    connecting: Pin<Box<dyn Future<Output = Result<Stream, Failure>>>>,
}

enum Event {
    Connected(ConnectAttempt, Stream),
    Failed(ConnectAttempt, Failure),
    Hedge,
    /// The endpoints changed.
    Changed,
    /// The time limit is over.
    End,
}

impl Race<'_> {
    fn start(&mut self, endpoint: Rc<LocalEndpoint>, tried: &mut AvoidedEndpoints, settings: &Settings) {
        tried.add_connect(&endpoint);
        let started = Instant::now();
        let security = self.upstream.members.borrow().security.clone();
        let http2 = self.upstream.speaks_http2().then(|| endpoint.http2.clone());
        let peer = (endpoint.shared.address(), self.header.clone());
        let connecting = open(peer, security, http2, settings.timeouts.connect);
        let connecting = Box::pin(connecting);
        self.connect_attempts.push(ConnectAttempt {
            in_flight_guard: InFlightGuard::new(self.upstream, endpoint),
            started,
            connecting,
        });
        self.hedge_at = self.upstream.hedge_delay(settings).map(|delay| started + delay);
    }

    /// Every endpoint was tried: waits a moment, or until the endpoints change, and starts again.
    async fn next_round(&mut self, tried: &mut AvoidedEndpoints, settings: &Settings) -> Result<(), Failure> {
        if self.upstream.is_full() {
            return Err(Failure::Overloaded);
        }
        let emptied = self.upstream.emptied.get();
        if emptied.is_some_and(|at| at.elapsed() >= settings.resilience.endpoint_wait) {
            return Err(Failure::NoEndpoint);
        }
        if self.round_failed || emptied.is_some() {
            // A failed handshake would fail again a moment later.
            if Instant::now() >= self.give_up || matches!(self.last, Failure::TlsHandshake | Failure::NoHttp2)
            {
                return Err(self.last);
            }
            let changed = self.upstream.changed.notified();
            tokio::select! {
                biased;
                () = changed => {}
                () = sleep(ROUND) => {}
            }
        }
        // If no connect failed here, `tried` is from earlier attempts of the request.
        self.round_failed = true;
        if self.pick_distant(tried, settings).is_none() {
            tried.clear();
        }
        Ok(())
    }

    async fn next(&mut self) -> Event {
        let hedge_at = self.hedge_at.filter(|_| self.connect_attempts.len() < MAX_CONNECT_ATTEMPTS);
        let changed = self.upstream.changed.notified();
        let end = sleep_until(self.end);
        let hedge = async {
            match hedge_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            (index, result) = poll_fn(|cx| self.poll_connect_attempts(cx)) => {
                let racer = self.connect_attempts.swap_remove(index);
                match result {
                    Ok(stream) => Event::Connected(racer, stream),
                    Err(failure) => Event::Failed(racer, failure),
                }
            }
            () = hedge => Event::Hedge,
            () = changed => Event::Changed,
            () = end => Event::End,
        }
    }

    fn poll_connect_attempts(&mut self, cx: &mut Context<'_>) -> Poll<(usize, Result<Stream, Failure>)> {
        for (index, racer) in self.connect_attempts.iter_mut().enumerate() {
            if let Poll::Ready(result) = racer.connecting.as_mut().poll(cx) {
                return Poll::Ready((index, result));
            }
        }
        Poll::Pending
    }

    /// Starts one more connect, to an endpoint without a connect in flight.
    fn hedge(&mut self, tried: &mut AvoidedEndpoints, settings: &Settings) {
        self.hedge_at = None;
        let picked = self.pick(tried, settings).or_else(|| self.pick_again(tried, settings));
        self.is_starved = picked.is_none();
        if let Some(endpoint) = picked {
            self.upstream.stats().hedges.add(1);
            self.start(endpoint, tried, settings);
        } else if self.upstream.has_full_endpoint() {
            // An endpoint may have room a moment later.
            self.hedge_at = Some(Instant::now() + ROUND);
        }
    }

    /// All endpoints were tried: endpoints that failed are retried while the others hang.
    fn pick_again(&mut self, tried: &mut AvoidedEndpoints, settings: &Settings) -> Option<Rc<LocalEndpoint>> {
        let now = Instant::now();
        if now >= self.give_up {
            return None;
        }
        let picked = self.pick_distant(tried, settings);
        if picked.is_some() {
            return picked;
        }
        // An endpoint whose connect takes a little longer comes before an endpoint that failed the request.
        let last = self.connect_attempts.iter().map(|racer| racer.started).max();
        let hangs = last.map(|started| after(started, settings.resilience.connect_hedge));
        if let Some(hangs) = hangs.filter(|hangs| now < *hangs) {
            self.hedge_at = Some(hangs);
            return None;
        }
        tried.clear();
        self.avoid_connects(tried);
        self.pick(tried, settings)
    }

    /// A healthy endpoint that did not fail the request, but whose connect lost a race.
    fn pick_distant(&self, tried: &mut AvoidedEndpoints, settings: &Settings) -> Option<Rc<LocalEndpoint>> {
        tried.forget_connects();
        self.avoid_connects(tried);
        self.pick(tried, settings).filter(|endpoint| !endpoint.shared.is_unhealthy())
    }

    /// Avoids the endpoints with a connect in flight.
    fn avoid_connects(&self, tried: &mut AvoidedEndpoints) {
        self.connect_attempts.iter().for_each(|racer| tried.add_connect(&racer.in_flight_guard.endpoint));
    }

    fn pick(&self, tried: &AvoidedEndpoints, settings: &Settings) -> Option<Rc<LocalEndpoint>> {
        self.upstream.pick(tried, self.preference, &settings.resilience, Instant::now())
    }

    /// A removed endpoint receives no new request. A new endpoint receives a connect if no endpoint was left for the
    /// race.
    fn follow_change(&mut self, tried: &mut AvoidedEndpoints, settings: &Settings) {
        self.connect_attempts.retain(|racer| !racer.in_flight_guard.endpoint.is_removed());
        let hedges = !settings.resilience.connect_hedge.is_zero()
            && self.connect_attempts.len() < MAX_CONNECT_ATTEMPTS;
        if hedges && self.is_starved && !self.connect_attempts.is_empty() {
            self.hedge(tried, settings);
        }
    }

    fn lost(&mut self, racer: &ConnectAttempt, failure: Failure) {
        self.last = failure;
        self.round_failed = true;
        self.upstream.stats().connect_failures[failure.index()].add(1);
        self.upstream.note_failure(&racer.in_flight_guard.endpoint, failure);
    }

    fn finish_race(
        self,
        racer: ConnectAttempt,
        stream: Stream,
        settings: &Settings,
    ) -> Result<Connection, Failure> {
        let took = racer.started.elapsed();
        self.upstream.connect_time.add(took);
        // An endpoint as distant as the winner must not become unhealthy because its connect started later.
        let limit = settings.resilience.connect_hedge.max(2 * took);
        for outrun in self.connect_attempts {
            let rest = limit.saturating_sub(outrun.started.elapsed());
            tokio::task::spawn_local(finish(outrun, rest));
        }
        let socket = connected(&racer.in_flight_guard, stream, took);
        Ok(Connection { socket, in_flight_guard: racer.in_flight_guard })
    }
}

/// Waits for a connect that lost the race.
async fn finish(racer: ConnectAttempt, rest: Duration) {
    let ConnectAttempt { in_flight_guard, connecting, started } = racer;
    match timeout(rest, connecting).await.unwrap_or(Err(Failure::ConnectTimeout)) {
        Ok(stream) => {
            let settings = in_flight_guard.upstream.context.settings();
            let socket = connected(&in_flight_guard, stream, started.elapsed());
            Connection { socket, in_flight_guard }.recycle(&settings, Instant::now(), None);
        }
        Err(failure) => {
            in_flight_guard.upstream.stats().connect_failures[failure.index()].add(1);
            in_flight_guard.upstream.note_failure(&in_flight_guard.endpoint, failure);
        }
    }
}

fn connected(in_flight_guard: &InFlightGuard, stream: Stream, took: Duration) -> Socket {
    in_flight_guard.endpoint.connect_time.add(took);
    in_flight_guard.upstream.stats().connects.add(1);
    in_flight_guard.upstream.note_success(&in_flight_guard.endpoint);
    let context = &in_flight_guard.upstream.context;
    context.new_socket(stream, in_flight_guard.upstream.shared.slot, in_flight_guard.endpoint.shared.id)
}

/// Connects, sends the header if there is one, and performs the TLS and HTTP/2 handshakes if required, within the same limit.
pub(super) async fn open(
    (address, header): (SocketAddr, Option<Rc<[u8]>>),
    security: Security,
    http2: Option<Rc<Http2Connections>>,
    limit: Duration,
) -> Result<Stream, Failure> {
    let open = async {
        let Some(connections) = http2 else { return open_one(address, header, security).await };
        // Distinguishes a failure of the connection from an endpoint without HTTP/2.
        let mut below = None;
        let connect = async {
            open_one(address, header, security).await.map_err(|failure| {
                below = Some(failure);
                io::Error::other(failure)
            })
        };
        let connected = connections.connect(connect).await;
        connected.map(|call| Stream::Http2(Box::new(call))).map_err(|error| {
            tracing::debug!(%address, %error, "cannot open an HTTP/2 connection to an endpoint");
            below.unwrap_or(Failure::NoHttp2)
        })
    };
    timeout(limit, open).await.unwrap_or(Err(Failure::ConnectTimeout))
}

async fn open_one(
    address: SocketAddr,
    header: Option<Rc<[u8]>>,
    security: Security,
) -> Result<Stream, Failure> {
    let mut stream = connect(address).await.map_err(|error| Failure::of_connect(&error))?;
    // A peer that is gone already is noticed at the first use.
    let _ = stream.set_nodelay(true);
    if let Some(header) = header {
        stream.write_all(&header).await.map_err(|error| Failure::of_connect(&error))?;
    }
    match security {
        Security::None => Ok(Stream::Plain(stream)),
        Security::Tls(connector) => {
            let secured = connector.connect(stream).await.map_err(|error| {
                tracing::debug!(%address, %error, "the TLS handshake with an endpoint failed");
                Failure::TlsHandshake
            });
            Ok(Stream::Tls(secured?))
        }
        Security::Unusable(_) => Err(Failure::TlsHandshake),
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::UpstreamContext;
    use std::sync::Arc;

    use sluicegate_model::{Conditions, UpstreamKey};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::upstream::pool::IdleEvent;
    use crate::upstream::{EndpointSet, SharedEndpoint, SharedUpstream};

    #[tokio::test]
    async fn non_idempotent_request_uses_an_idle_connection_only_after_a_check_that_it_is_open()
    -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let key = UpstreamKey::new("n", "s", "80");
        let upstream = Rc::new(LocalUpstream::new(
            Arc::new(SharedUpstream::new(key, 0, 1)),
            UpstreamContext::new(0, Rc::default()).into(),
        ));
        let shared = Arc::new(SharedEndpoint::new(listener.local_addr()?, 1, false));
        let set = EndpointSet { endpoints: vec![(shared, Conditions::READY)], ..EndpointSet::default() };
        upstream.update(&set, Duration::ZERO);
        let [endpoint] = &upstream.endpoints()[..] else { unreachable!("one was given") };
        for (careful, closed) in [(false, false), (true, false), (false, true), (true, true)] {
            let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr()?), listener.accept());
            let (near, far) = (near?, far?.0);
            // The runtime assumes that a new socket is readable until a read would block.
            assert!(near.try_read(&mut [0]).is_err());
            let event = IdleEvent { upstream: 0, endpoint: 0, socket: 1 };
            let socket = Socket::new(Stream::Plain(near.into()), event, &Arc::default());
            let (now, stats) = (Instant::now(), endpoint.stats());
            endpoint.pool.borrow_mut().put(socket, now + Duration::from_secs(60), 1, stats);
            let far = (!closed).then_some(far);
            // The test has not awaited, so the runtime has not processed the close yet.
            let pooled = upstream.pooled_http1(endpoint, careful, now);
            assert_eq!(pooled.is_some(), !(careful && closed), "careful: {careful}, closed: {closed}");
            drop(far);
        }
        Ok(())
    }
}
