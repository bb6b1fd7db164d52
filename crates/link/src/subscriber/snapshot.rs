//! The last configuration, in a file, so that a data plane can start without a control plane.
//!
//! The file is replaced as a whole. Only its owner may read the file, because it contains private keys and the secrets
//! of policies. The file begins with a magic number and the version of its format, and ends with the SHA-256 of all
//! previous bytes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Buf as _, Bytes};

use crate::digest::Digest;
use crate::messages::{Batch, FromControl, FromControlSay, decoded};
use crate::resource::{Name, changed_item};

const MAGIC: &[u8] = b"sluicegate snapshot\n";
/// The version of the format, which changes when older programs cannot read the file. 1 was Protocol Buffers, 2 is
/// CBOR.
const FORMAT: u8 = 2;
const CHECKSUM: usize = 32;
/// The longest accepted file, in bytes.
const MAX: u64 = 1 << 30;

/// All resources at a version.
pub(super) struct Snapshot {
    pub(super) epoch: Bytes,
    pub(super) version: u64,
    pub(super) resources: Vec<(Name, Bytes)>,
}

/// The reason why no snapshot is available.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("it is longer than 1 GiB")]
    TooLong,
    #[error("it is not a snapshot file")]
    Magic,
    #[error(
        "its format is {0}, of an older version; the control plane sends everything, and format {FORMAT} is written"
    )]
    Older(u8),
    #[error("its format is {0}, which this version does not know")]
    Format(u8),
    #[error("its checksum is wrong; the file is damaged or incomplete")]
    Checksum,
    #[error("it cannot be decoded")]
    Malformed,
}

impl Snapshot {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, SnapshotError> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX {
            return Err(SnapshotError::TooLong);
        }
        let mut bytes = Bytes::from(bytes);
        if !bytes.starts_with(MAGIC) {
            return Err(SnapshotError::Magic);
        }
        match bytes.get(MAGIC.len()) {
            Some(&FORMAT) => {}
            Some(&older @ ..FORMAT) => return Err(SnapshotError::Older(older)),
            Some(&other) => return Err(SnapshotError::Format(other)),
            None => return Err(SnapshotError::Checksum),
        }
        let Some(body) = bytes.len().checked_sub(CHECKSUM).filter(|body| *body > MAGIC.len()) else {
            return Err(SnapshotError::Checksum);
        };
        let checksum = bytes.split_off(body);
        if Digest::of(&bytes).as_bytes() != &*checksum {
            return Err(SnapshotError::Checksum);
        }
        bytes.advance(MAGIC.len() + 1);
        Self::decode(bytes).ok_or(SnapshotError::Malformed)
    }

    fn decode(mut bytes: Bytes) -> Option<Self> {
        let epoch = bytes.try_get_u8().ok()?;
        let epoch = (bytes.len() >= epoch.into()).then(|| bytes.split_to(epoch.into()))?;
        let message: FromControl = decoded(&bytes).ok()?;
        let Some(FromControlSay::Batch(batch)) = message.say else { return None };
        let resources = batch.changes.into_iter().filter_map(|change| {
            let name = Name { kind: change.kind, name: change.name };
            Some((name, change.body?))
        });
        Some(Self {
            epoch: Bytes::copy_from_slice(&epoch),
            version: batch.version,
            resources: resources.collect(),
        })
    }

    /// Writes the snapshot in place of the old file.
    pub(super) fn write(self, path: &Path) -> io::Result<()> {
        let new = temporary(path);
        // The file may remain from a crash, with permissions for other users.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let written = self.write_to(&file).and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            // The caller needs only the first error.
            let _ = fs::remove_file(&new);
        }
        written?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(dir)?.sync_all()
    }

    fn write_to(self, file: &File) -> io::Result<()> {
        let mut out = io::BufWriter::new(Summed { context: Context::new(&SHA256), file });
        out.write_all(MAGIC)?;
        out.write_all(&[FORMAT, u8::try_from(self.epoch.len()).map_err(io::Error::other)?])?;
        out.write_all(&self.epoch)?;
        out.write_all(&Batch::head(self.version, false, self.resources.len()))?;
        for (name, body) in self.resources {
            out.write_all(&changed_item(&name, body))?;
        }
        let Summed { context, mut file } = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.write_all(context.finish().as_ref())?;
        file.sync_all()
    }
}

/// A file, with the running digest of its bytes.
struct Summed<'a> {
    context: Context,
    file: &'a File,
}

impl io::Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.context.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A file beside the snapshot, with the process in its name: during a takeover two processes may write.
fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.new", std::process::id()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn snapshot() -> Snapshot {
        let name = Name { kind: 3, name: Bytes::from_static(b"host") };
        let resources = vec![(name, Bytes::from_static(b"body"))];
        Snapshot { epoch: Bytes::from_static(b"epoch"), version: 7, resources }
    }

    #[test]
    fn snapshot_is_restored_unchanged_and_readable_only_by_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshot");
        for _ in 0..2 {
            snapshot().write(&path).unwrap();
            let back = Snapshot::read(&path).unwrap();
            assert_eq!((back.epoch, back.version), (snapshot().epoch, 7));
            assert_eq!(back.resources, snapshot().resources);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn truncated_or_altered_snapshot_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshot");
        snapshot().write(&path).unwrap();
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            fs::write(&path, &good[..at]).unwrap();
            assert!(Snapshot::read(&path).is_err(), "cut at {at}");
            let mut changed = good.clone();
            changed[at] ^= 1;
            fs::write(&path, changed).unwrap();
            assert!(Snapshot::read(&path).is_err(), "changed at {at}");
        }
    }

    #[test]
    fn error_for_a_snapshot_of_another_format_names_the_format() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshot");
        for (format, message) in [
            (9, "its format is 9, which this version does not know"),
            (
                1,
                "its format is 1, of an older version; the control plane sends everything, and format 2 is written",
            ),
        ] {
            fs::write(&path, [MAGIC, &[format], b"what it held"].concat()).unwrap();
            let error = Snapshot::read(&path).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some(message));
        }
    }
}
