use super::*;

/// The result of decoding a body.
#[derive(Debug, Default, PartialEq)]
struct Decoded {
    data: Vec<u8>,
    trailers: Vec<u8>,
    /// The bytes after the end of the body, or the bytes that were not consumed.
    rest: Vec<u8>,
    done: bool,
}

/// Decodes `input` in pieces of `size` bytes.
fn decode_in_pieces(input: &[u8], size: usize) -> Result<Decoded, ChunkError> {
    let (mut decoder, mut decoded, mut start) = (ChunkedDecoder::default(), Decoded::default(), 0);
    for end in (size..input.len()).step_by(size).chain([input.len()]) {
        loop {
            let (used, chunk) = decoder.next(&input[start..end])?;
            start += used;
            match chunk {
                Chunk::Data(piece) => decoded.data.extend_from_slice(piece),
                Chunk::Trailers(lines) => decoded.trailers.extend_from_slice(lines),
                Chunk::End | Chunk::Partial => break,
            }
        }
    }
    decoded.rest = input[start..].to_vec();
    decoded.done = decoder.is_done();
    Ok(decoded)
}

fn decode(input: &[u8]) -> Result<Decoded, ChunkError> {
    decode_in_pieces(input, usize::MAX)
}

#[test]
fn chunked_body_is_decoded_and_following_bytes_stay_in_the_buffer() {
    let input = b"5\r\nhello\r\n00A\r\n, world!!!\r\n0\r\n\r\nGET";
    for size in 1..=input.len() {
        let decoded = decode_in_pieces(input, size).unwrap();
        assert_eq!(decoded.data, b"hello, world!!!");
        assert_eq!((decoded.trailers, decoded.rest), (vec![], b"GET".to_vec()));
        assert!(decoded.done);
    }
}

#[test]
fn decoder_drops_chunk_extensions() {
    let lines = [
        "3;a",
        "3;a=b",
        "3 ; a = b",
        "3;a;b=\"c\\\"; d\";e",
        "3;a=\"\"\t;b",
        "3\t;a",
        "3;a ;b",
        "3;a=\"\u{e4}\\\\\"",
    ];
    for line in lines {
        let input = format!("{line}\r\nabc\r\n0;z\r\n\r\n");
        for size in [1, usize::MAX] {
            let decoded = decode_in_pieces(input.as_bytes(), size).unwrap();
            assert_eq!(decoded.data, b"abc", "{line}");
            assert!(decoded.done, "{line}");
        }
    }
}

#[test]
fn ambiguous_chunked_body_is_rejected() {
    let cases: &[(&[u8], ChunkError)] = &[
        (b"\r\n", ChunkError::InvalidSize),
        (b";a\r\n", ChunkError::InvalidSize),
        (b"0x10\r\n", ChunkError::InvalidSize),
        (b"+5\r\n", ChunkError::InvalidSize),
        (b"-5\r\n", ChunkError::InvalidSize),
        (b" 5\r\n", ChunkError::InvalidSize),
        (b"5 \r\n", ChunkError::InvalidSize),
        (b"5\t\r\n", ChunkError::InvalidSize),
        (b"5 5\r\n", ChunkError::InvalidSize),
        (b"5_0\r\n", ChunkError::InvalidSize),
        (b"g\r\n", ChunkError::InvalidSize),
        (b"5,\r\n", ChunkError::InvalidSize),
        (b"\n5\r\n", ChunkError::InvalidSize),
        (b"5\0\r\n", ChunkError::InvalidSize),
        (b"8000000000000000\r\n", ChunkError::SizeTooLarge),
        (b"ffffffffffffffff\r\n", ChunkError::SizeTooLarge),
        (b"00000000000000005\r\n", ChunkError::SizeTooLarge),
        (b"10000000000000005\r\n", ChunkError::SizeTooLarge),
        (b"5\nhello", ChunkError::BareLineEnd),
        (b"5\rhello", ChunkError::BareLineEnd),
        (b"5\r\r\n", ChunkError::BareLineEnd),
        (b"5;a\nhello", ChunkError::BareLineEnd),
        (b"5;a\rb", ChunkError::BareLineEnd),
        (b"5;a=\"\r\nhello\r\n\"\r\n", ChunkError::BareLineEnd),
        (b"5;a=\"\\\r\n\"\r\n", ChunkError::BareLineEnd),
        (b"5;a=\"\n\"\r\n", ChunkError::BareLineEnd),
        (b"5;\r\n", ChunkError::InvalidExtension),
        (b"5;;a\r\n", ChunkError::InvalidExtension),
        (b"5;=a\r\n", ChunkError::InvalidExtension),
        (b"5;a=\r\n", ChunkError::InvalidExtension),
        (b"5;a \r\n", ChunkError::InvalidExtension),
        (b"5;a==b\r\n", ChunkError::InvalidExtension),
        (b"5;a b\r\n", ChunkError::InvalidExtension),
        (b"5;a=b\"\r\n", ChunkError::InvalidExtension),
        (b"5;a=\"b\"c\r\n", ChunkError::InvalidExtension),
        (b"5;a=\"\0\"\r\n", ChunkError::InvalidExtension),
        (b"5;\0\r\n", ChunkError::InvalidExtension),
        (b"5\r\nhello0\r\n\r\n", ChunkError::MissingDataEnd),
        (b"5\r\nhello\n0\r\n\r\n", ChunkError::MissingDataEnd),
        (b"5\r\nhello\r0\r\n\r\n", ChunkError::MissingDataEnd),
        (b"5\r\nhello!\r\n", ChunkError::MissingDataEnd),
        (b"0\r\n\n", ChunkError::InvalidTrailer),
        (b"0\r\nA: b\n\r\n", ChunkError::InvalidTrailer),
        (b"0\r\nA: b\r\n\n\r\n\r\n", ChunkError::InvalidTrailer),
        (b"0\r\nA : b\r\n\r\n", ChunkError::InvalidTrailer),
        (b"0\r\nA: b\r\n c\r\n\r\n", ChunkError::InvalidTrailer),
        (b"0\r\nA: b\rc\r\n\r\n", ChunkError::InvalidTrailer),
        (b"0\r\nA: \0\r\n\r\n", ChunkError::InvalidTrailer),
        (b"0\r\nGET / HTTP/1.1\r\n\r\n", ChunkError::InvalidTrailer),
        (b"0\r\n: b\r\n\r\n", ChunkError::InvalidTrailer),
    ];
    for (input, error) in cases {
        for size in [1, 2, 3, usize::MAX] {
            assert_eq!(decode_in_pieces(input, size), Err(*error), "{} by {size}", input.escape_ascii());
        }
    }
}

#[test]
fn decoder_never_reports_a_truncated_chunked_body_as_complete() {
    let input = b"5;a=\"b\"\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for end in 0..input.len() {
        assert!(!decode(&input[..end]).unwrap().done, "{}", input[..end].escape_ascii());
    }
    let largest = decode(b"7fffffffffffffff\r\nx").unwrap();
    assert_eq!(largest.data, b"x");
}

#[test]
fn decoder_drops_forbidden_trailers() {
    let input = b"0\r\nHost: evil\r\nGrpc-Status: 0\r\nGrpc-Message:\r\ncontent-length: 5\r\n\
                  TRANSFER-ENCODING: chunked\r\nX-Sum:  a \r\nAuthorization: b\r\nExpires: 0\r\n\r\nGET";
    for size in [1, 7, usize::MAX] {
        let decoded = decode_in_pieces(input, size).unwrap();
        assert_eq!(decoded.trailers, b"Grpc-Status: 0\r\nGrpc-Message:\r\nX-Sum:  a \r\n", "by {size}");
        assert_eq!(decoded.rest, b"GET");
        assert!(decoded.done);
    }
    let decoded = decode(b"0\r\nX-Forwarded-For: 1\r\n\r\n").unwrap();
    assert_eq!((decoded.trailers, decoded.done), (vec![], true));
}

#[test]
fn decoder_returns_trailers_only_after_they_are_complete() {
    let mut decoder = ChunkedDecoder::default();
    assert_eq!(decoder.next(b"0\r\nA: b\r\n"), Ok((3, Chunk::Partial)));
    assert_eq!(decoder.next(b"A: b\r\n\r"), Ok((0, Chunk::Partial)));
    assert_eq!(decoder.next(b"A: b\r\n\r\nx"), Ok((6, Chunk::Trailers(b"A: b\r\n"))));
    assert_eq!(decoder.next(b"\r\nx"), Ok((2, Chunk::End)));
    assert_eq!(decoder.next(b"x"), Ok((0, Chunk::End)));
}

#[test]
fn decoder_limits_the_size_and_number_of_trailers() {
    let with_line = |length: usize| format!("0\r\nA:{}\r\n\r\n", "b".repeat(length)).into_bytes();
    assert!(decode(&with_line(8 * 1024 - 4)).unwrap().done);
    for size in [1, usize::MAX] {
        assert_eq!(decode_in_pieces(&with_line(8 * 1024 - 3), size), Err(ChunkError::TrailersTooLarge));
    }
    let with_lines = |lines: usize| format!("0\r\n{}\r\n", "A:b\r\n".repeat(lines)).into_bytes();
    assert!(decode(&with_lines(64)).unwrap().done);
    assert_eq!(decode(&with_lines(65)), Err(ChunkError::TrailersTooLarge));
}

#[test]
fn decoder_limits_chunk_extensions_per_line_and_per_body() {
    let line = |length: usize| format!("1;{}\r\nx\r\n", "a".repeat(length));
    assert!(decode(line(4096 - 4).as_bytes()).is_ok());
    assert_eq!(decode(line(4096 - 3).as_bytes()), Err(ChunkError::ExtensionsTooLarge));
    assert!(decode(line(2000).repeat(8).as_bytes()).is_ok());
    assert_eq!(decode(line(2000).repeat(9).as_bytes()), Err(ChunkError::ExtensionsTooLarge));
    assert!(decode(line(14).repeat(10_000).as_bytes()).is_ok(), "small chunks with small extensions");
}

#[test]
fn written_chunk_header_has_the_length_in_hexadecimal() {
    for len in [1, 9, 10, 15, 16, 255, 4096, 65_535, i64::MAX as usize] {
        let mut line = Vec::new();
        write_chunk_header(&mut line, len);
        assert_eq!(line, format!("{len:x}\r\n").into_bytes());
    }
    assert_eq!(decode(LAST_CHUNK), Ok(Decoded { done: true, ..Decoded::default() }));
}

#[test]
fn index_of_each_chunk_error_is_its_position_in_the_list() {
    for (index, error) in ChunkError::ALL.iter().enumerate() {
        assert_eq!(error.index(), index);
    }
    assert_eq!(ChunkError::ALL.len(), ChunkError::TrailersTooLarge.index() + 1);
}
