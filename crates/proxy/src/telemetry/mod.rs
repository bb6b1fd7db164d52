//! What the data plane counts. Each worker has its own shard of every counter; readers sum them up.

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
use sluicegate_model::{Config, ContentCoding, RouteId, Settings, Tls, UpstreamKey};

pub use datagram::DroppedDatagram;
pub use histogram::{BOUNDS_MICROS, Histogram, HistogramTotal};
pub use tally::{Sharded, Tallies, Tally};

pub use crate::trace::{SpanLoss, SpanStats};

use crate::failure::{ClientFault, Denial, Failure, ProxyHeaderFault, TlsFault};
use crate::policy::jwks::Places;
use crate::policy::limit::shared::Servers;
use crate::rule::Table;
use crate::upstream::SharedUpstream;

/// At most this many consumers have counters of their own; those after it share one set, whose labels are empty.
pub const MAX_CONSUMERS: usize = 2_000;

/// At most this many routes have counters of their own; those after it share one set, whose labels are empty.
pub const MAX_ROUTES: usize = 20_000;

/// Everything that is counted, and what is served now.
#[derive(Debug)]
pub struct Telemetry {
    workers: Sharded<WorkerStats>,
    live: Mutex<Live>,
    /// From a change being given to the proxy until its last worker serves it.
    propagation: Mutex<Sharded<Histogram>>,
    /// Shared by the routes beyond [`MAX_ROUTES`].
    overflow: Arc<RouteStats>,
    /// Shared by the consumers beyond [`MAX_CONSUMERS`].
    other_consumers: Arc<ConsumerStats>,
    /// Where issuers of tokens publish their keys.
    key_places: Places,
    /// Through what limits are shared.
    limit_servers: Servers,
    spans: Arc<SpanStats>,
    /// Access log lines that were passed on, and not written.
    lost_lines: Arc<AtomicU64>,
}

/// What is served now, for readers.
#[derive(Debug, Default)]
struct Live {
    config: Option<Arc<Config>>,
    table: Arc<Table>,
    layer4: HashMap<Layer4Labels, Arc<Layer4Stats>>,
    listeners: Vec<ListenerState>,
    upstreams: Arc<[Arc<SharedUpstream>]>,
}

impl Telemetry {
    /// What a process without a data plane counts: nothing.
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

    /// The configuration that is served, with the endpoints of this moment, or `None` before the first. It is
    /// put together for each call.
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

    /// The settings of the configuration that is served, or `None` before the first.
    #[must_use]
    pub fn settings(&self) -> Option<Settings> {
        Some(self.live().config.as_ref()?.settings.clone())
    }

    /// The certificates that are served, or `None` before the first configuration.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<Tls>> {
        Some(self.live().config.as_ref()?.tls.clone())
    }

    /// The counters of every route that is served.
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

    /// The counters of every route below HTTP that is served.
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

    /// Every upstream that is served, in the order of their keys.
    #[must_use]
    pub fn upstreams(&self) -> Vec<Arc<SharedUpstream>> {
        let mut upstreams: Vec<_> = self.live().upstreams.to_vec();
        upstreams.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        upstreams
    }

    /// How long changes took from being given to the proxy until its last worker served them.
    #[must_use]
    pub fn propagation(&self) -> HistogramTotal {
        let shards = self.propagation.lock().unwrap_or_else(PoisonError::into_inner);
        HistogramTotal::of(&shards, |histogram| histogram)
    }

    pub(crate) fn record_propagation(&self, duration: Duration) {
        self.propagation.lock().unwrap_or_else(PoisonError::into_inner).of(0).record(duration);
    }

    /// Replaces what is served.
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

    /// The counters of a new route, with so many before it.
    pub(crate) fn new_route(&self, before: usize) -> Arc<RouteStats> {
        if before < MAX_ROUTES {
            Arc::new(RouteStats::new(self.workers.iter().count()))
        } else {
            self.overflow.clone()
        }
    }

    /// The counters of a new consumer, with so many before it.
    pub(crate) fn new_consumer(&self, before: usize) -> Arc<ConsumerStats> {
        match before {
            0..MAX_CONSUMERS => Arc::new(Sharded::new(self.workers.iter().count())),
            _ => self.other_consumers.clone(),
        }
    }

    /// Where issuers of tokens publish their keys.
    pub(crate) fn key_places(&self) -> &Places {
        &self.key_places
    }

    /// Through what limits are shared.
    pub(crate) fn limit_servers(&self) -> &Servers {
        &self.limit_servers
    }

    /// What became of the spans that workers passed on.
    #[must_use]
    pub fn spans(&self) -> &Arc<SpanStats> {
        &self.spans
    }

    /// The keys of each issuer of tokens that are fetched.
    #[must_use]
    pub fn published_keys(&self) -> Vec<PublishedKeys> {
        let states = self.key_places.states().into_iter();
        states.map(|(url, keys, fetched, failed)| PublishedKeys { url, keys, fetched, failed }).collect()
    }

    /// The counters of a new policy.
    pub(crate) fn new_policy(&self) -> Arc<PolicyStats> {
        Arc::new(Sharded::new(self.workers.iter().count()))
    }

    /// Every policy that guards a route.
    #[must_use]
    pub fn policies(&self) -> Vec<PolicyState> {
        let table = self.live().table.clone();
        let mut policies: Vec<_> = table.policies().states().collect();
        policies.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        policies
    }

    /// Every policy that says how requests of a route go on.
    #[must_use]
    pub fn traffic_policies(&self) -> Vec<TrafficState> {
        let table = self.live().table.clone();
        let mut policies: Vec<_> = table.policies().traffic_states().collect();
        policies.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        policies
    }

    /// Counters of a policy for traffic, at zero.
    pub(crate) fn new_traffic(&self) -> Arc<TrafficStats> {
        Arc::new(Sharded::new(self.workers.iter().count()))
    }

    /// The counters of every consumer; without a name, those of all beyond [`MAX_CONSUMERS`].
    #[must_use]
    pub fn consumers(&self) -> Vec<(Option<RouteId>, Arc<ConsumerStats>)> {
        let table = self.live().table.clone();
        let all = table.consumers().iter().map(|known| (known.consumer.id.clone(), known.stats.clone()));
        let is_own = |stats: &Arc<ConsumerStats>| !Arc::ptr_eq(stats, &self.other_consumers);
        let (own, others): (Vec<_>, Vec<_>) = all.partition(|(_, stats)| is_own(stats));
        let mut consumers: Vec<_> = own.into_iter().map(|(id, stats)| (Some(id), stats)).collect();
        consumers.extend((!others.is_empty()).then(|| (None, self.other_consumers.clone())));
        consumers
    }

    /// Whether these counters are those that routes beyond [`MAX_ROUTES`] share.
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

/// What tells the counters of one route from another's.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteLabels {
    /// The object that the route was written in; `None` for all routes beyond [`MAX_ROUTES`].
    pub id: Option<RouteId>,
    /// Its host pattern.
    pub host: Box<str>,
    /// Its path pattern.
    pub path: Box<str>,
    /// The upstream it goes to.
    pub upstream: Option<UpstreamKey>,
}

/// What tells the counters of one route below HTTP from another's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layer4Labels {
    /// The listener, such as `Gateway default/edge, listener db`; `https` for those that are given by the command line.
    pub listener: Box<str>,
    /// `TCP`, `TLS` or `UDP`.
    pub protocol: &'static str,
    /// The names that it is for.
    pub host: Box<str>,
    /// The object that the route was written in.
    pub id: RouteId,
}

/// A listener below HTTP at one moment.
#[derive(Clone, Debug)]
pub struct ListenerState {
    /// Which one, such as `Gateway default/edge, listener db`.
    pub listener: String,
    /// `TCP`, `TLS` or `UDP`.
    pub protocol: &'static str,
    /// Where it is configured to listen.
    pub address: SocketAddr,
    /// Where it listens, or why it does not.
    pub bound: Result<SocketAddr, String>,
}

/// What one worker counts for itself.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Client connections accepted.
    pub accepted: Tally,
    /// Accepted connections that were handed to a less loaded worker.
    pub handed_over: Tally,
    /// Request headers that were dropped because of their names: with an underscore, `Proxy`, and forwarding
    /// headers without a name here, from strangers.
    pub headers_dropped: Tally,
    /// TLS handshakes that came to their end, by [`handshake_index`].
    pub handshakes: Tallies<4>,
    /// Connections that ended before their TLS handshake did, by [`TlsFault::index`].
    pub tls_faults: Tallies<{ TlsFault::ALL.len() }>,
    /// Connections that ended before their PROXY header did, by [`ProxyHeaderFault::index`].
    pub proxy_header_faults: Tallies<{ ProxyHeaderFault::ALL.len() }>,
    /// Clients that exchange datagrams with an endpoint now.
    pub udp_flows: Tally,
    /// Datagrams that were dropped, by [`DroppedDatagram`].
    pub datagrams_dropped: Tallies<{ DroppedDatagram::ALL.len() }>,
    /// Responses that were compressed, by [`ContentCoding::index`](sluicegate_model::ContentCoding::index).
    pub compressed: [CompressedStats; ContentCoding::ALL.len()],
    /// Responses that are being compressed now.
    pub compressing: Tally,
    /// Responses that were not compressed because as many as are allowed were being compressed.
    pub compressions_passed_over: Tally,
    /// Responses that broke off because their encoder failed.
    pub compressions_failed: Tally,
    /// HTTP/2 connections that were ended because their clients made work without asking for anything.
    pub http2_floods: Tally,
    /// Client connections open now.
    pub open: Tally,
    /// Requests being served now.
    pub in_flight: Tally,
    /// Requests refused because they break the protocol, by [`Rejection::index`].
    pub rejections: Tallies<{ Rejection::ALL.len() }>,
    /// Requests that the client or its limits ended, by [`ClientFault::index`].
    pub client_faults: Tallies<{ ClientFault::ALL.len() }>,
    /// Requests that took part in no route: 404.
    pub unrouted: Tally,
    /// `accept` failed, for lack of file descriptors for example.
    pub accept_errors: Tally,
    /// Requests that have no span although their callers wanted one, since too many of them did.
    pub spans_over_limit: Tally,
    /// Spans that were dropped because they could not be sent as fast as they came.
    pub spans_queue_full: Tally,
    /// Access log lines dropped because their writer did not keep up; [`Telemetry::lost_lines`] has all that are lost.
    pub log_dropped: Tally,
}

/// What one worker counts of one coding.
#[derive(Debug, Default)]
pub struct CompressedStats {
    /// Responses.
    pub responses: Tally,
    /// Bytes of bodies before, as they came.
    pub bytes_in: Tally,
    /// Bytes of bodies after, without the chunked coding.
    pub bytes_out: Tally,
}

/// Which of [`WorkerStats::handshakes`] counts a handshake.
#[must_use]
pub fn handshake_index(is_tls13: bool, is_resumed: bool) -> usize {
    usize::from(is_tls13) * 2 + usize::from(is_resumed)
}

/// A policy that guards a route.
#[derive(Clone, Debug)]
pub struct PolicyState {
    /// The object that it was written in.
    pub id: RouteId,
    /// Whether it lets nobody in, because it cannot be honoured.
    pub refuses: bool,
    /// How it stands with sharing, for a policy whose limits are shared.
    pub shared: Option<SharedState>,
    /// For each limit its name, and how many requests were beyond it, tried out or not.
    pub limits: Vec<(Box<str>, u64)>,
    /// What is counted of it.
    pub stats: Arc<PolicyStats>,
}

/// How it stands with sharing limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedState {
    /// Whether they are shared now; each data plane counts for itself otherwise.
    pub is_up: bool,
    /// How often something was told to others and learnt from them.
    pub exchanged: u64,
    /// How often that failed.
    pub failed: u64,
}

/// The keys that an issuer of tokens publishes.
#[derive(Clone, Debug)]
pub struct PublishedKeys {
    /// Where.
    pub url: Box<str>,
    /// How many are known.
    pub keys: usize,
    /// How often they were fetched.
    pub fetched: u64,
    /// How often that failed.
    pub failed: u64,
}

/// What is counted for each policy.
pub type PolicyStats = Sharded<PolicyShard>;

/// A worker's part of [`PolicyStats`].
#[derive(Debug, Default)]
pub struct PolicyShard {
    /// Requests that the policy let in.
    pub admitted: Tally,
    /// Requests that it turned away, by [`Denial::index`].
    pub denied: Tallies<{ Denial::COUNT }>,
    /// Preflights of browsers that it answered.
    pub preflights: Tally,
    /// Requests over a limit that is only tried out.
    pub dry_runs: Tally,
    /// What came of asking an HTTP service, by [`Check`].
    pub checks: Tallies<{ Check::ALL.len() }>,
}

/// What came of asking an HTTP service about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// It let the request in.
    Admitted,
    /// It refused the request.
    Refused,
    /// It gave no answer, or none that means anything.
    Failed,
    /// Its answer was remembered: it was not asked.
    Remembered,
    /// The same was being asked: one answer is for both.
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

/// A policy that says how requests go on.
#[derive(Clone, Debug)]
pub struct TrafficState {
    /// The object that it was written in.
    pub id: RouteId,
    /// What is counted of it.
    pub stats: Arc<TrafficStats>,
    /// What it keeps, if it keeps responses.
    pub cache: Option<CacheState>,
}

/// What a policy keeps.
#[derive(Clone, Copy, Debug)]
pub struct CacheState {
    /// The bytes that it takes.
    pub bytes: u64,
    /// The number of responses.
    pub entries: u64,
}

/// What is counted for each policy that says how requests go on.
pub type TrafficStats = Sharded<TrafficShard>;

/// A worker's part of [`TrafficStats`].
#[derive(Debug, Default)]
pub struct TrafficShard {
    /// Requests of its routes.
    pub requests: Tally,
    /// Requests that went to another upstream than the route's.
    pub diverted: Tally,
    /// Requests that it answered by a redirect or an answer of its own.
    pub answered: Tally,
    /// Requests that it kept waiting on purpose.
    pub delayed: Tally,
    /// Requests that it let fail on purpose.
    pub aborted: Tally,
    /// Requests that were not sent once more since its budget was used up.
    pub over_budget: Tally,
    /// Copies that were sent.
    pub mirrored: Tally,
    /// Copies that were not sent, or got no response.
    pub mirror_failures: Tally,
    /// Requests that were answered by a response that was kept, without asking for themselves.
    pub cache_hits: Tally,
    /// Requests that an endpoint was asked for, since nothing was kept that answers them as it is.
    pub cache_misses: Tally,
    /// Requests that have nothing to do with what is kept.
    pub cache_bypassed: Tally,
    /// Requests that were answered by a stale response since the endpoint has failed.
    pub cache_stale: Tally,
    /// Stale responses of which endpoints have said that they still hold.
    pub cache_revalidated: Tally,
    /// Stale responses that were revalidated in the background.
    pub cache_refreshes: Tally,
    /// Revalidations in the background that brought no response to be kept.
    pub cache_refresh_failures: Tally,
    /// Responses that were kept.
    pub cache_stored: Tally,
    /// Responses that were thrown out to make room.
    pub cache_evicted: Tally,
}

/// What is counted for each consumer.
pub type ConsumerStats = Sharded<ConsumerShard>;

/// A worker's part of [`ConsumerStats`].
#[derive(Debug, Default)]
pub struct ConsumerShard {
    /// Responses, by the first digit of their status less one.
    pub responses: Tallies<5>,
    /// Requests that did not come to their proper end.
    pub aborted: Tally,
    /// From the last byte of requests' heads to the last byte of responses, in microseconds in all.
    pub micros: Tally,
    /// Of this, from the last attempt to the head of the endpoint's response.
    pub endpoint_micros: Tally,
    /// Bytes of responses, heads included.
    pub bytes_out: Tally,
}

/// What is counted for each route.
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
    /// From the last byte of the request's head to the last byte of the response.
    pub latency: Histogram,
    /// Of this, from the last attempt to the head of the endpoint's response, in microseconds in all.
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

/// What is counted for each route below HTTP.
#[derive(Debug)]
pub struct Layer4Stats {
    shards: Sharded<Layer4Shard>,
}

/// A worker's part of [`Layer4Stats`].
#[derive(Debug, Default)]
pub struct Layer4Shard {
    /// Connections, or clients that exchange datagrams.
    pub opened: Tally,
    /// Those of them that are open.
    pub open: Tally,
    /// Those that an upstream failed, by [`Failure::index`].
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

/// A worker's part of what is counted for each upstream.
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
    /// Connects raced because the first did not answer soon.
    pub hedges: Tally,
    /// Attempts that failed and were repeated, by [`Failure::index`].
    pub retries: Tallies<{ Failure::COUNT }>,
    /// Requests that failed for good, by [`Failure::index`].
    pub failures: Tallies<{ Failure::COUNT }>,
    /// Requests that failed although another endpoint might have served them, because they may have been
    /// processed and are not idempotent (RFC 9110, 9.2.2).
    pub not_repeated: Tally,
    /// Endpoints that came under suspicion.
    pub ejections: Tally,
    /// Endpoints that were readmitted.
    pub readmissions: Tally,
    /// Health checks.
    pub checks: Tally,
    /// Those that were answered badly.
    pub checks_failed: Tally,
    /// Unused connections that were closed because the endpoint closed them.
    pub pool_closed: Tally,
    /// From the request being written to the head of its response.
    pub latency: Histogram,
}

/// A worker's part of what is counted for each endpoint.
#[derive(Debug, Default)]
pub struct EndpointShard {
    /// Requests in flight.
    pub in_flight: Tally,
    /// Attempts.
    pub attempts: Tally,
    /// Attempts that failed.
    pub failures: Tally,
    /// Unused connections kept.
    pub idle: Tally,
    /// The worker's estimate of the response time, in microseconds.
    pub ewma_micros: Tally,
}
