//! The search for the end of a head in pieces.

use memchr::memchr;

use crate::fault::Fault;
use crate::method::MAX_METHOD;
use crate::token::is_tchar;

/// The maximum number of empty lines before a request. RFC 9112, 2.2 recommends to ignore at least one, because old
/// clients send an empty line after a body.
const MAX_EMPTY_LINES: u8 = 4;

/// The kind of a head's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Request,
    Response,
}

/// The progress through the head of one message, so that a head in single bytes costs linear time.
///
/// Each head needs a separate scan. Begin with the default, and pass the same scan with the same bytes and more. After
/// a complete head the scan is ready for the next head. After an error the scan is unusable.
#[derive(Clone, Debug, Default)]
pub struct HeadScan {
    stage: Stage,
    /// The number of scanned bytes.
    position: usize,
    /// The beginning of the line that contains `position`.
    line: usize,
    /// Whether the first line has ended.
    first_line_ended: bool,
    empty_lines: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No byte is scanned.
    #[default]
    Fresh,
    /// In the empty lines before the first line.
    Leading,
    /// In the method.
    Method,
    /// In the `HTTP/1.` of a response.
    Protocol,
    /// In the rest of the first line, or in a header line.
    Lines,
}

impl HeadScan {
    /// Whether no byte is scanned.
    #[inline]
    pub(crate) fn is_fresh(&self) -> bool {
        self.stage == Stage::Fresh
    }

    /// Whether the first line is complete.
    pub(crate) fn first_line_ended(&self) -> bool {
        self.first_line_ended
    }

    /// Scans the bytes since the last call. Returns whether the head is complete.
    ///
    /// The scan rejects input that cannot become a head at once, so that garbage does not occupy a connection until the
    /// timeout.
    pub(crate) fn advance(&mut self, window: &[u8], start: Start) -> Result<bool, Fault> {
        if window.is_empty() {
            return Ok(false);
        }
        loop {
            let more = match self.stage {
                Stage::Fresh => {
                    self.stage = match start {
                        Start::Request => Stage::Leading,
                        Start::Response => Stage::Protocol,
                    };
                    true
                }
                Stage::Leading => self.skip_empty_lines(window)?,
                Stage::Method => self.check_method(window)?,
                Stage::Protocol => self.check_protocol(window)?,
                Stage::Lines => return self.find_end(window),
            };
            if !more {
                return Ok(false);
            }
        }
    }

    fn skip_empty_lines(&mut self, window: &[u8]) -> Result<bool, Fault> {
        loop {
            match window.get(self.position..) {
                None | Some([] | [b'\r']) => return Ok(false),
                Some([b'\r', b'\n', ..]) => {
                    self.empty_lines += 1;
                    if self.empty_lines > MAX_EMPTY_LINES {
                        return Err(Fault::EmptyLines);
                    }
                    self.position += 2;
                }
                Some([b'\r', ..]) => return Err(Fault::BareCr),
                Some([b'\n', ..]) => return Err(Fault::BareLf),
                Some(_) => {
                    self.line = self.position;
                    self.stage = Stage::Method;
                    return Ok(true);
                }
            }
        }
    }

    fn check_method(&mut self, window: &[u8]) -> Result<bool, Fault> {
        while let Some(&byte) = window.get(self.position) {
            if byte == b' ' && self.position > self.line {
                self.stage = Stage::Lines;
                return Ok(true);
            }
            if !is_tchar(byte) {
                return Err(Fault::NotHttp);
            }
            if self.position - self.line == MAX_METHOD {
                return Err(Fault::MethodTooLong);
            }
            self.position += 1;
        }
        Ok(false)
    }

    fn check_protocol(&mut self, window: &[u8]) -> Result<bool, Fault> {
        const PROTOCOL: &[u8] = b"HTTP/1.";
        let seen = window.len().min(PROTOCOL.len());
        if window[..seen] != PROTOCOL[..seen] {
            return Err(Fault::NotHttp);
        }
        if seen == PROTOCOL.len() {
            self.stage = Stage::Lines;
        }
        Ok(seen == PROTOCOL.len())
    }

    fn find_end(&mut self, window: &[u8]) -> Result<bool, Fault> {
        while let Some(found) = window.get(self.position..).and_then(|rest| memchr(b'\n', rest)) {
            let lf = self.position + found;
            if lf == self.line || window[lf - 1] != b'\r' {
                return Err(Fault::BareLf);
            }
            if lf - 1 == self.line {
                return Ok(true);
            }
            self.first_line_ended = true;
            self.position = lf + 1;
            self.line = lf + 1;
        }
        self.position = self.position.max(window.len());
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the bytes one by one. Returns the result, and the number of bytes until the result.
    fn outcome(bytes: &[u8], start: Start) -> (usize, Result<bool, Fault>) {
        let mut scan = HeadScan::default();
        for seen in 0..=bytes.len() {
            match scan.advance(&bytes[..seen], start) {
                Ok(false) => {}
                outcome => return (seen, outcome),
            }
        }
        (bytes.len(), Ok(false))
    }

    #[test]
    fn head_is_complete_exactly_at_its_last_byte() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET";
        assert_eq!(outcome(head, Start::Request), (head.len() - 3, Ok(true)));
        let head = b"\r\nGET / HTTP/1.1\r\n\r\n";
        assert_eq!(outcome(head, Start::Request), (head.len(), Ok(true)));
        let head = b"HTTP/1.1 204\r\n\r\n";
        assert_eq!(outcome(head, Start::Response), (head.len(), Ok(true)));
    }

    #[test]
    fn invalid_head_is_rejected_at_its_first_invalid_byte() {
        assert_eq!(outcome(b"\x16\x03\x01", Start::Request), (1, Err(Fault::NotHttp)));
        assert_eq!(outcome(b" GET", Start::Request), (1, Err(Fault::NotHttp)));
        assert_eq!(outcome(b"GE\x01", Start::Request), (3, Err(Fault::NotHttp)));
        assert_eq!(outcome(b"\nGET", Start::Request), (1, Err(Fault::BareLf)));
        assert_eq!(outcome(b"\rGET", Start::Request), (2, Err(Fault::BareCr)));
        assert_eq!(outcome(b"\r\n\r\n\r\n\r\n\r\n", Start::Request), (10, Err(Fault::EmptyLines)));
        assert_eq!(outcome(b"GET / HTTP/1.1\nHost", Start::Request), (15, Err(Fault::BareLf)));
        assert_eq!(outcome(b"GET / HTTP/1.1\r\nA: b\r\n\n", Start::Request), (23, Err(Fault::BareLf)));
        assert_eq!(outcome(&[b'A'; 100], Start::Request), (65, Err(Fault::MethodTooLong)));
        assert_eq!(outcome(&[b"\r\n", &[b'A'; 100][..]].concat(), Start::Request).0, 67);
        assert_eq!(outcome(b"SSH-2.0-OpenSSH", Start::Response), (1, Err(Fault::NotHttp)));
        assert_eq!(outcome(b"\r\nHTTP/1.1", Start::Response), (1, Err(Fault::NotHttp)));
    }
}
