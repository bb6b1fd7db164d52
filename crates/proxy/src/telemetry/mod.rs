//! The counters of the data plane. Each worker has its own shard of every counter; readers sum the shards.

pub mod access_log;
mod datagram;
mod histogram;
mod tally;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sluicegate_http1::Rejection;
use sluicegate_model::{Config, ContentCoding, ObjectId, Settings, Tls, UpstreamKey};

pub use datagram::DroppedDatagram;
pub use histogram::{BOUNDS_MICROS, Histogram, HistogramTotal};
pub use tally::{Sharded, Tallies, Tally};

pub use crate::trace::{SpanLoss, SpanStats};

use crate::failure::{ClientFault, Denial, Failure, ProxyHeaderFault, TlsFault};
use crate::policy::jwks::Places;
use crate::policy::limit::shared::Servers;
use crate::rule::Table;
use crate::upstream::SharedUpstream;

/// At most this many consumers have separate counters. Further consumers share one set with empty labels.
pub const MAX_CONSUMERS: usize = 2_000;

/// At most this many routes have separate counters. Further routes share one set with empty labels.
pub const MAX_ROUTES: usize = 20_000;

/// All counters, and the current configuration.
#[derive(Debug)]
pub struct Telemetry {
    workers: Sharded<WorkerStats>,
    live: Mutex<Live>,
    /// The time from passing a change to the proxy until its last worker serves it.
    propagation: Mutex<Sharded<Histogram>>,
    /// Shared by the routes beyond [`MAX_ROUTES`].
    overflow: Arc<RouteStats>,
    /// Shared by the consumers beyond [`MAX_CONSUMERS`].
    other_consumers: Arc<ConsumerStats>,
    /// The URLs of published token keys.
    key_places: Places,
    /// The servers that share limits.
    limit_servers: Servers,
    spans: Arc<SpanStats>,
    /// Access log lines that were passed on but not written.
    lost_lines: Arc<AtomicU64>,
}

/// The current configuration, for readers.
#[derive(Debug, Default)]
struct Live {
    config: Option<Arc<Config>>,
    table: Arc<Table>,
    layer4: HashMap<Layer4Labels, Arc<Layer4Stats>>,
    listeners: Vec<ListenerState>,
    upstreams: Arc<[Arc<SharedUpstream>]>,
}

impl Telemetry {
    /// The telemetry of a process without a data plane: all counters are zero.
    #[must_use]
    pub fn of_no_worker() -> Self {
        Self::new(1)
    }

    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: Sharded::new(workers),
            live: Mutex::default(),
            propagation: Mutex::new(Sharded::new(1)),
            overflow: Arc::new(RouteStats::new(workers)),
            other_consumers: Arc::new(Sharded::new(workers)),
            key_places: Places::default(),
            limit_servers: Servers::default(),
            spans: Arc::default(),
            lost_lines: Arc::default(),
        }
    }

    /// The counters of each worker.
    #[must_use]
    pub fn workers(&self) -> &Sharded<WorkerStats> {
        &self.workers
    }

    /// The current configuration with the current endpoints, or `None` before the first. Each call assembles it.
    #[must_use]
    pub fn config(&self) -> Option<Config> {
        let (config, upstreams) = {
            let live = self.live();
            (live.config.clone()?, live.upstreams.clone())
        };
        let upstreams: HashMap<_, _> = upstreams.iter().map(|upstream| (upstream.key(), upstream)).collect();
        let mut config = (*config).clone();
        for (key, upstream) in &mut config.upstreams {
            if let Some(shared) = upstreams.get(key) {
                Arc::make_mut(upstream).endpoints = shared.endpoints().to_model();
            }
        }
        Some(config)
    }

    /// The settings of the current configuration, or `None` before the first.
    #[must_use]
    pub fn settings(&self) -> Option<Settings> {
        Some(self.live().config.as_ref()?.settings.clone())
    }

    /// The current certificates, or `None` before the first configuration.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<Tls>> {
        Some(self.live().config.as_ref()?.tls.clone())
    }

    /// The counters of every route.
    #[must_use]
    pub fn routes(&self) -> Vec<(RouteLabels, Arc<RouteStats>)> {
        let table = self.live().table.clone();
        let all = table.hosts().iter().flat_map(|host| host.stats());
        let mut routes: Vec<_> = all
            .map(|(labels, stats)| match self.is_overflow(stats) {
                true => (RouteLabels::default(), stats.clone()),
                false => (labels, stats.clone()),
            })
            .collect();
        routes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        routes.dedup_by(|a, b| a.0 == b.0);
        routes
    }

    /// The counters of every route below HTTP.
    #[must_use]
    pub fn layer4(&self) -> Vec<(Layer4Labels, Arc<Layer4Stats>)> {
        let mut routes: Vec<_> = self.live().layer4.iter().map(clone_pair).collect();
        routes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        routes
    }

    /// The listeners below HTTP that are configured, and whether they listen.
    #[must_use]
    pub fn listeners(&self) -> Vec<ListenerState> {
        self.live().listeners.clone()
    }

    pub(crate) fn set_listeners(&self, listeners: Vec<ListenerState>) {
        self.live().listeners = listeners;
    }

    pub(crate) fn set_layer4(&self, routes: HashMap<Layer4Labels, Arc<Layer4Stats>>) {
        self.live().layer4 = routes;
    }

    /// Every upstream, sorted by key.
    #[must_use]
    pub fn upstreams(&self) -> Vec<Arc<SharedUpstream>> {
        let mut upstreams: Vec<_> = self.live().upstreams.to_vec();
        upstreams.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        upstreams
    }

    /// How long changes took from the call of the proxy until its last worker served them.
    #[must_use]
    pub fn propagation(&self) -> HistogramTotal {
        let shards = self.propagation.lock().unwrap_or_else(PoisonError::into_inner);
        HistogramTotal::of(&shards, |histogram| histogram)
    }

    pub(crate) fn record_propagation(&self, duration: Duration) {
        self.propagation.lock().unwrap_or_else(PoisonError::into_inner).of(0).record(duration);
    }

    /// Replaces the current configuration.
    pub(crate) fn publish(
        &self,
        config: &Arc<Config>,
        upstreams: Arc<[Arc<SharedUpstream>]>,
        table: Arc<Table>,
    ) {
        let mut live = self.live();
        live.config = Some(config.clone());
        live.upstreams = upstreams;
        live.table = table;
    }

    /// The counters of a new route, after `before` other routes.
    pub(crate) fn new_route(&self, before: usize) -> Arc<RouteStats> {
        if before < MAX_ROUTES {
            Arc::new(RouteStats::new(self.workers.iter().count()))
        } else {
            self.overflow.clone()
        }
    }

    /// The counters of a new consumer, after `before` other consumers.
    pub(crate) fn new_consumer(&self, before: usize) -> Arc<ConsumerStats> {
        match before {
            0..MAX_CONSUMERS => Arc::new(Sharded::new(self.workers.iter().count())),
            _ => self.other_consumers.clone(),
        }
    }

    /// The URLs of published token keys.
    pub(crate) fn key_places(&self) -> &Places {
        &self.key_places
    }

    /// The servers that share limits.
    pub(crate) fn limit_servers(&self) -> &Servers {
        &self.limit_servers
    }

    /// The fate of spans that workers passed on.
    #[must_use]
    pub fn spans(&self) -> &Arc<SpanStats> {
        &self.spans
    }

    /// The fetched keys of each token issuer.
    #[must_use]
    pub fn published_keys(&self) -> Vec<PublishedKeys> {
        let states = self.key_places.states().into_iter();
        states.map(|(url, keys, fetched, failed)| PublishedKeys { url, keys, fetched, failed }).collect()
    }

    /// The counters of a new policy.
    pub(crate) fn new_policy(&self) -> Arc<PolicyStats> {
        Arc::new(Sharded::new(self.workers.iter().count()))
    }

    /// Every policy for security or limits.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicyState> {
        let table = self.live().table.clone();
        let mut policies: Vec<_> = table.policies().states().collect();
        policies.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        policies
    }

    /// Every traffic policy.
    #[must_use]
    pub fn traffic_policies(&self) -> Vec<TrafficState> {
        let table = self.live().table.clone();
        let mut policies: Vec<_> = table.policies().traffic_states().collect();
        policies.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        policies
    }

    /// The counters of a traffic policy, at zero.
    pub(crate) fn new_traffic(&self) -> Arc<TrafficStats> {
        Arc::new(Sharded::new(self.workers.iter().count()))
    }

    /// The counters of every consumer; without a name, the shared counters beyond [`MAX_CONSUMERS`].
    #[must_use]
    pub fn consumers(&self) -> Vec<(Option<ObjectId>, Arc<ConsumerStats>)> {
        let table = self.live().table.clone();
        let all = table.consumers().iter().map(|known| (known.consumer.id.clone(), known.stats.clone()));
        let is_own = |stats: &Arc<ConsumerStats>| !Arc::ptr_eq(stats, &self.other_consumers);
        let (own, others): (Vec<_>, Vec<_>) = all.partition(|(_, stats)| is_own(stats));
        let mut consumers: Vec<_> = own.into_iter().map(|(id, stats)| (Some(id), stats)).collect();
        consumers.extend((!others.is_empty()).then(|| (None, self.other_consumers.clone())));
        consumers
    }

    /// Whether these counters are the shared counters beyond [`MAX_ROUTES`].
    pub(crate) fn is_overflow(&self, stats: &Arc<RouteStats>) -> bool {
        Arc::ptr_eq(stats, &self.overflow)
    }

    fn live(&self) -> std::sync::MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn clone_pair<K: Clone, V: Clone>((key, value): (&K, &V)) -> (K, V) {
    (key.clone(), value.clone())
}

/// The labels of a route's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteLabels {
    /// The object that defines the route; `None` for all routes beyond [`MAX_ROUTES`].
    pub id: Option<ObjectId>,
    /// The host pattern.
    pub host: Box<str>,
    /// The path pattern.
    pub path: Box<str>,
    /// The upstream of the route.
    pub upstream: Option<UpstreamKey>,
}

/// The labels of the counters of a route below HTTP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layer4Labels {
    /// The listener, such as `Gateway default/edge, listener db`; `https` for listeners of the command line.
    pub listener: Box<str>,
    /// `TCP`, `TLS` or `UDP`.
    pub protocol: &'static str,
    /// The host names of the route.
    pub host: Box<str>,
    /// The object that defines the route.
    pub id: ObjectId,
}

/// The state of a listener below HTTP.
#[derive(Clone, Debug)]
pub struct ListenerState {
    /// The name, such as `Gateway default/edge, listener db`.
    pub listener: String,
    /// `TCP`, `TLS` or `UDP`.
    pub protocol: &'static str,
    /// The configured address.
    pub address: SocketAddr,
    /// The actual address, or why the listener does not listen.
    pub bound: Result<SocketAddr, String>,
}

/// The counters of one worker.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Client connections accepted.
    pub accepted: Tally,
    /// Accepted connections that were passed to a less loaded worker.
    pub handed_over: Tally,
    /// Request headers that were dropped because of their names: names with an underscore, `Proxy`, and unknown
    /// forwarding headers of untrusted peers.
    pub headers_dropped: Tally,
    /// Completed TLS handshakes, by [`handshake_index`].
    pub handshakes: Tallies<4>,
    /// Connections that ended before their TLS handshake was complete, by [`TlsFault::index`].
    pub tls_faults: Tallies<{ TlsFault::ALL.len() }>,
    /// Connections that ended before their PROXY header was complete, by [`ProxyHeaderFault::index`].
    pub proxy_header_faults: Tallies<{ ProxyHeaderFault::ALL.len() }>,
    /// Clients that exchange datagrams with an endpoint now.
    pub udp_flows: Tally,
    /// Datagrams that were dropped, by [`DroppedDatagram`].
    pub datagrams_dropped: Tallies<{ DroppedDatagram::ALL.len() }>,
    /// Responses that were compressed, by [`ContentCoding::index`](sluicegate_model::ContentCoding::index).
    pub compressed: [CompressedStats; ContentCoding::ALL.len()],
    /// Responses that are being compressed now.
    pub compressing: Tally,
    /// Responses that were not compressed because the limit of concurrent compressions was reached.
    pub compressions_passed_over: Tally,
    /// Responses that broke off because their encoder failed.
    pub compressions_failed: Tally,
    /// HTTP/2 connections that ended because their clients caused work without making requests.
    pub http2_floods: Tally,
    /// Client connections open now.
    pub open: Tally,
    /// Requests being served now.
    pub in_flight: Tally,
    /// Requests rejected because they violate the protocol, by [`Rejection::index`].
    pub rejections: Tallies<{ Rejection::ALL.len() }>,
    /// Requests that the client or its limits ended, by [`ClientFault::index`].
    pub client_faults: Tallies<{ ClientFault::ALL.len() }>,
    /// Requests that matched no route: 404.
    pub unrouted: Tally,
    /// `accept` failed, for lack of file descriptors for example.
    pub accept_errors: Tally,
    /// Requests without a span although their callers wanted one, because the limit was reached.
    pub spans_over_limit: Tally,
    /// Spans that were dropped because the export was too slow.
    pub spans_queue_full: Tally,
    /// Access log lines dropped because their writer was too slow; [`Telemetry::lost_lines`] counts all lost lines.
    pub log_dropped: Tally,
}

/// The counters of one worker for one coding.
#[derive(Debug, Default)]
pub struct CompressedStats {
    /// Responses.
    pub responses: Tally,
    /// Bytes of bodies before compression.
    pub bytes_in: Tally,
    /// Bytes of bodies after compression, without the chunked coding.
    pub bytes_out: Tally,
}

/// The index of a handshake in [`WorkerStats::handshakes`].
#[must_use]
pub fn handshake_index(is_tls13: bool, is_resumed: bool) -> usize {
    usize::from(is_tls13) * 2 + usize::from(is_resumed)
}

/// The state of a policy for security or limits.
#[derive(Clone, Debug)]
pub struct PolicyState {
    /// The object that defines the policy.
    pub id: ObjectId,
    /// Whether the policy denies all requests, because it cannot be applied.
    pub refuses: bool,
    /// The state of sharing, if the policy's limits are shared.
    pub shared: Option<SharedState>,
    /// The name of each limit, and the number of requests beyond it, including the dry run.
    pub limits: Vec<(Box<str>, u64)>,
    /// The counters of the policy.
    pub stats: Arc<PolicyStats>,
}

/// The state of sharing limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedState {
    /// Whether the limits are shared now; otherwise each data plane counts alone.
    pub is_up: bool,
    /// The number of successful exchanges with the server.
    pub exchanged: u64,
    /// The number of failed exchanges.
    pub failed: u64,
}

/// The published keys of a token issuer.
#[derive(Clone, Debug)]
pub struct PublishedKeys {
    /// The URL of the keys.
    pub url: Box<str>,
    /// The number of known keys.
    pub keys: usize,
    /// The number of fetches.
    pub fetched: u64,
    /// The number of failed fetches.
    pub failed: u64,
}

/// The counters of a policy.
pub type PolicyStats = Sharded<PolicyShard>;

/// A worker's part of [`PolicyStats`].
#[derive(Debug, Default)]
pub struct PolicyShard {
    /// Requests that the policy allowed.
    pub admitted: Tally,
    /// Requests that the policy denied, by [`Denial::index`].
    pub denied: Tallies<{ Denial::COUNT }>,
    /// Preflights that the policy served.
    pub preflights: Tally,
    /// Requests over a limit in a dry run.
    pub dry_runs: Tally,
    /// The results of external authorization, by [`Check`].
    pub checks: Tallies<{ Check::ALL.len() }>,
}

/// The result of external authorization for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The service allowed the request.
    Admitted,
    /// The service denied the request.
    Refused,
    /// The service gave no valid answer.
    Failed,
    /// A remembered answer was used: the service was not asked.
    Remembered,
    /// The same question was in flight: one answer serves both.
    Shared,
}

impl Check {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Admitted, Self::Refused, Self::Failed, Self::Remembered, Self::Shared];

    /// The stable name for metrics.
    #[must_use]
    pub fn result(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Remembered => "remembered",
            Self::Shared => "shared",
        }
    }
}

/// The state of a traffic policy.
#[derive(Clone, Debug)]
pub struct TrafficState {
    /// The object that defines the policy.
    pub id: ObjectId,
    /// The counters of the policy.
    pub stats: Arc<TrafficStats>,
    /// The state of the cache, if the policy caches responses.
    pub cache: Option<CacheState>,
}

/// The state of a policy's cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheState {
    /// The memory in use, in bytes.
    pub bytes: u64,
    /// The number of responses.
    pub entries: u64,
}

/// The counters of a traffic policy.
pub type TrafficStats = Sharded<TrafficShard>;

/// A worker's part of [`TrafficStats`].
#[derive(Debug, Default)]
pub struct TrafficShard {
    /// Requests of the policy's routes.
    pub requests: Tally,
    /// Requests that went to another upstream than the route's.
    pub diverted: Tally,
    /// Requests that the policy served by a redirect or a fixed response.
    pub answered: Tally,
    /// Requests that the policy delayed on purpose.
    pub delayed: Tally,
    /// Requests that the policy aborted on purpose.
    pub aborted: Tally,
    /// Requests that were not retried because the retry budget was used up.
    pub over_budget: Tally,
    /// Copies that were sent.
    pub mirrored: Tally,
    /// Copies that were not sent, or received no response.
    pub mirror_failures: Tally,
    /// Requests that a cached response served without a request to an endpoint.
    pub cache_hits: Tally,
    /// Requests that went to an endpoint because no cached response could serve them.
    pub cache_misses: Tally,
    /// Requests that bypassed the cache.
    pub cache_bypassed: Tally,
    /// Requests that a stale response served because the endpoint failed.
    pub cache_stale: Tally,
    /// Stale responses that endpoints confirmed as still valid.
    pub cache_revalidated: Tally,
    /// Stale responses that were revalidated in the background.
    pub cache_refreshes: Tally,
    /// Revalidations in the background without a response to cache.
    pub cache_refresh_failures: Tally,
    /// Responses that were cached.
    pub cache_stored: Tally,
    /// Responses that were evicted.
    pub cache_evicted: Tally,
}

/// The counters of a consumer.
pub type ConsumerStats = Sharded<ConsumerShard>;

/// A worker's part of [`ConsumerStats`].
#[derive(Debug, Default)]
pub struct ConsumerShard {
    /// Responses, by the first digit of their status minus one.
    pub responses: Tallies<5>,
    /// Requests that did not end properly.
    pub aborted: Tally,
    /// The time from the last byte of requests' heads to the last byte of responses, in microseconds in total.
    pub micros: Tally,
    /// The part of this time from the last attempt to the head of the endpoint's response.
    pub endpoint_micros: Tally,
    /// Bytes of responses, heads included.
    pub bytes_out: Tally,
}

/// The counters of a route.
#[derive(Debug)]
pub struct RouteStats {
    shards: Sharded<RouteShard>,
}

/// A worker's part of [`RouteStats`].
#[derive(Debug, Default)]
pub struct RouteShard {
    /// Responses by the first digit of their status: 1xx (a tunnel) to 5xx.
    pub responses: Tallies<5>,
    /// Requests that ended without a complete response.
    pub aborted: Tally,
    /// The time from the last byte of the request's head to the last byte of the response.
    pub latency: Histogram,
    /// The part of this time from the last attempt to the head of the endpoint's response, in microseconds in total.
    pub endpoint_micros: Tally,
    /// Bytes of responses, heads included.
    pub bytes_out: Tally,
}

impl RouteStats {
    fn new(workers: usize) -> Self {
        Self { shards: Sharded::new(workers) }
    }

    /// The workers' parts.
    #[must_use]
    pub fn shards(&self) -> &Sharded<RouteShard> {
        &self.shards
    }
}

/// The counters of a route below HTTP.
#[derive(Debug)]
pub struct Layer4Stats {
    shards: Sharded<Layer4Shard>,
}

/// A worker's part of [`Layer4Stats`].
#[derive(Debug, Default)]
pub struct Layer4Shard {
    /// Connections, or clients that exchange datagrams.
    pub opened: Tally,
    /// Open connections, or clients that exchange datagrams now.
    pub open: Tally,
    /// Connections that an upstream failed, by [`Failure::index`].
    pub failures: Tallies<{ Failure::COUNT }>,
    /// Bytes from clients.
    pub bytes_in: Tally,
    /// Bytes to clients.
    pub bytes_out: Tally,
}

impl Layer4Stats {
    pub(crate) fn new(workers: usize) -> Self {
        Self { shards: Sharded::new(workers) }
    }

    /// The workers' parts.
    #[must_use]
    pub fn shards(&self) -> &Sharded<Layer4Shard> {
        &self.shards
    }
}

/// A worker's part of the counters of an upstream.
#[derive(Debug, Default)]
pub struct UpstreamShard {
    /// Requests in flight.
    pub in_flight: Tally,
    /// Attempts: requests written to an endpoint, retries included.
    pub attempts: Tally,
    /// Attempts that used a connection of the pool.
    pub reused: Tally,
    /// Connections made.
    pub connects: Tally,
    /// Connects that failed, by [`Failure::index`].
    pub connect_failures: Tallies<{ Failure::COUNT }>,
    /// Connects that started because an earlier connect was slow.
    pub hedges: Tally,
    /// Attempts that failed and were repeated, by [`Failure::index`].
    pub retries: Tallies<{ Failure::COUNT }>,
    /// Requests that failed finally, by [`Failure::index`].
    pub failures: Tallies<{ Failure::COUNT }>,
    /// Requests that failed although another endpoint might have served them, because they may have been
    /// processed and are not idempotent (RFC 9110, 9.2.2).
    pub not_repeated: Tally,
    /// Endpoints that became unhealthy.
    pub ejections: Tally,
    /// Endpoints that became healthy again.
    pub readmissions: Tally,
    /// Health checks.
    pub checks: Tally,
    /// Failed health checks.
    pub checks_failed: Tally,
    /// Idle connections that were closed because the endpoint closed them.
    pub pool_closed: Tally,
    /// The time from sending the request to the head of its response.
    pub latency: Histogram,
}

/// A worker's part of the counters of an endpoint.
#[derive(Debug, Default)]
pub struct EndpointShard {
    /// Requests in flight.
    pub in_flight: Tally,
    /// Attempts.
    pub attempts: Tally,
    /// Attempts that failed.
    pub failures: Tally,
    /// Idle connections.
    pub idle: Tally,
    /// The worker's estimate of the response time, in microseconds.
    pub ewma_micros: Tally,
}
