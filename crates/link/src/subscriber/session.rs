//! One connection to a control plane, from the DNS lookup to its end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use h2::{Ping, PingPong, SendStream, client};
use http::HeaderValue;
use sluicegate_model::Change;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{AbortOnDrop, Subscriber};
use crate::grpc::{self, Incoming, ReceiveError};
use crate::messages::{self, FromControlSay, FromProxySay, ResourceChange};
use crate::quotas::QuotaUses;
use crate::reports::Reports;
use crate::resource::Name;
use crate::store::Delta;
use crate::tls::TlsError;

/// The timeout from the DNS lookup to the end of the handshakes.
const CONNECT: Duration = Duration::from_secs(2);
/// The time between two pings.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// The timeout of a ping: the data plane detects a lost control plane after 8 s at most. A shorter timeout would
/// disconnect all data planes from a control plane that is short of CPU for a moment.
const PING_PATIENCE: Duration = Duration::from_secs(6);
/// The longest accepted message, in bytes, which bounds the size of one resource.
const MESSAGE_MAX: usize = 64 << 20;
/// The largest accepted batch, in bytes.
const BATCH_MAX: usize = 1 << 30;
/// The flow control window of the control plane, in bytes.
const WINDOW: u32 = 1 << 20;
/// The time after which a data plane sends a report again that is not stored.
const REPORT_PATIENCE: Duration = Duration::from_secs(10);
/// Resources in one message of an inventory: some 300 KB. The control plane accepts 1 MiB.
const INVENTORY_PART: usize = 4096;

/// The reason why the link is not connected.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the connect timed out")]
    Timeout,
    #[error("{0}")]
    Connect(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("{0}")]
    Identity(#[from] TlsError),
    #[error("{0}")]
    Http2(#[from] h2::Error),
    #[error("{0}")]
    Receive(#[from] ReceiveError),
    #[error("{0}")]
    Refused(String),
    #[error("{}", grpc::ELSEWHERE)]
    Elsewhere,
    #[error("the control plane no longer responds")]
    Silent,
    #[error("the connection has ended")]
    Ended,
    #[error("the control plane violates the protocol: {0}")]
    Protocol(&'static str),
}

type Connection = client::Connection<TlsStream<TcpStream>, Bytes>;

impl Subscriber {
    pub(super) async fn session<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        publish: &mut (impl FnMut(Change) -> F + Send),
    ) -> Result<Infallible, LinkError> {
        let opened = timeout(CONNECT, self.connect()).await;
        let (calls, mut connection, token) = opened.map_err(|_| LinkError::Timeout)??;
        let pings = connection.ping_pong().ok_or(LinkError::Ended)?;
        // The connection runs on a separate task, because the session still reads the messages from before the end.
        let _driven = AbortOnDrop(tokio::spawn(async move {
            // The streams report the error too.
            let _ = connection.await;
        }));
        tokio::select! {
            ended = self.follow(calls, token, publish) => ended,
            silent = keep_alive(pings) => Err(silent),
        }
    }

    async fn connect(
        &self,
    ) -> Result<(client::SendRequest<Bytes>, Connection, Option<HeaderValue>), LinkError> {
        let (tls, token) = self.options.identity.client().await?;
        let stream = TcpStream::connect(&*self.options.control).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(tls);
        let name = self.options.control_name.clone();
        let stream = connector.connect(name, stream).await.map_err(LinkError::Tls)?;
        let mut builder = client::Builder::new();
        builder
            .enable_push(false)
            .max_header_list_size(16 << 10)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        let (calls, connection) = builder.handshake(stream).await?;
        Ok((calls, connection, token))
    }

    async fn follow<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        calls: client::SendRequest<Bytes>,
        token: Option<HeaderValue>,
        publish: &mut (impl FnMut(Change) -> F + Send),
    ) -> Result<Infallible, LinkError> {
        let request = grpc::request("sluicegate-control-plane", token);
        let request = request.map_err(|_| LinkError::Protocol("the request cannot be made"))?;
        let (response, outgoing) = calls.ready().await?.send_request(request, false)?;
        let mut outgoing = Outgoing { stream: outgoing, messages: VecDeque::new() };
        outgoing.say(self.hello());
        let said = outgoing.flush().await;
        // A control plane that rejects the call may not read the Hello (RFC 9113, 8.1).
        let response = response.await?;
        if response.status() != http::StatusCode::OK || response.headers().contains_key("grpc-status") {
            return Err(LinkError::Refused(grpc::status_in_words(response.headers())));
        }
        said?;
        let mut incoming = Incoming::new(response.into_body(), MESSAGE_MAX);
        let (applied, mut is_applied) = watch::channel(0);
        let applied = Arc::new(applied);
        let (mut delta, mut bytes) = (Delta::default(), 0);
        let (mut reporter, mut quotas): (Option<Reporter>, Option<QuotaReporter>) = (None, None);
        loop {
            if let Some(reporter) = &mut reporter {
                reporter.say_next(&mut outgoing);
            }
            if let Some(quotas) = &mut quotas {
                quotas.say_next(&mut outgoing);
            }
            let message = tokio::select! {
                // A control plane that sends much must not wait for a data plane that sends much.
                flushed = outgoing.flush(), if !outgoing.messages.is_empty() => {
                    flushed?;
                    continue;
                }
                () = Turns::wait(reporter.as_mut().map(|reporter| &mut reporter.turns)) => continue,
                () = Turns::wait(quotas.as_mut().map(|quotas| &mut quotas.turns)) => continue,
                message = incoming.next::<messages::FromControl>() => message?,
                _ = is_applied.changed() => {
                    outgoing.say(self.served(&is_applied));
                    continue;
                }
                () = sleep_until(self.deadline), if !self.is_published => {
                    self.deadline += Duration::from_secs(3600);
                    self.publish_snapshot(publish);
                    continue;
                }
            };
            let Some(message) = message else {
                let reason = grpc::status_in_words(&incoming.trailers().await?);
                return Err(match &*reason {
                    grpc::ELSEWHERE => LinkError::Elsewhere,
                    _ => LinkError::Refused(reason),
                });
            };
            match message.say {
                Some(FromControlSay::Welcome(welcome)) => {
                    self.welcomed(&welcome);
                    if welcome.wants_inventory {
                        self.send_inventory(&mut outgoing).await?;
                    }
                    if welcome.stores_reports {
                        reporter = self.options.reports.clone().map(Reporter::new);
                    }
                    if welcome.counts_quotas {
                        quotas = self.options.quotas.clone().map(QuotaReporter::new);
                    }
                }
                Some(FromControlSay::Heartbeat(_)) => outgoing.say(self.served(&is_applied)),
                Some(FromControlSay::Stored(stored)) => {
                    if let Some(reporter) = &mut reporter {
                        reporter.stored(stored.sequence);
                    }
                }
                Some(FromControlSay::Totals(totals)) => {
                    if let Some(quotas) = &mut quotas {
                        quotas.counted(&totals);
                    }
                }
                Some(FromControlSay::Batch(batch)) => {
                    let (version, more) = (batch.version, batch.more);
                    bytes += collect(&mut delta, batch);
                    if bytes > BATCH_MAX {
                        return Err(LinkError::Protocol("a batch is far too large"));
                    }
                    if !more {
                        bytes = 0;
                        self.apply(std::mem::take(&mut delta), version, publish, &applied);
                    }
                }
                // A message of an unknown kind.
                None => {}
            }
        }
    }

    fn hello(&self) -> FromProxySay {
        let held = self.held();
        FromProxySay::Hello(messages::Hello {
            node: self.options.node.to_string(),
            build: self.options.build.to_string(),
            epoch: held.epoch.clone(),
            version: held.version,
            state: held.store.state(),
        })
    }

    /// The data plane keeps its old state until it applies the first batch.
    fn welcomed(&mut self, welcome: &messages::Welcome) {
        self.pending_epoch = welcome.epoch.clone();
        self.telemetry.send_modify(|telemetry| {
            telemetry.is_connected = true;
            telemetry.since = Some(SystemTime::now());
            telemetry.connections += 1;
            telemetry.last_error = None;
        });
        tracing::info!(
            control = %self.options.control, build = %welcome.build, "connected to the control plane"
        );
    }

    fn served(&self, applied: &watch::Receiver<u64>) -> FromProxySay {
        let refused = u32::try_from(self.held().store.refused()).unwrap_or(u32::MAX);
        FromProxySay::Served(messages::Served { version: *applied.borrow(), refused })
    }

    async fn send_inventory(&self, outgoing: &mut Outgoing) -> Result<(), LinkError> {
        let held: Vec<_> = {
            let held = self.held();
            let held = held.store.inventory().map(|(name, digest)| messages::Held {
                kind: name.kind,
                name: name.name.clone(),
                digest: Bytes::copy_from_slice(digest.prefix()),
            });
            held.collect()
        };
        let mut parts = held.chunks(INVENTORY_PART).peekable();
        loop {
            let held = parts.next().unwrap_or_default().to_vec();
            let more = parts.peek().is_some();
            outgoing.say(FromProxySay::Inventory(messages::Inventory { held, more }));
            outgoing.flush().await?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Applies a whole batch. The data plane reports the version when it serves the whole batch.
    fn apply<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        delta: Delta,
        version: u64,
        publish: &mut (impl FnMut(Change) -> F + Send),
        applied: &Arc<watch::Sender<u64>>,
    ) {
        let (changes, refused) = {
            let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let mut changes = held.store.apply(delta);
            if !self.is_published {
                // The data plane held its snapshot back until the control plane responded. The control plane may have
                // no changes.
                changes = vec![Change::Config(Arc::new(held.store.config()))];
            }
            held.epoch = self.pending_epoch.clone();
            held.version = version;
            (changes, held.store.refused())
        };
        self.is_published = true;
        self.changed.notify_one();
        let served: Vec<F> = changes.into_iter().map(publish).collect();
        let (applied, telemetry) = (applied.clone(), self.telemetry.clone());
        tokio::spawn(async move {
            for served in served {
                served.await;
            }
            // The proxy may finish a later batch first.
            applied.send_if_modified(|newest| std::mem::replace(newest, version.max(*newest)) < version);
            telemetry.send_modify(|telemetry| {
                telemetry.version = version;
                telemetry.refused = refused;
            });
        });
    }
}

/// Detects a lost peer. TCP alone needs a quarter of an hour.
async fn keep_alive(mut pings: PingPong) -> LinkError {
    loop {
        sleep(PING_INTERVAL).await;
        match timeout(PING_PATIENCE, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            // The call ends too, and reports the precise reason.
            Ok(Err(_)) => sleep(PING_PATIENCE).await,
            Err(_) => return LinkError::Silent,
        }
    }
}

/// Adds a message to a batch. Returns the size in bytes.
fn collect(delta: &mut Delta, batch: messages::Batch) -> usize {
    let mut bytes = 0;
    for ResourceChange { kind, name, body } in batch.changes {
        bytes += name.len() + body.as_ref().map_or(0, Bytes::len);
        let name = Name { kind, name };
        match body {
            Some(body) => delta.changed.push((name, body)),
            None => delta.gone.push(name),
        }
    }
    bytes
}

/// The messages to the control plane.
struct Outgoing {
    stream: SendStream<Bytes>,
    /// The messages, or their rest, that are not sent yet.
    messages: VecDeque<Bytes>,
}

impl Outgoing {
    fn say(&mut self, say: FromProxySay) {
        self.messages.push_back(grpc::encoded(&messages::FromProxy { say: Some(say) }));
    }

    /// Sends what is not sent yet. Cancel safe: a dropped future leaves the rest.
    async fn flush(&mut self) -> Result<(), LinkError> {
        while let Some(message) = self.messages.front_mut() {
            grpc::send(&mut self.stream, message).await?;
            self.messages.pop_front();
        }
        Ok(())
    }
}

/// The turns of messages that the control plane answers, one at a time.
struct Turns {
    newest: watch::Receiver<u64>,
    /// The number of the message without an answer, and when it was sent.
    sent: Option<(u64, Instant)>,
}

impl Turns {
    fn new(newest: watch::Receiver<u64>) -> Self {
        Self { newest, sent: None }
    }

    /// Sends the next message, or the last one again if its answer is late.
    fn say(&mut self, outgoing: &mut Outgoing, next: impl FnOnce() -> Option<(u64, FromProxySay)>) {
        if self.sent.is_some_and(|(_, at)| at.elapsed() < REPORT_PATIENCE) {
            return;
        }
        self.newest.mark_unchanged();
        self.sent = next().map(|(sequence, message)| {
            outgoing.say(message);
            (sequence, Instant::now())
        });
    }

    fn answered(&mut self, sequence: u64) {
        self.sent = self.sent.filter(|(sent, _)| *sent != sequence);
    }

    /// Waits until there may be a message to send.
    async fn wait(this: Option<&mut Self>) {
        match this {
            None => std::future::pending::<()>().await,
            Some(Self { sent: Some((_, at)), .. }) => sleep_until(*at + REPORT_PATIENCE).await,
            Some(Self { newest, .. }) => {
                if newest.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// Sends the reports of the data plane.
struct Reporter {
    reports: Arc<dyn Reports>,
    turns: Turns,
}

impl Reporter {
    fn new(reports: Arc<dyn Reports>) -> Self {
        Self { turns: Turns::new(reports.newest()), reports }
    }

    fn say_next(&mut self, outgoing: &mut Outgoing) {
        self.turns.say(outgoing, || {
            let (sequence, body) = self.reports.after(0)?;
            let instance = self.reports.instance().to_owned();
            Some((sequence, FromProxySay::Report(messages::Report { instance, sequence, body })))
        });
    }

    fn stored(&mut self, sequence: u64) {
        self.reports.stored(sequence);
        self.turns.answered(sequence);
    }
}

/// Sends the uses of quotas of the data plane.
struct QuotaReporter {
    quotas: Arc<dyn QuotaUses>,
    turns: Turns,
}

impl QuotaReporter {
    fn new(quotas: Arc<dyn QuotaUses>) -> Self {
        Self { turns: Turns::new(quotas.newest()), quotas }
    }

    fn say_next(&mut self, outgoing: &mut Outgoing) {
        self.turns.say(outgoing, || {
            let (sequence, uses) = self.quotas.next()?;
            let instance = self.quotas.instance().to_owned();
            Some((sequence, FromProxySay::Uses(messages::Uses { instance, sequence, uses })))
        });
    }

    fn counted(&mut self, totals: &messages::Totals) {
        self.quotas.counted(totals.sequence, &totals.totals);
        self.turns.answered(totals.sequence);
    }
}
