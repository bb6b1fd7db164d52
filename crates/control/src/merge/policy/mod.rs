//! The policies of each route, and the Consumers.
//!
//! | module | content |
//! |---|---|
//! | [`targets`] | the objects that policies may be attached to |
//! | [`attach`] | from policies with their targets to routes: which policies apply, which do not, and why |
//! | [`security`], [`rate_limit`] | the parts of policies that are in Secrets |
//! | [`traffic`] | the Services that a TrafficPolicy names |
//! | [`http_route`] | the policies of rules of HTTPRoutes and GRPCRoutes |
//! | [`consumer`] | the Consumers of policies |
//! | [`shared`] | the traffic policies that Ingresses of a class share |
//! | [`standing`] | the parts of a policy that are in force, for its status |

use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::policy::{Consumer, RateLimits, Security, Traffic};
use sluicegate_model::{Config, ObjectId, UpstreamKey};

use crate::intent::{At, Intent, Intents, OfApi, Own, Reference};
use crate::manifest::Guarded;
use crate::object::ObjectRef;
use crate::object::api::requirement::Requirement;
use crate::object::policy::rate_limit::RateLimitPolicy;
use crate::object::policy::security::SecurityPolicy;
use crate::object::policy::traffic::TrafficPolicy;
use crate::problem::{Problem, Severity};
use crate::store::Store;
use attach::{Attached, Policy};
pub(crate) use security::service_upstream;
use sluicegate_model::feature::{Authentication, Features, ServiceFeatures};
use sluicegate_model::value::Weight;
use standing::Standing;
use targets::Targets;

mod attach;
mod consumer;
mod http_route;
pub(crate) mod rate_limit;
mod security;
mod shared;
pub(crate) mod standing;
mod targets;
mod traffic;

/// The policies of a store, while routes look up their own.
pub(crate) struct Policies<'a> {
    /// The routes that are closed because an unreadable policy may guard them, whatever other policies apply to them.
    closed: Vec<(Guarded, Arc<Security>)>,
    security: Attached<'a, Security>,
    rate_limits: Attached<'a, RateLimits>,
    traffic: Attached<'a, traffic::Value>,
    /// The traffic policies of routes, by the original policy and the SecurityPolicy of the route.
    /// The problems of backends that another policy guards. A rule may be at several listeners.
    told: HashSet<Problem>,
    /// By address. The original policy stays in memory, so that no other policy gets its address.
    narrowed: HashMap<(*const Traffic, Option<*const Security>), [Arc<Traffic>; 2]>,
    /// The policies of operations, by their requirements and their original policies. By address, as `narrowed`.
    required: HashMap<(*const Requirement, Option<*const Security>), Required>,
    /// The first fault of each Api whose operations are closed.
    api_faults: HashMap<ObjectRef, String>,
    /// The features of Ingresses without a traffic policy.
    shared: shared::Pool,
    problems: Vec<Problem>,
}

/// A requirement, the original policy, and the policy of the operation.
type Required = (Arc<Requirement>, Option<Arc<Security>>, Option<Arc<Security>>);

/// The policies that apply to a route.
pub(crate) struct RoutePolicies {
    pub(crate) security: Option<Arc<Security>>,
    pub(crate) rate_limits: Option<Arc<RateLimits>>,
    pub(crate) traffic: Option<Arc<Traffic>>,
}

/// The remaining result after all routes have looked up their policies.
#[derive(Default)]
pub(crate) struct Built<'a> {
    /// In the order of their ids; none if no policy authenticates callers.
    pub(crate) consumers: Vec<Arc<Consumer>>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) policy_statuses: Vec<Standing>,
    /// The Services that policies name.
    pub(crate) references: Vec<Reference<'a>>,
    /// The first fault of each Api whose operations are closed.
    pub(crate) api_faults: HashMap<ObjectRef, String>,
    /// The settings of policies for upstreams themselves.
    pub(crate) upstreams: HashMap<UpstreamKey, ServiceFeatures>,
}

impl<'a> Policies<'a> {
    pub(crate) fn new(store: &'a Store, intents: &Intents<'_>) -> Self {
        let mut problems = Vec::new();
        let mut secrets = security::Secrets::new(store);
        let of_security = store.all::<SecurityPolicy>().map(|(object, policy, origin)| {
            let at = At { object, origin };
            let (value, fault) = secrets.complete(at, policy, &mut problems);
            let targets = &policy.targets;
            Policy { at, created: policy.created, targets, value: Some(value), fault }
        });
        let of_security: Vec<_> = of_security.collect();
        let of_limits = store.all::<RateLimitPolicy>().map(|(object, policy, origin)| {
            let at = At { object, origin };
            let (value, fault) = rate_limit::complete(store, at, policy, &mut problems);
            Policy { at, created: policy.created, targets: &policy.targets, value, fault }
        });
        let of_limits: Vec<_> = of_limits.collect();
        let of_traffic = store.all::<TrafficPolicy>().map(|(object, policy, origin)| Policy {
            at: At { object, origin },
            created: policy.created,
            targets: &policy.targets,
            value: traffic::complete(store, object, policy),
            fault: None,
        });
        let of_traffic: Vec<_> = of_traffic.collect();
        let has_any = !of_security.is_empty() || !of_limits.is_empty() || !of_traffic.is_empty();
        let targets = if has_any { Targets::new(store, intents) } else { Targets::none(store) };
        Self {
            closed: security::closed(store),
            security: Attached::new(&targets, of_security, |at, why| {
                Some(Arc::new(Security::closed(at.id(), why.into())))
            }),
            rate_limits: Attached::new(&targets, of_limits, |_, _| None),
            traffic: Attached::new(&targets, of_traffic, |_, _| None),
            narrowed: HashMap::default(),
            required: HashMap::default(),
            api_faults: HashMap::default(),
            shared: shared::Pool::default(),
            told: HashSet::default(),
            problems,
        }
    }

    /// The policies of a rule of an Ingress or an Api that leads to this upstream. A part that the Ingress itself sets (`own`) has
    /// precedence over the same part of a policy.
    pub(crate) fn govern(
        &mut self,
        intent: &Intent<'_>,
        own: Option<&Own>,
        upstream: Option<&UpstreamKey>,
        of_api: Option<&OfApi>,
    ) -> RoutePolicies {
        let sections = of_api.map_or(&[][..], |of| &of.sections);
        let ingress = intent.at.object;
        let security = match self.closed.iter().find(|(guarded, _)| guarded.has(&ingress.namespace)) {
            Some((_, closed)) => Some(closed.clone()),
            None => {
                let governor = self.security.of(ingress, sections, upstream);
                let governor = security::combined(own.and_then(|own| own.security.as_ref()), governor);
                let governor = match of_api.and_then(|of| of.requirement.as_ref()) {
                    Some(requirement) => self.required(requirement, governor, intent.at),
                    None => governor,
                };
                intent.refuses.clone().or(governor)
            }
        };
        if let Some(of_api) = of_api {
            self.warn_of_unknown_callers(of_api, security.as_deref(), intent.at);
        }
        let traffic = self.traffic.of(ingress, sections, upstream).map(|value| value.traffic.clone());
        let traffic = match own.filter(|own| *own.features != Features::default()) {
            None => traffic,
            Some(own) => Some(self.combined(own, traffic.as_deref(), ingress)),
        };
        let traffic = traffic.map(|traffic| match traffic.features.upstreams().count() {
            0 => traffic,
            _ => self.narrow(Some(intent.at), traffic, security.as_ref()),
        });
        let own_limits = own.and_then(|own| own.rate_limits.clone());
        let rate_limits = own_limits.or_else(|| self.rate_limits.of(ingress, sections, upstream));
        RoutePolicies { security, rate_limits, traffic }
    }

    /// Warns if an operation needs a Subscription, but no policy identifies its callers: the gateway then denies all of them.
    fn warn_of_unknown_callers(&mut self, of_api: &OfApi, security: Option<&Security>, at: At<'_>) {
        let is_required = of_api.subscriptions.as_ref().is_some_and(|subscriptions| subscriptions.required);
        let is_known = security.is_some_and(|security| {
            let authentication = security.authentication.as_ref();
            security.refuses.is_some() || authentication.is_some_and(Authentication::identifies_consumers)
        });
        if !is_required || is_known {
            return;
        }
        let message = "is Required, but nothing identifies the callers of some operations, so all requests for them receive 403: add a SecurityPolicy with \
            authentication of Consumers, such as apiKey";
        let problem = at.warning("spec.subscriptions", message.to_owned());
        if self.told.insert(problem.clone()) {
            self.problems.push(problem);
        }
    }

    /// The policy of an operation with only the authentication that the operation requires. If the requirement cannot be met, the
    /// operation is closed.
    fn required(
        &mut self,
        requirement: &Arc<Requirement>,
        policy: Option<Arc<Security>>,
        at: At<'_>,
    ) -> Option<Arc<Security>> {
        let of = (Arc::as_ptr(requirement), policy.as_ref().map(Arc::as_ptr));
        if let Some((.., known)) = self.required.get(&of) {
            return known.clone();
        }
        let applied = match requirement.apply(policy.as_deref(), || at.id()) {
            Ok(applied) => applied.map(Arc::new),
            Err(fault) => {
                let message = format!("{fault}; requests for its operations receive 503");
                let problem = at.problem(Severity::Error, "spec.documentSecurity", message);
                self.api_faults.entry(at.object.clone()).or_insert_with(|| problem.within());
                if self.told.insert(problem.clone()) {
                    self.problems.push(problem);
                }
                Some(Arc::new(Security::closed(at.id(), fault.into())))
            }
        };
        self.required.insert(of, (requirement.clone(), policy, applied.clone()));
        applied
    }

    /// The features of an Ingress, with the features of a policy that the Ingress does not set.
    fn combined(&mut self, own: &Own, policy: Option<&Traffic>, ingress: &ObjectRef) -> Arc<Traffic> {
        if policy.is_none() && own.features.upstreams().next().is_none() {
            return self.shared.of(own);
        }
        let mut traffic = Traffic::new(ingress.id());
        traffic.features = match &policy {
            None => Features::clone(&own.features),
            Some(policy) => traffic::over(&own.features, &policy.features),
        };
        traffic.inherits.extend(policy.iter().flat_map(|policy| policy.ids().cloned()));
        Arc::new(traffic)
    }

    /// Removes Services that another SecurityPolicy guards than the route: the callers of the route may have no
    /// permission to call them.
    /// `at` is an Ingress whose annotations may name the Services.
    fn narrow(
        &mut self,
        at: Option<At<'_>>,
        traffic: Arc<Traffic>,
        security: Option<&Arc<Security>>,
    ) -> Arc<Traffic> {
        let from = (Arc::as_ptr(&traffic), security.map(Arc::as_ptr));
        if let Some([_, known]) = self.narrowed.get(&from) {
            return known.clone();
        }
        let original = traffic.clone();
        let guard = |upstream: &UpstreamKey| {
            let guard = self.security.of_upstream(upstream).filter(|guard| guard.can_deny())?;
            (!security.is_some_and(|security| includes(security, guard))).then(|| guard.id.clone())
        };
        let mut narrowed = Traffic::clone(&traffic);
        let features = &mut narrowed.features;
        let mut told = Vec::new();
        if let Some(split) = &mut features.split {
            let mut index = 0;
            split.backends.retain(|backend| {
                let guard = guard(&backend.upstream);
                told.extend(guard.clone().map(|guard| (format!("spec.split.backends[{index}]"), guard)));
                index += 1;
                guard.is_none()
            });
            if split.backends.iter().all(|backend| backend.weight.get() == 0) {
                split.weight = split.weight.max(Weight::of(1));
            }
        }
        features.split = features.split.take().filter(|split| !split.backends.is_empty());
        features.mirrors.retain(|mirror| {
            let guard = guard(&mirror.upstream);
            told.extend(guard.clone().map(|guard| ("spec.mirror".to_owned(), guard)));
            guard.is_none()
        });
        features.error_pages = features.error_pages.take().filter(|pages| {
            let guard = guard(&pages.upstream);
            told.extend(guard.clone().map(|guard| ("spec.errorPages".to_owned(), guard)));
            guard.is_none()
        });
        let narrowed = if told.is_empty() { traffic } else { Arc::new(narrowed) };
        for (field, guard) in told {
            let message = format!(
                "receives no requests of routes without {guard}, because that policy protects this Service. Let one SecurityPolicy apply to both"
            );
            // The Service may be a part of a less specific policy.
            let names = |id: &&ObjectId| {
                let mut policies = self.traffic.policies().iter().filter(|policy| policy.at.id() == **id);
                policies.any(|policy| policy.value.as_ref().is_some_and(|value| value.names(&field)))
            };
            let owner = narrowed.ids().find(names).unwrap_or(&narrowed.id).clone();
            let of_annotations = at.filter(|at| at.id() == owner);
            let problem = match of_annotations {
                Some(at) => {
                    Some(at.problem(Severity::Error, "metadata.annotations", format!("{field}: {message}")))
                }
                None => self.traffic.fault(&owner, &field, message),
            };
            self.problems.extend(problem.filter(|problem| !self.problems.contains(problem)));
        }
        self.narrowed.insert(from, [original, narrowed.clone()]);
        narrowed
    }

    /// Completes the policies, when the configuration has all routes.
    pub(crate) fn finish(self, store: &Store, config: &Config) -> Built<'a> {
        let (problems, api_faults) = (self.problems, self.api_faults);
        let mut built = Built { problems, api_faults, ..Built::default() };
        self.security.report_ineffective_policies(config, &mut built.problems);
        self.rate_limits.report_ineffective_policies(config, &mut built.problems);
        self.traffic.report_ineffective_policies(config, &mut built.problems);
        rate_limit::warn_of_unauthenticated_limits(&self.rate_limits, config, &mut built.problems);
        traffic::report_idle_caches(&self.traffic, config, &mut built.problems);
        traffic::warn_of_failing_checks(&self.traffic, config, &mut built.problems);
        built.references = traffic::references(&self.traffic, config);
        built.references.extend(security::references(&self.security, config));
        built.upstreams = traffic::upstreams(&self.traffic, config, &built.references);
        let consumers = consumer::build(store, self.security.with_existing_targets());
        built.consumers = consumers.consumers;
        built.problems.extend(consumers.problems);
        self.security.finish(store, &mut built.problems, &mut built.policy_statuses);
        self.rate_limits.finish(store, &mut built.problems, &mut built.policy_statuses);
        self.traffic.finish(store, &mut built.problems, &mut built.policy_statuses);
        built.policy_statuses.extend(consumers.policy_statuses);
        built
    }
}

/// Whether a policy has all parts of another policy: combined policies have the parts of their most specific policy.
fn includes(policy: &Arc<Security>, other: &Arc<Security>) -> bool {
    Arc::ptr_eq(policy, other) || (policy.id == other.id && other.refuses.is_none())
}
