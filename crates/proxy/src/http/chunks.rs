//! Chunked bodies, decoded and encoded again, so that extensions and oddities end here.

use sluicegate_http1::{Chunk, ChunkError, ChunkedDecoder, LAST_CHUNK, write_chunk_header};

use super::encode::is_harmless;

/// How data goes on.
pub(super) enum Coding<'t> {
    /// As chunks with their trailers.
    Chunked,
    /// As chunks with those trailers that clients may send.
    OfClient,
    /// As chunks without their trailers.
    Bare,
    /// As it is.
    Plain,
    /// As it is, and the trailers apart, as header lines.
    Split(&'t mut Vec<u8>),
}

/// What a call of [`recode`] did.
pub(super) struct Recoded {
    /// How many bytes of the coded body it took.
    pub(super) taken: usize,
    /// How many bytes of data were in them.
    pub(super) data: u64,
}

/// Decodes as much of `body` as there is, and appends it to `out`.
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
                // Endpoints may take them for headers.
                let passes = |line: &&[u8]| {
                    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
                    matches!(coding, Coding::Chunked) || is_harmless(name, false, false)
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
