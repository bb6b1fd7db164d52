//! How fast a client sends a request's body.
//!
//! Only time in which the gateway waits for the client counts. Each byte earns the time that it may take at the minimum
//! rate. So an upload may pause as long as its speed has earned.

use std::rc::Rc;
use std::task::Context;
use std::time::Duration;

use sluicegate_http1::Known;
use tokio::time::Instant;

use super::exchange::Exchange;
use crate::deadline::after;
use crate::failure::ClientFault;
use crate::feature::compression::is_grpc;
use crate::stream::Stream;
use crate::upstream::{LocalEndpoint, Stalled};

/// How far an upload is behind the minimum rate when it is stalled.
const STALLED: Duration = Duration::from_secs(1);

/// An upload for which the gateway had to wait.
pub(super) struct Paced {
    pace: Pace,
    /// The entry of a stalled upload at its endpoint.
    stalled: Option<Stalled>,
    /// When the upload ends, at any speed.
    over: Option<Instant>,
}

impl Paced {
    /// Whether the upload must end in favour of other requests.
    pub(super) fn is_ended(&self) -> bool {
        self.stalled.as_ref().is_some_and(Stalled::is_ended)
    }

    /// The time of the next check.
    pub(super) fn next(&self) -> Option<Instant> {
        let stalled_at = self.pace.stalled_at().filter(|_| self.stalled.is_none());
        [self.pace.too_slow_at(), stalled_at, self.over].into_iter().flatten().min()
    }
}

impl Exchange<'_> {
    /// Records that the upload waits for the client, or else for the endpoint.
    pub(super) fn record_upload_wait(
        &self,
        paced: &mut Option<Paced>,
        awaits_client: bool,
        now: Instant,
        endpoint: &Stream,
    ) {
        let (_, received) = self.upload.position();
        if paced.is_none() {
            let settings = self.settings();
            let has_total = !settings.timeouts.request_body_total.is_zero();
            if !awaits_client && !has_total || self.is_stream_of_messages(endpoint) {
                return;
            }
            let timeouts = &settings.timeouts;
            let (grace, most) = (timeouts.request_body_grace, timeouts.request_body);
            let pace = Pace::new(settings.limits.request_body_rate, grace, most, received);
            *paced = Some(Paced { pace, stalled: None, over: self.upload_ends(endpoint) });
        }
        let Some(paced) = paced else { return };
        match awaits_client {
            true => paced.pace.await_client(now, received),
            false => paced.pace.await_endpoint(now, received),
        }
        if paced.pace.stalled_at().is_none_or(|at| now < at) {
            paced.stalled = None;
        }
    }

    /// Ends an upload whose client is too slow, or whose connection other requests need.
    pub(super) fn enforce_upload_rate(
        &self,
        cx: &Context<'_>,
        paced: &mut Paced,
        now: Instant,
        endpoint: &Rc<LocalEndpoint>,
    ) -> Result<(), ClientFault> {
        let limits = &self.settings().limits;
        if paced.over.is_some_and(|over| now >= over) {
            return Err(ClientFault::BodyTotalTimeout);
        }
        if self.client.wire.is_window_exhausted(limits) {
            paced.pace.skip_blocked_time(now);
            paced.stalled = None;
            return Ok(());
        }
        if paced.pace.too_slow_at().is_some_and(|at| now >= at) {
            return Err(ClientFault::BodyTooSlow);
        }
        let most = limits.stalled_uploads_per_endpoint;
        if most > 0 && paced.pace.stalled_at().is_some_and(|at| now >= at) {
            let stalled = paced.stalled.get_or_insert_with(|| Stalled::new(endpoint, cx.waker()));
            stalled.wake_by(cx.waker());
            stalled.enforce(most);
        }
        if paced.is_ended() { Err(ClientFault::UploadStalled) } else { Ok(()) }
    }

    /// When an upload to this endpoint ends, at any speed.
    pub(super) fn upload_ends(&self, endpoint: &Stream) -> Option<Instant> {
        let total = self.settings().timeouts.request_body_total;
        let ends = !total.is_zero() && !self.is_stream_of_messages(endpoint);
        ends.then(|| after(self.record.started, total))
    }

    /// Whether the request is a gRPC call, whose client may be silent for hours. The content type alone is not enough:
    /// the client and the endpoint must both use HTTP/2, where a call takes only a stream, not a connection.
    fn is_stream_of_messages(&self, endpoint: &Stream) -> bool {
        let (head, buf) = (&self.scratch.head, self.scratch.input.filled());
        self.client.has_streams()
            && endpoint.is_shared()
            && head.header(buf, Known::ContentType).is_some_and(is_grpc)
    }
}

/// The account of one upload.
#[derive(Debug)]
pub(super) struct Pace {
    /// The minimum rate in bytes a second; 0: no minimum.
    rate: u64,
    /// How long the gateway may still wait for the client.
    left: Duration,
    /// The maximum of [`left`](Self::left).
    most: Duration,
    /// How long the gateway waited for the client, minus the time that later bytes earned.
    lag: Duration,
    /// The number of bytes that are accounted for.
    received: u64,
    /// When the current wait for the client began.
    since: Option<Instant>,
}

impl Pace {
    /// `grace`: how long the client may be behind. `most`: the longest pause that its bytes can earn.
    pub(super) fn new(rate: u64, grace: Duration, most: Duration, received: u64) -> Self {
        Self { rate, left: grace, most: most.max(grace), lag: Duration::ZERO, received, since: None }
    }

    /// From now on the gateway waits for the client, which has sent `received` bytes.
    pub(super) fn await_client(&mut self, now: Instant, received: u64) {
        self.settle(now, received);
        self.since = Some(now);
    }

    /// From now on the gateway waits for the endpoint: the client may be ready to send.
    fn await_endpoint(&mut self, now: Instant, received: u64) {
        self.settle(now, received);
        self.since = None;
    }

    /// The client could not send since the last check.
    pub(super) fn skip_blocked_time(&mut self, now: Instant) {
        self.since = self.since.map(|_| now);
    }

    fn settle(&mut self, now: Instant, received: u64) {
        if let Some(since) = self.since {
            let waited = now.saturating_duration_since(since);
            self.left = self.left.saturating_sub(waited);
            self.lag = self.lag.saturating_add(waited);
        }
        let bytes = received.saturating_sub(self.received);
        self.received = self.received.max(received);
        // Without a minimum rate, any number of bytes earns the full time.
        let earned = match self.rate {
            0 if bytes > 0 => Duration::MAX,
            0 => Duration::ZERO,
            rate => Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate),
        };
        self.left = self.left.saturating_add(earned).min(self.most);
        self.lag = self.lag.saturating_sub(earned);
    }

    /// When the client is too slow, if no bytes arrive until then.
    pub(super) fn too_slow_at(&self) -> Option<Instant> {
        self.since.filter(|_| self.rate > 0).and_then(|since| since.checked_add(self.left))
    }

    /// When the upload is stalled, if no bytes arrive until then.
    fn stalled_at(&self) -> Option<Instant> {
        self.since.and_then(|since| since.checked_add(STALLED.saturating_sub(self.lag)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);
    const MOST: Duration = Duration::from_secs(60);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The time after which the gateway ends an upload that sends `bytes` bytes per `interval`.
    fn ends_after(rate: u64, bytes: u64, interval: Duration) -> Option<Duration> {
        let start = Instant::now();
        let mut pace = Pace::new(rate, GRACE, MOST, 0);
        let (mut now, mut received) = (start, 0);
        for _ in 0..10_000 {
            pace.await_client(now, received);
            now += interval;
            if let Some(end) = pace.too_slow_at().filter(|end| *end < now) {
                return Some(end - start);
            }
            received += bytes;
        }
        None
    }

    #[test]
    fn upload_below_the_minimum_rate_times_out_after_the_grace_period() {
        assert_eq!(ends_after(240, 0, ms(10_000)), Some(GRACE));
        let dripping = ends_after(240, 1, ms(1000)).expect("an end");
        assert!(dripping < GRACE + ms(50), "{dripping:?}");
        assert!(ends_after(240, 239, ms(1000)).is_some());
    }

    #[test]
    fn upload_at_the_minimum_rate_never_times_out() {
        assert_eq!(ends_after(240, 240, ms(1000)), None);
        assert_eq!(ends_after(240, 1, ms(4)), None);
        assert_eq!(ends_after(240, 960, ms(4000)), None, "in bursts");
        assert_eq!(ends_after(0, 0, ms(1_000_000)), None, "without a rate");
    }

    #[test]
    fn received_bytes_extend_the_upload_deadline_up_to_the_maximum() {
        let start = Instant::now();
        let mut pace = Pace::new(240, GRACE, MOST, 0);
        pace.await_client(start, 0);
        pace.await_client(start, 2400);
        assert_eq!(pace.too_slow_at(), Some(start + GRACE + ms(10_000)));
        pace.await_client(start, 1 << 30);
        assert_eq!(pace.too_slow_at(), Some(start + MOST));
    }

    #[test]
    fn upload_rate_excludes_the_time_spent_waiting_for_the_endpoint() {
        let start = Instant::now();
        let mut pace = Pace::new(240, GRACE, MOST, 0);
        pace.await_client(start, 0);
        pace.await_endpoint(start + ms(1000), 0);
        assert_eq!((pace.too_slow_at(), pace.stalled_at()), (None, None));
        let later = start + ms(100_000);
        pace.await_client(later, 0);
        assert_eq!(pace.too_slow_at(), Some(later + GRACE - ms(1000)));
        pace.skip_blocked_time(later + ms(3000));
        assert_eq!(pace.too_slow_at(), Some(later + GRACE + ms(2000)));
    }

    #[test]
    fn upload_counts_as_stalled_by_its_rate_rather_than_its_last_byte() {
        let start = Instant::now();
        let mut pace = Pace::new(240, GRACE, MOST, 0);
        pace.await_client(start, 0);
        assert_eq!(pace.stalled_at(), Some(start + STALLED));
        pace.await_client(start + ms(900), 24);
        assert_eq!(pace.stalled_at(), Some(start + ms(900) + ms(200)), "24 bytes are 100 ms");
        pace.await_client(start + ms(1000), 24_000);
        assert_eq!(pace.stalled_at(), Some(start + ms(1000) + STALLED));
        let mut pace = Pace::new(0, GRACE, MOST, 0);
        pace.await_client(start, 0);
        pace.await_client(start + ms(900), 1);
        assert_eq!(pace.stalled_at(), Some(start + ms(900) + STALLED), "without a rate each byte counts");
    }
}
