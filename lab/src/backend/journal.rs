//! The journal: the ids of received requests that must not arrive twice.
//!
//! The pod writes an id after the end of the request, and before its response. If a gateway sends a request twice, the
//! id of that request appears twice, even if a pod was killed before its response.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Writes ids to a file.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
}

impl Writer {
    /// Continues at the end of the file.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        Ok(Self { file: file.with_context(|| format!("--journal {} cannot be written", path.display()))? })
    }

    /// Appends an id. The append is one write(2) to a file opened with O_APPEND: no data waits in this process, where
    /// SIGKILL would lose it, and pods may share a file.
    pub(super) fn append(&self, id: &[u8]) -> io::Result<()> {
        let line = [id, b"\n"].concat();
        let written = (&self.file).write(&line)?;
        if written < line.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }
}

/// The content of journals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Journal {
    /// The number of different ids.
    pub(crate) delivered: u64,
    /// The number of ids that appear more than once.
    pub(crate) duplicated: u64,
}

/// Reads the journals of all pods of one load. Ignores an incomplete last line: its request had no response.
pub(crate) fn read(files: &[PathBuf]) -> anyhow::Result<Journal> {
    let mut ids: HashMap<Box<[u8]>, bool> = HashMap::new();
    let mut journal = Journal::default();
    for path in files {
        let reading = || format!("reading the journal {}", path.display());
        let mut lines = BufReader::new(File::open(path).with_context(reading)?);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).with_context(reading)? > 0 {
            if line.pop() != Some(b'\n') {
                break;
            }
            match ids.get_mut(line.as_slice()) {
                Some(true) => {}
                Some(is_duplicated) => {
                    *is_duplicated = true;
                    journal.duplicated += 1;
                }
                None => {
                    ids.insert(line.as_slice().into(), false);
                    journal.delivered += 1;
                }
            }
            line.clear();
        }
    }
    Ok(journal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_counts_each_repeated_id_once() {
        let directory = tempfile::tempdir().unwrap();
        let [a, b, empty] = ["a", "b", "empty"].map(|name| directory.path().join(name));
        std::fs::write(&a, "1\n2\n3\n2\n2\n").unwrap();
        std::fs::write(&b, "3\n4\n5\n").unwrap();
        std::fs::write(&empty, "").unwrap();
        assert_eq!(read(&[a, b, empty]).unwrap(), Journal { delivered: 5, duplicated: 2 });
        assert_eq!(read(&[]).unwrap(), Journal::default());
    }

    #[test]
    fn reader_ignores_a_truncated_last_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::write(&path, "17\n18\n1").unwrap();
        assert_eq!(read(&[path]).unwrap(), Journal { delivered: 2, duplicated: 0 });
    }

    #[test]
    fn error_for_a_missing_journal_names_its_path() {
        let error = read(&["/nonexistent/journal".into()]).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/journal"), "{error}");
    }

    #[test]
    fn reopened_journal_is_extended_and_readable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        for id in ["x", "y", "x"] {
            Writer::open(&path).unwrap().append(id.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x\ny\nx\n");
        assert_eq!(read(&[path]).unwrap(), Journal { delivered: 2, duplicated: 1 });
    }
}
