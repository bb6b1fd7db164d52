//! Timeouts, retries, header edits, weights and the like of a route (`TrafficPolicy`).

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::{Serialize, Serializer};

use super::security::seconds;
use crate::encoding::adapt::Pair;
use crate::encoding::bound::{
    Attempts, Authority, Bound, CookieName, ErrorStatus, FinalStatus, HeaderName, HeaderValue, Percent,
    PercentOrZero, Port, RedirectStatus, RequestPath, RetriesPerSecond, ServerErrorStatus, Weight,
};
use crate::encoding::{Adapt as _, List, Maybe, Part, Time, Within};
use crate::{Balance, ObjectId, UpstreamKey};

/// How the gateway serves the requests of a route, in place of the settings for all routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Traffic {
    /// The object with the policy.
    #[n(0)]
    pub id: ObjectId,
    /// Timeouts, in place of the timeouts of the settings.
    #[n(1)]
    pub timeouts: RouteTimeouts,
    /// Retries.
    #[n(2)]
    pub retries: Option<Retries>,
    /// The longest body of a request, in bytes, in place of the limit of the settings. 0: no limit.
    #[n(3)]
    pub request_body: Option<u64>,
    /// The longest body of a response, in bytes as received from the endpoint. If the head announces a longer body, the
    /// gateway responds with 502. Otherwise the gateway aborts the response at the limit.
    #[n(4)]
    pub response_body: Option<u64>,
    /// The edits of request headers.
    #[n(5)]
    pub request_headers: HeaderRules,
    /// The edits of response headers.
    #[n(6)]
    pub response_headers: HeaderRules,
    /// The rewrite of the path and host for endpoints.
    #[n(7)]
    pub rewrite: Rewrite,
    /// The response that the gateway generates without an endpoint.
    #[n(8)]
    pub answer: Option<Answer>,
    /// Fault injection.
    #[n(9)]
    pub faults: Faults,
    /// Traffic split: the requests for upstreams other than the route's.
    #[n(10)]
    pub split: Option<Split>,
    /// Load balancing.
    #[n(11)]
    pub choice: Choice,
    /// The mirror.
    #[n(12)]
    pub mirror: Option<Mirror>,
    /// The response cache.
    #[cbor(n(13), with = "Maybe::<Within<Cache>>")]
    pub cache: Option<Cache>,
}

impl Part for Traffic {
    const KIND: u32 = 17;
    const WHAT: &'static str = "policy for traffic";
}

impl Traffic {
    /// A policy that changes nothing.
    #[must_use]
    pub fn new(id: ObjectId) -> Self {
        Self {
            id,
            timeouts: RouteTimeouts::default(),
            retries: None,
            request_body: None,
            response_body: None,
            request_headers: HeaderRules::default(),
            response_headers: HeaderRules::default(),
            rewrite: Rewrite::default(),
            answer: None,
            faults: Faults::default(),
            split: None,
            choice: Choice::default(),
            mirror: None,
            cache: None,
        }
    }

    /// The upstreams that the policy names.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamKey> {
        let branches =
            self.split.iter().flat_map(|split| split.branches.iter().map(|branch| &branch.upstream));
        branches.chain(self.mirror.iter().map(|mirror| &mirror.upstream))
    }
}

/// Timeouts of a route. `None`: the timeout of the settings ([`Timeouts`](crate::settings::Timeouts)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RouteTimeouts {
    /// From the request's head to the head of its response, over all attempts: the gateway then responds with 504. The
    /// settings have no timeout over all attempts.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(0), with = "Maybe::<Time>")]
    pub request: Option<Duration>,
    /// For one connect to one endpoint.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(1), with = "Maybe::<Time>")]
    pub connect: Option<Duration>,
    /// From the end of the request to the head of its response.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(2), with = "Maybe::<Time>")]
    pub response_head: Option<Duration>,
    /// Between two reads of a response's body, and between two writes of a request's body.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(3), with = "Maybe::<Time>")]
    pub upstream_idle: Option<Duration>,
    /// Between two reads of a request's body.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(4), with = "Maybe::<Time>")]
    pub request_body: Option<Duration>,
    /// The longest silence of a tunnel.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(5), with = "Maybe::<Time>")]
    pub tunnel_idle: Option<Duration>,
}

/// The retries of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Retries {
    /// The most endpoints that a request is sent to, from 1 to 10.
    #[cbor(n(0), with = "Within::<Attempts>")]
    pub attempts: u32,
    /// The timeout of one attempt, up to the head of its response. The gateway then retries at another endpoint if a retry is
    /// safe.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(1), with = "Maybe::<Time>")]
    pub per_attempt: Option<Duration>,
    /// Statuses from 500 to 599 after which the gateway retries at another endpoint if a retry is safe.
    #[cbor(n(2), with = "List::<Within<ServerErrorStatus>>")]
    pub statuses: Vec<u16>,
    /// The retry budget, over all requests.
    #[n(3)]
    pub budget: Option<RetryBudget>,
}

/// The retry budget of the last 10 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RetryBudget {
    /// The retries per 100 requests, from 0 to 100.
    #[cbor(n(0), with = "Within::<PercentOrZero>")]
    pub percent: u8,
    /// The retries in a second that the budget allows in any case, up to 1000.
    #[cbor(n(1), with = "Within::<RetriesPerSecond>")]
    pub min_per_second: u32,
}

/// Header edits: headers to remove and to set are removed first, then headers to set and to add are inserted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct HeaderRules {
    /// Names and values that replace all headers of these names.
    #[cbor(n(0), with = "List::<Pair<Within<HeaderName>, Within<HeaderValue>>>")]
    pub set: Vec<(Box<str>, Box<str>)>,
    /// Names and values that are added to other headers of these names.
    #[cbor(n(1), with = "List::<Pair<Within<HeaderName>, Within<HeaderValue>>>")]
    pub add: Vec<(Box<str>, Box<str>)>,
    /// Names of headers to remove.
    #[cbor(n(2), with = "List::<Within<HeaderName>>")]
    pub remove: Vec<Box<str>>,
}

impl HeaderRules {
    /// The names of removed headers.
    pub fn names(&self) -> impl Iterator<Item = &Box<str>> {
        self.remove.iter().chain(self.set.iter().map(|(name, _)| name))
    }
}

/// The rewrite of the path and host for endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Rewrite {
    /// The path.
    #[n(0)]
    pub path: Option<PathRewrite>,
    /// The host.
    #[cbor(n(1), with = "Maybe::<Within<Authority>>")]
    pub host: Option<Box<str>>,
}

/// The rewrite of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum PathRewrite {
    /// The whole path.
    #[n(0)]
    Full(#[cbor(n(0), with = "Within::<RequestPath>")] Box<str>),
    /// The prefix of the path: it replaces the route's own path, and the rest follows.
    #[n(1)]
    Prefix(#[cbor(n(0), with = "Within::<RequestPath>")] Box<str>),
}

/// A response that the gateway generates without an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum Answer {
    /// A redirect.
    #[n(0)]
    Redirect(#[n(0)] Redirect),
    /// A fixed response.
    #[n(1)]
    Fixed(#[cbor(n(0), with = "Within::<Fixed>")] Fixed),
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Redirect {
    /// Whether the scheme is `https`. `None`: the scheme of the request.
    #[n(0)]
    pub https: Option<bool>,
    /// The host. `None`: the host of the request.
    #[cbor(n(1), with = "Maybe::<Within<Authority>>")]
    pub host: Option<Box<str>>,
    /// The port. `None`: the port of the scheme if the redirect sets a scheme, else the port of the request.
    #[cbor(n(2), with = "Maybe::<Within<Port>>")]
    pub port: Option<u16>,
    /// The path. `None`: the path of the request.
    #[n(3)]
    pub path: Option<PathRewrite>,
    /// The status: 301, 302, 303, 307 or 308.
    #[cbor(n(4), with = "Within::<RedirectStatus>")]
    pub status: u16,
}

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Fixed {
    /// The status, from 200 to 599.
    #[cbor(n(0), with = "Within::<FinalStatus>")]
    pub status: u16,
    /// The media type of the body.
    #[cbor(n(1), with = "Maybe::<Within<HeaderValue>>")]
    pub content_type: Option<Box<str>>,
    /// The body, at most [`Fixed::BODY_MAX`] bytes.
    #[n(2)]
    pub body: Box<str>,
}

impl Fixed {
    /// The longest body, in bytes.
    pub const BODY_MAX: usize = 16 * 1024;
}

/// The body is not too long, and empty if the status allows no body.
impl Bound for Fixed {
    type Value = Self;
    const FIELD: &'static str = "the body of an answer";

    fn allows(answer: &Self) -> bool {
        let is_bodiless = matches!(answer.status, 204 | 205 | 304);
        answer.body.len() <= Self::BODY_MAX && (answer.body.is_empty() || !is_bodiless)
    }
}

/// Fault injection: deliberate faults, which show how clients handle faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Faults {
    /// Delayed requests.
    #[n(0)]
    pub delay: Option<Delay>,
    /// Aborted requests.
    #[n(1)]
    pub abort: Option<Abort>,
}

/// Delayed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Delay {
    /// The percentage of delayed requests, from 1 to 100.
    #[cbor(n(0), with = "Within::<Percent>")]
    pub percent: u8,
    /// The delay.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(1), with = "Time")]
    pub time: Duration,
}

/// Aborted requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Abort {
    /// The percentage of aborted requests, from 1 to 100.
    #[cbor(n(0), with = "Within::<Percent>")]
    pub percent: u8,
    /// The status, from 400 to 599.
    #[cbor(n(1), with = "Within::<ErrorStatus>")]
    pub status: u16,
}

/// Traffic split: the requests for upstreams other than the route's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Split {
    /// The weight of the route's own upstream, up to 1,000,000.
    #[cbor(n(0), with = "Within::<Weight>")]
    pub weight: u32,
    /// The other upstreams. The first branch with a match for the request serves the request. Without a match the weights
    /// decide among the branches whose exclusions do not apply.
    #[cbor(n(1), with = "Within::<Split>")]
    pub branches: Vec<Branch>,
}

impl Split {
    /// The most [`branches`](Self::branches).
    pub const BRANCHES_MAX: usize = 8;
}

impl Bound for Split {
    type Value = [Branch];
    const FIELD: &'static str = "the number of upstreams of a route";

    fn allows(branches: &[Branch]) -> bool {
        branches.len() <= Self::BRANCHES_MAX
    }
}

/// Another upstream of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Branch {
    /// The upstream.
    #[n(0)]
    pub upstream: UpstreamKey,
    /// The weight, up to 1,000,000.
    #[cbor(n(1), with = "Within::<Weight>")]
    pub weight: u32,
    /// Conditions: a request that meets one of them goes to this upstream.
    #[n(2)]
    pub matches: Vec<RequestMatch>,
    /// Exclusions: a request that meets one of them does not go to this upstream by weight.
    #[n(3)]
    pub excludes: Vec<RequestMatch>,
}

/// A condition on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RequestMatch {
    /// The header or cookie.
    #[n(0)]
    pub place: MatchPlace,
    /// The required value. `None`: any value.
    #[n(1)]
    pub value: Option<Box<str>>,
}

/// The place of a value in a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum MatchPlace {
    /// The header of this name.
    #[n(0)]
    Header(#[cbor(n(0), with = "Within::<HeaderName>")] Box<str>),
    /// The cookie of this name.
    #[n(1)]
    Cookie(#[cbor(n(0), with = "Within::<CookieName>")] Box<str>),
}

/// Load balancing: the choice of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Choice {
    /// The algorithm, in place of [`Upstream::balance`](crate::Upstream::balance).
    #[n(0)]
    pub balance: Option<Balance>,
    /// Consistent hashing with bounded load: requests with equal values of all parts go to the same endpoint while the
    /// endpoint has capacity.
    #[n(1)]
    pub hash: Vec<HashPart>,
    /// Session affinity: a cookie returns a client to its endpoint.
    #[n(2)]
    pub cookie: Option<AffinityCookie>,
}

/// A part of the hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum HashPart {
    /// The client IP.
    #[n(0)]
    Address,
    /// The value of this header.
    #[n(1)]
    Header(#[cbor(n(0), with = "Within::<HeaderName>")] Box<str>),
    /// The value of this cookie.
    #[n(2)]
    Cookie(#[cbor(n(0), with = "Within::<CookieName>")] Box<str>),
    /// The value of this parameter of the query.
    #[n(3)]
    Query(#[n(0)] Box<str>),
    /// The path.
    #[n(4)]
    Path,
}

/// The cookie of session affinity, which returns a client to its endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct AffinityCookie {
    /// The cookie's name.
    #[cbor(n(0), with = "Within::<CookieName>")]
    pub name: Box<str>,
    /// How long clients store the cookie. `None`: until the end of the client's session.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(1), with = "Maybe::<Time>")]
    pub max_age: Option<Duration>,
}

/// The mirror: it receives copies of requests, and the gateway drops its responses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Mirror {
    /// The upstream of the mirror.
    #[n(0)]
    pub upstream: UpstreamKey,
    /// The percentage of mirrored requests, from 1 to 100.
    #[cbor(n(1), with = "Within::<Percent>")]
    pub percent: u8,
}

/// The response cache (RFC 9111).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Cache {
    /// The size of all cached responses, in bytes, at each data plane: at least [`Cache::SIZE_MIN`].
    #[n(0)]
    pub max_size: u64,
    /// The longest body, in bytes: at most a quarter of [`max_size`](Self::max_size).
    #[n(1)]
    pub max_response_size: u64,
    /// How long a response without freshness information is fresh. `None`: such a response is not cached.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(2), with = "Maybe::<Time>")]
    pub default_time: Option<Duration>,
    /// How long a stale response may be served if the endpoint fails, unless the response forbids stale use. 0: the response
    /// decides (RFC 5861).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(3), with = "Time")]
    pub stale_if_error: Duration,
    /// Request headers that are part of the cache key, beside the headers that responses name (`Vary`).
    #[cbor(n(4), with = "List::<Within<HeaderName>>")]
    pub key_headers: Vec<Box<str>>,
}

impl Cache {
    /// The least [`max_size`](Self::max_size): 64 KiB.
    pub const SIZE_MIN: u64 = 64 * 1024;
    /// The largest [`max_size`](Self::max_size): 64 GiB.
    pub const SIZE_MAX: u64 = 64 << 30;
    /// The most [`key_headers`](Self::key_headers).
    pub const KEY_HEADERS_MAX: usize = 8;
}

impl Bound for Cache {
    type Value = Self;
    const FIELD: &'static str = "the size of a cache";

    fn allows(cache: &Self) -> bool {
        (Self::SIZE_MIN..=Self::SIZE_MAX).contains(&cache.max_size)
            && (1..=cache.max_size / 4).contains(&cache.max_response_size)
            && cache.key_headers.len() <= Self::KEY_HEADERS_MAX
    }
}

#[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
fn some_seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => seconds(duration, serializer),
        None => serializer.serialize_none(),
    }
}
