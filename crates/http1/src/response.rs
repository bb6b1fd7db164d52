//! Response heads.

use std::mem::MaybeUninit;
use std::time::Duration;

use httparse::{Error, Status};
use memchr::memchr;

use crate::fields::{Coding, Fields};
use crate::head;
use crate::header::{Known, Line};
use crate::limits::{HeadLimits, MAX_HEADERS};
use crate::method::Method;
use crate::request::Version;
use crate::response_error::ResponseError;
use crate::scan::{HeadScan, Start};
use crate::span::Span;

/// The framing of the body of a response (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseFraming {
    /// No body, for any headers: a response to HEAD, 1xx, 204, 304.
    #[default]
    None,
    /// This many bytes, below 2^63; may be 0.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// All bytes until the connection is closed.
    UntilClose,
}

/// The head of a response: its status line and its header lines.
///
/// A head is reusable: [`parse`](Self::parse) overwrites the head and keeps the memory of the lines. A head holds no
/// bytes; its spans refer to the parsed buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status, 100 to 999. Statuses over 599 are undefined but in use, and a gateway forwards them.
    pub status: u16,
    /// The version.
    pub version: Version,
    /// The reason phrase, which may be empty.
    pub reason: Span,
    /// The header lines, in the order of the response.
    pub lines: Vec<Line>,
    /// The framing of the body.
    pub framing: ResponseFraming,
    /// Whether the connection can carry another request after the end of the body (RFC 9112, 9.3).
    pub keep_alive: bool,
    /// The idle timeout that the server announces: `Keep-Alive: timeout=SECONDS`.
    pub keep_alive_timeout: Option<Duration>,
    /// Whether the connection now speaks another protocol: the status is 101.
    pub upgrade: bool,
    /// The protocols that a 101 changes to: the first Upgrade line, if Connection has the `upgrade` option and the
    /// version is 1.1 (RFC 9110, 7.8).
    pub protocols: Option<Span>,
    /// The length of the head, from the beginning of the buffer to the end of the blank line.
    pub len: usize,
}

impl ResponseHead {
    /// Parses the head at the beginning of `buf`, of a response to a request with this method. `Ok(true)`: the head is
    /// complete, and [`len`](Self::len) bytes long; bytes after the head are ignored. `Ok(false)`: more bytes are
    /// needed; call again with the same bytes and more, and with the same `scan`. The fields are valid only after
    /// `Ok(true)`. After an interim response (1xx) another response follows.
    ///
    /// # Errors
    ///
    /// The reason why the response is invalid, or cannot be interpreted safely.
    #[inline]
    pub fn parse(
        &mut self,
        buf: &[u8],
        scan: &mut HeadScan,
        request_method: Method,
        limits: &HeadLimits,
    ) -> Result<bool, ResponseError> {
        let window = limits.window(buf);
        // As in `RequestHead::parse`, the parser runs at once, or again after the scan has found the end.
        if scan.is_fresh() || scan.advance(window, Start::Response)? {
            if self.parse_whole(window, request_method, limits)? {
                *scan = HeadScan::default();
                return Ok(true);
            }
            scan.advance(window, Start::Response)?;
        }
        if limits.exhausted_by(window) { Err(ResponseError::HeadTooLarge) } else { Ok(false) }
    }

    /// The value of the first line of this kind.
    #[inline]
    pub fn header<'b>(&self, buf: &'b [u8], known: Known) -> Option<&'b [u8]> {
        self.lines.iter().find(|line| line.known == known).map(|line| line.value.of(buf))
    }

    /// The value of the first line with this name, in any case.
    pub fn find<'b>(&self, buf: &'b [u8], name: &str) -> Option<&'b [u8]> {
        let named = |line: &&Line| line.name.of(buf).eq_ignore_ascii_case(name.as_bytes());
        self.lines.iter().find(named).map(|line| line.value.of(buf))
    }

    fn parse_whole(
        &mut self,
        window: &[u8],
        request_method: Method,
        limits: &HeadLimits,
    ) -> Result<bool, ResponseError> {
        // `httparse` skips empty lines, which a client must not do (RFC 9112, 2.2 is about servers).
        if matches!(window.first(), Some(byte) if *byte != b'H') {
            return Err(ResponseError::InvalidStatusLine);
        }
        let mut storage = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let room = &mut storage[..limits.max_headers()];
        let len = match config.parse_response_with_uninit_headers(&mut parsed, window, room) {
            Ok(Status::Complete(len)) => len,
            Ok(Status::Partial) => return Ok(false),
            Err(error) => return Err(response_fault(window, error)),
        };
        let (Some(status @ 100..), Some(version)) = (parsed.code, parsed.version) else {
            return Err(ResponseError::InvalidStatusLine);
        };
        let head = &window[..len];
        self.len = len;
        self.status = status;
        self.version = if version == 0 { Version::Http10 } else { Version::Http11 };
        head::fill(&mut self.lines, head, parsed.headers)?;
        self.reason = self.find_reason(head)?;
        self.take_meaning(head, request_method)?;
        Ok(true)
    }

    /// The reason phrase, which `httparse` omits if it is not ASCII.
    #[inline]
    fn find_reason(&self, head: &[u8]) -> Result<Span, ResponseError> {
        const STATUS_END: usize = "HTTP/1.1 200".len();
        let line_end = self.lines.first().map_or(head.len() - 2, |line| line.name.start as usize);
        head::ensure_crlf(head, line_end)?;
        let end = line_end - 2;
        Ok(Span::new((STATUS_END + 1).min(end), end))
    }

    #[inline]
    fn take_meaning(&mut self, head: &[u8], request_method: Method) -> Result<(), ResponseError> {
        let fields = Fields::read(head, &mut self.lines, self.version)?;
        self.framing = if self.is_without_body(request_method) {
            ResponseFraming::None
        } else {
            match (fields.coding, fields.length) {
                (Coding::Absent, None) => ResponseFraming::UntilClose,
                (Coding::Absent, Some(length)) => ResponseFraming::Length(length),
                _ => ResponseFraming::Chunked,
            }
        };
        if matches!(self.status, 100..200 | 204) {
            // RFC 9110, 8.6: see `Line::hop_by_hop`.
            for line in self.lines.iter_mut().filter(|line| line.known == Known::ContentLength) {
                line.hop_by_hop = true;
            }
        }
        self.upgrade = self.status == 101;
        self.protocols = if self.upgrade { fields.upgrade(self.version) } else { None };
        self.keep_alive_timeout = fields.keep_alive_timeout;
        self.keep_alive =
            fields.keep_alive(self.version) && self.framing != ResponseFraming::UntilClose && !self.upgrade;
        Ok(())
    }

    /// RFC 9112, 6.3, items 1 and 2.
    #[inline]
    fn is_without_body(&self, request_method: Method) -> bool {
        match self.status {
            100..200 | 204 | 304 => true,
            200..300 if request_method == Method::Connect => true,
            _ => request_method == Method::Head,
        }
    }
}

/// The fault in a response head that `httparse` rejected.
#[cold]
fn response_fault(window: &[u8], error: Error) -> ResponseError {
    match error {
        Error::TooManyHeaders => ResponseError::TooManyHeaders,
        Error::Version if is_other_version(window) => ResponseError::UnsupportedVersion,
        Error::Version | Error::Status | Error::Token => ResponseError::InvalidStatusLine,
        Error::HeaderName | Error::HeaderValue | Error::NewLine => {
            let section = memchr(b'\n', window).map_or(&[][..], |lf| &window[lf + 1..]);
            head::section_fault(section).map_or(ResponseError::InvalidHeaderValue, ResponseError::from)
        }
    }
}

fn is_other_version(window: &[u8]) -> bool {
    window.starts_with(b"HTTP/") && !window.starts_with(b"HTTP/1.0") && !window.starts_with(b"HTTP/1.1")
}

#[cfg(test)]
mod tests;
