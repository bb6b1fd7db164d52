//! Limits and timeouts as options of the command line.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;
use ipnet::IpNet;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sluicegate_model::access_log::AccessLogSettings;
use sluicegate_model::feature::compression::{BrotliLevel, GzipLevel, Levels, MediaRange, ZstdLevel};
use sluicegate_model::settings::{Limits, Resilience, Timeouts};
use sluicegate_model::tls::TlsSettings;
use sluicegate_model::{Codings, Collector, Compression, Settings, Tracing};

use crate::address::network;

const SHORTEST: Duration = Duration::from_millis(1);
/// The longest time. Longer times have no use, and may overflow clocks.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// The limits on the size of a head: a smaller limit would reject browsers, and each connection may fill a larger buffer.
const HEAD: RangeInclusive<u64> = 1 << 10..=1 << 20;

/// The allowed flow control windows, from the initial window of every connection (RFC 9113, 6.9.2).
const WINDOW: RangeInclusive<u64> = 1 << 16..=1 << 24;

/// Every limit of the data plane. The model holds the defaults. The parser rejects 0, unless the help of the option gives 0 a
/// meaning (never, none, no limit).
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SettingsArgs {
    /// Trusted proxies, as networks such as 10.0.0.0/8 or single addresses, comma separated. The gateway believes their
    /// forwarding headers (X-Forwarded-*, X-Real-IP, X-Request-ID). If a trusted proxy reports no valid client IP, rules
    /// about client IPs deny the request. [default: none]
    #[arg(long, value_name = "CIDR", value_parser = network, value_delimiter = ',', help_heading = "Clients")]
    trusted_proxies: Vec<IpNet>,
    /// Peers that send the PROXY protocol (version 1 or 2), such as load balancers: networks or single addresses, comma
    /// separated. Their connections must begin with the PROXY header, at every listener except UDP. The gateway does
    /// not accept the header from other peers. [default: none]
    #[arg(long, value_name = "CIDR", value_parser = network, value_delimiter = ',', help_heading = "Clients")]
    proxy_protocol_peers: Vec<IpNet>,
    /// The timeout from a connection of a PROXY protocol peer to the end of its PROXY header. [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Clients")]
    proxy_protocol_timeout: Option<Duration>,
    /// Pass on request headers with an underscore in their name. By default the gateway drops these headers, because
    /// many applications take X_Forwarded_For for X-Forwarded-For. [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Clients")]
    underscores_in_headers: Option<bool>,
    /// Pass on paths with a dot segment behind an escape or a parameter, such as /x/..%2Fadmin, /x%5C..%5Cadmin and
    /// /x/..;/admin. An endpoint that decodes a path before it resolves dot segments would leave the route. By default
    /// the gateway responds with 400. On routes with policies that name paths, the gateway always responds with 400.
    /// [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Clients")]
    allow_encoded_dot_segments: Option<bool>,
    /// Pass on request targets with raw bytes above 0x7F that are valid UTF-8. The gateway percent-encodes these bytes
    /// in the path. By default the gateway responds with 400. [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Clients")]
    allow_non_ascii_targets: Option<bool>,
    /// Respond in the form of Kong: the gateway's own errors have the bodies of Kong, in JSON, HTML, XML or plain text by
    /// Accept, and responses have X-Kong-Request-Id and the X-Kong-*-Latency headers. Errors on routes of an Api stay
    /// problem documents. [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          help_heading = "Clients")]
    kong_compatibility: Option<bool>,
    /// The timeout from the first byte of a request head to its last byte. The gateway then responds with 408.
    /// [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Clients")]
    request_head_timeout: Option<Duration>,
    /// The timeout between two reads of a request body. The gateway then responds with 408. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Clients")]
    request_body_timeout: Option<Duration>,
    /// The lowest rate of a request body, in bytes per second, while the gateway waits for the client. A client that
    /// falls behind by --request-body-grace receives 408. Time in which the endpoint accepts no data does not count.
    /// The limit ends when the response begins. The limit does not apply to upgrades, nor to gRPC calls to HTTP/2
    /// endpoints. 0: no limit. [default: 240]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Clients")]
    min_request_body_rate: Option<u64>,
    /// The time that a client may fall behind --min-request-body-rate. A body that arrives faster than this rate gains
    /// time, up to --request-body-timeout. [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Clients")]
    request_body_grace: Option<Duration>,
    /// The timeout from a request head to the end of the request body. The gateway then responds with 408. The limit
    /// does not apply to upgrades, nor to gRPC calls to HTTP/2 endpoints. 0s: no limit, because the time of a large
    /// upload depends on its size. [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Clients")]
    request_body_total_timeout: Option<Duration>,
    /// The largest number of stalled uploads of one worker to one endpoint. Above the limit, the upload that stalled
    /// first ends with 408. An upload is stalled if its client is 1 s behind --min-request-body-rate. The limit rises
    /// to a quarter of the worker's other requests at that endpoint. 0: no limit. [default: 64]
    #[arg(long, value_name = "N", help_heading = "Clients")]
    max_stalled_uploads_per_endpoint: Option<u32>,
    /// The time that an idle client connection may wait for its next request. [default: 75s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Clients")]
    client_idle_timeout: Option<Duration>,
    /// The age of a client connection after which the gateway ends it. HTTP/1: the next response has `Connection: close`.
    /// HTTP/2 and HTTP/3: the gateway sends GOAWAY. Requests in flight are served, without a limit. The clients connect again, perhaps to
    /// another pod. The gateway varies the age of each connection by up to 10 %. TCP connections, WebSockets and other upgrades
    /// are not ended. 0s: no limit. [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Clients")]
    max_connection_age: Option<Duration>,
    /// The timeout between two writes to a client that does not read. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Clients")]
    client_write_timeout: Option<Duration>,
    /// The timeout from a connection to the end of its TLS handshake. [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Clients")]
    tls_handshake_timeout: Option<Duration>,
    /// The largest ClientHello of a TLS client, in bytes, with its record headers. The gateway rejects a longer
    /// ClientHello. [default: 32Ki, range: 1Ki to 64Ki]
    #[arg(long, value_name = "SIZE", value_parser = size_in(1 << 10..=1 << 16), help_heading = "Clients")]
    max_client_hello: Option<u64>,
    /// The largest request head, in bytes. The gateway responds with 431 to a longer head, and with 414 if the first
    /// line alone is longer. [default: 32Ki, range: 1Ki to 1Mi]
    #[arg(long, value_name = "SIZE", value_parser = size_in(HEAD), help_heading = "Clients")]
    max_request_head: Option<u64>,
    /// The largest number of header lines in one head. [default: 100, range: 1 to 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Clients")]
    max_headers: Option<u16>,
    /// The largest request body, in bytes. The gateway responds with 413 to a longer body. 0: no limit. [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Clients")]
    max_request_body: Option<u64>,
    /// The number of requests after which the gateway closes a client connection. 0: no limit. [default: 0]
    #[arg(long, value_name = "N", help_heading = "Clients")]
    max_requests_per_connection: Option<u64>,
    /// The largest number of requests in flight on one connection of HTTP/2 or HTTP/3. The gateway refuses further requests
    /// of HTTP/2, and clients retry them; clients of HTTP/3 wait. [default: 128, at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Clients")]
    http2_max_concurrent_streams: Option<u32>,
    /// The number of bytes that a client may send ahead of the endpoint in one request body of HTTP/2 or HTTP/3. [default:
    /// 256Ki, range: 64Ki to 16Mi]
    #[arg(long, value_name = "SIZE", value_parser = size_in(WINDOW), help_heading = "Clients")]
    http2_stream_window: Option<u64>,
    /// The number of bytes that a client may send ahead of the endpoints in all request bodies of one
    /// connection of HTTP/2 or HTTP/3. [default: 1Mi, range: 64Ki to 16Mi]
    #[arg(long, value_name = "SIZE", value_parser = size_in(WINDOW), help_heading = "Clients")]
    http2_connection_window: Option<u64>,
    /// The largest number of client connections of one worker. Further connections wait in the listen queue. [default:
    /// 65536, at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Clients")]
    max_connections_per_worker: Option<u32>,
    /// The largest number of UDP clients of one worker. The gateway drops datagrams of further clients. [default: 4096,
    /// at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Clients")]
    max_udp_flows_per_worker: Option<u32>,

    /// Compress responses with these codings, in the order of preference, comma separated: gzip, br and zstd. The
    /// client must accept the coding. off: no compression. An Ingress can override the setting
    /// (sluicegate.dev/compression). Do not compress pages that contain both secrets and text of other users (BREACH).
    /// [default: off]
    #[arg(long, value_name = "CODINGS", help_heading = "Compression")]
    compression: Option<Codings>,
    /// The media types that the gateway compresses, comma separated. text/* is every type of text. [default: the types
    /// of ingress-nginx, such as text/html, application/json and image/svg+xml]
    #[arg(long, value_name = "TYPES", value_delimiter = ',', help_heading = "Compression")]
    compression_types: Option<Vec<MediaRange>>,
    /// The shortest body that the gateway compresses, in bytes, if the length is known. [default: 256]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Compression")]
    compression_min_length: Option<u64>,
    /// The compression level of gzip; higher is smaller and slower. [default: 4, range: 1 to 9]
    #[arg(long, value_name = "LEVEL", help_heading = "Compression")]
    compression_gzip_level: Option<GzipLevel>,
    /// The compression level of brotli; higher is smaller and slower. [default: 3, range: 1 to 4]
    #[arg(long, value_name = "LEVEL", help_heading = "Compression")]
    compression_br_level: Option<BrotliLevel>,
    /// The compression level of zstd; higher is smaller and slower. [default: 3, range: 1 to 9]
    #[arg(long, value_name = "LEVEL", help_heading = "Compression")]
    compression_zstd_level: Option<ZstdLevel>,
    /// The largest number of responses that one worker compresses at once. Each compression takes 0.4 MiB (gzip) to 1.3
    /// MiB (brotli) of memory. Further responses stay uncompressed. 0: no compression. [default: 128, at most 65535]
    #[arg(long, value_name = "N", help_heading = "Compression")]
    max_compressions_per_worker: Option<u16>,

    /// The timeout of one connect to one endpoint. [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Endpoints")]
    connect_timeout: Option<Duration>,
    /// The timeout from the end of a request to the head of its response. The gateway then responds with 504. [default:
    /// 60s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Endpoints")]
    response_timeout: Option<Duration>,
    /// The timeout between two reads of a response body, and between two writes of a request body. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Endpoints")]
    upstream_idle_timeout: Option<Duration>,
    /// The idle timeout of a tunnel: TCP, TLS passthrough, a WebSocket or another upgrade. [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Endpoints")]
    tunnel_idle_timeout: Option<Duration>,
    /// The idle timeout of a UDP client and its endpoint. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Endpoints")]
    udp_idle_timeout: Option<Duration>,
    /// The time that requests and tunnels may continue at a removed endpoint. 0s: the gateway cuts them off. [default:
    /// 4m]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Endpoints")]
    endpoint_drain_timeout: Option<Duration>,
    /// The largest response head, in bytes. The gateway responds with 502 to a longer head. [default: 64Ki, range: 1Ki
    /// to 1Mi]
    #[arg(long, value_name = "SIZE", value_parser = size_in(HEAD), help_heading = "Endpoints")]
    max_response_head: Option<u64>,
    /// The largest number of idle connections that each worker keeps open to each endpoint. 0: none. [default: 1024, at
    /// most 65535]
    #[arg(long, value_name = "N", help_heading = "Endpoints")]
    pool_size: Option<u16>,
    /// The time that an idle connection to an endpoint stays open. 0s: not at all. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Endpoints")]
    pool_idle_timeout: Option<Duration>,

    /// Trace requests, and send their spans to this collector by OTLP over HTTP, such as http://collector:4318. The
    /// gateway adds /v1/traces. Without a collector, the gateway passes traceparent and tracestate on unchanged.
    /// [default: none]
    #[arg(long, value_name = "URL", help_heading = "Traces")]
    otlp_endpoint: Option<Collector>,
    /// The file with the CA certificates of a collector at https://, in PEM. [default: the public CA certificates]
    #[arg(long, value_name = "FILE", value_parser = authorities, help_heading = "Traces")]
    otlp_ca: Option<Authorities>,
    /// The percentage of requests without a traceparent that the gateway traces, such as 1 or 0.01. 0: none. [default:
    /// 1, range: 0 to 100]
    #[arg(long, value_name = "PERCENT", value_parser = percent, help_heading = "Traces")]
    trace_sample_percent: Option<f64>,
    /// The largest number of requests per second that the gateway traces because their traceparent asks for a trace.
    /// Any client can ask. Further traces continue without a span of the gateway. 0: none. [default: 100]
    #[arg(long, value_name = "N", help_heading = "Traces")]
    trace_followed_per_second: Option<u32>,
    /// The name of the gateway in traces (service.name). [default: sluicegate]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new(), help_heading = "Traces")]
    trace_service_name: Option<String>,

    /// The largest number of attempts of a request, including the first attempt. [default: 3, at least 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Failures")]
    attempts: Option<u32>,
    /// The number of bytes of a request body that the gateway stores for a retry. 0: none. [default: 64Ki, at most
    /// 64Mi]
    #[arg(long, value_name = "SIZE", value_parser = size_in(0..=64 << 20), help_heading = "Failures")]
    replay_buffer: Option<u64>,
    /// The time after which the gateway connects to a second endpoint too, while the first connect is unanswered. 0s:
    /// never. [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    connect_hedge: Option<Duration>,
    /// The time that a request waits for an endpoint if the gateway cannot connect to any. 0s: not at all. [default:
    /// 1s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    endpoint_wait: Option<Duration>,
    /// The time that an endpoint's kernel may leave an idempotent request unacknowledged. The gateway then retries at
    /// another endpoint. 0s: no limit. [default: 60ms]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    unacknowledged_timeout: Option<Duration>,
    /// The time in which the share of a new or recovered endpoint grows to its full share. 0s: at once. [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Failures")]
    slow_start: Option<Duration>,
    /// The percentage of healthy endpoints below which the gateway ignores health, and uses all endpoints. [default: 0,
    /// range: 0 to 100]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100), help_heading = "Failures")]
    panic_threshold: Option<u8>,
    /// The first time between two probes of an unhealthy endpoint. The time doubles after each probe. [default: 250ms]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Failures")]
    probe_interval: Option<Duration>,
    /// The longest time between two probes of an unhealthy endpoint. [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = limit, help_heading = "Failures")]
    probe_interval_max: Option<Duration>,
}

impl SettingsArgs {
    pub(crate) fn settings(&self) -> Settings {
        let (timeouts, limits, resilience) = (Timeouts::default(), Limits::default(), Resilience::default());
        Settings {
            trusted_proxies: self.trusted_proxies.clone(),
            proxy_protocol_peers: self.proxy_protocol_peers.clone(),
            underscores_in_headers: self.underscores_in_headers.unwrap_or_default(),
            allow_encoded_dot_segments: self.allow_encoded_dot_segments.unwrap_or_default(),
            allow_non_ascii_targets: self.allow_non_ascii_targets.unwrap_or_default(),
            // The TLS options are applied later.
            tls: TlsSettings::default(),
            access_log: AccessLogSettings::default(),
            nginx_controller: None,
            kong_compatibility: self.kong_compatibility.unwrap_or_default(),
            compression: self.compression(),
            tracing: self.otlp_endpoint.clone().map(|collector| self.tracing(collector)),
            timeouts: Timeouts {
                proxy_protocol: self.proxy_protocol_timeout.unwrap_or(timeouts.proxy_protocol),
                tls_handshake: self.tls_handshake_timeout.unwrap_or(timeouts.tls_handshake),
                request_head: self.request_head_timeout.unwrap_or(timeouts.request_head),
                request_body: self.request_body_timeout.unwrap_or(timeouts.request_body),
                request_body_grace: self.request_body_grace.unwrap_or(timeouts.request_body_grace),
                request_body_total: self.request_body_total_timeout.unwrap_or(timeouts.request_body_total),
                client_idle: self.client_idle_timeout.unwrap_or(timeouts.client_idle),
                connection_age: self
                    .max_connection_age
                    .map_or(timeouts.connection_age, |age| (!age.is_zero()).then_some(age)),
                client_write: self.client_write_timeout.unwrap_or(timeouts.client_write),
                connect: self.connect_timeout.unwrap_or(timeouts.connect),
                response_head: self.response_timeout.unwrap_or(timeouts.response_head),
                upstream_idle: self.upstream_idle_timeout.unwrap_or(timeouts.upstream_idle),
                pool_idle: self.pool_idle_timeout.unwrap_or(timeouts.pool_idle),
                tunnel_idle: self.tunnel_idle_timeout.unwrap_or(timeouts.tunnel_idle),
                udp_idle: self.udp_idle_timeout.unwrap_or(timeouts.udp_idle),
                drain: self.endpoint_drain_timeout.unwrap_or(timeouts.drain),
            },
            limits: Limits {
                client_hello: self.max_client_hello.map_or(limits.client_hello, whole),
                request_head: self.max_request_head.map_or(limits.request_head, whole),
                response_head: self.max_response_head.map_or(limits.response_head, whole),
                headers: self.max_headers.map_or(limits.headers, usize::from),
                request_body: self.max_request_body.map_or(limits.request_body, unless_zero),
                request_body_rate: self.min_request_body_rate.unwrap_or(limits.request_body_rate),
                stalled_uploads_per_endpoint: self
                    .max_stalled_uploads_per_endpoint
                    .map_or(limits.stalled_uploads_per_endpoint, |most| whole(most.into())),
                requests_per_connection: self
                    .max_requests_per_connection
                    .map_or(limits.requests_per_connection, unless_zero),
                http2_streams: self.http2_max_concurrent_streams.unwrap_or(limits.http2_streams),
                http2_stream_window: self.http2_stream_window.map_or(limits.http2_stream_window, window),
                http2_connection_window: self
                    .http2_connection_window
                    .map_or(limits.http2_connection_window, window),
                connections_per_worker: self
                    .max_connections_per_worker
                    .map_or(limits.connections_per_worker, |most| whole(most.into())),
                udp_flows_per_worker: self
                    .max_udp_flows_per_worker
                    .map_or(limits.udp_flows_per_worker, |most| whole(most.into())),
                pool_per_endpoint: self.pool_size.map_or(limits.pool_per_endpoint, usize::from),
                replay: self.replay_buffer.map_or(limits.replay, whole),
                compressions_per_worker: self
                    .max_compressions_per_worker
                    .map_or(limits.compressions_per_worker, usize::from),
            },
            resilience: Resilience {
                attempts: self.attempts.unwrap_or(resilience.attempts),
                connect_hedge: self.connect_hedge.unwrap_or(resilience.connect_hedge),
                endpoint_wait: self.endpoint_wait.unwrap_or(resilience.endpoint_wait),
                unacknowledged: self.unacknowledged_timeout.unwrap_or(resilience.unacknowledged),
                slow_start: self.slow_start.unwrap_or(resilience.slow_start),
                panic_threshold_percent: self.panic_threshold.unwrap_or(resilience.panic_threshold_percent),
                probe_interval: self.probe_interval.unwrap_or(resilience.probe_interval),
                probe_interval_max: self.probe_interval_max.unwrap_or(resilience.probe_interval_max),
            },
        }
    }

    fn tracing(&self, collector: Collector) -> Tracing {
        let default = Tracing::to(collector);
        Tracing {
            authorities: self.otlp_ca.clone().map_or(default.authorities, |Authorities(all)| all),
            sample_percent: self.trace_sample_percent.unwrap_or(default.sample_percent),
            followed_per_second: self.trace_followed_per_second.unwrap_or(default.followed_per_second),
            service_name: self.trace_service_name.as_deref().map_or(default.service_name, Into::into),
            ..default
        }
    }

    fn compression(&self) -> Compression {
        let Compression { codings, types, min_length, levels } = Compression::default();
        Compression {
            codings: self.compression.clone().unwrap_or(codings),
            types: self.compression_types.clone().unwrap_or(types),
            min_length: self.compression_min_length.unwrap_or(min_length),
            levels: Levels {
                gzip: self.compression_gzip_level.unwrap_or(levels.gzip),
                brotli: self.compression_br_level.unwrap_or(levels.brotli),
                zstd: self.compression_zstd_level.unwrap_or(levels.zstd),
            },
        }
    }
}

/// CA certificates from a file.
#[derive(Clone, Debug)]
pub(crate) struct Authorities(pub(crate) Vec<CertificateDer<'static>>);

/// Reads a file of PEM certificates.
pub(crate) fn authorities(path: &str) -> Result<Authorities, String> {
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(all) if all.is_empty() => Err("the file has no certificate in PEM".to_owned()),
        Ok(all) => Ok(Authorities(all)),
        Err(error) => Err(error.to_string()),
    }
}

/// A percentage such as 100, 1 or 0.01.
fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 =
        text.parse().map_err(|_| "not a number; write a percentage from 0 to 100".to_owned())?;
    // Also rejects NaN.
    if (0.0..=100.0).contains(&percent) {
        Ok(percent)
    } else {
        Err("out of range; write a percentage from 0 to 100".to_owned())
    }
}

fn whole(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn window(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// The limit, or `None` for 0, which stands for no limit, as in nginx.
fn unless_zero(limit: u64) -> Option<u64> {
    (limit > 0).then_some(limit)
}

/// A duration such as `250ms`, `60s`, `5m` or `1h30m`, at most one year.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a time as 250ms, 60s, 5m or 1h"))?;
    if time > LONGEST { Err("too long; the longest time is 365d".to_owned()) } else { Ok(time) }
}

/// A timeout, which must not be 0: a timeout of 0 would end before any event.
fn limit(text: &str) -> Result<Duration, String> {
    let limit = time(text)?;
    if limit < SHORTEST {
        return Err("too short; the shortest limit is 1ms".to_owned());
    }
    Ok(limit)
}

/// A size within these bounds.
pub(crate) fn size_in(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let size = size(text)?;
        if range.contains(&size) {
            return Ok(size);
        }
        let [least, most] = [range.start(), range.end()].map(|bound| match bound {
            bound if *bound >= 1 << 20 => format!("{}Mi", bound >> 20),
            bound if *bound >= 1 << 10 => format!("{}Ki", bound >> 10),
            bound => bound.to_string(),
        });
        Err(format!("out of range; write a size from {least} to {most}"))
    }
}

/// A size in bytes: a number, with `k`, `m` or `g` (as nginx) or `Ki`, `Mi`, `Gi` (as Kubernetes) for powers
/// of 1024.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|end: char| !end.is_ascii_digit());
    let power = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" | "Ki" => 1,
        "m" | "M" | "Mi" => 2,
        "g" | "G" | "Gi" => 3,
        unit => {
            return Err(format!("{unit:?} is not a unit; write a number of bytes, or 64k, 1m, 64Ki, 1Mi"));
        }
    };
    let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is not a number of bytes"))?;
    number
        .checked_mul(1 << (10 * power))
        .ok_or_else(|| "the size is too large; write less than 2^64 bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn absent_options_use_the_default_settings_of_the_model() {
        assert_eq!(SettingsArgs::default().settings(), Settings::default());
    }

    fn parsed(option: &str, value: &str) -> Result<Settings, clap::Error> {
        let line = ["sluicegate", "serve", "--manifests", "x", option, value];
        let Command::Serve(args) = Cli::try_parse_from(line)?.command else { unreachable!("it is serve") };
        Ok(args.settings.settings())
    }

    #[test]
    fn option_out_of_range_is_rejected_with_the_allowed_range() {
        for (option, wrong, message) in [
            ("--request-head-timeout", "0s", "the shortest limit is 1ms"),
            ("--request-body-timeout", "0s", "the shortest limit is 1ms"),
            ("--client-idle-timeout", "0s", "the shortest limit is 1ms"),
            ("--client-write-timeout", "999us", "the shortest limit is 1ms"),
            ("--connect-timeout", "0s", "the shortest limit is 1ms"),
            ("--response-timeout", "0s", "the shortest limit is 1ms"),
            ("--upstream-idle-timeout", "0s", "the shortest limit is 1ms"),
            ("--tunnel-idle-timeout", "0s", "the shortest limit is 1ms"),
            ("--proxy-protocol-timeout", "0s", "the shortest limit is 1ms"),
            ("--udp-idle-timeout", "0s", "the shortest limit is 1ms"),
            ("--max-udp-flows-per-worker", "0", "1.."),
            ("--probe-interval", "0s", "the shortest limit is 1ms"),
            ("--probe-interval-max", "0s", "the shortest limit is 1ms"),
            ("--shutdown-grace", "100y", "365d"),
            ("--max-request-head", "1", "from 1Ki to 1Mi"),
            ("--max-request-head", "99G", "from 1Ki to 1Mi"),
            ("--max-response-head", "0", "from 1Ki to 1Mi"),
            ("--replay-buffer", "65Mi", "from 0 to 64Mi"),
            ("--max-connections-per-worker", "0", "1.."),
            ("--attempts", "0", "1.."),
            ("--compression", "deflate", "write gzip, br and zstd in the order of preference"),
            ("--compression", "br,br", "br is named twice"),
            ("--compression-types", "text/html,json", "write it as text/html, text/* or */*"),
            ("--compression-gzip-level", "0", "0 is not between 1 and 9"),
            ("--otlp-endpoint", "collector:4318", "as in http://collector:4318"),
            ("--otlp-endpoint", "http://me:pw@collector", "may not name a user"),
            ("--otlp-ca", "/nowhere/ca.pem", "No such file"),
            ("--trace-sample-percent", "101", "from 0 to 100"),
            ("--trace-sample-percent", "NaN", "from 0 to 100"),
            ("--trace-service-name", "", "value is required"),
            ("--compression-br-level", "5", "5 is not between 1 and 4"),
            ("--compression-zstd-level", "10", "10 is not between 1 and 9"),
        ] {
            let error = parsed(option, wrong).expect_err(option);
            let text = error.to_string();
            assert!(text.contains(option) && text.contains(message), "{option} {wrong}: {text}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn error_for_a_former_option_names_the_new_option() {
        let error = parsed("--trusted-peers", "10.0.0.0/8").expect_err("a former name");
        assert!(error.to_string().contains("a similar argument exists: '--trusted-proxies'"), "{error}");
    }

    #[test]
    fn zero_disables_each_limit_whose_help_text_says_so() -> Result<(), clap::Error> {
        assert_eq!(parsed("--max-request-body", "0")?.limits.request_body, None);
        assert_eq!(parsed("--min-request-body-rate", "0")?.limits.request_body_rate, 0);
        assert_eq!(parsed("--max-stalled-uploads-per-endpoint", "0")?.limits.stalled_uploads_per_endpoint, 0);
        assert_eq!(parsed("--request-body-total-timeout", "0s")?.timeouts.request_body_total, Duration::ZERO);
        assert_eq!(parsed("--max-connection-age", "0s")?.timeouts.connection_age, None);
        assert_eq!(
            parsed("--max-connection-age", "1h")?.timeouts.connection_age,
            Some(Duration::from_secs(3600))
        );
        assert_eq!(parsed("--max-request-body", "1m")?.limits.request_body, Some(1 << 20));
        assert_eq!(parsed("--max-requests-per-connection", "0")?.limits.requests_per_connection, None);
        assert_eq!(parsed("--max-requests-per-connection", "1")?.limits.requests_per_connection, Some(1));
        for never in ["--connect-hedge", "--unacknowledged-timeout", "--slow-start", "--endpoint-wait"] {
            parsed(never, "0s")?;
        }
        parsed("--pool-size", "0")?;
        Ok(())
    }

    #[test]
    fn tracing_is_enabled_only_with_a_collector() -> Result<(), clap::Error> {
        let collector = || "http://collector:4318".parse().expect("a URL");
        assert_eq!(parsed("--trace-sample-percent", "50")?.tracing, None);
        assert_eq!(
            parsed("--otlp-endpoint", "http://collector:4318")?.tracing,
            Some(Tracing::to(collector()))
        );
        let line = "sluicegate serve --manifests x --otlp-endpoint http://collector:4318 --trace-sample-percent 0.5 \
                    --trace-followed-per-second 0 --trace-service-name edge";
        let Command::Serve(args) = Cli::try_parse_from(line.split_whitespace())?.command else {
            unreachable!("it is serve")
        };
        let wanted = Tracing {
            sample_percent: 0.5,
            followed_per_second: 0,
            service_name: "edge".into(),
            ..Tracing::to(collector())
        };
        assert_eq!(args.settings.settings().tracing, Some(wanted));
        Ok(())
    }

    #[test]
    fn compression_options_accept_codings_in_order_and_media_types() -> Result<(), clap::Error> {
        let codings = |value| parsed("--compression", value).map(|all| all.compression.codings.to_string());
        assert_eq!(codings("zstd,br, gzip")?, "zstd, br, gzip");
        assert_eq!(codings("off")?, "off");
        let types = parsed("--compression-types", "text/*, Application/JSON")?.compression.types;
        assert_eq!(types.iter().map(ToString::to_string).collect::<Vec<_>>(), ["text/*", "application/json"]);
        assert_eq!(parsed("--compression-min-length", "1k")?.compression.min_length, 1024);
        assert_eq!(parsed("--compression-br-level", "4")?.compression.levels.brotli.get(), 4);
        assert_eq!(parsed("--max-compressions-per-worker", "0")?.limits.compressions_per_worker, 0);
        Ok(())
    }

    #[test]
    fn size_options_accept_the_units_of_nginx_and_kubernetes() {
        assert_eq!(size("512"), Ok(512));
        assert_eq!(size("64k"), Ok(65_536));
        assert_eq!(size("1Mi"), Ok(1_048_576));
        for wrong in ["", "k", "-1", "1.5m", "1x", "99999999999999999999", "18446744073709551615Ki"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
