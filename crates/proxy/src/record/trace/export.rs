//! Export of spans: OTLP over HTTP with protobuf (opentelemetry-proto, `ExportTraceServiceRequest`), which every
//! collector accepts and every load balancer passes. gRPC would send the same bytes in a frame.
//!
//! A separate thread exports spans. It starts when the first collector is configured. Every exchange with a collector is
//! limited in time and length, and costs spans at worst.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use sluicegate_model::Tracing;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::sleep;

use super::buffer::{Batch, SpanBuffer};
use super::context::Followed;
use crate::counters::{SpanLoss, SpanStats};
use crate::http_client::{HttpClient, HttpError, HttpLimits, Server, ServerError};
use crate::protobuf::{bytes, fields, text_attribute};

/// How many batches may wait before spans are dropped: 5 MiB at most.
pub(super) const QUEUE: usize = 32;

/// The limits for sending a batch and receiving the response.
const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(5), body: 64 * 1024 };

/// How often a batch is sent if the error may be temporary.
const TRIES: u32 = 4;

/// The pause after the first failed attempt; the pause doubles. Half of it is random.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest pause that a collector may request (`Retry-After`).
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long spans are still sent at the end of the process.
const LAST: Duration = Duration::from_secs(2);

/// The exporter of spans.
#[derive(Debug)]
pub(crate) struct Exporter {
    tracing: watch::Sender<Option<Arc<Tracing>>>,
    stats: Arc<SpanStats>,
    /// Notified when the process ends.
    closing: Arc<Notify>,
    /// Set until a collector is configured.
    pub(super) batches: Option<mpsc::Receiver<Batch>>,
    thread: Option<JoinHandle<()>>,
}

/// The recipient of workers' spans.
#[derive(Debug)]
pub(crate) struct Spans {
    batches: mpsc::Sender<Batch>,
    followed: Arc<Followed>,
}

impl Spans {
    pub(crate) fn buffer(&self) -> SpanBuffer {
        SpanBuffer::new(self.batches.clone(), self.followed.clone())
    }
}

impl Exporter {
    /// An exporter without a collector, and the recipient of spans.
    pub(crate) fn new(stats: Arc<SpanStats>) -> (Self, Spans) {
        let (sender, batches) = mpsc::channel(QUEUE);
        let (tracing, _) = watch::channel(None);
        let exporter = Self { tracing, stats, closing: Arc::default(), batches: Some(batches), thread: None };
        (exporter, Spans { batches: sender, followed: Arc::new(Followed::new()) })
    }

    /// Sends spans to this collector from now on.
    pub(crate) fn follow(&mut self, tracing: Option<&Tracing>) {
        if self.tracing.borrow().as_deref() == tracing {
            return;
        }
        self.tracing.send_replace(tracing.cloned().map(Arc::new));
        let Some(batches) = self.batches.take() else { return };
        let (tracing, stats, closing) = (self.tracing.subscribe(), self.stats.clone(), self.closing.clone());
        let thread = std::thread::Builder::new().name("spans".into());
        match thread.spawn(move || run(batches, tracing, &stats, &closing)) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                tracing::error!(%error, "cannot start the thread that exports spans; all spans are lost");
            }
        }
    }

    /// Ends the export once the workers have ended: their last spans are still sent, for two seconds at most.
    pub(crate) fn close(&mut self) -> Option<JoinHandle<()>> {
        self.closing.notify_one();
        self.thread.take()
    }
}

fn run(
    mut batches: mpsc::Receiver<Batch>,
    tracing: watch::Receiver<Option<Arc<Tracing>>>,
    stats: &SpanStats,
    closing: &Notify,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return tracing::error!(%error, "cannot start the runtime that exports spans; all spans are lost");
        }
    };
    runtime.block_on(async {
        let end = async {
            closing.notified().await;
            sleep(LAST).await;
        };
        tokio::select! {
            () = export(&mut batches, tracing, stats) => {}
            () = end => {}
        }
    });
    while let Ok(batch) = batches.try_recv() {
        stats.lose(SpanLoss::Ended, batch.count);
    }
    // A name lookup may still be running, and is abandoned.
    runtime.shutdown_background();
}

/// Sends spans until no worker is left.
async fn export(
    batches: &mut mpsc::Receiver<Batch>,
    tracing: watch::Receiver<Option<Arc<Tracing>>>,
    stats: &SpanStats,
) {
    let mut link = Link::default();
    let mut told = String::new();
    while let Some(batch) = batches.recv().await {
        let Some(tracing) = tracing.borrow().clone() else {
            stats.lose(SpanLoss::Ended, batch.count);
            continue;
        };
        let count = batch.count;
        let mut in_flight = Lost { stats, count };
        let sent = link.send(&tracing, batch).await;
        in_flight.count = 0;
        let problem = match sent {
            Ok(taken) => {
                let rejected = taken.rejected.min(count);
                stats.add_exported(count - rejected);
                stats.lose(SpanLoss::Rejected, rejected);
                taken.message
            }
            Err(error) => {
                stats.lose(error.loss(), count);
                error.to_string()
            }
        };
        if problem != told {
            match problem.is_empty() {
                true => tracing::info!(collector = %tracing.collector, "the collector accepts spans again"),
                false => {
                    tracing::warn!(collector = %tracing.collector, problem, "the collector does not accept spans; spans are lost until it does");
                }
            }
            told = problem;
        }
    }
}

/// Spans in flight when the thread ends.
struct Lost<'s> {
    stats: &'s SpanStats,
    count: u64,
}

impl Drop for Lost<'_> {
    fn drop(&mut self) {
        self.stats.lose(SpanLoss::Ended, self.count);
    }
}

/// A collector's response about accepted spans.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taken {
    /// How many of the spans the collector rejected.
    rejected: u64,
    message: String,
}

impl Taken {
    /// `ExportTraceServiceResponse.partial_success`. An unreadable response counts as empty.
    fn read(answer: &[u8]) -> Self {
        let mut taken = Self::default();
        let partial = fields(answer).find_map(|field| match field {
            (1, Err(partial)) => Some(partial),
            _ => None,
        });
        for field in fields(partial.unwrap_or_default()) {
            match field {
                (1, Ok(rejected)) => taken.rejected = rejected,
                (2, Err(message)) => {
                    taken.message = String::from_utf8_lossy(&message[..message.len().min(256)]).into_owned();
                }
                _ => {}
            }
        }
        taken
    }
}

/// Why spans were not accepted.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("cannot use the URL of --otlp or the certificates of --otlp-ca: {0}")]
    Server(#[from] ServerError),
    #[error(transparent)]
    Exchange(#[from] HttpError),
    #[error("the collector responds with {status}; {advice}", advice = advice(*status))]
    Status { status: StatusCode, pause: Option<Duration> },
}

fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => {
            "check that the collector accepts OTLP over HTTP at this URL with /v1/traces added"
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "check that the collector accepts OTLP over HTTP in protobuf",
        _ => "see the log of the collector",
    }
}

impl ExportError {
    /// Whether a retry may succeed (OTLP, "Failures": only these statuses).
    fn may_pass(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            Self::Server(_) => false,
            Self::Exchange(_) => true,
        }
    }

    fn loss(&self) -> SpanLoss {
        match self {
            Self::Status { .. } if !self.may_pass() => SpanLoss::Refused,
            _ => SpanLoss::Unreachable,
        }
    }
}

/// The client of the current collector, unless its last exchange failed.
#[derive(Default)]
struct Link(Option<(Arc<Tracing>, HttpClient)>);

impl Link {
    /// Sends spans, with retries if necessary.
    async fn send(&mut self, tracing: &Arc<Tracing>, batch: Batch) -> Result<Taken, ExportError> {
        let message = Bytes::from(message(&tracing.service_name, &batch.spans));
        drop(batch);
        let (mut pause, mut retries) = (PAUSE, TRIES - 1);
        loop {
            let error = match self.post(tracing, message.clone()).await {
                Ok(taken) => return Ok(taken),
                Err(error) => error,
            };
            // The next connection may lead to another server of the collector.
            self.0 = None;
            if retries == 0 || !error.may_pass() {
                return Err(error);
            }
            retries -= 1;
            let asked = match &error {
                ExportError::Status { pause, .. } => pause.unwrap_or_default(),
                _ => Duration::ZERO,
            };
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0).max(asked.min(PAUSE_MAX))).await;
            pause *= 2;
        }
    }

    async fn post(&mut self, tracing: &Arc<Tracing>, message: Bytes) -> Result<Taken, ExportError> {
        let client = match self.0.take().filter(|(known, _)| known == tracing) {
            Some((_, client)) => client,
            None => {
                let url = format!("{}/v1/traces", tracing.collector);
                HttpClient::new(Server::new(&url, &tracing.authorities)?, LIMITS)
            }
        };
        let (_, client) = self.0.insert((tracing.clone(), client));
        let lines = [(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))];
        let response = client.post(&lines, message).await?;
        let status = response.status;
        if !status.is_success() {
            return Err(ExportError::Status { status, pause: retry_after(&response.headers) });
        }
        // The collector has the spans, even if its response is too long.
        Ok(response.body.map_or_else(|_| Taken::default(), |body| Taken::read(&body)))
    }
}

/// The requested pause in seconds (RFC 9110, 10.2.3); dates are ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// `ExportTraceServiceRequest` with one `ResourceSpans` and one `ScopeSpans`, whose spans are already encoded.
fn message(service_name: &str, spans: &[u8]) -> Vec<u8> {
    let mut resource = Vec::new();
    text_attribute(&mut resource, 1, "service.name", service_name.as_bytes());
    text_attribute(&mut resource, 1, "service.version", env!("CARGO_PKG_VERSION").as_bytes());
    let mut scope = Vec::new();
    bytes(&mut scope, 1, b"sluicegate");
    bytes(&mut scope, 2, env!("CARGO_PKG_VERSION").as_bytes());
    let mut scope_spans = Vec::with_capacity(spans.len() + 64);
    bytes(&mut scope_spans, 1, &scope);
    scope_spans.extend_from_slice(spans);
    let mut resource_spans = Vec::with_capacity(scope_spans.len() + 256);
    bytes(&mut resource_spans, 1, &resource);
    bytes(&mut resource_spans, 2, &scope_spans);
    let mut message = Vec::with_capacity(resource_spans.len() + 8);
    bytes(&mut message, 1, &resource_spans);
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::integer;

    #[test]
    fn partial_success_response_states_the_number_of_rejected_spans() {
        let (mut partial, mut answer) = (Vec::new(), Vec::new());
        integer(&mut partial, 1, 7);
        bytes(&mut partial, 2, b"too old");
        bytes(&mut answer, 1, &partial);
        assert_eq!(Taken::read(&answer), Taken { rejected: 7, message: "too old".into() });
        for nothing in [&b""[..], b"garbage", b"\x0a\xff", b"<html>", &[0xff; 100]] {
            assert_eq!(Taken::read(nothing), Taken::default(), "{}", nothing.escape_ascii());
        }
    }
}
