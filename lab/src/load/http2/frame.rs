//! Frames of HTTP/2 (RFC 9113, 4 and 6).

use thiserror::Error;

use super::hpack::Unreadable;

/// The length of a frame header.
pub(super) const HEAD: usize = 9;

/// The largest payload of a frame, because this client keeps the default size.
pub(super) const MAX: usize = 16_384;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data = 0,
    Headers = 1,
    Priority = 2,
    Reset = 3,
    Settings = 4,
    PushPromise = 5,
    Ping = 6,
    GoAway = 7,
    WindowUpdate = 8,
    Continuation = 9,
    /// A frame of an unknown type, which must be ignored (RFC 9113, 5.5).
    Unknown = 10,
}

/// A violation by the server. The connection is unusable.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Violation {
    #[error("a frame of {0} bytes")]
    FrameSize(usize),
    #[error("padding that is longer than its frame")]
    Padding,
    #[error("the first frame is none of settings")]
    Preface,
    #[error("a frame for stream {0}, where it cannot be")]
    Stream(u32),
    #[error("a header list that is interrupted")]
    Interrupted,
    #[error("header lists of more than {0} bytes")]
    HeadersSize(usize),
    #[error("a setting that is out of range")]
    Setting,
    #[error("a window that is too large, or is enlarged by nothing")]
    Window,
    #[error("something is pushed")]
    Pushed,
    #[error("an answer without a status, with two, or with data before it")]
    Answer,
    #[error(transparent)]
    Headers(#[from] Unreadable),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'b> {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: &'b [u8],
}

impl<'b> Frame<'b> {
    /// The first frame, if it is complete, and the bytes after it.
    pub(super) fn first(input: &'b [u8]) -> Result<Option<(Self, &'b [u8])>, Violation> {
        let Some((&[high, middle, low, kind, flags, ref stream @ ..], rest)) =
            input.split_first_chunk::<HEAD>()
        else {
            return Ok(None);
        };
        let length = number(&[high, middle, low]) as usize;
        if length > MAX {
            return Err(Violation::FrameSize(length));
        }
        let Some((payload, rest)) = rest.split_at_checked(length) else { return Ok(None) };
        let frame = Self { kind: kind.into(), flags, stream: number(stream) & LOW_31, payload };
        Ok(Some((frame, rest)))
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The data or the header list in the frame, without padding and priority.
    pub(super) fn content(&self) -> Result<&'b [u8], Violation> {
        let mut content = self.payload;
        let mut padding = 0;
        if self.has(PADDED) {
            let (length, rest) = content.split_first().ok_or(Violation::Padding)?;
            (padding, content) = (usize::from(*length), rest);
        }
        if self.kind == Kind::Headers && self.has(PRIORITY) {
            content = content.get(5..).ok_or(Violation::FrameSize(self.payload.len()))?;
        }
        let length = content.len().checked_sub(padding).ok_or(Violation::Padding)?;
        Ok(&content[..length])
    }

    /// The 32-bit number at the beginning of the payload, if the payload has nothing else, or `more` may follow.
    pub(super) fn number(&self, more: bool) -> Result<u32, Violation> {
        match self.payload.split_at_checked(4) {
            Some((first, rest)) if more || rest.is_empty() => Ok(number(first)),
            _ => Err(Violation::FrameSize(self.payload.len())),
        }
    }
}

impl From<u8> for Kind {
    fn from(byte: u8) -> Self {
        match byte {
            0 => Self::Data,
            1 => Self::Headers,
            2 => Self::Priority,
            3 => Self::Reset,
            4 => Self::Settings,
            5 => Self::PushPromise,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::WindowUpdate,
            9 => Self::Continuation,
            _ => Self::Unknown,
        }
    }
}

/// All bits except a reserved bit.
pub(super) const LOW_31: u32 = u32::MAX >> 1;

/// The number in network byte order.
pub(super) fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Appends a frame.
pub(super) fn write(kind: Kind, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind as u8, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}
