//! Connections to endpoints: load balancing, retries, the form of requests, and buffers.

use sluicegate_model::feature::LoadBalancingAlgorithm;
use sluicegate_model::feature::retries::RetryConditions;
use sluicegate_model::value::{Entries, HeaderValue, Number, Size, Timeout};

use super::Meaning::{Harmless, Sets};
use super::Row;
use super::proxy::timeout;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `load-balance`.
    pub(crate) algorithm: Option<LoadBalancingAlgorithm>,
    /// `service-upstream`.
    pub(crate) is_cluster_ip: bool,
    /// `proxy-next-upstream`: the conditions, and the statuses.
    pub(crate) next: Option<NextUpstream>,
    /// `proxy-next-upstream-tries`; 0 for no limit.
    pub(crate) tries: Option<u64>,
    /// `proxy-next-upstream-timeout`.
    pub(crate) next_timeout: Option<Timeout>,
    /// `retry-non-idempotent` of the ConfigMap.
    pub(crate) retries_non_idempotent: bool,
    /// `client-body-buffer-size`.
    pub(crate) body_buffer: Option<Size>,
    /// `proxy-request-buffering`.
    pub(crate) buffers_requests: Option<bool>,
    /// `compute-full-forwarded-for` of the ConfigMap.
    pub(crate) full_forwarded_for: bool,
    /// `proxy-http-version`: whether it is 1.0.
    pub(crate) is_http10: bool,
    /// `proxy-buffer-size`.
    pub(crate) response_head: Option<Size<1, { 1 << 30 }>>,
    /// `connection-proxy-header`.
    pub(crate) connection: Option<HeaderValue>,
}

/// `proxy-next-upstream`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NextUpstream {
    pub(crate) conditions: RetryConditions,
    pub(crate) codes: Entries<Number<u16, 400, 599>, 16>,
}

impl NextUpstream {
    /// The words of `proxy-next-upstream`.
    fn of(text: &str) -> Result<Self, String> {
        let mut conditions = RetryConditions {
            error: false,
            timeout: false,
            invalid_head: false,
            non_idempotent: false,
            within: None,
        };
        let mut codes = Vec::new();
        for word in text.split_whitespace() {
            match word {
                "error" => conditions.error = true,
                "timeout" => conditions.timeout = true,
                "invalid_header" => conditions.invalid_head = true,
                "non_idempotent" => conditions.non_idempotent = true,
                "http_403" | "http_404" | "http_429" | "http_500" | "http_502" | "http_503" | "http_504" => {
                    codes.push(Number::of(word["http_".len()..].parse().unwrap_or(500)));
                }
                // nginx ignores all other words then.
                "off" => {
                    conditions =
                        RetryConditions { error: false, timeout: false, invalid_head: false, ..conditions };
                    return Ok(Self { conditions, codes: Entries::default() });
                }
                _ => return Err(format!("{word:?} is not a condition of nginx' proxy_next_upstream")),
            }
        }
        let codes = Entries::new(codes).ok_or_else(|| "has more than 16 statuses".to_owned())?;
        Ok(Self { conditions, codes })
    }
}

/// `error timeout`, the default of ingress-nginx.
impl Default for NextUpstream {
    fn default() -> Self {
        let conditions = RetryConditions {
            error: true,
            timeout: true,
            invalid_head: false,
            non_idempotent: false,
            within: None,
        };
        Self { conditions, codes: Entries::default() }
    }
}

/// The limit of a buffer for a body, in bytes.
const BODY_BUFFER_MAX: u64 = 16 << 20;

/// The reason why an annotation about buffers has no effect.
const STREAMS: &str = "The gateway streams bodies, and keeps the begin of a request for retries.";

/// An annotation about buffers.
const fn buffers(name: &'static str) -> Row {
    Row { name, restricts: false, meaning: Harmless, sets: STREAMS, default: "" }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "load-balance",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.algorithm = Some(value.word(&[
                ("round_robin", LoadBalancingAlgorithm::RoundRobin),
                ("ewma", LoadBalancingAlgorithm::ResponseTime),
            ])?);
            Ok(())
        }),
        sets: "The load balancing algorithm: `round_robin` or `ewma`.",
        default: "`round_robin`",
    },
    Row {
        name: "service-upstream",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.is_cluster_ip = value.switch()?;
            Ok(())
        }),
        sets: "Sends requests to the cluster IP of the Service, in place of its endpoints.",
        default: "`false`",
    },
    Row {
        name: "proxy-next-upstream",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.next = Some(NextUpstream::of(value.text)?);
            Ok(())
        }),
        sets: "The failures and statuses after which the gateway retries a request, as in nginx.",
        default: "`error timeout`",
    },
    Row {
        name: "proxy-next-upstream-tries",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.tries = Some(u64::try_from(value.number()?).unwrap_or(0));
            Ok(())
        }),
        sets: "The largest number of attempts. `0`: 101 attempts.",
        default: "`3`",
    },
    Row {
        name: "proxy-next-upstream-timeout",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.next_timeout = timeout(value)?;
            Ok(())
        }),
        sets: "The time in which retries begin, in seconds. `0`: no limit.",
        default: "`0`",
    },
    Row {
        name: "proxy-http-version",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.is_http10 = value.word(&[("1.0", true), ("1.1", false)])?;
            Ok(())
        }),
        sets: "The version of HTTP/1 to endpoints: `1.0` or `1.1`.",
        default: "`1.1`",
    },
    Row {
        name: "connection-proxy-header",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.connection = match value.text.to_ascii_lowercase().as_str() {
                "keep-alive" | "close" => Some(HeaderValue::new(value.text)?),
                _ => return Err(format!("{:?} is neither keep-alive nor close", value.text)),
            };
            Ok(())
        }),
        sets: "The header `Connection` to endpoints, except for upgrades: `keep-alive` or `close`.",
        default: "",
    },
    Row {
        name: "proxy-buffer-size",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.response_head = Some(Size::of(value.size()?));
            Ok(())
        }),
        sets: "The largest head of a response. Longer heads are a 502.",
        default: "`64k`",
    },
    Row {
        name: "proxy-buffering",
        restricts: false,
        meaning: Sets(|_, value| value.word(&[("on", ()), ("off", ())])),
        sets: "The gateway always streams responses, as ingress-nginx does by default. `on` changes nothing that a client sees.",
        default: "`off`",
    },
    Row {
        name: "proxy-request-buffering",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.buffers_requests = Some(value.word(&[("on", true), ("off", false)])?);
            Ok(())
        }),
        sets: "`on`: the gateway buffers a chunked request body, and the endpoint receives `Content-Length`. \
               The gateway streams every body with a `Content-Length`, and all bodies if `proxy-body-size` is more than `1m`. \
               `off`: the gateway streams all bodies.",
        default: "`on`",
    },
    buffers("proxy-buffers-number"),
    buffers("proxy-max-temp-file-size"),
    Row {
        name: "client-body-buffer-size",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.upstream.body_buffer = Some(Size::of(value.size()?.min(BODY_BUFFER_MAX)));
            Ok(())
        }),
        sets: "The gateway stores a request body in memory for a retry if the body is not larger than this size. \
               Values above `16m` count as `16m`. The gateway writes no body to disk.",
        default: "`--replay-buffer`",
    },
    Row {
        name: "proxy-ssl-protocols",
        restricts: false,
        meaning: Sets(|_, value| {
            let mut words = value.text.split_whitespace();
            match words.find(|word| matches!(*word, "TLSv1.2" | "TLSv1.3")) {
                Some(_) => Ok(()),
                None => Err(format!("{:?} has neither TLSv1.2 nor TLSv1.3", value.text)),
            }
        }),
        sets: "The gateway always offers TLS 1.2 and 1.3 to endpoints; the annotation must name one of them.",
        default: "`TLSv1.2 TLSv1.3`",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_proxy_next_upstream_are_conditions_and_statuses() {
        let next = NextUpstream::of("error http_502 non_idempotent http_404").unwrap();
        let conditions =
            RetryConditions { timeout: false, non_idempotent: true, ..NextUpstream::default().conditions };
        assert_eq!(next.conditions, conditions);
        assert_eq!(next.codes.iter().map(|code| code.get()).collect::<Vec<_>>(), [502, 404]);
        assert_eq!(NextUpstream::of("error timeout").unwrap(), NextUpstream::default());
        let off = NextUpstream::of("error off http_502").unwrap();
        assert!(!off.conditions.error && off.codes.is_empty());
        assert!(NextUpstream::of("error http_418").is_err());
    }
}
