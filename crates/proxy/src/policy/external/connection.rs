//! How a service is spoken with: a request without a body, the head of its response, and as much of the response's body as is
//! needed to use the connection again.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use sluicegate_http1::{
    Chunk, ChunkedDecoder, HeadLimits, HeadScan, Method, ResponseError, ResponseFraming, ResponseHead,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use super::External;
use super::addresses::Addresses;
use super::answer::Answer;
use super::local::Place;
use crate::failure::Denial;
use crate::stream::Stream;
use crate::tls;
use crate::worker::{Buffer, give_spare_buffer, spare_buffer};

/// How large the head of a response may be. Interim responses before it may take as much together.
const HEAD: HeadLimits = HeadLimits { bytes: 16 * 1024, headers: 100 };

/// How much of a response's body is read, so that the connection can be used again. With more to come it is closed.
const BODY_MAX: u64 = 64 * 1024;

/// How long the rest of a body may take. The answer does not wait for it.
const BODY_TIME: Duration = Duration::from_secs(1);

/// How many unused connections a worker keeps to a service.
const IDLE_MAX: usize = 64;

/// How long it keeps one, unless the service says less.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// How many connects to one address a question has under way at most, each begun when the one before was silent for [`HEDGE`]: in a
/// cluster a service has one address and many servers behind it, so that another connect may reach another one.
const CONNECTS: usize = 4;

/// After how long without an answer a connect is raced by the next one, or by a connection that has become free.
const HEDGE: Duration = Duration::from_millis(50);

/// How long a question may stay unacknowledged by the service's kernel, as those of endpoints (`Resilience::unacknowledged`).
const UNACKNOWLEDGED: Duration = Duration::from_millis(60);

/// Before the tries that follow the first one. A server that was killed is taken off its service in this time, more or less.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(25), Duration::from_millis(100), Duration::from_millis(300)];

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    #[error("too many questions are waiting for their answer")]
    Busy,
    #[error("its name cannot be looked up: {0}")]
    Name(io::Error),
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("no TLS: {0}")]
    Tls(io::Error),
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    #[error("it closed the connection without an answer")]
    Closed,
    #[error("a kept connection was closed")]
    Stale,
    #[error("its kernel does not acknowledge what it is sent")]
    Unacknowledged,
    #[error("its response is no good HTTP: {0}")]
    Response(#[from] ResponseError),
    #[error("it answers {0}, which is none of 2xx, 401 and 403; redirects are not followed")]
    Status(u16),
    #[error("it did not answer within {0:?}")]
    Timeout(Duration),
}

impl AskError {
    pub(super) fn denial(&self) -> Denial {
        match self {
            Self::Busy => Denial::ChecksBusy,
            Self::Timeout(_) => Denial::CheckTimeout,
            Self::Response(_) | Self::Status(_) => Denial::CheckAnswer,
            Self::Name(_)
            | Self::Connect(_)
            | Self::Tls(_)
            | Self::Broken(_)
            | Self::Closed
            | Self::Stale
            | Self::Unacknowledged => Denial::CheckUnreachable,
        }
    }

    /// Whether another server of the service may answer: nobody has said anything yet. What may have been heard is said once more
    /// only by a method that changes nothing (RFC 9110, 9.2.2).
    fn is_worth_another_try(&self, method: Method) -> bool {
        match self {
            Self::Connect(_) | Self::Stale => true,
            // Certificates stay what they are.
            Self::Tls(error) => error.kind() != io::ErrorKind::InvalidData,
            Self::Broken(_) | Self::Closed | Self::Unacknowledged => method != Method::Post,
            Self::Busy | Self::Name(_) | Self::Response(_) | Self::Status(_) | Self::Timeout(_) => false,
        }
    }
}

/// A worker's connections to a service.
#[derive(Default)]
pub(super) struct Connections {
    addresses: Addresses,
    /// The last used last.
    idle: RefCell<Vec<Idle>>,
}

struct Idle {
    stream: Stream,
    expires: Instant,
}

/// A connection on which a question can be asked.
struct Open {
    stream: Stream,
    /// Whether others have asked there before.
    is_reused: bool,
}

/// What was there first.
enum Raced {
    Made(TcpStream),
    Kept(Open),
}

impl Connections {
    /// Asks on a kept connection, or else on a new one, and again while nobody is there.
    pub(super) async fn ask(
        self: &Rc<Self>,
        external: &External,
        question: &[u8],
        place: Place,
    ) -> Result<Answer, AskError> {
        let mut place = Some(place);
        let mut pauses = PAUSES.into_iter();
        loop {
            let asked = match self.open(external).await {
                Ok(open) => self.converse(open, external, question, &mut place).await,
                Err(error) => Err(error),
            };
            let error = match asked {
                Err(AskError::Stale) => continue,
                Err(error) => error,
                Ok(answer) => return Ok(answer),
            };
            if matches!(error, AskError::Unacknowledged) {
                // Others are likely to lead to the same server.
                self.idle.borrow_mut().clear();
            }
            match pauses.next() {
                Some(pause) if error.is_worth_another_try(external.method) => sleep(pause).await,
                _ => return Err(error),
            }
        }
    }

    /// Closes those that nobody used for long, or that the service has closed.
    pub(super) fn expire(&self, now: Instant) {
        self.idle.borrow_mut().retain_mut(|idle| now < idle.expires && is_quiet(&mut idle.stream));
    }

    fn kept(&self) -> Option<Open> {
        let (mut kept, now) = (self.idle.borrow_mut(), Instant::now());
        loop {
            let mut idle = kept.pop()?;
            if now < idle.expires && is_quiet(&mut idle.stream) {
                return Some(Open { stream: idle.stream, is_reused: true });
            }
        }
    }

    fn keep(&self, mut stream: Stream, peer_timeout: Option<Duration>) {
        // A second of margin, so that it is gone before the service closes it.
        let time =
            peer_timeout.map_or(IDLE_TIME, |peer| peer.saturating_sub(Duration::from_secs(1)).min(IDLE_TIME));
        let mut kept = self.idle.borrow_mut();
        if kept.len() < IDLE_MAX && !time.is_zero() && is_quiet(&mut stream) {
            kept.push(Idle { stream, expires: Instant::now() + time });
        }
    }

    /// A connection that was kept, or a new one.
    async fn open(&self, external: &External) -> Result<Open, AskError> {
        if let Some(kept) = self.kept() {
            return Ok(kept);
        }
        let service = &external.service;
        let addresses = self.addresses.of(service).await.map_err(AskError::Name)?;
        // Enough time is left for the other tries.
        let share = external.timeout() / (PAUSES.len() as u32 + 1);
        let raced = timeout(share, self.race(&addresses)).await.unwrap_or_else(|late| Err(late.into()));
        let tcp = match raced {
            Ok(Raced::Kept(open)) => return Ok(open),
            Ok(Raced::Made(tcp)) => tcp,
            Err(error) => {
                self.addresses.doubt();
                return Err(AskError::Connect(error));
            }
        };
        // A peer that is gone already says so at the first use.
        let _ = tcp.set_nodelay(true);
        let stream = match &service.tls {
            None => Stream::Plain(tcp),
            Some((config, name)) => {
                let secured = tls::handshake(tcp, config.clone(), name.clone()).await;
                Stream::Tls(secured.map_err(AskError::Tls)?)
            }
        };
        Ok(Open { stream, is_reused: false })
    }

    /// Connects to one of these: to the next one as soon as one fails, or says nothing for a while. What others have finished with
    /// meanwhile is as good.
    async fn race(&self, addresses: &[SocketAddr]) -> io::Result<Raced> {
        let mut next = addresses.iter().cycle().take(addresses.len().max(CONNECTS));
        let mut connects = JoinSet::new();
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        loop {
            if let Some(address) = next.next() {
                connects.spawn_local(TcpStream::connect(*address));
            }
            match timeout(HEDGE, connects.join_next()).await {
                Ok(Some(Ok(Ok(tcp)))) => return Ok(Raced::Made(tcp)),
                Ok(Some(Ok(Err(error)))) => failed = error,
                Ok(Some(Err(ended))) => failed = io::Error::other(ended),
                Ok(None) => return Err(failed),
                Err(_) => {
                    if let Some(kept) = self.kept() {
                        return Ok(Raced::Kept(kept));
                    }
                }
            }
        }
    }

    /// Asks, and keeps the connection if it can be used again.
    async fn converse(
        self: &Rc<Self>,
        Open { mut stream, is_reused }: Open,
        external: &External,
        question: &[u8],
        place: &mut Option<Place>,
    ) -> Result<Answer, AskError> {
        let broken = |error| if is_reused { AskError::Stale } else { AskError::Broken(error) };
        stream.write_all(question).await.map_err(broken)?;
        let answering = poll_fn(|cx| stream.poll_readable(cx));
        if timeout(UNACKNOWLEDGED, answering).await.is_err() && is_unacknowledged(&stream) {
            return Err(AskError::Unacknowledged);
        }
        let mut buffer = spare_buffer();
        let mut head = ResponseHead::default();
        match read_head(&mut stream, &mut buffer, &mut head, external).await {
            Ok(()) => {}
            // Before its first byte, a connection that was kept is only known to be closed.
            Err(AskError::Broken(_) | AskError::Closed) if is_reused && buffer.is_empty() => {
                return Err(AskError::Stale);
            }
            Err(error) => return Err(error),
        }
        let answer = Answer::read(&head, buffer.filled(), external).ok_or(AskError::Status(head.status));
        buffer.consume(head.len);
        if head.keep_alive
            && let Some(body) = Body::new(head.framing)
        {
            let ending =
                Ending { connections: self.clone(), stream, buffer, body, timeout: head.keep_alive_timeout };
            ending.begin(place);
        } else {
            give_spare_buffer(buffer);
        }
        answer
    }
}

/// Whether the peer's kernel has not even acknowledged what it was sent.
fn is_unacknowledged(stream: &Stream) -> bool {
    stream.tcp().is_some_and(|tcp| sluicegate_sys::unacknowledged_bytes(tcp).is_ok_and(|left| left > 0))
}

/// Reads until the head of a final response is there.
async fn read_head(
    stream: &mut Stream,
    buffer: &mut Buffer,
    head: &mut ResponseHead,
    external: &External,
) -> Result<(), AskError> {
    let (mut scan, mut interim) = (HeadScan::default(), 0);
    loop {
        if poll_fn(|cx| buffer.poll_fill(cx, stream)).await.map_err(AskError::Broken)? == 0 {
            return Err(AskError::Closed);
        }
        while !buffer.is_empty() && head.parse(buffer.filled(), &mut scan, external.method, &HEAD)? {
            match head.status {
                // Nobody has asked for another protocol.
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

/// A response whose body has to come to its end before the connection is used again.
struct Ending {
    connections: Rc<Connections>,
    stream: Stream,
    buffer: Buffer,
    body: Body,
    timeout: Option<Duration>,
}

impl Ending {
    /// Ends it at once if all of it is there. Otherwise the question keeps its place until the rest is.
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

    /// Whether the body came to its end.
    async fn read(&mut self) -> bool {
        loop {
            if self.buffer.is_full() {
                return false;
            }
            let read = poll_fn(|cx| self.buffer.poll_fill(cx, &mut self.stream)).await;
            match (read, self.body.take(&mut self.buffer)) {
                (Ok(1..), Some(true)) => return true,
                (Ok(1..), Some(false)) => {}
                _ => return false,
            }
        }
    }

    fn finish(self) {
        // What came beyond the body is no answer to a question to come.
        if self.buffer.is_empty() {
            self.connections.keep(self.stream, self.timeout);
        }
        give_spare_buffer(self.buffer);
    }
}

/// What is to come of a body that nobody wants.
enum Body {
    Length(u64),
    Chunked { decoder: ChunkedDecoder, read: u64 },
}

impl Body {
    /// Nothing if it is too long, or ends with the connection.
    fn new(framing: ResponseFraming) -> Option<Self> {
        match framing {
            ResponseFraming::None => Some(Self::Length(0)),
            ResponseFraming::Length(length) => (length <= BODY_MAX).then_some(Self::Length(length)),
            ResponseFraming::Chunked => Some(Self::Chunked { decoder: ChunkedDecoder::default(), read: 0 }),
            ResponseFraming::UntilClose => None,
        }
    }

    /// Takes what came of it, and says whether it has ended; nothing if it is too long, or broken.
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

/// Whether nothing can be read: neither the service's close, nor bytes that nobody asked for.
fn is_quiet(stream: &mut Stream) -> bool {
    stream.is_quiet(&mut Context::from_waker(Waker::noop()))
}
