//! How requests of a route go on (`TrafficPolicy`).

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
use crate::{Balance, RouteId, UpstreamKey};

/// How the requests of a route go on, beside what holds for all routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Traffic {
    /// The object that it was written in.
    #[n(0)]
    pub id: RouteId,
    /// Time limits in place of those of the settings.
    #[n(1)]
    pub timeouts: RouteTimeouts,
    /// When a request is sent once more.
    #[n(2)]
    pub retries: Option<Retries>,
    /// A request's body, in bytes, in place of the limit of the settings; 0 is no limit.
    #[n(3)]
    pub request_body: Option<u64>,
    /// A response's body, in bytes as it comes from the endpoint: 502 above it if its head says so, else it is broken off.
    #[n(4)]
    pub response_body: Option<u64>,
    /// What becomes of the headers of requests.
    #[n(5)]
    pub request_headers: HeaderRules,
    /// What becomes of the headers of responses.
    #[n(6)]
    pub response_headers: HeaderRules,
    /// What endpoints are asked for in place of what clients ask for.
    #[n(7)]
    pub rewrite: Rewrite,
    /// What is answered without asking an endpoint.
    #[n(8)]
    pub answer: Option<Answer>,
    /// What is done wrong on purpose.
    #[n(9)]
    pub faults: Faults,
    /// Which requests go to other upstreams than the route's.
    #[n(10)]
    pub split: Option<Split>,
    /// How an endpoint is chosen.
    #[n(11)]
    pub choice: Choice,
    /// Who gets copies of requests.
    #[n(12)]
    pub mirror: Option<Mirror>,
    /// Which responses are kept for others.
    #[cbor(n(13), with = "Maybe::<Within<Cache>>")]
    pub cache: Option<Cache>,
}

impl Part for Traffic {
    const KIND: u32 = 17;
    const WHAT: &'static str = "policy for traffic";
}

impl Traffic {
    /// One that changes nothing.
    #[must_use]
    pub fn new(id: RouteId) -> Self {
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

    /// The upstreams that it names.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamKey> {
        let branches =
            self.split.iter().flat_map(|split| split.branches.iter().map(|branch| &branch.upstream));
        branches.chain(self.mirror.iter().map(|mirror| &mirror.upstream))
    }
}

/// Time limits of a route. `None`: as the settings say ([`Timeouts`](crate::settings::Timeouts)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RouteTimeouts {
    /// From the request's head to the head of its response, over all attempts: 504 after it. The settings have none.
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
    /// How long an upgraded connection may be silent.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(5), with = "Maybe::<Time>")]
    pub tunnel_idle: Option<Duration>,
}

/// When a request is sent once more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Retries {
    /// How many endpoints a request may be sent to in all, from 1 to 10.
    #[cbor(n(0), with = "Within::<Attempts>")]
    pub attempts: u32,
    /// How long one attempt may take to the head of its response before another endpoint is asked, if that is safe.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(1), with = "Maybe::<Time>")]
    pub per_attempt: Option<Duration>,
    /// Statuses from 500 to 599 after which another endpoint is asked, if that is safe.
    #[cbor(n(2), with = "List::<Within<ServerErrorStatus>>")]
    pub statuses: Vec<u16>,
    /// How many requests may be sent once more, measured by all.
    #[n(3)]
    pub budget: Option<RetryBudget>,
}

/// How many requests of the last 10 s may have been sent once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RetryBudget {
    /// Of 100 requests, from 0 to 100.
    #[cbor(n(0), with = "Within::<PercentOrZero>")]
    pub percent: u8,
    /// Each second whatever that makes, up to 1000.
    #[cbor(n(1), with = "Within::<RetriesPerSecond>")]
    pub min_per_second: u32,
}

/// What becomes of headers: those to remove and to set are taken out, then those to set and to add are put in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct HeaderRules {
    /// Names and values in place of all headers of these names.
    #[cbor(n(0), with = "List::<Pair<Within<HeaderName>, Within<HeaderValue>>>")]
    pub set: Vec<(Box<str>, Box<str>)>,
    /// Names and values beside others of these names.
    #[cbor(n(1), with = "List::<Pair<Within<HeaderName>, Within<HeaderValue>>>")]
    pub add: Vec<(Box<str>, Box<str>)>,
    /// Names.
    #[cbor(n(2), with = "List::<Within<HeaderName>>")]
    pub remove: Vec<Box<str>>,
}

impl HeaderRules {
    /// The names that are taken out.
    pub fn names(&self) -> impl Iterator<Item = &Box<str>> {
        self.remove.iter().chain(self.set.iter().map(|(name, _)| name))
    }
}

/// What endpoints are asked for in place of what clients ask for.
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

/// What a path becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum PathRewrite {
    /// This.
    #[n(0)]
    Full(#[cbor(n(0), with = "Within::<RequestPath>")] Box<str>),
    /// This, and behind it what follows the route's own path.
    #[n(1)]
    Prefix(#[cbor(n(0), with = "Within::<RequestPath>")] Box<str>),
}

/// What is answered without asking an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum Answer {
    /// The client is sent elsewhere.
    #[n(0)]
    Redirect(#[n(0)] Redirect),
    /// Always the same.
    #[n(1)]
    Fixed(#[cbor(n(0), with = "Within::<Fixed>")] Fixed),
}

/// Where clients are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Redirect {
    /// Whether it is `https`; the scheme of the request, if nothing says so.
    #[n(0)]
    pub https: Option<bool>,
    /// The host, if it is another one.
    #[cbor(n(1), with = "Maybe::<Within<Authority>>")]
    pub host: Option<Box<str>>,
    /// The port; without one that of the scheme if that is named, else that of the request.
    #[cbor(n(2), with = "Maybe::<Within<Port>>")]
    pub port: Option<u16>,
    /// The path, if it is another one.
    #[n(3)]
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    #[cbor(n(4), with = "Within::<RedirectStatus>")]
    pub status: u16,
}

/// An answer that is always the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Fixed {
    /// From 200 to 599.
    #[cbor(n(0), with = "Within::<FinalStatus>")]
    pub status: u16,
    /// What the body is.
    #[cbor(n(1), with = "Maybe::<Within<HeaderValue>>")]
    pub content_type: Option<Box<str>>,
    /// At most [`Fixed::BODY_MAX`] bytes.
    #[n(2)]
    pub body: Box<str>,
}

impl Fixed {
    /// The longest body, in bytes.
    pub const BODY_MAX: usize = 16 * 1024;
}

/// The body is not too long, and absent where the status has none.
impl Bound for Fixed {
    type Value = Self;
    const FIELD: &'static str = "the body of an answer";

    fn allows(answer: &Self) -> bool {
        let is_bodiless = matches!(answer.status, 204 | 205 | 304);
        answer.body.len() <= Self::BODY_MAX && (answer.body.is_empty() || !is_bodiless)
    }
}

/// What is done wrong on purpose, to see who bears it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Faults {
    /// Requests that wait before they go on.
    #[n(0)]
    pub delay: Option<Delay>,
    /// Requests that get an error.
    #[n(1)]
    pub abort: Option<Abort>,
}

/// Requests that wait before they go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Delay {
    /// Of 100 requests, from 1 to 100.
    #[cbor(n(0), with = "Within::<Percent>")]
    pub percent: u8,
    /// How long.
    #[serde(serialize_with = "seconds")]
    #[cbor(n(1), with = "Time")]
    pub time: Duration,
}

/// Requests that get an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Abort {
    /// Of 100 requests, from 1 to 100.
    #[cbor(n(0), with = "Within::<Percent>")]
    pub percent: u8,
    /// From 400 to 599.
    #[cbor(n(1), with = "Within::<ErrorStatus>")]
    pub status: u16,
}

/// Which requests go to other upstreams than the route's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Split {
    /// The share of the route's own upstream, up to 1,000,000.
    #[cbor(n(0), with = "Within::<Weight>")]
    pub weight: u32,
    /// The others: the first of which a match holds has the request; else one of those of which no exclusion holds has
    /// it, by weight.
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
    /// Who serves it.
    #[n(0)]
    pub upstream: UpstreamKey,
    /// Its share, up to 1,000,000.
    #[cbor(n(1), with = "Within::<Weight>")]
    pub weight: u32,
    /// Requests of which one of these holds go there.
    #[n(2)]
    pub matches: Vec<RequestMatch>,
    /// Requests of which one of these holds do not go there by weight.
    #[n(3)]
    pub excludes: Vec<RequestMatch>,
}

/// What a request has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct RequestMatch {
    /// Where.
    #[n(0)]
    pub place: MatchPlace,
    /// What; anything, if nothing says so.
    #[n(1)]
    pub value: Option<Box<str>>,
}

/// Where a request has something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum MatchPlace {
    /// In the header of this name.
    #[n(0)]
    Header(#[cbor(n(0), with = "Within::<HeaderName>")] Box<str>),
    /// In the cookie of this name.
    #[n(1)]
    Cookie(#[cbor(n(0), with = "Within::<CookieName>")] Box<str>),
}

/// How an endpoint is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Choice {
    /// In place of [`Upstream::balance`](crate::Upstream::balance).
    #[n(0)]
    pub balance: Option<Balance>,
    /// Requests that have all of these in common go to the same endpoint as far as it has room: consistent hashing with
    /// bounded load.
    #[n(1)]
    pub hash: Vec<HashPart>,
    /// A cookie by which a client comes back to its endpoint.
    #[n(2)]
    pub cookie: Option<AffinityCookie>,
}

/// What requests have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub enum HashPart {
    /// The client's address, as far as trusted peers tell it.
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

/// A cookie by which a client comes back to its endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct AffinityCookie {
    /// Its name.
    #[cbor(n(0), with = "Within::<CookieName>")]
    pub name: Box<str>,
    /// How long clients keep it; until they end, if nothing says so.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(1), with = "Maybe::<Time>")]
    pub max_age: Option<Duration>,
}

/// Who gets copies of requests, whose responses nobody gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Mirror {
    /// Who gets them.
    #[n(0)]
    pub upstream: UpstreamKey,
    /// Of 100 requests, from 1 to 100.
    #[cbor(n(1), with = "Within::<Percent>")]
    pub percent: u8,
}

/// Which responses are kept for others (RFC 9111).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Cache {
    /// What all of them take, in bytes, at each data plane: [`Cache::SIZE_MIN`] at least.
    #[n(0)]
    pub max_size: u64,
    /// The longest body, in bytes: a quarter of [`max_size`](Self::max_size) at most.
    #[n(1)]
    pub max_response_size: u64,
    /// How long a response is fresh that says nothing of it. `None`: it is not kept.
    #[serde(serialize_with = "some_seconds")]
    #[cbor(n(2), with = "Maybe::<Time>")]
    pub default_time: Option<Duration>,
    /// How long a stale response may be used if the endpoint fails, unless it says that it must not be; 0: as it says itself
    /// (RFC 5861).
    #[serde(serialize_with = "seconds")]
    #[cbor(n(3), with = "Time")]
    pub stale_if_error: Duration,
    /// Headers of requests by which responses differ, beside those that responses name (`Vary`).
    #[cbor(n(4), with = "List::<Within<HeaderName>>")]
    pub key_headers: Vec<Box<str>>,
}

impl Cache {
    /// The least [`max_size`](Self::max_size): 64 KiB.
    pub const SIZE_MIN: u64 = 64 * 1024;
    /// The largest: 64 GiB.
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
