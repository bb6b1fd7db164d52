//! The thread that writes the access log: to a file, a FIFO, or standard output.
//!
//! A file that accepts nothing (a full disk, a FIFO without a reader) delays no request. Lines that it does not accept
//! are lost and counted. A line is written completely or counted as lost: if a write ends within a line, the rest of that
//! line is the next write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// How often a file that accepts nothing is retried.
const RETRY: Duration = Duration::from_secs(1);
/// The time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// How long the end of the process waits for pending lines.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long one check of a file that accepts nothing takes.
const LOOK: Duration = Duration::from_millis(100);

/// The target of lines.
pub(super) enum Target {
    /// Without the buffer of the standard library, which would hold unwritten bytes.
    Stdout(File),
    /// The file to append to, unless it cannot be opened now.
    File(PathBuf, Option<Opened>),
}

/// A file, and its identity.
pub(super) struct Opened {
    file: File,
    id: (u64, u64),
    is_regular: bool,
}

impl Target {
    /// Standard output.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub(super) fn stdout() -> io::Result<Self> {
        Ok(Self::Stdout(io::stdout().as_fd().try_clone_to_owned()?.into()))
    }

    /// Opens a file to append to.
    ///
    /// # Errors
    /// If it cannot be opened, except for a FIFO without a reader.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match Opened::new(path) {
            Ok(opened) => Ok(Self::File(path.to_owned(), Some(opened))),
            Err(error) if is_without_reader(path, &error) => {
                tracing::warn!(
                    path = %path.display(),
                    "the access log is a FIFO without a reader; requests are served, and lines are lost and counted \
                     until a reader opens the FIFO"
                );
                Ok(Self::File(path.to_owned(), None))
            }
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Err(io::Error::other(
                "it is a socket or a device that cannot be opened; name a file, a FIFO or -",
            )),
            Err(error) => Err(error),
        }
    }
}

impl Opened {
    /// Non-blocking: opening a FIFO without a reader fails with ENXIO (fifo(7)), and a write to a FIFO whose reader
    /// pauses fails with EAGAIN.
    fn new(path: &Path) -> io::Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        Ok(Self { file, id: (found.dev(), found.ino()), is_regular: found.is_file() })
    }

    /// The length of a regular file.
    fn len(&self) -> Option<u64> {
        self.file.metadata().ok().filter(|_| self.is_regular).map(|found| found.len())
    }
}

fn is_without_reader(path: &Path, error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
        && fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// The thread that writes lines.
#[derive(Debug)]
pub(crate) struct WriterThread {
    thread: JoinHandle<()>,
    closes: Arc<AtomicBool>,
}

impl WriterThread {
    pub(super) fn start(
        target: Target,
        batches: Receiver<Vec<u8>>,
        lost: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let closes = Arc::new(AtomicBool::new(false));
        let (until, cut) = (closes.clone(), Cut::default());
        let thread = std::thread::Builder::new().name("access-log".into()).spawn(move || {
            // A failed open was already logged.
            let is_told = matches!(target, Target::File(_, None));
            let last = is_told.then(Instant::now);
            let complaint = Complaint { lost, last, is_told, since: 0 };
            Writer { target, cut, complaint, closes: until, give_up: None, retry: Instant::now() }
                .run(&batches);
        })?;
        Ok(Self { thread, closes })
    }

    /// Waits until every pending line is written, for 2 s if the file accepts nothing. All buffers must be gone before.
    pub(crate) fn finish(self) {
        self.closes.store(true, Ordering::Relaxed);
        // Standard output cannot be written without blocking, and may be a pipe without an active reader.
        let until = Instant::now() + FAREWELL + RETRY;
        while !self.thread.is_finished() {
            if Instant::now() > until {
                tracing::warn!(
                    "cannot write the access log before the process ends; the last lines are lost"
                );
                return;
            }
            sleep(Duration::from_millis(5));
        }
        if self.thread.join().is_err() {
            tracing::error!("the thread of the access log panicked");
        }
    }
}

struct Writer {
    target: Target,
    cut: Cut,
    complaint: Complaint,
    /// Whether the process ends.
    closes: Arc<AtomicBool>,
    /// The end of the wait for the file, once the process ends.
    give_up: Option<Instant>,
    /// When to retry a file that could not be opened.
    retry: Instant,
}

impl Writer {
    fn run(mut self, batches: &Receiver<Vec<u8>>) {
        loop {
            let batch = match self.is_waiting() {
                true => batches.recv_timeout(RETRY),
                false => batches.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match batch {
                Ok(batch) => self.write(&batch),
                Err(RecvTimeoutError::Timeout) => self.write(&[]),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.write(&[]);
        self.complaint.lose(self.cut.forget());
    }

    /// Whether there is work without further lines.
    fn is_waiting(&self) -> bool {
        !self.cut.rest.is_empty() || matches!(self.target, Target::File(_, None))
    }

    fn write(&mut self, batch: &[u8]) {
        self.follow_path();
        if batch.is_empty() && matches!(self.target, Target::File(_, None)) {
            return;
        }
        let mut tries = 0;
        loop {
            let (written, error) = self.put(batch);
            match error {
                None => return self.complaint.is_over(),
                // The reader of a FIFO is gone. Another reader may be there, and must receive whole lines.
                Some(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.complaint.lose(self.cut.forget());
                    if let Target::File(_, opened) = &mut self.target {
                        *opened = None;
                        self.retry = Instant::now();
                        self.follow_path();
                    }
                    tries += 1;
                    if tries == 1 && written == 0 && matches!(self.target, Target::File(_, Some(_))) {
                        continue;
                    }
                    self.complaint.lose(lines(&batch[written..]));
                    return self.complaint.about(&error);
                }
                Some(error) => {
                    self.complaint.lose(lines(&batch[written..]));
                    return self.complaint.about(&error);
                }
            }
        }
    }

    /// Writes as much as possible. Returns how much of the batch is done: written, or cut and pending.
    fn put(&mut self, batch: &[u8]) -> (usize, Option<io::Error>) {
        let waits = |complaint: &mut Complaint, give_up: &mut Option<Instant>, since: Instant| {
            if since.elapsed() >= RETRY {
                complaint.about(&io::Error::other("its reader pauses"));
            }
            if self.closes.load(Ordering::Relaxed) {
                let until = *give_up.get_or_insert_with(|| Instant::now() + FAREWELL);
                return Instant::now() < until;
            }
            true
        };
        let (complaint, give_up) = (&mut self.complaint, &mut self.give_up);
        match &mut self.target {
            Target::Stdout(file) => {
                let waits = |since| waits(complaint, give_up, since);
                self.cut.put(&mut WaitingFile { file, waits }, batch)
            }
            Target::File(_, None) => (0, Some(io::Error::other("it is not open"))),
            Target::File(_, Some(opened)) => {
                if self.cut.is_elsewhere(opened.len()) {
                    complaint.lose(self.cut.forget());
                }
                let waits = |since| waits(complaint, give_up, since);
                let mut out = WaitingFile { file: &opened.file, waits };
                let put = self.cut.put(&mut out, batch);
                self.cut.len = opened.len();
                put
            }
        }
    }

    /// Opens the file at the path if it differs from the open file: the file was rotated, or could not be opened before.
    fn follow_path(&mut self) {
        let Target::File(path, opened) = &mut self.target else { return };
        let is_current = match (&opened, fs::metadata(&*path)) {
            (Some(opened), Ok(found)) => opened.id == (found.dev(), found.ino()),
            // A file that cannot be examined may still be writable.
            (Some(_), Err(error)) => error.kind() != io::ErrorKind::NotFound,
            (None, _) => Instant::now() < self.retry,
        };
        if is_current {
            return;
        }
        match Opened::new(path) {
            Ok(new) => {
                *opened = Some(new);
                self.complaint.lose(self.cut.forget());
            }
            Err(error) => {
                self.retry = Instant::now() + RETRY;
                self.complaint.about(&error);
            }
        }
    }
}

/// A line that is only partly written.
#[derive(Default)]
struct Cut {
    rest: Vec<u8>,
    /// The length of the file after the written part, if it is a regular file.
    len: Option<u64>,
}

impl Cut {
    /// Writes the rest of the line, then the batch. Returns how much of the batch is done, in whole lines.
    fn put(&mut self, out: &mut impl Write, batch: &[u8]) -> (usize, Option<io::Error>) {
        let (written, error) = write_some(out, &self.rest);
        self.rest.drain(..written);
        if error.is_some() {
            return (0, error);
        }
        let (written, error) = write_some(out, batch);
        let is_whole = written == 0 || batch[written - 1] == b'\n';
        if is_whole {
            return (written, error);
        }
        let end = memchr::memchr(b'\n', &batch[written..]).map_or(batch.len(), |at| written + at + 1);
        self.rest.extend_from_slice(&batch[written..end]);
        (end, error)
    }

    /// Whether the file no longer ends with the written part of the line: it was truncated to free space, or another
    /// process wrote to it.
    fn is_elsewhere(&self, len: Option<u64>) -> bool {
        !self.rest.is_empty() && self.len != len
    }

    /// Gives up the line. Returns the number of lost lines.
    fn forget(&mut self) -> u64 {
        let is_cut = !self.rest.is_empty();
        self.rest.clear();
        u64::from(is_cut)
    }
}

/// The number of written bytes, and why not more.
fn write_some(out: &mut impl Write, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Some(error)),
        }
    }
    (written, None)
}

fn lines(batch: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', batch).count() as u64
}

/// A file whose reader may pause.
struct WaitingFile<'f, W> {
    file: &'f File,
    /// Whether to wait further for a reader that has taken nothing since then.
    waits: W,
}

impl<W: FnMut(Instant) -> bool> Write for WaitingFile<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let since = Instant::now();
        loop {
            match self.file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !(self.waits)(since) {
                        return Err(error);
                    }
                    let look = Timespec::try_from(LOOK).map_err(io::Error::other)?;
                    poll(&mut [PollFd::new(self.file, PollFlags::OUT)], Some(&look))?;
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Counts lost lines, and logs a warning at intervals.
struct Complaint {
    lost: Arc<AtomicU64>,
    last: Option<Instant>,
    /// A warning was logged, but not its end.
    is_told: bool,
    /// Lines lost since the last message.
    since: u64,
}

impl Complaint {
    fn lose(&mut self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
        self.since += lines;
    }

    fn about(&mut self, error: &io::Error) {
        if self.last.is_none_or(|last| last.elapsed() >= WARN_EVERY) {
            self.last = Some(Instant::now());
            self.is_told = true;
            let lines = std::mem::take(&mut self.since);
            tracing::warn!(%error, lost = lines, "cannot write the access log; lines are lost and counted until it can be written");
        }
    }

    fn is_over(&mut self) {
        if std::mem::take(&mut self.is_told) {
            let lines = std::mem::take(&mut self.since);
            tracing::info!(lost = lines, "the access log can be written again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is full after a number of bytes.
    struct Disk {
        written: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = self.room.min(bytes.len());
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writer_completes_a_truncated_line_once_the_disk_has_room() {
        for room in 0..12 {
            let (mut disk, mut cut) = (Disk { written: Vec::new(), room }, Cut::default());
            let batch = b"one\ntwo\nthree\n";
            let (dealt_with, error) = cut.put(&mut disk, batch);
            assert!(error.is_some());
            let mut lost = lines(&batch[dealt_with..]);
            disk.room = 100;
            let (dealt_with, error) = cut.put(&mut disk, b"four\n");
            assert!(error.is_none());
            lost += lines(&b"four\n"[dealt_with..]);
            assert_eq!(lines(&disk.written) + lost, 4, "after {room} bytes");
            let all = b"one\ntwo\nthree\nfour\n";
            let (written, mut rest) =
                (String::from_utf8_lossy(&disk.written), String::from_utf8_lossy(all).into_owned());
            for line in written.split_inclusive('\n') {
                assert!(rest.contains(line), "{written:?}");
                rest = rest.replacen(line, "", 1);
            }
        }
    }

    #[test]
    fn writer_counts_a_line_lost_to_file_truncation_once() {
        let (mut disk, mut cut) = (Disk { written: Vec::new(), room: 2 }, Cut::default());
        let (dealt_with, _) = cut.put(&mut disk, b"one\n");
        cut.len = Some(2);
        assert_eq!(dealt_with, 4);
        assert!(!cut.is_elsewhere(Some(2)) && cut.is_elsewhere(Some(0)) && cut.is_elsewhere(Some(9)));
        assert_eq!((cut.forget(), cut.forget()), (1, 0));
    }
}
