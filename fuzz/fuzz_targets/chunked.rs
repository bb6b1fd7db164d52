//! Chunked bodies: no panic, the same result for all pieces, and decoded data survives encoding and decoding.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_http1::{Chunk, ChunkError, ChunkedDecoder, write_chunk_header};

#[derive(Debug, Default, PartialEq)]
struct Decoded {
    data: Vec<u8>,
    trailers: Vec<u8>,
    end: Option<usize>,
}

fn decode(input: &[u8], ends: impl Iterator<Item = usize>) -> Result<Decoded, ChunkError> {
    let (mut decoder, mut decoded, mut start) = (ChunkedDecoder::default(), Decoded::default(), 0);
    for end in ends {
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
                    assert!(decoder.is_done());
                    decoded.end = Some(start);
                    return Ok(decoded);
                }
            }
        }
    }
    assert!(!decoder.is_done());
    Ok(decoded)
}

fuzz_target!(|input: &[u8]| {
    let whole = decode(input, [input.len()].into_iter());
    assert_eq!(whole, decode(input, 0..=input.len()), "byte by byte");
    assert_eq!(whole, decode(input, [input.len() / 2, input.len()].into_iter()), "in halves");
    let Ok(decoded @ Decoded { end: Some(_), .. }) = whole else { return };

    let mut encoded = Vec::new();
    if !decoded.data.is_empty() {
        write_chunk_header(&mut encoded, decoded.data.len());
        encoded.extend_from_slice(&decoded.data);
        encoded.extend_from_slice(b"\r\n");
    }
    encoded.extend_from_slice(b"0\r\n");
    encoded.extend_from_slice(&decoded.trailers);
    encoded.extend_from_slice(b"\r\n");
    let again = decode(&encoded, [encoded.len()].into_iter());
    assert_eq!(again, Ok(Decoded { end: Some(encoded.len()), ..decoded }));
});
