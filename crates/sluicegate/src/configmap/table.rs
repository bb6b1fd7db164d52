//! The keys of other controllers: ingress-nginx, the NGINX Ingress Controller, and earlier versions of Sluicegate.

/// The meaning of a key of another controller's ConfigMap.
#[derive(Clone, Copy, Debug)]
pub(super) enum Means {
    /// This option, with the same value.
    Option(&'static str),
    /// These options. A number without a unit is in seconds, as in nginx.
    Time(&'static [&'static str]),
    /// This option, with a list of media types, and `text/html`. The key separates types by spaces.
    Types(&'static str),
    /// This option, with this value, for a `true`. A `false` has no effect.
    Choice(&'static str, &'static str),
    /// Options that follow from the value. The text describes them.
    Of(
        Read,
        #[cfg_attr(not(test), expect(dead_code, reason = "a test writes the reference page"))] &'static str,
    ),
    /// No option is necessary for this value. For other values, the text names the alternative.
    Is(&'static str, &'static str),
    /// No option is necessary. The text gives the reason.
    Harmless(
        #[cfg_attr(not(test), expect(dead_code, reason = "a test writes the reference page"))] &'static str,
    ),
    /// No option. The text names the alternative.
    Otherwise(&'static str),
}

/// From a value to options with values. The error is the rest of a sentence about the key.
type Read = fn(&str) -> Result<Vec<(&'static str, String)>, String>;

use Means::{Choice, Harmless, Is, Of, Option as Same, Otherwise, Time, Types};

/// The meaning of a key.
pub(super) fn foreign(key: &str) -> Option<Means> {
    let place = FOREIGN.binary_search_by_key(&key, |(name, _)| name).ok()?;
    Some(FOREIGN[place].1)
}

const HASHES: &str = "The gateway has no hash tables of a fixed size.";
const LOGS: &str = "set --access-log and --access-log-format on the command line";
const SNIPPET: &str = "the gateway runs no configuration of nginx; use options, policies and annotations";
const FIREWALL: &str = "the gateway has no web application firewall; run one in front of the Services";
const JAEGER: &str = "set otlp-endpoint to send traces by OTLP";
const GEO: &str =
    "the gateway has no database of places; let a proxy in front of the gateway add the place as a header";
const SYSLOG: &str = "write the access log to standard output (--access-log -), and let an agent collect it";
const OLD_LIMITS: &str = "write a RateLimitPolicy with a shared count";

pub(super) const FOREIGN: &[(&str, Means)] = &[
    ("access-log-params", Otherwise(LOGS)),
    ("access-log-path", Otherwise(LOGS)),
    ("bind-address", Otherwise("set --listen and --listen-https on the command line")),
    ("brotli-level", Of(brotli_level, "`--compression-br-level`, at most 4.")),
    ("brotli-min-length", Same("compression-min-length")),
    ("brotli-types", Types("compression-types")),
    ("client-body-timeout", Time(&["request-body-timeout"])),
    ("client-header-buffer-size", Harmless("The buffer grows up to `--max-request-head`.")),
    ("client-header-timeout", Time(&["request-head-timeout"])),
    ("client-max-body-size", Same("max-request-body")),
    ("compute-full-forwarded-for", Otherwise("the gateway appends to X-Forwarded-For of trusted proxies")),
    ("debug-connections", Otherwise("set --log debug on the command line")),
    ("default-type", Otherwise("let the Services state the media type")),
    ("disable-access-log", Is("true", LOGS)),
    ("disable-http-access-log", Is("true", LOGS)),
    ("disable-ipv6", Is("true", "add an IPv6 address as --listen on the command line")),
    ("disable-ipv6-dns", Is("false", "the resolver of the system decides about IPv6")),
    ("disable-stream-access-log", Is("true", LOGS)),
    ("enable-access-log-for-default-backend", Otherwise(LOGS)),
    ("enable-aio-write", Harmless("The gateway writes no temporary files.")),
    ("enable-auth-access-log", Is("false", "the access log has no lines for authorization services")),
    ("enable-brotli", Choice("compression", "br")),
    ("enable-modsecurity", Is("false", FIREWALL)),
    ("enable-multi-accept", Harmless("Each worker accepts all waiting connections.")),
    (
        "enable-ocsp",
        Is("false", "the gateway staples no OCSP responses; use certificates with a short lifetime"),
    ),
    ("enable-opentelemetry", Is("false", "set otlp-endpoint to send traces")),
    ("enable-opentracing", Is("false", JAEGER)),
    ("enable-owasp-modsecurity-crs", Is("false", FIREWALL)),
    ("enable-real-ip", Otherwise("write the trusted networks as trusted-proxies")),
    ("enable-serial-reloads", Harmless("The gateway applies changes without a reload.")),
    ("enable-syslog", Is("false", SYSLOG)),
    ("enable-underscores-in-headers", Same("underscores-in-headers")),
    ("error-log-level", Otherwise("set --log on the command line")),
    ("error-log-path", Harmless("The log goes to standard error.")),
    (
        "forwarded-for-header",
        Is(
            "X-Forwarded-For",
            "the gateway reads client IPs from X-Forwarded-For; let the trusted proxies write this header",
        ),
    ),
    ("generate-request-id", Is("true", "every request has an X-Request-ID")),
    ("global-rate-limit-memcached-connect-timeout", Otherwise(OLD_LIMITS)),
    ("global-rate-limit-memcached-host", Otherwise(OLD_LIMITS)),
    ("global-rate-limit-memcached-max-idle-timeout", Otherwise(OLD_LIMITS)),
    ("global-rate-limit-memcached-pool-size", Otherwise(OLD_LIMITS)),
    ("global-rate-limit-memcached-port", Otherwise(OLD_LIMITS)),
    ("global-rate-limit-status-code", Otherwise(OLD_LIMITS)),
    ("grpc-buffer-size-kb", Harmless("The gateway streams gRPC with bounded buffers.")),
    ("gzip-disable", Otherwise("clients without gzip send no Accept-Encoding; remove the key")),
    ("gzip-level", Same("compression-gzip-level")),
    ("gzip-min-length", Same("compression-min-length")),
    ("gzip-types", Types("compression-types")),
    ("hsts", Otherwise("set hsts-max-age to send the header")),
    ("http-access-log-path", Otherwise(LOGS)),
    ("http-snippet", Otherwise(SNIPPET)),
    ("http2-max-field-size", Otherwise("write the limit as max-request-head")),
    ("http2-max-header-size", Otherwise("write the limit as max-request-head")),
    ("http2-max-requests", Same("max-requests-per-connection")),
    ("ignore-invalid-headers", Is("false", "the gateway responds with 400 to headers with an invalid name")),
    ("jaeger-collector-host", Otherwise(JAEGER)),
    ("jaeger-endpoint", Otherwise(JAEGER)),
    ("jaeger-service-name", Otherwise("write the name as trace-service-name")),
    (
        "keep-alive",
        Of(keep_alive, "`--client-idle-timeout`. `0`: a connection closes after its first response."),
    ),
    (
        "keep-alive-requests",
        Of(
            keep_alive_requests,
            "`--max-requests-per-connection`. `0`: a connection closes after its first response.",
        ),
    ),
    ("keepalive", Same("pool-size")),
    ("keepalive-requests", Same("max-requests-per-connection")),
    ("keepalive-timeout", Time(&["client-idle-timeout"])),
    ("large-client-header-buffers", Otherwise("write the limit as max-request-head")),
    ("load-balance", Otherwise("write the annotation sluicegate.dev/load-balance on the Service")),
    ("log-format-escape-json", Otherwise(LOGS)),
    ("log-format-escape-none", Otherwise(LOGS)),
    (
        "log-format-stream",
        Otherwise("lines about TCP and UDP have a fixed form; set access-log-format on the command line"),
    ),
    ("log-format-upstream", Otherwise(LOGS)),
    ("lua-shared-dicts", Harmless("The gateway has no Lua.")),
    ("main-snippet", Otherwise(SNIPPET)),
    ("map-hash-bucket-size", Harmless(HASHES)),
    ("max-worker-connections", Of(worker_connections, "`--max-connections-per-worker`. `0`: the default.")),
    ("max-worker-open-files", Otherwise("a process may open files up to its hard limit")),
    ("modsecurity-snippet", Otherwise(FIREWALL)),
    ("nginx-status-ipv4-whitelist", Harmless("The admin interface has an address of its own (`--admin`).")),
    ("nginx-status-ipv6-whitelist", Harmless("The admin interface has an address of its own (`--admin`).")),
    ("opentelemetry-config", Otherwise("set the options of traces")),
    ("opentelemetry-operation-name", Otherwise("the name of a span is the method and the path of the rule")),
    (
        "opentelemetry-trust-incoming-span",
        Is("true", "set trace-followed-per-second: 0 to follow no traces of clients"),
    ),
    ("otel-max-export-batch-size", Harmless("The gateway sends spans in bounded batches.")),
    ("otel-max-queuesize", Harmless("The gateway has a bounded queue of spans.")),
    ("otel-sampler", Otherwise("write the percentage as trace-sample-percent")),
    (
        "otel-sampler-parent-based",
        Is("true", "set trace-followed-per-second: 0 to follow no traces of clients"),
    ),
    ("otel-sampler-ratio", Otherwise("write the ratio times 100 as trace-sample-percent")),
    ("otel-schedule-delay-millis", Harmless("The gateway sends spans within seconds.")),
    ("otel-service-name", Same("trace-service-name")),
    ("otlp-collector-host", Otherwise("write otlp-endpoint: http://HOST:4318, for OTLP over HTTP")),
    ("otlp-collector-port", Otherwise("write otlp-endpoint: http://HOST:4318, for OTLP over HTTP")),
    ("plugins", Otherwise("the gateway has no Lua; use an authorization service")),
    ("proxy-add-original-uri-header", Is("false", "add X-Original-Uri with proxy-set-headers")),
    ("proxy-body-size", Same("max-request-body")),
    ("proxy-buffering", Otherwise("the gateway always streams responses, with bounded buffers")),
    ("proxy-connect-timeout", Time(&["connect-timeout"])),
    ("proxy-headers-hash-bucket-size", Harmless(HASHES)),
    ("proxy-headers-hash-max-size", Harmless(HASHES)),
    ("proxy-next-upstream", Otherwise("the gateway always retries requests that are safe to repeat")),
    ("proxy-next-upstream-tries", Same("attempts")),
    ("proxy-protocol", Otherwise("write the networks of the load balancers as proxy-protocol-peers")),
    ("proxy-protocol-header-timeout", Time(&["proxy-protocol-timeout"])),
    ("proxy-read-timeout", Time(&["response-timeout"])),
    ("proxy-real-ip-cidr", Same("trusted-proxies")),
    (
        "proxy-request-buffering",
        Otherwise("the gateway always streams requests; replay-buffer sets what it stores for retries"),
    ),
    ("proxy-send-timeout", Time(&["upstream-idle-timeout"])),
    ("proxy-ssl-location-only", Harmless("`proxy-ssl-*` applies to the paths of its own Ingress.")),
    (
        "proxy-stream-next-upstream",
        Is("true", "the gateway always connects to another endpoint if a connect fails"),
    ),
    ("proxy-stream-next-upstream-timeout", Otherwise("set connect-timeout and endpoint-wait")),
    ("proxy-stream-next-upstream-tries", Otherwise("write the number as attempts")),
    (
        "proxy-stream-responses",
        Harmless("The gateway forwards every datagram of an endpoint until `--udp-idle-timeout`."),
    ),
    ("proxy-stream-timeout", Time(&["tunnel-idle-timeout", "udp-idle-timeout"])),
    ("reuse-port", Harmless("Each worker has a socket of its own.")),
    ("server-name-hash-bucket-size", Harmless(HASHES)),
    ("server-name-hash-max-size", Harmless(HASHES)),
    ("set-real-ip-from", Same("trusted-proxies")),
    ("skip-access-log-urls", Otherwise("write the annotation enable-access-log on the Ingresses")),
    ("ssl-buffer-size", Harmless("The gateway sends small TLS records first.")),
    ("ssl-dh-param", Otherwise("the gateway offers no finite-field Diffie-Hellman; remove the key")),
    ("ssl-early-data", Is("false", "the gateway accepts no early data, because an attacker could replay it")),
    ("ssl-ecdh-curve", Is("auto", "the gateway offers X25519, P-256 and P-384; remove the key")),
    ("ssl-protocols", Of(protocols, "`--tls-min-version`: `TLSv1.2 TLSv1.3` or `TLSv1.3`.")),
    ("ssl-reject-handshake", Choice("tls-unknown-names", "refuse")),
    ("ssl-session-cache", Is("true", "the gateway resumes sessions by tickets")),
    ("ssl-session-cache-size", Harmless("The gateway resumes sessions by tickets.")),
    (
        "ssl-session-ticket-key",
        Otherwise("put the keys into a Secret, and set --tls-ticket-secret on the command line"),
    ),
    (
        "ssl-session-tickets",
        Is("true", "the gateway resumes sessions by tickets, with a key that it makes at start"),
    ),
    ("ssl-session-timeout", Otherwise("tickets of sessions have a fixed lifetime; remove the key")),
    ("stream-access-log-path", Otherwise("the access log is one file; set access-log on the command line")),
    ("stream-snippet", Otherwise(SNIPPET)),
    ("syslog-host", Otherwise(SYSLOG)),
    ("syslog-port", Otherwise(SYSLOG)),
    ("trusted-peers", Otherwise("write the trusted networks as trusted-proxies")),
    ("upstream-keepalive-connections", Same("pool-size")),
    ("upstream-keepalive-requests", Otherwise("connections to endpoints have no limit of requests")),
    (
        "upstream-keepalive-time",
        Otherwise("connections to endpoints have no limit of age; set pool-idle-timeout"),
    ),
    ("upstream-keepalive-timeout", Time(&["pool-idle-timeout"])),
    ("use-forwarded-headers", Otherwise("write the trusted networks as trusted-proxies")),
    ("use-geoip", Is("false", GEO)),
    ("use-geoip2", Is("false", GEO)),
    ("use-gzip", Choice("compression", "gzip")),
    ("use-http2", Is("true", "HTTP/2 is always on for clients that ask for it")),
    ("use-proxy-protocol", Otherwise("write the networks of the load balancers as proxy-protocol-peers")),
    ("variables-hash-bucket-size", Harmless(HASHES)),
    ("variables-hash-max-size", Harmless(HASHES)),
    ("worker-connections", Same("max-connections-per-worker")),
    ("worker-cpu-affinity", Otherwise("set --workers on the command line")),
    ("worker-processes", Is("auto", "set --workers on the command line")),
    ("worker-rlimit-nofile", Otherwise("a process may open files up to its hard limit")),
    ("worker-shutdown-timeout", Otherwise("set --shutdown-timeout on the command line")),
];

/// A number of seconds, or a time with a unit.
pub(super) fn seconds(value: &str) -> String {
    match value.parse::<u64>() {
        Ok(number) => format!("{number}s"),
        Err(_) => value.to_owned(),
    }
}

/// `keepalive_timeout` of nginx: 0 closes a connection after its response.
fn keep_alive(value: &str) -> Result<Vec<(&'static str, String)>, String> {
    Ok(vec![match value {
        "0" => ("max-requests-per-connection", "1".to_owned()),
        _ => ("client-idle-timeout", seconds(value)),
    }])
}

/// `keepalive_requests` of nginx: 0 closes a connection after its response.
fn keep_alive_requests(value: &str) -> Result<Vec<(&'static str, String)>, String> {
    let requests = if value == "0" { "1" } else { value };
    Ok(vec![("max-requests-per-connection", requests.to_owned())])
}

fn worker_connections(value: &str) -> Result<Vec<(&'static str, String)>, String> {
    Ok(match value {
        "0" => Vec::new(),
        _ => vec![("max-connections-per-worker", value.to_owned())],
    })
}

fn brotli_level(value: &str) -> Result<Vec<(&'static str, String)>, String> {
    let level: u8 =
        value.parse().map_err(|_| format!("is ignored: {value:?} is not a level from 0 to 11"))?;
    Ok(vec![("compression-br-level", level.clamp(1, 4).to_string())])
}

/// `ssl_protocols` of nginx.
fn protocols(value: &str) -> Result<Vec<(&'static str, String)>, String> {
    let mut words: Vec<&str> = value.split_whitespace().collect();
    words.sort_unstable();
    words.dedup();
    match &words[..] {
        ["TLSv1.2", "TLSv1.3"] => Ok(vec![("tls-min-version", "1.2".to_owned())]),
        ["TLSv1.3"] => Ok(vec![("tls-min-version", "1.3".to_owned())]),
        _ => Err(format!("is ignored: {value:?} is not supported. Write TLSv1.2 TLSv1.3, or TLSv1.3")),
    }
}
