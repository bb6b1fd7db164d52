//! The access log: lines are made by the workers, and written by a thread of its own.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use sluicegate_model::{RouteId, UpstreamKey};

use super::WorkerStats;
use crate::date::http_date;

/// A worker passes its lines on once it has this many bytes, and each second.
const BATCH: usize = 32 * 1024;
/// How many batches may wait to be written, before lines are dropped and counted.
const MAX_BATCHES: usize = 256;

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// nginx' `combined`.
    Combined,
}

/// Where requests are logged.
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    batches: SyncSender<Vec<u8>>,
    writer: JoinHandle<()>,
}

impl AccessLog {
    /// Logs to a file, which is appended to, or to standard output.
    ///
    /// # Errors
    /// If the file cannot be opened, or no thread started.
    pub fn open(format: LogFormat, path: Option<&Path>) -> io::Result<Self> {
        let (batches, receiver) = sync_channel(MAX_BATCHES);
        let path = path.map(Path::to_owned);
        let file = path.as_deref().map(append_to).transpose()?;
        let thread = std::thread::Builder::new().name("access-log".into());
        let writer = thread.spawn(move || write(&receiver, path, file))?;
        Ok(Self { format, batches, writer })
    }

    pub(crate) fn buffer(&self) -> LogBuffer {
        LogBuffer { format: self.format, batches: self.batches.clone(), lines: RefCell::default() }
    }

    /// The thread that writes, which ends when it has written what all buffers passed on, and they are gone.
    pub(crate) fn into_writer(self) -> JoinHandle<()> {
        self.writer
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

fn write(batches: &Receiver<Vec<u8>>, path: Option<PathBuf>, mut file: Option<File>) {
    while let Ok(batch) = batches.recv() {
        // The file may have been rotated away.
        if let Some(path) = path.as_deref().filter(|path| !path.exists())
            && let Ok(new) = append_to(path)
        {
            file = Some(new);
        }
        let written = match &mut file {
            Some(file) => file.write_all(&batch),
            None => io::stdout().lock().write_all(&batch),
        };
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write the access log");
        }
    }
}

/// The lines that a worker has not passed on yet.
#[derive(Debug)]
pub(crate) struct LogBuffer {
    format: LogFormat,
    batches: SyncSender<Vec<u8>>,
    lines: RefCell<Vec<u8>>,
}

/// A request as it is logged.
pub(crate) struct Entry<'e> {
    pub(crate) at: SystemTime,
    pub(crate) remote: IpAddr,
    pub(crate) method: &'e [u8],
    pub(crate) target: &'e [u8],
    pub(crate) version: &'e [u8],
    pub(crate) host: &'e [u8],
    pub(crate) referer: &'e [u8],
    pub(crate) user_agent: &'e [u8],
    pub(crate) request_id: &'e [u8],
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) duration: Duration,
    pub(crate) route: Option<&'e RouteId>,
    pub(crate) upstream: Option<&'e UpstreamKey>,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) endpoint_duration: Option<Duration>,
    pub(crate) attempts: u32,
    /// Who called.
    pub(crate) consumer: Option<&'e RouteId>,
    /// The policy that turned it away.
    pub(crate) policy: Option<&'e RouteId>,
    /// The limit of it that is reached.
    pub(crate) limit: Option<&'e str>,
    /// The limits that would have turned it away, had they not been in a dry run: `namespace/policy/limit`.
    pub(crate) dry_runs: &'e [String],
    /// Its trace and the gateway's span in it, if it has one.
    pub(crate) trace: Option<(u128, u64)>,
    /// What the cache had to do with it.
    pub(crate) cache: Option<&'static str>,
    /// Why it failed, if it did.
    pub(crate) reason: Option<&'static str>,
}

/// A connection below HTTP, or an exchange of datagrams, as it is logged.
pub(crate) struct ConnectionEntry<'e> {
    pub(crate) at: SystemTime,
    pub(crate) remote: SocketAddr,
    pub(crate) listener: SocketAddr,
    pub(crate) protocol: &'static str,
    /// The name that the client asked for.
    pub(crate) name: Option<&'e str>,
    /// As nginx' stream module has it: 200, 502, 503 or 504, and 500 for what was cut off.
    pub(crate) status: u16,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) duration: Duration,
    pub(crate) route: &'e RouteId,
    pub(crate) upstream: Option<&'e UpstreamKey>,
    pub(crate) endpoint: Option<SocketAddr>,
    pub(crate) attempts: u32,
    /// Why it failed, if it did.
    pub(crate) reason: Option<&'static str>,
}

impl LogBuffer {
    pub(crate) fn log(&self, entry: &Entry<'_>, stats: &WorkerStats) {
        self.write(stats, |out| match self.format {
            LogFormat::Json => entry.write_json(out),
            LogFormat::Combined => entry.write_combined(out),
        });
    }

    pub(crate) fn log_connection(&self, entry: &ConnectionEntry<'_>, stats: &WorkerStats) {
        self.write(stats, |out| match self.format {
            LogFormat::Json => entry.write_json(out),
            LogFormat::Combined => entry.write_stream(out),
        });
    }

    fn write(&self, stats: &WorkerStats, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) {
        let mut lines = self.lines.borrow_mut();
        // Writing to a Vec does not fail.
        let _ = write(&mut lines);
        let full = lines.len() >= BATCH;
        drop(lines);
        if full {
            self.flush(stats);
        }
    }

    /// Passes the lines on to be written. They are dropped if the writer does not keep up.
    pub(crate) fn flush(&self, stats: &WorkerStats) {
        let lines = std::mem::take(&mut *self.lines.borrow_mut());
        if lines.is_empty() {
            return;
        }
        if let Err(TrySendError::Full(lines) | TrySendError::Disconnected(lines)) =
            self.batches.try_send(lines)
        {
            stats.log_dropped.add(memchr::memchr_iter(b'\n', &lines).count() as u64);
        }
    }
}

impl Entry<'_> {
    fn write_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        begin_json(out, self.at)?;
        write!(out, ",\"remote_addr\":\"{}\"", self.remote)?;
        for (name, value) in [
            ("method", self.method),
            ("target", self.target),
            ("protocol", self.version),
            ("host", self.host),
            ("referer", self.referer),
            ("user_agent", self.user_agent),
            ("request_id", self.request_id),
        ] {
            write!(out, ",\"{name}\":\"")?;
            escape_json(out, value)?;
            out.push(b'"');
        }
        write!(
            out,
            ",\"status\":{},\"bytes_sent\":{},\"request_time\":{:.6}",
            self.status,
            self.bytes,
            self.duration.as_secs_f64()
        )?;
        if let Some(route) = self.route {
            write!(out, ",\"route\":\"{route}\"")?;
        }
        if let Some(upstream) = self.upstream {
            write!(out, ",\"upstream\":\"{upstream}\",\"attempts\":{}", self.attempts)?;
        }
        if let Some(endpoint) = self.endpoint {
            write!(out, ",\"upstream_addr\":\"{endpoint}\"")?;
        }
        if let Some(duration) = self.endpoint_duration {
            write!(out, ",\"upstream_response_time\":{:.6}", duration.as_secs_f64())?;
        }
        if let Some(RouteId { namespace, name, .. }) = self.consumer {
            write!(out, ",\"consumer\":\"{namespace}/{name}\"")?;
        }
        if let Some(policy) = self.policy {
            write!(out, ",\"policy\":\"{policy}\"")?;
        }
        if let Some(limit) = self.limit {
            // In which nothing has to be escaped.
            write!(out, ",\"limit\":\"{limit}\"")?;
        }
        if let Some((trace, span)) = self.trace {
            write!(out, ",\"trace_id\":\"{trace:032x}\",\"span_id\":\"{span:016x}\"")?;
        }
        if !self.dry_runs.is_empty() {
            // Names of objects and limits, in which nothing has to be escaped.
            write!(out, ",\"dry_runs\":[\"{}\"]", self.dry_runs.join("\",\""))?;
        }
        if let Some(cache) = self.cache {
            write!(out, ",\"cache\":\"{cache}\"")?;
        }
        if let Some(reason) = self.reason {
            write!(out, ",\"reason\":\"{reason}\"")?;
        }
        out.write_all(b"}\n")
    }

    fn write_combined(&self, out: &mut Vec<u8>) -> io::Result<()> {
        write!(out, "{} - ", self.remote)?;
        match self.consumer {
            Some(RouteId { namespace, name, .. }) => write!(out, "{namespace}/{name} [")?,
            None => out.write_all(b"- [")?,
        }
        write_local_time(out, self.at)?;
        out.write_all(b"] \"")?;
        for (part, end) in [(self.method, " "), (self.target, " "), (self.version, "\" ")] {
            escape_nginx(out, dash(part))?;
            out.write_all(end.as_bytes())?;
        }
        write!(out, "{} {} \"", self.status, self.bytes)?;
        escape_nginx(out, dash(self.referer))?;
        out.write_all(b"\" \"")?;
        escape_nginx(out, dash(self.user_agent))?;
        out.write_all(b"\"\n")
    }
}

impl ConnectionEntry<'_> {
    fn write_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        begin_json(out, self.at)?;
        write!(out, ",\"remote_addr\":\"{}\",\"remote_port\":{}", self.remote.ip(), self.remote.port())?;
        write!(out, ",\"protocol\":\"{}\",\"listener\":\"{}\"", self.protocol, self.listener)?;
        if let Some(name) = self.name {
            out.write_all(b",\"server_name\":\"")?;
            escape_json(out, name.as_bytes())?;
            out.push(b'"');
        }
        write!(
            out,
            ",\"status\":{},\"bytes_received\":{},\"bytes_sent\":{},\"session_time\":{:.6},\"route\":\"{}\"",
            self.status,
            self.received,
            self.sent,
            self.duration.as_secs_f64(),
            self.route
        )?;
        if let Some(upstream) = self.upstream {
            write!(out, ",\"upstream\":\"{upstream}\",\"attempts\":{}", self.attempts)?;
        }
        if let Some(endpoint) = self.endpoint {
            write!(out, ",\"upstream_addr\":\"{endpoint}\"")?;
        }
        if let Some(reason) = self.reason {
            write!(out, ",\"reason\":\"{reason}\"")?;
        }
        out.write_all(b"}\n")
    }

    /// As ingress-nginx' `log-format-stream`: address, time, protocol, status, bytes sent and received, seconds.
    fn write_stream(&self, out: &mut Vec<u8>) -> io::Result<()> {
        write!(out, "[{}] [", self.remote.ip())?;
        write_local_time(out, self.at)?;
        let seconds = self.duration.as_secs_f64();
        writeln!(out, "] {} {} {} {} {seconds:.3}", self.protocol, self.status, self.sent, self.received)
    }
}

/// The beginning of an object: its time, in seconds since 1970.
fn begin_json(out: &mut Vec<u8>, at: SystemTime) -> io::Result<()> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    write!(out, "{{\"time\":{}.{:03}", since.as_secs(), since.subsec_millis())
}

/// From `Sun, 06 Nov 1994 08:49:37 GMT` to `06/Nov/1994:08:49:37 +0000`, as nginx' `$time_local`.
fn write_local_time(out: &mut Vec<u8>, at: SystemTime) -> io::Result<()> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let date = http_date(since.as_secs());
    for (from, to, end) in [(5, 7, "/"), (8, 11, "/"), (12, 16, ":"), (17, 25, " +0000")] {
        out.write_all(&date[from..to])?;
        out.write_all(end.as_bytes())?;
    }
    Ok(())
}

fn dash(value: &[u8]) -> &[u8] {
    if value.is_empty() { b"-" } else { value }
}

/// Text stays as it is; a byte that is no UTF-8 becomes the four characters `\xE9`. Every line is valid JSON
/// (RFC 8259, 7 and 8.1).
fn escape_json(out: &mut Vec<u8>, value: &[u8]) -> io::Result<()> {
    for chunk in value.utf8_chunks() {
        for &byte in chunk.valid().as_bytes() {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                0..=31 | 127 => write!(out, "\\u{byte:04x}")?,
                _ => out.push(byte),
            }
        }
        for byte in chunk.invalid() {
            write!(out, "\\\\x{byte:02X}")?;
        }
    }
    Ok(())
}

/// As nginx' `log_format` with `escape=default`.
fn escape_nginx(out: &mut Vec<u8>, value: &[u8]) -> io::Result<()> {
    for &byte in value {
        match byte {
            b'"' | b'\\' | 0..=31 | 127.. => write!(out, "\\x{byte:02X}")?,
            _ => out.push(byte),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            upstream: None,
            endpoint: None,
            endpoint_duration: None,
            attempts: 0,
            consumer: None,
            policy: None,
            trace: None,
            limit: None,
            dry_runs: &[],
            cache: Some("hit"),
            reason: None,
        }
    }

    fn written(write: impl Fn(&Entry<'static>, &mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&entry(), &mut out).expect("a Vec takes all");
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn combined_is_as_nginx_writes_it() {
        assert_eq!(
            written(Entry::write_combined),
            "192.0.2.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b=\\x22c\\x22 HTTP/1.1\" 200 1234 \
             \"\\xE9\" \"\\xC3\\xA9\\x0A\"\n"
        );
    }

    #[test]
    fn json_is_json_whatever_the_client_sends() {
        let line: serde_json::Value = serde_json::from_str(&written(Entry::write_json)).expect("JSON");
        assert_eq!(line["target"], "/a?b=\"c\"");
        assert_eq!((&line["user_agent"], &line["referer"]), (&"\u{e9}\n".into(), &"\\xE9".into()));
        assert_eq!(line["protocol"], "HTTP/1.1");
        assert_eq!(line["time"], 784_111_777.25);
        assert_eq!(line["request_time"], 0.0015);
        assert_eq!(line["cache"], "hit");
        assert_eq!(line.get("dry_runs"), None);
        let (names, mut out) = (["default/p/one", "default/p/two"].map(str::to_owned), Vec::new());
        Entry { dry_runs: &names, ..entry() }.write_json(&mut out).expect("a Vec takes all");
        let line: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(line["dry_runs"], serde_json::json!(names));
    }
}
