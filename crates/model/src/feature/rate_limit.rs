//! Rate limits and concurrency limits.

use std::borrow::Cow;

use minicbor::{Decode, Encode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Check, Faults};
use crate::encoding::Bound;
use crate::value::span::HOUR;
use crate::value::{ClaimName, Entries, GroupName, HeaderName, LimitName, Number, ParameterName, Span};

/// The number of requests of a limit.
pub type Requests = Number<u32, 1, 1_000_000>;

/// The status of requests above a limit.
pub type LimitStatus = Number<u16, 400, 599>;

/// The status of requests above a limit that sets no status (RFC 6585, 4).
const TOO_MANY_REQUESTS: u16 = 429;

/// A rate limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.burst) || !has(self.algorithm) || self.algorithm == 'TokenBucket'",
    "message": "burst is only for algorithm: TokenBucket"
}]))]
#[cbor(map)]
pub struct Limit {
    /// The name of the limit in headers, logs and metrics: lower-case letters, digits and hyphens.
    #[n(0)]
    pub name: LimitName,
    /// The number of requests that may come in the period per. 1 to 1000000.
    #[n(1)]
    pub requests: Requests,
    /// The period, such as 1s, 1m or 24h. 1ms to 720h (30 days).
    #[n(2)]
    pub per: Span<1, { 720 * HOUR }>,
    /// The number of requests that may come at once. Only for algorithm TokenBucket. 1 to 1000000. Default: the value
    /// of requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub burst: Option<Requests>,
    /// The way the gateway counts. TokenBucket refills evenly and allows a burst. SlidingWindow admits at most requests
    /// in any period, estimated from the counts of the current and the previous window. Default: TokenBucket.
    #[serde(default)]
    #[n(4)]
    pub algorithm: LimitAlgorithm,
    /// The parts of a request by which it is counted. Requests with equal parts share one count. 1 to 8 entries.
    /// Default: all requests of the policy's routes share one count.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(5)]
    pub key: Entries<LimitKey, 8>,
    /// The limit applies only to Consumers in one of these groups. 1 to 64 entries. Default: all callers.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(6)]
    pub groups: Entries<GroupName, 64>,
    /// false: requests above the limit are rejected. true: the gateway serves them, counts them in the metric
    /// sluicegate_policy_dry_runs_total, and names the limit in the field dry_runs of the JSON access log. Clients
    /// do not notice the limit. Default: false.
    #[serde(default)]
    #[n(7)]
    pub dry_run: bool,
    /// The status of the response to requests above the limit. 400 to 599. Default: 429.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(8)]
    pub status_code: Option<LimitStatus>,
}

/// The algorithm of a rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum LimitAlgorithm {
    /// A token bucket.
    #[default]
    #[n(0)]
    TokenBucket,
    /// A sliding window.
    #[n(1)]
    SlidingWindow,
}

/// The distribution of requests over the period of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A token bucket. The limit's rate fills the bucket evenly, and each request takes one token.
    TokenBucket {
        /// The capacity of the bucket.
        burst: u32,
    },
    /// A sliding window: no period exceeds the limit, estimated from the counts of the current and the previous window.
    Sliding,
}

impl Limit {
    /// The distribution of requests over the period.
    #[must_use]
    pub fn window(&self) -> Window {
        match self.algorithm {
            LimitAlgorithm::TokenBucket => {
                Window::TokenBucket { burst: self.burst.unwrap_or(self.requests).get() }
            }
            LimitAlgorithm::SlidingWindow => Window::Sliding,
        }
    }

    /// The number of requests that may come at once.
    #[must_use]
    pub fn most(&self) -> u64 {
        match self.window() {
            Window::TokenBucket { burst } => burst.into(),
            Window::Sliding => self.requests.get().into(),
        }
    }

    /// The status of the response to requests above the limit.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status_code.map_or(TOO_MANY_REQUESTS, Number::get)
    }
}

impl Check for Limit {
    fn check(&self, at: &mut Faults<'_>) {
        if self.burst.is_some() && self.algorithm != LimitAlgorithm::TokenBucket {
            at.error("burst", "is only for algorithm TokenBucket: remove it");
        }
        super::warn_of_repeated("key", &self.key, at);
        super::warn_of_repeated("groups", &self.groups, at);
    }
}

/// The decoder applies the same conditions as the check of YAML.
impl Bound for Limit {
    type Value = Self;
    const FIELD: &'static str = "a limit";

    fn allows(limit: &Self) -> bool {
        super::is_valid(limit)
    }
}

/// A limit of the requests in flight at once. A request counts from its head to the end of its response, or to the end
/// of its tunnel, such as a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Concurrency {
    /// The name of the limit in logs and metrics: lower-case letters, digits and hyphens.
    #[n(0)]
    pub name: LimitName,
    /// The largest number of requests in flight. 1 to 1000000.
    #[n(1)]
    pub requests: Requests,
    /// The parts of a request by which it is counted. Requests with equal parts share one count. 1 to 8 entries.
    /// Default: all requests of the policy's routes share one count.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(2)]
    pub key: Entries<LimitKey, 8>,
    /// The limit applies only to Consumers in one of these groups. 1 to 64 entries. Default: all callers.
    #[serde(default, skip_serializing_if = "super::is_default")]
    #[n(3)]
    pub groups: Entries<GroupName, 64>,
    /// false: requests above the limit are rejected. true: the gateway serves them, counts them in the metric
    /// sluicegate_policy_dry_runs_total, and names the limit in the field dry_runs of the JSON access log. Clients
    /// do not notice the limit. Default: false.
    #[serde(default)]
    #[n(4)]
    pub dry_run: bool,
    /// The status of the response to requests above the limit. 400 to 599. Default: 429.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(5)]
    pub status_code: Option<LimitStatus>,
}

impl Concurrency {
    /// The status of the response to requests above the limit.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status_code.map_or(TOO_MANY_REQUESTS, Number::get)
    }
}

impl Check for Concurrency {
    fn check(&self, at: &mut Faults<'_>) {
        super::warn_of_repeated("key", &self.key, at);
        super::warn_of_repeated("groups", &self.groups, at);
    }
}

/// The prefix length of IPv6 addresses, in bits.
pub type Ipv6Prefix = Number<u8, 1, 128>;

/// A part of a request by which it is counted.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum LimitKey {
    /// The client IP: an IPv4 address, or a prefix of an IPv6 address.
    #[n(0)]
    Address {
        /// The prefix length. A client usually controls a whole network, mostly of 64 bits.
        #[n(0)]
        ipv6_prefix: Ipv6Prefix,
    },
    /// A header's value. Requests without the header count together.
    #[n(1)]
    Header(#[n(0)] HeaderName),
    /// A claim of the token. Requests without the claim count together.
    #[n(2)]
    Claim(#[n(0)] ClaimName),
    /// The consumer. Callers that are not a consumer count by client IP.
    #[n(3)]
    Consumer,
    /// The route.
    #[n(4)]
    Route,
}

/// A part of a request by which it is counted.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename = "LimitKey", rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.name) == (self.type == 'Header' || self.type == 'Claim')",
        "message": "name is needed with type: Header or Claim, and only there"
    },
    {
        "rule": "!has(self.ipv6PrefixLength) || self.type == 'Address'",
        "message": "ipv6PrefixLength is only for type: Address"
    }
]))]
struct WrittenKey {
    /// The part of the request. Address: the client IP. Header: the value of a header; of Host the name alone, in lower
    /// case. Requests without the header, or with several lines of it, share one count. Claim: the value of a claim of
    /// the token. Requests without the claim share one count. Consumer: the Consumer; other callers are counted by
    /// client IP. Route: the host and path of the Ingress that match the request.
    #[serde(rename = "type")]
    kind: LimitKeyType,
    /// The name of the header or the claim. Needed with type Header or Claim, and only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<ParameterName>,
    /// The number of leading bits of an IPv6 address that count, because a client has all addresses of its network.
    /// Only for type Address. 1 to 128. Default: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6_prefix_length: Option<Ipv6Prefix>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
enum LimitKeyType {
    Address,
    Header,
    Claim,
    Consumer,
    Route,
}

impl TryFrom<WrittenKey> for LimitKey {
    type Error = String;

    fn try_from(written: WrittenKey) -> Result<Self, String> {
        if written.ipv6_prefix_length.is_some() && written.kind != LimitKeyType::Address {
            return Err("ipv6PrefixLength is only for type Address: remove it".to_owned());
        }
        Ok(match (written.kind, written.name) {
            (LimitKeyType::Header | LimitKeyType::Claim, None) => {
                return Err("name is missing: name the header or the claim".to_owned());
            }
            (LimitKeyType::Address | LimitKeyType::Consumer | LimitKeyType::Route, Some(_)) => {
                return Err("name is only for type Header and Claim: remove it".to_owned());
            }
            (LimitKeyType::Header, Some(name)) => {
                Self::Header(HeaderName::new(&name).map_err(|fault| format!("name: {fault}"))?)
            }
            (LimitKeyType::Claim, Some(name)) => {
                Self::Claim(ClaimName::new(&name).map_err(|fault| format!("name: {fault}"))?)
            }
            (LimitKeyType::Address, None) => {
                Self::Address { ipv6_prefix: written.ipv6_prefix_length.unwrap_or(Number::of(64)) }
            }
            (LimitKeyType::Consumer, None) => Self::Consumer,
            (LimitKeyType::Route, None) => Self::Route,
        })
    }
}

impl<'de> Deserialize<'de> for LimitKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(WrittenKey::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Serialize for LimitKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, name, ipv6_prefix_length) = match self {
            Self::Address { ipv6_prefix } => (LimitKeyType::Address, None, Some(*ipv6_prefix)),
            Self::Header(name) => (LimitKeyType::Header, Some(name.as_str()), None),
            Self::Claim(name) => (LimitKeyType::Claim, Some(name.as_str()), None),
            Self::Consumer => (LimitKeyType::Consumer, None, None),
            Self::Route => (LimitKeyType::Route, None, None),
        };
        let name = name.and_then(|name| ParameterName::new(name).ok());
        WrittenKey { kind, name, ipv6_prefix_length }.serialize(serializer)
    }
}

impl JsonSchema for LimitKey {
    fn schema_name() -> Cow<'static, str> {
        WrittenKey::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        WrittenKey::json_schema(generator)
    }
}
