//! The policies of a rule of an HTTPRoute or a GRPCRoute. A filter of the rule has precedence over the same feature of a policy.

use std::sync::Arc;

use sluicegate_model::feature::{Features, LoadBalancing};
use sluicegate_model::policy::{Security, Traffic};
use sluicegate_model::value::Port;
use sluicegate_model::{ObjectId, UpstreamKey};

use super::attach::RuleOrigin;
use super::{Policies, RoutePolicies, includes, traffic};
use crate::intent::Place;
use crate::intent::http_route::{HttpRoute, HttpRule};
use crate::intent::listener::Listener;

impl Policies<'_> {
    /// The policies of a rule at a listener, and the backends that the rule may not send requests to: another SecurityPolicy
    /// protects them than the rule. The policies of the first backend apply to the whole rule, because the gateway checks a
    /// request before it chooses a backend.
    pub(crate) fn of_http_rule(
        &mut self,
        route: &HttpRoute<'_>,
        rule: &HttpRule<'_>,
        listener: &Listener<'_>,
    ) -> (RoutePolicies, Vec<usize>) {
        let (object, gateway) = (route.at.object, listener.gateway);
        // A listener of a ListenerSet may have the name of a listener of the Gateway.
        let own_listener = (listener.at.object == gateway).then_some(listener.name);
        let sections = rule.name.map(std::slice::from_ref).unwrap_or_default();
        let origin = RuleOrigin { route: object, sections, gateway: Some(gateway), listener: own_listener };
        let backends = || rule.backends.iter().filter_map(|backend| backend.upstream.as_ref());
        let first = backends().next();
        let of_backends = backends().map(|upstream| &upstream.namespace);
        let mut namespaces = of_backends.chain([&object.namespace, &gateway.namespace]);
        let closed = namespaces.find_map(|namespace| {
            self.closed.iter().find(|(guarded, _)| guarded.has(namespace)).map(|(_, closed)| closed.clone())
        });
        let security = closed.or_else(|| self.security.of_rule(origin, first));
        let mut denied = Vec::new();
        for (index, backend) in rule.backends.iter().enumerate() {
            let Some(guard) = backend.upstream.as_ref().and_then(|upstream| self.guard(upstream)) else {
                continue;
            };
            if !security.as_ref().is_some_and(|security| includes(security, guard)) {
                let message = format!(
                    "receives no requests, because {} protects this Service and does not apply to the first backend; requests \
                     for it receive 500. Let one SecurityPolicy apply to both",
                    guard.id
                );
                let field = Place::HttpBackend(rule.index, index).field();
                // The rule may be at several listeners.
                let problem = route.at.warning(&field, message);
                if self.told.insert(problem.clone()) {
                    self.problems.push(problem);
                }
                denied.push(index);
            }
        }
        let traffic = self.traffic.of_rule(origin, first).map(|value| value.traffic.clone());
        let keeps_sessions = !rule.is_sessionless || traffic.is_none();
        let traffic = match *rule.features == Features::default() && keeps_sessions {
            true => traffic,
            false => Some(Arc::new(combined(traffic.as_deref(), rule, route.at.id(), listener.port))),
        };
        let traffic = traffic.map(|traffic| match traffic.features.upstreams().count() {
            0 => traffic,
            _ => self.narrow(None, traffic, security.as_ref()),
        });
        let security = match rule.cors.is_none() && rule.auth.is_empty() {
            true => security,
            false => {
                let of_policy = security.as_deref().cloned();
                let policy = of_policy.unwrap_or_else(|| Security::open(route.at.id()));
                let cors = rule.cors.cloned().or_else(|| policy.cors.clone());
                Some(Arc::new(Security { cors, filters: rule.auth.clone(), ..policy }))
            }
        };
        let rate_limits = self.rate_limits.of_rule(origin, first);
        (RoutePolicies { security, rate_limits, traffic }, denied)
    }

    /// The SecurityPolicy of a Service that can deny requests.
    fn guard(&self, upstream: &UpstreamKey) -> Option<&Arc<Security>> {
        self.security.of_upstream(upstream).filter(|guard| guard.can_deny())
    }
}

/// The features of a policy and of a rule.
fn combined(policy: Option<&Traffic>, rule: &HttpRule<'_>, route: ObjectId, port: u16) -> Traffic {
    let own = &*rule.features;
    let policy = policy.cloned().unwrap_or_else(|| Traffic::new(route));
    let of_policy = policy.features.load_balancing.clone();
    let mut traffic = Traffic { features: traffic::over(own, &policy.features), ..policy };
    // A route sets no algorithm.
    let affinity =
        own.load_balancing.affinity.clone().or(of_policy.affinity.filter(|_| !rule.is_sessionless));
    traffic.features.load_balancing = LoadBalancing { affinity, ..of_policy };
    // Without a scheme, the target has the port of the listener (Gateway API, `HTTPRequestRedirectFilter.port`).
    if let Some(redirect) = own.redirect.as_ref().and(traffic.features.redirect.as_mut())
        && redirect.scheme.is_none()
        && redirect.port.is_none()
    {
        redirect.port = Port::new(port.into()).ok();
    }
    traffic
}
