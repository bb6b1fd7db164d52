//! A directory of manifests as the source of all objects.
//!
//! The gateway applies a change of a file as soon as the file is closed, without a delay. Some changes only seem to
//! remove objects, and then the objects stay. The gateway does not read a file that is being written. A file that
//! cannot be read or parsed keeps its last valid version. A name may be absent for a moment (50 ms, or 5 ms if the file
//! holds EndpointSlices alone), such as when an editor or git replaces a file. While the directory itself is absent,
//! its objects stay. A file or a folder that cannot be opened at the start closes all routes, since it may hold a
//! policy: see [`Store`](crate::Store).
//!
//! | module | content |
//! |---|---|
//! | [`scan`] | the content of the directory: files with their stamps, folders |
//! | [`watch`] | notices of changes (inotify) |
//! | [`files`] | the files to read, and the files that are gone |

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_model::Config;
use tokio::sync::watch as state;
use tokio::task::JoinHandle;
use tokio::time::sleep_until;

use super::output::{News, Output, Publish, Reports, without_repeats};
use super::resolve::Reach;
use crate::audit::{Recorder, Trail};
use crate::catalogue::Published;
use crate::problem::{Origin, Problem, Severity};
use crate::translate::{TranslateOptions, translate};

mod files;
mod scan;
#[cfg(test)]
mod tests;
mod watch;

use files::{Files, Purpose};
use scan::Listing;
use watch::{Notice, Watch};

/// The ways to notice changes.
#[derive(Clone, Copy, Debug)]
struct ChangeDetection {
    /// Whether inotify is used.
    notices: bool,
    /// The time between two walks through the directory. Walks find changes that inotify does not report: behind
    /// symlinks, on network file systems, through memory maps.
    walk_interval: Duration,
    /// The time between two walks while a change is expected, or without inotify.
    walk_interval_short: Duration,
}

impl ChangeDetection {
    const FULL: Self = Self {
        notices: true,
        walk_interval: Duration::from_secs(10),
        walk_interval_short: Duration::from_secs(1),
    };
}

/// The time between two lines of the log about a directory that could never be listed.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// After reading this many files, other tasks get their turn.
const READ_AT_ONCE: usize = 32;

/// The content of a directory of manifests, read once.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The translated configuration. External names are not looked up.
    pub config: Config,
    /// The problems, in no particular order.
    pub problems: Vec<Problem>,
    /// The Ingresses and Gateways of other classes, each with a note of the option that would serve it.
    pub foreign: Vec<Problem>,
}

/// Reads a directory of manifests, or a single manifest, once. Never fails: the problems contain all errors.
#[must_use]
pub fn load_once(dir: &Path, options: &TranslateOptions) -> Loaded {
    let mut files = Files::new(dir, Purpose::Check, false);
    files.walked(scan::walk(dir, &|_| None), Instant::now());
    for path in files.take_unread() {
        files.set(&path, scan::read(&path), Instant::now());
    }
    files.close_unknown();
    let translation = translate(&files.store, options);
    let mut problems: Vec<Problem> = files.problems().collect();
    problems.extend(translation.problems);
    problems.extend(translation.upstream_problems.into_values());
    let has_routes =
        translation.config.rules().next().is_some() || translation.config.layer4_routes().next().is_some();
    if !has_routes && files.is_present() {
        problems.push(no_route(dir, &translation.foreign));
    }
    Loaded { config: translation.config, problems: without_repeats(problems), foreign: translation.foreign }
}

/// The texts of the manifests of a directory, or of a single manifest.
///
/// # Errors
///
/// If the directory or a manifest cannot be read, or if a manifest is not UTF-8.
pub fn read_manifests(dir: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let in_file =
        |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let listing = scan::walk(dir, &|_| None).map_err(|error| in_file(dir, error))?;
    if let Some((path, error)) = listing.faults.into_iter().next() {
        return Err(in_file(&path, error));
    }
    let read = |path: PathBuf| {
        let (bytes, _) = scan::read(&path).map_err(|error| in_file(&path, error))?;
        let text = String::from_utf8(bytes).map_err(|_| in_file(&path, io::Error::other("is not UTF-8")))?;
        Ok((path, text))
    };
    listing.files.into_keys().map(read).collect()
}

fn no_route(dir: &Path, foreign: &[Problem]) -> Problem {
    let message = match foreign {
        [] => "has no Ingress, no Gateway and no Api with a valid route: serve would have no route",
        _ => "has only Ingresses and Gateways of other classes: serve would have no route",
    };
    Problem {
        severity: Severity::Warning,
        origin: Origin::file(&dir.into()),
        object: None,
        field: String::new(),
        message: message.to_owned(),
        cause: None,
    }
}

/// Follows a directory of manifests.
pub struct DirectorySource {
    dir: PathBuf,
    options: TranslateOptions,
    change_detection: ChangeDetection,
    reports: Reports,
    recorder: Option<Recorder>,
}

impl DirectorySource {
    /// A source that follows `dir`, or a single manifest. The path need not exist yet.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, options: TranslateOptions) -> Self {
        Self {
            dir: dir.into(),
            options,
            change_detection: ChangeDetection::FULL,
            reports: Reports::default(),
            recorder: None,
        }
    }

    /// Hands over the versions of objects that the source applies.
    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// The current problems, and every change of them. The log names each problem once when it appears, and once when
    /// it is gone.
    #[must_use]
    pub fn problems(&self) -> state::Receiver<Arc<[Problem]>> {
        self.reports.problems.subscribe()
    }

    /// The objects that the source serves, and each later change of them. Call this before the source runs.
    #[must_use]
    pub fn catalogue(&self) -> state::Receiver<Arc<Published>> {
        self.reports.catalogue.subscribe()
    }

    /// Follows the directory until the future is dropped. The first change is a complete configuration, as soon as the
    /// directory has been read; until then `run` does not call `publish`, which must not block.
    ///
    /// This task reads the files, a few at a time: run it on the control plane's runtime, not on a worker.
    pub async fn run(self, publish: impl Publish) -> Infallible {
        let watch = self.change_detection.notices.then(|| Watch::new(&self.dir)).and_then(|watch| {
            watch
                .inspect_err(|error| {
                    tracing::warn!(
                        dir = %self.dir.display(), %error,
                        "inotify is not available; the gateway looks for changes every second instead"
                    );
                })
                .ok()
        });
        let follower = Follower {
            files: Files::new(&self.dir, Purpose::Serve, self.recorder.is_some()),
            trail: self.recorder.map(Trail::new),
            watch,
            walking: None,
            next_walk: Some(Instant::now()),
            walk_again: false,
            has_walked: false,
            has_started: false,
            heard: Instant::now(),
            next_warning: Instant::now() + TELL_AGAIN,
            output: Output::new(self.options, self.reports, publish, Reach::Anywhere),
            dir: self.dir,
            change_detection: self.change_detection,
        };
        follower.run().await
    }
}

/// A directory that the gateway follows.
struct Follower<P> {
    dir: PathBuf,
    change_detection: ChangeDetection,
    files: Files,
    watch: Option<Watch>,
    walking: Option<JoinHandle<io::Result<Listing>>>,
    /// The time of the next walk; `None` for now.
    next_walk: Option<Instant>,
    /// Whether an event during a walk requires another walk.
    walk_again: bool,
    /// Whether the directory has been listed once.
    has_walked: bool,
    /// Whether the initial files have been read.
    has_started: bool,
    /// The time of the notice that led to the current changes.
    heard: Instant,
    /// The time at which the log repeats that the directory cannot be listed.
    next_warning: Instant,
    /// The audit trail, if there is one.
    trail: Option<Trail>,
    output: Output<P>,
}

/// An event that a follower waits for.
enum Event {
    Notices,
    Walked(io::Result<Listing>),
    News(News),
    Timer,
}

impl<P: Publish> Follower<P> {
    async fn run(mut self) -> Infallible {
        loop {
            let event = self.next_event().await;
            self.heard = Instant::now();
            match event {
                Event::Notices => {
                    self.drain();
                }
                Event::Walked(walk) => self.walked(walk),
                Event::News(news) => {
                    self.output.take(news, &self.files.store);
                    self.report();
                }
                Event::Timer => {}
            }
            self.read().await;
            self.walk_if_due();
        }
    }

    /// Waits for an event. The futures that it drops can be awaited again.
    async fn next_event(&mut self) -> Event {
        let walk_due = self.next_walk.filter(|_| self.walking.is_none());
        let timer = [walk_due, self.files.next_expiry()].into_iter().flatten().min();
        let watch = &self.watch;
        let walking = &mut self.walking;
        tokio::select! {
            biased;
            () = async { match watch { Some(watch) => watch.ready().await, None => pending().await } } => Event::Notices,
            walk = async { match walking { Some(walk) => walk.await, None => pending().await } } => {
                self.walking = None;
                Event::Walked(walk.unwrap_or_else(|error| Err(io::Error::other(error))))
            }
            news = self.output.news() => Event::News(news),
            () = async { match timer { Some(due) => sleep_until(due.into()).await, None => pending().await } } => Event::Timer,
        }
    }

    /// Takes all available notices, and returns them.
    fn drain(&mut self) -> Vec<Notice> {
        let notices = self.watch.as_mut().map(Watch::drain).unwrap_or_default();
        for notice in &notices {
            self.walk_again |= self.files.notice(notice, Instant::now());
        }
        notices
    }

    fn walk_if_due(&mut self) {
        let is_due = self.walk_again || self.next_walk.is_some_and(|due| due <= Instant::now());
        if !is_due || self.walking.is_some() {
            return;
        }
        self.walk_again = false;
        self.next_walk = None;
        let dir = self.dir.clone();
        let queue = self.watch.as_ref().map(Watch::queue);
        self.walking = Some(tokio::task::spawn_blocking(move || {
            scan::walk(&dir, &|folder| watch::watch_folder(queue.as_deref()?, folder).ok())
        }));
    }

    fn walked(&mut self, mut walk: io::Result<Listing>) {
        let folders =
            walk.as_mut().map_or_else(|_| Vec::new(), |listing| std::mem::take(&mut listing.folders));
        let is_watched = folders.iter().all(|(_, watch)| watch.is_some());
        if let Some(watch) = &mut self.watch {
            watch.set_folders(folders);
        }
        self.has_walked |= walk.is_ok();
        // Events during the walk are handled before the result of the walk.
        self.drain();
        let is_unsettled = self.files.walked(walk, Instant::now());
        let is_watched = is_watched && self.watch.is_some();
        let ChangeDetection { walk_interval, walk_interval_short, .. } = self.change_detection;
        let interval = if is_unsettled || !is_watched { walk_interval_short } else { walk_interval };
        self.next_walk = Some(Instant::now() + interval);
        if !self.has_walked && self.next_warning <= Instant::now() {
            // The gateway is unready in the meantime.
            self.next_warning = Instant::now() + TELL_AGAIN;
            for problem in self.files.problems() {
                tracing::error!("{problem}");
            }
        }
    }

    /// Reads the due files, and publishes the result.
    async fn read(&mut self) {
        loop {
            // New notices wait for the next round, so that a constant writer does not delay this round.
            let batch = self.files.take_unread();
            for (nth, path) in batch.iter().enumerate() {
                if nth % READ_AT_ONCE == READ_AT_ONCE - 1 {
                    tokio::task::yield_now().await;
                }
                let read = scan::read(path);
                // If a process wrote to the file after the notice to read it, the gateway may have read half of the
                // file. The queue then holds a notice by now, and receives another when the file is complete.
                if !self.drain().iter().any(|notice| notice.path() == Some(path)) {
                    self.files.set(path, read, Instant::now());
                }
            }
            // A file is gone only if it was absent before this round and has not come back.
            let now = Instant::now();
            self.drain();
            self.walk_again |= self.files.expire(now);
            self.settle().await;
            if !self.files.has_unread() {
                return;
            }
        }
    }

    /// Publishes the changes.
    async fn settle(&mut self) {
        self.files.take_written(&self.output.take_manifests());
        if self.has_walked && !self.has_started {
            self.has_started = !self.files.has_unread() && !self.files.awaits_new();
            self.files.close_unknown();
            if self.files.waits_for_unopened() {
                let soon = Instant::now() + self.change_detection.walk_interval_short;
                self.next_walk = self.next_walk.map(|due| due.min(soon));
            }
        }
        let touched = self.files.take_touched();
        if !self.has_walked || self.output.apply(&self.files.store, &touched, self.heard).await {
            self.report();
        }
        if let Some(trail) = self.trail.as_mut().filter(|_| self.has_started) {
            // A directory has only objects that are written for the gateway.
            trail.follow(&mut self.files.store, |_| true, false);
        }
    }

    fn report(&self) {
        self.output.report(&self.files.store, self.files.problems());
    }
}
