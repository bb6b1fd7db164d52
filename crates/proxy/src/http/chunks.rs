//! Chunked bodies, decoded and encoded again, so that extensions and oddities end here.

use sluicegate_http1::{Chunk, ChunkError, ChunkedDecoder, LAST_CHUNK, write_chunk_header};

/// What a call of [`recode`] did.
pub(super) struct Recoded {
    /// How many bytes of the coded body it took.
    pub(super) taken: usize,
    /// How many bytes of data were in them.
    pub(super) data: u64,
}

/// Decodes as much of `body` as there is, and appends it to `out`: as chunks with their trailers, or as plain
/// data.
pub(super) fn recode(
    decoder: &mut ChunkedDecoder,
    body: &[u8],
    out: &mut Vec<u8>,
    as_chunks: bool,
) -> Result<Recoded, ChunkError> {
    let mut recoded = Recoded { taken: 0, data: 0 };
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
            Chunk::Trailers(lines) if as_chunks => {
                if !std::mem::replace(&mut trailers, true) {
                    out.extend_from_slice(b"0\r\n");
                }
                out.extend_from_slice(lines);
            }
            Chunk::End if as_chunks => out.extend_from_slice(if trailers { b"\r\n" } else { LAST_CHUNK }),
            Chunk::Trailers(_) | Chunk::End => {}
        }
    }
    Ok(recoded)
}
