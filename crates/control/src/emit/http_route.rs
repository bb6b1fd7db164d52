//! The hosts and rules of HTTPRoutes and GRPCRoutes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_model::feature::BackendFeatures;
use sluicegate_model::rule::{Backend, HttpsRedirect};
use sluicegate_model::value::Weight;
use sluicegate_model::{EntryPoint, Rule, Transport, UpstreamKey, VirtualHost};

use crate::intent::Intents;
use crate::intent::http_route::{HttpBackend, HttpRoute, HttpRule};
use crate::intent::listener::Listener;
use crate::merge::listener::{HostRoute, HttpHost};
use crate::merge::policy::Policies;
use crate::object::host::{self, Specificity};
use crate::object::route::claim;

/// The Service of backends that respond with 500. No Service can have this name.
const INVALID: &str = "(invalid)";

/// Emits the hosts of listeners for HTTP. `ingresses` are the hosts of Ingresses.
///
/// At the listeners that flags set, the rules of Ingresses for a host come before the rules of HTTPRoutes: of two rules with
/// the same precedence, the first decides.
///
/// Routes may have a host by hostnames of their own that differ, such as `*.example.com` at a listener for `a.example.com`.
/// The rules of the route with the greater priority come first, then the rules of the route with the more specific hostname
/// (Gateway API 1.7, `HTTPRouteSpec.hostnames`).
pub(super) fn emit(
    hosts: &[HttpHost],
    intents: &Intents<'_>,
    ingresses: &[Arc<VirtualHost>],
    policies: &mut Policies<'_>,
) -> Vec<Arc<VirtualHost>> {
    let mut emitted: HashMap<&HostRoute, Vec<Rule>> = HashMap::new();
    let mut result = Vec::with_capacity(hosts.len());
    for at_host in hosts {
        let (mut rules, mut fallback) = (Vec::new(), None);
        // The claim to the host, for the rules from this place on.
        let mut claims: Vec<(usize, Claim)> = Vec::with_capacity(at_host.routes.len() + 1);
        if !matches!(at_host.entry_point, EntryPoint::Gateway(_))
            && let Ok(index) = ingresses.binary_search_by(|known| known.host.cmp(&at_host.host))
        {
            claims.push((0, Claim { priority: 0, hostname: host::specificity(&at_host.host) }));
            rules.extend(ingresses[index].rules.iter().cloned());
            fallback.clone_from(&ingresses[index].fallback);
        }
        for at_listener in &at_host.routes {
            let of_route = emitted.entry(at_listener).or_insert_with(|| {
                let HostRoute { route, listener, client_certificate } = at_listener;
                let (route, listener) = (&intents.http_routes[*route], &intents.listeners[*listener]);
                let rules = route.rules.iter().map(|rule| rule.presenting(client_certificate.as_ref()));
                rules.map(|rule| self::rule(route, &rule, listener, policies)).collect()
            });
            let HttpRoute { priority, hostnames, .. } = intents.http_routes[at_listener.route];
            claims.push((rules.len(), Claim { priority, hostname: claim(hostnames, &at_host.host) }));
            let client_auth = &at_host.client_auth;
            rules.extend(
                of_route.iter().map(|rule| Rule { client_auth: client_auth.clone(), ..rule.clone() }),
            );
        }
        order_by_claims(&mut rules, &claims);
        rules.shrink_to_fit();
        result.push(Arc::new(VirtualHost {
            fallback,
            entry_point: at_host.entry_point.clone(),
            filters: at_host.filters.clone(),
            continues: at_host.continues,
            ..VirtualHost::new(at_host.host.clone(), rules)
        }));
    }
    result
}

/// The claim of a route to a host. The greatest claim comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    /// The priority of the route, by its annotation.
    priority: u32,
    /// The specificity of the hostname by which the route has the host.
    hostname: Specificity,
}

/// Changes the precedence of rules so that rules with a greater claim come first. `claims` has the claim of the rules from each
/// place on.
fn order_by_claims(rules: &mut [Rule], claims: &[(usize, Claim)]) {
    if claims.iter().all(|(_, claim)| *claim == claims[0].1) {
        return;
    }
    let claim_at = |index: usize| {
        let next = claims.partition_point(|(first, _)| *first <= index);
        Reverse(claims[next.saturating_sub(1)].1)
    };
    let of_rules = rules.iter().enumerate();
    let of_matches =
        of_rules.flat_map(|(index, rule)| rule.matches.iter().map(move |of| (index, of.precedence)));
    let mut order: Vec<_> = of_matches.map(|(index, precedence)| (claim_at(index), precedence)).collect();
    order.sort_unstable();
    order.dedup();
    for (index, rule) in rules.iter_mut().enumerate() {
        let claim = claim_at(index);
        for of in &mut rule.matches {
            let place = order.partition_point(|other| *other < (claim, of.precedence));
            of.precedence = u32::try_from(place).unwrap_or(u32::MAX);
        }
    }
}

fn rule(
    route: &HttpRoute<'_>,
    rule: &HttpRule<'_>,
    listener: &Listener<'_>,
    policies: &mut Policies<'_>,
) -> Rule {
    let (attached, denied) = policies.of_http_rule(route, rule, listener);
    let backend = |(index, backend): (usize, &HttpBackend<'_>)| {
        let upstream = backend.upstream.clone().filter(|_| !denied.contains(&index));
        let weight = Weight::new(backend.weight.into()).unwrap_or(Weight::of(1));
        let features = features(rule, backend).map(Box::new);
        match upstream {
            Some(upstream) => Backend { weight, features, ..Backend::new(upstream) },
            None => Backend { weight, ..invalid(route) },
        }
    };
    let mut backends: Vec<Backend> = rule.backends.iter().enumerate().map(backend).collect();
    // A rule that redirects needs no backend.
    if backends.is_empty() && rule.features.redirect.is_none() && rule.features.direct_response.is_none() {
        backends.push(invalid(route));
    }
    Rule {
        id: route.at.id(),
        matches: rule.matches.to_vec(),
        backends,
        https_only: false,
        https_redirect: HttpsRedirect::default(),
        api: None,
        subscriptions: None,
        client_auth: None,
        compression: None,
        security: attached.security,
        rate_limits: attached.rate_limits,
        traffic: attached.traffic,
    }
}

/// The features of a backend. Session persistence of the rule has precedence over session persistence of the Service.
fn features(rule: &HttpRule<'_>, backend: &HttpBackend<'_>) -> Option<BackendFeatures> {
    let features = backend.features.cloned();
    let of_rule = &rule.features.load_balancing.affinity;
    match backend.affinity.filter(|_| of_rule.is_none() && !rule.is_sessionless) {
        None => features,
        Some(affinity) => {
            Some(BackendFeatures { affinity: Some(affinity.clone()), ..features.unwrap_or_default() })
        }
    }
}

/// A backend whose requests receive 500 (Gateway API, `HTTPRouteRule.backendRefs`).
fn invalid(route: &HttpRoute<'_>) -> Backend {
    let namespace = route.at.object.namespace.clone();
    let (service, port) = (INVALID.into(), "-".into());
    let upstream = UpstreamKey { namespace, service, port, transport: Transport::default() };
    Backend { is_invalid: true, ..Backend::new(upstream) }
}
