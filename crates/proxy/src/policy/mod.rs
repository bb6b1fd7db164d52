//! What policies make of routes: who may call, how often, and how requests go on; compiled once for all workers.
//!
//! A route without policies has no [`Guard`] and no [`Course`], and costs what it costs without this module.
//!
//! | module | what |
//! |---|---|
//! | `security` | the parts of a `SecurityPolicy` |
//! | `networks` | addresses |
//! | `cors` | cross-origin requests |
//! | `credential` | where callers put what they are known by |
//! | `tokens`, `basic`, `consumers` | what they are known by |
//! | `external` | HTTP services that are asked about requests |
//! | `service` | servers that policies ask, by their URLs |
//! | `jwks` | keys that issuers of tokens publish |
//! | `authorization` | what they may do |
//! | `reading` | what back ends may make of a path |
//! | `limit` | how often they may do it |
//! | `traffic` | how requests go on |
//!
//! What is done with them in the life of a request is in `http/admit.rs` and `http/steer.rs`.

pub(crate) mod authorization;
pub(crate) mod basic;
pub(crate) mod consumers;
pub(crate) mod cors;
pub(crate) mod credential;
pub(crate) mod external;
pub(crate) mod jwks;
pub(crate) mod limit;
mod networks;
pub(crate) mod reading;
pub(crate) mod security;
mod service;
pub(crate) mod tokens;
pub(crate) mod traffic;

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::policy as model;
use sluicegate_model::rule::{PathMatch, Rule};
use sluicegate_model::{HostPattern, RouteId, Settings, UpstreamKey};

use crate::telemetry::{
    CacheState, PolicyState, PolicyStats, SharedState, Telemetry, TrafficState, TrafficStats,
};
use limit::Limits;
use limit::shared::ServerState;
use security::Security;
use traffic::{Course, Traffic};

/// What guards a route.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) security: Option<Arc<SecurityPolicy>>,
    pub(crate) limits: Option<Arc<LimitPolicy>>,
    /// For its limits, the route by a number that is the same in every process which serves it.
    pub(crate) route: u64,
}

/// Who may call.
pub(crate) type SecurityPolicy = Policy<model::Security, Security>;

/// How often.
pub(crate) type LimitPolicy = Policy<model::RateLimits, Limits>;

/// A policy, which its routes share.
#[derive(Debug)]
pub(crate) struct Policy<S, C, T = PolicyStats> {
    source: Arc<S>,
    pub(crate) compiled: C,
    pub(crate) stats: Arc<T>,
}

/// Policies of a kind, by the objects that they were written in. One may come in several forms, as what of it can be honoured differs
/// from route to route: they count together.
type ById<S, C, T> = HashMap<RouteId, Vec<Arc<Policy<S, C, T>>>>;

/// The policies of a table, by the objects that they were written in.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    security: ById<model::Security, Security, PolicyStats>,
    limits: ById<model::RateLimits, Limits, PolicyStats>,
    traffic: ById<model::Traffic, Traffic, TrafficStats>,
}

impl Policies {
    /// What guards a route. Policies that are as they were in the table before stay, with what they have counted and what
    /// workers remember by them.
    pub(crate) fn guard(
        &mut self,
        host: &HostPattern,
        rule: &Rule,
        before: &Self,
        telemetry: &Telemetry,
    ) -> Option<Box<Guard>> {
        if rule.security.is_none() && rule.rate_limits.is_none() {
            return None;
        }
        let security = rule.security.as_ref().map(|source| {
            let compile = |_: Option<&_>, _: Option<&_>| Security::new(source, telemetry.key_places());
            share(&mut self.security, (&before.security, true), source, || telemetry.new_policy(), compile)
        });
        let limits = rule.rate_limits.as_ref().map(|source| {
            let compile = |before: Option<&Limits>, _: Option<&_>| {
                Limits::new(source, before, telemetry.limit_servers())
            };
            share(&mut self.limits, (&before.limits, true), source, || telemetry.new_policy(), compile)
        });
        let number = limits.as_ref().map_or(0, |_| number_of(host, rule));
        Some(Box::new(Guard { security, limits, route: number }))
    }

    /// What a policy makes of the requests of a route. `settings` are those of the table; `before` has policies that may have
    /// been compiled with the same ones.
    pub(crate) fn course(
        &mut self,
        (rule, path): (&Rule, &PathMatch),
        (before, is_same): (&Self, bool),
        (telemetry, settings): (&Telemetry, &Settings),
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Option<Box<Course>> {
        let source = rule.traffic.as_ref()?;
        let compile = |before: Option<&Traffic>, beside: Option<&Traffic>| {
            Traffic::new(source, settings, before, beside)
        };
        let stats = || telemetry.new_traffic();
        let policy = share(&mut self.traffic, (&before.traffic, is_same), source, stats, compile);
        Some(Box::new(Course::new(policy, path, slot)))
    }

    /// Takes over how the requests of a route go on that stays as it was.
    pub(crate) fn adopt_course(&mut self, course: &Course) {
        adopt(&mut self.traffic, &course.policy);
    }

    /// The parameters of queries that are nobody else's business, of all policies.
    pub(crate) fn secret_parameters(&self) -> Box<[Box<str>]> {
        let authentication =
            self.security.values().flatten().filter_map(|policy| policy.compiled.authentication.as_ref());
        let mut all: Vec<_> =
            authentication.flat_map(|known| known.secret_parameters.iter().cloned()).collect();
        all.sort();
        all.dedup();
        all.into()
    }

    /// Each policy for traffic, and what is counted of it.
    pub(crate) fn traffic_states(&self) -> impl Iterator<Item = TrafficState> {
        self.traffic.iter().filter_map(|(id, forms)| {
            let first = forms.first()?;
            let cache = forms.iter().find_map(|policy| policy.compiled.cache.as_ref());
            let cache = cache.map(|cache| CacheState { bytes: cache.bytes(), entries: cache.entries() });
            Some(TrafficState { id: id.clone(), stats: first.stats.clone(), cache })
        })
    }

    /// Takes over the policies of a route that stays as it was.
    pub(crate) fn adopt(&mut self, guard: &Guard) {
        if let Some(policy) = &guard.security {
            adopt(&mut self.security, policy);
        }
        if let Some(policy) = &guard.limits {
            adopt(&mut self.limits, policy);
        }
    }

    /// Each policy, whether it lets nobody in because it cannot be honoured, and what is counted of it.
    pub(crate) fn states(&self) -> impl Iterator<Item = PolicyState> {
        let state = |id: &RouteId, refuses, stats: &Arc<PolicyStats>| PolicyState {
            id: id.clone(),
            refuses,
            shared: None,
            limits: Vec::new(),
            stats: stats.clone(),
        };
        let of_limits = move |(id, policy): (&RouteId, &Arc<LimitPolicy>)| PolicyState {
            shared: policy.compiled.shared().map(|ServerState { is_up, exchanged, failed }| SharedState {
                is_up,
                exchanged,
                failed,
            }),
            limits: policy.compiled.reached().collect(),
            ..state(id, false, &policy.stats)
        };
        let security = self.security.iter().filter_map(move |(id, forms)| {
            Some(state(id, forms.iter().any(|policy| policy.compiled.refuses), &forms.first()?.stats))
        });
        let limits = self.limits.iter().filter_map(|(id, forms)| Some((id, forms.first()?)));
        security.chain(limits.map(of_limits))
    }
}

impl Guard {
    /// Whether a policy says which origins may read responses.
    pub(crate) fn decides_on_origins(&self) -> bool {
        self.security.as_ref().is_some_and(|policy| policy.compiled.cors.is_some())
    }

    /// Whether callers have to say who they are.
    pub(crate) fn identifies(&self) -> bool {
        self.security.as_ref().is_some_and(|policy| policy.compiled.authentication.is_some())
    }

    /// The parameters of queries that are nobody else's business.
    pub(crate) fn secret_parameters(&self) -> &[Box<str>] {
        let authentication =
            self.security.as_ref().and_then(|policy| policy.compiled.authentication.as_ref());
        authentication.map_or(&[], |authentication| &authentication.secret_parameters)
    }
}

impl<S, C, T> Policy<S, C, T> {
    pub(crate) fn source(&self) -> &S {
        &self.source
    }
}

/// A number of a rule that is the same in all data planes.
fn number_of(host: &HostPattern, rule: &Rule) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{host} {} {} {}", rule.id, rule.path(), rule.upstream).as_bytes());
    hasher.finish()
}

/// The policy in that form among those of the table that is made, or as it was in the table before if it may stay, or compiled, with
/// regard to what was before and to what is made beside.
fn share<S: model::Written + PartialEq, C, T>(
    made: &mut ById<S, C, T>,
    (before, may_stay): (&ById<S, C, T>, bool),
    source: &Arc<S>,
    new_stats: impl FnOnce() -> Arc<T>,
    compile: impl FnOnce(Option<&C>, Option<&C>) -> C,
) -> Arc<Policy<S, C, T>> {
    let id = source.id();
    let is_it =
        |policy: &&Arc<Policy<S, C, T>>| Arc::ptr_eq(&policy.source, source) || *policy.source == **source;
    let (old, forms) = (before.get(id), made.entry(id.clone()).or_default());
    if let Some(policy) = forms.iter().find(is_it) {
        return policy.clone();
    }
    let policy = match old.into_iter().flatten().find(is_it).filter(|_| may_stay) {
        Some(policy) => policy.clone(),
        None => {
            let (old, beside) = (old.and_then(|forms| forms.first()), forms.first());
            let stats = beside.or(old).map_or_else(new_stats, |policy| policy.stats.clone());
            let compiled = compile(old.map(|policy| &policy.compiled), beside.map(|policy| &policy.compiled));
            Arc::new(Policy { source: source.clone(), compiled, stats })
        }
    };
    forms.push(policy.clone());
    policy
}

/// Takes over a policy that stays as it was.
fn adopt<S: model::Written, C, T>(made: &mut ById<S, C, T>, policy: &Arc<Policy<S, C, T>>) {
    let forms = made.entry(policy.source.id().clone()).or_default();
    if !forms.iter().any(|known| Arc::ptr_eq(known, policy)) {
        forms.push(policy.clone());
    }
}
