//! The Huffman code for strings (RFC 9204, 4.1.2; RFC 7541, appendix B).

use std::sync::LazyLock;

/// The code of each byte, and its length in bits.
const CODES: [(u32, u8); 256] = [
    (0x1ff8, 13),
    (0x7fffd8, 23),
    (0xfffffe2, 28),
    (0xfffffe3, 28),
    (0xfffffe4, 28),
    (0xfffffe5, 28),
    (0xfffffe6, 28),
    (0xfffffe7, 28),
    (0xfffffe8, 28),
    (0xffffea, 24),
    (0x3ffffffc, 30),
    (0xfffffe9, 28),
    (0xfffffea, 28),
    (0x3ffffffd, 30),
    (0xfffffeb, 28),
    (0xfffffec, 28),
    (0xfffffed, 28),
    (0xfffffee, 28),
    (0xfffffef, 28),
    (0xffffff0, 28),
    (0xffffff1, 28),
    (0xffffff2, 28),
    (0x3ffffffe, 30),
    (0xffffff3, 28),
    (0xffffff4, 28),
    (0xffffff5, 28),
    (0xffffff6, 28),
    (0xffffff7, 28),
    (0xffffff8, 28),
    (0xffffff9, 28),
    (0xffffffa, 28),
    (0xffffffb, 28),
    (0x14, 6),
    (0x3f8, 10),
    (0x3f9, 10),
    (0xffa, 12),
    (0x1ff9, 13),
    (0x15, 6),
    (0xf8, 8),
    (0x7fa, 11),
    (0x3fa, 10),
    (0x3fb, 10),
    (0xf9, 8),
    (0x7fb, 11),
    (0xfa, 8),
    (0x16, 6),
    (0x17, 6),
    (0x18, 6),
    (0x0, 5),
    (0x1, 5),
    (0x2, 5),
    (0x19, 6),
    (0x1a, 6),
    (0x1b, 6),
    (0x1c, 6),
    (0x1d, 6),
    (0x1e, 6),
    (0x1f, 6),
    (0x5c, 7),
    (0xfb, 8),
    (0x7ffc, 15),
    (0x20, 6),
    (0xffb, 12),
    (0x3fc, 10),
    (0x1ffa, 13),
    (0x21, 6),
    (0x5d, 7),
    (0x5e, 7),
    (0x5f, 7),
    (0x60, 7),
    (0x61, 7),
    (0x62, 7),
    (0x63, 7),
    (0x64, 7),
    (0x65, 7),
    (0x66, 7),
    (0x67, 7),
    (0x68, 7),
    (0x69, 7),
    (0x6a, 7),
    (0x6b, 7),
    (0x6c, 7),
    (0x6d, 7),
    (0x6e, 7),
    (0x6f, 7),
    (0x70, 7),
    (0x71, 7),
    (0x72, 7),
    (0xfc, 8),
    (0x73, 7),
    (0xfd, 8),
    (0x1ffb, 13),
    (0x7fff0, 19),
    (0x1ffc, 13),
    (0x3ffc, 14),
    (0x22, 6),
    (0x7ffd, 15),
    (0x3, 5),
    (0x23, 6),
    (0x4, 5),
    (0x24, 6),
    (0x5, 5),
    (0x25, 6),
    (0x26, 6),
    (0x27, 6),
    (0x6, 5),
    (0x74, 7),
    (0x75, 7),
    (0x28, 6),
    (0x29, 6),
    (0x2a, 6),
    (0x7, 5),
    (0x2b, 6),
    (0x76, 7),
    (0x2c, 6),
    (0x8, 5),
    (0x9, 5),
    (0x2d, 6),
    (0x77, 7),
    (0x78, 7),
    (0x79, 7),
    (0x7a, 7),
    (0x7b, 7),
    (0x7ffe, 15),
    (0x7fc, 11),
    (0x3ffd, 14),
    (0x1ffd, 13),
    (0xffffffc, 28),
    (0xfffe6, 20),
    (0x3fffd2, 22),
    (0xfffe7, 20),
    (0xfffe8, 20),
    (0x3fffd3, 22),
    (0x3fffd4, 22),
    (0x3fffd5, 22),
    (0x7fffd9, 23),
    (0x3fffd6, 22),
    (0x7fffda, 23),
    (0x7fffdb, 23),
    (0x7fffdc, 23),
    (0x7fffdd, 23),
    (0x7fffde, 23),
    (0xffffeb, 24),
    (0x7fffdf, 23),
    (0xffffec, 24),
    (0xffffed, 24),
    (0x3fffd7, 22),
    (0x7fffe0, 23),
    (0xffffee, 24),
    (0x7fffe1, 23),
    (0x7fffe2, 23),
    (0x7fffe3, 23),
    (0x7fffe4, 23),
    (0x1fffdc, 21),
    (0x3fffd8, 22),
    (0x7fffe5, 23),
    (0x3fffd9, 22),
    (0x7fffe6, 23),
    (0x7fffe7, 23),
    (0xffffef, 24),
    (0x3fffda, 22),
    (0x1fffdd, 21),
    (0xfffe9, 20),
    (0x3fffdb, 22),
    (0x3fffdc, 22),
    (0x7fffe8, 23),
    (0x7fffe9, 23),
    (0x1fffde, 21),
    (0x7fffea, 23),
    (0x3fffdd, 22),
    (0x3fffde, 22),
    (0xfffff0, 24),
    (0x1fffdf, 21),
    (0x3fffdf, 22),
    (0x7fffeb, 23),
    (0x7fffec, 23),
    (0x1fffe0, 21),
    (0x1fffe1, 21),
    (0x3fffe0, 22),
    (0x1fffe2, 21),
    (0x7fffed, 23),
    (0x3fffe1, 22),
    (0x7fffee, 23),
    (0x7fffef, 23),
    (0xfffea, 20),
    (0x3fffe2, 22),
    (0x3fffe3, 22),
    (0x3fffe4, 22),
    (0x7ffff0, 23),
    (0x3fffe5, 22),
    (0x3fffe6, 22),
    (0x7ffff1, 23),
    (0x3ffffe0, 26),
    (0x3ffffe1, 26),
    (0xfffeb, 20),
    (0x7fff1, 19),
    (0x3fffe7, 22),
    (0x7ffff2, 23),
    (0x3fffe8, 22),
    (0x1ffffec, 25),
    (0x3ffffe2, 26),
    (0x3ffffe3, 26),
    (0x3ffffe4, 26),
    (0x7ffffde, 27),
    (0x7ffffdf, 27),
    (0x3ffffe5, 26),
    (0xfffff1, 24),
    (0x1ffffed, 25),
    (0x7fff2, 19),
    (0x1fffe3, 21),
    (0x3ffffe6, 26),
    (0x7ffffe0, 27),
    (0x7ffffe1, 27),
    (0x3ffffe7, 26),
    (0x7ffffe2, 27),
    (0xfffff2, 24),
    (0x1fffe4, 21),
    (0x1fffe5, 21),
    (0x3ffffe8, 26),
    (0x3ffffe9, 26),
    (0xffffffd, 28),
    (0x7ffffe3, 27),
    (0x7ffffe4, 27),
    (0x7ffffe5, 27),
    (0xfffec, 20),
    (0xfffff3, 24),
    (0xfffed, 20),
    (0x1fffe6, 21),
    (0x3fffe9, 22),
    (0x1fffe7, 21),
    (0x1fffe8, 21),
    (0x7ffff3, 23),
    (0x3fffea, 22),
    (0x3fffeb, 22),
    (0x1ffffee, 25),
    (0x1ffffef, 25),
    (0xfffff4, 24),
    (0xfffff5, 24),
    (0x3ffffea, 26),
    (0x7ffff4, 23),
    (0x3ffffeb, 26),
    (0x7ffffe6, 27),
    (0x3ffffec, 26),
    (0x3ffffed, 26),
    (0x7ffffe7, 27),
    (0x7ffffe8, 27),
    (0x7ffffe9, 27),
    (0x7ffffea, 27),
    (0x7ffffeb, 27),
    (0xffffffe, 28),
    (0x7ffffec, 27),
    (0x7ffffed, 27),
    (0x7ffffee, 27),
    (0x7ffffef, 27),
    (0x7fffff0, 27),
    (0x3ffffee, 26),
];

/// A state of the decoder: a place in the tree of codes.
#[derive(Clone, Copy, Default)]
struct Step {
    next: u16,
    /// The byte whose code these four bits complete.
    byte: Option<u8>,
    /// Whether the bits belong to no code: they begin the code for the end of a string, which must not appear.
    is_invalid: bool,
    /// Whether a string may end here: the bits since the last byte are at most seven ones.
    is_end: bool,
}

/// The decoder's steps by state, for the next four bits. Every code has at least five bits, so a step completes at most one
/// byte.
static STEPS: LazyLock<Vec<[Step; 16]>> = LazyLock::new(steps);

/// A branch of the tree of codes.
#[derive(Clone, Copy)]
enum Branch {
    None,
    Node(u16),
    Byte(u8),
}

fn steps() -> Vec<[Step; 16]> {
    let mut tree = vec![[Branch::None; 2]];
    for (byte, (code, length)) in (0..=u8::MAX).zip(CODES) {
        let mut node = 0;
        for bit in (0..length).rev() {
            let side = usize::from(code >> bit & 1 == 1);
            if bit == 0 {
                tree[node][side] = Branch::Byte(byte);
            } else if let Branch::Node(next) = tree[node][side] {
                node = next.into();
            } else {
                let next = tree.len();
                // The tree has 256 nodes and the nodes of the unused code.
                tree[node][side] = Branch::Node(u16::try_from(next).unwrap_or_default());
                tree.push([Branch::None; 2]);
                node = next;
            }
        }
    }
    // The states in which the bits since the last byte are ones.
    let mut ends = vec![0_u16];
    while let (Some(last), true) = (ends.last(), ends.len() <= 7) {
        match tree[usize::from(*last)][1] {
            Branch::Node(next) => ends.push(next),
            _ => break,
        }
    }
    let step = |state: usize, bits: usize| {
        let (mut node, mut byte) = (state, None);
        for bit in (0..4).rev() {
            match tree[node][bits >> bit & 1] {
                Branch::None => return Step { is_invalid: true, ..Step::default() },
                Branch::Node(next) => node = next.into(),
                Branch::Byte(decoded) => (node, byte) = (0, Some(decoded)),
            }
        }
        let next = u16::try_from(node).unwrap_or_default();
        Step { next, byte, is_invalid: false, is_end: ends.contains(&next) }
    };
    (0..tree.len()).map(|state| std::array::from_fn(|bits| step(state, bits))).collect()
}

/// Appends the decoded string. `None` if the bytes are no valid string.
pub(super) fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (mut state, mut is_end) = (0, true);
    for byte in bytes {
        for bits in [byte >> 4, byte & 0xf] {
            let step = STEPS[usize::from(state)][usize::from(bits)];
            if step.is_invalid {
                return None;
            }
            out.extend(step.byte);
            (state, is_end) = (step.next, step.is_end);
        }
    }
    is_end.then_some(())
}

/// The length of a string in this code.
pub(super) fn encoded_length(string: &[u8]) -> usize {
    string.iter().map(|byte| usize::from(CODES[usize::from(*byte)].1)).sum::<usize>().div_ceil(8)
}

/// Appends a string in this code.
pub(super) fn encode(string: &[u8], out: &mut Vec<u8>) {
    let (mut bits, mut count) = (0_u64, 0_u32);
    for byte in string {
        let (code, length) = CODES[usize::from(*byte)];
        bits = bits << length | u64::from(code);
        count += u32::from(length);
        while count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    if count > 0 {
        // The rest is filled with ones.
        out.push(((bits << (8 - count) | 0xff >> count) & 0xff) as u8);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(bytes, &mut out).map(|()| out)
    }

    #[test]
    fn strings_of_the_specification_are_decoded() {
        // RFC 7541, C.4.1 and C.6.1.
        let name = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&name).as_deref(), Some(&b"www.example.com"[..]));
        assert_eq!(decoded(&[0xae, 0xc3, 0x77, 0x1a, 0x4b]).as_deref(), Some(&b"private"[..]));
        assert_eq!(decoded(&[]).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn invalid_ends_of_strings_are_rejected() {
        // RFC 7541, 5.2: more than seven bits of padding, padding without ones, and the code for the end.
        assert_eq!(
            decoded(&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff, 0xff]),
            None
        );
        assert_eq!(decoded(&[0xae, 0xc3, 0x77, 0x1a, 0x40]), None);
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), None);
    }

    proptest! {
        #[test]
        fn encoded_strings_are_decoded(string: Vec<u8>) {
            let mut encoded = Vec::new();
            encode(&string, &mut encoded);
            prop_assert_eq!(encoded.len(), encoded_length(&string));
            prop_assert_eq!(decoded(&encoded), Some(string));
        }
    }
}
