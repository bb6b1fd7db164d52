//! The session of one data plane, from its Hello to the end of the call.
//!
//! A few batches may be in flight at once. At this limit the control plane sends no further batch until the data plane
//! serves a batch. The next batch then contains the newest state of all changes in the meantime.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;
use super::scopes::Scope;
use super::state::{Batch, FellBehind};
use super::telemetry::Record;
use crate::grpc::{self, Code, Incoming, ReceiveError};
use crate::messages::{self, FromControlSay, FromProxySay};
use crate::quotas::ReceivedUses;
use crate::reports::Report;
use crate::resource::Name;

/// The maximum number of batches in flight.
const UNDER_WAY: usize = 4;
/// The longest message of a data plane, in bytes.
const MESSAGE_MAX: usize = 1 << 20;
/// The maximum number of resources in an inventory: this number, or four times the number of existing resources if
/// larger. A resource takes about 100 bytes.
const INVENTORY_MAX: usize = 250_000;
/// The reports of a data plane that are stored at once. A data plane sends one.
const REPORTS: usize = 2;
/// A data plane leaves a control plane that yields this often without delay: of two control planes, it then has found the other
/// one with a probability of 99.8 %.
const PROMPT_LEAVES: u32 = 8;
/// The further time that a data plane stays at a control plane that yields, for each data plane there: 2,000 data planes connect
/// within some seconds.
const YIELD_FOR_EACH: Duration = Duration::from_millis(2);
/// Then, the time before a data plane leaves doubles this often at most: from 1 s to 8 minutes.
const YIELD_DOUBLINGS: u32 = 9;
/// The longest text from a data plane in logs and labels, in characters.
const TEXT_MAX: usize = 253;

/// The end of a call.
struct End {
    code: Code,
    message: &'static str,
}

impl End {
    fn new(code: Code, message: &'static str) -> Self {
        Self { code, message }
    }
}

impl From<h2::Error> for End {
    fn from(_: h2::Error) -> Self {
        Self::new(Code::Unavailable, "the connection broke")
    }
}

impl From<ReceiveError> for End {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Http2(error) => error.into(),
            ReceiveError::TooLong(_) => Self::new(Code::ResourceExhausted, "a message is too long"),
            ReceiveError::Compressed => Self::new(Code::Unimplemented, "messages are not compressed here"),
            ReceiveError::Cut | ReceiveError::Malformed(_) => {
                Self::new(Code::InvalidArgument, "a message cannot be decoded")
            }
        }
    }
}

/// A data plane's call.
pub(super) struct Session {
    shared: Arc<Shared>,
    scope: Arc<Scope>,
    incoming: Incoming,
    outgoing: SendStream<Bytes>,
    record: Arc<Record>,
    number: u64,
    /// The newest version that the control plane sent to the data plane.
    sent: u64,
    /// The reports that are being stored. Each returns its number once it is stored.
    reports: JoinSet<Option<u64>>,
    /// The uses of quotas that are being counted. Each returns the totals once it is counted.
    uses: JoinSet<Option<messages::Totals>>,
    /// The batches in flight: the version, when the version became the newest, and when the batch was sent.
    under_way: VecDeque<(u64, std::time::Instant, Instant)>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.records.remove(self.number);
        self.shared.heard.send_replace(());
        tracing::info!(
            node = %self.record.node, address = %self.record.address, "a data plane has disconnected"
        );
    }
}

impl Session {
    /// Serves a call until the call ends.
    pub(super) async fn begin(
        shared: Arc<Shared>,
        scope: Arc<Scope>,
        body: RecvStream,
        mut respond: SendResponse<Bytes>,
        identity: &str,
        address: SocketAddr,
    ) {
        let mut incoming = Incoming::new(body, MESSAGE_MAX);
        let refuse = |mut respond: SendResponse<Bytes>, end: End| {
            // The data plane may have disconnected.
            let _ = respond.send_response(grpc::refusal(end.code, end.message), true);
        };
        let hello = match timeout(super::OPENING, hello(&mut incoming)).await {
            Ok(Ok(hello)) => hello,
            Ok(Err(end)) => return refuse(respond, end),
            Err(_) => return refuse(respond, End::new(Code::DeadlineExceeded, "no Hello came")),
        };
        let record = Arc::new(Record {
            identity: identity.into(),
            scope: scope.clone(),
            node: shortened(&hello.node),
            build: shortened(&hello.build),
            address,
            connected: SystemTime::now(),
            version: AtomicU64::new(0),
            refused: AtomicU32::new(0),
            behind: std::sync::Mutex::new(Some(std::time::Instant::now())),
        });
        let number = shared.numbers.fetch_add(1, Ordering::Relaxed);
        if !shared.records.add(number, &record, shared.options.max_subscribers) {
            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(node = %record.node, %address, max = shared.options.max_subscribers, "the limit of data planes is reached");
            return refuse(respond, End::new(Code::ResourceExhausted, "there are too many data planes"));
        }
        shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
        tracing::info!(identity, node = %record.node, build = %record.build, %address, "a data plane has connected");
        let Ok(outgoing) = respond.send_response(grpc::accepted(), false) else {
            shared.records.remove(number);
            return;
        };
        let mut session = Self {
            shared,
            scope,
            incoming,
            outgoing,
            record,
            number,
            sent: 0,
            reports: JoinSet::new(),
            uses: JoinSet::new(),
            under_way: VecDeque::new(),
        };
        let Err(end) = session.run(hello).await;
        tracing::debug!(node = %session.record.node, code = ?end.code, "the call ends: {}", end.message);
        // The data plane may have disconnected.
        let _ = session.outgoing.send_trailers(grpc::status(end.code, end.message));
    }

    async fn run(&mut self, hello: messages::Hello) -> Result<Infallible, End> {
        let mut versions = self.scope.version.subscribe();
        let mut yields = self.shared.yields.subscribe();
        let mut leaves = self.leaves();
        // The session waits for the first configuration: an empty configuration would remove all routes.
        let configured = versions.wait_for(|version| *version > 0).await;
        configured.map_err(|_| End::new(Code::Unavailable, "the control plane ends"))?;
        let first = self.first_batch(hello).await?;
        self.send(first).await?;
        loop {
            if self.under_way.len() < UNDER_WAY {
                let newer = self.scope.state().since(self.sent);
                match newer {
                    Ok(None) => {}
                    Ok(Some(batch)) => self.send(batch).await?,
                    Err(FellBehind) => return Err(End::new(Code::Aborted, "it fell behind: begin anew")),
                }
            }
            let patience = self.shared.options.patience;
            let overdue = self.under_way.front().map(|(_, _, sent)| *sent + patience);
            let heartbeat = Instant::now() + self.shared.options.heartbeat;
            tokio::select! {
                message = self.incoming.next::<messages::FromProxy>() => match message?.map(|message| message.say) {
                    Some(Some(FromProxySay::Served(served))) => self.served(&served),
                    Some(Some(FromProxySay::Report(report))) => self.report(report),
                    Some(Some(FromProxySay::Uses(uses))) => self.uses(uses),
                    Some(_) => {}
                    None => return Err(End::new(Code::Unavailable, "the data plane has ended the call")),
                },
                changed = versions.changed(), if self.under_way.len() < UNDER_WAY => {
                    changed.map_err(|_| End::new(Code::Unavailable, "the control plane ends"))?;
                    if *versions.borrow() == Scope::OVER {
                        return Err(End::new(Code::Unavailable, "the Gateway has no data planes of its own any more"));
                    }
                }
                Some(stored) = self.reports.join_next() => if let Ok(Some(sequence)) = stored {
                    self.say(FromControlSay::Stored(messages::Stored { sequence })).await?;
                },
                Some(counted) = self.uses.join_next() => if let Ok(Some(totals)) = counted {
                    self.say(FromControlSay::Totals(totals)).await?;
                },
                // `self` holds a sender.
                _ = yields.changed() => leaves = self.leaves(),
                () = sleep_until(leaves), if *yields.borrow() && self.under_way.is_empty() => {
                    self.leave();
                    return Err(End::new(Code::Unavailable, grpc::ELSEWHERE));
                }
                () = sleep_until(overdue.unwrap_or(heartbeat)) => match overdue {
                    Some(_) => return Err(self.too_slow()),
                    None => self.heartbeat().await?,
                },
            }
        }
    }

    /// The time at which the data plane leaves if the control plane yields. Data planes leave one after another.
    fn leaves(&self) -> Instant {
        let times = self.shared.left().get(&self.record.node).copied().unwrap_or_default();
        let mean = stay(self.shared.options.yield_after, times, self.shared.records.len());
        Instant::now() + mean.mul_f64(0.5 + fastrand::f64())
    }

    fn leave(&self) {
        let mut left = self.shared.left();
        // Names come from data planes. The number of names is limited.
        if left.len() < 2 * self.shared.options.max_subscribers || left.contains_key(&self.record.node) {
            *left.entry(self.record.node.clone()).or_default() += 1;
        }
    }

    /// The Welcome, and the first batch, which may be empty.
    async fn first_batch(&mut self, hello: messages::Hello) -> Result<Batch, End> {
        enum Has {
            Known(Batch),
            Unknown,
        }
        let (epoch, has) = {
            let mut state = self.scope.state();
            let epoch = state.epoch.clone();
            let since = (hello.epoch == epoch).then(|| state.since(hello.version));
            let has = match since {
                Some(Ok(batch)) => Has::Known(batch.unwrap_or_else(|| state.nothing())),
                _ if hello.epoch.is_empty() => Has::Known(state.all()),
                _ if hello.state == state.digest() => Has::Known(state.nothing()),
                _ => Has::Unknown,
            };
            (epoch, has)
        };
        match has {
            Has::Known(batch) => {
                self.welcome(epoch, false).await?;
                Ok(batch)
            }
            Has::Unknown => {
                let shared = self.shared.clone();
                // The semaphore is never closed.
                let _held = shared.inventories.acquire().await;
                shared.counters.inventories.fetch_add(1, Ordering::Relaxed);
                self.welcome(epoch, true).await?;
                let inventory = timeout(shared.options.patience, self.inventory()).await;
                let inventory = inventory.map_err(|_| self.too_slow())??;
                let batch = self.scope.state().difference(&inventory);
                Ok(batch)
            }
        }
    }

    async fn welcome(&mut self, epoch: Bytes, wants_inventory: bool) -> Result<(), End> {
        let build = self.shared.options.build.to_string();
        let stores_reports = self.shared.options.reports.is_some();
        let counts_quotas = self.shared.options.quotas.is_some();
        let welcome = messages::Welcome { epoch, build, wants_inventory, stores_reports, counts_quotas };
        self.say(FromControlSay::Welcome(welcome)).await
    }

    async fn inventory(&mut self) -> Result<HashMap<Name, Bytes>, End> {
        let max = (self.scope.state().resources() * 4).max(INVENTORY_MAX);
        let mut inventory = HashMap::new();
        loop {
            let message = self.incoming.next::<messages::FromProxy>().await?;
            let Some(FromProxySay::Inventory(part)) = message.and_then(|message| message.say) else {
                return Err(End::new(Code::InvalidArgument, "the inventory was expected"));
            };
            for held in part.held {
                inventory.insert(Name { kind: held.kind, name: held.name }, held.digest);
            }
            if inventory.len() > max {
                return Err(End::new(Code::ResourceExhausted, "the inventory is too long"));
            }
            if !part.more {
                return Ok(inventory);
            }
        }
    }

    async fn send(&mut self, batch: Batch) -> Result<(), End> {
        self.record.set_behind(Some(self.under_way.front().map_or(batch.since, |(_, since, _)| *since)));
        self.shared.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.shared.counters.bytes.fetch_add(batch.len() as u64, Ordering::Relaxed);
        for piece in batch.pieces.iter() {
            let mut piece = piece.clone();
            let sent = timeout(self.shared.options.patience, grpc::send(&mut self.outgoing, &mut piece));
            sent.await.map_err(|_| self.too_slow())??;
        }
        self.sent = batch.version;
        self.under_way.push_back((batch.version, batch.since, Instant::now()));
        Ok(())
    }

    async fn heartbeat(&mut self) -> Result<(), End> {
        self.say(FromControlSay::Heartbeat(messages::Heartbeat { version: self.sent })).await?;
        self.under_way.push_back((self.sent, std::time::Instant::now(), Instant::now()));
        Ok(())
    }

    async fn say(&mut self, say: FromControlSay) -> Result<(), End> {
        let mut message = grpc::encoded(&messages::FromControl { say: Some(say) });
        let sent = timeout(self.shared.options.patience, grpc::send(&mut self.outgoing, &mut message)).await;
        Ok(sent.map_err(|_| self.too_slow())??)
    }

    fn served(&mut self, served: &messages::Served) {
        let now = std::time::Instant::now();
        let was = self.record.version.load(Ordering::Relaxed);
        while let Some((version, since, _)) = self.under_way.front()
            && *version <= served.version
        {
            // Heartbeats have versions that the data plane already serves.
            if *version > was {
                self.shared.counters.record_lag(now.duration_since(*since));
            }
            self.under_way.pop_front();
        }
        self.record.version.store(served.version, Ordering::Relaxed);
        self.record.refused.store(served.refused, Ordering::Relaxed);
        self.record.set_behind(self.under_way.front().map(|(_, since, _)| *since));
        self.shared.heard.send_replace(());
    }

    /// Stores a report in a separate task. If too many reports are being stored, the data plane sends this one again later.
    fn report(&mut self, report: messages::Report) {
        let Some(store) = &self.shared.options.reports else { return };
        if self.reports.len() >= REPORTS || report.instance.len() > TEXT_MAX {
            return;
        }
        let messages::Report { instance, sequence, body } = report;
        let stored = store.store(Report { node: self.record.node.clone(), instance, sequence, body });
        self.reports.spawn(async move { stored.await.then_some(sequence) });
    }

    /// Counts uses of quotas in a separate task. If too many are being counted, the data plane sends these again later.
    fn uses(&mut self, uses: messages::Uses) {
        let Some(ledger) = &self.shared.options.quotas else { return };
        if self.uses.len() >= REPORTS || uses.instance.len() > TEXT_MAX {
            return;
        }
        let messages::Uses { instance, sequence, uses } = uses;
        let counted = ledger.count(ReceivedUses { instance, sequence, uses });
        self.uses.spawn(async move { Some(messages::Totals { sequence, totals: counted.await? }) });
    }

    fn too_slow(&self) -> End {
        self.shared.counters.dropped.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            node = %self.record.node, address = %self.record.address, version = self.sent,
            "a data plane does not read its messages; the control plane closes the connection"
        );
        End::new(Code::DeadlineExceeded, "it took too long")
    }
}

async fn hello(incoming: &mut Incoming) -> Result<messages::Hello, End> {
    let message = incoming.next::<messages::FromProxy>().await?;
    match message.and_then(|message| message.say) {
        Some(FromProxySay::Hello(hello)) => Ok(hello),
        _ => Err(End::new(Code::InvalidArgument, "Hello was expected")),
    }
}

/// A text of safe length for logs and labels.
fn shortened(text: &str) -> Arc<str> {
    text.chars().filter(|character| !character.is_control()).take(TEXT_MAX).collect::<String>().into()
}

/// The mean time that a data plane stays at a control plane that yields, after it has left this often. `planes` is the number of
/// data planes there.
fn stay(first: Duration, times: u32, planes: usize) -> Duration {
    let doublings = times.saturating_sub(PROMPT_LEAVES).min(YIELD_DOUBLINGS);
    (first + YIELD_FOR_EACH * u32::try_from(planes).unwrap_or(u32::MAX)) * 2_u32.pow(doublings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_plane_leaves_promptly_at_first_and_rarely_if_there_is_no_other_control_plane() {
        let second = Duration::from_secs(1);
        let prompt: Duration = (0..8).map(|times| stay(second, times, 3)).sum();
        assert!(prompt < Duration::from_secs(10), "{prompt:?}");
        assert_eq!(stay(second, 11, 0), 8 * second);
        assert_eq!(stay(second, 1000, 0), 512 * second);
        assert_eq!(stay(second, 0, 2000), 5 * second);
    }
}
