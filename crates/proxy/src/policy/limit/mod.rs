//! How often a route may be called.
//!
//! | module | what |
//! |---|---|
//! | `window` | how a limit counts |
//! | `buckets` | what is counted by each key |
//! | `clock` | by which time |
//! | `flights` | how many calls of each key are under way |
//! | `pending` | what others are to be told |
//! | `shared` | the servers through which they are told |

mod buckets;
mod clock;
mod flights;
mod pending;
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
use sluicegate_model::policy::{self, Consumer, LimitKey, Window};

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
    /// The line that says what those are that hold; empty if responses do not, or if there are none.
    policy_line: Box<[u8]>,
    shared: Option<Shared>,
}

/// Through what all data planes count together.
#[derive(Debug)]
enum Shared {
    By(Arc<Server>),
    Unusable,
}

#[derive(Debug)]
struct Limit {
    source: policy::Limit,
    pace: Pace,
    buckets: Arc<Buckets>,
    /// Calls beyond it, tried out or not.
    reached: Arc<AtomicU64>,
    /// Whether it is counted only after authentication, as it has to know who calls, or as a stranger would use up what all share.
    follows_authentication: bool,
}

#[derive(Debug)]
struct Concurrency {
    source: policy::Concurrency,
    flights: Arc<Flights>,
    /// Calls beyond it, tried out or not.
    reached: Arc<AtomicU64>,
    /// Whether it is known only after authentication whom it is for.
    needs_identity: bool,
}

/// What limits ask about.
pub(crate) struct Caller<'c> {
    pub(crate) address: IpAddr,
    /// Which route it calls, by the same number in all data planes: one policy may govern many.
    pub(crate) route: u64,
    pub(crate) consumer: Option<&'c Consumer>,
    pub(crate) claims: Option<&'c Claims>,
    /// The value of a header; nothing if there is none, or if there are several, of which it is unknown which one counts for
    /// the endpoint. Hosts are as routes are found by them.
    pub(crate) header: &'c dyn Fn(&str) -> Option<Cow<'c, [u8]>>,
}

/// What has come of limits of how many may be under way.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// The name of the one that is reached.
    pub(crate) refused_by: Option<Box<str>>,
    /// The names of those that were reached and are only tried out.
    pub(crate) dry_runs: Vec<Box<str>>,
}

/// What has come of limits.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The name of a limit that is reached, and how long to wait: of several the one that takes longest.
    pub(crate) refused_by: Option<(Box<str>, Duration)>,
    /// The names of those that were reached and are only tried out.
    pub(crate) dry_runs: Vec<Box<str>>,
}

impl Limits {
    /// Limits that stay as they were `before` go on counting where they were.
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
        let limit = |source: &policy::Limit| {
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
        let concurrency = |source: &policy::Concurrency| {
            let same = |limit: &&Concurrency| limit.source == *source;
            let known = unshared.and_then(|before| before.concurrency.iter().find(same));
            Concurrency {
                source: source.clone(),
                flights: known.map_or_else(|| Arc::new(Flights::new()), |limit| limit.flights.clone()),
                reached: known.map(|known| known.reached.clone()).unwrap_or_default(),
                needs_identity: needs_identity(&source.key, &source.groups),
            }
        };
        let concurrency = limits.concurrency.iter().map(concurrency).collect();
        let policy_line = if limits.headers { policy_line(&all) } else { String::new() };
        Self { all, concurrency, policy_line: policy_line.into_bytes().into(), shared }
    }

    /// Begins a call under each limit of how many may be under way, of those that need to know who calls, or of the others. The
    /// call ends when `permits` do.
    pub(crate) fn begin(&self, caller: &Caller<'_>, with_identity: bool, permits: &mut Vec<Permit>) -> Begun {
        let mut begun = Begun::default();
        for limit in self.concurrency.iter().filter(|limit| limit.needs_identity == with_identity) {
            let policy::Concurrency { name, requests, key, groups, dry_run } = &limit.source;
            let Some(key) = hash(&limit.flights.hasher, key, groups, caller) else { continue };
            if let Some(permit) = limit.flights.begin(key, *requests) {
                permits.push(permit);
                continue;
            }
            limit.reached.fetch_add(1, Ordering::Relaxed);
            if !dry_run {
                begun.refused_by = Some(name.clone());
                break;
            }
            begun.dry_runs.push(name.clone());
        }
        begun
    }

    /// Counts a call, by the limits that follow authentication, or by the others. `lines` gets what responses say. What one
    /// of them refuses none of them counts: calls that are not served use up nothing that others have a share in.
    pub(crate) fn count(
        &self,
        caller: &Caller<'_>,
        is_authenticated: bool,
        now: Instant,
        lines: &mut Lines,
    ) -> Outcome {
        // One alone counts nothing that it refuses. Of several one can still be used up after the look, by another worker.
        if self.all.len() > 1 {
            let said = lines.0.len();
            let look = |limit: &Limit, key| limit.buckets.look(key, &limit.pace, now);
            let outcome = self.ask(caller, is_authenticated, lines, look);
            if outcome.refused_by.is_some() {
                self.note_reached(&outcome);
                return outcome;
            }
            lines.0.truncate(said);
        }
        let count = |limit: &Limit, key| limit.buckets.count(key, &limit.pace, now);
        let outcome = self.ask(caller, is_authenticated, lines, count);
        self.note_reached(&outcome);
        outcome
    }

    fn note_reached(&self, outcome: &Outcome) {
        let refused_by = outcome.refused_by.iter().map(|(name, _)| name);
        for name in refused_by.chain(&outcome.dry_runs) {
            if let Some(limit) = self.all.iter().find(|limit| limit.source.name == *name) {
                limit.reached.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many calls were beyond each limit, tried out or not.
    pub(super) fn reached(&self) -> impl Iterator<Item = (Box<str>, u64)> {
        let rates = self.all.iter().map(|limit| (&limit.source.name, &limit.reached));
        let concurrency = self.concurrency.iter().map(|limit| (&limit.source.name, &limit.reached));
        rates.chain(concurrency).map(|(name, reached)| (name.clone(), reached.load(Ordering::Relaxed)))
    }

    fn ask(
        &self,
        caller: &Caller<'_>,
        is_authenticated: bool,
        lines: &mut Lines,
        by: impl Fn(&Limit, u64) -> Counted,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        for limit in self.all.iter().filter(|limit| limit.follows_authentication == is_authenticated) {
            let policy::Limit { name, key, groups, dry_run, .. } = &limit.source;
            let Some(key) = hash(&limit.buckets.hasher, key, groups, caller) else { continue };
            let counted = by(limit, key);
            // Clients that keep to what they are told would keep to what is only tried out.
            if !self.policy_line.is_empty() && !dry_run {
                lines.say(name, &counted);
            }
            match counted.wait {
                None => {}
                Some(_) if *dry_run => outcome.dry_runs.push(name.clone()),
                Some(wait) if outcome.refused_by.as_ref().is_none_or(|(_, longest)| wait > *longest) => {
                    outcome.refused_by = Some((name.clone(), wait));
                }
                Some(_) => {}
            }
        }
        outcome
    }

    /// How it stands with what they are shared through, if they are.
    pub(super) fn shared(&self) -> Option<ServerState> {
        let shared = self.shared.as_ref()?;
        Some(shared.server().map(|server| server.state()).unwrap_or_default())
    }

    /// The line that says what the limits are.
    pub(crate) fn policy_line(&self) -> &[u8] {
        &self.policy_line
    }
}

/// What is left of limits, in one line (draft-ietf-httpapi-ratelimit-headers-10, 4).
#[derive(Debug, Default)]
pub(crate) struct Lines(String);

impl Lines {
    fn say(&mut self, name: &str, counted: &Counted) {
        self.0.push_str(if self.0.is_empty() { "RateLimit: " } else { ", " });
        // Writing to a String does not fail.
        let _ = write!(self.0, "\"{name}\";r={};t={}", counted.left, seconds_up(counted.reset));
    }

    /// The line with its end; nothing, if nothing is said.
    pub(crate) fn end(mut self) -> String {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        self.0
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
    fn new(source: &policy::Limit, pace: Pace, buckets: Arc<Buckets>, reached: Arc<AtomicU64>) -> Self {
        Self {
            pace,
            reached,
            follows_authentication: needs_identity(&source.key, &source.groups) || is_for_all(&source.key),
            source: source.clone(),
            buckets,
        }
    }
}

/// Whether it is known only after authentication whom a limit is for.
fn needs_identity(key: &[LimitKey], groups: &[Box<str>]) -> bool {
    let of_identity = |key: &LimitKey| matches!(key, LimitKey::Claim(_) | LimitKey::Consumer);
    key.iter().any(of_identity) || !groups.is_empty()
}

/// Whether a limit counts all callers as one.
fn is_for_all(key: &[LimitKey]) -> bool {
    key.iter().all(|key| matches!(key, LimitKey::Route))
}

/// What a call is counted by; nothing if the limit is not for it.
fn hash(hasher: &DefaultHasher, key: &[LimitKey], groups: &[Box<str>], caller: &Caller<'_>) -> Option<u64> {
    let is_for = |consumer: &Consumer| groups.iter().any(|group| consumer.groups.contains(group));
    if !groups.is_empty() && !caller.consumer.is_some_and(is_for) {
        return None;
    }
    let mut hasher = hasher.clone();
    for key in key {
        match key {
            LimitKey::Address { ipv6_prefix } => hash_address(&mut hasher, caller.address, *ipv6_prefix),
            LimitKey::Header(name) => hash_text(&mut hasher, (caller.header)(name).as_deref()),
            LimitKey::Claim(name) => match caller.claims.and_then(|claims| claims.get(name)) {
                Some(serde_json::Value::String(text)) => hash_text(&mut hasher, Some(text.as_bytes())),
                Some(value) => hash_text(&mut hasher, Some(value.to_string().as_bytes())),
                None => hash_text(&mut hasher, None),
            },
            LimitKey::Consumer => match caller.consumer {
                Some(consumer) => {
                    hash_text(&mut hasher, Some(consumer.id.namespace.as_bytes()));
                    hash_text(&mut hasher, Some(consumer.id.name.as_bytes()));
                }
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
        let policy::Limit { name, requests, per, window, .. } = &limit.source;
        // What a bucket holds, and how long it takes to fill: nobody is told of more that is left than there is.
        let (requests, per) = match window {
            Window::TokenBucket { burst } => {
                let nanos = per.as_nanos() * u128::from(*burst) / u128::from(*requests).max(1);
                (burst, Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
            }
            Window::Sliding => (requests, *per),
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

/// Seconds, as headers have them: rather one too many.
pub(crate) fn seconds_up(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
