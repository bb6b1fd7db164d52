//! Rate limits and concurrency limits of a route (`RateLimitPolicy`).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use crate::ObjectId;
use crate::encoding::Bound;
use crate::encoding::{Adapt as _, List, Maybe, Part, Pointer, Raw, Within};
use crate::feature::{Concurrency, Limit, is_default};
use crate::value::{Entries, KeyPrefix, Network, Number, ServerAddress, ServerUser, Span};

/// The limits of a route. A request must satisfy all limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RateLimits {
    /// The object with the policy.
    #[n(0)]
    pub id: ObjectId,
    /// The rate limits, in the order of their checks.
    #[cbor(n(1), with = "List::<Within<Limit>>")]
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
    /// The client IPs that no limit applies to.
    #[serde(skip_serializing_if = "is_default")]
    #[cbor(n(5), default, skip_if = "is_default")]
    pub exempt: Exempt,
}

/// The client IPs that no limit applies to.
pub type Exempt = Entries<Network, 256, 0>;

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
    #[n(0)]
    pub address: ServerAddress,
    /// The user of the password. `None`: the default user.
    #[n(1)]
    pub username: Option<ServerUser>,
    /// The password, if the server requires a password. The password is secret.
    #[cbor(n(2), with = "Maybe::<Raw>")]
    pub password: Option<Box<[u8]>>,
    /// TLS to the server. `None`: the connection is not encrypted.
    #[n(3)]
    pub tls: Option<RedisTls>,
    /// The number of the database, from 0.
    #[n(4)]
    pub database: RedisDatabase,
    /// The prefix of all keys.
    #[n(5)]
    pub prefix: KeyPrefix,
    /// The time for which a data plane gathers counts before it shares the counts, from 5 ms to 1 s.
    #[n(6)]
    pub interval: ShareInterval,
    /// The timeout for the server's response to shared counts, from 5 ms to 5 s.
    #[n(7)]
    pub timeout: ShareTimeout,
}

/// The number of a database.
pub type RedisDatabase = Number<u32, 0, 65535>;
/// The time for which a data plane gathers counts before it shares the counts.
pub type ShareInterval = Span<5, 1000>;
/// The timeout for the server of shared limits.
pub type ShareTimeout = Span<5, 5000>;

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
