//! Field sections (RFC 9204), without a dynamic table: such a table saves bytes, and lets a lost packet of one request delay
//! others.

mod huffman;
mod table;

use table::FIELDS;

/// Why a field section was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionError<E> {
    /// The section is invalid: the connection ends with `QPACK_DECOMPRESSION_FAILED`.
    Invalid,
    /// The fields exceed the limit.
    TooLarge,
    /// The receiver of the fields rejected a field.
    Field(E),
}

/// The size that a field has beside its name and value (RFC 9114, 4.2.2).
const OVERHEAD: usize = 32;

/// Decodes a field section, and passes on each field. `limit` is the limit for the size of the fields (RFC 9114, 4.2.2).
///
/// # Errors
/// An invalid section, a section above the limit, and the errors of `field`.
pub fn decode<E>(
    mut section: &[u8],
    limit: usize,
    mut field: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), SectionError<E>> {
    const NONE: &[u8] = &[];
    let (mut name, mut value) = (Vec::new(), Vec::new());
    let mut size = 0_usize;
    // RFC 9204, 4.5.1: a required insert count above 0 needs a dynamic table. The base has no meaning then.
    let required = integer(&mut section, 8).ok_or(SectionError::Invalid)?;
    integer(&mut section, 7).filter(|_| required == 0).ok_or(SectionError::Invalid)?;
    while let Some(first) = section.first() {
        let (known_name, known_value): (&[u8], Option<&[u8]>) = match first {
            // RFC 9204, 4.5.2: an indexed field of the static table.
            0b1100_0000.. => {
                let (name, value) = known(&mut section, 6).ok_or(SectionError::Invalid)?;
                (name, Some(value))
            }
            // RFC 9204, 4.5.4: a name of the static table.
            0b0101_0000..=0b0101_1111 | 0b0111_0000..=0b0111_1111 => {
                (known(&mut section, 4).ok_or(SectionError::Invalid)?.0, None)
            }
            // RFC 9204, 4.5.6.
            0b0010_0000..=0b0011_1111 => {
                name.clear();
                string(&mut section, 3, &mut name, limit)?;
                (NONE, None)
            }
            // All other forms refer to a dynamic table.
            _ => return Err(SectionError::Invalid),
        };
        let name = if known_name.is_empty() { &*name } else { known_name };
        let value = match known_value {
            Some(value) => value,
            None => {
                value.clear();
                string(&mut section, 7, &mut value, limit)?;
                &value
            }
        };
        size = size.saturating_add(name.len() + value.len() + OVERHEAD);
        if size > limit {
            return Err(SectionError::TooLarge);
        }
        field(name, value).map_err(SectionError::Field)?;
    }
    Ok(())
}

/// A field of the static table, by an index with a prefix of so many bits.
fn known(section: &mut &[u8], prefix: u32) -> Option<(&'static [u8], &'static [u8])> {
    let (name, value) = FIELDS.get(usize::try_from(integer(section, prefix)?).ok()?)?;
    Some((name.as_bytes(), value.as_bytes()))
}

/// Reads an integer with a prefix of so many bits (RFC 7541, 5.1).
fn integer(section: &mut &[u8], prefix: u32) -> Option<u64> {
    let most = u8::MAX >> (8 - prefix);
    let (first, mut rest) = section.split_first()?;
    let mut value = u64::from(first & most);
    if value == u64::from(most) {
        let mut shift = 0;
        loop {
            let (byte, behind) = rest.split_first()?;
            rest = behind;
            value = value.checked_add(u64::from(byte & 0x7f) << shift)?;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            // RFC 9204, 4.1.1: integers have at most 62 bits.
            if shift > 56 {
                return None;
            }
        }
    }
    *section = rest;
    Some(value)
}

/// Appends a string, whose length has a prefix of so many bits below the bit for the Huffman code.
fn string<E>(
    section: &mut &[u8],
    prefix: u32,
    out: &mut Vec<u8>,
    limit: usize,
) -> Result<(), SectionError<E>> {
    let is_huffman = section.first().ok_or(SectionError::Invalid)? >> prefix & 1 == 1;
    let length = integer(section, prefix).ok_or(SectionError::Invalid)?;
    let length = usize::try_from(length).map_err(|_| SectionError::Invalid)?;
    let (string, rest) = section.split_at_checked(length).ok_or(SectionError::Invalid)?;
    *section = rest;
    if !is_huffman {
        out.extend_from_slice(string);
        return Ok(());
    }
    // The shortest codes have five bits.
    if length / 2 > limit {
        return Err(SectionError::TooLarge);
    }
    huffman::decode(string, out).ok_or(SectionError::Invalid)
}

/// Appends the beginning of a field section: without a dynamic table, two zeros.
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Appends a field. The name is in lower case.
pub fn encode(name: &str, value: &[u8], out: &mut Vec<u8>) {
    let mut known = None;
    for index in indices(name) {
        if FIELDS[index].1.as_bytes() == value {
            return write_integer(out, 0b1100_0000, 6, index);
        }
        known.get_or_insert(index);
    }
    match known {
        Some(index) => write_integer(out, 0b0101_0000, 4, index),
        None => write_string(out, 0b0010_0000, 3, name.as_bytes()),
    }
    write_string(out, 0, 7, value);
}

/// The indices of a name that responses have, in the static table.
fn indices(name: &str) -> impl Iterator<Item = usize> {
    let (first, second) = match name {
        ":status" => (24..29, 63..72),
        "accept-ranges" => (32..33, 0..0),
        "access-control-allow-credentials" => (73..75, 0..0),
        "access-control-allow-headers" => (33..35, 75..76),
        "access-control-allow-methods" => (76..79, 0..0),
        "access-control-allow-origin" => (35..36, 0..0),
        "access-control-expose-headers" => (79..80, 0..0),
        "age" => (2..3, 0..0),
        "alt-svc" => (83..84, 0..0),
        "cache-control" => (36..42, 0..0),
        "content-disposition" => (3..4, 0..0),
        "content-encoding" => (42..44, 0..0),
        "content-length" => (4..5, 0..0),
        "content-security-policy" => (85..86, 0..0),
        "content-type" => (44..55, 0..0),
        "date" => (6..7, 0..0),
        "etag" => (7..8, 0..0),
        "last-modified" => (10..11, 0..0),
        "link" => (11..12, 0..0),
        "location" => (12..13, 0..0),
        "server" => (92..93, 0..0),
        "set-cookie" => (14..15, 0..0),
        "strict-transport-security" => (56..59, 0..0),
        "timing-allow-origin" => (93..94, 0..0),
        "vary" => (59..61, 0..0),
        "x-content-type-options" => (61..62, 0..0),
        "x-frame-options" => (97..99, 0..0),
        "x-xss-protection" => (62..63, 0..0),
        _ => (0..0, 0..0),
    };
    first.chain(second)
}

fn write_integer(out: &mut Vec<u8>, first: u8, prefix: u32, value: usize) {
    let most = usize::from(u8::MAX >> (8 - prefix));
    if value < most {
        return out.push(first | (value & 0xff) as u8);
    }
    out.push(first | (most & 0xff) as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push((rest & 0x7f) as u8);
}

fn write_string(out: &mut Vec<u8>, first: u8, prefix: u32, string: &[u8]) {
    let length = huffman::encoded_length(string);
    if length < string.len() {
        write_integer(out, first | 1 << prefix, prefix, length);
        return huffman::encode(string, out);
    }
    write_integer(out, first, prefix, string.len());
    out.extend_from_slice(string);
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn decoded(section: &[u8], limit: usize) -> Result<Vec<(String, Vec<u8>)>, SectionError<Infallible>> {
        let mut fields = Vec::new();
        decode(section, limit, |name, value| {
            fields.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
            Ok(())
        })?;
        Ok(fields)
    }

    #[test]
    fn section_of_the_specification_is_decoded() {
        // RFC 9204, B.1.
        let section = b"\x00\x00\x51\x0b/index.html";
        let path = (":path".to_owned(), b"/index.html".to_vec());
        assert_eq!(decoded(section, 100), Ok(vec![path]));
    }

    #[test]
    fn references_to_a_dynamic_table_are_invalid() {
        for section in [
            // RFC 9204, B.2: a required insert count. Then an indexed field, a name and both forms behind the base.
            &b"\x03\x81\x10\x11"[..],
            b"\x00\x00\x80",
            b"\x00\x00\x40\x00",
            b"\x00\x00\x10",
            b"\x00\x00\x00\x00",
            // An index behind the static table.
            b"\x00\x00\xff\x24",
            // Incomplete sections.
            b"",
            b"\x00",
            b"\x00\x00\x51\x0b/index",
            b"\x00\x00\x27",
            // An integer without an end.
            b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00",
        ] {
            assert_eq!(decoded(section, 1000), Err(SectionError::Invalid), "{section:?}");
        }
    }

    #[test]
    fn fields_above_the_limit_are_not_decoded() {
        let mut section = Vec::new();
        begin(&mut section);
        encode("x", &[b'a'; 100], &mut section);
        encode("y", b"", &mut section);
        assert_eq!(decoded(&section, 101 + 32 + 33).map(|fields| fields.len()), Ok(2));
        assert_eq!(decoded(&section, 101 + 32 + 32), Err(SectionError::TooLarge));
        let mut bomb = Vec::new();
        begin(&mut bomb);
        // An index costs one byte, and a field has at least 32.
        bomb.extend([0b1101_0001; 1000]);
        assert_eq!(decoded(&bomb, 10_000), Err(SectionError::TooLarge));
    }

    #[test]
    fn indices_of_a_name_have_this_name() {
        for (name, _) in FIELDS {
            for index in indices(name) {
                assert_eq!(FIELDS[index].0, name);
            }
        }
        let mut section = Vec::new();
        encode(":status", b"200", &mut section);
        assert_eq!(section, [0b1101_1001]);
    }

    proptest! {
        #[test]
        fn encoded_fields_are_decoded(fields: Vec<(String, Vec<u8>)>) {
            let fields: Vec<_> = fields.into_iter().filter(|(name, _)| !name.is_empty()).collect();
            let mut section = Vec::new();
            begin(&mut section);
            for (name, value) in &fields {
                encode(name, value, &mut section);
            }
            prop_assert_eq!(decoded(&section, usize::MAX), Ok(fields));
        }

        #[test]
        fn no_section_panics(section: Vec<u8>) {
            let _ = decoded(&section, 1000);
        }
    }
}
