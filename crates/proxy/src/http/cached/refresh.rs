//! Revalidation in the background (`stale-while-revalidate`; RFC 5861, 3): a stale response has served a request, and the
//! gateway asks an endpoint whether the response is still valid. The request does not wait.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_http1::{HeadLimits, Method, ResponseFraming, ResponseHead};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

use super::super::exchange::Exchange;
use super::settle::{renew, times};
use crate::feature::cache::{Asked, Collector, Draft, Entry, Flight, Outcome, withdraws, without_conditions};
use crate::feature::traffic::TrafficPolicy;
use crate::upstream::{Admission, AvoidedEndpoints, Connection, EndpointPreference, LocalUpstream};
use crate::worker::Worker;

/// The limit of responses that one worker revalidates in the background at a time.
const REFRESHES_MAX: usize = 64;

/// The time limit of a revalidation in the background.
const TIME: Duration = Duration::from_secs(30);

thread_local! {
    static REFRESHES: Cell<usize> = const { Cell::new(0) };
}

/// A revalidation in progress, counted until the value is dropped.
pub(super) struct Place;

impl Place {
    /// `None` at the limit.
    pub(super) fn take() -> Option<Self> {
        let taken = REFRESHES.get();
        (taken < REFRESHES_MAX).then(|| {
            REFRESHES.set(taken + 1);
            Self
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        REFRESHES.set(REFRESHES.get() - 1);
    }
}

impl Exchange<'_> {
    /// Revalidates a response in the background.
    pub(super) fn refresh(
        &self,
        (flight, place): (Flight, Place),
        entry: &Arc<Entry>,
        asked: Asked,
        upstream: &Rc<LocalUpstream>,
    ) {
        let Some(policy) = self.traffic().cloned() else { return };
        let mut request = without_conditions(&self.scratch.request);
        let revalidates = entry.ask_whether_it_holds(&mut request);
        let refresh = Refresh {
            request,
            asked,
            entry: entry.clone(),
            revalidates,
            worker: self.worker.clone(),
            policy,
        };
        let upstream = upstream.clone();
        spawn_local(async move {
            refresh.run(flight, &upstream).await;
            drop(place);
        });
    }
}

struct Refresh {
    request: Vec<u8>,
    asked: Asked,
    entry: Arc<Entry>,
    /// Whether the request asks if the response is still valid.
    revalidates: bool,
    worker: Rc<Worker>,
    policy: Arc<TrafficPolicy>,
}

impl Refresh {
    async fn run(&self, flight: Flight, upstream: &Rc<LocalUpstream>) {
        let shard = self.policy.stats.of(self.worker.id);
        shard.cache_refreshes.add(1);
        flight.ends(Outcome::Failed);
        if !matches!(timeout(TIME, self.exchange(flight, upstream)).await, Ok(Some(()))) {
            shard.cache_refresh_failures.add(1);
        }
    }

    /// Asks one endpoint. If the endpoint had closed the first connection meanwhile, asks again on another connection.
    async fn exchange(&self, flight: Flight, upstream: &Rc<LocalUpstream>) -> Option<()> {
        let _admission = Admission::new(upstream).ok()?;
        let settings = &*self.policy.compiled.settings;
        let limits = HeadLimits { bytes: settings.limits.response_head, headers: settings.limits.headers };
        let (preference, mut tried) = (EndpointPreference::default(), AvoidedEndpoints::default());
        for may_be_pooled in [true, false] {
            let now = Instant::now();
            let turn = upstream.pick(&tried, &preference, &settings.resilience, now);
            let pooled = turn
                .as_ref()
                .filter(|_| may_be_pooled)
                .and_then(|endpoint| upstream.pooled(endpoint, true, now));
            let mut connection = match pooled {
                Some(connection) => connection,
                None => upstream.connect((settings, &preference), &mut tried, turn).await.ok()?,
            };
            let is_reused = connection.is_reused();
            upstream.count_attempt(connection.endpoint());
            let stream = &mut connection.socket.stream;
            let answered = async {
                stream.write_all(&self.request).await?;
                stream.flush().await?;
                stream.read_response(Method::Get, &limits).await
            };
            match answered.await {
                Ok((head, bytes)) => {
                    upstream.note_success(connection.endpoint());
                    upstream.note_status(connection.endpoint(), head.status);
                    return self.settle(flight, connection, &head, bytes, now).await;
                }
                Err(_) if is_reused => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Renews, replaces or removes the stored response.
    async fn settle(
        &self,
        flight: Flight,
        connection: Connection,
        head: &ResponseHead,
        mut bytes: Vec<u8>,
        began: Instant,
    ) -> Option<()> {
        let behind = bytes.split_off(head.len);
        let buf = &bytes[..];
        let times = times(&self.worker, began, Instant::now());
        if head.status == 304 && self.revalidates {
            let renewed = renew(flight, &self.asked, &self.request, &self.entry, (head, buf), &times);
            self.leave(connection, head, behind.is_empty());
            self.policy.stats.of(self.worker.id).cache_revalidated.add(1);
            return renewed.map(|_| ());
        }
        let cache = flight.cache().clone();
        if !self.asked.has_credentials && withdraws(head, buf) {
            cache.remove(&self.entry);
        }
        let draft = Draft::of(&self.asked, &self.request, (head, buf), cache.rules(), &times);
        // A failure replaces no response that can still be used.
        let Some(draft) = draft.filter(|draft| !draft.is_failure()) else {
            if head.status < 500 {
                flight.is_of_no_use();
            }
            return (head.status < 500).then_some(());
        };
        let stats = (self.policy.stats.clone(), self.worker.id);
        let mut collector = Collector::new(flight, draft, head.framing, stats)?;
        if let Some(most) = self.policy.source().features.limits.largest_response() {
            collector.limit(most);
        }
        self.collect(connection, head, behind, collector).await
    }

    async fn collect(
        &self,
        mut connection: Connection,
        head: &ResponseHead,
        mut come: Vec<u8>,
        mut collector: Collector,
    ) -> Option<()> {
        let mut left = match head.framing {
            ResponseFraming::None => 0,
            ResponseFraming::Length(length) => length,
            ResponseFraming::Chunked | ResponseFraming::UntilClose => u64::MAX,
        };
        loop {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(come.len());
            let taken = collector.take(&come[..most])?;
            left -= taken as u64;
            come.drain(..taken);
            if left == 0 || collector.is_at_end() {
                break;
            }
            if connection.socket.stream.read_buf(&mut come).await.ok()? == 0 {
                return None;
            }
        }
        collector.complete();
        self.leave(connection, head, come.is_empty());
        Some(())
    }

    fn leave(&self, connection: Connection, head: &ResponseHead, is_clean: bool) {
        if head.keep_alive && is_clean {
            connection.recycle(&self.policy.compiled.settings, Instant::now(), head.keep_alive_timeout);
        }
    }
}
