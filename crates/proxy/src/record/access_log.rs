//! The access log: workers compose lines, and a separate thread writes them.

mod escape;
mod format;
#[cfg(test)]
mod page;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::RefCell;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime};

use sluicegate_http1::{Known, Version};
use sluicegate_model::rule::ApiOperation;
use sluicegate_model::{ObjectId, UpstreamKey};

use super::{CLOSED, ConnectionRecord, RejectedHead, RequestRecord, request_line};
use crate::counters::WorkerStats;
use crate::date::local_time;
use crate::query::mask;
use crate::request::WireVersion;
use writer::Target;
pub(crate) use writer::WriterThread;

/// A worker passes its lines on once it has this many bytes, and each second.
const BATCH: usize = 32 * 1024;
/// How many batches may wait before lines are dropped and counted.
const MAX_BATCHES: usize = 256;

/// The format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// nginx' `combined`.
    Combined,
}

/// The target of the access log.
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    batches: SyncSender<Vec<u8>>,
    writer: WriterThread,
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    /// Logs to a file, which is appended to, or to standard output. A FIFO may have no reader: its lines are lost and
    /// counted until a reader opens it.
    ///
    /// # Errors
    /// If the file cannot be opened, or no thread can be started.
    pub fn open(format: LogFormat, path: Option<&Path>) -> io::Result<Self> {
        let (batches, receiver) = sync_channel(MAX_BATCHES);
        let target = path.map_or_else(Target::stdout, Target::open)?;
        let lost = Arc::<AtomicU64>::default();
        let writer = WriterThread::start(target, receiver, lost.clone())?;
        Ok(Self { format, batches, writer, lost })
    }

    pub(crate) fn buffer(&self) -> LogBuffer {
        let (batches, lines) = (self.batches.clone(), RefCell::default());
        LogBuffer { format: self.format, batches, lines, value: RefCell::default() }
    }

    /// The number of lost lines.
    pub(crate) fn lost(&self) -> &Arc<AtomicU64> {
        &self.lost
    }

    /// The thread that writes lines. It ends after all buffers are gone and their lines are written.
    pub(crate) fn into_writer(self) -> WriterThread {
        self.writer
    }
}

/// The lines that a worker has not passed on yet.
#[derive(Debug)]
pub(crate) struct LogBuffer {
    format: LogFormat,
    batches: SyncSender<Vec<u8>>,
    lines: RefCell<Vec<u8>>,
    /// The value of a variable, before its escapes.
    value: RefCell<Vec<u8>>,
}

/// The line of a request.
struct Entry<'e> {
    at: SystemTime,
    remote: IpAddr,
    method: &'e [u8],
    target: &'e [u8],
    version: &'e [u8],
    host: &'e [u8],
    referer: &'e [u8],
    user_agent: &'e [u8],
    request_id: &'e [u8],
    status: u16,
    bytes: u64,
    duration: Duration,
    route: Option<&'e ObjectId>,
    api: Option<&'e ApiOperation>,
    upstream: Option<&'e UpstreamKey>,
    endpoint: Option<SocketAddr>,
    endpoint_duration: Option<Duration>,
    attempts: u32,
    /// The consumer that made the request.
    consumer: Option<&'e ObjectId>,
    /// The plan and the subscription by which the consumer called.
    plan: Option<&'e str>,
    subscription: Option<&'e ObjectId>,
    /// The policy that denied the request.
    policy: Option<&'e ObjectId>,
    /// The limit of the policy that is reached.
    limit: Option<&'e str>,
    /// The limits in a dry run that would have rejected the request: `namespace/policy/limit`.
    dry_runs: &'e [String],
    /// The trace ID and the gateway's span ID, if the request has a span.
    trace: Option<(u128, u64)>,
    /// The effect of the cache.
    cache: Option<&'static str>,
    /// The messages that do not match the description of their operation.
    invalid: Option<&'static str>,
    /// Why the request failed, if it did.
    reason: Option<&'static str>,
}

impl LogBuffer {
    /// Logs a finished request.
    pub(super) fn request(&self, record: &RequestRecord<'_>, stats: &WorkerStats) {
        if let Some((format, view)) = &record.format {
            self.write(stats, |out| {
                format::write_request(out, &mut self.value.borrow_mut(), (format, view), record);
                Ok(())
            });
            return;
        }
        let (target, referer) =
            (record.head.target(), record.head.header(Known::Referer).unwrap_or_default());
        let masked = if record.secrets.is_empty() { None } else { mask(target, record.secrets) };
        let masked_referer =
            if record.all_secrets.is_empty() { None } else { mask(referer, record.all_secrets) };
        let request_id = record.id();
        let entry = Entry {
            target: masked.as_deref().unwrap_or(target),
            referer: masked_referer.as_deref().unwrap_or(referer),
            request_id: &request_id,
            ..Entry::of(record)
        };
        self.log(&entry, stats);
    }

    /// Logs a head that was rejected or incomplete, with its known parts.
    pub(super) fn rejected_head(&self, record: &RejectedHead<'_>, stats: &WorkerStats) {
        if let Some(format) = record.format {
            self.write(stats, |out| {
                format::write_rejected(out, &mut self.value.borrow_mut(), format, record);
                Ok(())
            });
            return;
        }
        let [method, target, version] = request_line(record.buf);
        let masked = mask(target, record.all_secrets);
        let entry = Entry {
            method,
            target: masked.as_deref().unwrap_or(target),
            version,
            ..Entry::of_rejected(record)
        };
        self.log(&entry, stats);
    }

    /// Logs a finished connection below HTTP.
    pub(super) fn connection(&self, record: &ConnectionRecord<'_>, stats: &WorkerStats) {
        self.write(stats, |out| match self.format {
            LogFormat::Json => record.write_json(out),
            LogFormat::Combined => record.write_stream(out),
        });
    }

    fn log(&self, entry: &Entry<'_>, stats: &WorkerStats) {
        self.write(stats, |out| match self.format {
            LogFormat::Json => entry.write_json(out),
            LogFormat::Combined => entry.write_combined(out),
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

    /// Passes the lines to the writer. If the writer is too slow, they are dropped.
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

impl<'e> Entry<'e> {
    /// The line of a record, with the target and the referer as the client sent them, and without the ID of the request.
    fn of(record: &RequestRecord<'e>) -> Self {
        let RequestRecord { head, client, .. } = record;
        Self {
            at: record.started(),
            remote: client.ip(),
            method: head.method_name(),
            target: head.target(),
            version: match (client.wire, head.head.version) {
                (WireVersion::Http3, _) => b"HTTP/3.0",
                (WireVersion::Http2, _) => b"HTTP/2.0",
                (WireVersion::Http1, Version::Http10) => b"HTTP/1.0",
                (WireVersion::Http1, Version::Http11) => b"HTTP/1.1",
            },
            host: head.authority(),
            referer: head.header(Known::Referer).unwrap_or_default(),
            user_agent: head.header(Known::UserAgent).unwrap_or_default(),
            request_id: &[],
            status: if record.status == 0 { CLOSED } else { record.status },
            bytes: record.bytes,
            duration: record.duration,
            route: record.route.as_ref().map(|route| route.id),
            api: record.route.as_ref().and_then(|route| route.api),
            upstream: record.upstream,
            endpoint: record.endpoint,
            endpoint_duration: record.endpoint_duration,
            attempts: record.attempts,
            consumer: record.consumer.map(|(id, _)| id),
            plan: record.plan,
            subscription: record.subscription,
            policy: record.policy,
            limit: record.limit,
            dry_runs: record.dry_runs,
            trace: record.trace.map(|trace| (trace.trace, trace.span)),
            cache: record.cache,
            invalid: record.invalid,
            reason: record.reason.or((!record.is_complete).then_some("aborted")),
        }
    }

    /// The line of a rejected head, without its first line.
    fn of_rejected(record: &RejectedHead<'e>) -> Self {
        Self {
            at: SystemTime::now() - record.duration,
            remote: record.client,
            method: &[],
            target: &[],
            version: &[],
            host: &[],
            referer: &[],
            user_agent: &[],
            request_id: &[],
            status: record.status,
            bytes: record.bytes as u64,
            duration: record.duration,
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
            limit: None,
            dry_runs: &[],
            trace: None,
            cache: None,
            invalid: None,
            reason: Some(record.reason),
        }
    }

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
            escape::json(out, value)?;
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
        if let Some(ApiOperation { version, environment, operation, .. }) = self.api {
            // The name needs no escapes.
            write!(out, ",\"environment\":\"{environment}\",\"api_version\":\"")?;
            escape::json(out, version.as_bytes())?;
            out.push(b'"');
            if let Some(operation) = operation {
                out.extend_from_slice(b",\"operation\":\"");
                escape::json(out, operation.as_bytes())?;
                out.push(b'"');
            }
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
        if let Some(ObjectId { namespace, name, .. }) = self.consumer {
            write!(out, ",\"consumer\":\"{namespace}/{name}\"")?;
        }
        if let Some(plan) = self.plan {
            // The names of objects need no escapes.
            write!(out, ",\"plan\":\"{plan}\"")?;
        }
        if let Some(ObjectId { namespace, name, .. }) = self.subscription {
            write!(out, ",\"subscription\":\"{namespace}/{name}\"")?;
        }
        if let Some(policy) = self.policy {
            write!(out, ",\"policy\":\"{policy}\"")?;
        }
        if let Some(limit) = self.limit {
            // The name needs no escapes.
            write!(out, ",\"limit\":\"{limit}\"")?;
        }
        if let Some((trace, span)) = self.trace {
            write!(out, ",\"trace_id\":\"{trace:032x}\",\"span_id\":\"{span:016x}\"")?;
        }
        if !self.dry_runs.is_empty() {
            // The names of objects and limits need no escapes.
            write!(out, ",\"dry_runs\":[\"{}\"]", self.dry_runs.join("\",\""))?;
        }
        if let Some(cache) = self.cache {
            write!(out, ",\"cache\":\"{cache}\"")?;
        }
        if let Some(invalid) = self.invalid {
            write!(out, ",\"invalid\":\"{invalid}\"")?;
        }
        if let Some(reason) = self.reason {
            write!(out, ",\"reason\":\"{reason}\"")?;
        }
        out.write_all(b"}\n")
    }

    fn write_combined(&self, out: &mut Vec<u8>) -> io::Result<()> {
        write!(out, "{} - ", self.remote)?;
        match self.consumer {
            Some(ObjectId { namespace, name, .. }) => write!(out, "{namespace}/{name} [")?,
            None => out.write_all(b"- [")?,
        }
        write_local_time(out, self.at)?;
        out.write_all(b"] \"")?;
        for (part, end) in [(self.method, " "), (self.target, " "), (self.version, "\" ")] {
            escape::nginx(out, dash(part))?;
            out.write_all(end.as_bytes())?;
        }
        write!(out, "{} {} \"", self.status, self.bytes)?;
        escape::nginx(out, dash(self.referer))?;
        out.write_all(b"\" \"")?;
        escape::nginx(out, dash(self.user_agent))?;
        out.write_all(b"\"\n")
    }
}

impl ConnectionRecord<'_> {
    fn write_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        begin_json(out, self.at)?;
        write!(out, ",\"remote_addr\":\"{}\",\"remote_port\":{}", self.remote.ip(), self.remote.port())?;
        write!(out, ",\"protocol\":\"{}\",\"listener\":\"{}\"", self.protocol, self.listener)?;
        if let Some(name) = self.name {
            out.write_all(b",\"server_name\":\"")?;
            escape::json(out, name.as_bytes())?;
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

/// Begins an object with the time in seconds since 1970.
fn begin_json(out: &mut Vec<u8>, at: SystemTime) -> io::Result<()> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    write!(out, "{{\"time\":{}.{:03}", since.as_secs(), since.subsec_millis())
}

/// Writes the time as `$time_local` of nginx.
fn write_local_time(out: &mut Vec<u8>, at: SystemTime) -> io::Result<()> {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    out.write_all(&local_time(since.as_secs()))
}

fn dash(value: &[u8]) -> &[u8] {
    if value.is_empty() { b"-" } else { value }
}
