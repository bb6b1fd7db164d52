//! Header lists in HPACK (RFC 7541): reads the lists of responses, and writes the common part of all requests.

use std::collections::VecDeque;

use thiserror::Error;

use super::huffman;

/// The static table (RFC 7541, appendix A), from index 1 on.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The default maximum size of the dynamic table (RFC 9113, 6.5.2). This client does not change the size.
const MAX_TABLE: usize = 4096;

/// The size of an entry beside its own bytes (RFC 7541, 4.1).
const LINE: usize = 32;

/// The reason why a header list cannot be read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Unreadable {
    #[error("a header list ends within a line")]
    CutOff,
    #[error("a number in a header list is too large")]
    TooLarge,
    #[error("there is no line {0} in the tables")]
    NoSuchLine(usize),
    #[error("a string in a header list is not Huffman-coded")]
    NotHuffman,
    #[error("the table's size is changed to more than was agreed upon, or within a list")]
    TableSize,
}

/// Reads the header lists of one connection, which refer to earlier lists.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The entries, the newest first.
    table: VecDeque<Line>,
    size: usize,
    max_size: usize,
    /// Buffers for strings in Huffman code.
    name: Vec<u8>,
    value: Vec<u8>,
}

/// An entry of the table.
#[derive(Debug, Default)]
struct Line {
    /// The name, and the value.
    bytes: Vec<u8>,
    name: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        let (name, value) = (Vec::new(), Vec::new());
        Self { table: VecDeque::new(), size: 0, max_size: MAX_TABLE, name, value }
    }
}

impl Decoder {
    /// Reads a whole list, and passes on the name and the value of each entry.
    pub(super) fn decode(
        &mut self,
        list: &[u8],
        mut told: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Unreadable> {
        let mut rest = list;
        let mut has_begun = false;
        while let Some(&first) = rest.first() {
            if first & 0xe0 == 0x20 {
                let size = integer(&mut rest, 5)?;
                if has_begun || size > MAX_TABLE {
                    return Err(Unreadable::TableSize);
                }
                self.max_size = size;
                self.evict(size);
                continue;
            }
            has_begun = true;
            if first & 0x80 != 0 {
                let index = integer(&mut rest, 7)?;
                let (name, value) = line(&self.table, index)?;
                told(name, value);
                continue;
            }
            let is_kept = first & 0xc0 == 0x40;
            let index = integer(&mut rest, if is_kept { 6 } else { 4 })?;
            let name = match index {
                0 => string(&mut rest, &mut self.name)?,
                _ => line(&self.table, index)?.0,
            };
            let value = string(&mut rest, &mut self.value)?;
            told(name, value);
            if is_kept {
                let kept = Line { bytes: [name, value].concat(), name: name.len() };
                self.keep(kept);
            }
        }
        Ok(())
    }

    /// Adds an entry, for which older entries may be evicted; or all of them, if the entry is too large itself (RFC
    /// 7541, 4.4).
    fn keep(&mut self, line: Line) {
        let size = line.size();
        self.evict(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.size += size;
            self.table.push_front(line);
        }
    }

    fn evict(&mut self, max_size: usize) {
        while self.size > max_size
            && let Some(line) = self.table.pop_back()
        {
            self.size -= line.size();
        }
    }
}

impl Line {
    fn size(&self) -> usize {
        self.bytes.len() + LINE
    }
}

/// The entry with this index, from 1 on: first the static table, then the dynamic table.
fn line(table: &VecDeque<Line>, index: usize) -> Result<(&[u8], &[u8]), Unreadable> {
    let place = index.checked_sub(1).ok_or(Unreadable::NoSuchLine(index))?;
    if let Some((name, value)) = STATIC.get(place) {
        return Ok((name.as_bytes(), value.as_bytes()));
    }
    let line = table.get(place - STATIC.len()).ok_or(Unreadable::NoSuchLine(index))?;
    Ok(line.bytes.split_at(line.name))
}

/// A number that begins in the last `bits` bits of the first byte (RFC 7541, 5.1).
fn integer(rest: &mut &[u8], bits: u32) -> Result<usize, Unreadable> {
    let mut next = || {
        let (byte, behind) = rest.split_first().ok_or(Unreadable::CutOff)?;
        *rest = behind;
        Ok(usize::from(*byte))
    };
    let most = (1 << bits) - 1;
    let mut number = next()? & most;
    if number < most {
        return Ok(number);
    }
    // No meaningful number has more than 28 bits.
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        number += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Unreadable::TooLarge)
}

/// A string (RFC 7541, 5.2), in place or in `room`.
fn string<'l: 's, 's>(rest: &mut &'l [u8], room: &'s mut Vec<u8>) -> Result<&'s [u8], Unreadable> {
    let is_huffman = rest.first().is_some_and(|byte| byte & 0x80 != 0);
    let length = integer(rest, 7)?;
    let (text, behind) = rest.split_at_checked(length).ok_or(Unreadable::CutOff)?;
    *rest = behind;
    if !is_huffman {
        return Ok(text);
    }
    room.clear();
    huffman::decode(text, room).map_err(|_| Unreadable::NotHuffman)?;
    Ok(room)
}

/// Appends a header as a literal, so that the other side does not add it to its table.
pub(super) fn write_line(name: &str, value: &str, out: &mut Vec<u8>) {
    if let Some(place) = STATIC.iter().position(|line| *line == (name, value)) {
        out.push(0x80 | (place as u8 + 1));
        return;
    }
    match STATIC.iter().position(|(known, _)| *known == name) {
        Some(place) => write_integer(place + 1, 4, out),
        None => {
            out.push(0);
            write_string(name.as_bytes(), out);
        }
    }
    write_string(value.as_bytes(), out);
}

fn write_string(text: &[u8], out: &mut Vec<u8>) {
    write_integer(text.len(), 7, out);
    out.extend_from_slice(text);
}

/// Appends a number that begins in the last `bits` bits of the first byte. The other bits of the byte are 0.
fn write_integer(number: usize, bits: u32, out: &mut Vec<u8>) {
    let most = (1 << bits) - 1;
    if number < most {
        out.push(number as u8);
        return;
    }
    out.push(most as u8);
    let mut rest = number - most;
    while rest > 0x7f {
        out.push(0x80 | (rest & 0x7f) as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(decoder: &mut Decoder, list: &[u8]) -> Result<Vec<(String, String)>, Unreadable> {
        let mut lines = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decoder.decode(list, |name, value| lines.push((text(name), text(value))))?;
        Ok(lines)
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<char> = hex.chars().filter(|digit| !digit.is_whitespace()).collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    /// Three responses on one connection, of which the later responses refer to fields of the earlier (RFC 7541,
    /// appendix C.6).
    #[test]
    fn decoder_reads_the_header_blocks_of_rfc_7541_appendix_c_6() {
        // The table of the example has 256 bytes, which the third response fills.
        let mut decoder = Decoder { max_size: 256, ..Decoder::default() };
        let lines = |status: &str, date: &str, more: &[(&str, &str)]| {
            let first = [
                (":status", status),
                ("cache-control", "private"),
                ("date", date),
                ("location", "https://www.example.com"),
            ];
            let all = first.iter().chain(more);
            all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        let first = bytes(
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
             1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        );
        let date = "Mon, 21 Oct 2013 20:13:21 GMT";
        assert_eq!(read(&mut decoder, &first), Ok(lines("302", date, &[])));
        assert_eq!(decoder.size, 222);
        assert_eq!(read(&mut decoder, &bytes("4883 640e ffc1 c0bf")), Ok(lines("307", date, &[])));
        assert_eq!((decoder.size, decoder.table.len()), (222, 4), "the first status had to go");
        let third = bytes(
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
             e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        );
        let more = [
            ("content-encoding", "gzip"),
            ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
        ];
        assert_eq!(read(&mut decoder, &third).unwrap().len(), 6);
        assert_eq!((decoder.size, decoder.table.len()), (215, 3));
        let again = lines("200", "Mon, 21 Oct 2013 20:13:22 GMT", &more);
        let kept: Vec<(String, String)> = (62..65)
            .map(|index| line(&decoder.table, index).unwrap())
            .map(|(name, value)| (name.escape_ascii().to_string(), value.escape_ascii().to_string()))
            .collect();
        assert_eq!(kept, [again[5].clone(), again[4].clone(), again[2].clone()]);
    }

    #[test]
    fn decoder_reads_each_header_block_that_the_encoder_writes() {
        let long = "x".repeat(3000);
        let cases = [
            (":method", "GET"),
            (":path", "/"),
            (":path", "/a?b"),
            (":authority", "app.example.com"),
            ("content-type", "application/grpc"),
            ("x-lab-id", "1"),
            ("x-empty", ""),
            (&*long, &*long),
        ];
        let mut list = Vec::new();
        for (name, value) in cases {
            write_line(name, value, &mut list);
        }
        let expected: Vec<(String, String)> =
            cases.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut decoder = Decoder::default();
        assert_eq!(read(&mut decoder, &list), Ok(expected));
        assert_eq!(decoder.size, 0, "nothing is kept");
        assert_eq!(list[..2], [0x82, 0x84]);
    }

    #[test]
    fn reduced_hpack_table_size_evicts_entries() {
        let mut decoder = Decoder::default();
        assert!(read(&mut decoder, b"\x40\x01a\x01b\x40\x01c\x01d").is_ok());
        assert_eq!(decoder.size, 68);
        assert_eq!(read(&mut decoder, b"\x3f\x03\xbe").unwrap(), [("c".to_owned(), "d".to_owned())]);
        assert_eq!(read(&mut decoder, b"\xbf"), Err(Unreadable::NoSuchLine(63)));
        assert!(read(&mut decoder, b"\x20\x40\x01a\x01b").is_ok());
        assert_eq!(decoder.table.len(), 0, "a line that is larger than the table is not kept");
    }

    #[test]
    fn decoder_rejects_a_malformed_header_block() {
        let cases: [(&[u8], Unreadable); 8] = [
            (b"\x80", Unreadable::NoSuchLine(0)),
            (b"\xbe", Unreadable::NoSuchLine(62)),
            (b"\xff\xff\xff\xff\xff\xff", Unreadable::TooLarge),
            (b"\x00\x05abc", Unreadable::CutOff),
            (b"\x00", Unreadable::CutOff),
            (b"\x00\x01a\x81\x00", Unreadable::NotHuffman),
            (b"\x3f\xe2\x1f", Unreadable::TableSize),
            (b"\x88\x20", Unreadable::TableSize),
        ];
        for (list, wrong) in cases {
            assert_eq!(read(&mut Decoder::default(), list), Err(wrong), "{}", list.escape_ascii());
        }
    }

    #[test]
    fn hpack_decoder_never_panics_on_arbitrary_bytes() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut decoder = Decoder::default();
        for _ in 0..20_000 {
            let list: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            let _ = read(&mut decoder, &list);
            assert!(decoder.size <= MAX_TABLE);
            let sizes = decoder.table.iter().map(Line::size);
            assert_eq!(sizes.sum::<usize>(), decoder.size);
        }
    }
}
