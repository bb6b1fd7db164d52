//! The behaviour of a backend for connections and requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Request;

/// The behaviour of a backend. Create a behaviour with a constructor, and change it with the methods that take `self`:
/// `Behaviour::ok().delay(Duration::from_millis(20)).close_after(3)`.
#[derive(Clone, Debug)]
pub struct Behaviour {
    pub(super) answer: Answer,
    pub(super) delay: Duration,
    pub(super) interim: Vec<u8>,
    pub(super) close_after: Option<u64>,
    pub(super) then_close: bool,
    pub(super) early: bool,
    pub(super) continues: bool,
    pub(super) on_accept: OnAccept,
    pub(super) read_pace: Option<(usize, Duration)>,
}

/// The handling of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnAccept {
    Serve,
    Close,
    Hold,
}

/// The response to a request.
#[derive(Clone)]
pub(super) enum Answer {
    Metadata,
    Echo,
    Sized { status: u16, length: usize },
    Chunked { chunks: Vec<Vec<u8>>, pause: Duration, trailers: Vec<(String, String)> },
    Raw(Arc<[u8]>),
    Never,
    Close,
    Reset,
    Upgrade,
    Choose(Arc<dyn Fn(&Request) -> Behaviour + Send + Sync>),
}

impl Behaviour {
    /// Responds with 200 and about 1 KB of text about the server and the request, called server metadata in published
    /// experiments. The text contains the request's `X-Id` and `X-Request-ID`.
    pub fn ok() -> Self {
        Self::new(Answer::Metadata)
    }

    /// Responds with 200. The body is the received request, head and body, byte for byte.
    pub fn echo() -> Self {
        Self::new(Answer::Echo)
    }

    /// Responds with this status and a short body (without a body if the status forbids a body).
    pub fn status(status: u16) -> Self {
        Self::new(Answer::Sized { status, length: 16 })
    }

    /// Responds with 200 and a body of this many bytes.
    pub fn sized(length: usize) -> Self {
        Self::new(Answer::Sized { status: 200, length })
    }

    /// Responds with 200, these chunks with a pause after each, and these trailer fields.
    pub fn chunked<C: Into<Vec<u8>>>(
        chunks: impl IntoIterator<Item = C>,
        pause: Duration,
        trailers: &[(&str, &str)],
    ) -> Self {
        let chunks = chunks.into_iter().map(Into::into).collect();
        let trailers = trailers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self::new(Answer::Chunked { chunks, pause, trailers })
    }

    /// Responds to any request with exactly these bytes.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Answer::Raw(bytes.into().into()))
    }

    /// Sends bytes that are not HTTP, and closes the connection.
    pub fn garbage() -> Self {
        Self::raw(*b"\x00\xffnot http at all\r\n\r\n").then_close()
    }

    /// Sends a body that is `extra` bytes longer than the Content-Length. The connection stays open.
    pub fn too_much(extra: usize) -> Self {
        Self::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody{}", "x".repeat(extra)))
    }

    /// Sends a body that is `missing` bytes shorter than the Content-Length, and closes the connection.
    pub fn too_little(missing: usize) -> Self {
        Self::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\nbody", 4 + missing)).then_close()
    }

    /// Reads requests and never responds.
    pub fn silent() -> Self {
        Self::new(Answer::Never)
    }

    /// Closes the connection after a request's head, without a response.
    pub fn close_on_request() -> Self {
        Self::new(Answer::Close).early()
    }

    /// Resets the connection after a request's head.
    pub fn reset_on_request() -> Self {
        Self::new(Answer::Reset).early()
    }

    /// Closes each connection after accept.
    pub fn close_on_accept() -> Self {
        Self { on_accept: OnAccept::Close, ..Self::ok() }
    }

    /// Accepts connections and neither reads nor writes.
    pub fn hold_on_accept() -> Self {
        Self { on_accept: OnAccept::Hold, ..Self::ok() }
    }

    /// Responds with 101 to a request with an Upgrade field, then echoes every byte (a WebSocket without frames).
    /// Responds with 200 to a request without Upgrade.
    pub fn upgrade() -> Self {
        Self::new(Answer::Upgrade)
    }

    /// Selects a behaviour for each request. The connection-level parts of the selected behaviour (on accept, reading
    /// pace) are ignored.
    pub fn choose(decide: impl Fn(&Request) -> Self + Send + Sync + 'static) -> Self {
        Self::new(Answer::Choose(Arc::new(decide))).early()
    }

    /// Selects a behaviour for each request after its body.
    pub fn choose_by_body(decide: impl Fn(&Request) -> Self + Send + Sync + 'static) -> Self {
        Self::new(Answer::Choose(Arc::new(decide)))
    }

    /// Waits this long before each response.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Sends these bytes, such as `HTTP/1.1 103 Early Hints\r\n\r\n`, before each response.
    #[must_use]
    pub fn interim(self, head: impl Into<Vec<u8>>) -> Self {
        Self { interim: head.into(), ..self }
    }

    /// Closes a connection after this many responses, without notice (no `Connection: close`).
    #[must_use]
    pub fn close_after(self, answers: u64) -> Self {
        Self { close_after: Some(answers), ..self }
    }

    /// Closes the connection after each response, without notice.
    #[must_use]
    pub fn then_close(self) -> Self {
        Self { then_close: true, ..self }
    }

    /// Responds before reading the request's body, and reads the body afterwards.
    #[must_use]
    pub fn early(self) -> Self {
        Self { early: true, ..self }
    }

    /// Does not send `100 Continue` to a request that expects it.
    #[must_use]
    pub fn without_continue(self) -> Self {
        Self { continues: false, ..self }
    }

    /// Reads at most `bytes` at a time, with a pause after each.
    #[must_use]
    pub fn slow_reader(self, bytes: usize, pause: Duration) -> Self {
        Self { read_pace: Some((bytes, pause)), ..self }
    }

    fn new(answer: Answer) -> Self {
        Self {
            answer,
            delay: Duration::ZERO,
            interim: Vec::new(),
            close_after: None,
            then_close: false,
            early: false,
            continues: true,
            on_accept: OnAccept::Serve,
            read_pace: None,
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "metadata",
            Self::Echo => "echo",
            Self::Sized { .. } => "sized",
            Self::Chunked { .. } => "chunked",
            Self::Raw(_) => "raw",
            Self::Never => "never",
            Self::Close => "close",
            Self::Reset => "reset",
            Self::Upgrade => "upgrade",
            Self::Choose(_) => "choose",
        })
    }
}
