//! Batches as bytes: CBOR, compressed by zstd.

use sluicegate_model::analytics::Batch;

/// The compression level: about a third of the size, at some 200 MB/s.
const LEVEL: i32 = 1;
/// The longest accepted encoding, in bytes.
const MAX: u64 = 32 << 20;

/// The reason why bytes are no batch.
#[derive(Debug, thiserror::Error)]
pub enum PackingError {
    /// The compression is malformed.
    #[error("the compression is malformed")]
    Compression,
    /// The batch is larger than 32 MiB.
    #[error("the batch is larger than 32 MiB")]
    TooLong,
    /// The encoding is malformed.
    #[error("{0}")]
    Encoding(#[from] sluicegate_model::encoding::Fault),
}

pub(crate) fn pack(batch: &Batch) -> Vec<u8> {
    let encoded = batch.encode();
    let mut packed = vec![0; zstd_safe::compress_bound(encoded.len())];
    // The buffer has the size that every input fits in.
    let size = zstd_safe::compress(&mut packed[..], &encoded, LEVEL).unwrap_or_default();
    packed.truncate(size);
    packed.shrink_to_fit();
    packed
}

pub(crate) fn unpack(bytes: &[u8]) -> Result<Batch, PackingError> {
    let size = zstd_safe::get_frame_content_size(bytes).ok().flatten().ok_or(PackingError::Compression)?;
    if size > MAX {
        return Err(PackingError::TooLong);
    }
    let mut encoded = vec![0; usize::try_from(size).map_err(|_| PackingError::TooLong)?];
    let decoded = zstd_safe::decompress(&mut encoded[..], bytes).map_err(|_| PackingError::Compression)?;
    encoded.truncate(decoded);
    Ok(Batch::decode(&encoded)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_batch_is_unpacked_and_other_bytes_are_rejected() {
        let batch = Batch { minute: 7, names: vec![String::new(); 1000], series: Vec::new() };
        let packed = pack(&batch);
        assert!(packed.len() < 100, "{}", packed.len());
        assert_eq!(unpack(&packed).expect("packed"), batch);
        assert!(unpack(&packed[..packed.len() - 1]).is_err());
        assert!(unpack(b"nonsense").is_err());
        let huge = vec![0; 33 << 20];
        let mut bomb = vec![0; zstd_safe::compress_bound(huge.len())];
        let size = zstd_safe::compress(&mut bomb[..], &huge, LEVEL).expect("room");
        assert!(matches!(unpack(&bomb[..size]), Err(PackingError::TooLong)));
    }
}
