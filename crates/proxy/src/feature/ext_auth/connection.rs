//! The HTTP exchange with a service. It consists of a request, the head of its response, and a part of the response's body.
//! This part must be read before the connection is used again.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::net::{TcpStream, connect};
use sluicegate_http1::{
    Chunk, ChunkedDecoder, HeadLimits, HeadScan, Method, ResponseError, ResponseFraming, ResponseHead,
};
use sluicegate_model::Settings;
use tokio::io::AsyncWriteExt as _;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use super::addresses::Addresses;
use super::answer::Answer;
use super::grpc::{self, MessageError};
use super::local::Place;
use super::{External, Question};
use crate::buffer::{Buffer, give_spare_buffer, spare_buffer};
use crate::failure::{Denial, Failure};
use crate::http_client::Server;
use crate::stream::Stream;
use crate::tls;
use crate::upstream::{AvoidedEndpoints, Connection, EndpointPreference, LocalUpstream};

/// Limits for the head of a response. The same limits apply to all interim responses together.
const HEAD: HeadLimits = HeadLimits { bytes: 16 * 1024, headers: 100 };

/// The longest body, in bytes, that the gateway reads: to reuse the connection, or as a response of a filter. A longer body
/// closes the connection.
const BODY_MAX: u64 = 64 * 1024;

/// The time limit for the rest of a body. The answer does not wait for the body.
const BODY_TIME: Duration = Duration::from_secs(1);

/// The limit of idle connections of a worker to a service.
const IDLE_MAX: usize = 64;

/// How long a worker holds an idle connection, unless the service sets a shorter time.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// The limit of connects in flight for a question, or one for each address. Each connect begins after the previous
/// connect was silent for [`HEDGE`]. In a cluster a service has one address and many servers: another connect may reach
/// another server.
const CONNECTS: usize = 4;

/// How often an address may refuse before an attempt has failed.
const REFUSED_MOST: usize = 2;

/// The time without an answer after which the next connect, or a connection that became free, races a connect. Twice the
/// time of the last connect, if that is longer.
const HEDGE: Duration = Duration::from_millis(50);

/// The shortest time that the service's kernel has to acknowledge a question: Linux delays an acknowledgement by up to 40
/// ms.
const UNACKNOWLEDGED: Duration = Duration::from_millis(60);

/// How often the gateway asks another endpoint of a Service.
const RETRIES: usize = 3;

/// The pauses before the retries. A killed server leaves its service in about this time.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(25), Duration::from_millis(100), Duration::from_millis(300)];

/// How long the gateway makes only one attempt after no attempt reached the service.
const AWAY: Duration = Duration::from_secs(1);

/// Why a service gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("too many requests wait for the service's response")]
    Busy,
    #[error("cannot resolve the service's name: {0}")]
    Name(io::Error),
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("no endpoint of the Service can be asked: {0}")]
    NoConnection(Failure),
    #[error("the TLS handshake failed: {0}")]
    Tls(io::Error),
    #[error("the connection to the service broke: {0}")]
    Broken(io::Error),
    #[error("the service closed the connection without a response")]
    Closed,
    #[error("the service closed an idle connection")]
    Stale,
    #[error("the service's host does not acknowledge the request")]
    Unacknowledged,
    #[error("the service's response is not valid HTTP: {0}")]
    Response(#[from] ResponseError),
    #[error(
        "the service responds with {0}, which the gateway does not accept; the gateway does not follow redirects"
    )]
    Status(u16),
    #[error("the service's response is invalid: {0}")]
    Message(#[from] MessageError),
    #[error("the service responds with the gRPC status {0}")]
    Grpc(u32),
    #[error("the service's response is longer than {BODY_MAX} bytes")]
    TooLong,
    #[error("the service did not respond within {0:?}")]
    Timeout(Duration),
}

impl AskError {
    pub(super) fn denial(&self) -> Denial {
        match self {
            Self::Busy => Denial::TooManyExternalChecks,
            Self::Timeout(_) => Denial::CheckTimeout,
            Self::Response(_) | Self::Status(_) | Self::Message(_) | Self::Grpc(_) | Self::TooLong => {
                Denial::CheckAnswer
            }
            Self::Name(_)
            | Self::Connect(_)
            | Self::NoConnection(_)
            | Self::Tls(_)
            | Self::Broken(_)
            | Self::Closed
            | Self::Stale
            | Self::Unacknowledged => Denial::CheckUnreachable,
        }
    }

    /// Whether another server of the service may answer. No server has responded yet. The gateway repeats a question that
    /// a server may have read only if the question is repeatable (RFC 9110, 9.2.2).
    fn is_worth_another_try(&self, is_repeatable: bool) -> bool {
        match self {
            Self::Connect(_) | Self::Stale => true,
            // An invalid certificate stays invalid.
            Self::Tls(error) => error.kind() != io::ErrorKind::InvalidData,
            Self::Broken(_) | Self::Closed | Self::Unacknowledged => is_repeatable,
            Self::Busy
            | Self::Name(_)
            | Self::NoConnection(_)
            | Self::Response(_)
            | Self::Status(_)
            | Self::Message(_)
            | Self::Grpc(_)
            | Self::TooLong
            | Self::Timeout(_) => false,
        }
    }

    /// What the error says of the endpoint.
    fn failure(&self) -> Option<Failure> {
        match self {
            Self::Stale => Some(Failure::Stale),
            Self::Broken(_) | Self::Closed => Some(Failure::Reset),
            Self::Unacknowledged => Some(Failure::Unacknowledged),
            Self::Response(error) => Some(Failure::BadResponse(*error)),
            _ => None,
        }
    }
}

/// A worker's connections to a service.
#[derive(Default)]
pub(super) struct Connections {
    addresses: Addresses,
    /// The last used connection is last.
    idle: RefCell<Vec<Idle>>,
    /// The time that the last connect took.
    connecting: Cell<Duration>,
    /// Until then, a retry is pointless, because no server was there.
    away: Cell<Option<Instant>>,
}

struct Idle {
    open: Open,
    expires: Instant,
}

/// A connection that is ready for a question.
struct Open {
    carrier: Carrier,
    /// How long the service's kernel may take to acknowledge a question.
    patience: Duration,
    /// Whether the connection carried a question before.
    is_reused: bool,
}

/// The owner of a connection.
enum Carrier {
    /// The worker's connections to the service.
    Own(Stream),
    /// The pool of an endpoint.
    Endpoint(Connection, Rc<Settings>),
}

impl Open {
    /// A connection of the worker to the service. Connecting took `connecting`.
    fn own(stream: Stream, connecting: Duration) -> Self {
        let patience = UNACKNOWLEDGED + 2 * connecting;
        Self { carrier: Carrier::Own(stream), patience, is_reused: false }
    }

    fn stream(&mut self) -> &mut Stream {
        match &mut self.carrier {
            Carrier::Own(stream) => stream,
            Carrier::Endpoint(connection, _) => &mut connection.socket.stream,
        }
    }
}

/// The result of a race.
enum Raced {
    Made(TcpStream, Duration),
    Idle(Open),
}

impl Connections {
    /// Asks on an idle connection or on a new connection. Retries while no server is there.
    pub(super) async fn ask(
        self: &Rc<Self>,
        external: &External,
        server: &Server,
        question: &Question,
        place: Place,
    ) -> Result<Answer, AskError> {
        let mut place = Some(place);
        let is_away = self.away.get().is_some_and(|until| Instant::now() < until);
        let pauses = if is_away { &PAUSES[..0] } else { &PAUSES };
        let (mut tries, mut was_stale) = (0, false);
        loop {
            let pause = pauses.get(tries).copied();
            let asked = match self.open(external, server, tries).await {
                Ok(open) => {
                    // A question that cannot be repeated waits for its answer.
                    let is_watched = pause.is_some()
                        && AskError::Unacknowledged.is_worth_another_try(question.is_repeatable);
                    self.converse(open, external, question, is_watched, &mut place).await
                }
                Err(error) => Err(error),
            };
            let error = match asked {
                // A server that ended has closed other connections too, which are ignored.
                Err(AskError::Stale) if !was_stale => {
                    was_stale = true;
                    continue;
                }
                Err(error) => error,
                Ok(answer) => return Ok(answer),
            };
            if matches!(error, AskError::Unacknowledged) {
                // Other idle connections likely lead to the same server.
                self.idle.borrow_mut().clear();
            }
            let Some(pause) = pause.filter(|_| error.is_worth_another_try(question.is_repeatable)) else {
                if matches!(error, AskError::Connect(_)) {
                    self.away.set(Some(Instant::now() + AWAY));
                }
                return Err(error);
            };
            tries += 1;
            sleep(pause).await;
        }
    }

    /// Asks an endpoint of the Service that the URL names. The worker chooses the endpoint and the connection as for a
    /// request, and asks another endpoint if one fails.
    pub(super) async fn ask_endpoint(
        self: &Rc<Self>,
        external: &External,
        upstream: &Rc<LocalUpstream>,
        question: &Question,
        place: Place,
    ) -> Result<Answer, AskError> {
        let (settings, preference) = (upstream.settings(), EndpointPreference::default());
        let (mut tried, mut place) = (AvoidedEndpoints::default(), Some(place));
        let mut retries = 0;
        loop {
            let now = Instant::now();
            let turn = upstream.pick(&tried, &preference, &settings.resilience, now);
            let is_careful = !AskError::Closed.is_worth_another_try(question.is_repeatable);
            let pooled = turn.as_ref().and_then(|endpoint| upstream.pooled(endpoint, is_careful, now));
            let connection = match pooled {
                Some(connection) => connection,
                None => upstream
                    .connect((&settings, &preference), &mut tried, turn)
                    .await
                    .map_err(AskError::NoConnection)?,
            };
            let (endpoint, is_reused) = (connection.endpoint().clone(), connection.is_reused());
            upstream.count_attempt(&endpoint);
            let patience = endpoint.acknowledges_within(UNACKNOWLEDGED);
            let open = Open { carrier: Carrier::Endpoint(connection, settings.clone()), patience, is_reused };
            let is_last = retries == RETRIES;
            // A question that cannot be repeated waits for its answer.
            let is_watched =
                !is_last && AskError::Unacknowledged.is_worth_another_try(question.is_repeatable);
            let asked = Instant::now();
            let error = match self.converse(open, external, question, is_watched, &mut place).await {
                Ok(answer) => {
                    upstream.note_success(&endpoint);
                    upstream.note_status(&endpoint, 200);
                    endpoint.observe(asked.elapsed(), Instant::now());
                    return Ok(answer);
                }
                Err(error) => error,
            };
            match (&error, error.failure()) {
                (AskError::Status(status), _) => upstream.note_status(&endpoint, *status),
                (_, Some(failure)) => upstream.note_failure(&endpoint, failure),
                _ => {}
            }
            if is_last || !error.is_worth_another_try(question.is_repeatable) {
                return Err(error);
            }
            match error {
                AskError::Stale => tried.doubt(&endpoint),
                _ => tried.add(&endpoint),
            }
            retries += 1;
        }
    }

    /// Closes connections that were idle for too long, or that the service has closed.
    pub(super) fn expire(&self, now: Instant) {
        self.idle.borrow_mut().retain_mut(|idle| now < idle.expires && is_quiet(idle.open.stream()));
    }

    fn kept(&self) -> Option<Open> {
        let (mut kept, now) = (self.idle.borrow_mut(), Instant::now());
        loop {
            let mut idle = kept.pop()?;
            if now < idle.expires && is_quiet(idle.open.stream()) {
                return Some(idle.open);
            }
        }
    }

    fn keep(&self, mut open: Open, peer_timeout: Option<Duration>) {
        if let Carrier::Endpoint(connection, settings) = open.carrier {
            return connection.recycle(&settings, Instant::now(), peer_timeout);
        }
        // A second of margin, so that the connection is gone before the service closes it.
        let time =
            peer_timeout.map_or(IDLE_TIME, |peer| peer.saturating_sub(Duration::from_secs(1)).min(IDLE_TIME));
        let mut kept = self.idle.borrow_mut();
        if kept.len() < IDLE_MAX && !time.is_zero() && is_quiet(open.stream()) {
            open.is_reused = true;
            kept.push(Idle { open, expires: Instant::now() + time });
        }
    }

    /// An idle connection, or a new connection. Each attempt begins with another address.
    async fn open(&self, external: &External, service: &Server, tries: usize) -> Result<Open, AskError> {
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let addresses = self.addresses.of(service).await.map_err(AskError::Name)?;
        // This leaves enough time for the other attempts.
        let share = external.timeout().saturating_sub(PAUSES.iter().sum()) / (PAUSES.len() as u32 + 1);
        let share = share.max(external.timeout() / 8);
        let raced = timeout(share, self.race(&addresses, tries)).await.unwrap_or_else(|_| Err(late()));
        let (tcp, connecting) = match raced {
            Ok(Raced::Idle(open)) => return Ok(open),
            Ok(Raced::Made(tcp, connecting)) => (tcp, connecting),
            Err(error) => {
                self.addresses.doubt();
                return Err(AskError::Connect(error));
            }
        };
        self.connecting.set(connecting);
        self.away.set(None);
        // A peer that is gone already is noticed at the first use.
        let _ = tcp.set_nodelay(true);
        let stream = match &service.tls {
            None => Stream::Plain(tcp),
            Some((config, name)) => {
                let handshake = timeout(share, tls::handshake(tcp, config.clone(), name.clone())).await;
                Stream::Tls(handshake.unwrap_or_else(|_| Err(late())).map_err(AskError::Tls)?)
            }
        };
        Ok(Open::own(stream, connecting))
    }

    /// Connects to one of these addresses. The next connect begins as soon as one fails, or is silent for a while. A
    /// connection that becomes idle meanwhile is just as good.
    async fn race(&self, addresses: &[SocketAddr], first: usize) -> io::Result<Raced> {
        let mut next = addresses.iter().cycle().skip(first).take(addresses.len().max(CONNECTS));
        let hedge = HEDGE.max(2 * self.connecting.get());
        let mut connects = JoinSet::new();
        let (mut failures, mut failed) = (0, late());
        loop {
            if let Some(address) = next.next() {
                let (address, begun) = (*address, Instant::now());
                connects.spawn_local(async move { Ok((connect(address).await?, begun.elapsed())) });
            }
            match timeout(hedge, connects.join_next()).await {
                Ok(Some(Ok(Ok((tcp, took))))) => return Ok(Raced::Made(tcp, took)),
                Ok(Some(Ok(Err(error)))) => {
                    (failures, failed) = (failures + 1, error);
                    if failures >= REFUSED_MOST * addresses.len() {
                        return Err(failed);
                    }
                }
                Ok(Some(Err(ended))) => return Err(io::Error::other(ended)),
                Ok(None) => return Err(failed),
                Err(_) => {
                    if let Some(kept) = self.kept() {
                        return Ok(Raced::Idle(kept));
                    }
                }
            }
        }
    }

    /// Asks, and returns a reusable connection to the pool.
    async fn converse(
        self: &Rc<Self>,
        mut open: Open,
        external: &External,
        question: &Question,
        is_watched: bool,
        place: &mut Option<Place>,
    ) -> Result<Answer, AskError> {
        let (is_reused, patience, stream) = (open.is_reused, open.patience, open.stream());
        let broken = |error| if is_reused { AskError::Stale } else { AskError::Broken(error) };
        stream.write_all(&question.bytes).await.map_err(broken)?;
        let asked = Instant::now();
        if is_watched {
            let answering = poll_fn(|cx| stream.poll_readable(cx));
            if timeout(patience, answering).await.is_err() && is_unacknowledged(stream) {
                return Err(AskError::Unacknowledged);
            }
        }
        let mut buffer = spare_buffer();
        let mut head = ResponseHead::default();
        match read_head(stream, &mut buffer, &mut head, question.method).await {
            Ok(()) => {}
            // An idle connection that ends at once was about to be closed, and the server has not read the question.
            Err(AskError::Broken(_) | AskError::Closed)
                if is_reused && buffer.is_empty() && asked.elapsed() < patience =>
            {
                return Err(AskError::Stale);
            }
            Err(error) => return Err(error),
        }
        if let Some(filter) = external.filter.as_ref().filter(|filter| filter.reads_body(head.status)) {
            let text = buffer.filled()[..head.len].to_vec();
            buffer.consume(head.len);
            let content = Content::read(stream, &mut buffer, head.framing).await?;
            let is_over = content.is_some() && head.framing != ResponseFraming::UntilClose;
            if is_over && head.keep_alive && buffer.is_empty() {
                self.keep(open, head.keep_alive_timeout);
            }
            give_spare_buffer(buffer);
            return match (filter.is_grpc(), content) {
                (true, Some(content)) => content.message(&head, &text),
                (true, None) => Err(AskError::TooLong),
                (false, content) => Ok(filter.answer(&head, &text, content.map(|content| content.body))),
            };
        }
        let answer = match &external.filter {
            None => Answer::read(&head, buffer.filled(), external).ok_or(AskError::Status(head.status)),
            Some(filter) => Ok(filter.answer(&head, buffer.filled(), None)),
        };
        buffer.consume(head.len);
        if head.keep_alive
            && let Some(body) = Body::new(head.framing)
        {
            let ending =
                Ending { connections: self.clone(), open, buffer, body, timeout: head.keep_alive_timeout };
            ending.begin(place);
        } else {
            give_spare_buffer(buffer);
        }
        answer
    }
}

fn late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// Whether the peer's kernel has not even acknowledged the question.
fn is_unacknowledged(stream: &Stream) -> bool {
    stream.tcp().is_some_and(|tcp| {
        let unsent = crate::net::unsent_bytes(tcp).unwrap_or(0);
        crate::net::unacknowledged_bytes(tcp).is_ok_and(|left| left > unsent)
    })
}

/// Reads until the head of a final response is complete.
async fn read_head(
    stream: &mut Stream,
    buffer: &mut Buffer,
    head: &mut ResponseHead,
    method: Method,
) -> Result<(), AskError> {
    let (mut scan, mut interim) = (HeadScan::default(), 0);
    loop {
        if poll_fn(|cx| buffer.poll_fill(cx, stream)).await.map_err(AskError::Broken)? == 0 {
            return Err(AskError::Closed);
        }
        while !buffer.is_empty() && head.parse(buffer.filled(), &mut scan, method, &HEAD)? {
            match head.status {
                // The question asks for no other protocol.
                101 => return Err(AskError::Status(101)),
                100..200 => {}
                _ => return Ok(()),
            }
            interim += head.len;
            if interim > HEAD.bytes {
                return Err(ResponseError::HeadTooLarge.into());
            }
            buffer.consume(head.len);
            scan = HeadScan::default();
        }
    }
}

/// The whole body of a response.
#[derive(Default)]
struct Content {
    body: Vec<u8>,
    trailers: Vec<u8>,
}

impl Content {
    /// Reads a body of up to [`BODY_MAX`] bytes; `None` for a longer body.
    async fn read(
        stream: &mut Stream,
        buffer: &mut Buffer,
        framing: ResponseFraming,
    ) -> Result<Option<Self>, AskError> {
        let (mut content, mut decoder) = (Self::default(), ChunkedDecoder::default());
        loop {
            let is_over = content.take(buffer, framing, &mut decoder)?;
            if content.body.len() as u64 > BODY_MAX {
                return Ok(None);
            }
            if is_over {
                return Ok(Some(content));
            }
            if buffer.is_full() {
                return Ok(None);
            }
            match poll_fn(|cx| buffer.poll_fill(cx, stream)).await.map_err(AskError::Broken)? {
                0 if framing == ResponseFraming::UntilClose => return Ok(Some(content)),
                0 => return Err(AskError::Closed),
                _ => {}
            }
        }
    }

    /// Takes received bytes. Returns whether the body has ended.
    fn take(
        &mut self,
        buffer: &mut Buffer,
        framing: ResponseFraming,
        decoder: &mut ChunkedDecoder,
    ) -> Result<bool, AskError> {
        match framing {
            ResponseFraming::None => Ok(true),
            ResponseFraming::Length(length) => {
                let left = usize::try_from(length).unwrap_or(usize::MAX) - self.body.len();
                let taken = buffer.len().min(left);
                self.body.extend_from_slice(&buffer.filled()[..taken]);
                buffer.consume(taken);
                Ok(taken == left)
            }
            ResponseFraming::UntilClose => {
                self.body.extend_from_slice(buffer.filled());
                buffer.clear();
                Ok(false)
            }
            ResponseFraming::Chunked => loop {
                let broken = |error| AskError::Broken(io::Error::other(error));
                let (taken, chunk) = decoder.next(buffer.filled()).map_err(broken)?;
                let (is_end, is_partial) = (chunk == Chunk::End, chunk == Chunk::Partial);
                match chunk {
                    Chunk::Data(data) => self.body.extend_from_slice(data),
                    Chunk::Trailers(lines) => self.trailers.extend_from_slice(lines),
                    Chunk::Partial | Chunk::End => {}
                }
                buffer.consume(taken);
                if is_end || is_partial || self.body.len() as u64 > BODY_MAX {
                    return Ok(is_end);
                }
            },
        }
    }

    /// The meaning of a gRPC response.
    fn message(&self, head: &ResponseHead, text: &[u8]) -> Result<Answer, AskError> {
        if head.status != 200 {
            return Err(AskError::Status(head.status));
        }
        match grpc::status(head, text, &self.trailers) {
            Some(0) => Ok(grpc::answer(&self.body)?),
            Some(status) => Err(AskError::Grpc(status)),
            None => Err(MessageError::Missing.into()),
        }
    }
}

/// A response whose body must end before the connection is used again.
struct Ending {
    connections: Rc<Connections>,
    open: Open,
    buffer: Buffer,
    body: Body,
    timeout: Option<Duration>,
}

impl Ending {
    /// Ends the body at once if it is complete. Otherwise the question holds its place until the body ends.
    fn begin(mut self, place: &mut Option<Place>) {
        match self.body.take(&mut self.buffer) {
            Some(true) => self.finish(),
            Some(false) => {
                let place = place.take();
                spawn_local(async move {
                    let is_read = timeout(BODY_TIME, self.read()).await;
                    if is_read.unwrap_or(false) {
                        self.finish();
                    }
                    drop(place);
                });
            }
            None => {}
        }
    }

    /// Whether the body ended.
    async fn read(&mut self) -> bool {
        loop {
            if self.buffer.is_full() {
                return false;
            }
            let read = poll_fn(|cx| self.buffer.poll_fill(cx, self.open.stream())).await;
            match (read, self.body.take(&mut self.buffer)) {
                (Ok(1..), Some(true)) => return true,
                (Ok(1..), Some(false)) => {}
                _ => return false,
            }
        }
    }

    fn finish(self) {
        // Bytes beyond the body do not answer a later question.
        if self.buffer.is_empty() {
            self.connections.keep(self.open, self.timeout);
        }
        give_spare_buffer(self.buffer);
    }
}

/// The rest of a body that the gateway discards.
enum Body {
    Length(u64),
    Chunked { decoder: ChunkedDecoder, read: u64 },
}

impl Body {
    /// `None` if the body is too long, or ends with the connection.
    fn new(framing: ResponseFraming) -> Option<Self> {
        match framing {
            ResponseFraming::None => Some(Self::Length(0)),
            ResponseFraming::Length(length) => (length <= BODY_MAX).then_some(Self::Length(length)),
            ResponseFraming::Chunked => Some(Self::Chunked { decoder: ChunkedDecoder::default(), read: 0 }),
            ResponseFraming::UntilClose => None,
        }
    }

    /// Consumes received bytes. Returns whether the body has ended; `None` if the body is too long or invalid.
    fn take(&mut self, buffer: &mut Buffer) -> Option<bool> {
        match self {
            Self::Length(left) => {
                let taken = buffer.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                buffer.consume(taken);
                *left -= taken as u64;
                Some(*left == 0)
            }
            Self::Chunked { decoder, read } => loop {
                let (taken, chunk) = decoder.next(buffer.filled()).ok()?;
                let (is_end, is_partial) = (chunk == Chunk::End, chunk == Chunk::Partial);
                buffer.consume(taken);
                *read += taken as u64;
                if *read > BODY_MAX {
                    return None;
                }
                if is_end || is_partial {
                    return Some(is_end);
                }
            },
        }
    }
}

/// Whether the connection has nothing to read: neither a close by the service nor unexpected bytes.
fn is_quiet(stream: &mut Stream) -> bool {
    stream.is_quiet(&mut Context::from_waker(Waker::noop()))
}
