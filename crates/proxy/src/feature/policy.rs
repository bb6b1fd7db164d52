//! Policies: what one object attaches to its routes, compiled once for all workers.
//!
//! A route without policies has no [`Guard`] and no [`RouteTrafficPolicy`], and costs the same as without this module.
//!
//! State that outlives a configuration is keyed by what was written, never by the index of a route:
//!
//! | state | key |
//! |---|---|
//! | counters of a policy | kind and object of the policy |
//! | counts of a rate limit, calls in flight of a concurrency limit | object, and the limit with its name and numbers |
//! | shared counts of a rate limit | as above, and the server |
//! | retry budget | object, and the numbers of the budget |
//! | cached responses | object, as long as the policy and the settings do not change |
//! | verified tokens and passwords, remembered answers | the compiled method, which a change of its policy replaces |
//! | published keys and configurations of providers | URL |
//! | counters of a consumer | object of the consumer |
//! | counters of an API | object of the API |
//! | validators | content of the contract |
//!
//! In the model, an object defines at most one policy of each kind, so the object is the whole key. Several forms of one
//! policy share its state.

use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::policy as model;
use sluicegate_model::rule::{PathMatch, Rule};
use sluicegate_model::{HostPattern, ObjectId, Settings, UpstreamKey};

use super::authentication::Authentication;
use super::cors::Cors;
use super::quota::Quotas;
use super::rate_limit::Limits;
use super::rate_limit::shared::{ServerState, Servers};
use super::security::Security;
use super::state::{CacheState, PolicyState, SharedState, TrafficState};
use super::subscriptions::Subscriptions;
use super::timeouts::adapted;
use super::traffic::{RouteTrafficPolicy, Traffic};
use super::validation::Apis;
use crate::counters::{Counters, PolicyStats, TrafficStats};
use crate::openid::PublishedPlaces;

/// The state that outlives configurations, so that policies of the next configuration find their state again.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) counters: Arc<Counters>,
    /// The published documents of token issuers, by URL.
    pub(crate) published: PublishedPlaces,
    /// The servers that share limits, by address.
    pub(crate) limit_servers: Servers,
    /// The counts of quotas.
    pub(crate) quotas: Arc<Quotas>,
}

impl Resources {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            counters,
            published: PublishedPlaces::default(),
            limit_servers: Servers::default(),
            quotas: Arc::default(),
        }
    }
}

/// The security policy and the limits of a route.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) security: Option<Arc<SecurityPolicy>>,
    pub(crate) limits: Option<Arc<LimitPolicy>>,
    pub(crate) subscriptions: Option<Arc<SubscriptionPolicy>>,
    /// For limits: a number of the route that is the same in every process.
    pub(crate) route: u64,
    /// The slot of the upstream of the external authorization service.
    pub(crate) service: Option<usize>,
    /// The slots of the upstreams of the filters, in the order of the filters.
    pub(crate) filters: Box<[usize]>,
}

/// A compiled `SecurityPolicy`.
pub(crate) type SecurityPolicy = Policy<model::Security, Security>;

/// The compiled rate limits and concurrency limits of a policy.
pub(crate) type LimitPolicy = Policy<model::RateLimits, Limits>;

/// The compiled subscriptions to operations of an API.
pub(crate) type SubscriptionPolicy = Policy<model::Subscriptions, Subscriptions>;

/// A policy, which its routes share.
#[derive(Debug)]
pub(crate) struct Policy<S, C, T = PolicyStats> {
    pub(super) source: Arc<S>,
    pub(crate) compiled: C,
    pub(crate) stats: Arc<T>,
    /// The number of the source among the forms of the policy.
    print: u64,
}

/// Policies of a kind, by the objects that define them.
type ById<S, C, T> = HashMap<ObjectId, Forms<S, C, T>>;

/// The forms of a policy. The effective parts of a policy differ between routes: a policy of a Gateway may have a form for each
/// rule with a filter. So a look-up by the source compares few forms. All forms count together.
#[derive(Debug)]
struct Forms<S, C, T> {
    all: Vec<Arc<Policy<S, C, T>>>,
    /// The ways to more than [`FEW`] forms. Most policies have one form.
    index: Option<Box<Index>>,
}

/// The number of forms that a look-up compares one by one.
const FEW: usize = 4;

/// The places of forms.
#[derive(Debug, Default)]
struct Index {
    /// By the address of the source.
    by_address: HashMap<usize, usize>,
    /// By [`print_of`] the source.
    by_print: HashMap<u64, Vec<usize>>,
}

impl<S: PartialEq, C, T> Forms<S, C, T> {
    /// The form with this source.
    fn of(&self, source: &Arc<S>) -> Option<&Arc<Policy<S, C, T>>> {
        match &self.index {
            None => self.all.iter().find(|policy| Arc::ptr_eq(&policy.source, source)),
            Some(index) => index.by_address.get(&Arc::as_ptr(source).addr()).map(|place| &self.all[*place]),
        }
    }

    /// The form with an equal source.
    fn like(&self, source: &S, print: u64) -> Option<&Arc<Policy<S, C, T>>> {
        let is_like = |policy: &&Arc<Policy<S, C, T>>| policy.print == print && *policy.source == *source;
        match &self.index {
            None => self.all.iter().find(is_like),
            Some(index) => index.by_print.get(&print)?.iter().map(|place| &self.all[*place]).find(is_like),
        }
    }

    fn push(&mut self, policy: Arc<Policy<S, C, T>>) {
        self.all.push(policy);
        if self.all.len() <= FEW {
            return;
        }
        let first = if self.index.is_some() { self.all.len() - 1 } else { 0 };
        let index = self.index.get_or_insert_default();
        for (place, policy) in self.all.iter().enumerate().skip(first) {
            // The form keeps its source alive, so no other source has the address.
            index.by_address.insert(Arc::as_ptr(&policy.source).addr(), place);
            index.by_print.entry(policy.print).or_default().push(place);
        }
    }
}

impl<S, C, T> Default for Forms<S, C, T> {
    fn default() -> Self {
        Self { all: Vec::new(), index: None }
    }
}

/// A number of a source: equal sources have equal numbers.
fn print_of(source: &impl fmt::Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{source:?}").as_bytes());
    hasher.finish()
}

/// The policies of a table, by the objects that define them.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    security: ById<model::Security, Security, PolicyStats>,
    limits: ById<model::RateLimits, Limits, PolicyStats>,
    subscriptions: ById<model::Subscriptions, Subscriptions, PolicyStats>,
    traffic: ById<model::Traffic, Traffic, TrafficStats>,
    settings: SettingsPool,
    pub(crate) apis: Apis,
}

/// The settings of traffic policies. Thousands of policies often have a few different settings, so they share them.
#[derive(Debug, Default)]
struct SettingsPool(Vec<Arc<Settings>>);

impl SettingsPool {
    /// The most settings to compare.
    const MAX: usize = 32;

    fn share(&mut self, settings: Settings) -> Arc<Settings> {
        if let Some(known) = self.0.iter().find(|known| ***known == settings) {
            return known.clone();
        }
        let shared = Arc::new(settings);
        if self.0.len() < Self::MAX {
            self.0.push(shared.clone());
        }
        shared
    }
}

impl Policies {
    /// The guard of a route. Policies that did not change since the previous table stay, with their counters and with the
    /// results that workers remember for them.
    pub(crate) fn guard(
        &mut self,
        host: &HostPattern,
        rule: &Rule,
        before: &Self,
        resources: &Resources,
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Option<Box<Guard>> {
        if rule.security.is_none() && rule.rate_limits.is_none() && rule.subscriptions.is_none() {
            return None;
        }
        let security = rule.security.as_ref().map(|source| self.security_policy(source, before, resources));
        let limits = rule.rate_limits.as_ref();
        let limits = limits.map(|source| limit_policy(&mut self.limits, &before.limits, source, resources));
        let subscriptions = rule.subscriptions.as_ref().map(|source| {
            let of_plans = &mut self.limits;
            let compile = |_: Option<&_>, _: Option<&_>| {
                let limits = |source| limit_policy(of_plans, &before.limits, &source, resources);
                Subscriptions::new(source, &resources.quotas, limits)
            };
            let stats = || resources.counters.new_policy();
            share(&mut self.subscriptions, (&before.subscriptions, true), source, stats, compile)
        });
        // An unchanged policy is taken over with its plans.
        if let Some(policy) = &subscriptions {
            policy.compiled.limits().for_each(|limits| adopt(&mut self.limits, limits));
        }
        let has_limits = limits.is_some() || subscriptions.is_some();
        let route = if has_limits { number_of(host, rule) } else { 0 };
        Some(Box::new(Guard { limits, subscriptions, route, ..Guard::of(security, slot) }))
    }

    /// The guard of a listener, from its filters.
    pub(crate) fn filters(
        &mut self,
        source: &Arc<model::Security>,
        before: &Self,
        resources: &Resources,
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Box<Guard> {
        Box::new(Guard::of(Some(self.security_policy(source, before, resources)), slot))
    }

    fn security_policy(
        &mut self,
        source: &Arc<model::Security>,
        before: &Self,
        resources: &Resources,
    ) -> Arc<SecurityPolicy> {
        let compile = |_: Option<&_>, _: Option<&_>| Security::new(source, &resources.published);
        let stats = || resources.counters.new_policy();
        share(&mut self.security, (&before.security, true), source, stats, compile)
    }

    /// The course of a route's requests. `settings` are the settings of the table. `before` has policies that may have
    /// been compiled with the same settings.
    pub(crate) fn course(
        &mut self,
        (rule, path): (&Rule, &PathMatch),
        (before, is_same): (&Self, bool),
        (resources, settings): (&Resources, &Settings),
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Option<Box<RouteTrafficPolicy>> {
        let source = rule.traffic.as_ref()?;
        let pool = &mut self.settings;
        let compile = |before: Option<&Traffic>, beside: Option<&Traffic>| {
            let settings = pool.share(adapted(settings, &source.features));
            Traffic::new(source, settings, before, beside)
        };
        let stats = || resources.counters.new_traffic();
        let policy = share(&mut self.traffic, (&before.traffic, is_same), source, stats, compile);
        Some(Box::new(RouteTrafficPolicy::new(policy, rule, path, slot)))
    }

    /// Whether all policies of a guard are among these policies, and no subscription is.
    pub(crate) fn has_guard(&self, guard: &Guard) -> bool {
        guard.subscriptions.is_none()
            && guard.security.as_ref().is_none_or(|policy| has(&self.security, policy))
            && guard.limits.as_ref().is_none_or(|policy| has(&self.limits, policy))
    }

    /// Whether a traffic policy is among these policies.
    pub(crate) fn has_traffic_policy(&self, course: &RouteTrafficPolicy) -> bool {
        has(&self.traffic, &course.policy)
    }

    /// Adopts the traffic policy of an unchanged route.
    pub(crate) fn adopt_traffic_policy(&mut self, course: &RouteTrafficPolicy) {
        adopt(&mut self.traffic, &course.policy);
    }

    /// The query parameters of all policies that hold credentials.
    pub(crate) fn secret_parameters(&self) -> Box<[Box<str>]> {
        let authentication = self
            .security
            .values()
            .flat_map(|forms| &forms.all)
            .filter_map(|policy| policy.compiled.authentication.as_ref());
        let mut all: Vec<_> =
            authentication.flat_map(|known| known.secret_parameters.iter().cloned()).collect();
        all.sort();
        all.dedup();
        all.into()
    }

    /// Each traffic policy with its counters.
    pub(crate) fn traffic_states(&self) -> impl Iterator<Item = TrafficState> {
        self.traffic.iter().filter_map(|(id, forms)| {
            let first = forms.all.first()?;
            let cache = forms.all.iter().find_map(|policy| policy.compiled.cache.as_ref());
            let cache = cache.map(|cache| CacheState { bytes: cache.bytes(), entries: cache.entries() });
            Some(TrafficState { id: id.clone(), stats: first.stats.clone(), cache })
        })
    }

    /// Adopts the security policy and the limits of an unchanged route.
    pub(crate) fn adopt(&mut self, guard: &Guard) {
        if let Some(policy) = &guard.security {
            adopt(&mut self.security, policy);
        }
        if let Some(policy) = &guard.limits {
            adopt(&mut self.limits, policy);
        }
        if let Some(policy) = &guard.subscriptions {
            adopt(&mut self.subscriptions, policy);
            policy.compiled.limits().for_each(|limits| adopt(&mut self.limits, limits));
        }
    }

    /// Each policy, whether the policy denies all requests because it cannot be applied, and its counters.
    pub(crate) fn states(&self) -> impl Iterator<Item = PolicyState> {
        let state = |id: &ObjectId, refuses, stats: &Arc<PolicyStats>| PolicyState {
            id: id.clone(),
            refuses,
            shared: None,
            limits: Vec::new(),
            stats: stats.clone(),
        };
        let of_limits = move |(id, policy): (&ObjectId, &Arc<LimitPolicy>)| PolicyState {
            shared: policy.compiled.shared().map(|ServerState { is_up, exchanged, failed }| SharedState {
                is_up,
                exchanged,
                failed,
            }),
            limits: policy.compiled.reached().collect(),
            ..state(id, false, &policy.stats)
        };
        let security = self.security.iter().filter_map(move |(id, forms)| {
            let refuses = forms.all.iter().any(|policy| policy.compiled.refuses);
            Some(state(id, refuses, &forms.all.first()?.stats))
        });
        let limits = self.limits.iter().filter_map(|(id, forms)| Some((id, forms.all.first()?)));
        let subscriptions = self
            .subscriptions
            .iter()
            .filter_map(move |(id, forms)| Some(state(id, false, &forms.all.first()?.stats)));
        security.chain(limits.map(of_limits)).chain(subscriptions)
    }
}

impl Guard {
    /// The paths that the login of the policy needs on its host.
    pub(crate) fn login_paths(&self) -> impl Iterator<Item = &str> {
        let authentication =
            self.security.as_ref().and_then(|policy| policy.compiled.authentication.as_ref());
        authentication.and_then(Authentication::login).into_iter().flat_map(|login| login.paths())
    }

    fn of(security: Option<Arc<SecurityPolicy>>, slot: impl Fn(&UpstreamKey) -> usize) -> Self {
        let source = security.as_ref().map(|policy| policy.source());
        let service = source.and_then(|source| source.ext_auth_upstream()).map(&slot);
        let filters = source.into_iter().flat_map(|source| &source.filters);
        let filters = filters.map(|filter| slot(&filter.upstream)).collect();
        Self { security, limits: None, subscriptions: None, route: 0, service, filters }
    }

    /// Whether the upstreams of the external authorization services still have the same slots.
    pub(crate) fn is_in_place(&self, slot: impl Fn(&UpstreamKey) -> usize) -> bool {
        let Self { service, filters, .. } = Self::of(self.security.clone(), slot);
        (self.service, &self.filters) == (service, &filters)
    }

    /// The rules for cross-origin requests.
    pub(crate) fn cors(&self) -> Option<&Cors> {
        self.security.as_ref()?.compiled.cors.as_deref()
    }

    /// Whether callers must authenticate.
    pub(crate) fn identifies(&self) -> bool {
        self.security.as_ref().is_some_and(|policy| {
            policy.compiled.authentication.is_some() || !policy.compiled.filters.is_empty()
        })
    }

    /// The query parameters that hold credentials.
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

/// The limits of a RateLimitPolicy or a Plan.
fn limit_policy(
    made: &mut ById<model::RateLimits, Limits, PolicyStats>,
    before: &ById<model::RateLimits, Limits, PolicyStats>,
    source: &Arc<model::RateLimits>,
    resources: &Resources,
) -> Arc<LimitPolicy> {
    let compile =
        |before: Option<&Limits>, _: Option<&_>| Limits::new(source, before, &resources.limit_servers);
    share(made, (before, true), source, || resources.counters.new_policy(), compile)
}

/// A number of a rule that is the same in all data planes: a hash of the object, the host and the matches. The number does
/// not depend on the backends, so that the counts of a limit survive a change of them.
fn number_of(host: &HostPattern, rule: &Rule) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{host} {} {:?}", rule.id, rule.matches).as_bytes());
    hasher.finish()
}

/// The policy in this form. `share` takes the policy from the new table, or from the previous table if the policy may
/// stay. Otherwise `share` compiles the policy with regard to its previous form and its other forms in the new table.
fn share<S: model::Written + PartialEq + fmt::Debug, C, T>(
    made: &mut ById<S, C, T>,
    (before, may_stay): (&ById<S, C, T>, bool),
    source: &Arc<S>,
    new_stats: impl FnOnce() -> Arc<T>,
    compile: impl FnOnce(Option<&C>, Option<&C>) -> C,
) -> Arc<Policy<S, C, T>> {
    let id = source.id();
    let (old, forms) = (before.get(id), made.entry(id.clone()).or_default());
    if let Some(policy) = forms.of(source) {
        return policy.clone();
    }
    let known = old.and_then(|old| old.of(source));
    let print = known.map_or_else(|| print_of(source), |policy| policy.print);
    if let Some(policy) = forms.like(source, print) {
        return policy.clone();
    }
    let known = known.or_else(|| old?.like(source, print));
    let policy = match known.filter(|_| may_stay) {
        Some(policy) => policy.clone(),
        None => {
            let (old, beside) = (old.and_then(|forms| forms.all.first()), forms.all.first());
            let stats = beside.or(old).map_or_else(new_stats, |policy| policy.stats.clone());
            let compiled = compile(old.map(|policy| &policy.compiled), beside.map(|policy| &policy.compiled));
            Arc::new(Policy { source: source.clone(), compiled, stats, print })
        }
    };
    forms.push(policy.clone());
    policy
}

fn has<S: model::Written + PartialEq, C, T>(all: &ById<S, C, T>, policy: &Arc<Policy<S, C, T>>) -> bool {
    let known = all.get(policy.source.id()).and_then(|forms| forms.of(&policy.source));
    known.is_some_and(|known| Arc::ptr_eq(known, policy))
}

/// Adopts an unchanged policy.
fn adopt<S: model::Written + PartialEq, C, T>(made: &mut ById<S, C, T>, policy: &Arc<Policy<S, C, T>>) {
    let forms = made.entry(policy.source.id().clone()).or_default();
    if forms.of(&policy.source).is_none() {
        forms.push(policy.clone());
    }
}
