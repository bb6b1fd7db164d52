//! From policies with their targets to routes (Gateway API: policy attachment, GEP-713).
//!
//! A policy for the port of a Service comes first, then a policy for the Service. One of these policies applies to a route as
//! a whole. Without them, the policy of the Ingress applies. For an operation of an Api, the policies of the operation, of its
//! sets and of the Api apply instead. For a rule of an HTTPRoute or a GRPCRoute, four policies apply
//! instead: those of the rule, the route, the listener and the Gateway. The more specific policy has precedence for each part
//! that it sets (see [`Parts`]). Of several policies for the same target, the oldest policy has precedence. If nothing of a
//! policy can be honoured, the other policies apply instead, unless the policy restricts access.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::{Config, ObjectId, UpstreamKey};

use super::standing::{Ancestor, Reason, Standing, TargetName};
use super::targets::{Found, Targets};
use crate::intent::At;
use crate::object::policy::target::Target;
use crate::object::{Kind, ObjectRef};
use crate::problem::{Problem, Severity};
use crate::store::Store;

/// A policy of one kind.
pub(super) struct Policy<'a, V> {
    pub(super) at: At<'a>,
    pub(super) created: Option<i64>,
    pub(super) targets: &'a [Target],
    /// The effective policy; `None` if nothing of it can be honoured.
    pub(super) value: Option<Arc<V>>,
    /// The part that cannot be honoured, beside the errors of the object itself.
    pub(super) fault: Option<String>,
}

/// A policy whose parts combine with the parts of a less specific policy.
pub(super) trait Parts: Sized {
    /// The policy with the parts of `base` that the policy does not set; `None` if this is the policy itself.
    fn over(&self, base: &Self) -> Option<Self>;

    /// Whether a part of `base` has no effect, because the policy sets the part.
    fn replaces(&self, base: &Self) -> bool;

    /// Whether the policy changes requests. A policy that only changes the endpoints of a Service leaves the policies of
    /// routes in place.
    fn is_for_requests(&self) -> bool {
        true
    }
}

/// The key of a look-up of policies: an object, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) object: ObjectRef,
    /// The key of a port, or the name of a listener or a rule.
    pub(super) section: Option<Arc<str>>,
}

/// A policy and one of its targets, by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    policy: usize,
    target: usize,
}

/// The origin of a rule.
#[derive(Clone, Copy)]
pub(super) struct RuleOrigin<'r> {
    /// The HTTPRoute, the GRPCRoute or the Api.
    pub(super) route: &'r ObjectRef,
    /// The names by which policies select the rule, the most specific first.
    pub(super) sections: &'r [Arc<str>],
    /// The Gateway; none for an Api.
    pub(super) gateway: Option<&'r ObjectRef>,
    /// The name of the listener, if the listener is of the Gateway itself, not of a ListenerSet.
    pub(super) listener: Option<&'r Arc<str>>,
}

/// The policies of one kind, attached to their targets.
pub(super) struct Attached<'a, V> {
    /// The oldest first.
    policies: Vec<Policy<'a, V>>,
    /// The policy of each place, and the target of the policy.
    holders: HashMap<Place, Holder>,
    /// The state of each target of each policy, without overridden policies.
    verdicts: Vec<Vec<Verdict>>,
    /// For a policy and its target, the policies that have precedence on some of the routes in its place.
    overridden: HashMap<Holder, BTreeSet<usize>>,
    /// Objects without the part that a policy names, which may be any of their parts, and the policy that applies to
    /// them instead.
    closed: HashMap<ObjectRef, Arc<V>>,
    /// The combined policies of rules, by the policies that they consist of, the most specific first.
    combined: HashMap<Vec<Holder>, Arc<V>>,
}

/// The state of a target.
struct Verdict {
    reason: Reason,
    message: String,
    ancestors: Vec<Ancestor>,
}

impl<'a, V: Parts> Attached<'a, V> {
    /// Attaches policies to their targets. A policy may name a part that its target does not have: `close` returns the
    /// policy for the whole target; `None` leaves the target open.
    pub(super) fn new(
        known: &Targets<'_>,
        mut policies: Vec<Policy<'a, V>>,
        close: impl Fn(At<'a>, &str) -> Option<Arc<V>>,
    ) -> Self {
        policies.sort_by_cached_key(|policy| policy.at.age(policy.created));
        let mut holders = HashMap::default();
        let mut closed = HashMap::default();
        let mut verdicts = Vec::with_capacity(policies.len());
        for (index, policy) in policies.iter().enumerate() {
            let verdict = |(nth, target): (usize, &Target)| {
                let Found { place, mut absence, ancestors } = known.find(policy.at, target);
                if let Some((Reason::NoSuchSection, message)) = &mut absence {
                    let value = close(policy.at, message);
                    message.push_str(&match value {
                        Some(_) => format!(
                            "; its routes respond with 503, unless a policy for the {} or their {} applies. Fix sectionName",
                            target.kind,
                            target.kind.section()
                        ),
                        None => "; the policy has no effect there. Fix sectionName".to_owned(),
                    });
                    closed.extend(value.map(|value| (place.object.clone(), value)));
                }
                let accepted = || (Reason::Accepted, String::new());
                let (reason, message) = match holders.entry(place) {
                    _ if policy.value.is_none() => absence.unwrap_or_else(accepted),
                    Entry::Vacant(place) => {
                        place.insert(Holder { policy: index, target: nth });
                        absence.unwrap_or_else(accepted)
                    }
                    Entry::Occupied(holder) if holder.get().policy == index => accepted(),
                    Entry::Occupied(holder) => absence.filter(|(reason, _)| !reason.is_accepted()).unwrap_or_else(|| {
                        let first: &Policy<'_, V> = &policies[holder.get().policy];
                        let message = format!(
                            "{} (older, or first by name) applies there already; this policy has no effect there",
                            first.at.object
                        );
                        (Reason::Conflicted, message)
                    }),
                };
                Verdict { reason, message, ancestors }
            };
            verdicts.push(policy.targets.iter().enumerate().map(verdict).collect());
        }
        let (overridden, combined) = (HashMap::default(), HashMap::default());
        Self { policies, holders, verdicts, overridden, closed, combined }
    }

    /// The policy of a rule of this Ingress or Api that leads to this upstream. `sections` are the names of the rule of an Api
    /// ([`RuleOrigin::sections`]).
    pub(super) fn of(
        &mut self,
        ingress: &ObjectRef,
        sections: &[Arc<str>],
        upstream: Option<&UpstreamKey>,
    ) -> Option<Arc<V>> {
        if ingress.kind == Kind::Api {
            let origin = RuleOrigin { route: ingress, sections, gateway: None, listener: None };
            return self.of_rule(origin, upstream);
        }
        let of_ingress = self.holder(ingress, None);
        let of_service = upstream.and_then(|upstream| self.of_service(upstream, of_ingress));
        let governor = match of_service {
            Some(of_service) => return Some(of_service),
            None => of_ingress?.policy,
        };
        self.policies[governor].value.clone()
    }

    /// The policy of a rule of an HTTPRoute, a GRPCRoute or an Api, whose first valid backend is this upstream.
    pub(super) fn of_rule(
        &mut self,
        RuleOrigin { route, sections, gateway, listener }: RuleOrigin<'_>,
        upstream: Option<&UpstreamKey>,
    ) -> Option<Arc<V>> {
        if self.holders.is_empty() {
            return None;
        }
        let of_sections = sections.iter().filter_map(|section| self.holder(route, Some(section)));
        let of_route: Vec<Holder> = of_sections.chain(self.holder(route, None)).collect();
        let of_listener =
            gateway.zip(listener).and_then(|(gateway, listener)| self.holder(gateway, Some(listener)));
        let of_gateway = gateway.and_then(|gateway| self.holder(gateway, None));
        let is_open_route = !of_route.is_empty();
        let chain: Vec<Holder> = of_route.into_iter().chain(of_listener).chain(of_gateway).collect();
        if let Some(upstream) = upstream
            && let Some(of_service) = self.of_service(upstream, chain.iter().copied())
        {
            return Some(of_service);
        }
        // A policy for a listener of the Gateway cannot mean a listener of a ListenerSet.
        let is_open_gateway = of_listener.or(of_gateway).is_some() || listener.is_none();
        for (object, is_open) in [(Some(route), is_open_route), (gateway, is_open_gateway)] {
            if let Some(closed) = object.filter(|_| !is_open).and_then(|object| self.closed.get(object)) {
                return Some(closed.clone());
            }
        }
        self.combine(chain)
    }

    /// The policy of an upstream itself.
    pub(super) fn of_upstream(&self, upstream: &UpstreamKey) -> Option<&Arc<V>> {
        match self.holders_of(upstream).next() {
            Some(holder) => self.policies[holder.policy].value.as_ref(),
            None if self.closed.is_empty() => None,
            None => self.closed.get(&service_of(upstream)),
        }
    }

    /// The policy that is attached to the Service of a route or to its port, and applies instead of the policies of the
    /// route's `origin`.
    fn of_service(
        &mut self,
        upstream: &UpstreamKey,
        origin: impl IntoIterator<Item = Holder>,
    ) -> Option<Arc<V>> {
        let is_for_requests = |holder: &Holder| {
            self.policies[holder.policy].value.as_ref().is_none_or(|value| value.is_for_requests())
        };
        let mut holders = self.holders_of(upstream).filter(is_for_requests);
        let (first, second) = (holders.next(), holders.next());
        let Some(first) = first else { return self.closed.get(&service_of(upstream)).cloned() };
        let governor = first.policy;
        for holder in second.into_iter().chain(origin).filter(|holder| holder.policy != governor) {
            self.overridden.entry(holder).or_default().insert(governor);
        }
        self.policies[governor].value.clone()
    }

    /// The combined policy of these policies, the most specific first.
    fn combine(&mut self, mut chain: Vec<Holder>) -> Option<Arc<V>> {
        let policies = &self.policies;
        let mut seen = Vec::with_capacity(chain.len());
        chain.retain(|holder| {
            let is_new = !seen.contains(&holder.policy);
            seen.push(holder.policy);
            is_new
        });
        let value = |policy: usize| policies[policy].value.as_ref();
        let first = value(chain.first()?.policy)?;
        if chain.len() == 1 {
            return Some(first.clone());
        }
        if let Some(known) = self.combined.get(&chain) {
            return Some(known.clone());
        }
        let mut combined = first.clone();
        for (nth, holder) in chain.iter().enumerate().skip(1) {
            let Some(base) = value(holder.policy) else { continue };
            let by = chain[..nth].iter().map(|holder| holder.policy);
            let by = by.filter(|policy| value(*policy).is_some_and(|value| value.replaces(base)));
            let by: BTreeSet<usize> = by.collect();
            if !by.is_empty() {
                self.overridden.entry(*holder).or_default().extend(by);
            }
            combined = combined.over(base).map_or(combined, Arc::new);
        }
        self.combined.insert(chain, combined.clone());
        Some(combined)
    }

    /// Records that a part of a policy cannot be honoured.
    pub(super) fn fault(&mut self, policy: &ObjectId, field: &str, message: String) -> Option<Problem> {
        let policy = self.policies.iter_mut().find(|known| known.at.id() == *policy)?;
        policy.fault.get_or_insert_with(|| format!("{field}: {message}"));
        Some(policy.at.problem(Severity::Error, field, message))
    }

    /// The policy of a place.
    fn holder(&self, object: &ObjectRef, section: Option<&Arc<str>>) -> Option<Holder> {
        if self.holders.is_empty() {
            return None;
        }
        self.holders.get(&Place { object: object.clone(), section: section.cloned() }).copied()
    }

    /// The policies that are attached to the port of an upstream and to its Service.
    fn holders_of(&self, upstream: &UpstreamKey) -> impl Iterator<Item = Holder> + use<V> {
        let service = (!self.holders.is_empty()).then(|| service_of(upstream));
        let found =
            service.map(|service| [self.holder(&service, Some(&upstream.port)), self.holder(&service, None)]);
        found.into_iter().flatten().flatten()
    }

    /// The policies with at least one existing target.
    pub(super) fn with_existing_targets(&self) -> impl Iterator<Item = &V> {
        let of_verdicts = self.policies.iter().zip(&self.verdicts);
        of_verdicts
            .filter(|(_, verdicts)| verdicts.iter().any(|verdict| verdict.reason == Reason::Accepted))
            .filter_map(|(policy, _)| policy.value.as_deref())
    }

    /// All policies, whether they apply to any route or not.
    pub(super) fn policies(&self) -> &[Policy<'a, V>] {
        &self.policies
    }

    /// Reports TLS passthrough of connections to targets of policies, where no policy can have an effect.
    pub(super) fn report_ineffective_policies(&self, config: &Config, problems: &mut Vec<Problem>) {
        let mut told = HashSet::default();
        for (host, route) in config.layer4_routes() {
            let ObjectId { kind, namespace, name } = &route.id;
            let is_ingress = *kind == Kind::Ingress.as_str();
            let ingress = ObjectRef { kind: Kind::Ingress, namespace: namespace.clone(), name: name.clone() };
            // A route of Gateway API is not an Ingress, even with the name of an Ingress.
            let of_ingress = is_ingress.then(|| self.holder(&ingress, None)).flatten();
            for backend in &route.backends {
                let holder = self.holders_of(&backend.upstream).next().or(of_ingress);
                let Some(Holder { policy, target }) =
                    holder.filter(|holder| told.insert((*holder, &route.id)))
                else {
                    continue;
                };
                let Policy { at, targets, .. } = &self.policies[policy];
                let message = format!(
                    "has no effect on connections that {} forwards below HTTP, for host {host}",
                    route.id
                );
                problems.push(at.problem(Severity::Error, &targets[target].field(), message));
            }
        }
    }

    /// Returns the state of all policies.
    pub(super) fn finish(
        mut self,
        store: &Store,
        problems: &mut Vec<Problem>,
        policy_statuses: &mut Vec<Standing>,
    ) {
        let objects: Vec<&ObjectRef> = self.policies.iter().map(|policy| policy.at.object).collect();
        for (index, (policy, verdicts)) in self.policies.iter().zip(self.verdicts).enumerate() {
            let fault = store.error_of(policy.at.object).or_else(|| policy.fault.clone());
            for (nth, (target, verdict)) in policy.targets.iter().zip(verdicts).enumerate() {
                let Verdict { mut reason, mut message, ancestors } = verdict;
                let field = target.field();
                match reason {
                    Reason::Foreign => problems.push(policy.at.note(&field, message.clone())),
                    Reason::Accepted if !message.is_empty() => {
                        problems.push(policy.at.note(&field, message.clone()));
                    }
                    Reason::Pending | Reason::Suspended | Reason::Conflicted | Reason::TargetNotFound => {
                        problems.push(policy.at.warning(&field, message.clone()));
                    }
                    Reason::NoSuchSection | Reason::BelowHttp => {
                        problems.push(policy.at.problem(Severity::Error, &field, message.clone()));
                    }
                    Reason::Accepted | Reason::Overridden | Reason::Invalid => {}
                }
                if let Some(by) = self.overridden.remove(&Holder { policy: index, target: nth }) {
                    let by: Vec<String> = by.iter().take(3).map(|by| objects[*by].to_string()).collect();
                    let what = match target.kind.kind() {
                        Kind::Ingress | Kind::Service => "more specific policies apply to some of its routes",
                        _ => {
                            "more specific policies replace this policy, or parts of it, on some of its routes"
                        }
                    };
                    message = format!("{what}: {}", by.join(", "));
                    problems.push(policy.at.note(&field, message.clone()));
                    reason = Reason::Overridden;
                }
                if let (true, Some(fault)) = (reason.is_accepted(), &fault) {
                    (reason, message) = (Reason::Invalid, fault.clone());
                }
                let name = TargetName {
                    kind: target.kind.kind(),
                    name: target.name.clone(),
                    section: target.section.clone(),
                };
                let object = policy.at.object.clone();
                policy_statuses.push(Standing { object, target: Some(name), ancestors, reason, message });
            }
        }
    }
}

/// The Service of an upstream.
fn service_of(UpstreamKey { namespace, service, .. }: &UpstreamKey) -> ObjectRef {
    ObjectRef { kind: Kind::Service, namespace: namespace.clone(), name: service.clone() }
}
