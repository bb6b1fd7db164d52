//! The number of fields in the trailers of streams, as sent over the wire.
//!
//! Pseudo-header fields in trailers make a message malformed (RFC 9113, 8.1). The h2 crate silently removes them. So the
//! number of fields from h2 is compared with the received number. Heads are not parsed, so they cost nothing.

use std::collections::VecDeque;

use super::HEADER;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// Flags of HEADERS (RFC 9113, 6.2).
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The longest block of trailers that is parsed, in bytes. A longer block counts as malformed.
const LONGEST: usize = 16 * 1024;

/// The number of streams of a connection whose field numbers are stored after their trailers have arrived. Each number
/// is used soon after.
const REMEMBERED: usize = 128;

/// Which end of the connection sends the trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A client: a second HEADERS frame on a stream contains its trailers.
    Client,
    /// An endpoint: the HEADERS frame that ends a stream contains its trailers, unless it contains the head.
    Endpoint,
}

/// Follows the trailers of a connection.
pub(super) struct Trailers {
    sender: Sender,
    /// The highest stream that has received a HEADERS frame.
    highest: u32,
    /// The block that is arriving, with its stream.
    block: Option<(u32, Vec<u8>)>,
    /// The frame that is arriving, if it belongs to the block.
    frame: Option<Frame>,
    /// The number of fields for each stream. `None`: the number is unknown.
    counts: VecDeque<(u32, Option<usize>)>,
}

/// A frame with a part of a block.
struct Frame {
    flags: u8,
    is_first: bool,
    left: usize,
}

impl Trailers {
    pub(super) fn new(sender: Sender) -> Self {
        Self { sender, highest: 0, block: None, frame: None, counts: VecDeque::new() }
    }

    /// Records the begin of a frame.
    pub(super) fn begin(&mut self, header: [u8; HEADER]) {
        let [high, mid, low, kind, flags, stream @ ..] = header;
        if !matches!(kind, HEADERS | CONTINUATION) {
            return;
        }
        let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
        if kind == HEADERS {
            let is_known = stream <= self.highest;
            self.highest = self.highest.max(stream);
            let has_trailers = match self.sender {
                Sender::Client => is_known,
                Sender::Endpoint => flags & END_STREAM != 0,
            };
            self.block = has_trailers.then(|| (stream, Vec::new()));
        }
        if self.block.as_ref().is_none_or(|(of, _)| *of != stream) {
            return;
        }
        let left = usize::from(high) << 16 | usize::from(mid) << 8 | usize::from(low);
        self.frame = Some(Frame { flags, is_first: kind == HEADERS, left });
        if left == 0 {
            self.end_frame();
        }
    }

    /// Processes bytes of a frame's payload.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let (Some(frame), Some((_, block))) = (&mut self.frame, &mut self.block) else { return };
        frame.left = frame.left.saturating_sub(bytes.len());
        // One byte beyond the limit shows that the block is too long.
        let room = (LONGEST + 1).saturating_sub(block.len());
        block.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if frame.left == 0 {
            self.end_frame();
        }
    }

    /// Removes and returns the number of fields in the trailers of a stream; `Some(None)` if the number is unknown.
    pub(super) fn take_count(&mut self, stream: u32) -> Option<Option<usize>> {
        let at = self.counts.iter().rposition(|(of, _)| *of == stream)?;
        self.counts.remove(at).map(|(_, count)| count)
    }

    fn end_frame(&mut self) {
        let (Some(Frame { flags, is_first, .. }), Some((stream, block))) =
            (self.frame.take(), &mut self.block)
        else {
            return;
        };
        if is_first && block.len() <= LONGEST {
            let fragment = fragment(block, flags).map(<[u8]>::to_vec);
            // h2 ends the connection after an invalid frame.
            *block = fragment.unwrap_or_default();
        }
        if flags & END_HEADERS != 0 {
            let count = if block.len() <= LONGEST { count_fields(block) } else { None };
            if self.counts.len() == REMEMBERED {
                self.counts.pop_front();
            }
            self.counts.push_back((*stream, count));
            self.block = None;
        }
    }
}

/// The part of a block in the payload of a HEADERS frame (RFC 9113, 6.2).
fn fragment(payload: &[u8], flags: u8) -> Option<&[u8]> {
    let (padding, payload) = match flags & PADDED {
        0 => (0, payload),
        _ => payload.split_first().map(|(padding, rest)| (usize::from(*padding), rest))?,
    };
    let payload = if flags & PRIORITY == 0 { payload } else { payload.get(5..)? };
    payload.get(..payload.len().checked_sub(padding)?)
}

/// The number of fields of a block, without decoding them (RFC 7541, 6).
fn count_fields(mut block: &[u8]) -> Option<usize> {
    let mut fields = 0;
    while let Some(first) = block.first() {
        let (prefix, is_literal) = match first {
            0x80.. => (7, false),
            0x40..0x80 => (6, true),
            0x20..0x40 => {
                // An update of the size of the dynamic table.
                integer(&mut block, 5)?;
                continue;
            }
            0x00..0x20 => (4, true),
        };
        let name = integer(&mut block, prefix)?;
        if is_literal && name == 0 {
            skip_string(&mut block)?;
        }
        if is_literal {
            skip_string(&mut block)?;
        }
        fields += 1;
    }
    Some(fields)
}

/// An integer with a prefix of `prefix` bits (RFC 7541, 5.1).
fn integer(block: &mut &[u8], prefix: u32) -> Option<usize> {
    let most = (1 << prefix) - 1;
    let mut value = usize::from(take_byte(block)?) & most;
    if value < most {
        return Some(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = usize::from(take_byte(block)?);
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take_byte(block: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = block.split_first()?;
    *block = rest;
    Some(*byte)
}

/// A string literal (RFC 7541, 5.2).
fn skip_string(block: &mut &[u8]) -> Option<()> {
    let length = integer(block, 7)?;
    *block = block.get(length..)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two indexed fields, a change of the table's size, and one of each kind of literal.
    const BLOCK: &[u8] = b"\x82\xbe\x3f\xe1\x1f\x41\x02ab\x40\x01a\x01b\x00\x01a\x7f\x01\
          xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
          xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\x1f\x00\x00";

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> ([u8; HEADER], Vec<u8>) {
        let [_, high, mid, low] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let [a, b, c, d] = stream.to_be_bytes();
        ([high, mid, low, kind, flags, a, b, c, d], payload.to_vec())
    }

    fn feed(trailers: &mut Trailers, (header, payload): ([u8; HEADER], Vec<u8>), piece: usize) {
        trailers.begin(header);
        payload.chunks(piece).for_each(|piece| trailers.take(piece));
    }

    #[test]
    fn decoder_counts_the_fields_of_a_header_block() {
        assert_eq!(count_fields(BLOCK), Some(6));
        assert_eq!(count_fields(b""), Some(0));
        for cut in [&b"\x40"[..], b"\x40\x01", b"\x40\x01a\x05b", b"\x7f", b"\xff\xff\xff\xff\xff\xff"] {
            assert_eq!(count_fields(cut), None, "{}", cut.escape_ascii());
        }
    }

    #[test]
    fn trailer_fields_of_clients_are_counted_across_frames_and_pieces() {
        for piece in [1, 3, 1000] {
            let mut trailers = Trailers::new(Sender::Client);
            feed(&mut trailers, frame(HEADERS, END_HEADERS, 1, BLOCK), piece);
            feed(&mut trailers, frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x82"), piece);
            feed(&mut trailers, frame(0, 0, 1, b"data"), piece);
            assert!(trailers.counts.is_empty(), "heads are none");
            let padded = [&[2, 0, 0, 0, 0, 7][..], &BLOCK[..20], b"\0\0"].concat();
            feed(&mut trailers, frame(HEADERS, END_STREAM | PADDED | PRIORITY, 1, &padded), piece);
            feed(&mut trailers, frame(CONTINUATION, 0, 1, b""), piece);
            feed(&mut trailers, frame(CONTINUATION, END_HEADERS, 1, &BLOCK[20..]), piece);
            assert_eq!(trailers.take_count(1), Some(Some(6)), "in pieces of {piece}");
            assert_eq!(trailers.take_count(1), None);
        }
    }

    #[test]
    fn header_block_that_ends_the_stream_of_an_endpoint_is_counted_as_trailers() {
        let mut trailers = Trailers::new(Sender::Endpoint);
        feed(&mut trailers, frame(HEADERS, END_HEADERS, 1, b"\x88"), 10);
        feed(&mut trailers, frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88\x40\x01a\x01b"), 10);
        assert_eq!(trailers.take_count(1), Some(Some(2)));
    }

    #[test]
    fn memory_for_trailer_counts_and_header_blocks_is_bounded() {
        let mut trailers = Trailers::new(Sender::Client);
        for _ in 0..1000 {
            feed(&mut trailers, frame(HEADERS, END_HEADERS, 1, b"\x82"), 10);
        }
        assert_eq!(trailers.counts.len(), REMEMBERED);
        feed(&mut trailers, frame(HEADERS, 0, 1, &[0x82; LONGEST]), 10_000);
        for _ in 0..100 {
            feed(&mut trailers, frame(CONTINUATION, 0, 1, &[0x82; 1000]), 10_000);
            assert!(trailers.block.as_ref().is_some_and(|(_, block)| block.len() <= LONGEST + 1));
        }
        feed(&mut trailers, frame(CONTINUATION, END_HEADERS, 1, b""), 10);
        assert_eq!(trailers.take_count(1), Some(None));
    }
}
