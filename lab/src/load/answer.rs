//! Reads responses, without I/O. `sluicegate-http1` parses the heads. The reader counts and drops the bodies.

use sluicegate_http1::{
    Chunk, ChunkError, ChunkedDecoder, HeadLimits, HeadScan, Method, ResponseError, ResponseFraming,
    ResponseHead,
};
use thiserror::Error;

use super::request::{ID_HEADER, Id, LENGTH_HEADER};

/// Reads the responses of one connection, one after another.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The bytes of an incomplete head or of incomplete trailers.
    partial: Vec<u8>,
    scan: HeadScan,
    /// The content of the head, once it is complete.
    answer: Option<Answer>,
    body: Body,
    has_begun: bool,
}

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether the connection can take another request.
    pub(crate) keep_alive: bool,
    pub(crate) echo: Echo,
    /// The length of its body.
    pub(crate) length: u64,
    /// The length that the backend declares.
    pub(crate) said_length: Option<u64>,
    /// Whether it is the response to a gRPC call and does not report the success of the call.
    pub(crate) call_failed: bool,
}

/// The backend's echo of the request's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// The echo was not checked.
    Unknown,
    Missing,
    Same,
    /// Another id: this is the response to another request.
    Other,
}

#[derive(Debug, Default)]
enum Body {
    #[default]
    None,
    /// This many bytes follow.
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

/// The reason why a response is malformed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Malformed {
    #[error(transparent)]
    Head(#[from] ResponseError),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error("an upgrade that was not asked for")]
    Upgrade,
}

impl Reader {
    /// Reads input. Returns the number of bytes that belong to this response, and the response if it is complete. All
    /// connections share the buffer `head`. With `verify`, the echo of the id is checked.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
        verify: Option<&Id>,
    ) -> Result<(usize, Option<Answer>), Malformed> {
        self.has_begun |= !input.is_empty();
        if self.partial.is_empty() {
            return self.read_from(input, head, verify);
        }
        let mut partial = std::mem::take(&mut self.partial);
        let before = partial.len();
        partial.extend_from_slice(input);
        let (used, answer) = self.read_from(&partial, head, verify)?;
        if self.partial.is_empty() {
            // The reset keeps the buffer.
            partial.clear();
            self.partial = partial;
        }
        Ok((used.saturating_sub(before), answer))
    }

    /// Whether a byte of an incomplete response has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The connection was closed properly: returns the response, if the close is its end.
    pub(crate) fn close(&mut self) -> Option<Answer> {
        matches!(self.body, Body::UntilClose).then(|| self.finish()).flatten()
    }

    /// Resets the state for another connection.
    pub(crate) fn reset(&mut self) {
        self.partial.clear();
        self.scan = HeadScan::default();
        self.answer = None;
        self.body = Body::None;
        self.has_begun = false;
    }

    fn read_from(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
        verify: Option<&Id>,
    ) -> Result<(usize, Option<Answer>), Malformed> {
        let mut at = 0;
        while self.answer.is_none() {
            let rest = &input[at..];
            if !head.parse(rest, &mut self.scan, Method::Get, &HeadLimits::default())? {
                self.partial.extend_from_slice(rest);
                return Ok((input.len(), None));
            }
            if head.upgrade {
                return Err(Malformed::Upgrade);
            }
            if head.status >= 200 {
                self.begin_body(rest, head, verify);
            }
            at += head.len;
        }
        let (used, is_complete) = self.read_body(&input[at..])?;
        Ok((at + used, if is_complete { self.finish() } else { None }))
    }

    fn begin_body(&mut self, buf: &[u8], head: &ResponseHead, verify: Option<&Id>) {
        let echo = match verify {
            None => Echo::Unknown,
            Some(id) => match head.find(buf, ID_HEADER) {
                None => Echo::Missing,
                Some(echo) if echo == id.as_bytes() => Echo::Same,
                Some(_) => Echo::Other,
            },
        };
        let said_length = verify.and_then(|_| {
            let value = head.find(buf, LENGTH_HEADER)?;
            std::str::from_utf8(value).ok()?.parse().ok()
        });
        self.body = match head.framing {
            ResponseFraming::None => Body::None,
            ResponseFraming::Length(length) => Body::Length(length),
            ResponseFraming::Chunked => Body::Chunked(ChunkedDecoder::default()),
            ResponseFraming::UntilClose => Body::UntilClose,
        };
        let keep_alive = head.keep_alive;
        self.answer = Some(Answer {
            status: head.status,
            keep_alive,
            echo,
            length: 0,
            said_length,
            call_failed: false,
        });
    }

    /// Returns the number of used bytes, and whether the body has ended.
    fn read_body(&mut self, input: &[u8]) -> Result<(usize, bool), Malformed> {
        let Some(answer) = &mut self.answer else { return Ok((0, false)) };
        match &mut self.body {
            Body::None => Ok((0, true)),
            Body::Length(left) => {
                let used = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= used as u64;
                answer.length += used as u64;
                Ok((used, *left == 0))
            }
            Body::UntilClose => {
                answer.length += input.len() as u64;
                Ok((input.len(), false))
            }
            Body::Chunked(decoder) => {
                let mut at = 0;
                loop {
                    let (used, chunk) = decoder.next(&input[at..])?;
                    at += used;
                    match chunk {
                        Chunk::Data(data) => answer.length += data.len() as u64,
                        Chunk::Trailers(_) => {}
                        Chunk::End => return Ok((at, true)),
                        Chunk::Partial => {
                            self.partial.extend_from_slice(&input[at..]);
                            return Ok((input.len(), false));
                        }
                    }
                }
            }
        }
    }

    fn finish(&mut self) -> Option<Answer> {
        self.body = Body::None;
        self.has_begun = false;
        self.answer.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` in pieces of this size. Returns the responses and the error, if any.
    fn read_in(text: &str, size: usize) -> (Vec<Answer>, Option<Malformed>) {
        let id = Id::new(1, 7);
        let (mut reader, mut head, mut answers) = (Reader::default(), ResponseHead::default(), Vec::new());
        for mut piece in text.as_bytes().chunks(size) {
            loop {
                match reader.read(piece, &mut head, Some(&id)) {
                    Err(malformed) => return (answers, Some(malformed)),
                    Ok((used, answer)) => {
                        answers.extend(answer);
                        assert_eq!(reader.has_begun(), answer.is_none());
                        piece = &piece[used..];
                    }
                }
                if piece.is_empty() {
                    break;
                }
            }
        }
        answers.extend(reader.close());
        (answers, None)
    }

    fn read(text: &str) -> (Vec<Answer>, Option<Malformed>) {
        let whole = read_in(text, usize::MAX);
        for size in [1, 2, 3, 7, 50] {
            assert_eq!(read_in(text, size), whole, "{size} bytes at a time: {}", text.escape_debug());
        }
        whole
    }

    const PLAIN: Answer = Answer {
        status: 200,
        keep_alive: true,
        echo: Echo::Missing,
        length: 0,
        said_length: None,
        call_failed: false,
    };

    #[test]
    fn pipelined_responses_are_parsed_in_any_pieces() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
                    HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n\
                    3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n\
                    HTTP/1.1 204 No Content\r\n\r\n\
                    HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let (answers, wrong) = read(text);
        assert_eq!(wrong, None);
        let expected = [
            Answer { length: 5, ..PLAIN },
            Answer { status: 503, length: 7, ..PLAIN },
            Answer { status: 204, ..PLAIN },
            Answer { keep_alive: false, ..PLAIN },
        ];
        assert_eq!(answers, expected);
    }

    #[test]
    fn response_body_without_a_length_ends_with_the_connection() {
        let (answers, wrong) = read("HTTP/1.1 200 OK\r\n\r\nhello, there");
        assert_eq!((answers, wrong), (vec![Answer { keep_alive: false, length: 12, ..PLAIN }], None));
    }

    #[test]
    fn truncated_response_is_never_returned_as_complete() {
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for end in 1..whole.len() {
            assert_eq!(read(&whole[..end]), (vec![], None), "{}", whole[..end].escape_debug());
        }
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for end in 1..chunked.len() {
            assert_eq!(read(&chunked[..end]), (vec![], None), "{}", chunked[..end].escape_debug());
        }
    }

    #[test]
    fn parser_compares_the_echoed_id_and_reads_the_announced_length() {
        let echo = |line: &str| {
            let (answers, _) = read(&format!("HTTP/1.1 200 OK\r\n{line}\r\nContent-Length: 1\r\n\r\nx"));
            answers[0].echo
        };
        let id = Id::new(1, 7);
        let own = std::str::from_utf8(id.as_bytes()).unwrap();
        assert_eq!(echo(&format!("X-Lab-Id: {own}")), Echo::Same);
        assert_eq!(echo("x-lab-id: somebody-else"), Echo::Other);
        assert_eq!(echo("X-Other: y"), Echo::Missing);
        let (answers, _) = read("HTTP/1.1 200 OK\r\nx-lab-length: 3\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!((answers[0].said_length, answers[0].length), (Some(3), 1));
    }

    #[test]
    fn response_that_is_not_http_is_rejected() {
        for text in [
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\nA: b\n\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        ] {
            let (answers, wrong) = read(text);
            assert!(answers.is_empty() && wrong.is_some(), "{}", text.escape_debug());
        }
    }
}
