//! A client's handshake: from its first byte to a connection that carries requests, within limits.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use crate::net::TcpStream;
use rustls::Error;
use rustls::server::Acceptor;

use super::acme::is_validation;
use super::table::{Found, Session, TlsTable};
use super::turns::Turns;
use crate::buffer::Buffer;
use crate::failure::TlsFault;
use crate::stream::{RECORD_HEADER, Stream, TlsStream, record_length};

/// The initial room for the ClientHello. Most have less than 2 KiB, even with post-quantum keys.
const HELLO: usize = 2048;
/// The content type of records of the handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;
/// The limit of plaintext in a record (RFC 8446, 5.1).
const MAX_RECORD: usize = 1 << 14;
/// RFC 8446, 6.
const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;
const DECODE_ERROR: u8 = 50;
const INTERNAL_ERROR: u8 = 80;
const UNRECOGNIZED_NAME: u8 = 112;

/// The result of a client's first bytes.
pub(crate) enum Accepted {
    Tls(Box<TlsStream>, Session),
    /// The client was an ACME server that validated a challenge. The connection has no further purpose.
    Validated(Box<TlsStream>),
    /// The connection is passed through without decryption.
    Passthrough(TcpStream, Hello),
    /// The client does not use TLS: its first bytes are an HTTP request.
    ClearText(TcpStream),
}

/// The first message of a client.
pub(crate) struct Hello {
    /// The requested server name, in lower case.
    pub(crate) name: Option<Box<str>>,
    /// Whether the client is an ACME server that validates a challenge.
    is_validation: bool,
    /// All received bytes so far.
    pub(crate) records: Buffer,
}

/// A handshake that failed.
pub(crate) struct Rejected {
    pub(crate) fault: TlsFault,
    /// The connection, if an alert was written: the client should read the alert before the connection ends.
    pub(crate) stream: Option<Stream>,
}

impl From<TlsFault> for Rejected {
    fn from(fault: TlsFault) -> Self {
        Self { fault, stream: None }
    }
}

/// Performs the handshake on a new connection.
///
/// The key exchange and the signature wait for one of the worker's `turns`.
///
/// # Errors
/// Faults of the client or of the network. An alert tells the client the reason, if possible.
pub(crate) async fn accept(
    mut tcp: TcpStream,
    table: &TlsTable,
    limit: usize,
    turns: &Turns,
) -> Result<Accepted, Rejected> {
    let hello = match read_client_hello(&mut tcp, limit).await {
        Ok(Some(hello)) => hello,
        Ok(None) => return Ok(Accepted::ClearText(tcp)),
        Err(fault) => return Err(Rejected { fault, stream: Some(Stream::Plain(tcp)) }),
    };
    if hello.is_validation
        && let Some(config) = table.challenge(hello.name.as_deref())
    {
        let stream = TlsStream::server(tcp, config.clone(), hello.records);
        let mut stream = Box::new(stream.map_err(|error| TlsFault::of(&error))?);
        return match handshake(&mut stream, turns).await {
            Ok(()) => Ok(Accepted::Validated(stream)),
            Err(error) => Err(Rejected { fault: of_io(&error), stream: Some(Stream::Tls(stream)) }),
        };
    }
    let host = match table.find(hello.name.as_deref()) {
        Ok(Found::Host(host)) => host.clone(),
        Ok(Found::Passthrough) => return Ok(Accepted::Passthrough(tcp, hello)),
        Err(fault) => {
            refuse(&tcp, fault);
            return Err(Rejected { fault, stream: Some(Stream::Plain(tcp)) });
        }
    };
    let mut session = Session { name: hello.name, host: host.clone(), negotiated: (None, None) };
    let stream = TlsStream::server(tcp, host.config.clone(), hello.records);
    let mut stream = Box::new(stream.map_err(|error| TlsFault::of(&error))?);
    match handshake(&mut stream, turns).await {
        Ok(()) => {
            session.negotiated = (stream.version(), stream.cipher());
            Ok(Accepted::Tls(stream, session))
        }
        Err(error) => Err(Rejected { fault: of_io(&error), stream: Some(Stream::Tls(stream)) }),
    }
}

/// Answers the ClientHello in a turn, and then waits for the client.
async fn handshake(stream: &mut TlsStream, turns: &Turns) -> io::Result<()> {
    let answered = turns.take(poll_fn(|cx| Poll::Ready(stream.poll_handshake(cx)))).await;
    match answered {
        Poll::Ready(handshake) => handshake,
        Poll::Pending => poll_fn(|cx| stream.poll_handshake(cx)).await,
    }
}

/// Reads a ClientHello. `None` if the first bytes are an HTTP request.
///
/// # Errors
/// As for [`accept`]. The caller ends the connection so that the client can read the alert.
pub(crate) async fn read_client_hello(tcp: &mut TcpStream, limit: usize) -> Result<Option<Hello>, TlsFault> {
    // A silent client uses no memory.
    tcp.readable().await.map_err(|_| TlsFault::Closed)?;
    let mut listening = Listening {
        records: Buffer::with_size(HELLO),
        fed: 0,
        next_record: 0,
        acceptor: Acceptor::default(),
        limit,
    };
    match poll_fn(|cx| listening.poll(cx, tcp)).await {
        Ok(Heard::Hello { name, is_validation }) => {
            Ok(Some(Hello { name, is_validation, records: listening.records }))
        }
        Ok(Heard::ClearText) => Ok(None),
        Err(Broken { fault, alert }) => {
            // A client that is gone needs no alert.
            let _ = tcp.try_write(&alert);
            Err(fault)
        }
    }
}

/// Rejects a client with an alert.
pub(crate) fn refuse(tcp: &TcpStream, fault: TlsFault) {
    let why = if fault == TlsFault::UnknownName { UNRECOGNIZED_NAME } else { INTERNAL_ERROR };
    // A client that is gone needs no alert.
    let _ = tcp.try_write(&alert(why));
}

/// The state of reading a ClientHello.
struct Listening {
    records: Buffer,
    /// The number of bytes that the acceptor has received.
    fed: usize,
    /// The position of the first record with an unchecked header.
    next_record: usize,
    acceptor: Acceptor,
    limit: usize,
}

enum Heard {
    /// The requested server name, in lower case, and whether the client is an ACME server that validates a challenge.
    Hello {
        name: Option<Box<str>>,
        is_validation: bool,
    },
    ClearText,
}

/// Why there is no ClientHello, and the records that tell the client.
struct Broken {
    fault: TlsFault,
    alert: Vec<u8>,
}

impl From<TlsFault> for Broken {
    fn from(fault: TlsFault) -> Self {
        let why = match fault {
            TlsFault::NotTls => UNEXPECTED_MESSAGE,
            TlsFault::HelloTooLarge => DECODE_ERROR,
            _ => return Self { fault, alert: Vec::new() },
        };
        Self { fault, alert: alert(why).into() }
    }
}

impl Listening {
    /// Reads until the requested host is known.
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
            if self.has_oversized_record() {
                let alert = alert(RECORD_OVERFLOW).into();
                return Poll::Ready(Err(Broken { fault: TlsFault::Protocol, alert }));
            }
            if !has_whole_record(self.records.filled()) {
                continue;
            }
            if let Some(heard) = self.feed()? {
                return Poll::Ready(Ok(heard));
            }
        }
    }

    /// Whether a record header states a length above the limit. rustls would send `decode_error`.
    fn has_oversized_record(&mut self) -> bool {
        while let Some(length) = record_length(self.records.filled(), self.next_record) {
            if length > MAX_RECORD {
                return true;
            }
            self.next_record += RECORD_HEADER + length;
        }
        false
    }

    /// Passes new bytes to the acceptor. Returns the server name once it is known.
    fn feed(&mut self) -> Result<Option<Heard>, Broken> {
        let mut new = &self.records.filled()[self.fed..];
        while !new.is_empty() {
            self.acceptor.read_tls(&mut new).map_err(|_| TlsFault::Protocol)?;
            self.fed = self.records.len() - new.len();
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let hello = accepted.client_hello();
                    let name = hello.server_name().map(|name| name.to_ascii_lowercase().into());
                    return Ok(Some(Heard::Hello { name, is_validation: is_validation(&hello) }));
                }
                Err((error, mut told)) => {
                    let mut alert = Vec::new();
                    // Writing to a Vec does not fail.
                    let _ = told.write_all(&mut alert);
                    if alert.is_empty()
                        && let Some(why) = unsaid(&error)
                    {
                        alert.extend(self::alert(why));
                    }
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

/// The alert for an error for which rustls sends none (0.23.46).
fn unsaid(error: &Error) -> Option<u8> {
    match error {
        Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerMisbehaved(_) => Some(UNEXPECTED_MESSAGE),
        Error::InvalidMessage(_) => Some(DECODE_ERROR),
        _ => None,
    }
}

/// Whether the first record is complete.
fn has_whole_record(records: &[u8]) -> bool {
    record_length(records, 0).is_some_and(|length| records.len() >= RECORD_HEADER + length)
}

fn of_io(error: &io::Error) -> TlsFault {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).map_or(TlsFault::Closed, TlsFault::of)
}
