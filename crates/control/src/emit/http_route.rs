//! The hosts and rules of HTTPRoutes and GRPCRoutes.

use std::collections::HashMap;
use std::sync::Arc;

use sluicegate_model::rule::Backend;
use sluicegate_model::value::Weight;
use sluicegate_model::{EntryPoint, Rule, Transport, UpstreamKey, VirtualHost};

use crate::intent::Intents;
use crate::intent::http_route::{HttpBackend, HttpRoute, HttpRule};
use crate::intent::listener::Listener;
use crate::merge::listener::{HostRoute, HttpHost};
use crate::merge::policy::Policies;

/// The Service of backends that respond with 500. No Service can have this name.
const INVALID: &str = "(invalid)";

/// Emits the hosts of listeners for HTTP. `ingresses` are the hosts of Ingresses.
///
/// At the listeners that flags set, the rules of Ingresses for a host come before the rules of HTTPRoutes: of two rules with
/// the same precedence, the first decides.
pub(super) fn emit(
    hosts: &[HttpHost],
    intents: &Intents<'_>,
    ingresses: &[Arc<VirtualHost>],
    policies: &mut Policies<'_>,
) -> Vec<Arc<VirtualHost>> {
    let mut emitted: HashMap<&HostRoute, Vec<Rule>> = HashMap::new();
    let mut result = Vec::with_capacity(hosts.len());
    for host in hosts {
        let (mut rules, mut fallback) = (Vec::new(), None);
        if !matches!(host.entry_point, EntryPoint::Gateway(_))
            && let Ok(index) = ingresses.binary_search_by(|known| known.host.cmp(&host.host))
        {
            rules.extend(ingresses[index].rules.iter().cloned());
            fallback.clone_from(&ingresses[index].fallback);
        }
        for at_listener in &host.routes {
            let of_route = emitted.entry(at_listener).or_insert_with(|| {
                let HostRoute { route, listener, client_certificate } = at_listener;
                let (route, listener) = (&intents.http_routes[*route], &intents.listeners[*listener]);
                let rules = route.rules.iter().map(|rule| rule.presenting(client_certificate.as_ref()));
                rules.map(|rule| self::rule(route, &rule, listener, policies)).collect()
            });
            rules.extend(of_route.iter().cloned());
        }
        result.push(Arc::new(VirtualHost {
            fallback,
            entry_point: host.entry_point.clone(),
            continues: host.continues,
            ..VirtualHost::new(host.host.clone(), rules)
        }));
    }
    result
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
        let features = backend.features.cloned().map(Box::new);
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
        client_auth: None,
        compression: None,
        security: attached.security,
        rate_limits: attached.rate_limits,
        traffic: attached.traffic,
    }
}

/// A backend whose requests receive 500 (Gateway API, `HTTPRouteRule.backendRefs`).
fn invalid(route: &HttpRoute<'_>) -> Backend {
    let namespace = route.at.object.namespace.clone();
    let (service, port) = (INVALID.into(), "-".into());
    let upstream = UpstreamKey { namespace, service, port, transport: Transport::default() };
    Backend { is_invalid: true, ..Backend::new(upstream) }
}
