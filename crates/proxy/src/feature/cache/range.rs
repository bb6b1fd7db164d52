//! Ranges of a cached response (RFC 9110, 14).

use std::ops::Range;

use sluicegate_http1::{Known, Line, RequestHead};

use super::directives::is;

/// The range that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// From this byte to the second byte, or to the end.
    From(u64, Option<u64>),
    /// The last bytes, by number.
    Last(u64),
}

impl Part {
    /// `None` if the request asks for no range, or for a range that only the endpoint may understand: several ranges,
    /// another unit.
    pub(crate) fn of(head: &RequestHead, buf: &[u8]) -> Option<Self> {
        let mut lines = head.lines.iter().filter(|line| is_named(line, buf, "range"));
        let line = lines.next().filter(|_| lines.next().is_none())?;
        let value = line.value.of(buf);
        let unit = value.get(..6).filter(|unit| is(unit, "bytes="))?;
        let range = value[unit.len()..].trim_ascii();
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let (first, last) = (&range[..dash], &range[dash + 1..]);
        match (first.is_empty(), last.is_empty()) {
            (true, _) => number(last).map(Self::Last),
            (false, true) => number(first).map(|first| Self::From(first, None)),
            (false, false) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// The range of a body of this length. `None` if the body has no such range.
    pub(crate) fn within(self, length: usize) -> Option<Range<usize>> {
        let whole = length as u64;
        let range = match self {
            Self::From(first, last) => first..last.map_or(whole, |last| last.saturating_add(1).min(whole)),
            Self::Last(bytes) => whole.saturating_sub(bytes)..whole,
        };
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        (start < end).then_some(start..end)
    }
}

/// Whether a request asks for a range, or sets a condition for it.
pub(crate) fn asks_for_part(head: &RequestHead, buf: &[u8]) -> bool {
    head.lines.iter().any(|line| is_range_line(line, buf))
}

/// Whether a header line asks for a range, or sets a condition for it.
pub(crate) fn is_range_line(line: &Line, buf: &[u8]) -> bool {
    is_named(line, buf, "range") || is_named(line, buf, "if-range")
}

fn is_named(line: &Line, buf: &[u8], name: &str) -> bool {
    line.known == Known::Other && is(line.name.of(buf), name)
}

/// A decimal number. A number too large for `u64` is larger than any body.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(std::str::from_utf8(digits).ok()?.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use sluicegate_http1::{HeadLimits, HeadScan};

    use super::*;

    fn part(lines: &str) -> Option<Part> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").into_bytes();
        let mut head = RequestHead::default();
        assert!(head.parse(&bytes, &mut HeadScan::default(), &HeadLimits::default()).unwrap());
        Part::of(&head, &bytes)
    }

    #[test]
    fn single_byte_range_is_parsed() {
        for (value, length, expected) in [
            ("bytes=0-1", 11, Some(0..2)),
            ("Bytes=1-", 11, Some(1..11)),
            ("bytes=-1", 11, Some(10..11)),
            ("bytes=-99", 11, Some(0..11)),
            ("bytes=3-99", 11, Some(3..11)),
            ("bytes=0-99999999999999999999999", 11, Some(0..11)),
            ("bytes=0-18446744073709551615", 11, Some(0..11)),
            ("bytes=11-", 11, None),
            ("bytes=-0", 11, None),
            ("bytes=0-", 0, None),
            ("bytes=-5", 0, None),
        ] {
            let part = part(&format!("Range: {value}\r\n")).expect(value);
            assert_eq!(part.within(length), expected, "{value} of {length}");
        }
    }

    #[test]
    fn range_header_with_several_malformed_or_non_byte_ranges_is_ignored() {
        for lines in [
            "",
            "Range: bytes=0-1,3-4\r\n",
            "Range: bytes=0-1\r\nRange: bytes=0-1\r\n",
            "Range: items=0-1\r\n",
            "Range: bytes=2-1\r\n",
            "Range: bytes=-\r\n",
            "Range: bytes=\r\n",
            "Range: bytes=+1-2\r\n",
            "Range: bytes=a-b\r\n",
            "Range: bytes = 0-1\r\n",
            "X-Range: bytes=0-1\r\n",
        ] {
            assert_eq!(part(lines), None, "{lines}");
        }
    }
}
