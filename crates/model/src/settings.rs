//! Every limit of the data plane, with its default.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use crate::access_log::AccessLogSettings;
use crate::encoding::bound::{FlowWindow, HeaderLines, PercentOrZero};
use crate::encoding::{Adapt as _, List, Maybe, OrDefault, Parsed, Text, Time, Within};
use crate::feature::compression::Compression;
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
    /// The handling of failing endpoints.
    #[cbor(n(2), with = "OrDefault")]
    pub resilience: Resilience,
    /// Trusted proxies: the gateway believes their forwarding headers (`X-Forwarded-*`, `X-Real-IP`, `X-Request-ID`), and
    /// drops these headers from all other peers. Default: none.
    #[cbor(n(3), with = "List::<Parsed>")]
    pub trusted_proxies: Vec<IpNet>,
    /// Peers that send the PROXY protocol, as load balancers do. Their connections must begin with its header, version 1 or
    /// 2, at every listener except UDP listeners. The gateway does not parse the header from other peers. Default: none.
    #[cbor(n(4), with = "List::<Parsed>")]
    pub proxy_protocol_peers: Vec<IpNet>,
    /// Whether endpoints receive request headers with an underscore in the name. Otherwise the gateway drops these headers,
    /// because many servers treat `X_Forwarded_For` as `X-Forwarded-For`. Default: false (nginx `underscores_in_headers`,
    /// ingress-nginx `enable-underscores-in-headers`).
    #[n(5)]
    pub underscores_in_headers: bool,
    /// Whether paths are allowed that may contain a dot segment for an endpoint, but not for the gateway. Examples are a dot
    /// segment after one round of decoding (`/x/..%2Fadmin`, `%5C` included), or before a parameter (`/x/..;/admin`).
    /// Otherwise the gateway responds with 400. Policies that name paths reject these paths in any case. Default: false.
    #[n(6)]
    pub allow_encoded_dot_segments: bool,
    /// Whether request targets may have bytes above 0x7F, in UTF-8. The gateway percent-encodes these bytes in the path, and
    /// forwards them unchanged in the query. Otherwise the gateway responds with 400. Default: false.
    #[n(7)]
    pub allow_non_ascii_targets: bool,
    /// The TLS settings of client connections.
    #[cbor(n(8), with = "OrDefault")]
    pub tls: TlsSettings,
    /// The compression of responses.
    #[cbor(n(9), with = "OrDefault")]
    pub compression: Compression,
    /// The tracing of requests. Default: none, and the gateway forwards trace headers unchanged.
    #[n(10)]
    pub tracing: Option<Tracing>,
    /// The requests in the access log, and the format of their lines. Default: all requests, in the format of
    /// `--access-log-format`.
    #[serde(skip_serializing_if = "AccessLogSettings::is_default")]
    #[cbor(n(70), default, skip_if = "AccessLogSettings::is_default")]
    pub access_log: AccessLogSettings,
    /// The controller of the IngressClasses of ingress-nginx. With a controller, the gateway counts the requests of Ingresses
    /// by method, status and canary, and has the metrics of ingress-nginx. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cbor(n(71), with = "Maybe::<Text>")]
    pub nginx_controller: Option<Box<str>>,
    /// Whether the gateway's own errors have the bodies of Kong, and responses have the headers of Kong. Default: `false`.
    #[serde(skip_serializing_if = "crate::encoding::is_false")]
    #[cbor(n(72), default, skip_if = "crate::encoding::is_false")]
    pub kong_compatibility: bool,
}

impl Settings {
    /// Whether a peer sends the PROXY protocol.
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
    /// From the connection to the end of the TLS handshake: the gateway then closes the connection. Default 10 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(0), with = "Time")]
    pub tls_handshake: Duration,
    /// From a connection of one of [`proxy_protocol_peers`](Settings::proxy_protocol_peers) to the end of its PROXY header:
    /// the gateway then closes the connection. Default 5 s (ingress-nginx `proxy-protocol-header-timeout`).
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
    /// How long the client of a request may fall behind [`Limits::request_body_rate`] before the gateway ends the body with
    /// 408. Default 5 s (Kestrel `MinRequestBodyDataRate.GracePeriod`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(4), with = "Time")]
    pub request_body_grace: Duration,
    /// From a request's head to the end of its body: 408 after it. gRPC calls to HTTP/2 endpoints are exempt. Zero: no
    /// limit. Default zero, because the time of a large upload depends on its size.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(5), with = "Time")]
    pub request_body_total: Duration,
    /// The longest wait of a keep-alive client connection for its next request. Default 75 s (nginx `keepalive_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(6), with = "Time")]
    pub client_idle: Duration,
    /// Between two writes to a client that does not read: the gateway then closes the connection. Default 60 s (nginx
    /// `send_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(7), with = "Time")]
    pub client_write: Duration,
    /// For one connect to one endpoint. The hedged connect starts long before this timeout, see
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
    /// How long an idle connection to an endpoint stays open. A shorter `Keep-Alive: timeout` of the endpoint applies
    /// instead. Default 60 s (nginx upstream `keepalive_timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(11), with = "Time")]
    pub pool_idle: Duration,
    /// The longest silence of a tunnel (an upgraded connection, or a connection below HTTP). Default 1 h.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(12), with = "Time")]
    pub tunnel_idle: Duration,
    /// The longest silence of a client and an endpoint that exchange datagrams. The gateway then closes their socket. Default
    /// 60 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(13), with = "Time")]
    pub udp_idle: Duration,
    /// How long requests and tunnels may continue at a removed endpoint. Default 240 s (ingress-nginx
    /// `worker-shutdown-timeout`).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(14), with = "Time")]
    pub drain: Duration,
    /// The age of a client connection after which the gateway lets the client make a new connection: HTTP/1 by `Connection: close`
    /// in the next response, HTTP/2 and HTTP/3 by GOAWAY. Each connection has an age of its own, up to a tenth shorter or longer, so that
    /// connections of one moment do not end in one moment. Tunnels stay. Default: no limit (Envoy `max_connection_duration`).
    #[serde(serialize_with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    #[cbor(n(15), with = "Maybe::<Time>")]
    pub connection_age: Option<Duration>,
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
            connection_age: None,
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
    /// A request's head, in bytes: 431 above the limit, 414 if the target alone exceeds the limit. Default 32 KiB (nginx
    /// `large_client_header_buffers 4 8k`).
    #[n(1)]
    pub request_head: usize,
    /// A response's head, in bytes: 502 above the limit. Default 64 KiB.
    #[n(2)]
    pub response_head: usize,
    /// Header lines in one head: 431 (request) or 502 (response) above the limit. Default 100, at most 256.
    #[cbor(n(3), with = "Within::<HeaderLines>")]
    pub headers: usize,
    /// A request's body, in bytes: 413 above the limit. Default: no limit; ingress-nginx has 1 MiB (`proxy-body-size`).
    #[n(4)]
    pub request_body: Option<u64>,
    /// The minimum rate of a request's body while the gateway waits for the body, in bytes a second: 408 once the client is
    /// behind by [`Timeouts::request_body_grace`]. Each byte earns its time, up to [`Timeouts::request_body`] ahead. The rate
    /// applies until the response begins. gRPC calls to HTTP/2 endpoints are exempt. 0: no limit. Default 240 (Kestrel
    /// `MinRequestBodyDataRate`).
    #[n(5)]
    pub request_body_rate: u64,
    /// Stalled uploads of one worker at one endpoint: above the limit the longest stalled upload ends with 408. An upload is
    /// stalled when its client is 1 s behind [`request_body_rate`](Self::request_body_rate), or silent for 1 s if that rate
    /// is 0. The limit rises to a quarter of the worker's other requests in flight at the endpoint. gRPC calls to HTTP/2
    /// endpoints are exempt. 0: no limit. Default 64.
    #[n(6)]
    pub stalled_uploads_per_endpoint: usize,
    /// Requests on one client connection. The gateway closes the connection after the last request. Default: no limit.
    #[n(7)]
    pub requests_per_connection: Option<u64>,
    /// Requests of a client in flight at once on one connection of HTTP/2 or HTTP/3. The gateway rejects further requests of
    /// HTTP/2 (`REFUSED_STREAM`), which clients retry; clients of HTTP/3 wait. Default 128 (nginx
    /// `http2_max_concurrent_streams`).
    #[n(8)]
    pub http2_streams: u32,
    /// The bytes of one request's body that a client may send before the gateway forwards some of them (RFC 9113, 6.9).
    /// Default 256 KiB.
    #[cbor(n(9), with = "Within::<FlowWindow>")]
    pub http2_stream_window: u32,
    /// The bytes of all request bodies on one connection of HTTP/2 or HTTP/3 that a client may send before the gateway forwards some of
    /// them. Default 1 MiB.
    #[cbor(n(10), with = "Within::<FlowWindow>")]
    pub http2_connection_window: u32,
    /// Client connections of one worker. Further connections wait in the listen queue. Default 65,536.
    #[n(11)]
    pub connections_per_worker: usize,
    /// Clients of one worker that exchange datagrams with an endpoint, each with a socket of its own. The gateway drops
    /// datagrams of further clients. Default 4,096.
    #[n(12)]
    pub udp_flows_per_worker: usize,
    /// Idle connections to each endpoint that each worker holds open. Default 1,024.
    #[n(13)]
    pub pool_per_endpoint: usize,
    /// The buffer of a request's body for a retry, in bytes. Default 64 KiB.
    #[n(14)]
    pub replay: usize,
    /// Responses that one worker compresses at once. Further responses are not compressed. 0: none. Each response holds its
    /// encoder until the response ends: 0.4 MiB of resident memory for gzip, 1.3 MiB for brotli (2.4 at level 4) and 0.6 MiB
    /// for zstd. Brotli therefore takes at most 170 MiB of each worker. Default 128.
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
            pool_per_endpoint: 1024,
            replay: 64 * 1024,
            compressions_per_worker: 128,
        }
    }
}

/// The handling of failing endpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Resilience {
    /// The maximum number of endpoints that a request is sent to. Connects that fail before any byte was sent do not
    /// count. Default 3 (ingress-nginx `proxy-next-upstream-tries`).
    #[n(0)]
    pub attempts: u32,
    /// The longest delay before a hedged connect to a second endpoint. The delay is four times the usual connect time of the
    /// first endpoint, at least 5 ms, and at most this value. Zero disables hedging. Default 50 ms.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(1), with = "Time")]
    pub connect_hedge: Duration,
    /// How long a request waits when every connect fails, or when the last endpoint was just removed, before the gateway
    /// responds with 502 or 503. Endpoints that appear in the meantime serve the request. Default 1 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(2), with = "Time")]
    pub endpoint_wait: Duration,
    /// How long sent bytes may stay unacknowledged by the endpoint's kernel, without a byte of a response, before the gateway
    /// retries an idempotent request at another endpoint. Zero disables this retry. Default 60 ms, which is above the 40 ms
    /// for which Linux may delay an acknowledgement.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(3), with = "Time")]
    pub unacknowledged: Duration,
    /// Slow start: the time in which a new or recovered endpoint rises to its full share. Zero disables slow start. Default
    /// 10 s.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(4), with = "Time")]
    pub slow_start: Duration,
    /// The panic threshold: below this percentage of healthy endpoints among the eligible endpoints, health is ignored. 0 to
    /// 100; at 0, health is ignored only when all endpoints are unhealthy. Default 0.
    #[cbor(n(5), with = "Within::<PercentOrZero>")]
    pub panic_threshold_percent: u8,
    /// The first time between two probes of an unhealthy endpoint. The time doubles up to
    /// [`probe_interval_max`](Self::probe_interval_max). Default 250 ms.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(6), with = "Time")]
    pub probe_interval: Duration,
    /// The longest time between two probes of an unhealthy endpoint. Default 5 s.
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

fn optional_seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
