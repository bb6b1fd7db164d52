//! Annotations without an effect, and annotations that the gateway refuses.

use super::Meaning::{Harmless, Refused};
use super::Row;

/// An annotation that needs no setting, and the reason.
const fn harmless(name: &'static str, reason: &'static str) -> Row {
    Row { name, restricts: false, meaning: Harmless, sets: reason, default: "" }
}

/// An annotation that the gateway does not support, the reason, and what to write instead.
const fn refused(name: &'static str, reason: &'static str, instead: &'static str) -> Row {
    Row { name, restricts: false, meaning: Refused(instead), sets: reason, default: "" }
}

/// A refused annotation that may restrict access.
const fn closing(name: &'static str, reason: &'static str, instead: &'static str) -> Row {
    Row { restricts: true, ..refused(name, reason, instead) }
}

pub(super) const ROWS: &[Row] = &[
    harmless("http2-push-preload", "Browsers have removed HTTP/2 push."),
    harmless("auth-keepalive", "The gateway always keeps connections to authorization services open."),
    harmless(
        "auth-keepalive-requests",
        "The gateway always keeps connections to authorization services open.",
    ),
    harmless("auth-keepalive-share-vars", "The gateway has no variables that a check could change."),
    harmless(
        "auth-keepalive-timeout",
        "The gateway always keeps connections to authorization services open.",
    ),
    harmless("enable-rewrite-log", "The gateway has no log of rewrites. `sluicegate check` shows the rules."),
    harmless("proxy-busy-buffers-size", "The gateway streams responses with bounded buffers."),
    harmless("ssl-prefer-server-ciphers", "The gateway always prefers its own order of ciphers."),
    harmless("enable-websockets", "WebSocket needs no annotation."),
    harmless("session-cookie-hash", "ingress-nginx removed the annotation; the cookie has no readable hash."),
    closing(
        "auth-snippet",
        "The gateway runs no configuration of nginx.",
        "Write headers for the authorization service as `auth-proxy-set-headers`.",
    ),
    refused(
        "stream-snippet",
        "The gateway runs no configuration of nginx.",
        "Write a TCPRoute or a UDPRoute.",
    ),
    refused(
        "server-snippets",
        "ingress-nginx calls the annotation `server-snippet`.",
        "Write `server-snippet`.",
    ),
    refused(
        "fastcgi-index",
        "The gateway does not speak FastCGI.",
        "Put an HTTP server in front of FastCGI.",
    ),
    refused(
        "fastcgi-params-configmap",
        "The gateway does not speak FastCGI.",
        "Put an HTTP server in front of FastCGI.",
    ),
    refused(
        "enable-modsecurity",
        "The gateway has no web application firewall.",
        "Run a web application firewall in front of the Service.",
    ),
    refused(
        "enable-owasp-core-rules",
        "The gateway has no web application firewall.",
        "Run a web application firewall in front of the Service.",
    ),
    refused(
        "modsecurity-snippet",
        "The gateway has no web application firewall.",
        "Run a web application firewall in front of the Service.",
    ),
    refused(
        "modsecurity-transaction-id",
        "The gateway has no web application firewall.",
        "Run a web application firewall in front of the Service.",
    ),
    closing(
        "global-rate-limit",
        "ingress-nginx 1.15 has no global rate limits.",
        "Write a RateLimitPolicy with a shared count.",
    ),
    closing(
        "global-rate-limit-window",
        "ingress-nginx 1.15 has no global rate limits.",
        "Write a RateLimitPolicy with a shared count.",
    ),
    closing(
        "global-rate-limit-key",
        "ingress-nginx 1.15 has no global rate limits.",
        "Write a RateLimitPolicy with a shared count.",
    ),
    closing(
        "global-rate-limit-ignored-cidrs",
        "ingress-nginx 1.15 has no global rate limits.",
        "Write a RateLimitPolicy with a shared count.",
    ),
    refused("enable-opentracing", "ingress-nginx 1.15 has no OpenTracing.", "Write `enable-opentelemetry`."),
    refused(
        "opentracing-trust-incoming-span",
        "ingress-nginx 1.15 has no OpenTracing.",
        "Write `opentelemetry-trust-incoming-span`.",
    ),
    refused(
        "enable-influxdb",
        "ingress-nginx 1.15 has no InfluxDB module.",
        "Read the metrics of the gateway with Prometheus.",
    ),
    refused(
        "secure-backends",
        "ingress-nginx 1.15 ignores the annotation.",
        "Write `backend-protocol: HTTPS`.",
    ),
    refused("grpc-backend", "ingress-nginx 1.15 ignores the annotation.", "Write `backend-protocol: GRPC`."),
    refused(
        "add-base-url",
        "ingress-nginx 1.15 ignores the annotation.",
        "Let the application write its base URL.",
    ),
];
