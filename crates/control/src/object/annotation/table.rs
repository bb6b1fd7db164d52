//! The annotations of Sluicegate, as one table.
//!
//! A row gives an annotation its name, its objects, the parser of its values with the setting that they change, and the
//! texts of the reference page. A new annotation needs a row, a field of [`Settings`], and the code that uses the
//! field.

use sluicegate_model::{Balance, ClientAuthMode, Codings, ProxyProtocol};

use super::super::backend::Protocol;
use super::super::{Kind, ObjectRef};

/// An annotation.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// The kinds of objects on which it has an effect.
    pub(super) kinds: &'static [Kind],
    pub(super) value: Value,
    /// The effect of the annotation, as a sentence of the reference page.
    pub(super) sets: &'static str,
    /// The value without the annotation; empty if there is none.
    pub(super) default: &'static str,
    /// The name of the annotation of ingress-nginx with the same purpose.
    pub(super) ingress_nginx: Option<&'static str>,
}

/// The type of an annotation's values, and the setting that a value changes.
pub(super) enum Value {
    /// `true` or `false`.
    Switch(fn(&mut Settings, bool)),
    /// One of several words.
    Words {
        words: &'static [Word],
        /// The word that an invalid value stands for; `None` if an invalid value changes nothing.
        otherwise: Option<&'static str>,
    },
    /// An object of the same namespace: `name`, or `namespace/name`. The setting is `None` for an invalid value.
    Object {
        kind: Kind,
        set: fn(&mut Settings, Option<ObjectRef>),
        /// The consequence of an invalid value; empty if there is none beside the error.
        consequence: &'static str,
    },
    /// A number from 1 to [`u32::MAX`]; no limit without the annotation.
    Limit(fn(&mut Settings, u32)),
    /// A number from 0 to [`u32::MAX`].
    Number(fn(&mut Settings, u32)),
    /// A DNS name or an IP address.
    Name(fn(&mut Settings, Box<str>)),
    /// Codings in the order of preference, or `off`. An invalid value is `off`: no other value was requested.
    Codings(fn(&mut Settings, Codings)),
    /// The gateway writes the annotation.
    Report,
}

/// A value with a meaning.
pub(super) struct Word {
    pub(super) word: &'static str,
    pub(super) set: fn(&mut Settings),
    /// The meaning on the reference page.
    pub(super) means: &'static str,
    /// Names of the value in other gateways.
    pub(super) elsewhere: &'static [&'static str],
}

/// The settings of the annotations of an object.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) ssl_redirect: Option<bool>,
    pub(crate) force_ssl_redirect: bool,
    pub(crate) ssl_passthrough: bool,
    /// `Some(None)` for an invalid reference.
    pub(crate) auth_tls_secret: Option<Option<ObjectRef>>,
    /// `Some(None)` for an invalid reference.
    pub(crate) auth_tls_configmap: Option<Option<ObjectRef>>,
    pub(crate) auth_tls_verify_client: Option<Verify>,
    pub(crate) auth_tls_pass_certificate: bool,
    pub(crate) compression: Option<Codings>,
    pub(crate) backend_protocol: Option<Protocol>,
    pub(crate) proxy_ssl_secret: Option<ObjectRef>,
    pub(crate) proxy_ssl_verify: Option<bool>,
    pub(crate) proxy_ssl_name: Option<Box<str>>,
    pub(crate) proxy_ssl_server_name: Option<bool>,
    pub(crate) load_balance: Option<Balance>,
    pub(crate) max_requests: Option<u32>,
    pub(crate) max_requests_per_endpoint: Option<u32>,
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    pub(crate) acme: bool,
    /// The priority of a route; 0 without the annotation.
    pub(crate) priority: u32,
}

/// The requirement of client certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    Off,
    On(ClientAuthMode),
}

pub(crate) const ACME: &str = "sluicegate.dev/acme";
pub(crate) const SSL_PASSTHROUGH: &str = "sluicegate.dev/ssl-passthrough";
pub(crate) const AUTH_TLS_SECRET: &str = "sluicegate.dev/auth-tls-secret";
pub(crate) const AUTH_TLS_CONFIGMAP: &str = "sluicegate.dev/auth-tls-configmap";
pub(crate) const AUTH_TLS_VERIFY_CLIENT: &str = "sluicegate.dev/auth-tls-verify-client";
pub(crate) const AUTH_TLS_PASS_CERTIFICATE: &str = "sluicegate.dev/auth-tls-pass-certificate-to-upstream";
pub(crate) const BACKEND_PROTOCOL: &str = "sluicegate.dev/backend-protocol";
pub(crate) const PROXY_SSL_SECRET: &str = "sluicegate.dev/proxy-ssl-secret";
pub(crate) const PROXY_SSL_VERIFY: &str = "sluicegate.dev/proxy-ssl-verify";
pub(crate) const PROXY_SSL_NAME: &str = "sluicegate.dev/proxy-ssl-name";
pub(crate) const PROXY_SSL_SERVER_NAME: &str = "sluicegate.dev/proxy-ssl-server-name";
pub(crate) const PROXY_PROTOCOL: &str = "sluicegate.dev/proxy-protocol";
pub(crate) const PRIORITY: &str = "sluicegate.dev/priority";
pub(crate) const PROBLEMS: &str = "sluicegate.dev/problems";
pub(crate) const GATEWAY: &str = "sluicegate.dev/gateway";

const INGRESS: &[Kind] = &[Kind::Ingress];
const SERVICE: &[Kind] = &[Kind::Service];
const BOTH: &[Kind] = &[Kind::Ingress, Kind::Service];

/// The annotations, in the order of the reference page.
pub(super) const TABLE: &[Row] = &[
    Row {
        name: "sluicegate.dev/ssl-redirect",
        kinds: INGRESS,
        value: Value::Switch(|settings, value| settings.ssl_redirect = Some(value)),
        sets: "Redirects plain HTTP to HTTPS with 308, if the host has TLS.",
        default: "`true`, or `--ssl-redirect`",
        ingress_nginx: Some("ssl-redirect"),
    },
    Row {
        name: "sluicegate.dev/force-ssl-redirect",
        kinds: INGRESS,
        value: Value::Switch(|settings, value| settings.force_ssl_redirect = value),
        sets: "Redirects plain HTTP also if TLS ends before Sluicegate.",
        default: "`false`",
        ingress_nginx: Some("force-ssl-redirect"),
    },
    Row {
        name: SSL_PASSTHROUGH,
        kinds: INGRESS,
        value: Value::Switch(|settings, value| settings.ssl_passthrough = value),
        sets: "Forwards TLS for the hosts to the Service, without decryption.",
        default: "`false`",
        ingress_nginx: Some("ssl-passthrough"),
    },
    Row {
        name: ACME,
        kinds: &[Kind::Ingress, Kind::Gateway],
        value: Value::Switch(|settings, value| settings.acme = value),
        sets: "Orders the certificates of the object from an [ACME server](../routing/acme.md).",
        default: "`false`",
        ingress_nginx: None,
    },
    Row {
        name: AUTH_TLS_SECRET,
        kinds: INGRESS,
        value: Value::Object {
            kind: Kind::Secret,
            set: |settings, secret| settings.auth_tls_secret = Some(secret),
            consequence: "every client is rejected",
        },
        sets: "CA certificates (`ca.crt`) and revocations (`ca.crl`) for client certificates.",
        default: "",
        ingress_nginx: Some("auth-tls-secret"),
    },
    Row {
        name: AUTH_TLS_CONFIGMAP,
        kinds: INGRESS,
        value: Value::Object {
            kind: Kind::ConfigMap,
            set: |settings, map| settings.auth_tls_configmap = Some(map),
            consequence: "every client is rejected",
        },
        sets: "As `auth-tls-secret`, but from a ConfigMap.",
        default: "",
        ingress_nginx: None,
    },
    Row {
        name: AUTH_TLS_VERIFY_CLIENT,
        kinds: INGRESS,
        value: Value::Words {
            words: &[
                Word {
                    word: "AllowValidOnly",
                    set: |settings| {
                        settings.auth_tls_verify_client = Some(Verify::On(ClientAuthMode::Required));
                    },
                    means: "The client needs a valid certificate.",
                    elsewhere: &["on"],
                },
                Word {
                    word: "optional",
                    set: |settings| {
                        settings.auth_tls_verify_client = Some(Verify::On(ClientAuthMode::Optional));
                    },
                    means: "The client needs a valid certificate or none.",
                    elsewhere: &[],
                },
                Word {
                    word: "AllowInsecureFallback",
                    set: |settings| {
                        settings.auth_tls_verify_client = Some(Verify::On(ClientAuthMode::OptionalNoCa));
                    },
                    means: "Every client may connect. Endpoints receive the result of the verification.",
                    elsewhere: &["optional_no_ca"],
                },
                Word {
                    word: "off",
                    set: |settings| settings.auth_tls_verify_client = Some(Verify::Off),
                    means: "The gateway asks for no certificate.",
                    elsewhere: &[],
                },
            ],
            otherwise: Some("AllowValidOnly"),
        },
        sets: "The requirement of client certificates.",
        default: "`AllowValidOnly`",
        ingress_nginx: Some("auth-tls-verify-client"),
    },
    Row {
        name: AUTH_TLS_PASS_CERTIFICATE,
        kinds: INGRESS,
        value: Value::Switch(|settings, value| settings.auth_tls_pass_certificate = value),
        sets: "Sends the client certificate to endpoints in `ssl-client-cert`.",
        default: "`false`",
        ingress_nginx: Some("auth-tls-pass-certificate-to-upstream"),
    },
    Row {
        name: "sluicegate.dev/compression",
        kinds: INGRESS,
        value: Value::Codings(|settings, codings| settings.compression = Some(codings)),
        sets: "The compression of responses.",
        default: "`--compression`",
        ingress_nginx: None,
    },
    Row {
        name: PROBLEMS,
        kinds: INGRESS,
        value: Value::Report,
        sets: "The problems of the Ingress.",
        default: "",
        ingress_nginx: None,
    },
    Row {
        name: BACKEND_PROTOCOL,
        kinds: BOTH,
        value: Value::Words {
            words: &[
                Word {
                    word: "HTTP",
                    set: |settings| settings.backend_protocol = Some(Protocol { http2: false, tls: false }),
                    means: "HTTP/1.1 in clear text.",
                    elsewhere: &[],
                },
                Word {
                    word: "HTTPS",
                    set: |settings| settings.backend_protocol = Some(Protocol { http2: false, tls: true }),
                    means: "HTTP/1.1 over TLS.",
                    elsewhere: &[],
                },
                Word {
                    word: "H2C",
                    set: |settings| settings.backend_protocol = Some(Protocol { http2: true, tls: false }),
                    means: "HTTP/2 in clear text.",
                    elsewhere: &[],
                },
                Word {
                    word: "H2",
                    set: |settings| settings.backend_protocol = Some(Protocol { http2: true, tls: true }),
                    means: "HTTP/2 over TLS.",
                    elsewhere: &[],
                },
                Word {
                    word: "GRPC",
                    set: |settings| settings.backend_protocol = Some(Protocol { http2: true, tls: false }),
                    means: "As `H2C`.",
                    elsewhere: &[],
                },
                Word {
                    word: "GRPCS",
                    set: |settings| settings.backend_protocol = Some(Protocol { http2: true, tls: true }),
                    means: "As `H2`.",
                    elsewhere: &[],
                },
            ],
            otherwise: Some("HTTP"),
        },
        sets: "The protocol to endpoints. The Ingress has precedence over the Service.",
        default: "`appProtocol` of the port, or `HTTP`",
        ingress_nginx: Some("backend-protocol"),
    },
    Row {
        name: PROXY_SSL_SECRET,
        kinds: BOTH,
        value: Value::Object {
            kind: Kind::Secret,
            set: |settings, secret| settings.proxy_ssl_secret = secret,
            consequence: "",
        },
        sets: "`ca.crt` and `ca.crl` verify endpoints. `tls.crt` and `tls.key` are the client certificate.",
        default: "",
        ingress_nginx: Some("proxy-ssl-secret"),
    },
    Row {
        name: PROXY_SSL_VERIFY,
        kinds: BOTH,
        value: Value::Switch(|settings, value| settings.proxy_ssl_verify = Some(value)),
        sets: "Verifies the certificates of endpoints.",
        default: "`true` if the Secret has a `ca.crt`",
        ingress_nginx: Some("proxy-ssl-verify"),
    },
    Row {
        name: PROXY_SSL_NAME,
        kinds: BOTH,
        value: Value::Name(|settings, name| settings.proxy_ssl_name = Some(name)),
        sets: "The name that certificates of endpoints must have.",
        default: "`SERVICE.NAMESPACE.svc`, or the external name",
        ingress_nginx: Some("proxy-ssl-name"),
    },
    Row {
        name: PROXY_SSL_SERVER_NAME,
        kinds: BOTH,
        value: Value::Switch(|settings, value| settings.proxy_ssl_server_name = Some(value)),
        sets: "Sends the name of `proxy-ssl-name` to endpoints in the TLS handshake (SNI).",
        default: "`true`",
        ingress_nginx: Some("proxy-ssl-server-name"),
    },
    Row {
        name: "sluicegate.dev/load-balance",
        kinds: SERVICE,
        value: Value::Words {
            words: &[
                Word {
                    word: "ResponseTime",
                    set: |settings| settings.load_balance = Some(Balance::Ewma),
                    means: "Of two random endpoints, the endpoint with the lower product of response time and requests in flight.",
                    elsewhere: &["ewma"],
                },
                Word {
                    word: "RoundRobin",
                    set: |settings| settings.load_balance = Some(Balance::RoundRobin),
                    means: "The endpoints in turn.",
                    elsewhere: &["round_robin"],
                },
                Word {
                    word: "LeastRequest",
                    set: |settings| settings.load_balance = Some(Balance::LeastRequest),
                    means: "Of two random endpoints, the endpoint with fewer requests in flight.",
                    elsewhere: &["least_request"],
                },
            ],
            otherwise: None,
        },
        sets: "The load balancing algorithm. A TrafficPolicy has precedence.",
        default: "`ResponseTime`",
        ingress_nginx: Some("load-balance"),
    },
    Row {
        name: "sluicegate.dev/max-requests",
        kinds: SERVICE,
        value: Value::Limit(|settings, limit| settings.max_requests = Some(limit)),
        sets: "Requests in flight at the Service. Further requests receive 503.",
        default: "no limit",
        ingress_nginx: None,
    },
    Row {
        name: "sluicegate.dev/max-requests-per-endpoint",
        kinds: SERVICE,
        value: Value::Limit(|settings, limit| settings.max_requests_per_endpoint = Some(limit)),
        sets: "Requests in flight at one endpoint. If all endpoints are full, requests receive 503.",
        default: "no limit",
        ingress_nginx: None,
    },
    Row {
        name: GATEWAY,
        kinds: SERVICE,
        value: Value::Report,
        sets: "The Gateway of a Service that the gateway created.",
        default: "",
        ingress_nginx: None,
    },
    Row {
        name: PROXY_PROTOCOL,
        kinds: SERVICE,
        value: Value::Words {
            words: &[
                Word {
                    word: "v1",
                    set: |settings| settings.proxy_protocol = Some(ProxyProtocol::V1),
                    means: "Version 1, a line of text.",
                    elsewhere: &[],
                },
                Word {
                    word: "v2",
                    set: |settings| settings.proxy_protocol = Some(ProxyProtocol::V2),
                    means: "Version 2, binary.",
                    elsewhere: &[],
                },
            ],
            otherwise: None,
        },
        sets: "Sends the client IP of TCP connections to endpoints. No effect on HTTP.",
        default: "not sent",
        ingress_nginx: None,
    },
    Row {
        name: PRIORITY,
        kinds: &[Kind::HttpRoute],
        value: Value::Number(|settings, priority| settings.priority = priority),
        sets: "The priority among the HTTPRoutes of a listener. Of several routes that match a request, the greatest priority decides, before hostnames, paths and age.",
        default: "`0`",
        ingress_nginx: None,
    },
];
