//! Integers of variable length (RFC 9000, 16).

/// The largest value.
pub const MAX: u64 = (1 << 62) - 1;

/// The length of an integer that begins with this byte.
#[must_use]
pub fn length(first: u8) -> usize {
    1 << (first >> 6)
}

/// Reads an integer, and the bytes behind it. `None` if the integer is incomplete.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (value, rest) = bytes.split_at_checked(length(*bytes.first()?))?;
    let value = value.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    // The first two bits are the length.
    Some((value & (u64::MAX >> (64 - (8 * (bytes.len() - rest.len()) - 2))), rest))
}

/// Appends an integer in its shortest form. Values above [`MAX`] are not representable, and become `MAX`.
pub fn write(out: &mut Vec<u8>, value: u64) {
    let value = value.min(MAX);
    match value {
        0..=0x3f => out.push(value.to_be_bytes()[7]),
        0x40..=0x3fff => out.extend_from_slice(&(value | 0x4000).to_be_bytes()[6..]),
        0x4000..=0x3fff_ffff => out.extend_from_slice(&(value | 0x8000_0000).to_be_bytes()[4..]),
        _ => out.extend_from_slice(&(value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_the_specification_are_read() {
        // RFC 9000, A.1.
        let examples: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in examples {
            assert_eq!(read(bytes), Some((value, &[][..])));
            assert_eq!(read(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn written_integers_are_read_again() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, MAX] {
            let mut bytes = Vec::new();
            write(&mut bytes, value);
            assert_eq!(bytes.len(), length(bytes[0]));
            assert_eq!(read(&bytes), Some((value, &[][..])));
        }
    }
}
