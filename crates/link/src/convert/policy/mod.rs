//! Policies, and the routes that they guard.
//!
//! An unknown field may be passed over where nothing is lost but what is new. A policy without a part of it lets somebody in,
//! so whatever is unknown in it refuses it, and the routes that name it: see [`whole`](super::whole) and `GuardedPath` of
//! `link.proto`.
//!
//! | module | what |
//! |---|---|
//! | `security` | who may call: addresses, cross-origin requests, authentication, authorization |
//! | `jwt` | tokens, and the keys by which they are verified |
//! | `external` | services that are asked about requests |
//! | `consumer` | who calls |
//! | `rate_limit` | how often |
//! | `traffic` | how requests go on |

use std::sync::Arc;

use http::HeaderName;
use sluicegate_model::policy::{RateLimits, Security, Traffic};
use sluicegate_model::{PathPattern, Route, VirtualHost};

use super::{Refusal, Shared, required};
use crate::digest::Digest;
use crate::proto;
use crate::resource::Kind;

mod consumer;
mod external;
mod jwt;
mod rate_limit;
mod security;
mod traffic;

/// What guards a route.
#[derive(Default)]
pub(super) struct Policies {
    pub(super) security: Option<Arc<Security>>,
    pub(super) rate_limits: Option<Arc<RateLimits>>,
    pub(super) traffic: Option<Arc<Traffic>>,
}

impl proto::GuardedPath {
    /// None for a route without policies.
    pub(super) fn new(path: &PathPattern, policies: impl Iterator<Item = (Kind, Digest)>) -> Option<Self> {
        let name =
            |(kind, digest): (Kind, Digest)| proto::Name { kind: kind as u32, name: digest.into_bytes() };
        let policies: Vec<_> = policies.map(name).collect();
        (!policies.is_empty()).then(|| Self { path: Some(path.into()), policies })
    }

    pub(super) fn read(self, shared: &impl Shared) -> Result<(PathPattern, Policies), Refusal> {
        let mut policies = Policies::default();
        if self.policies.is_empty() {
            return Err(Refusal::Missing("the policy of a route"));
        }
        for proto::Name { kind, name } in self.policies {
            let is_another = match Kind::of(kind) {
                Some(Kind::Security) => {
                    let policy = shared.security(&name).ok_or(Refusal::Unresolved("policy for callers"))?;
                    policies.security.replace(policy).is_some()
                }
                Some(Kind::RateLimits) => {
                    let policy = shared.rate_limits(&name).ok_or(Refusal::Unresolved("policy for rates"))?;
                    policies.rate_limits.replace(policy).is_some()
                }
                Some(Kind::Traffic) => {
                    let policy = shared.traffic(&name).ok_or(Refusal::Unresolved("policy for traffic"))?;
                    policies.traffic.replace(policy).is_some()
                }
                _ => return Err(Refusal::Policy(kind)),
            };
            if is_another {
                return Err(Refusal::Invalid("the policies of a route"));
            }
        }
        Ok((required(self.path, "the path of a route")?.try_into()?, policies))
    }
}

impl proto::VirtualHost {
    /// Whether an older form would serve a path without what guards it now: by the route of that path, or by one for less of it.
    pub(crate) fn is_opened_by(&self, older: &VirtualHost) -> bool {
        let mut now = Vec::with_capacity(self.routes.len() + 1);
        // What is for all paths comes last.
        for route in self.fallback.iter().chain(&self.routes) {
            match route.pattern() {
                Some(path) => now.push((path, route)),
                // Whatever it is for.
                None if route.guarded.is_some() => return true,
                None => {}
            }
        }
        let before: Vec<_> =
            older.fallback.iter().chain(&older.routes).map(|route| (route.path.clone(), route)).collect();
        let paths = now.iter().map(|(path, _)| path).chain(before.iter().map(|(path, _)| path));
        paths.map(PathPattern::as_str).any(|path| match (serves(&now, path), serves(&before, path)) {
            (Some(now), Some(older)) => now.is_opened_by(older),
            _ => false,
        })
    }
}

/// Which route takes a path (see [`PathPattern`]).
fn serves<R: Copy>(routes: &[(PathPattern, R)], path: &str) -> Option<R> {
    let takes = |pattern: &PathPattern| match (pattern, path.strip_prefix(pattern.as_str())) {
        (_, None) => false,
        (PathPattern::Exact(_), Some(rest)) => rest.is_empty(),
        (PathPattern::Prefix(pattern), Some(rest)) => {
            rest.is_empty() || rest.starts_with('/') || &**pattern == "/"
        }
        (PathPattern::Starts(_), Some(_)) => true,
    };
    let rank = |pattern: &PathPattern| match pattern {
        PathPattern::Exact(_) => 2,
        PathPattern::Prefix(_) => 1,
        PathPattern::Starts(_) => 0,
    };
    let taking = routes.iter().filter(|(pattern, _)| takes(pattern));
    let best = taking.max_by_key(|(pattern, _)| (pattern.as_str().len(), rank(pattern)));
    best.map(|(_, route)| *route)
}

impl proto::Route {
    /// Which paths it is for, if that can be read.
    fn pattern(&self) -> Option<PathPattern> {
        let guarded = || self.guarded.as_ref()?.path.clone();
        self.path.clone().or_else(guarded)?.try_into().ok()
    }

    /// Whether an older one for the same paths would be served without what guards it now. Without limits of its rate, or with other headers, it
    /// lets nobody in who may not.
    pub(crate) fn is_opened_by(&self, older: &Route) -> bool {
        let Some(guarded) = &self.guarded else { return false };
        let is_missing = |policy: &proto::Name| match Kind::of(policy.kind) {
            Some(Kind::Security) => older.security.is_none(),
            Some(Kind::RateLimits | Kind::Traffic) => false,
            _ => true,
        };
        guarded.policies.iter().any(is_missing)
    }
}

/// A name that a header can have, in any case.
fn header(name: String) -> Result<Box<str>, Refusal> {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(_) => Ok(name.into()),
        Err(_) => Err(Refusal::Invalid("the name of a header")),
    }
}

fn headers(names: Vec<String>) -> Result<Vec<Box<str>>, Refusal> {
    names.into_iter().map(header).collect()
}
