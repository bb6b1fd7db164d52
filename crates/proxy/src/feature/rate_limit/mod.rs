//! Rate limits and concurrency limits.
//!
//! | module | purpose |
//! |---|---|
//! | `window` | the algorithms that count |
//! | `buckets` | the counts of each key |
//! | `clock` | the clock of limits |
//! | `flights` | the calls of each key in flight |
//! | `pending` | calls that the server has not received yet |
//! | `shared` | the servers that share counts between data planes |

mod buckets;
mod clock;
mod flights;
mod pending;
mod sets;
pub(crate) mod shared;
mod window;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluicegate_jwt::Claims;
use sluicegate_model::ObjectId;
use sluicegate_model::feature::{self as model, LimitKey, Window};
use sluicegate_model::policy::{self, Consumer};
use sluicegate_model::value::GroupName;

use super::ip_access::Networks;
use crate::failure::Denial;
use buckets::Buckets;
use flights::Flights;
pub(crate) use flights::Permit;
use shared::{Server, ServerState, Servers};
use window::{Counted, Pace};

/// The limits of a policy, compiled.
#[derive(Debug)]
pub(crate) struct Limits {
    all: Vec<Limit>,
    concurrency: Vec<Concurrency>,
    /// The response header line that states the limits; empty if responses have none, or if there are no limits.
    policy_line: Box<[u8]>,
    shared: Option<Shared>,
    /// The client IPs that no limit applies to.
    exempt: Networks,
    /// Whether some limit counts before authentication, and whether some limit counts after it.
    phases: [bool; 2],
}

/// The server through which all data planes count together.
#[derive(Debug)]
enum Shared {
    By(Arc<Server>),
    Unusable,
}

#[derive(Debug)]
struct Limit {
    source: model::Limit,
    pace: Pace,
    buckets: Arc<Buckets>,
    /// Calls beyond the limit, including the dry run.
    reached: Arc<AtomicU64>,
    /// Whether the limit counts only after authentication: its key needs the caller, or unauthenticated calls would use
    /// up a quota that all share.
    follows_authentication: bool,
}

#[derive(Debug)]
struct Concurrency {
    source: model::Concurrency,
    flights: Arc<Flights>,
    /// Calls beyond the limit, including the dry run.
    reached: Arc<AtomicU64>,
    /// Whether the gateway needs the caller's identity to apply the limit.
    needs_identity: bool,
}

/// The properties of a call that limits use.
pub(crate) struct Caller<'c> {
    pub(crate) address: IpAddr,
    /// The number of the called route, the same in all data planes: one policy may apply to many routes.
    pub(crate) route: u64,
    pub(crate) consumer: Option<&'c Consumer>,
    pub(crate) claims: Option<&'c Claims>,
    /// The subscription by which the caller calls, for the limits of its plan. Each subscription counts by itself.
    pub(crate) subscription: Option<&'c SubscriptionHashes>,
    /// The value of a header; `None` if the header is missing, or has several values, of which the endpoint may use any.
    /// Hosts are in the form in which routes are found.
    pub(crate) header: &'c dyn Fn(&str) -> Option<Cow<'c, [u8]>>,
}

/// The hashes of a subscription: for each rate limit of its plan, then for each concurrency limit.
#[derive(Debug)]
pub(crate) struct SubscriptionHashes(Box<[u64]>);

/// The outcome of concurrency limits.
#[derive(Debug, Default)]
struct Begun {
    /// The name of the limit that is reached, and the status of the response.
    refused_by: Option<(Box<str>, u16)>,
    /// The names of the limits in a dry run that were reached.
    dry_runs: Vec<Box<str>>,
}

/// The outcome of rate limits.
#[derive(Debug, Default)]
struct Outcome {
    /// The name of a limit that is reached, the status of the response, and the time to wait. Of several limits, the limit
    /// with the longest wait.
    refused_by: Option<(Box<str>, u16, Duration)>,
    /// The names of the limits in a dry run that were reached.
    dry_runs: Vec<Box<str>>,
}

/// A limit that rejects a request.
#[derive(Debug)]
pub(crate) struct LimitRefusal {
    /// The name of the limit.
    pub(crate) limit: Box<str>,
    pub(crate) denial: Denial,
    /// The status of the response.
    pub(crate) status: u16,
    /// The time to wait, for a rate limit.
    pub(crate) wait: Option<Duration>,
}

impl Limits {
    /// Limits that did not change since `before` retain their counts.
    pub(super) fn new(limits: &policy::RateLimits, before: Option<&Self>, servers: &Servers) -> Self {
        let shared = limits.shared.as_ref().map(|shared| match shared {
            policy::Shared::Redis(redis) => Shared::By(servers.at(redis)),
            policy::Shared::Unusable(_) => Shared::Unusable,
        });
        let server = shared.as_ref().and_then(Shared::server);
        let unshared = before;
        let before = before.filter(|before| {
            let old = before.shared.as_ref().and_then(Shared::server);
            old.map(Arc::as_ptr) == server.map(Arc::as_ptr)
        });
        let limit = |source: &model::Limit| {
            let same = |limit: &&Limit| limit.source == *source;
            let pace = Pace::new(source);
            let known = unshared.and_then(|before| before.all.iter().find(same));
            let reached = known.map(|known| known.reached.clone()).unwrap_or_default();
            let buckets = match (before.and_then(|before| before.all.iter().find(same)), server) {
                (Some(known), _) => known.buckets.clone(),
                (None, Some(server)) => server.buckets(&limits.id, source, &pace),
                (None, None) => Arc::new(Buckets::new()),
            };
            Limit::new(source, pace, buckets, reached)
        };
        let all: Vec<_> = limits.limits.iter().map(limit).collect();
        let concurrency = |source: &model::Concurrency| {
            let same = |limit: &&Concurrency| limit.source == *source;
            let known = unshared.and_then(|before| before.concurrency.iter().find(same));
            Concurrency {
                source: source.clone(),
                flights: known.map_or_else(|| Arc::new(Flights::new()), |limit| limit.flights.clone()),
                reached: known.map(|known| known.reached.clone()).unwrap_or_default(),
                needs_identity: needs_identity(&source.key, &source.groups),
            }
        };
        let concurrency: Vec<_> = limits.concurrency.iter().map(concurrency).collect();
        let policy_line = if limits.headers { policy_line(&all) } else { String::new() };
        let exempt = Networks::new(&limits.exempt);
        let counts = |phase: bool| {
            all.iter().any(|limit| limit.follows_authentication == phase)
                || concurrency.iter().any(|limit| limit.needs_identity == phase)
        };
        let phases = [counts(false), counts(true)];
        Self { all, concurrency, policy_line: policy_line.into_bytes().into(), shared, exempt, phases }
    }

    /// Whether some limit counts after authentication, or with `false`, before it.
    pub(crate) fn counts(&self, is_authenticated: bool) -> bool {
        self.phases[usize::from(is_authenticated)]
    }

    /// The hashes by which the limits count the calls of a subscription.
    pub(crate) fn hashes_of(&self, subscription: &ObjectId) -> SubscriptionHashes {
        let hash = |hasher: &DefaultHasher| {
            let mut hasher = hasher.clone();
            hash_object(&mut hasher, subscription);
            hasher.finish()
        };
        let of_rates = self.all.iter().map(|limit| hash(&limit.buckets.hasher));
        let of_concurrency = self.concurrency.iter().map(|limit| hash(&limit.flights.hasher));
        SubscriptionHashes(of_rates.chain(of_concurrency).collect())
    }

    /// Whether no limit applies to a client with this IP. Limits apply to a client with an unknown IP.
    pub(crate) fn exempts(&self, address: Option<IpAddr>) -> bool {
        !self.exempt.is_empty() && address.is_some_and(|address| self.exempt.contains(address))
    }

    /// Counts a call under the limits that need the caller's identity, or under the other limits. Returns the names of the
    /// limits in a dry run that were reached, and the limit that rejects the call.
    pub(crate) fn check(
        &self,
        caller: &Caller<'_>,
        with_identity: bool,
        now: Instant,
        permits: &mut Vec<Permit>,
        lines: &mut Lines,
    ) -> (Vec<Box<str>>, Option<LimitRefusal>) {
        let Begun { refused_by, mut dry_runs } = self.begin(caller, with_identity, permits);
        if let Some((limit, status)) = refused_by {
            let refusal = LimitRefusal { limit, denial: Denial::Concurrency, status, wait: None };
            return (dry_runs, Some(refusal));
        }
        let outcome = self.count(caller, with_identity, now, lines);
        dry_runs.extend(outcome.dry_runs);
        let refusal = outcome.refused_by.map(|(limit, status, wait)| LimitRefusal {
            limit,
            denial: Denial::RateLimit,
            status,
            wait: Some(wait),
        });
        (dry_runs, refusal)
    }

    /// Begins a call under each concurrency limit: the limits that need the caller's identity, or the other limits. The
    /// call ends when `permits` are dropped.
    fn begin(&self, caller: &Caller<'_>, with_identity: bool, permits: &mut Vec<Permit>) -> Begun {
        let mut begun = Begun::default();
        let all = self.concurrency.iter().enumerate();
        for (number, limit) in all.filter(|(_, limit)| limit.needs_identity == with_identity) {
            let model::Concurrency { name, requests, key, groups, dry_run, status_code: _ } = &limit.source;
            let subscription = caller.subscription.map(|hashes| hashes.0[self.all.len() + number]);
            let Some(key) = hash(&limit.flights.hasher, subscription, key, groups, caller) else { continue };
            if let Some(permit) = limit.flights.begin(key, requests.get()) {
                permits.push(permit);
                continue;
            }
            limit.reached.fetch_add(1, Ordering::Relaxed);
            if !dry_run {
                begun.refused_by = Some((name.as_str().into(), limit.source.status()));
                break;
            }
            begun.dry_runs.push(name.as_str().into());
        }
        begun
    }

    /// Counts a call under the rate limits that follow authentication, or under the other rate limits. `lines` receives
    /// the response header lines. If one limit rejects a call, no limit counts the call: a rejected call uses up no quota
    /// that others share.
    fn count(&self, caller: &Caller<'_>, is_authenticated: bool, now: Instant, lines: &mut Lines) -> Outcome {
        // A single limit counts no call that it rejects. With several limits, another worker can use up a limit between
        // the check and the count.
        if self.all.len() > 1 {
            let said = (lines.line.len(), lines.tightest);
            let look = |limit: &Limit, key| limit.buckets.look(key, &limit.pace, now);
            let outcome = self.ask(caller, is_authenticated, lines, look);
            if outcome.refused_by.is_some() {
                self.note_reached(&outcome);
                return outcome;
            }
            lines.line.truncate(said.0);
            lines.tightest = said.1;
        }
        let count = |limit: &Limit, key| limit.buckets.count(key, &limit.pace, now);
        let outcome = self.ask(caller, is_authenticated, lines, count);
        self.note_reached(&outcome);
        outcome
    }

    fn note_reached(&self, outcome: &Outcome) {
        let refused_by = outcome.refused_by.iter().map(|(name, ..)| name);
        for name in refused_by.chain(&outcome.dry_runs) {
            if let Some(limit) = self.all.iter().find(|limit| *limit.source.name == **name) {
                limit.reached.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The number of calls beyond each limit, including the dry run.
    pub(super) fn reached(&self) -> impl Iterator<Item = (Box<str>, u64)> {
        let rates = self.all.iter().map(|limit| (&limit.source.name, &limit.reached));
        let concurrency = self.concurrency.iter().map(|limit| (&limit.source.name, &limit.reached));
        rates
            .chain(concurrency)
            .map(|(name, reached)| (name.as_str().into(), reached.load(Ordering::Relaxed)))
    }

    fn ask(
        &self,
        caller: &Caller<'_>,
        is_authenticated: bool,
        lines: &mut Lines,
        by: impl Fn(&Limit, u64) -> Counted,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let all = self.all.iter().enumerate();
        for (number, limit) in all.filter(|(_, limit)| limit.follows_authentication == is_authenticated) {
            let model::Limit { name, key, groups, dry_run, .. } = &limit.source;
            let subscription = caller.subscription.map(|hashes| hashes.0[number]);
            let Some(key) = hash(&limit.buckets.hasher, subscription, key, groups, caller) else { continue };
            let counted = by(limit, key);
            // Clients would obey the header also for a limit in a dry run.
            if !self.policy_line.is_empty() && !dry_run {
                lines.say(name, limit.source.most(), &counted);
            }
            match counted.wait {
                None => {}
                Some(_) if *dry_run => outcome.dry_runs.push(name.as_str().into()),
                Some(wait) if outcome.refused_by.as_ref().is_none_or(|(.., longest)| wait > *longest) => {
                    outcome.refused_by = Some((name.as_str().into(), limit.source.status(), wait));
                }
                Some(_) => {}
            }
        }
        outcome
    }

    /// The server that shares the limits, if any.
    pub(super) fn server(&self) -> Option<&Arc<Server>> {
        self.shared.as_ref()?.server()
    }

    /// The state of the server that shares the limits, if any.
    pub(super) fn shared(&self) -> Option<ServerState> {
        let shared = self.shared.as_ref()?;
        Some(shared.server().map(|server| server.state()).unwrap_or_default())
    }

    /// The response header line that states the limits.
    pub(crate) fn policy_line(&self) -> &[u8] {
        &self.policy_line
    }
}

/// The remaining quota of limits, in one line (draft-ietf-httpapi-ratelimit-headers-10, 4).
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The line without its end.
    line: Vec<u8>,
    /// The limit of requests with the fewest remaining requests: its requests, the remaining requests, and the seconds until
    /// the full quota is available again.
    tightest: Option<(u64, u64, u64)>,
}

impl Lines {
    fn say(&mut self, name: &str, most: u64, counted: &Counted) {
        self.say_quota(name, (most, counted.left, seconds_up(counted.reset)), true);
    }

    /// Adds what is left of `most`, and the seconds until the full quota is available again.
    pub(crate) fn say_quota(
        &mut self,
        name: &str,
        (most, left, reset): (u64, u64, u64),
        is_of_requests: bool,
    ) {
        if self.line.capacity() == 0 {
            self.line.reserve(LINE);
        }
        self.line.extend_from_slice(if self.line.is_empty() { b"RateLimit: \"" } else { b", \"" });
        self.line.extend_from_slice(name.as_bytes());
        self.line.extend_from_slice(b"\";r=");
        write_decimal(&mut self.line, left);
        self.line.extend_from_slice(b";t=");
        write_decimal(&mut self.line, reset);
        if is_of_requests && self.tightest.is_none_or(|(_, fewest, _)| left < fewest) {
            self.tightest = Some((most, left, reset));
        }
    }

    /// The headers `X-RateLimit-*`.
    pub(crate) fn x_headers(&self) -> String {
        self.tightest.map_or_else(String::new, |(most, left, reset)| {
            format!(
                "X-RateLimit-Limit: {most}\r\nX-RateLimit-Remaining: {left}\r\nX-RateLimit-Reset: {reset}\r\n"
            )
        })
    }

    /// The line with its end; empty without limits.
    pub(crate) fn end(mut self) -> Vec<u8> {
        if !self.line.is_empty() {
            self.line.extend_from_slice(b"\r\n");
        }
        self.line
    }
}

impl Shared {
    fn server(&self) -> Option<&Arc<Server>> {
        match self {
            Self::By(server) => Some(server),
            Self::Unusable => None,
        }
    }
}

impl Limit {
    fn new(source: &model::Limit, pace: Pace, buckets: Arc<Buckets>, reached: Arc<AtomicU64>) -> Self {
        Self {
            pace,
            reached,
            follows_authentication: needs_identity(&source.key, &source.groups) || is_for_all(&source.key),
            source: source.clone(),
            buckets,
        }
    }
}

/// The memory of a line with one or two limits.
const LINE: usize = 96;

fn write_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Whether the gateway needs the caller's identity to apply a limit.
pub(crate) fn needs_identity(key: &[LimitKey], groups: &[GroupName]) -> bool {
    let of_identity = |key: &LimitKey| matches!(key, LimitKey::Claim(_) | LimitKey::Consumer);
    key.iter().any(of_identity) || !groups.is_empty()
}

/// Whether a limit counts all callers together.
fn is_for_all(key: &[LimitKey]) -> bool {
    key.iter().all(|key| matches!(key, LimitKey::Route))
}

fn hash_object(hasher: &mut DefaultHasher, object: &ObjectId) {
    hash_text(hasher, Some(object.namespace.as_bytes()));
    hash_text(hasher, Some(object.name.as_bytes()));
}

/// The hash by which a limit counts a call; `None` if the limit does not apply to the call.
fn hash(
    hasher: &DefaultHasher,
    subscription: Option<u64>,
    key: &[LimitKey],
    groups: &[GroupName],
    caller: &Caller<'_>,
) -> Option<u64> {
    let is_for =
        |consumer: &Consumer| groups.iter().any(|group| consumer.groups.iter().any(|of| **of == **group));
    if !groups.is_empty() && !caller.consumer.is_some_and(is_for) {
        return None;
    }
    if let (Some(subscription), []) = (subscription, key) {
        return Some(subscription);
    }
    let mut hasher = hasher.clone();
    if let Some(subscription) = subscription {
        hasher.write_u64(subscription);
    }
    for key in key {
        match key {
            LimitKey::Address { ipv6_prefix } => hash_address(&mut hasher, caller.address, ipv6_prefix.get()),
            LimitKey::Header(name) => hash_text(&mut hasher, (caller.header)(name).as_deref()),
            LimitKey::Claim(name) => match caller.claims.and_then(|claims| claims.get(name)) {
                Some(serde_json::Value::String(text)) => hash_text(&mut hasher, Some(text.as_bytes())),
                Some(value) => hash_text(&mut hasher, Some(value.to_string().as_bytes())),
                None => hash_text(&mut hasher, None),
            },
            LimitKey::Consumer => match caller.consumer {
                Some(consumer) => hash_object(&mut hasher, &consumer.id),
                None => hash_address(&mut hasher, caller.address, 64),
            },
            LimitKey::Route => hasher.write_u64(caller.route),
        }
    }
    Some(hasher.finish())
}

fn hash_text(hasher: &mut impl std::hash::Hasher, text: Option<&[u8]>) {
    hasher.write_u8(u8::from(text.is_some()));
    hasher.write_usize(text.map_or(0, <[u8]>::len));
    hasher.write(text.unwrap_or_default());
}

fn hash_address(hasher: &mut impl std::hash::Hasher, address: IpAddr, ipv6_prefix: u8) {
    match address.to_canonical() {
        IpAddr::V4(address) => hasher.write_u32(address.to_bits()),
        IpAddr::V6(address) => {
            let shift = 128 - u32::from(ipv6_prefix.clamp(1, 128));
            hasher.write_u128(address.to_bits() >> shift << shift);
        }
    }
}

fn policy_line(limits: &[Limit]) -> String {
    let mut line = String::new();
    for limit in limits.iter().filter(|limit| !limit.source.dry_run) {
        let model::Limit { name, requests, per, .. } = &limit.source;
        // The size of a bucket and the time that it takes to fill: no client reads a higher remaining quota than the
        // stated quota.
        let (requests, per) = match limit.source.window() {
            Window::TokenBucket { burst } => {
                let nanos = per.get().as_nanos() * u128::from(burst) / u128::from(requests.get()).max(1);
                (burst, Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
            }
            Window::Sliding => (requests.get(), per.get()),
        };
        line.push_str(if line.is_empty() { "RateLimit-Policy: " } else { ", " });
        // Writing to a String does not fail.
        let _ = write!(line, "\"{name}\";q={requests};w={}", seconds_up(per));
    }
    if !line.is_empty() {
        line.push_str("\r\n");
    }
    line
}

/// Seconds for headers, rounded up.
pub(crate) fn seconds_up(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
