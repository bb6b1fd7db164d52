//! Rate limits and concurrency limits of a route (`RateLimitPolicy`).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use super::security::seconds;
use crate::ObjectId;
use crate::encoding::bound::{
    Bound, Claim, HeaderName, Ipv6Prefix, Per, Requests, ServerAddress, ShareInterval, ShareTimeout,
};
use crate::encoding::{Adapt as _, List, Maybe, Part, Pointer, Raw, Time, Within, WithinAs};

/// The limits of a route. A request must satisfy all limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RateLimits {
    /// The object with the policy.
    #[n(0)]
    pub id: ObjectId,
    /// The rate limits, in the order of their checks.
    #[n(1)]
    pub limits: Vec<Limit>,
    /// The concurrency limits. Each data plane counts for itself, even if rate limits are shared.
    #[n(2)]
    pub concurrency: Vec<Concurrency>,
    /// Whether responses report the remaining quota (`RateLimit`, draft-ietf-httpapi-ratelimit-headers).
    #[n(3)]
    pub headers: bool,
    /// The server that sums the counts of the data planes. `None`: each data plane counts for itself.
    #[n(4)]
    pub shared: Option<Shared>,
}

impl Part for RateLimits {
    const KIND: u32 = 15;
    const WHAT: &'static str = "policy for rates";
}

/// The names of limits differ from each other.
impl Bound for RateLimits {
    type Value = Self;
    const FIELD: &'static str = "the name of a limit";

    fn allows(policy: &Self) -> bool {
        let of_rates = policy.limits.iter().map(|limit| &limit.name);
        let mut names = of_rates.chain(policy.concurrency.iter().map(|limit| &limit.name));
        let mut known = HashSet::new();
        names.all(|name| known.insert(name))
    }
}

/// The server that sums the counts of the data planes.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum Shared {
    /// A server that speaks the protocol of Redis, such as Valkey.
    #[n(0)]
    Redis(#[cbor(n(0), with = "Pointer")] Arc<Redis>),
    /// No usable server: each data plane counts for itself.
    #[n(1)]
    Unusable(#[n(0)] Box<str>),
}

/// A Redis server, from version 5, or a Valkey server.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Redis {
    /// The host and the port; the host is a name, an IPv4 address, or an IPv6 address in brackets.
    #[cbor(n(0), with = "Within::<ServerAddress>")]
    pub address: Box<str>,
    /// The user of the password. `None`: the default user.
    #[n(1)]
    pub username: Option<Box<str>>,
    /// The password, if the server requires a password. The password is secret.
    #[cbor(n(2), with = "Maybe::<Raw>")]
    pub password: Option<Box<[u8]>>,
    /// TLS to the server. `None`: the connection is not encrypted.
    #[n(3)]
    pub tls: Option<RedisTls>,
    /// The number of the database, from 0.
    #[n(4)]
    pub database: u32,
    /// The prefix of all keys.
    #[n(5)]
    pub prefix: Box<str>,
    /// The time for which a data plane gathers counts before it shares the counts, from 5 ms to 1 s.
    #[cbor(n(6), with = "WithinAs::<ShareInterval, Time>")]
    pub interval: Duration,
    /// The timeout for the server's response to shared counts, from 5 ms to 5 s.
    #[cbor(n(7), with = "WithinAs::<ShareTimeout, Time>")]
    pub timeout: Duration,
}

/// TLS to a server.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RedisTls {
    /// The name that the server's certificate must have.
    #[n(0)]
    pub server_name: Box<str>,
    /// The CA certificates to trust for the server. Empty: the public CA certificates.
    #[cbor(n(1), with = "List::<Raw>")]
    pub authorities: Vec<CertificateDer<'static>>,
}

/// Neither passwords nor certificates are shown.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(redis) => f.debug_tuple("Redis").field(redis).finish(),
            Self::Unusable(reason) => f.debug_tuple("Unusable").field(reason).finish(),
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("address", &self.address)
            .field("tls", &self.tls)
            .field("database", &self.database)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Serialize for Shared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

/// A rate limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Limit {
    /// The limit's name in headers, logs and metrics. The names of a policy differ.
    #[n(0)]
    pub name: Box<str>,
    /// The requests per period, from 1 to 1,000,000.
    #[cbor(n(1), with = "Within::<Requests>")]
    pub requests: u32,
    /// The period, from 1 ms to 30 days.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(2), with = "WithinAs::<Per, Time>")]
    pub per: Duration,
    /// The distribution of requests over the period.
    #[n(3)]
    pub window: Window,
    /// The key: requests with equal values of all parts count together. Empty: all requests of the policy count together.
    #[n(4)]
    pub key: Vec<LimitKey>,
    /// The groups of consumers that the limit applies to. Empty: the limit applies to all requests.
    #[n(5)]
    pub groups: Vec<Box<str>>,
    /// Whether the gateway serves requests over the limit, and only counts and logs them.
    #[n(6)]
    pub dry_run: bool,
}

/// A concurrency limit: the requests in flight at once. A request counts from its head to its end, tunnels included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Concurrency {
    /// The limit's name in logs. It differs from the names of all other limits of the policy, rate limits included.
    #[n(0)]
    pub name: Box<str>,
    /// The most requests in flight, from 1 to 1,000,000.
    #[cbor(n(1), with = "Within::<Requests>")]
    pub requests: u32,
    /// See [`Limit::key`].
    #[n(2)]
    pub key: Vec<LimitKey>,
    /// See [`Limit::groups`].
    #[n(3)]
    pub groups: Vec<Box<str>>,
    /// See [`Limit::dry_run`].
    #[n(4)]
    pub dry_run: bool,
}

/// The distribution of requests over the period of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum Window {
    /// A token bucket of 1 to 1,000,000 tokens. The limit's rate fills the bucket evenly, and each request takes one token.
    #[n(0)]
    TokenBucket {
        /// The capacity of the bucket.
        #[cbor(n(0), with = "Within::<Requests>")]
        burst: u32,
    },
    /// A sliding window: no period exceeds the limit, estimated from the counts of the current and the previous window.
    #[n(1)]
    Sliding,
}

/// A part of the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum LimitKey {
    /// The client IP: an IPv4 address, or a prefix of an IPv6 address.
    #[n(0)]
    Address {
        /// The prefix length, from 1 to 128, in bits. A client usually controls a whole network, mostly of 64 bits.
        #[cbor(n(0), with = "Within::<Ipv6Prefix>")]
        ipv6_prefix: u8,
    },
    /// A header's value. Requests without the header count together.
    #[n(1)]
    Header(#[cbor(n(0), with = "Within::<HeaderName>")] Box<str>),
    /// A claim of the token. Requests without the claim count together.
    #[n(2)]
    Claim(#[cbor(n(0), with = "Within::<Claim>")] Box<str>),
    /// The consumer. Callers that are not a consumer count by client IP.
    #[n(3)]
    Consumer,
    /// The route.
    #[n(4)]
    Route,
}
