//! Chunked bodies, decoded and encoded again, so that the gateway forwards neither chunk extensions nor unusual chunks.

use sluicegate_http1::{Chunk, ChunkError, ChunkedDecoder, LAST_CHUNK, write_chunk_header};

use super::encode::may_forward_header;

/// The coding of forwarded data.
pub(super) enum Coding<'t> {
    /// Chunks with their trailers.
    Chunked,
    /// Chunks with the trailers that clients may send.
    OfClient,
    /// Chunks without trailers.
    Bare,
    /// Plain data.
    Plain,
    /// Plain data, and the trailers separately as header lines.
    Split(&'t mut Vec<u8>),
}

/// The result of a call of [`recode`].
pub(super) struct Recoded {
    /// The number of decoded bytes of the coded body.
    pub(super) taken: usize,
    /// The number of data bytes in them.
    pub(super) data: u64,
}

/// Decodes the available part of `body`, and appends the data to `out`.
pub(super) fn recode(
    decoder: &mut ChunkedDecoder,
    body: &[u8],
    out: &mut Vec<u8>,
    coding: &mut Coding<'_>,
) -> Result<Recoded, ChunkError> {
    let mut recoded = Recoded { taken: 0, data: 0 };
    let as_chunks = matches!(coding, Coding::Chunked | Coding::OfClient | Coding::Bare);
    let mut trailers = false;
    while !decoder.is_done() {
        let (used, chunk) = decoder.next(&body[recoded.taken..])?;
        recoded.taken += used;
        match chunk {
            Chunk::Partial => break,
            Chunk::Data(data) => {
                recoded.data += data.len() as u64;
                if as_chunks {
                    write_chunk_header(out, data.len());
                }
                out.extend_from_slice(data);
                if as_chunks {
                    out.extend_from_slice(b"\r\n");
                }
            }
            Chunk::Trailers(_) if matches!(coding, Coding::Bare) => {}
            Chunk::Trailers(lines) if as_chunks => {
                if !std::mem::replace(&mut trailers, true) {
                    out.extend_from_slice(b"0\r\n");
                }
                // Endpoints may treat trailers as headers.
                let passes = |line: &&[u8]| {
                    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
                    matches!(coding, Coding::Chunked) || may_forward_header(name, false, false)
                };
                for line in lines.split_inclusive(|byte| *byte == b'\n').filter(passes) {
                    out.extend_from_slice(line);
                }
            }
            Chunk::End if as_chunks => out.extend_from_slice(if trailers { b"\r\n" } else { LAST_CHUNK }),
            Chunk::Trailers(lines) => {
                if let Coding::Split(apart) = coding {
                    apart.extend_from_slice(lines);
                }
            }
            Chunk::End => {}
        }
    }
    Ok(recoded)
}
