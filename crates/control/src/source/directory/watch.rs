//! Notices of changes in a directory of manifests, from inotify.
//!
//! This module reads the kernel's queue directly. After it reads a file, the queue shows for certain whether a process
//! was writing the file in the meantime. A watcher that passes events on from its own thread cannot show this.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use super::scan::{is_hidden, is_manifest};

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// A manifest is complete: it was closed after writing, or moved or linked to this name.
    Written(PathBuf),
    /// A process is writing to a manifest; [`Written`](Self::Written) follows.
    Writing(PathBuf),
    /// A manifest was deleted or moved away.
    Gone(PathBuf),
    /// Folders came or went, or the `..data` of a mounted ConfigMap was swapped: walk again.
    Structure,
    /// The kernel has dropped notices: read everything again.
    Overflow,
}

impl Notice {
    /// The manifest of the notice.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Written(path) | Self::Writing(path) | Self::Gone(path) => Some(path),
            Self::Structure | Self::Overflow => None,
        }
    }
}

/// The source of notices.
pub(super) struct Watch {
    queue: AsyncFd<Arc<OwnedFd>>,
    root: PathBuf,
    /// The watched folders by their watch; symlinks give one folder several paths.
    folders: HashMap<i32, Vec<PathBuf>>,
    /// The watch on the folder around the root, which reports that the root itself was replaced.
    around: Option<i32>,
}

impl Watch {
    /// Must be called within a runtime.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let queue = Arc::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?);
        #[expect(
            deprecated,
            reason = "sound for an Arc<OwnedFd>, which is one open file for as long as it is here"
        )]
        let queue = AsyncFd::new(queue)?;
        let mut watch = Self { queue, root: root.to_owned(), folders: HashMap::new(), around: None };
        watch.watch_around();
        Ok(watch)
    }

    /// The queue, for [`watch_folder`] on another thread.
    pub(super) fn queue(&self) -> Arc<OwnedFd> {
        self.queue.get_ref().clone()
    }

    /// Waits for notices.
    pub(super) async fn ready(&self) {
        match self.queue.readable().await {
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => {
                tracing::error!(%error, "cannot wait for inotify; the gateway looks for changes every 10 s instead");
                std::future::pending::<()>().await;
            }
        }
    }

    /// Takes the folders of a walk, and forgets folders that no longer exist.
    pub(super) fn set_folders(&mut self, folders: Vec<(PathBuf, Option<i32>)>) {
        let mut watched: HashMap<i32, Vec<PathBuf>> = HashMap::new();
        for (folder, watch) in folders {
            if let Some(watch) = watch {
                watched.entry(watch).or_default().push(folder);
            }
        }
        for watch in self.folders.keys().filter(|watch| !watched.contains_key(watch)) {
            if self.around != Some(*watch) {
                // Fails if the folder is gone; then its watch is gone too.
                let _ = inotify::remove_watch(self.queue.get_ref(), *watch);
            }
        }
        self.folders = watched;
        self.watch_around();
    }

    fn watch_around(&mut self) {
        let Some(around) = self.root.parent() else { return };
        let around = if around.as_os_str().is_empty() { Path::new(".") } else { around };
        let events = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::CLOSE_WRITE;
        self.around = inotify::add_watch(
            self.queue.get_ref(),
            around,
            events | WatchFlags::ONLYDIR | WatchFlags::MASK_ADD,
        )
        .ok();
    }

    /// All notices in the kernel's queue, without waiting.
    pub(super) fn drain(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 8 * 1024];
        let queue = self.queue.get_ref().clone();
        let mut reader = inotify::Reader::new(&*queue, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    self.interpret(event.wd(), event.events(), name, &mut notices);
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return notices,
                Err(error) => {
                    tracing::error!(%error, "cannot read from inotify; the gateway looks for changes every 10 s instead");
                    return notices;
                }
            }
        }
    }

    fn interpret(&mut self, watch: i32, events: ReadFlags, name: Option<&OsStr>, notices: &mut Vec<Notice>) {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            notices.push(Notice::Overflow);
            return;
        }
        if self.around == Some(watch) && name.is_some() && name == self.root.file_name() {
            notices.push(Notice::Structure);
        }
        let Some(folders) = self.folders.get(&watch) else {
            // A folder of a walk in progress, whose path is not known yet.
            if self.around != Some(watch) && !events.contains(ReadFlags::IGNORED) {
                notices.push(Notice::Structure);
            }
            return;
        };
        let Some(name) = name else {
            // An event of the folder itself: deleted, moved, unmounted.
            notices.push(Notice::Structure);
            if events.contains(ReadFlags::IGNORED) {
                self.folders.remove(&watch);
            }
            return;
        };
        for folder in folders {
            let path = folder.join(name);
            notices.extend(if is_manifest(name) && !events.contains(ReadFlags::ISDIR) {
                of_manifest(path, events)
            } else {
                self.is_structure(&path, name, events).then_some(Notice::Structure)
            });
        }
    }

    /// Whether an event on a file that is no manifest may change the set of manifests.
    fn is_structure(&self, path: &Path, name: &OsStr, events: ReadFlags) -> bool {
        let has_come = events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        let has_gone = events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
        if name.as_bytes().starts_with(b"..") {
            // The kubelet creates `..data_tmp` and moves it to `..data`.
            return events.contains(ReadFlags::MOVED_TO) || (has_come && name == "..data");
        }
        if is_hidden(name) {
            return false;
        }
        let is_symlink = || fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        let is_watched = || self.folders.values().flatten().any(|folder| folder == path);
        (events.contains(ReadFlags::ISDIR) && (has_come || has_gone))
            || (has_come && is_symlink())
            || (has_gone && is_watched())
    }
}

fn of_manifest(path: PathBuf, events: ReadFlags) -> Option<Notice> {
    if events.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO) {
        Some(Notice::Written(path))
    } else if events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
        Some(Notice::Gone(path))
    } else if events.contains(ReadFlags::CREATE) {
        // A link is complete from the start. Any other file is created empty, then written and closed.
        let metadata = fs::symlink_metadata(&path).ok()?;
        let is_link = metadata.is_symlink() || metadata.nlink() > 1;
        Some(if is_link { Notice::Written(path) } else { Notice::Writing(path) })
    } else {
        events.contains(ReadFlags::MODIFY).then_some(Notice::Writing(path))
    }
}

/// Watches a folder, and returns the watch. A second call for the folder returns the same watch.
pub(super) fn watch_folder(queue: &OwnedFd, folder: &Path) -> io::Result<i32> {
    let events = WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::DELETE
        | WatchFlags::MOVE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF;
    Ok(inotify::add_watch(queue, folder, events | WatchFlags::ONLYDIR | WatchFlags::MASK_ADD)?)
}

/// The name of the watched root, for messages.
impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("root", &self.root).finish_non_exhaustive()
    }
}
