//! Load balancing and session affinity.

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Check, Faults};
use crate::Balance;
use crate::value::{Age, CookieName, Entries, ParameterName, syntax};

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
    /// Session affinity: a cookie with which the gateway sends a client to the same endpoint, while the endpoint is
    /// eligible and healthy. Default: no affinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub affinity: Option<Affinity>,
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

/// A cookie that leads a client back to its endpoint. The cookie does not contain the endpoint's address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Affinity {
    /// The name of the cookie.
    #[n(0)]
    pub cookie: CookieName,
    /// The lifetime of the cookie. 1s to 8760h. Default: until the client's session ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub max_age: Option<Age>,
}

impl Check for LoadBalancing {
    fn check(&self, at: &mut Faults<'_>) {
        let is_hash = self.algorithm == Some(LoadBalancingAlgorithm::ConsistentHash);
        match (is_hash, self.hash.is_empty()) {
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
