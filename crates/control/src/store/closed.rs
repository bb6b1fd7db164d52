//! The routes that are closed because an unreadable SecurityPolicy may guard them.

use std::path::Path;
use std::sync::Arc;

use super::{FileEntry, Store, Touched};
use crate::manifest::{Document, Guarded, Manifest};
use crate::problem::{Origin, Problem, Severity};

impl Store {
    /// Call this until the initial files have been read. Nothing of an unreadable file is in service, so routes that a
    /// SecurityPolicy in the file guards would be open: this closes them. Later the last valid version guards them.
    pub(crate) fn close_unknown(&mut self) -> Touched {
        let mut touched = Touched::default();
        let is_open = |entry: &FileEntry| !entry.was_told && entry.closed.is_empty();
        for (file, entry) in self.files.iter_mut().filter(|(_, entry)| is_open(entry)) {
            entry.close(file);
            touched.routing |= !entry.closed.is_empty();
        }
        touched.problems = touched.routing;
        touched
    }

    /// Takes a file or a folder that cannot be opened. Its earlier content stays. Without earlier content, it may hold
    /// a SecurityPolicy of any namespace: see [`close_unknown`](Self::close_unknown).
    pub(crate) fn set_unopened(&mut self, path: &Path) -> Touched {
        if !self.files.contains_key(path) {
            let manifest = Manifest { documents: vec![(1, Arc::new(Document::unopened()))] };
            let entry = FileEntry { manifest, is_unopened: true, ..FileEntry::default() };
            self.files.insert(path.into(), entry);
        }
        Touched::default()
    }

    /// Removes a folder that can be opened again, after all files in it have been read, or a file that is gone. If the
    /// folder closed routes, its unreadable files close the routes that they may guard, as if the source had just
    /// started.
    pub(crate) fn remove_unopened(&mut self, path: &Path) -> Touched {
        let closes = self.files.get(path).is_some_and(|entry| entry.is_unopened && !entry.closed.is_empty());
        let is_within = |file: &Path, entry: &FileEntry| {
            closes && file != path && file.starts_with(path) && !entry.was_told && entry.closed.is_empty()
        };
        for (file, entry) in self.files.iter_mut().filter(|(file, entry)| is_within(file, entry)) {
            entry.close(file);
        }
        self.remove_file(path)
    }

    /// Whether routes are closed because a file or a folder cannot be opened.
    pub(crate) fn waits_for_unopened(&self) -> bool {
        self.files.values().any(|entry| entry.is_unopened && !entry.closed.is_empty())
    }

    /// Whether routes of a namespace are closed because an unreadable SecurityPolicy may guard them.
    pub(crate) fn closes(&self, namespace: &str) -> bool {
        self.closed().any(|(_, closed)| closed.iter().any(|guarded| guarded.has(namespace)))
    }

    /// The files with an unreadable SecurityPolicy, and the routes that it may guard.
    pub(crate) fn closed(&self) -> impl Iterator<Item = (&Arc<Path>, &[Guarded])> {
        let closed = self.files.iter().map(|(file, entry)| (file, &*entry.closed));
        closed.filter(|(_, closed)| !closed.is_empty())
    }

    /// Hands on the closed routes of a file that vanished: it may have been renamed, and be unreadable under its new
    /// name too.
    pub(super) fn hand_on(&mut self, closed: &[Guarded]) {
        let is_it = |entry: &FileEntry| {
            !closed.is_empty()
                && !entry.was_told
                && entry.closed.is_empty()
                && entry.manifest.unknown_guards() == closed
        };
        for (file, entry) in self.files.iter_mut().filter(|(_, entry)| is_it(entry)) {
            entry.closed = closed.to_vec();
            entry.faults.extend(told_of_closed(file, closed, entry.is_unopened));
        }
    }
}

impl FileEntry {
    /// Closes the routes that unreadable policies may guard.
    fn close(&mut self, file: &Arc<Path>) {
        self.closed = self.manifest.unknown_guards();
        self.faults.extend(told_of_closed(file, &self.closed, self.is_unopened));
    }
}

/// The problem of a file that closes routes; `None` if it closes none.
pub(super) fn told_of_closed(file: &Arc<Path>, closed: &[Guarded], is_unopened: bool) -> Option<Problem> {
    let closed: Vec<String> = closed.iter().map(ToString::to_string).collect();
    let what = closed.join(" and ");
    let message = match is_unopened {
        true => format!(
            "may contain a SecurityPolicy; {what} respond with 503 until it can be read. Make it readable, or move it out of the directory"
        ),
        false => format!(
            "may contain a SecurityPolicy whose targets cannot be read; {what} respond with 503 until they can be read. Fix the file"
        ),
    };
    (!closed.is_empty()).then(|| Problem {
        severity: Severity::Error,
        origin: Origin::file(file),
        object: None,
        field: String::new(),
        message,
        cause: None,
    })
}
