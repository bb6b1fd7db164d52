//! XBackendTrafficPolicies: the policy of each Service, and the state of the policy.
//!
//! Of several policies for the same Service, the oldest policy has precedence, then the first by name, whether the policy is
//! valid or not.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;
use sluicegate_model::feature::{Affinity, RetryConstraint};
use sluicegate_model::{Protocol, UpstreamKey};

use crate::intent::{At, Intents};
use crate::object::backend_traffic::BackendTrafficPolicy;
use crate::object::{Kind, ObjectRef};
use crate::problem::Problem;
use crate::status::{ACCEPTED, Condition, Content, Fault, ObjectStatus};
use crate::store::{ServiceRef, Store};
use crate::x_backend;

/// The XBackendTrafficPolicies of a store, by their targets.
#[derive(Default)]
pub(crate) struct BackendTraffic<'a> {
    /// The oldest first.
    policies: Vec<(At<'a>, &'a BackendTrafficPolicy)>,
    /// The policy with precedence for each Service, by its place.
    holders: HashMap<ServiceRef, usize>,
}

/// The Gateways whose HTTPRoutes and GRPCRoutes name a Service as a backend.
type Uses<'r> = HashMap<ServiceRef, BTreeSet<&'r ObjectRef>>;

impl<'a> BackendTraffic<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        let policies = store.all::<BackendTrafficPolicy>();
        let policies = policies.map(|(object, policy, origin)| (At { object, origin }, policy));
        let mut policies: Vec<_> = policies.collect();
        policies.sort_by_cached_key(|(at, policy)| at.age(policy.created));
        let mut holders = HashMap::default();
        for (index, (at, policy)) in policies.iter().enumerate() {
            for target in &policy.targets {
                holders.entry((at.object.namespace.clone(), target.service.clone())).or_insert(index);
            }
        }
        Self { policies, holders }
    }

    /// The session persistence of an upstream, if its Service has one.
    pub(crate) fn affinity(&self, upstream: &UpstreamKey) -> Option<&'a Affinity> {
        self.of(upstream)?.affinity.as_ref()
    }

    /// The limit on retries of an upstream, if its Service has one.
    pub(crate) fn retry_constraint(&self, upstream: &UpstreamKey) -> Option<RetryConstraint> {
        self.of(upstream)?.retry_constraint
    }

    fn of(
        &self,
        UpstreamKey { namespace, service, transport, .. }: &UpstreamKey,
    ) -> Option<&'a BackendTrafficPolicy> {
        let is_http = matches!(transport.protocol, Protocol::Http | Protocol::Http2);
        if self.policies.is_empty() || !is_http {
            return None;
        }
        let holder = self.holders.get(&(namespace.clone(), service.clone()))?;
        Some(self.policies[*holder].1)
    }

    /// The status of each policy for each Gateway whose routes have a target of the policy as a backend (Gateway API:
    /// `PolicyStatus`, GEP-2648). Adds the problems of these policies.
    pub(crate) fn statuses(
        &self,
        store: &Store,
        intents: &Intents<'_>,
        problems: &mut Vec<Problem>,
    ) -> Vec<ObjectStatus> {
        if self.policies.is_empty() {
            return Vec::new();
        }
        let uses = uses(intents);
        let status = |(index, (at, policy)): (usize, &(At<'_>, &BackendTrafficPolicy))| {
            let newest = store.not_in_service::<BackendTrafficPolicy>(at.object);
            ObjectStatus {
                object: at.object.clone(),
                generation: newest.map_or(*policy, |(newest, _)| newest).generation,
                content: Content::Policy(self.ancestors(store, index, &uses, problems)),
            }
        };
        self.policies.iter().enumerate().map(status).collect()
    }

    /// The Gateways of a policy, each with the conditions of the policy there.
    fn ancestors(
        &self,
        store: &Store,
        index: usize,
        uses: &Uses<'_>,
        problems: &mut Vec<Problem>,
    ) -> Vec<(ObjectRef, Vec<Condition>)> {
        let (at, policy) = self.policies[index];
        let invalid = store.error_of(at.object).map(|error| Fault::new("Invalid", error));
        // For each Gateway, the reason why the policy applies to no target there.
        let mut gateways: BTreeMap<&ObjectRef, Option<Fault>> = BTreeMap::new();
        for target in &policy.targets {
            let service = (at.object.namespace.clone(), target.service.clone());
            let Some(of_target) = uses.get(&service) else { continue };
            let object = x_backend::object_of(&service.0, &service.1);
            let holder = self.holders.get(&service).copied().filter(|holder| *holder != index);
            let ineffective = match holder {
                _ if !store.knows(&object) => {
                    let message = match object.kind {
                        Kind::XBackend => x_backend::not_found(&object),
                        _ => format!("{object} does not exist"),
                    };
                    Some(Fault::new("TargetNotFound", message))
                }
                Some(holder) => {
                    let message = format!(
                        "{} (older, or first by name) applies to {object} already; this policy has no effect there",
                        self.policies[holder].0.object
                    );
                    problems.push(at.warning(&target.field(), message.clone()));
                    Some(Fault::new("Conflicted", message))
                }
                None => None,
            };
            for gateway in of_target {
                let known = gateways.entry(gateway).or_insert_with(|| ineffective.clone());
                if ineffective.is_none() {
                    *known = None;
                }
            }
        }
        let conditions = |(gateway, ineffective): (&ObjectRef, Option<Fault>)| {
            let fault = ineffective.as_ref().or(invalid.as_ref());
            (gateway.clone(), vec![Condition::unless(ACCEPTED, ACCEPTED, fault)])
        };
        gateways.into_iter().map(conditions).collect()
    }
}

/// The Services and XBackends that HTTPRoutes and GRPCRoutes name as backends, also if they do not exist or are invalid, and the
/// Gateways of these routes.
fn uses<'r>(intents: &'r Intents<'_>) -> Uses<'r> {
    let mut uses = Uses::default();
    for route in &intents.http_routes {
        let gateways: BTreeSet<&'r ObjectRef> =
            intents.accepting(&route.parents).map(|listener| listener.gateway).collect();
        if gateways.is_empty() {
            continue;
        }
        let backends = route.rules.iter().flat_map(|rule| &rule.backends);
        for service in backends.filter_map(|backend| backend.service.clone()) {
            uses.entry(service).or_default().extend(&gateways);
        }
    }
    uses
}
