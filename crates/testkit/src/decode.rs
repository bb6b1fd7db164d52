//! Compressed bodies, decoded as in a client: complete bodies, and the beginnings of incomplete bodies.

use std::io::Read;

use sluicegate_model::ContentCoding;

/// The result of decoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The decoded part of the body.
    pub body: Vec<u8>,
    /// Whether the stream is complete, without further bytes.
    pub is_whole: bool,
}

/// Decodes the received part of a body.
#[must_use]
pub fn decode(coding: ContentCoding, mut bytes: &[u8]) -> Decoded {
    let mut body = Vec::new();
    let ended = match coding {
        ContentCoding::Gzip => read(&mut flate2::bufread::GzDecoder::new(&mut bytes), &mut body),
        ContentCoding::Brotli => read(&mut brotli::Decompressor::new(&mut bytes, 1), &mut body),
        ContentCoding::Zstd => zstd(&mut bytes, &mut body),
    };
    Decoded { body, is_whole: ended && bytes.is_empty() }
}

/// Whether the stream is complete.
fn read(decoder: &mut impl Read, body: &mut Vec<u8>) -> bool {
    let mut piece = [0; 16 * 1024];
    loop {
        match decoder.read(&mut piece) {
            Ok(0) => return true,
            Ok(read) => body.extend_from_slice(&piece[..read]),
            Err(_) => return false,
        }
    }
}

fn zstd(bytes: &mut &[u8], body: &mut Vec<u8>) -> bool {
    let mut decoder = zstd_safe::DCtx::create();
    let mut piece = [0; 16 * 1024];
    loop {
        let mut input = zstd_safe::InBuffer::around(bytes);
        let mut output = zstd_safe::OutBuffer::around(&mut piece[..]);
        let Ok(left) = decoder.decompress_stream(&mut output, &mut input) else { return false };
        let (taken, given) = (input.pos(), output.pos());
        body.extend_from_slice(&piece[..given]);
        *bytes = &bytes[taken..];
        if left == 0 {
            return true;
        }
        if bytes.is_empty() && given < piece.len() {
            return false;
        }
    }
}
