//! Tracing: the traced requests, and the collector of their spans.

use std::fmt;
use std::str::FromStr;

use minicbor::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use crate::encoding::adapt::Parse;
use crate::encoding::bound::Share;
use crate::encoding::{Adapt as _, List, Parsed, Raw, Within};

/// The tracing of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Tracing {
    /// The collector that receives the spans.
    #[cbor(n(0), with = "Parsed")]
    pub collector: Collector,
    /// The CA certificates to trust for a collector with TLS. Empty: the public CA certificates.
    #[serde(skip)]
    #[cbor(n(1), with = "List::<Raw>")]
    pub authorities: Vec<CertificateDer<'static>>,
    /// The percentage of traced requests among the requests without a trace of their own, 0 to 100.
    #[cbor(n(2), with = "Within::<Share>")]
    pub sample_percent: f64,
    /// The requests per second, over all workers, that the gateway traces because their caller traces them (the `sampled`
    /// flag of `traceparent`). Further requests continue without a span of the gateway. 0: none.
    #[n(3)]
    pub followed_per_second: u32,
    /// The gateway's name in traces (`service.name`).
    #[n(4)]
    pub service_name: Box<str>,
}

impl Tracing {
    /// The default of [`sample_percent`](Self::sample_percent) (ingress-nginx `otel-sampler-ratio` and Kong
    /// `tracing_sampling_rate` have the same).
    pub const SAMPLE_PERCENT: f64 = 1.0;
    /// The default of [`followed_per_second`](Self::followed_per_second).
    pub const FOLLOWED_PER_SECOND: u32 = 100;
    /// The default of [`service_name`](Self::service_name).
    pub const SERVICE_NAME: &'static str = "sluicegate";

    /// Tracing to this collector, with the defaults.
    #[must_use]
    pub fn to(collector: Collector) -> Self {
        Self {
            collector,
            authorities: Vec::new(),
            sample_percent: Self::SAMPLE_PERCENT,
            followed_per_second: Self::FOLLOWED_PER_SECOND,
            service_name: Self::SERVICE_NAME.into(),
        }
    }
}

/// The URL of a collector that accepts OTLP over HTTP, such as `http://collector:4318`. The gateway sends spans to the URL's
/// path and `/v1/traces` (OpenTelemetry Protocol Exporter, "Endpoint URLs for OTLP/HTTP").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Whether the gateway uses TLS to the collector.
    pub is_tls: bool,
    /// The collector's name or address; an IPv6 address without brackets.
    pub host: Box<str>,
    /// The collector's port. Default: the port of the scheme.
    pub port: u16,
    /// The path in the URL, without a slash at the end.
    pub path: Box<str>,
}

/// The fault in the URL of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectorFault {
    /// The scheme is neither `http` nor `https`.
    Scheme,
    /// The URL names a user. All readers of the configuration could read the password.
    User,
    /// The host is missing, or has invalid characters.
    Host,
    /// The port is invalid.
    Port,
    /// The path has invalid characters, or the URL has a query or a fragment.
    Path,
}

impl fmt::Display for CollectorFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Scheme => "it has to begin with http:// or https://, as in http://collector:4318",
            Self::User => "it may not name a user: everybody who reads the configuration would read the password",
            Self::Host => "its host is not a name or an address, as in http://collector:4318",
            Self::Port => "its port is not a number from 1 to 65535",
            Self::Path => "its path has a character that is not for paths; /v1/traces is added to it, and it has no query",
        })
    }
}

impl std::error::Error for CollectorFault {}

impl Parse for Collector {
    const FIELD: &'static str = "the collector of spans";
}

impl FromStr for Collector {
    type Err = CollectorFault;

    fn from_str(text: &str) -> Result<Self, CollectorFault> {
        let (scheme, rest) = text.split_once("://").ok_or(CollectorFault::Scheme)?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(CollectorFault::Scheme),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(CollectorFault::User);
        }
        let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(&byte);
        if !path.bytes().all(is_path) {
            return Err(CollectorFault::Path);
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(CollectorFault::Host)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| CollectorFault::Host)?;
                (host, port)
            }
            None => {
                let (host, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
                let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                if host.is_empty() || host.len() > 253 || !host.bytes().all(is_name) {
                    return Err(CollectorFault::Host);
                }
                (host, port)
            }
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(CollectorFault::Port)?,
            None if port.is_empty() => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
            None => return Err(CollectorFault::Port),
        };
        Ok(Self { is_tls, host: host.into(), port, path: path.trim_end_matches('/').into() })
    }
}

/// The URL, always with the port.
impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_tls, host, port, path } = self;
        let scheme = if *is_tls { "https" } else { "http" };
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}{path}"),
            false => write!(f, "{scheme}://{host}:{port}{path}"),
        }
    }
}

impl Serialize for Collector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, CollectorFault> {
        text.parse().map(|collector: Collector| collector.to_string())
    }

    #[test]
    fn collector_url_may_have_only_scheme_host_port_and_path() {
        for (text, is) in [
            ("http://collector:4318", "http://collector:4318"),
            ("http://collector", "http://collector:80"),
            ("HTTPS://otel.example.com", "https://otel.example.com:443"),
            ("https://otel.example.com/otlp/", "https://otel.example.com:443/otlp"),
            ("http://[2001:db8::1]:4318/", "http://[2001:db8::1]:4318"),
            ("http://10.0.0.1:1", "http://10.0.0.1:1"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(is), "{text}");
            assert_eq!(parsed(is).as_deref(), Ok(is), "{is}");
        }
        for (text, fault) in [
            ("collector:4318", CollectorFault::Scheme),
            ("grpc://collector:4317", CollectorFault::Scheme),
            ("http://", CollectorFault::Host),
            ("http:///v1", CollectorFault::Host),
            ("http://a b", CollectorFault::Host),
            ("http://[::1", CollectorFault::Host),
            ("http://[collector]:1", CollectorFault::Host),
            ("http://me:secret@collector", CollectorFault::User),
            ("http://collector:", CollectorFault::Port),
            ("http://collector:0", CollectorFault::Port),
            ("http://collector:65536", CollectorFault::Port),
            ("http://[::1]4318", CollectorFault::Port),
            ("http://collector/?key=secret", CollectorFault::Path),
            ("http://collector#x", CollectorFault::Path),
            ("http://collector/a\r\nX: y", CollectorFault::Path),
        ] {
            assert_eq!(parsed(text), Err(fault), "{text}");
        }
    }
}
