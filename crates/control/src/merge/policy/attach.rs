//! From policies with their targets to routes (Gateway API: policy attachment, GEP-713).
//!
//! One policy of a kind applies to a route, as a whole: the most specific policy. A policy for the port of the Service
//! comes first, then a policy for the Service, then a policy for the Ingress. Of several policies for the same target,
//! the oldest policy has precedence. If nothing of a policy can be honoured, the other policies apply instead, unless
//! the policy restricts access.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::{Config, ObjectId, UpstreamKey};

use super::standing::{Reason, Standing, TargetName};
use crate::intent::At;
use crate::object::policy::target::Target;
use crate::object::policy::written::target::TargetKind;
use crate::object::service::IpProtocol;
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

/// The key of a look-up of policies for a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Ingress(Arc<str>, Arc<str>),
    Service(Arc<str>, Arc<str>),
    /// The namespace, the name and the key of the port.
    Port(Arc<str>, Arc<str>, Arc<str>),
}

/// The policies of one kind, attached to their targets.
pub(super) struct Attached<'a, V> {
    /// The oldest first.
    policies: Vec<Policy<'a, V>>,
    /// The policy of each place, and the target of the policy.
    holders: HashMap<Place, (usize, usize)>,
    /// The state of each target of each policy, without overridden policies.
    verdicts: Vec<Vec<(Reason, String)>>,
    /// For a policy and its target, the policies that apply to some of the routes in its place.
    overridden: HashMap<(usize, usize), BTreeSet<usize>>,
    /// Services without the port that a policy names, which may be any of their ports, and the policy that applies to
    /// them instead.
    closed: HashMap<Place, Arc<V>>,
}

impl<'a, V> Attached<'a, V> {
    /// Attaches policies to the Ingresses that the gateway serves, and to Services. A policy may name a port that its
    /// Service does not have: `close` returns the policy for the whole Service; `None` leaves the Service open.
    pub(super) fn new(
        store: &Store,
        ours: &HashSet<&ObjectRef>,
        mut policies: Vec<Policy<'a, V>>,
        close: impl Fn(At<'a>, &str) -> Option<Arc<V>>,
    ) -> Self {
        policies.sort_by_cached_key(|policy| policy.at.age(policy.created));
        let mut holders = HashMap::default();
        let mut closed = HashMap::default();
        let mut verdicts = Vec::with_capacity(policies.len());
        for (index, policy) in policies.iter().enumerate() {
            let verdict = |(nth, target): (usize, &Target)| {
                let (place, mut absence) = find(store, ours, policy.at, target);
                if let (Place::Port(namespace, name, _), Some((Reason::NoSuchPort, message))) =
                    (&place, &mut absence)
                {
                    let value = close(policy.at, message);
                    message.push_str(match value {
                        Some(_) => "; its routes respond with 503, unless a policy for the Service or their port applies. Fix sectionName",
                        None => "; the policy has no effect there. Fix sectionName",
                    });
                    closed
                        .extend(value.map(|value| (Place::Service(namespace.clone(), name.clone()), value)));
                }
                if policy.value.is_none() {
                    return absence.unwrap_or((Reason::Accepted, String::new()));
                }
                match holders.entry(place) {
                    Entry::Vacant(place) => {
                        place.insert((index, nth));
                        absence.unwrap_or((Reason::Accepted, String::new()))
                    }
                    Entry::Occupied(holder) if holder.get().0 == index => (Reason::Accepted, String::new()),
                    Entry::Occupied(holder) => absence.unwrap_or_else(|| {
                        let first: &Policy<'_, V> = &policies[holder.get().0];
                        let message = format!(
                            "{} (older, or first by name) applies there already; this policy has no effect there",
                            first.at.object
                        );
                        (Reason::Conflicted, message)
                    }),
                }
            };
            verdicts.push(policy.targets.iter().enumerate().map(verdict).collect());
        }
        Self { policies, holders, verdicts, overridden: HashMap::default(), closed }
    }

    /// The policy of the route from this Ingress to this upstream.
    pub(super) fn of(&mut self, ingress: &ObjectRef, upstream: &UpstreamKey) -> Option<Arc<V>> {
        let mut holders = self.holders_of(&ingress.namespace, &ingress.name, upstream);
        let first = holders.next();
        let is_specific = |(policy, target): (usize, usize)| {
            let target: &Target = &self.policies[policy].targets[target];
            target.kind == TargetKind::Service
        };
        if !self.closed.is_empty() && !first.is_some_and(is_specific) {
            let service = Place::Service(upstream.namespace.clone(), upstream.service.clone());
            if let Some(closed) = self.closed.get(&service) {
                return Some(closed.clone());
            }
        }
        let (governor, _) = first?;
        let overridden: Vec<_> = holders.filter(|(policy, _)| *policy != governor).collect();
        for holder in overridden {
            self.overridden.entry(holder).or_default().insert(governor);
        }
        self.policies[governor].value.clone()
    }

    /// The policy of an upstream itself.
    pub(super) fn of_upstream(&self, upstream: &UpstreamKey) -> Option<&Arc<V>> {
        let nobody = Arc::from("");
        match self.holders_of(&nobody, &nobody, upstream).next() {
            Some((governor, _)) => self.policies[governor].value.as_ref(),
            None => self.closed.get(&Place::Service(upstream.namespace.clone(), upstream.service.clone())),
        }
    }

    /// Records that a part of a policy cannot be honoured.
    pub(super) fn fault(&mut self, policy: &ObjectId, field: &str, message: String) -> Option<Problem> {
        let policy = self.policies.iter_mut().find(|known| known.at.id() == *policy)?;
        policy.fault.get_or_insert_with(|| format!("{field}: {message}"));
        Some(policy.at.problem(Severity::Error, field, message))
    }

    /// The policies that are attached to the source and to the destination of a route, the most specific first.
    fn holders_of(
        &self,
        namespace: &Arc<str>,
        ingress: &Arc<str>,
        upstream: &UpstreamKey,
    ) -> impl Iterator<Item = (usize, usize)> {
        let UpstreamKey { namespace: within, service, port, .. } = upstream;
        let places = (!self.holders.is_empty()).then(|| {
            [
                Place::Port(within.clone(), service.clone(), port.clone()),
                Place::Service(within.clone(), service.clone()),
                Place::Ingress(namespace.clone(), ingress.clone()),
            ]
        });
        let found = places.map(|places| places.map(|place| self.holders.get(&place).copied()));
        found.into_iter().flatten().flatten()
    }

    /// The policies with at least one existing target.
    pub(super) fn with_existing_targets(&self) -> impl Iterator<Item = &V> {
        let of_verdicts = self.policies.iter().zip(&self.verdicts);
        of_verdicts
            .filter(|(_, verdicts)| verdicts.iter().any(|(reason, _)| *reason == Reason::Accepted))
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
            for backend in &route.backends {
                let of_ingress = route.id.kind == Kind::Ingress.as_str();
                // A route of Gateway API is not an Ingress, even with the name of an Ingress.
                let name = if of_ingress { route.id.name.clone() } else { "".into() };
                let holder = self.holders_of(&route.id.namespace, &name, &backend.upstream).next();
                let Some((policy, target)) = holder.filter(|holder| told.insert((*holder, &route.id))) else {
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
            for (nth, (target, (mut reason, mut message))) in policy.targets.iter().zip(verdicts).enumerate()
            {
                let field = target.field();
                match reason {
                    Reason::Foreign => problems.push(policy.at.note(&field, message.clone())),
                    Reason::Conflicted | Reason::TargetNotFound => {
                        problems.push(policy.at.warning(&field, message.clone()));
                    }
                    Reason::NoSuchPort => {
                        problems.push(policy.at.problem(Severity::Error, &field, message.clone()));
                    }
                    Reason::Accepted | Reason::Overridden | Reason::Invalid => {}
                }
                if let Some(by) = self.overridden.remove(&(index, nth)) {
                    let by: Vec<String> = by.iter().take(3).map(|by| objects[*by].to_string()).collect();
                    message =
                        format!("more specific policies apply to some of its routes: {}", by.join(", "));
                    problems.push(policy.at.note(&field, message.clone()));
                    reason = Reason::Overridden;
                }
                if let (true, Some(fault)) = (reason.is_accepted(), &fault) {
                    (reason, message) = (Reason::Invalid, fault.clone());
                }
                let name = TargetName {
                    kind: target.kind.kind(),
                    name: target.name.clone(),
                    section: target.port.clone(),
                };
                let object = policy.at.object.clone();
                policy_statuses.push(Standing { object, target: Some(name), reason, message });
            }
        }
    }
}

/// The place of a target, or the reason why nothing can be attached there.
fn find(
    store: &Store,
    ours: &HashSet<&ObjectRef>,
    at: At<'_>,
    target: &Target,
) -> (Place, Option<(Reason, String)>) {
    let namespace = at.object.namespace.clone();
    let object = ObjectRef { kind: target.kind.kind(), namespace, name: target.name.clone() };
    let missing = || {
        let message = format!("{object} does not exist; the policy has no effect there");
        (Reason::TargetNotFound, message)
    };
    let ObjectRef { namespace, name, .. } = object.clone();
    match (target.kind, &target.port) {
        (TargetKind::Ingress, _) => {
            let absence = if ours.contains(&object) {
                None
            } else if store.knows(&object) {
                let message = format!(
                    "{object} is of another class, or cannot be read; the policy has no effect there"
                );
                Some((Reason::Foreign, message))
            } else {
                Some(missing())
            };
            (Place::Ingress(namespace, name), absence)
        }
        (TargetKind::Service, None) => {
            let absence = (!store.knows(&object)).then(missing);
            (Place::Service(namespace, name), absence)
        }
        (TargetKind::Service, Some(port)) => {
            let service = store.service(&namespace, &name).map(|(service, _)| service);
            let known = service.and_then(|service| service.port(port, IpProtocol::Tcp));
            let key = known.map_or_else(|| port.clone(), |known| known.key.clone());
            let absence = match (known, service) {
                (Some(_), _) => None,
                (None, Some(service)) => {
                    let ports = service.ports_in_words(IpProtocol::Tcp);
                    let message = format!("{object} has no port {port:?}, it has {ports}");
                    Some((Reason::NoSuchPort, message))
                }
                (None, None) => Some(missing()),
            };
            (Place::Port(namespace, name, key), absence)
        }
    }
}
