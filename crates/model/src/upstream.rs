//! Upstreams: who serves a route, and at which addresses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The stable identity of an upstream. It outlives configurations: as long as some route names it, its
/// connections, load estimates and health stay. Ten routes to one Service share one upstream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamKey {
    /// The Service's namespace.
    pub namespace: Arc<str>,
    /// The Service's name.
    pub service: Arc<str>,
    /// The Service port's name, or its number if it has no name; as the route writes it where there is no such port.
    pub port: Arc<str>,
}

impl fmt::Display for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.namespace, self.service, self.port)
    }
}

impl Serialize for UpstreamKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Who serves a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Upstream {
    /// How an endpoint is chosen.
    pub balance: Balance,
    /// How much it may be given at once.
    pub limits: UpstreamLimits,
    /// A DNS name that stands in for endpoints (`spec.externalName`), resolved by the data plane's owner.
    pub external_name: Option<Box<str>>,
    /// Its endpoints, each address at most once.
    pub endpoints: Arc<[Endpoint]>,
}

/// How an endpoint is chosen among those that are eligible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Of two endpoints taken at random, the one with the lower product of its peak-sensitive response time
    /// (exponentially weighted, 10 s) and its requests in flight.
    #[default]
    Ewma,
    /// Each in turn.
    RoundRobin,
    /// Of two endpoints taken at random, the one with fewer requests in flight.
    LeastRequest,
}

/// How much an upstream may be given at once, counted over all workers. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UpstreamLimits {
    /// Requests in flight, answered 503 above this.
    pub max_requests: Option<u32>,
    /// Requests in flight at one endpoint; a full endpoint is passed over, and when all are full the
    /// answer is 503.
    pub max_requests_per_endpoint: Option<u32>,
}

/// One address that serves an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Endpoint {
    /// Where to connect.
    pub address: SocketAddr,
    /// What the endpoint's owner says of it.
    pub conditions: Conditions,
}

/// The conditions of an endpoint (`discovery.k8s.io/v1` `EndpointConditions`), with Kubernetes' defaults
/// filled in: absent `ready` is true, absent `serving` is `ready`, absent `terminating` is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Conditions {
    /// It wants new requests.
    pub ready: bool,
    /// It can answer requests.
    pub serving: bool,
    /// It is going away.
    pub terminating: bool,
}

impl Conditions {
    /// Ready and serving.
    pub const READY: Self = Self { ready: true, serving: true, terminating: false };
    /// Going away, and still answering.
    pub const TERMINATING: Self = Self { ready: false, serving: true, terminating: true };
}
