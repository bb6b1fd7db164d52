//! The manifests of a directory as they come, change and go: files to read, files that are being written, and files
//! that are gone.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::scan::{self, FileId, Listing, Stamp};
use super::watch::Notice;
use crate::problem::{Origin, Problem, Severity};
use crate::store::{Store, Touched};

/// The longest absence of a name before its objects are removed. Editors and git replace a file: they unlink it and
/// create a new file of the same name, usually within 0.1 ms. On a machine with more work than processors the absence
/// exceeded 5 ms once in some thousand times.
const GONE_GRACE: Duration = Duration::from_millis(50);

/// The longest absence of a file that holds EndpointSlices alone: the removal of an endpoint must not wait.
const GONE_GRACE_OF_SLICES: Duration = Duration::from_millis(5);

/// The longest absence after the directory itself was absent or was replaced: its files arrive one by one.
const RETURN_GRACE: Duration = Duration::from_secs(1);

/// The gateway reads a file that is open for writing if it did not change for this long.
const WRITING_MAX: Duration = Duration::from_secs(60);

/// The purpose of reading the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Problems are reported.
    Check,
    /// The objects are served.
    Serve,
}

/// The manifests of a directory, and the objects in them.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    purpose: Purpose,
    pub(super) store: Store,
    stamps: BTreeMap<PathBuf, Stamp>,
    /// Files to read, because of a notice or a walk.
    unread: BTreeSet<PathBuf>,
    /// Files that changed without a notice. The gateway reads them if a second look finds them unchanged.
    unsettled: HashMap<PathBuf, Stamp>,
    /// Files that are being written, each with the time of the last write.
    writing: HashMap<PathBuf, Instant>,
    /// Absent files, each with the time at which its objects are removed.
    gone: BTreeMap<PathBuf, Instant>,
    /// The directory that the last walk found; `None` if there was none.
    present: Option<FileId>,
    /// Problems of files that cannot be read.
    faults: BTreeMap<PathBuf, Problem>,
    root_fault: Option<Problem>,
    touched: Touched,
}

impl Files {
    /// No files yet. `is_recording` tells whether the store records changes for the audit trail.
    pub(super) fn new(root: &Path, purpose: Purpose, is_recording: bool) -> Self {
        Self {
            root: root.to_owned(),
            purpose,
            store: if is_recording { Store::recording() } else { Store::default() },
            stamps: BTreeMap::new(),
            unread: BTreeSet::new(),
            unsettled: HashMap::new(),
            writing: HashMap::new(),
            gone: BTreeMap::new(),
            present: None,
            faults: BTreeMap::new(),
            root_fault: None,
            touched: Touched::default(),
        }
    }

    /// Takes a notice. Returns whether the directory must be walked.
    pub(super) fn notice(&mut self, notice: &Notice, now: Instant) -> bool {
        match notice {
            Notice::Written(path) => {
                self.writing.remove(path);
                self.gone.remove(path);
                self.unread.insert(path.clone());
            }
            Notice::Writing(path) => {
                self.writing.insert(path.clone(), now);
            }
            Notice::Gone(path) => {
                self.writing.remove(path);
                self.unread.remove(path);
                self.lose(path, now);
            }
            Notice::Structure => return true,
            Notice::Overflow => {
                self.writing.clear();
                self.unread.extend(self.stamps.keys().cloned());
                return true;
            }
        }
        false
    }

    /// Takes the result of a walk: new and changed files will be read, missing files are gone. Returns whether to walk
    /// again soon.
    pub(super) fn walked(&mut self, walk: io::Result<Listing>, now: Instant) -> bool {
        let listing = match walk {
            Ok(listing) => listing,
            Err(error) => {
                self.lose_root(&error);
                return true;
            }
        };
        self.writing.retain(|_, since| now.duration_since(*since) < WRITING_MAX);
        let has_returned = self.present != Some(listing.root);
        self.present = Some(listing.root);
        self.touched.problems |= self.root_fault.take().is_some();
        let was_unsettled = std::mem::take(&mut self.unsettled);
        for (path, stamp) in &listing.files {
            let known = self.stamps.get(path);
            if known == Some(stamp) && !self.faults.contains_key(path) || self.writing.contains_key(path) {
                continue;
            }
            // A replaced file is complete. A file that changed in place, without a notice, may be incomplete.
            let is_settled = known.is_none_or(|known| known.id != stamp.id)
                || known == Some(stamp)
                || was_unsettled.get(path) == Some(stamp);
            if is_settled {
                self.unread.insert(path.clone());
            } else {
                self.unsettled.insert(path.clone(), *stamp);
            }
        }
        self.lose_missing(&listing, if has_returned { RETURN_GRACE } else { GONE_GRACE }, now);
        for (path, error) in &listing.faults {
            self.set_fault(path, error);
        }
        // inotify reports no change of a mode, and routes are closed until the mode changes.
        !self.unsettled.is_empty() || self.waits_for_unopened()
    }

    /// Whether routes are closed because a file or a folder cannot be opened.
    pub(super) fn waits_for_unopened(&self) -> bool {
        self.store.waits_for_unopened()
    }

    /// The directory is absent: the objects that were read from it stay.
    fn lose_root(&mut self, error: &io::Error) {
        self.present = None;
        let advice = match (self.purpose, is_absence(error)) {
            (Purpose::Check, _) => "",
            (Purpose::Serve, true) => ". Create it, or fix --manifests",
            (Purpose::Serve, false) => ". Allow the user of this process to list it, or fix --manifests",
        };
        let consequence = self.consequence(&self.root);
        let problem = problem(&self.root, format!("cannot be listed: {error}{consequence}{advice}"));
        self.touched.problems |= self.root_fault.as_ref() != Some(&problem);
        self.root_fault = Some(problem);
    }

    fn lose_missing(&mut self, listing: &Listing, grace: Duration, now: Instant) {
        // Applies to a folder that cannot be listed, and to the files in it.
        let is_unknown = |path: &Path| listing.faults.iter().any(|(fault, _)| path.starts_with(fault));
        let deadline = now + grace;
        for path in self.stamps.keys().chain(self.faults.keys()) {
            if !listing.files.contains_key(path) && !is_unknown(path) {
                let due = self.gone.entry(path.clone()).or_insert(deadline);
                // Files that went before the directory have waited since then.
                *due = if grace == RETURN_GRACE { deadline } else { *due };
            }
        }
    }

    /// The files to read, without the files that are being written, which come later.
    pub(super) fn take_unread(&mut self) -> Vec<PathBuf> {
        let paths = std::mem::take(&mut self.unread);
        paths.into_iter().filter(|path| !self.writing.contains_key(path)).collect()
    }

    /// Takes manifests that the gateway itself has written in another directory.
    pub(super) fn take_written(&mut self, manifests: &[(PathBuf, String)]) {
        for (path, text) in manifests {
            if let Some(dir) = path.parent() {
                self.store.set_written_by_gateway(&dir.into());
            }
            self.touched.merge(self.store.set_file(path, text));
        }
    }

    /// Whether files wait to be read.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Whether files are being written that have not been read.
    pub(super) fn awaits_new(&self) -> bool {
        self.writing.keys().any(|path| !self.stamps.contains_key(path))
    }

    /// Takes the result of reading a file.
    pub(super) fn set(&mut self, path: &Path, read: io::Result<(Vec<u8>, Stamp)>, now: Instant) {
        match read {
            Ok((bytes, stamp)) => {
                self.stamps.insert(path.to_owned(), stamp);
                match String::from_utf8(bytes) {
                    Ok(text) => {
                        self.touched.merge(self.store.set_file(path, &text));
                        self.touched.problems |= self.faults.remove(path).is_some();
                    }
                    Err(error) => {
                        let text = String::from_utf8_lossy(error.as_bytes());
                        self.touched.merge(self.store.set_unreadable(path, &text));
                        let fault = io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
                        self.set_fault(path, &fault);
                    }
                }
            }
            Err(error) if is_absence(&error) => self.lose(path, now),
            Err(error) => self.set_fault(path, &error),
        }
    }

    /// A name is absent: its objects are removed if it stays absent.
    fn lose(&mut self, path: &Path, now: Instant) {
        if self.stamps.contains_key(path) || self.faults.contains_key(path) {
            let grace = if self.store.holds_slices_alone(path) { GONE_GRACE_OF_SLICES } else { GONE_GRACE };
            self.gone.entry(path.to_owned()).or_insert(now + grace);
        }
    }

    fn set_fault(&mut self, path: &Path, error: &io::Error) {
        self.gone.remove(path);
        self.touched.merge(self.store.set_unopened(path));
        let problem = problem(path, format!("cannot be read: {error}{}", self.consequence(path)));
        self.touched.problems |= self.faults.insert(path.to_owned(), problem.clone()) != Some(problem);
    }

    /// The consequence for the service if this file or folder cannot be read, as the rest of a sentence.
    fn consequence(&self, path: &Path) -> &'static str {
        // Paths are ordered by their components, so the content of a folder follows the folder.
        let mut within = self.stamps.range(path.to_owned()..).take_while(|(file, _)| file.starts_with(path));
        let had_files = within.any(|(file, _)| self.store.has_read(file));
        match (self.purpose, had_files) {
            (Purpose::Check, _) => "",
            (Purpose::Serve, true) => "; its previous content stays in service",
            (Purpose::Serve, false) if path == self.root => {
                "; the gateway is not ready until it can be listed"
            }
            (Purpose::Serve, false) => "; nothing is served from it",
        }
    }

    /// The time of the next work for [`expire`](Self::expire).
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.present?;
        self.gone.values().min().copied()
    }

    /// Removes the objects of files that are gone. Returns whether the directory must be walked.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        // A renamed file is already known by its new name.
        let store = &self.store;
        let due: Vec<PathBuf> = self
            .gone
            .iter()
            .filter(|(path, due)| **due <= now || store.is_redundant(path))
            .map(|(path, _)| path.clone())
            .collect();
        if due.is_empty() || self.present.is_none() {
            return false;
        }
        // The files of a directory disappear before the directory does. Then the directory is absent, and the files are
        // not gone.
        if scan::identify(&self.root).ok() != self.present {
            self.present = None;
            return true;
        }
        for path in due {
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_file() => {
                    self.gone.remove(&path);
                    self.unread.insert(path);
                }
                Err(error) if !is_absence(&error) => {
                    self.set_fault(&path, &error);
                    self.gone.insert(path, now + RETURN_GRACE);
                }
                // The folder can be listed again: its files come first.
                Ok(_) if self.has_unread_in(&path) => {
                    self.gone.insert(path, now + GONE_GRACE);
                }
                Ok(_) | Err(_) => {
                    self.gone.remove(&path);
                    self.stamps.remove(&path);
                    self.touched.problems |= self.faults.remove(&path).is_some();
                    self.touched.merge(self.store.remove_unopened(&path));
                }
            }
        }
        false
    }

    /// Whether files in a folder have not been read, because they are new or are being written.
    fn has_unread_in(&self, folder: &Path) -> bool {
        let being_written = self.writing.keys().filter(|path| !self.stamps.contains_key(*path));
        self.unread.iter().chain(being_written).any(|path| path.starts_with(folder))
    }

    /// Whether there was a directory at the last walk.
    pub(super) fn is_present(&self) -> bool {
        self.present.is_some()
    }

    /// Closes the routes that an unreadable object may guard: see [`Store::close_unknown`].
    pub(super) fn close_unknown(&mut self) {
        self.touched.merge(self.store.close_unknown());
    }

    /// The changes since the last call.
    pub(super) fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// The problems of the directory, of its files, and of the objects in them.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.root_fault.iter().chain(self.faults.values()).cloned().chain(self.store.problems())
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn problem(path: &Path, message: String) -> Problem {
    let origin = Origin::file(&Arc::from(path));
    Problem { severity: Severity::Error, origin, object: None, field: String::new(), message, cause: None }
}
