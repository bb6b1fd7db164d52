//! The policies of a rule of an HTTPRoute or a GRPCRoute. A filter of the rule has precedence over the same feature of a policy.

use std::sync::Arc;

use sluicegate_model::feature::{Features, Retries};
use sluicegate_model::policy::{Security, Traffic};
use sluicegate_model::value::Port;
use sluicegate_model::{ObjectId, UpstreamKey};

use super::{Policies, RoutePolicies};
use crate::intent::Place;
use crate::intent::http_route::{HttpRoute, HttpRule};

impl Policies<'_> {
    /// The policies of a rule at a listener with this port, and the backends that the rule may not send requests to: another
    /// SecurityPolicy protects them than the rule. The policies of the first backend apply to the whole rule, because the
    /// gateway checks a request before it chooses a backend.
    pub(crate) fn of_http_rule(
        &mut self,
        route: &HttpRoute<'_>,
        rule: &HttpRule<'_>,
        port: u16,
    ) -> (RoutePolicies, Vec<usize>) {
        let backends = || rule.backends.iter().filter_map(|backend| backend.upstream.as_ref());
        let first = backends().next();
        let mut namespaces =
            backends().map(|upstream| &upstream.namespace).chain([&route.at.object.namespace]);
        let closed = namespaces.find_map(|namespace| {
            self.closed.iter().find(|(guarded, _)| guarded.has(namespace)).map(|(_, closed)| closed.clone())
        });
        let security = closed.or_else(|| first.and_then(|first| self.security.of_upstream(first)).cloned());
        let mut denied = Vec::new();
        for (index, backend) in rule.backends.iter().enumerate() {
            let Some(guard) = backend.upstream.as_ref().and_then(|upstream| self.guard(upstream)) else {
                continue;
            };
            if !security.as_ref().is_some_and(|security| Arc::ptr_eq(security, guard)) {
                let message = format!(
                    "receives no requests, because {} protects this Service and does not apply to the first backend; requests \
                     for it receive 500. Let one SecurityPolicy apply to both",
                    guard.id
                );
                let field = Place::HttpBackend(rule.index, index).field();
                self.problems.push(route.at.warning(&field, message));
                denied.push(index);
            }
        }
        let traffic =
            first.and_then(|first| self.traffic.of_upstream(first)).map(|value| value.traffic.clone());
        let own = &*rule.features;
        let traffic = match own == &Features::default() {
            true => traffic,
            false => Some(Arc::new(combined(traffic.as_deref(), own, route.at.id(), port))),
        };
        let traffic = traffic.map(|traffic| match traffic.features.upstreams().count() {
            0 => traffic,
            _ => self.narrow(traffic, security.as_ref()),
        });
        let security = match rule.cors {
            None => security,
            Some(cors) => {
                let of_policy = security.as_deref().cloned();
                let policy = of_policy.unwrap_or_else(|| Security::open(route.at.id()));
                Some(Arc::new(Security { cors: Some(cors.clone()), ..policy }))
            }
        };
        let rate_limits = first.and_then(|first| self.rate_limits.of_upstream(first)).cloned();
        (RoutePolicies { security, rate_limits, traffic }, denied)
    }

    /// The SecurityPolicy of a Service that can deny requests.
    fn guard(&self, upstream: &UpstreamKey) -> Option<&Arc<Security>> {
        self.security.of_upstream(upstream).filter(|guard| guard.can_deny())
    }
}

/// The features of a policy and of a rule.
fn combined(policy: Option<&Traffic>, own: &Features, rule: ObjectId, port: u16) -> Traffic {
    let mut traffic = policy.cloned().unwrap_or_else(|| Traffic::new(rule));
    let features = &mut traffic.features;
    let Features {
        timeouts,
        retries,
        limits: _,
        request_headers,
        response_headers,
        url_rewrite,
        redirect,
        direct_response,
        fault: _,
        split: _,
        load_balancing: _,
        mirrors,
        cache: _,
    } = own.clone();
    features.timeouts.request = timeouts.request.or(features.timeouts.request);
    features.timeouts.backend_request = timeouts.backend_request.or(features.timeouts.backend_request);
    if let Some(retries) = retries {
        let budget = features.retries.as_ref().and_then(|retries| retries.budget);
        features.retries = Some(Retries { budget, ..retries });
    }
    replace(&mut features.request_headers, request_headers);
    replace(&mut features.response_headers, response_headers);
    replace(&mut features.url_rewrite, url_rewrite);
    replace(&mut features.mirrors, mirrors);
    if redirect.is_some() || direct_response.is_some() {
        (features.redirect, features.direct_response) = (redirect, direct_response);
    }
    // Without a scheme, the target has the port of the listener (Gateway API, `HTTPRequestRedirectFilter.port`).
    if let Some(redirect) = own.redirect.as_ref().and(features.redirect.as_mut())
        && redirect.scheme.is_none()
        && redirect.port.is_none()
    {
        redirect.port = Port::new(port.into()).ok();
    }
    traffic
}

/// Replaces a feature of a policy, if the rule has the feature.
fn replace<T: Default + PartialEq>(of_policy: &mut T, own: T) {
    if own != T::default() {
        *of_policy = own;
    }
}
