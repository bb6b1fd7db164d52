//! How often a route may be called (`RateLimitPolicy`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use serde::{Serialize, Serializer};

use super::security::seconds;
use crate::RouteId;

/// The limits of a route, all of which have to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RateLimits {
    /// The object that they were written in.
    pub id: RouteId,
    /// In the order in which they are looked at.
    pub limits: Vec<Limit>,
    /// How many may be under way at once. Each data plane counts for itself, also where rates are shared.
    pub concurrency: Vec<Concurrency>,
    /// Whether responses say what is left (`RateLimit`, draft-ietf-httpapi-ratelimit-headers).
    pub headers: bool,
    /// Through what the data planes count together; each counts for itself, if there is nothing.
    pub shared: Option<Shared>,
}

/// Through what data planes count together.
#[derive(Clone, PartialEq, Eq)]
pub enum Shared {
    /// A server that speaks the protocol of Redis, such as Valkey.
    Redis(Arc<Redis>),
    /// Nothing that can be used, so that each counts for itself.
    Unusable(Box<str>),
}

/// A server of Redis, from version 5, or of Valkey.
#[derive(Clone, PartialEq, Eq)]
pub struct Redis {
    /// The host and the port; the host is a name, an IPv4 address, or an IPv6 address in brackets.
    pub address: Box<str>,
    /// Whom the password is of; the default user, if there is none.
    pub username: Option<Box<str>>,
    /// The password, if the server asks for one. Nobody's business.
    pub password: Option<Box<[u8]>>,
    /// How the connection is encrypted, if it is.
    pub tls: Option<RedisTls>,
    /// The number of the database, from 0.
    pub database: u32,
    /// What the names of all keys begin with.
    pub prefix: Box<str>,
    /// How long counts are gathered until they are told to the others, from 5 ms to 1 s.
    pub interval: Duration,
    /// For the answer to what was told, from 5 ms to 5 s.
    pub timeout: Duration,
}

/// How the connection to a server is encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisTls {
    /// The name that its certificate must be for.
    pub server_name: Box<str>,
    /// Who vouches for it; those whom browsers trust, if it is empty.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// What it is called in headers, logs and metrics; unlike the others of its policy.
    pub name: Box<str>,
    /// How many requests in that time, from 1 to 1,000,000.
    pub requests: u32,
    /// The time, from 1 ms to 30 days.
    #[serde(serialize_with = "seconds")]
    pub per: Duration,
    /// How they may be spread over it.
    pub window: Window,
    /// Requests that have all of these in common are counted together; all of the policy's, if there is none.
    pub key: Vec<LimitKey>,
    /// It is for consumers of one of these groups; for everybody, if there is none.
    pub groups: Vec<Box<str>>,
    /// Whether requests over the limit are counted and logged, and served all the same.
    pub dry_run: bool,
}

/// How many requests may be under way at once: from the head of each until it ends in any way, tunnels included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Concurrency {
    /// What it is called in logs; unlike the others of its policy, limits of rates included.
    pub name: Box<str>,
    /// How many, from 1 to 1,000,000.
    pub requests: u32,
    /// As for [`Limit::key`].
    pub key: Vec<LimitKey>,
    /// As for [`Limit::groups`].
    pub groups: Vec<Box<str>>,
    /// As for [`Limit::dry_run`].
    pub dry_run: bool,
}

/// How requests may be spread over the time of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Window {
    /// A bucket holds so many tokens, from 1 to 1,000,000, and is filled evenly at the limit's rate; each request takes
    /// one.
    TokenBucket {
        /// How many it holds.
        burst: u32,
    },
    /// Never more in any stretch of that time, reckoned from the counts of this window and the one before.
    Sliding,
}

/// What requests have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum LimitKey {
    /// The client's address, as far as trusted peers tell it: an IPv4 address, or so many bits of an IPv6 one.
    Address {
        /// From 1 to 128: who has one address of a network has them all, mostly 64.
        ipv6_prefix: u8,
    },
    /// A header's value. Those without one are counted together.
    Header(Box<str>),
    /// A claim of the token. Those without one are counted together.
    Claim(Box<str>),
    /// The consumer. Callers that are none are counted by their address.
    Consumer,
    /// The route.
    Route,
}
