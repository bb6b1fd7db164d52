//! The chunked transfer coding (RFC 9112, 7.1).

mod size_line;
mod trailers;

use thiserror::Error;

use self::size_line::SizeLine;
use self::trailers::Trailers;
pub use self::trailers::is_trailer;

/// The end of a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Decodes a chunked body strictly. The decoder rejects input that RFC 9112, 7.1 does not allow, because recipients
/// interpret invalid input differently. The decoder checks and drops chunk extensions, and buffers nothing.
#[derive(Clone, Debug, Default)]
pub struct ChunkedDecoder {
    state: State,
    /// The bytes of size lines beyond the allowance for their data; see [`MAX_OVERHEAD`].
    overhead: u64,
}

/// The maximum number of bytes of all size lines beyond 16 bytes and twice the data of each chunk. Without a bound, a
/// body of one-byte chunks with long extensions costs thousands of bytes of work for each byte of data.
const MAX_OVERHEAD: u64 = 16 * 1024;

#[derive(Clone, Debug)]
enum State {
    SizeLine(SizeLine),
    /// In the data, with this many bytes still to come.
    Data(u64),
    /// In the CRLF after the data.
    DataCr,
    DataLf,
    Trailers(Trailers),
    Done,
}

impl Default for State {
    fn default() -> Self {
        Self::SizeLine(SizeLine::default())
    }
}

/// A piece of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk<'i> {
    /// No piece yet: the decoder consumed all usable input. The caller passes the unconsumed rest again, with more
    /// input.
    Partial,
    /// A part of the data; never empty.
    Data(&'i [u8]),
    /// Some of the trailer lines, valid and each with its CRLF, without the blank line at their end. Never empty. A
    /// body has several of these pieces if the decoder drops a forbidden trailer between them.
    Trailers(&'i [u8]),
    /// The body has ended.
    End,
}

/// The reason why a chunked body cannot be decoded. The end of an invalid body is unknown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum ChunkError {
    /// A chunk does not begin with hexadecimal digits, or the digits are not followed by an extension or CRLF.
    #[error("a chunk size that is not a plain hexadecimal number")]
    InvalidSize,
    /// A chunk size with more than 16 digits, or over 2^63 - 1.
    #[error("a chunk size that is too large")]
    SizeTooLarge,
    /// A chunk extension that is not `;name[=value]` (RFC 9112, 7.1.1).
    #[error("an invalid chunk extension")]
    InvalidExtension,
    /// A size line over 4 KiB, or too many long size lines.
    #[error("chunk extensions that are too long")]
    ExtensionsTooLarge,
    /// LF without CR, or CR without LF.
    #[error("a size line that does not end in CRLF")]
    BareLineEnd,
    /// Data without a CRLF after it: the data is longer than its size.
    #[error("no CRLF after the data of a chunk")]
    MissingDataEnd,
    /// A trailer line that is not a valid header line.
    #[error("an invalid trailer line")]
    InvalidTrailer,
    /// A trailer section over 8 KiB or 64 lines.
    #[error("a trailer section that is too large")]
    TrailersTooLarge,
}

impl ChunkError {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: &[Self] = &[
        Self::InvalidSize,
        Self::SizeTooLarge,
        Self::InvalidExtension,
        Self::ExtensionsTooLarge,
        Self::BareLineEnd,
        Self::MissingDataEnd,
        Self::InvalidTrailer,
        Self::TrailersTooLarge,
    ];

    /// The place of this reason in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        self as usize
    }

    /// A stable label for metrics and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::InvalidSize => "invalid_chunk_size",
            Self::SizeTooLarge => "chunk_size_too_large",
            Self::InvalidExtension => "invalid_chunk_extension",
            Self::ExtensionsTooLarge => "chunk_extensions_too_large",
            Self::BareLineEnd => "bare_line_end_in_chunk",
            Self::MissingDataEnd => "missing_chunk_data_end",
            Self::InvalidTrailer => "invalid_trailer",
            Self::TrailersTooLarge => "trailers_too_large",
        }
    }
}

impl ChunkedDecoder {
    /// Decodes from the beginning of `input` up to the next piece of data, trailers, or the end. Returns the number of
    /// consumed bytes, including the bytes of the piece; the next call continues after them. The decoder takes the
    /// trailer section only as a whole, and may therefore consume a part of the input and ask for more.
    ///
    /// After [`Chunk::End`] the decoder consumes nothing. After an error the decoder cannot be used.
    ///
    /// # Errors
    ///
    /// The fault in the body.
    #[inline]
    pub fn next<'i>(&mut self, input: &'i [u8]) -> Result<(usize, Chunk<'i>), ChunkError> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match &mut self.state {
                State::Data(left) => {
                    if rest.is_empty() {
                        return Ok((at, Chunk::Partial));
                    }
                    let len = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= len as u64;
                    if *left == 0 {
                        self.state = State::DataCr;
                    }
                    return Ok((at + len, Chunk::Data(&rest[..len])));
                }
                State::DataCr => match rest {
                    [] => return Ok((at, Chunk::Partial)),
                    [b'\r', b'\n', ..] => {
                        self.state = State::default();
                        at += 2;
                    }
                    [b'\r'] => {
                        self.state = State::DataLf;
                        return Ok((at + 1, Chunk::Partial));
                    }
                    _ => return Err(ChunkError::MissingDataEnd),
                },
                State::DataLf => match rest.first() {
                    None => return Ok((at, Chunk::Partial)),
                    Some(b'\n') => {
                        self.state = State::default();
                        at += 1;
                    }
                    Some(_) => return Err(ChunkError::MissingDataEnd),
                },
                State::SizeLine(line) => {
                    let (used, size) = line.advance(rest)?;
                    at += used;
                    let Some(size) = size else {
                        return Ok((at, Chunk::Partial));
                    };
                    let length = line.length();
                    self.begin_chunk(size, length)?;
                }
                State::Trailers(trailers) => {
                    let (used, chunk) = trailers.next(rest)?;
                    if chunk == Chunk::End {
                        self.state = State::Done;
                    }
                    return Ok((at + used, chunk));
                }
                State::Done => return Ok((at, Chunk::End)),
            }
        }
    }

    /// Whether the body has ended.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Accounts for a size line of `length` bytes.
    #[inline]
    fn begin_chunk(&mut self, size: u64, length: u32) -> Result<(), ChunkError> {
        let justified = size.saturating_mul(2).saturating_add(16);
        self.overhead = (self.overhead + u64::from(length)).saturating_sub(justified);
        if self.overhead > MAX_OVERHEAD {
            return Err(ChunkError::ExtensionsTooLarge);
        }
        self.state = if size == 0 { State::Trailers(Trailers::default()) } else { State::Data(size) };
        Ok(())
    }
}

/// Appends the line that begins a chunk of `len` bytes. The caller appends the data and CRLF. `len` is not 0: that line
/// would be [`LAST_CHUNK`].
#[inline]
pub fn write_chunk_header(out: &mut Vec<u8>, len: usize) {
    debug_assert!(len > 0, "an empty chunk ends the body");
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut line = *b"0000000000000000\r\n";
    let mut at = 16;
    let mut rest = len;
    while rest > 0 {
        at -= 1;
        line[at] = DIGITS[rest & 15];
        rest >>= 4;
    }
    out.extend_from_slice(&line[at..]);
}

#[cfg(test)]
mod tests;
