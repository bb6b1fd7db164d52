//! How often a route may be called (`RateLimitPolicy`).

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use minicbor::{Decode, Encode};
use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use super::security::seconds;
use crate::RouteId;
use crate::encoding::bound::{
    Bound, Claim, HeaderName, Ipv6Prefix, Per, Requests, ServerAddress, ShareInterval, ShareTimeout,
};
use crate::encoding::{Adapt as _, List, Maybe, Part, Pointer, Raw, Time, Within, WithinAs};

/// The limits of a route, all of which have to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RateLimits {
    /// The object that they were written in.
    #[n(0)]
    pub id: RouteId,
    /// In the order in which they are looked at.
    #[n(1)]
    pub limits: Vec<Limit>,
    /// How many may be under way at once. Each data plane counts for itself, also where rates are shared.
    #[n(2)]
    pub concurrency: Vec<Concurrency>,
    /// Whether responses say what is left (`RateLimit`, draft-ietf-httpapi-ratelimit-headers).
    #[n(3)]
    pub headers: bool,
    /// Through what the data planes count together; each counts for itself, if there is nothing.
    #[n(4)]
    pub shared: Option<Shared>,
}

impl Part for RateLimits {
    const KIND: u32 = 15;
    const WHAT: &'static str = "policy for rates";
}

/// The names of limits differ.
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

/// Through what data planes count together.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum Shared {
    /// A server that speaks the protocol of Redis, such as Valkey.
    #[n(0)]
    Redis(#[cbor(n(0), with = "Pointer")] Arc<Redis>),
    /// Nothing that can be used, so that each counts for itself.
    #[n(1)]
    Unusable(#[n(0)] Box<str>),
}

/// A server of Redis, from version 5, or of Valkey.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Redis {
    /// The host and the port; the host is a name, an IPv4 address, or an IPv6 address in brackets.
    #[cbor(n(0), with = "Within::<ServerAddress>")]
    pub address: Box<str>,
    /// Whom the password is of; the default user, if there is none.
    #[n(1)]
    pub username: Option<Box<str>>,
    /// The password, if the server asks for one. Nobody's business.
    #[cbor(n(2), with = "Maybe::<Raw>")]
    pub password: Option<Box<[u8]>>,
    /// How the connection is encrypted, if it is.
    #[n(3)]
    pub tls: Option<RedisTls>,
    /// The number of the database, from 0.
    #[n(4)]
    pub database: u32,
    /// What the names of all keys begin with.
    #[n(5)]
    pub prefix: Box<str>,
    /// How long counts are gathered until they are told to the others, from 5 ms to 1 s.
    #[cbor(n(6), with = "WithinAs::<ShareInterval, Time>")]
    pub interval: Duration,
    /// For the answer to what was told, from 5 ms to 5 s.
    #[cbor(n(7), with = "WithinAs::<ShareTimeout, Time>")]
    pub timeout: Duration,
}

/// How the connection to a server is encrypted.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct RedisTls {
    /// The name that its certificate must be for.
    #[n(0)]
    pub server_name: Box<str>,
    /// Who vouches for it; those whom browsers trust, if it is empty.
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

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Limit {
    /// What it is called in headers, logs and metrics; unlike the others of its policy.
    #[n(0)]
    pub name: Box<str>,
    /// How many requests in that time, from 1 to 1,000,000.
    #[cbor(n(1), with = "Within::<Requests>")]
    pub requests: u32,
    /// The time, from 1 ms to 30 days.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(2), with = "WithinAs::<Per, Time>")]
    pub per: Duration,
    /// How they may be spread over it.
    #[n(3)]
    pub window: Window,
    /// Requests that have all of these in common are counted together; all of the policy's, if there is none.
    #[n(4)]
    pub key: Vec<LimitKey>,
    /// It is for consumers of one of these groups; for everybody, if there is none.
    #[n(5)]
    pub groups: Vec<Box<str>>,
    /// Whether requests over the limit are counted and logged, and served all the same.
    #[n(6)]
    pub dry_run: bool,
}

/// How many requests may be under way at once: from the head of each until it ends in any way, tunnels included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Concurrency {
    /// What it is called in logs; unlike the others of its policy, limits of rates included.
    #[n(0)]
    pub name: Box<str>,
    /// How many, from 1 to 1,000,000.
    #[cbor(n(1), with = "Within::<Requests>")]
    pub requests: u32,
    /// As for [`Limit::key`].
    #[n(2)]
    pub key: Vec<LimitKey>,
    /// As for [`Limit::groups`].
    #[n(3)]
    pub groups: Vec<Box<str>>,
    /// As for [`Limit::dry_run`].
    #[n(4)]
    pub dry_run: bool,
}

/// How requests may be spread over the time of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum Window {
    /// A bucket holds so many tokens, from 1 to 1,000,000, and is filled evenly at the limit's rate; each request takes
    /// one.
    #[n(0)]
    TokenBucket {
        /// How many it holds.
        #[cbor(n(0), with = "Within::<Requests>")]
        burst: u32,
    },
    /// Never more in any stretch of that time, reckoned from the counts of this window and the one before.
    #[n(1)]
    Sliding,
}

/// What requests have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum LimitKey {
    /// The client's address, as far as trusted peers tell it: an IPv4 address, or so many bits of an IPv6 one.
    #[n(0)]
    Address {
        /// From 1 to 128: who has one address of a network has them all, mostly 64.
        #[cbor(n(0), with = "Within::<Ipv6Prefix>")]
        ipv6_prefix: u8,
    },
    /// A header's value. Those without one are counted together.
    #[n(1)]
    Header(#[cbor(n(0), with = "Within::<HeaderName>")] Box<str>),
    /// A claim of the token. Those without one are counted together.
    #[n(2)]
    Claim(#[cbor(n(0), with = "Within::<Claim>")] Box<str>),
    /// The consumer. Callers that are none are counted by their address.
    #[n(3)]
    Consumer,
    /// The route.
    #[n(4)]
    Route,
}
