//! A client's handshake: from its first byte to a connection that carries requests, within limits.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use rustls::Error;
use rustls::server::Acceptor;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use super::stream::TlsStream;
use super::table::{Found, Session, TlsTable};
use crate::failure::TlsFault;
use crate::worker::Buffer;

/// The room for what a client says first. Most say less than 2 KiB, with post-quantum keys too.
const HELLO: usize = 2048;
/// The content type of records of the handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;
const RECORD_HEADER: usize = 5;
/// RFC 8446, 6.
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNIZED_NAME: u8 = 112;

/// What a client's first bytes have led to.
pub(crate) enum Accepted {
    Tls(Box<TlsStream>, Session),
    /// TLS is spoken with somebody else.
    Passthrough(TcpStream, Hello),
    /// The client speaks, but not TLS: its first bytes are those of an HTTP request.
    ClearText(TcpStream),
}

/// What a client says first.
pub(crate) struct Hello {
    /// The name that it asks for, in lower case.
    pub(crate) name: Option<Box<str>>,
    /// All that came so far.
    pub(crate) records: Buffer,
}

/// Carries out the handshake on a connection that has just come.
///
/// A key exchange and a signature take as long as ten requests or more. One at a time has its `turn`, and whatever else
/// the worker has to do comes in between: else those who have a connection wait until all who want one have theirs.
///
/// # Errors
/// What the client, or the network, did wrong. The client has been told by an alert where that was possible.
pub(crate) async fn accept(
    mut tcp: TcpStream,
    table: &TlsTable,
    limit: usize,
    turn: &Semaphore,
) -> Result<Accepted, TlsFault> {
    let Some(hello) = hear(&mut tcp, limit).await? else { return Ok(Accepted::ClearText(tcp)) };
    let host = match table.find(hello.name.as_deref()) {
        Ok(Found::Host(host)) => host.clone(),
        Ok(Found::Passthrough) => return Ok(Accepted::Passthrough(tcp, hello)),
        Err(fault) => {
            refuse(&tcp, fault);
            return Err(fault);
        }
    };
    let session = Session { name: hello.name, host: host.clone() };
    let stream = TlsStream::server(tcp, host.config.clone(), hello.records);
    let mut stream = Box::new(stream.map_err(|error| TlsFault::of(&error))?);
    let permit = turn.acquire().await;
    let answered = poll_fn(|cx| Poll::Ready(stream.poll_handshake(cx))).await;
    // Until the worker has looked at its sockets.
    yield_now().await;
    drop(permit);
    let handshake = match answered {
        Poll::Ready(handshake) => handshake,
        Poll::Pending => poll_fn(|cx| stream.poll_handshake(cx)).await,
    };
    handshake.map_err(|error| of_io(&error))?;
    Ok(Accepted::Tls(stream, session))
}

/// Reads what a client says first. `None` if that is a request in clear text.
///
/// # Errors
/// As those of [`accept`].
pub(crate) async fn hear(tcp: &mut TcpStream, limit: usize) -> Result<Option<Hello>, TlsFault> {
    // Nothing is held for a client that says nothing.
    tcp.readable().await.map_err(|_| TlsFault::Closed)?;
    let mut listening =
        Listening { records: Buffer::with_size(HELLO), fed: 0, acceptor: Acceptor::default(), limit };
    match poll_fn(|cx| listening.poll(cx, tcp)).await {
        Ok(Heard::Name(name)) => Ok(Some(Hello { name, records: listening.records })),
        Ok(Heard::ClearText) => Ok(None),
        Err(Broken { fault, alert }) => {
            // Nobody is there any more who could be told.
            let _ = tcp.try_write(&alert);
            Err(fault)
        }
    }
}

/// Tells a client that it is not served.
pub(crate) fn refuse(tcp: &TcpStream, fault: TlsFault) {
    let why = if fault == TlsFault::UnknownName { UNRECOGNIZED_NAME } else { INTERNAL_ERROR };
    // Who is gone need not be told.
    let _ = tcp.try_write(&alert(why));
}

/// What has come of what a client says first.
struct Listening {
    records: Buffer,
    /// How much of the records the acceptor knows.
    fed: usize,
    acceptor: Acceptor,
    limit: usize,
}

enum Heard {
    /// The name that the client asks for, in lower case.
    Name(Option<Box<str>>),
    ClearText,
}

/// Why there is no hello, and the records that tell the client.
struct Broken {
    fault: TlsFault,
    alert: Vec<u8>,
}

impl From<TlsFault> for Broken {
    fn from(fault: TlsFault) -> Self {
        Self { fault, alert: Vec::new() }
    }
}

impl Listening {
    /// Reads until the client has said which host it wants.
    fn poll(&mut self, cx: &mut Context<'_>, tcp: &mut TcpStream) -> Poll<Result<Heard, Broken>> {
        loop {
            if self.records.len() >= self.limit {
                return Poll::Ready(Err(TlsFault::HelloTooLarge.into()));
            }
            self.records.reserve(1, self.limit.next_power_of_two());
            match ready!(self.records.poll_fill(cx, tcp)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(Err(TlsFault::Closed.into())),
            }
            match self.records.filled() {
                [HANDSHAKE, ..] => {}
                // The first letter of a method.
                [b'A'..=b'Z', ..] => return Poll::Ready(Ok(Heard::ClearText)),
                _ => return Poll::Ready(Err(TlsFault::NotTls.into())),
            }
            if !has_whole_record(self.records.filled()) {
                continue;
            }
            if let Some(heard) = self.feed()? {
                return Poll::Ready(Ok(heard));
            }
        }
    }

    /// Tells the acceptor what is new. Gives the name once it is known.
    fn feed(&mut self) -> Result<Option<Heard>, Broken> {
        let mut new = &self.records.filled()[self.fed..];
        while !new.is_empty() {
            self.acceptor.read_tls(&mut new).map_err(|_| TlsFault::Protocol)?;
            self.fed = self.records.len() - new.len();
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                    return Ok(Some(Heard::Name(name.map(Into::into))));
                }
                Err((error, mut told)) => {
                    let mut alert = Vec::new();
                    // Writing to a Vec does not fail.
                    let _ = told.write_all(&mut alert);
                    return Err(Broken { fault: TlsFault::of(&error), alert });
                }
            }
        }
        Ok(None)
    }
}

/// A fatal alert as a record (RFC 8446, 6).
fn alert(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description]
}

/// Whether the first record is there to its end.
fn has_whole_record(records: &[u8]) -> bool {
    let length =
        records.get(3..RECORD_HEADER).map(|length| usize::from(u16::from_be_bytes([length[0], length[1]])));
    length.is_some_and(|length| records.len() >= RECORD_HEADER + length)
}

fn of_io(error: &io::Error) -> TlsFault {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).map_or(TlsFault::Closed, TlsFault::of)
}
