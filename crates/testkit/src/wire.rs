//! The part of HTTP/1.1 that test tools need: heads over httparse, and bodies.

use std::io::{self, Write as _};

use bytes::{Buf, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Version, response};
use tokio::io::{AsyncRead, AsyncReadExt};

/// More header fields than any test sends.
pub(crate) const MAX_HEADERS: usize = 512;

/// The end of a body (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

impl Framing {
    /// The framing from the header fields, if they determine the framing.
    pub(crate) fn of(headers: &[httparse::Header<'_>]) -> Result<Option<Self>, String> {
        let mut framing = None;
        for header in headers {
            if header.name.eq_ignore_ascii_case("transfer-encoding") {
                return Ok(Some(Self::Chunked));
            }
            if header.name.eq_ignore_ascii_case("content-length") {
                let text = str::from_utf8(header.value).unwrap_or_default();
                let length = text.parse().map_err(|_| format!("Content-Length {text:?}"))?;
                framing = Some(Self::Length(length));
            }
        }
        Ok(framing)
    }

    /// The framing of the response with this status to a request with this method.
    pub(crate) fn of_response(
        status: u16,
        to_head: bool,
        headers: &[httparse::Header<'_>],
    ) -> Result<Self, String> {
        if to_head || status < 200 || status == 204 || status == 304 {
            return Ok(Self::Length(0));
        }
        Ok(Self::of(headers)?.unwrap_or(Self::UntilClose))
    }
}

/// Whether a comma-separated field of this name holds this token.
pub(crate) fn has_token(headers: &[httparse::Header<'_>], name: &str, token: &str) -> bool {
    headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).any(|header| {
        header
            .value
            .split(|&byte| byte == b',')
            .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    })
}

/// Header fields as text, in the order of the wire.
pub(crate) fn owned(headers: &[httparse::Header<'_>]) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|header| (header.name.to_owned(), String::from_utf8_lossy(header.value).into_owned()))
        .collect()
}

/// The first value of the field with this name, in any case.
pub(crate) fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// Decodes a body from the bytes of a connection, piece by piece.
#[derive(Debug)]
pub(crate) struct BodyDecoder {
    state: State,
    pub(crate) trailers: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    UntilClose,
    Done,
}

impl BodyDecoder {
    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkSize,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, trailers: Vec::new() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the close of the connection is a valid end of this body.
    pub(crate) fn ends_by_close(&self) -> bool {
        matches!(self.state, State::UntilClose | State::Done)
    }

    /// Moves the decodable bytes from the front of `input` to `out`, and the bytes on the wire to `raw`.
    pub(crate) fn decode(
        &mut self,
        input: &mut BytesMut,
        out: &mut Vec<u8>,
        mut raw: Option<&mut Vec<u8>>,
    ) -> Result<(), String> {
        loop {
            let taken = match self.state {
                State::Done => return Ok(()),
                State::UntilClose => {
                    out.extend_from_slice(input);
                    input.len()
                }
                State::Length(left) | State::ChunkData(left) => {
                    let taken = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    out.extend_from_slice(&input[..taken]);
                    let left = left - taken as u64;
                    self.state = match (self.state, left) {
                        (State::Length(_), 0) => State::Done,
                        (State::Length(_), _) => State::Length(left),
                        (_, 0) => State::ChunkEnd,
                        (_, _) => State::ChunkData(left),
                    };
                    taken
                }
                State::ChunkSize | State::ChunkEnd | State::Trailers => {
                    let Some(end) = memchr::memmem::find(input, b"\r\n") else { return Ok(()) };
                    self.line(&input[..end])?;
                    end + 2
                }
            };
            if let Some(raw) = raw.as_deref_mut() {
                raw.extend_from_slice(&input[..taken]);
            }
            input.advance(taken);
            if taken == 0 {
                return Ok(());
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(line);
        self.state = match self.state {
            State::ChunkSize => {
                let digits = text.split(';').next().unwrap_or_default().trim();
                match u64::from_str_radix(digits, 16).map_err(|_| format!("chunk size {text:?}"))? {
                    0 => State::Trailers,
                    size => State::ChunkData(size),
                }
            }
            State::ChunkEnd if line.is_empty() => State::ChunkSize,
            State::ChunkEnd => return Err(format!("chunk not ended by CRLF but {text:?}")),
            State::Trailers if line.is_empty() => State::Done,
            State::Trailers => {
                let (name, value) = text.split_once(':').ok_or_else(|| format!("trailer {text:?}"))?;
                self.trailers.push((name.to_owned(), value.trim().to_owned()));
                State::Trailers
            }
            other => other,
        };
        Ok(())
    }
}

/// Reads and appends more bytes. 0 is the end of the stream.
pub(crate) async fn read_more(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut BytesMut,
) -> io::Result<usize> {
    buffer.reserve(16 * 1024);
    stream.read_buf(buffer).await
}

/// Removes a complete request head from the front, for an adapter to a version of HTTP with streams. The `Upgrade` header
/// stays.
pub(crate) fn take_request(
    buffer: &mut BytesMut,
    version: Version,
) -> io::Result<Option<(Request<()>, Framing)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(io::Error::other(error)),
    };
    let framing = Framing::of(parsed.headers).map_err(io::Error::other)?.unwrap_or(Framing::Length(0));
    let fields = owned(parsed.headers);
    let host = find(&fields, "host").unwrap_or("localhost");
    let uri = format!("https://{host}{}", parsed.path.unwrap_or("/"));
    let mut request = Request::builder().method(parsed.method.unwrap_or("GET")).uri(uri).version(version);
    let named = find(&fields, "connection").unwrap_or_default().to_owned();
    let of_the_connection =
        ["host", "connection", "transfer-encoding", "keep-alive", "expect", "sec-websocket-key"];
    for (name, value) in &fields {
        let is = |other: &str| name.eq_ignore_ascii_case(other.trim());
        let is_upgrade = is("upgrade");
        if is_upgrade || !of_the_connection.into_iter().any(is) && !named.split(',').any(is) {
            request = request.header(name, value);
        }
    }
    buffer.advance(length);
    Ok(Some((request.body(()).map_err(io::Error::other)?, framing)))
}

/// The head of a response in HTTP/1.1.
pub(crate) fn response_head(parts: &response::Parts, is_chunked: bool) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let reason = parts.status.canonical_reason().unwrap_or_default();
    write!(head, "HTTP/1.1 {} {reason}\r\n", parts.status.as_str())?;
    for (name, value) in &parts.headers {
        write!(head, "{name}: ")?;
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(if is_chunked { b"transfer-encoding: chunked\r\n\r\n" } else { b"\r\n" });
    Ok(head)
}

/// Fields in the form of the crate http.
pub(crate) fn fields(owned: &[(String, String)]) -> HeaderMap {
    let field = |(name, value): &(String, String)| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    };
    owned.iter().filter_map(field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(framing: Framing, bytes: &[u8], step: usize) -> Result<(Vec<u8>, BodyDecoder), String> {
        let mut decoder = BodyDecoder::new(framing);
        let (mut out, mut raw, mut buffer) = (Vec::new(), Vec::new(), BytesMut::new());
        for piece in bytes.chunks(step) {
            buffer.extend_from_slice(piece);
            decoder.decode(&mut buffer, &mut out, Some(&mut raw))?;
        }
        assert_eq!([&raw[..], &buffer].concat(), bytes);
        Ok((out, decoder))
    }

    #[test]
    fn reader_decodes_a_chunked_body_in_any_pieces() {
        let bytes = b"5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nCheck: sum\r\n\r\n";
        for step in 1..=bytes.len() {
            let (body, decoder) = decode(Framing::Chunked, bytes, step).unwrap();
            assert_eq!(body, b"hello0123456789");
            assert!(decoder.is_done());
            assert_eq!(decoder.trailers, [("Check".to_owned(), "sum".to_owned())]);
        }
    }

    #[test]
    fn reader_ends_a_body_at_its_content_length() {
        let (body, decoder) = decode(Framing::Length(3), b"abcdef", 2).unwrap();
        assert_eq!(body, b"abc");
        assert!(decoder.is_done());
    }

    #[test]
    fn reader_rejects_an_invalid_chunk_size() {
        assert!(decode(Framing::Chunked, b"zz\r\n", 9).is_err());
        assert!(decode(Framing::Chunked, b"1\r\nab\r\n", 9).is_err());
    }
}
