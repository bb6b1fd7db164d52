//! The framing and connection headers of a head.

use std::time::Duration;

use crate::fault::Fault;
use crate::header::{Known, Line};
use crate::request::Version;
use crate::span::Span;
use crate::token::{elements, is_token};

/// The maximum number of options in Connection. The limit bounds the work: the parser compares each option with each
/// header line.
const MAX_CONNECTION_OPTIONS: usize = 64;

/// The framing and connection headers of a head.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    pub(crate) host: Option<Span>,
    pub(crate) duplicate_host: bool,
    pub(crate) length: Option<u64>,
    pub(crate) coding: Coding,
    pub(crate) expect: Expect,
    /// The first Upgrade line that is not empty.
    pub(crate) upgrade: Option<Span>,
    pub(crate) keep_alive_timeout: Option<Duration>,
    close: bool,
    keep_alive: bool,
    upgrade_option: bool,
    /// The number of options that nominate a header, except headers that the gateway removes in any case.
    nominations: usize,
    options: usize,
}

/// The state of Transfer-Encoding so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Coding {
    #[default]
    Absent,
    Chunked,
    /// At least one coding other than chunked.
    Unsupported,
}

/// The value of Expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Expect {
    #[default]
    Absent,
    Continue,
    Unsupported,
}

impl Fields {
    /// Reads each line once, and marks the lines that Connection nominates.
    #[inline]
    pub(crate) fn read(buf: &[u8], lines: &mut [Line], version: Version) -> Result<Self, Fault> {
        let mut fields = Self::default();
        for line in lines.iter() {
            if line.known != Known::Other {
                fields.take(buf, line)?;
            }
        }
        fields.check_framing(version)?;
        if fields.nominations > 0 {
            mark_nominated(buf, lines);
        }
        Ok(fields)
    }

    /// Whether the headers allow another message on the connection (RFC 9112, 9.3).
    pub(crate) fn keep_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    /// The protocols of an upgrade, if the message requests an upgrade. Upgrade has no meaning without the Connection
    /// option, nor in HTTP/1.0 (RFC 9110, 7.8).
    pub(crate) fn upgrade(&self, version: Version) -> Option<Span> {
        self.upgrade.filter(|_| self.upgrade_option && version == Version::Http11)
    }

    #[inline]
    fn take(&mut self, buf: &[u8], line: &Line) -> Result<(), Fault> {
        let value = line.value.of(buf);
        match line.known {
            Known::Host => {
                self.duplicate_host |= self.host.is_some();
                self.host = Some(line.value);
            }
            Known::Connection => self.take_connection(value)?,
            Known::ContentLength => {
                if self.length.is_some() {
                    return Err(Fault::DuplicateLength);
                }
                self.length = Some(length(value).ok_or(Fault::InvalidLength)?);
            }
            Known::TransferEncoding => self.take_codings(value)?,
            Known::Expect => {
                let is_continue =
                    self.expect != Expect::Unsupported && value.eq_ignore_ascii_case(b"100-continue");
                self.expect = if is_continue { Expect::Continue } else { Expect::Unsupported };
            }
            Known::Upgrade if !value.is_empty() => {
                self.upgrade.get_or_insert(line.value);
            }
            Known::KeepAlive => self.keep_alive_timeout = self.keep_alive_timeout.or(timeout(value)),
            _ => {}
        }
        Ok(())
    }

    fn take_connection(&mut self, value: &[u8]) -> Result<(), Fault> {
        if value.eq_ignore_ascii_case(b"keep-alive") {
            // A fast path for the value of nearly every Connection header.
            self.keep_alive = true;
            return Ok(());
        }
        for option in elements(value) {
            self.options += 1;
            if self.options > MAX_CONNECTION_OPTIONS {
                return Err(Fault::TooManyConnectionOptions);
            }
            if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade_option = true;
            } else if Known::of(option) == Known::Other && !option.is_empty() {
                self.nominations += 1;
            }
        }
        Ok(())
    }

    /// RFC 9112, 6.1. A recipient may ignore empty list elements and parameters. This parser rejects both: they serve
    /// only attacks on recipients that interpret them differently.
    fn take_codings(&mut self, value: &[u8]) -> Result<(), Fault> {
        for coding in elements(value) {
            let chunked = coding.eq_ignore_ascii_case(b"chunked");
            self.coding = match self.coding {
                Coding::Chunked => return Err(Fault::InvalidTransferEncoding),
                Coding::Absent if chunked => Coding::Chunked,
                // The loop continues, to distinguish `gzip, chunked` (501) from a malformed value (400).
                Coding::Absent | Coding::Unsupported if is_token(coding) => Coding::Unsupported,
                Coding::Absent | Coding::Unsupported => return Err(Fault::InvalidTransferEncoding),
            };
        }
        Ok(())
    }

    fn check_framing(&self, version: Version) -> Result<(), Fault> {
        if self.coding == Coding::Absent {
            return Ok(());
        }
        if self.length.is_some() {
            return Err(Fault::LengthAndTransferEncoding);
        }
        if version == Version::Http10 {
            return Err(Fault::TransferEncodingInHttp10);
        }
        if self.coding == Coding::Unsupported { Err(Fault::UnsupportedTransferEncoding) } else { Ok(()) }
    }
}

/// Marks the lines that a Connection option nominates (RFC 9110, 7.6.1). [`Line::hop_by_hop`] defines which lines may
/// be nominated.
#[cold]
fn mark_nominated(buf: &[u8], lines: &mut [Line]) {
    for at in 0..lines.len() {
        if lines[at].known != Known::Connection {
            continue;
        }
        let value = lines[at].value;
        for option in elements(value.of(buf)) {
            for line in lines.iter_mut().filter(|line| line.known == Known::Other) {
                line.hop_by_hop |= line.name.of(buf).eq_ignore_ascii_case(option);
            }
        }
    }
}

/// A Content-Length: only digits, below 2^63, so that no recipient reads a negative number (RFC 9110, 8.6).
fn length(value: &[u8]) -> Option<u64> {
    // 19 digits cannot overflow 64 bits.
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    let mut length = 0;
    for &byte in value {
        if !byte.is_ascii_digit() {
            return None;
        }
        length = length * 10 + u64::from(byte - b'0');
    }
    (length <= i64::MAX as u64).then_some(length)
}

/// A valid Content-Length in the form of RFC 9110, 8.6: without leading zeros, which an endpoint may read as an octal
/// number.
#[inline]
#[must_use]
pub fn canonical_length(value: &[u8]) -> &[u8] {
    match value {
        [b'0', _, ..] => without_zeros(value),
        _ => value,
    }
}

#[cold]
fn without_zeros(mut value: &[u8]) -> &[u8] {
    while let [b'0', rest @ ..] = value
        && !rest.is_empty()
    {
        value = rest;
    }
    value
}

/// The `timeout=SECONDS` of a Keep-Alive header, in use since RFC 2068, 19.7.1.1.
fn timeout(value: &[u8]) -> Option<Duration> {
    elements(value).find_map(|parameter| {
        let (name, digits) = parameter.split_at_checked(8)?;
        if !name.eq_ignore_ascii_case(b"timeout=") || digits.len() > 9 {
            return None;
        }
        length(digits).map(Duration::from_secs)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_length_accepts_only_digits() {
        assert_eq!(length(b"0"), Some(0));
        assert_eq!(length(b"0042"), Some(42));
        assert_eq!(length(b"9223372036854775807"), Some(i64::MAX as u64));
        let invalid: [&[u8]; 11] = [
            b"",
            b"+5",
            b"-5",
            b"5 5",
            b"5,5",
            b"5, 5",
            b"0x5",
            b"5.0",
            b"9223372036854775808",
            b"18446744073709551621",
            b"00000000000000000005",
        ];
        for value in invalid {
            assert_eq!(length(value), None, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn canonical_content_length_has_no_leading_zeros() {
        let cases: [(&[u8], &[u8]); 7] = [
            (b"0", b"0"),
            (b"5", b"5"),
            (b"10", b"10"),
            (b"1005", b"1005"),
            (b"010", b"10"),
            (b"000", b"0"),
            (b"0000000000000000003", b"3"),
        ];
        for (value, canonical) in cases {
            assert_eq!(canonical_length(value), canonical, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn keep_alive_timeout_is_found_among_other_parameters() {
        assert_eq!(timeout(b"timeout=5"), Some(Duration::from_secs(5)));
        assert_eq!(timeout(b"max=100, Timeout=75"), Some(Duration::from_secs(75)));
        for value in ["", "timeout", "timeout=", "timeout=x", "max=5", "timeout=99999999999"] {
            assert_eq!(timeout(value.as_bytes()), None, "{value}");
        }
    }
}
