//! Request heads.

use std::mem::MaybeUninit;

use httparse::Status;

use crate::authority::Authority;
use crate::fields::{Coding, Expect, Fields};
use crate::head;
use crate::header::{Known, Line};
use crate::limits::{HeadLimits, MAX_HEADERS};
use crate::method::Method;
use crate::rejection::Rejection;
use crate::request_fault::request_fault;
use crate::scan::{HeadScan, Start};
use crate::span::Span;
use crate::target::{Target, TargetForm};

/// The version of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    #[default]
    Http11,
}

/// The framing of the body of a request (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestFraming {
    /// No Content-Length and no Transfer-Encoding: no body.
    #[default]
    None,
    /// This many bytes, below 2^63; may be 0.
    Length(u64),
    /// The chunked coding.
    Chunked,
}

/// The head of a request: its request line and its header lines.
///
/// A head is reusable: [`parse`](Self::parse) overwrites the head and keeps the memory of the lines. A head holds no
/// bytes; its spans refer to the parsed buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The method, as sent.
    pub method_name: Span,
    /// The version.
    pub version: Version,
    /// The form of the request target.
    pub form: TargetForm,
    /// The whole request target.
    pub target: Span,
    /// The path without the query. Empty in an absolute-form target without a path, which means `/` (or `*` with
    /// OPTIONS, if there is no query either: RFC 9112, 3.2.4), and in authority-form. `*` in asterisk-form.
    pub path: Span,
    /// The query without its `?`, which may be empty.
    pub query: Option<Span>,
    /// The effective `host[:port]` (RFC 9112, 3.3): from the target if it has an authority, else from Host. Valid by
    /// RFC 3986: a name, an IPv4 address or an IPv6 address in brackets, never empty; the colon may come without a
    /// port. `None` only in HTTP/1.0.
    pub authority: Option<Span>,
    /// The header lines, in the order of the request.
    pub lines: Vec<Line>,
    /// The framing of the body.
    pub framing: RequestFraming,
    /// Whether the client will send further requests on this connection (RFC 9112, 9.3).
    pub keep_alive: bool,
    /// Whether the client waits for a 100 before it sends the body (RFC 9110, 10.1.1). False for a request without a
    /// body, and in HTTP/1.0, which has no 100.
    pub expect_continue: bool,
    /// The protocols to change to: the first Upgrade line, if Connection has the `upgrade` option and the version
    /// is 1.1 (RFC 9110, 7.8).
    pub upgrade: Option<Span>,
    /// The length of the head, from the beginning of the buffer to the end of the blank line, including empty lines
    /// before the request.
    pub len: usize,
}

impl RequestHead {
    /// Parses the head at the beginning of `buf`. `Ok(true)`: the head is complete, and [`len`](Self::len) bytes long;
    /// bytes after the head are ignored. `Ok(false)`: more bytes are needed; call again with the same bytes and more,
    /// and with the same `scan`. The fields are valid only after `Ok(true)`.
    ///
    /// The division of a head into pieces does not affect whether the parser accepts the head. The division may affect
    /// the reason of a rejection, because the parser finds some faults earlier than others.
    ///
    /// # Errors
    ///
    /// The reason to reject the request.
    #[inline]
    pub fn parse(&mut self, buf: &[u8], scan: &mut HeadScan, limits: &HeadLimits) -> Result<bool, Rejection> {
        let window = limits.window(buf);
        // Nearly every head arrives in one piece, so the parser first tries the whole head. For a head in pieces the
        // scan finds the end, then the parser runs once more.
        if scan.is_fresh() || scan.advance(window, Start::Request)? {
            if self.parse_whole(window, limits)? {
                *scan = HeadScan::default();
                return Ok(true);
            }
            scan.advance(window, Start::Request)?;
        }
        if !limits.exhausted_by(window) {
            return Ok(false);
        }
        Err(if scan.first_line_ended() { Rejection::HeadTooLarge } else { Rejection::RequestLineTooLong })
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

    /// The value of the only line with this name, in any case. `None` if no line or several lines have the name.
    pub fn find_only<'b>(&self, buf: &'b [u8], name: &str) -> Option<&'b [u8]> {
        let named = |line: &&Line| line.name.of(buf).eq_ignore_ascii_case(name.as_bytes());
        let mut lines = self.lines.iter().filter(named);
        lines.next().filter(|_| lines.next().is_none()).map(|line| line.value.of(buf))
    }

    fn parse_whole(&mut self, window: &[u8], limits: &HeadLimits) -> Result<bool, Rejection> {
        let mut storage = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut []);
        let len = match parsed.parse_with_uninit_headers(window, &mut storage[..limits.max_headers()]) {
            Ok(Status::Complete(len)) => len,
            Ok(Status::Partial) => return Ok(false),
            Err(error) => return Err(request_fault(window, error)),
        };
        let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
            return Err(Rejection::InvalidRequestLine);
        };
        let head = &window[..len];
        self.len = len;
        self.version = if version == 0 { Version::Http10 } else { Version::Http11 };
        self.method = Method::of_request(method.as_bytes())?;
        self.method_name = Span::within(head, method.as_bytes());
        self.target = Span::within(head, target.as_bytes());
        self.check_line_ends(head)?;
        head::fill(&mut self.lines, head, parsed.headers)?;
        self.take_meaning(head)?;
        Ok(true)
    }

    /// `httparse` accepts bare LF for CRLF, here before the request line and after it.
    #[inline]
    fn check_line_ends(&self, head: &[u8]) -> Result<(), Rejection> {
        if self.method_name.start > 0 {
            // This path is cold. The scan limits the number of empty lines.
            HeadScan::default().advance(head, Start::Request)?;
        }
        // The version is preceded by one space and is eight bytes long.
        let version_end = self.target.end as usize + 9;
        if head[version_end..].starts_with(b"\r\n") { Ok(()) } else { Err(Rejection::BareLf) }
    }

    #[inline]
    fn take_meaning(&mut self, head: &[u8]) -> Result<(), Rejection> {
        let target = Target::parse(head, self.target, self.method)?;
        self.form = target.form;
        self.path = target.path;
        self.query = target.query;
        let fields = Fields::read(head, &mut self.lines, self.version)?;
        self.authority = authority(head, &target, &fields, self.version)?;
        self.framing = match (fields.coding, fields.length) {
            (Coding::Absent, None) => RequestFraming::None,
            (Coding::Absent, Some(length)) => RequestFraming::Length(length),
            _ => RequestFraming::Chunked,
        };
        self.keep_alive = fields.keep_alive(self.version);
        self.upgrade = fields.upgrade(self.version);
        self.expect_continue = false;
        if self.version == Version::Http11 {
            if fields.expect == Expect::Unsupported {
                return Err(Rejection::UnsupportedExpectation);
            }
            let has_body = !matches!(self.framing, RequestFraming::None | RequestFraming::Length(0));
            self.expect_continue = fields.expect == Expect::Continue && has_body;
        }
        Ok(())
    }
}

/// The effective authority (RFC 9112, 3.2 and 3.3).
#[inline]
fn authority(
    head: &[u8],
    target: &Target<'_>,
    fields: &Fields,
    version: Version,
) -> Result<Option<Span>, Rejection> {
    if fields.duplicate_host {
        return Err(Rejection::DuplicateHost);
    }
    let Some(span) = fields.host else {
        return match version {
            Version::Http11 => Err(Rejection::MissingHost),
            Version::Http10 => Ok(target.authority.map(|authority| authority.span)),
        };
    };
    let host = Authority::parse(span.of(head)).ok_or(Rejection::InvalidHost)?;
    match target.authority {
        None => Ok(Some(span)),
        Some(named) if named.parsed.same(&host, named.default_port) => Ok(Some(named.span)),
        Some(_) => Err(Rejection::HostMismatch),
    }
}

#[cfg(test)]
mod tests;
