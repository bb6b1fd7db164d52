use std::fs;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Instant;

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use tempfile::TempDir;

use super::*;

/// The longest time that a test waits for a condition.
const LIMIT: Duration = Duration::from_secs(10);

fn entry() -> Entry<'static> {
    Entry {
        at: SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_250),
        remote: [192, 0, 2, 1].into(),
        method: b"GET",
        target: b"/a?b=\"c\"",
        version: b"HTTP/1.1",
        host: b"example.com",
        referer: b"\xe9",
        user_agent: "\u{e9}\n".as_bytes(),
        request_id: b"",
        status: 200,
        bytes: 1234,
        duration: Duration::from_micros(1500),
        route: None,
        api: None,
        upstream: None,
        endpoint: None,
        endpoint_duration: None,
        attempts: 0,
        consumer: None,
        plan: None,
        subscription: None,
        policy: None,
        trace: None,
        limit: None,
        dry_runs: &[],
        cache: Some("hit"),
        invalid: Some("request"),
        reason: None,
    }
}

/// An entry with a value in each field.
pub(super) fn full_entry<T>(see: impl FnOnce(&Entry<'_>) -> T) -> T {
    let api = ApiOperation {
        media_types: Vec::new(),
        checks: None,
        version: "1.2".into(),
        environment: "production".into(),
        operation: Some("list".into()),
    };
    let (id, upstream) = (
        ObjectId { kind: "Consumer", namespace: "a".into(), name: "b".into() },
        UpstreamKey::new("a", "b", "80"),
    );
    see(&Entry {
        request_id: b"1",
        route: Some(&id),
        api: Some(&api),
        upstream: Some(&upstream),
        endpoint: Some(([10, 0, 0, 1], 80).into()),
        endpoint_duration: Some(Duration::ZERO),
        attempts: 1,
        consumer: Some(&id),
        plan: Some("a/gold"),
        subscription: Some(&id),
        policy: Some(&id),
        trace: Some((1, 2)),
        limit: Some("day"),
        dry_runs: &["a/b/c".to_owned()],
        reason: Some("rate_limit"),
        ..entry()
    })
}

fn written(write: impl Fn(&Entry<'static>, &mut Vec<u8>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&entry(), &mut out).expect("a Vec takes all");
    String::from_utf8(out).expect("ASCII")
}

#[test]
fn access_log_in_combined_format_equals_the_format_of_nginx() {
    assert_eq!(
        written(Entry::write_combined),
        "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=\\x22c\\x22 HTTP/1.1\" 200 1234 \
         \"\\xE9\" \"\\xC3\\xA9\\x0A\"\n"
    );
}

#[test]
fn access_log_line_is_valid_json_despite_quotes_and_invalid_utf8() {
    let line: serde_json::Value = serde_json::from_str(&written(Entry::write_json)).expect("JSON");
    assert_eq!(line["target"], "/a?b=\"c\"");
    assert_eq!((&line["user_agent"], &line["referer"]), (&"\u{e9}\n".into(), &"\\xE9".into()));
    assert_eq!(line["protocol"], "HTTP/1.1");
    assert_eq!(line["time"], 784_111_777.25);
    assert_eq!(line["request_time"], 0.0015);
    assert_eq!(line["cache"], "hit");
    assert_eq!(line["invalid"], "request");
    assert_eq!(line.get("dry_runs"), None);
    let (names, mut out) = (["default/p/one", "default/p/two"].map(str::to_owned), Vec::new());
    Entry { dry_runs: &names, ..entry() }.write_json(&mut out).expect("a Vec takes all");
    let line: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(line["dry_runs"], serde_json::json!(names));
}

#[test]
fn line_of_an_api_names_its_version_environment_and_operation() {
    let api = ApiOperation {
        media_types: Vec::new(),
        checks: None,
        version: "1.2".into(),
        environment: "production".into(),
        operation: Some("GET /a\"b".into()),
    };
    let mut out = Vec::new();
    Entry { api: Some(&api), ..entry() }.write_json(&mut out).expect("a Vec takes all");
    let line: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!((&line["api_version"], &line["environment"]), (&"1.2".into(), &"production".into()));
    assert_eq!(line["operation"], "GET /a\"b");
}

fn fifo() -> io::Result<(TempDir, std::path::PathBuf)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR)?;
    Ok((folder, path))
}

/// Opens the log, and fails if that takes too long.
fn open(path: &Path) -> io::Result<AccessLog> {
    let (sender, receiver) = mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || sender.send(AccessLog::open(LogFormat::Combined, Some(&path))));
    receiver.recv_timeout(LIMIT).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn reader(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Logs this many lines, and passes the lines on to the writer.
fn log(buffer: &LogBuffer, stats: &WorkerStats, lines: usize) {
    for _ in 0..lines {
        buffer.log(&entry(), stats);
    }
    buffer.flush(stats);
}

fn wait_until(condition: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "it does not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn lost(log: &AccessLog, stats: &WorkerStats) -> u64 {
    log.lost().load(Ordering::Relaxed) + stats.log_dropped.get()
}

#[test]
fn access_log_counts_lines_lost_to_a_full_disk() -> io::Result<()> {
    let (access_log, stats) = (open(Path::new("/dev/full"))?, WorkerStats::default());
    let buffer = access_log.buffer();
    for round in 1..=3 {
        log(&buffer, &stats, 5);
        wait_until(|| lost(&access_log, &stats) == 5 * round);
    }
    Ok(())
}

#[test]
fn fifo_without_a_reader_blocks_no_request_and_receives_lines_after_a_reader_opens() -> io::Result<()> {
    let (_folder, path) = fifo()?;
    let (access_log, stats) = (open(&path)?, WorkerStats::default());
    let buffer = access_log.buffer();
    log(&buffer, &stats, 3);
    wait_until(|| lost(&access_log, &stats) == 3);
    let (mut reader, end) = (reader(&path)?, Instant::now() + LIMIT);
    let mut read = Vec::new();
    while read.is_empty() {
        assert!(Instant::now() < end, "the reader gets nothing");
        log(&buffer, &stats, 1);
        std::thread::sleep(Duration::from_millis(10));
        // Without a writer the read returns the end of the file. Without a line the read returns nothing.
        let _ = reader.read_to_end(&mut read);
    }
    assert!(read.starts_with(b"192.0.2.1 - - [") && read.ends_with(b"\n"));
    Ok(())
}

#[test]
fn access_log_counts_lines_lost_after_a_fifo_reader_closes() -> io::Result<()> {
    let (_folder, path) = fifo()?;
    let first = reader(&path)?;
    let (access_log, stats) = (open(&path)?, WorkerStats::default());
    let buffer = access_log.buffer();
    drop(first);
    log(&buffer, &stats, 4);
    wait_until(|| lost(&access_log, &stats) == 4);
    Ok(())
}

#[test]
fn paused_fifo_reader_blocks_neither_workers_nor_shutdown() -> io::Result<()> {
    let (_folder, path) = fifo()?;
    let mut reader = reader(&path)?;
    let (access_log, stats) = (open(&path)?, WorkerStats::default());
    let buffer = access_log.buffer();
    // More lines than the pipe and the queue can hold.
    let batches = MAX_BATCHES + 20;
    for _ in 0..batches {
        log(&buffer, &stats, 500);
    }
    assert!(stats.log_dropped.get() > 0);
    let counter = access_log.lost().clone();
    drop(buffer);
    let AccessLog { writer, batches: queue, .. } = access_log;
    drop(queue);
    let since = Instant::now();
    writer.finish();
    assert!(since.elapsed() < LIMIT);
    let mut read = Vec::new();
    reader.read_to_end(&mut read)?;
    let written = memchr::memchr_iter(b'\n', &read).count() as u64;
    let lost = counter.load(Ordering::Relaxed) + stats.log_dropped.get();
    assert_eq!(written + lost, 500 * batches as u64, "each line is written or counted");
    Ok(())
}

#[test]
fn access_log_writes_to_the_new_file_after_rotation() -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log");
    let (access_log, stats) = (open(&path)?, WorkerStats::default());
    let buffer = access_log.buffer();
    let len = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    log(&buffer, &stats, 1);
    wait_until(|| len(&path) > 0);
    // Replaces the file as logrotate does with the option `create`.
    fs::rename(&path, folder.path().join("log.1"))?;
    fs::write(&path, b"")?;
    log(&buffer, &stats, 1);
    wait_until(|| len(&path) > 0);
    assert_eq!(lost(&access_log, &stats), 0);
    Ok(())
}

#[test]
fn directory_or_socket_as_access_log_is_rejected() -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let error = open(folder.path()).expect_err("a directory");
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket)?;
    let error = open(&socket).expect_err("a socket");
    assert!(error.to_string().contains("socket"), "{error}");
    Ok(())
}
