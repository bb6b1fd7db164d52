//! Every limit of the data plane, with its default.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use crate::compression::Compression;
use crate::encoding::bound::{FlowWindow, HeaderLines, PercentOrZero};
use crate::encoding::{Adapt as _, List, OrDefault, Parsed, Time, Within};
use crate::tls::TlsSettings;
use crate::tracing::Tracing;

/// Limits and policies of the data plane. A change takes effect for the next request, without a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Settings {
    /// Time limits.
    #[cbor(n(0), with = "OrDefault")]
    pub timeouts: Timeouts,
    /// Size limits.
    #[cbor(n(1), with = "OrDefault")]
    pub limits: Limits,
    /// What is done when an endpoint fails.
    #[cbor(n(2), with = "OrDefault")]
    pub resilience: Resilience,
    /// Peers whose forwarding headers (`X-Forwarded-*`, `X-Real-IP`, `X-Request-ID`) are believed. From all
    /// others they are dropped. Default: none.
    #[cbor(n(3), with = "List::<Parsed>")]
    pub trusted_peers: Vec<IpNet>,
    /// Peers that say by the PROXY protocol whom they speak for, as load balancers do. Their connections have to begin
    /// with its header, version 1 or 2, at every listener but those for UDP; from all others it is not understood.
    /// Default: none.
    #[cbor(n(4), with = "List::<Parsed>")]
    pub proxy_protocol_peers: Vec<IpNet>,
    /// Whether request headers with an underscore in their name are passed on. They are dropped otherwise,
    /// because many back ends take `X_Forwarded_For` for `X-Forwarded-For`. Default: false (nginx
    /// `underscores_in_headers`, ingress-nginx `enable-underscores-in-headers`).
    #[n(5)]
    pub underscores_in_headers: bool,
    /// Whether paths pass in which an endpoint may find a dot segment that this gateway does not see: behind one round of
    /// decoding (`/x/..%2Fadmin`, `%5C` included) or in front of a parameter (`/x/..;/admin`). They are answered 400
    /// otherwise. Policies that name paths reject them in any case. Default: false.
    #[n(6)]
    pub allow_encoded_dot_segments: bool,
    /// Whether request targets pass that have bytes above 0x7F, in UTF-8. They are percent-encoded in the path, and passed
    /// on as they are in the query. Such targets are answered 400 otherwise. Default: false.
    #[n(7)]
    pub allow_non_ascii_targets: bool,
    /// How TLS is spoken with clients.
    #[cbor(n(8), with = "OrDefault")]
    pub tls: TlsSettings,
    /// How responses are compressed.
    #[cbor(n(9), with = "OrDefault")]
    pub compression: Compression,
    /// How requests are traced. Default: not at all, and trace headers are passed on as they come.
    #[n(10)]
    pub tracing: Option<Tracing>,
}

impl Settings {
    /// Whether a peer says by the PROXY protocol whom it speaks for.
    #[must_use]
    pub fn is_proxy(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.proxy_protocol_peers.iter().any(|network| network.contains(&peer))
    }
}

/// Time limits.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Timeouts {
    /// From the connection to the end of the TLS handshake: the connection is closed after it. Default 10 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(0), with = "Time")]
    pub tls_handshake: Duration,
    /// From a connection of one of [`proxy_protocol_peers`](Settings::proxy_protocol_peers) to the end of its PROXY
    /// header: the connection is closed after it. Default 5 s (ingress-nginx `proxy-protocol-header-timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(1), with = "Time")]
    pub proxy_protocol: Duration,
    /// From the first byte of a request's head to its last: 408 after it. Default 60 s (nginx
    /// `client_header_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(2), with = "Time")]
    pub request_head: Duration,
    /// Between two reads of a request's body: 408 after it. Default 60 s (nginx `client_body_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(3), with = "Time")]
    pub request_body: Duration,
    /// How long the client of a request may fall behind [`Limits::request_body_rate`] before its body ends with 408. Default
    /// 5 s (Kestrel `MinRequestBodyDataRate.GracePeriod`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(4), with = "Time")]
    pub request_body_grace: Duration,
    /// From a request's head to the end of its body: 408 after it. gRPC calls to HTTP/2 endpoints are exempt. Zero: no
    /// limit. Default zero, because the time of a large upload depends on its size.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(5), with = "Time")]
    pub request_body_total: Duration,
    /// How long a kept-alive client connection may wait for its next request. Default 75 s (nginx
    /// `keepalive_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(6), with = "Time")]
    pub client_idle: Duration,
    /// Between two writes to a client that does not read: the connection is closed after it. Default 60 s
    /// (nginx `send_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(7), with = "Time")]
    pub client_write: Duration,
    /// For one connect to one endpoint. A slow connect is raced long before this, see
    /// [`Resilience::connect_hedge`]. Default 5 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(8), with = "Time")]
    pub connect: Duration,
    /// From the end of the request to the head of its response: 504 after it. Default 60 s (nginx
    /// `proxy_read_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(9), with = "Time")]
    pub response_head: Duration,
    /// Between two reads of a response's body, and between two writes of a request's body to an endpoint.
    /// Default 60 s (nginx `proxy_read_timeout`, `proxy_send_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(10), with = "Time")]
    pub upstream_idle: Duration,
    /// How long an unused connection to an endpoint is kept. An endpoint that announces a shorter
    /// `Keep-Alive: timeout` is believed. Default 60 s (nginx upstream `keepalive_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(11), with = "Time")]
    pub pool_idle: Duration,
    /// How long a tunnel (an upgraded connection, or one below HTTP) may be silent. Default 1 h.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(12), with = "Time")]
    pub tunnel_idle: Duration,
    /// How long a client and an endpoint that exchange datagrams may be silent before they are forgotten. Default
    /// 60 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(13), with = "Time")]
    pub udp_idle: Duration,
    /// How long requests and tunnels may go on at an endpoint that was removed. Default 240 s (ingress-nginx
    /// `worker-shutdown-timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(14), with = "Time")]
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tls_handshake: Duration::from_secs(10),
            proxy_protocol: Duration::from_secs(5),
            request_head: Duration::from_secs(60),
            request_body: Duration::from_secs(60),
            request_body_grace: Duration::from_secs(5),
            request_body_total: Duration::ZERO,
            client_idle: Duration::from_secs(75),
            client_write: Duration::from_secs(60),
            connect: Duration::from_secs(5),
            response_head: Duration::from_secs(60),
            upstream_idle: Duration::from_secs(60),
            pool_idle: Duration::from_secs(60),
            tunnel_idle: Duration::from_secs(3600),
            udp_idle: Duration::from_secs(60),
            drain: Duration::from_secs(240),
        }
    }
}

/// Size limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Limits {
    /// The ClientHello of a TLS client, in bytes, with the headers of the records that carry it. The gateway responds with
    /// `decode_error` above the limit, and closes the connection. Default 32 KiB: a message of 2^14 bytes fits, also in records
    /// of 6 bytes.
    #[n(0)]
    pub client_hello: usize,
    /// A request's head, in bytes: 431 above it, 414 if the target alone is over it. Default 32 KiB (nginx
    /// `large_client_header_buffers 4 8k`).
    #[n(1)]
    pub request_head: usize,
    /// A response's head, in bytes: 502 above it. Default 64 KiB.
    #[n(2)]
    pub response_head: usize,
    /// Header lines in one head: 431 (request) or 502 (response) above it. Default 100, at most 256.
    #[cbor(n(3), with = "Within::<HeaderLines>")]
    pub headers: usize,
    /// A request's body, in bytes: 413 above it. Default: no limit; ingress-nginx has 1 MiB
    /// (`proxy-body-size`).
    #[n(4)]
    pub request_body: Option<u64>,
    /// The least that a client sends of a request's body while the gateway waits for it, in bytes a second: 408 once it
    /// is behind by [`Timeouts::request_body_grace`]. Each byte earns its time, up to [`Timeouts::request_body`]
    /// ahead. It holds until the response begins. gRPC calls to HTTP/2 endpoints are exempt. 0: no limit. Default 240 (Kestrel
    /// `MinRequestBodyDataRate`).
    #[n(5)]
    pub request_body_rate: u64,
    /// Stalled uploads of one worker at one endpoint: above it the longest stalled one ends with 408. An upload is
    /// stalled when its client is 1 s behind [`request_body_rate`](Self::request_body_rate), or silent for 1 s where that is 0.
    /// A quarter of the worker's other requests in flight at the endpoint is allowed where that is more. gRPC calls to
    /// HTTP/2 endpoints are exempt. 0: no limit. Default 64.
    #[n(6)]
    pub stalled_uploads_per_endpoint: usize,
    /// Requests on one client connection, which is closed after them. Default: no limit.
    #[n(7)]
    pub requests_per_connection: Option<u64>,
    /// Requests that a client may have under way at a time on one HTTP/2 connection; further ones are refused
    /// (`REFUSED_STREAM`), which clients repeat. Default 128 (nginx `http2_max_concurrent_streams`).
    #[n(8)]
    pub http2_streams: u32,
    /// What a client may send of one request's body before some of it was passed on, in bytes (RFC 9113, 6.9).
    /// Default 256 KiB.
    #[cbor(n(9), with = "Within::<FlowWindow>")]
    pub http2_stream_window: u32,
    /// The same for all requests of one HTTP/2 connection. Default 1 MiB.
    #[cbor(n(10), with = "Within::<FlowWindow>")]
    pub http2_connection_window: u32,
    /// Client connections of one worker; further ones wait in the listen queue. Default 65,536.
    #[n(11)]
    pub connections_per_worker: usize,
    /// Clients of one worker that exchange datagrams with an endpoint, each with a socket of its own; datagrams of
    /// further ones are dropped. Default 4,096.
    #[n(12)]
    pub udp_flows_per_worker: usize,
    /// Unused connections kept for each endpoint, by each worker. Default 128.
    #[n(13)]
    pub pool_per_endpoint: usize,
    /// What is kept of a request's body so that it can be sent again, in bytes. Default 64 KiB.
    #[n(14)]
    pub replay: usize,
    /// Responses that one worker compresses at a time; further ones go uncompressed. 0: none. Each holds its encoder
    /// until it has ended: 0.4 MiB of resident memory by gzip, 1.3 MiB by brotli (2.4 at level 4) and 0.6 MiB by zstd,
    /// so that brotli takes 170 MiB of each worker at most. Default 128.
    #[n(15)]
    pub compressions_per_worker: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            client_hello: 32 * 1024,
            request_head: 32 * 1024,
            response_head: 64 * 1024,
            headers: 100,
            request_body: None,
            request_body_rate: 240,
            stalled_uploads_per_endpoint: 64,
            requests_per_connection: None,
            http2_streams: 128,
            http2_stream_window: 256 * 1024,
            http2_connection_window: 1024 * 1024,
            connections_per_worker: 65_536,
            udp_flows_per_worker: 4096,
            pool_per_endpoint: 128,
            replay: 64 * 1024,
            compressions_per_worker: 128,
        }
    }
}

/// What is done when an endpoint fails.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Resilience {
    /// How many endpoints a request may be sent to in all. Default 3 (ingress-nginx
    /// `proxy-next-upstream-tries`). Connects that fail before anything was sent do not count.
    #[n(0)]
    pub attempts: u32,
    /// The longest that a connect may go unanswered before a second endpoint is tried beside it. The delay
    /// is four times what connecting usually takes there, at least 5 ms, and this at most. Zero switches
    /// hedging off. Default 50 ms.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(1), with = "Time")]
    pub connect_hedge: Duration,
    /// How long a request waits when no endpoint can be connected to, or when the last one just went away,
    /// before it is answered 502 or 503. Endpoints that come meanwhile serve it. Default 1 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(2), with = "Time")]
    pub endpoint_wait: Duration,
    /// How long bytes that were sent may stay unacknowledged by the endpoint's kernel, with no byte of a
    /// response, before an idempotent request is given to another endpoint. Zero switches it off. Default
    /// 60 ms, which is above the 40 ms for which Linux may delay an acknowledgement.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(3), with = "Time")]
    pub unacknowledged: Duration,
    /// Over how long a new or a recovered endpoint comes to its full share. Zero switches it off. Default
    /// 10 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(4), with = "Time")]
    pub slow_start: Duration,
    /// When less than this share of the eligible endpoints is free of suspicion, suspicion is ignored.
    /// 0 to 100 percent; 0 means: when all are suspect. Default 0.
    #[cbor(n(5), with = "Within::<PercentOrZero>")]
    pub panic_threshold_percent: u8,
    /// The time between two probes of a suspect endpoint: the first. It doubles up to
    /// [`probe_interval_max`](Self::probe_interval_max). Default 250 ms.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(6), with = "Time")]
    pub probe_interval: Duration,
    /// The longest time between two probes of a suspect endpoint. Default 5 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(7), with = "Time")]
    pub probe_interval_max: Duration,
}

impl Default for Resilience {
    fn default() -> Self {
        Self {
            attempts: 3,
            connect_hedge: Duration::from_millis(50),
            endpoint_wait: Duration::from_secs(1),
            unacknowledged: Duration::from_millis(60),
            slow_start: Duration::from_secs(10),
            panic_threshold_percent: 0,
            probe_interval: Duration::from_millis(250),
            probe_interval_max: Duration::from_secs(5),
        }
    }
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
