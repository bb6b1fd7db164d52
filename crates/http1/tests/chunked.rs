//! Property tests: a chunked body decodes to the encoded data in any pieces, and the decoder survives any bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sluicegate_http1::{Chunk, ChunkError, ChunkedDecoder, write_chunk_header};

#[derive(Debug, Default, PartialEq)]
struct Decoded {
    data: Vec<u8>,
    trailers: Vec<u8>,
    /// The position after the body, if the body is complete.
    end: Option<usize>,
}

/// Decodes `input`, which comes in pieces that end at `ends`.
fn decode(input: &[u8], ends: &[usize]) -> Result<Decoded, ChunkError> {
    let (mut decoder, mut decoded, mut start) = (ChunkedDecoder::default(), Decoded::default(), 0);
    for end in ends.iter().copied().chain([input.len()]) {
        loop {
            let (used, chunk) = decoder.next(&input[start..end])?;
            start += used;
            match chunk {
                Chunk::Data(piece) => {
                    assert!(!piece.is_empty());
                    decoded.data.extend_from_slice(piece);
                }
                Chunk::Trailers(lines) => {
                    assert!(lines.ends_with(b"\r\n"));
                    decoded.trailers.extend_from_slice(lines);
                }
                Chunk::Partial => break,
                Chunk::End => {
                    decoded.end = Some(start);
                    return Ok(decoded);
                }
            }
        }
    }
    Ok(decoded)
}

fn ends(input: &[u8], cuts: &[usize]) -> Vec<usize> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (input.len() + 1)).collect();
    ends.sort_unstable();
    ends
}

const EXTENSION: &str =
    "([ \t]?;[ \t]?[a-z]{1,5}([ \t]?=[ \t]?([a-z0-9]{1,5}|\"([ !#-\\[\\]-~]|\\\\[!-~]){0,6}\"))?){0,2}";

/// Pieces of chunked bodies, valid and invalid.
const PIECES: &[&str] = &[
    "0",
    "1",
    "3",
    "a",
    "F",
    "10",
    "0x1",
    "+1",
    ";",
    "a=b",
    "\"",
    "\\",
    " ",
    "\t",
    "\r\n",
    "\r",
    "\n",
    "abc",
    "A: b\r\n",
    "Host: a\r\n",
    "1\r\nx\r\n",
    "0\r\n\r\n",
    "0\r\n",
    "\0",
    "7fffffffffffffff",
    "8000000000000000",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decoder_restores_the_data_of_an_encoded_body(
        chunks in vec((vec(any::<u8>(), 1..40), EXTENSION, any::<bool>()), 0..8),
        last_extension in EXTENSION,
        trailers in vec(("x-[a-z]{0,8}", "[!-~]{0,10}"), 0..4),
        rest in vec(any::<u8>(), 0..10),
        cuts in vec(any::<usize>(), 0..10),
    ) {
        let (mut input, mut data) = (Vec::new(), Vec::new());
        for (chunk, extension, plain) in &chunks {
            if *plain {
                write_chunk_header(&mut input, chunk.len());
            } else {
                input.extend_from_slice(format!("{:03X}{extension}\r\n", chunk.len()).as_bytes());
            }
            input.extend_from_slice(chunk);
            input.extend_from_slice(b"\r\n");
            data.extend_from_slice(chunk);
        }
        input.extend_from_slice(format!("00{last_extension}\r\n").as_bytes());
        let lines: String = trailers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let lines = lines.replace("x-scheme", "x-schema");
        input.extend_from_slice(lines.as_bytes());
        input.extend_from_slice(b"\r\n");
        let end = input.len();
        input.extend_from_slice(&rest);

        let expected = Decoded { data, trailers: lines.into_bytes(), end: Some(end) };
        prop_assert_eq!(decode(&input, &ends(&input, &cuts)), Ok(expected));
    }

    #[test]
    fn decoding_a_body_in_any_pieces_gives_the_same_result(
        input in prop_oneof![
            vec(select(PIECES), 0..20).prop_map(|pieces| pieces.concat().into_bytes()),
            vec(any::<u8>(), 0..100),
        ],
        cuts in vec(any::<usize>(), 0..10),
    ) {
        let every: Vec<usize> = (0..input.len()).collect();
        let whole = decode(&input, &[]);
        prop_assert_eq!(&whole, &decode(&input, &ends(&input, &cuts)));
        prop_assert_eq!(&whole, &decode(&input, &every));
    }
}
