//! Frames (RFC 9114, 7).

use crate::varint;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Bytes of a body.
    Data,
    /// A field section.
    Headers,
    /// The end of a push.
    CancelPush,
    /// The settings of a connection.
    Settings,
    /// The promise of a push.
    PushPromise,
    /// The end of a connection.
    Goaway,
    /// The limit of pushes.
    MaxPushId,
    /// A frame of HTTP/2, which HTTP/3 forbids (RFC 9114, 7.2.8).
    Forbidden,
    /// A frame to ignore (RFC 9114, 9).
    Unknown,
}

impl FrameKind {
    fn of(kind: u64) -> Self {
        match kind {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x3 => Self::CancelPush,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x7 => Self::Goaway,
            0xd => Self::MaxPushId,
            0x2 | 0x6 | 0x8 | 0x9 => Self::Forbidden,
            _ => Self::Unknown,
        }
    }
}

/// The type and the length of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The type.
    pub kind: FrameKind,
    /// The length of the payload in bytes.
    pub length: u64,
}

/// Reads the header of a frame in pieces, and never a byte behind the header.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameReader {
    bytes: [u8; 16],
    filled: usize,
}

impl FrameReader {
    /// Room for bytes that belong to the header in any case. Never empty.
    pub fn room(&mut self) -> &mut [u8] {
        let wanted = self.wanted();
        &mut self.bytes[self.filled..wanted]
    }

    /// Takes bytes that were read into [`room`](Self::room). Returns the header once it is complete, and is then ready for
    /// the next header.
    pub fn advance(&mut self, read: usize) -> Option<FrameHeader> {
        self.filled += read;
        let (kind, rest) = varint::read(&self.bytes[..self.filled])?;
        let (length, _) = varint::read(rest)?;
        self.filled = 0;
        Some(FrameHeader { kind: FrameKind::of(kind), length })
    }

    /// Whether no byte of a header was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    fn wanted(&self) -> usize {
        if self.filled == 0 {
            // A type and a length have at least one byte each.
            return 2;
        }
        let of_kind = varint::length(self.bytes[0]);
        if self.filled <= of_kind { of_kind + 1 } else { of_kind + varint::length(self.bytes[of_kind]) }
    }
}

/// Appends the header of a DATA frame.
pub fn write_data_header(out: &mut Vec<u8>, length: usize) {
    write_header(out, 0x0, length);
}

/// Appends a HEADERS frame with this field section.
pub fn write_headers(out: &mut Vec<u8>, section: &[u8]) {
    write_header(out, 0x1, section.len());
    out.extend_from_slice(section);
}

/// Appends a GOAWAY: the gateway processes no request from this stream on.
pub fn write_goaway(out: &mut Vec<u8>, stream: u64) {
    let mut id = Vec::new();
    varint::write(&mut id, stream);
    write_header(out, 0x7, id.len());
    out.extend_from_slice(&id);
}

/// Appends the header of a frame.
pub fn write_header(out: &mut Vec<u8>, kind: u64, length: usize) {
    varint::write(out, kind);
    varint::write(out, length as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads headers from a stream in pieces of `piece` bytes.
    fn read_all(mut bytes: &[u8], piece: usize) -> Vec<FrameHeader> {
        let (mut reader, mut read) = (FrameReader::default(), Vec::new());
        while !bytes.is_empty() {
            let room = reader.room();
            let taken = room.len().min(piece).min(bytes.len());
            room[..taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            read.extend(reader.advance(taken));
        }
        assert!(reader.is_empty());
        read
    }

    #[test]
    fn frame_headers_in_pieces_of_any_size_are_read_without_a_byte_behind_them() {
        let mut bytes = Vec::new();
        for (kind, length) in [(0, 0), (1, 63), (4, 64), (0x41, 1 << 20), (u64::MAX, usize::MAX), (9, 1)] {
            write_header(&mut bytes, kind, length);
        }
        let header = |kind, length| FrameHeader { kind, length };
        let expected = [
            header(FrameKind::Data, 0),
            header(FrameKind::Headers, 63),
            header(FrameKind::Settings, 64),
            header(FrameKind::Unknown, 1 << 20),
            header(FrameKind::Unknown, varint::MAX),
            header(FrameKind::Forbidden, 1),
        ];
        for piece in 1..20 {
            assert_eq!(read_all(&bytes, piece), expected, "pieces of {piece} bytes");
        }
    }
}
