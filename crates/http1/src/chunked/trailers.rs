//! The trailer section of a chunked body.

use memchr::{memchr, memchr_iter, memmem, memrchr};

use super::{Chunk, ChunkError};
use crate::head::section_fault;
use crate::header::Known;

/// The maximum number of bytes of a trailer section, without the blank line.
const MAX_BYTES: usize = 8 * 1024;

/// The maximum number of lines of a trailer section.
const MAX_LINES: usize = 64;

/// Fields that must not be sent as trailers (RFC 9110, 6.5.1), because they would affect a message that is already
/// processed. Every [`Known`] field is forbidden too. In lower case.
const FORBIDDEN: &[&[u8]] = &[
    b"accept",
    b"age",
    b"allow",
    b"content-language",
    b"content-location",
    b"content-range",
    b"expires",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-range",
    b"if-unmodified-since",
    b"max-forwards",
    b"pragma",
    b"range",
    b"retry-after",
    b"vary",
    b"warning",
    b"www-authenticate",
];

/// The state of reading a trailer section.
#[derive(Clone, Debug, Default)]
pub(super) struct Trailers {
    /// The number of bytes already searched for the end, so that a section in single bytes costs linear time.
    searched: usize,
    /// The beginning of the first unchecked line.
    lines_checked: usize,
    /// Whether the section is complete and valid.
    checked: bool,
}

impl Trailers {
    /// Continues with `input`, which begins with the unconsumed bytes. Consumes nothing before the section is complete.
    pub(super) fn next<'i>(&mut self, input: &'i [u8]) -> Result<(usize, Chunk<'i>), ChunkError> {
        if !self.checked {
            match input {
                [b'\r', b'\n', ..] => return Ok((2, Chunk::End)),
                [] | [b'\r'] => return Ok((0, Chunk::Partial)),
                _ => {}
            }
            let Some(end) = self.find_end(input)? else {
                return Ok((0, Chunk::Partial));
            };
            check(&input[..end])?;
            self.checked = true;
        }
        Ok(Self::run(input))
    }

    /// The position of the blank line.
    fn find_end(&mut self, input: &[u8]) -> Result<Option<usize>, ChunkError> {
        let window = &input[..input.len().min(MAX_BYTES + 2)];
        // The end may have begun in the last three searched bytes.
        let from = self.searched.saturating_sub(3).min(window.len());
        if let Some(found) = memmem::find(&window[from..], b"\r\n\r\n") {
            return Ok(Some(from + found + 2));
        }
        // The decoder rejects an invalid section before the end of the section arrives.
        let new_from = self.searched.min(window.len());
        if let Some(lf) = memrchr(b'\n', &window[new_from..]).map(|found| new_from + found) {
            let lines_from = self.lines_checked.min(lf);
            if section_fault(&window[lines_from..=lf]).is_some() {
                return Err(ChunkError::InvalidTrailer);
            }
            self.lines_checked = lf + 1;
        }
        self.searched = window.len();
        if window.len() == MAX_BYTES + 2 { Err(ChunkError::TrailersTooLarge) } else { Ok(None) }
    }

    /// The next lines of a valid section that may be forwarded, or its end. The decoder drops forbidden lines.
    fn run(input: &[u8]) -> (usize, Chunk<'_>) {
        let start = input.len() - skip_lines(input, |name| !is_trailer(name)).len();
        let rest = &input[start..];
        let length = rest.len() - skip_lines(rest, is_trailer).len();
        if length > 0 {
            return (start + length, Chunk::Trailers(&rest[..length]));
        }
        if rest.starts_with(b"\r\n") { (start + 2, Chunk::End) } else { (start, Chunk::Partial) }
    }
}

/// The input after the first lines whose names satisfy `skipped`.
fn skip_lines(mut input: &[u8], skipped: impl Fn(&[u8]) -> bool) -> &[u8] {
    while let Some(lf) = memchr(b'\n', input) {
        let Some(colon) = memchr(b':', &input[..lf]) else {
            break;
        };
        if !skipped(&input[..colon]) {
            break;
        }
        input = &input[lf + 1..];
    }
    input
}

/// Checks a complete section, which ends with its last line.
fn check(section: &[u8]) -> Result<(), ChunkError> {
    if section_fault(section).is_some() {
        return Err(ChunkError::InvalidTrailer);
    }
    let lines = memchr_iter(b'\n', section).count();
    if lines > MAX_LINES { Err(ChunkError::TrailersTooLarge) } else { Ok(()) }
}

/// Whether a field may be forwarded as a trailer.
#[must_use]
pub fn is_trailer(name: &[u8]) -> bool {
    Known::of(name) == Known::Other && !FORBIDDEN.iter().any(|other| name.eq_ignore_ascii_case(other))
}
