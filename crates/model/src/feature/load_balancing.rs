//! Load balancing and session affinity.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, Faults};
use crate::Balance;
use crate::value::span::{HOUR, Span};
use crate::value::{
    Age, CookieDomain, CookieName, CookiePath, EditedHeader, Entries, Number, ParameterName, Template, syntax,
};

/// The choice of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.hash) == (has(self.algorithm) && self.algorithm == 'ConsistentHash')",
    "message": "hash is needed with algorithm: ConsistentHash, and only there"
}]))]
#[cbor(map)]
pub struct LoadBalancing {
    /// The algorithm. ResponseTime prefers endpoints with a short response time and few requests in flight.
    /// LeastRequest prefers endpoints with few requests in flight. RoundRobin takes the endpoints in turn.
    /// ConsistentHash sends requests with the same hash to the same endpoint. Each worker limits an endpoint to 5/4
    /// of the mean requests in flight, at least 8. Above the limit, the next endpoint in the order of the hash
    /// receives the requests. Default: the annotation sluicegate.dev/load-balance of the Service, or ResponseTime.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub algorithm: Option<LoadBalancingAlgorithm>,
    /// The parts of a request that make its hash. Required with algorithm ConsistentHash, and not allowed otherwise.
    /// 1 to 4 entries.
    #[serde(skip_serializing_if = "super::is_default")]
    #[n(1)]
    pub hash: Entries<HashPart, 4>,
    /// Session affinity: a cookie or a header with which the gateway sends a client to the same endpoint, while the
    /// endpoint is eligible and healthy. Default: no affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub affinity: Option<Affinity>,
    /// The text that makes the hash of a request in place of hash, with variables of nginx. Annotations of ingress-nginx
    /// set the text.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(3)]
    pub hash_text: Option<Template>,
    /// The number of endpoints that a hash selects. The gateway chooses one of these endpoints at random. Annotations of
    /// ingress-nginx set the number. Default: 1.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(4)]
    pub hash_subset: Option<Number<u16, 1, 1000>>,
}

impl LoadBalancing {
    /// The algorithm in place of [`Upstream::balance`](crate::Upstream::balance). `None`: the algorithm of the
    /// Service, or a hash.
    #[must_use]
    pub fn balance(&self) -> Option<Balance> {
        match self.algorithm? {
            LoadBalancingAlgorithm::ResponseTime => Some(Balance::Ewma),
            LoadBalancingAlgorithm::RoundRobin => Some(Balance::RoundRobin),
            LoadBalancingAlgorithm::LeastRequest => Some(Balance::LeastRequest),
            LoadBalancingAlgorithm::ConsistentHash => None,
        }
    }
}

/// A load balancing algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum LoadBalancingAlgorithm {
    /// Short response times and few requests in flight.
    #[n(0)]
    ResponseTime,
    /// The endpoints in turn.
    #[n(1)]
    RoundRobin,
    /// Few requests in flight.
    #[n(2)]
    LeastRequest,
    /// Consistent hashing with bounded load.
    #[n(3)]
    ConsistentHash,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.name) == (self.type == 'Header' || self.type == 'Cookie' || self.type == 'Query')",
    "message": "name is needed with type: Header, Cookie or Query, and only there"
}]))]
#[cbor(map)]
pub struct HashPart {
    /// The part. Address: the client IP. Header, Cookie and Query: the value of a header, a cookie or a query
    /// parameter. Path: the path.
    #[serde(rename = "type")]
    #[n(0)]
    pub kind: HashPartType,
    /// The name of the header, the cookie or the parameter. Required with type Header, Cookie or Query, and not
    /// allowed otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub name: Option<ParameterName>,
}

/// The type of a part of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[cbor(index_only)]
pub enum HashPartType {
    /// The client IP.
    #[n(0)]
    Address,
    /// The value of a header.
    #[n(1)]
    Header,
    /// The value of a cookie.
    #[n(2)]
    Cookie,
    /// The value of a parameter of the query.
    #[n(3)]
    Query,
    /// The path.
    #[n(4)]
    Path,
}

/// A cookie or a header that leads a client back to its endpoint. The value does not contain the endpoint's address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.cookie) != has(self.header)",
    "message": "either cookie or header is needed"
}, {
    "rule": "!has(self.header) || !has(self.maxAge) && !has(self.path)",
    "message": "maxAge and path are only for a cookie"
}]))]
#[cbor(map)]
pub struct Affinity {
    /// The name of the cookie. Required without header, and not allowed otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub cookie: Option<CookieName>,
    /// The lifetime of the cookie. 1s to 8760h. Default: until the client's session ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub max_age: Option<Age>,
    /// The name of a header in place of a cookie. Each response has the header, and the client returns the header with
    /// its next requests. Required without cookie, and not allowed otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub header: Option<EditedHeader>,
    /// The path of the cookie: clients return the cookie only with requests below the path. Default: "/".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub path: Option<CookiePath>,
    /// The time after which a session ends, counted from its begin. The next request begins a new session. The time
    /// of the begin is in the value of the cookie or header. 1ms to 8760h. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(4)]
    pub absolute_timeout: Option<SessionTimeout>,
    /// The time without a request after which a session ends. Each response renews the time in the value of the
    /// cookie or header. 1ms to 8760h. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(5)]
    pub idle_timeout: Option<SessionTimeout>,
    /// Whether a session stays at its backend of a rule with several backends, also if the weights change, even to
    /// 0. Otherwise, the gateway first chooses a backend by weight, then the endpoint of the session if the endpoint
    /// belongs to the backend. Default: false.
    #[serde(skip_serializing_if = "super::is_default")]
    #[cbor(n(6), default, skip_if = "super::is_default")]
    pub over_weights: bool,
    /// The form of the cookie, and the rules of sessions, of the annotations of ingress-nginx. Then `max_age` has no effect.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(40)]
    pub nginx: Option<Box<NginxSession>>,
}

/// Session affinity with the cookie of ingress-nginx (`nginx.ingress.kubernetes.io/session-cookie-*`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct NginxSession {
    /// The choice of the endpoint for a session (`affinity-mode`).
    #[n(0)]
    pub mode: SessionMode,
    /// Whether a client receives another session if the endpoint of its session fails
    /// (`session-cookie-change-on-failure`). Otherwise another endpoint serves the request, and the session stays.
    #[n(1)]
    pub changes_on_failure: bool,
    /// The attribute `Domain`.
    #[n(2)]
    pub domain: Option<CookieDomain>,
    /// The time until `Expires`, in seconds.
    #[n(3)]
    pub expires: Option<i64>,
    /// The attribute `Max-Age`, in seconds.
    #[n(4)]
    pub max_age: Option<i64>,
    /// The attribute `SameSite`. `None`: the cookie has no such attribute.
    #[n(5)]
    pub same_site: Option<SameSite>,
    /// Whether the cookie lacks `SameSite=None` for browsers that mistake this value for `Strict`.
    #[n(6)]
    pub is_none_conditional: bool,
    /// Whether the cookie has the attribute `Secure`. `None`: only if the request came over HTTPS.
    #[n(7)]
    pub secure: Option<bool>,
}

/// The choice of the endpoint for a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(index_only)]
pub enum SessionMode {
    /// The endpoints share all sessions: a new endpoint receives its share of the existing sessions.
    #[default]
    #[n(0)]
    Balanced,
    /// A session stays at its endpoint as long as the endpoint exists.
    #[n(1)]
    Persistent,
}

/// The attribute `SameSite` of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(index_only)]
pub enum SameSite {
    /// `None`.
    #[n(0)]
    None,
    /// `Lax`.
    #[n(1)]
    Lax,
    /// `Strict`.
    #[n(2)]
    Strict,
}

/// The longest time of a session, from 1ms to 8760h (365 days).
pub type SessionTimeout = Span<1, { 8760 * HOUR }>;

impl Check for Affinity {
    fn check(&self, at: &mut Faults<'_>) {
        match (&self.cookie, &self.header) {
            (None, None) => at.error("cookie", "is missing: name a cookie or a header"),
            (Some(_), Some(_)) => at.error("header", "cannot be combined with cookie: remove one of them"),
            (Some(_), None) | (None, Some(_)) => {}
        }
        if let Some(header) = &self.header
            && let Some(fault) = syntax::reserved_fault(&header.to_ascii_lowercase())
        {
            at.error("header", format!("{:?} {fault}", header.as_str()));
        }
        for (field, is_set) in [("maxAge", self.max_age.is_some()), ("path", self.path.is_some())] {
            if is_set && self.header.is_some() {
                at.error(field, "is only for a cookie: remove it");
            }
        }
    }
}

impl Check for LoadBalancing {
    fn check(&self, at: &mut Faults<'_>) {
        at.within("affinity", &self.affinity);
        let is_hash = self.algorithm == Some(LoadBalancingAlgorithm::ConsistentHash);
        match (is_hash, self.hash.is_empty() && self.hash_text.is_none()) {
            (true, true) => at.error("hash", "is missing: write the parts of a request that make its hash"),
            (false, false) => at.error("hash", "is only for algorithm ConsistentHash: remove it"),
            (true, false) | (false, true) => {}
        }
        for (index, HashPart { kind, name }) in self.hash.iter().enumerate() {
            let field = format!("hash[{index}].name");
            match (kind, name) {
                (HashPartType::Address | HashPartType::Path, Some(_)) => {
                    at.error(&field, "is only for type Header, Cookie and Query: remove it");
                }
                (HashPartType::Header | HashPartType::Cookie | HashPartType::Query, None) => {
                    at.error(&field, "is missing: name the header, the cookie or the parameter");
                }
                (HashPartType::Header | HashPartType::Cookie, Some(name)) => {
                    if let Some(fault) = syntax::token_fault(name) {
                        at.error(&field, format!("{:?} {fault}", name.as_str()));
                    }
                }
                (HashPartType::Address | HashPartType::Path, None) | (HashPartType::Query, Some(_)) => {}
            }
        }
    }
}
