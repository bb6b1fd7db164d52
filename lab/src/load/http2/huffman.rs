//! Strings in the Huffman code of HPACK (RFC 7541, 5.2 and appendix B), four bits at a time.

use std::sync::LazyLock;

/// The number of bits in the code of each byte, and of the end of a string. The codes follow from the lengths: the
/// codes of each length are consecutive numbers, in the order of the bytes.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];

/// The end of a string is not written, but the bits that fill its last byte are the beginning of this code.
const END: usize = 256;

/// The result of four more bits.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    /// The node of the code's tree.
    next: u8,
    /// The byte that is complete; a code has at least five bits, so there is at most one.
    byte: Option<u8>,
    /// Whether the bits are no code.
    is_bad: bool,
    /// Whether a string may end there.
    may_end: bool,
}

static STEPS: LazyLock<Vec<[Step; 16]>> = LazyLock::new(steps);

/// A branch of the tree of codes.
#[derive(Clone, Copy, Debug)]
enum Branch {
    Node(u8),
    Leaf(usize),
}

/// The bits are no string in this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotHuffman;

/// Appends the string to `out`.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), NotHuffman> {
    let steps = &**STEPS;
    let (mut node, mut may_end) = (0, true);
    for byte in coded {
        for bits in [byte >> 4, byte & 15] {
            let step = steps[usize::from(node)][usize::from(bits)];
            if step.is_bad {
                return Err(NotHuffman);
            }
            out.extend(step.byte);
            (node, may_end) = (step.next, step.may_end);
        }
    }
    if may_end { Ok(()) } else { Err(NotHuffman) }
}

fn steps() -> Vec<[Step; 16]> {
    let tree = tree();
    // The possible bits after the last byte: at most seven bits, all of them ones.
    let mut ends = vec![0];
    for _ in 0..7 {
        if let Some(Branch::Node(next)) = tree[usize::from(ends[ends.len() - 1])][1] {
            ends.push(next);
        }
    }
    let step = |from: usize, bits: usize| {
        let mut step = Step { next: from as u8, ..Step::default() };
        for bit in (0..4).rev().map(|place| bits >> place & 1) {
            match tree[usize::from(step.next)][bit] {
                Some(Branch::Node(next)) => step.next = next,
                Some(Branch::Leaf(END)) | None => step.is_bad = true,
                Some(Branch::Leaf(byte)) => (step.byte, step.next) = (Some(byte as u8), 0),
            }
        }
        step.may_end = ends.contains(&step.next);
        step
    };
    (0..tree.len()).map(|from| std::array::from_fn(|bits| step(from, bits))).collect()
}

/// The nodes, the root first: the branch for a 0 and the branch for a 1.
fn tree() -> Vec<[Option<Branch>; 2]> {
    let mut tree = vec![[None; 2]];
    let mut order: Vec<usize> = (0..LENGTHS.len()).collect();
    order.sort_by_key(|symbol| (LENGTHS[*symbol], *symbol));
    let (mut code, mut length) = (0_u32, LENGTHS[order[0]]);
    for symbol in order {
        code <<= LENGTHS[symbol] - length;
        length = LENGTHS[symbol];
        let mut node = 0;
        for bit in (1..length).rev().map(|place| (code >> place & 1) as usize) {
            node = match tree[node][bit] {
                Some(Branch::Node(next)) => usize::from(next),
                _ => {
                    // There are 256 nodes, as there are 257 leaves.
                    tree[node][bit] = Some(Branch::Node(tree.len() as u8));
                    tree.push([None; 2]);
                    tree.len() - 1
                }
            };
        }
        tree[node][(code & 1) as usize] = Some(Branch::Leaf(symbol));
        code += 1;
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Result<String, NotHuffman> {
        let mut out = Vec::new();
        decode(coded, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    /// The examples of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn decoder_reads_the_huffman_strings_of_rfc_7541() {
        let cases: [(&[u8], &str); 5] = [
            (b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (b"\x64\x02", "302"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ];
        for (coded, text) in cases {
            assert_eq!(decoded(coded).as_deref(), Ok(text));
        }
        assert_eq!(decoded(b"").as_deref(), Ok(""));
    }

    #[test]
    fn huffman_code_is_complete_and_decoder_tree_has_every_code() {
        let space: u64 = LENGTHS.iter().map(|length| 1_u64 << (30 - length)).sum();
        assert_eq!((space, tree().len()), (1 << 30, 256));
    }

    #[test]
    fn decoder_accepts_only_huffman_padding_of_less_than_eight_ones() {
        assert_eq!(decoded(b"\x1f").as_deref(), Ok("a"));
        assert_eq!(decoded(b"\x18"), Err(NotHuffman), "zeros");
        assert_eq!(decoded(b"\x1f\xff"), Err(NotHuffman), "eleven ones");
        assert_eq!(decoded(b"\xff\xff\xff\xff"), Err(NotHuffman), "the end of a string");
    }
}
