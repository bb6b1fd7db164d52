//! The part of the configuration that the data planes of a scope receive.
//!
//! The shared data planes are one scope. The data planes of a Gateway with data planes of its own are another scope. A scope
//! receives only the listeners that it serves, and the routes, certificates, upstreams and Consumers that these listeners
//! need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_lc_rs::hmac;
use sluicegate_model::policy::{Consumer, Security};
use sluicegate_model::tls::TicketSecret;
use sluicegate_model::{Config, EntryPoint, Rule, Serves, Tls, UpstreamKey, Upstreams};

/// The configurations of all scopes: of the shared data planes (`None`), and of each scope that a listener names.
pub(crate) fn split(config: &Arc<Config>) -> BTreeMap<Option<Arc<str>>, Arc<Config>> {
    let of_listeners = config.listeners.iter().filter_map(|listener| listener.planes.scope());
    let own: BTreeSet<&Arc<str>> = of_listeners.chain(&config.own_scopes).collect();
    if own.is_empty() {
        return [(None, config.clone())].into();
    }
    let scopes = own.into_iter().map(|scope| Some(scope.clone())).chain([None]);
    scopes.map(|scope| (scope.clone(), Arc::new(part(config, scope.as_deref())))).collect()
}

/// The configuration of one scope.
fn part(config: &Config, scope: Option<&str>) -> Config {
    let mut listeners = config.listeners.clone();
    listeners.retain(|listener| listener.planes.include(scope));
    let entered: BTreeSet<&Arc<str>> = listeners
        .iter()
        .filter_map(|listener| match &listener.serves {
            Serves::Http(name) | Serves::Https(name) => Some(name),
            Serves::Tcp(_) | Serves::Tls(_) | Serves::Udp(_) => None,
        })
        .collect();
    let serves = |entry_point: &EntryPoint| match entry_point {
        EntryPoint::Flags | EntryPoint::FlagsHttp | EntryPoint::FlagsHttps => scope.is_none(),
        EntryPoint::Gateway(name) => entered.contains(name),
    };
    let all = &config.tls;
    let tls = Tls {
        hosts: all.hosts.iter().filter(|host| serves(&host.entry_point)).cloned().collect(),
        passthrough: all.passthrough.iter().filter(|route| serves(&route.entry_point)).cloned().collect(),
        // Every HTTP listener may receive the request of an ACME server.
        acme: all.acme.clone(),
        // Listeners of Gateways have no use for the default certificates.
        default: if scope.is_none() { all.default.clone() } else { Vec::new() },
        ticket_secrets: match scope {
            Some(scope) => all.ticket_secrets.iter().map(|secret| derived(secret, scope)).collect(),
            None => all.ticket_secrets.clone(),
        },
    };
    let mut part = Config {
        settings: config.settings.clone(),
        hosts: config.hosts.iter().filter(|host| serves(&host.entry_point)).cloned().collect(),
        default_rule: config.default_rule.clone().filter(|_| scope.is_none()),
        listeners,
        tls: Arc::new(tls),
        consumers: Vec::new(),
        upstreams: Upstreams::default(),
        own_scopes: Vec::new(),
    };
    part.consumers = consumers(config, &part, scope);
    let named: BTreeSet<&UpstreamKey> = part.named_upstreams().collect();
    let upstreams = config.upstreams.iter().filter(|(key, _)| named.contains(key));
    part.upstreams = upstreams.map(|(key, upstream)| (key.clone(), upstream.clone())).collect();
    part
}

/// A secret for the session tickets of one scope, from which the secrets of other scopes cannot be computed.
fn derived(secret: &TicketSecret, scope: &str) -> TicketSecret {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret.0);
    TicketSecret(hmac::sign(&key, scope.as_bytes()).as_ref().into())
}

fn securities(config: &Config) -> impl Iterator<Item = &Security> {
    let of_hosts = config.hosts.iter().filter_map(|host| host.filters.as_deref());
    config.rules().filter_map(|rule: &Rule| rule.security.as_deref()).chain(of_hosts)
}

/// The Consumers of `all` that the policies of `part` know. A policy may name any namespace, but the pods of own data planes are
/// in the hands of the author of their Gateway. So own data planes receive only Consumers of the namespace of the policy, whose
/// author attaches it to the Gateway, and of the namespace of the Gateway.
fn consumers(all: &Config, part: &Config, scope: Option<&str>) -> Vec<Arc<Consumer>> {
    let of_gateway = scope.and_then(|scope| scope.split_once('/')).map(|(namespace, _)| namespace);
    let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
    for security in securities(part) {
        let Some(authentication) = &security.authentication else { continue };
        let own = &security.id.namespace;
        match (authentication.namespaces(own), of_gateway) {
            (Some(namespaces), None) => known.extend(namespaces),
            (Some(namespaces), Some(gateway)) => {
                let is_near = |namespace: &Arc<str>| namespace == own || **namespace == *gateway;
                known.extend(namespaces.into_iter().filter(is_near));
            }
            // The policy knows the Consumers of all namespaces.
            (None, None) => return all.consumers.clone(),
            (None, Some(gateway)) => known.extend([own.clone(), gateway.into()]),
        }
    }
    all.consumers.iter().filter(|consumer| known.contains(&consumer.id.namespace)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use sluicegate_model::Planes;

    use super::*;
    use crate::tests::everything::everything;

    /// A configuration whose hosts all belong to the listener `http`, and a Consumer of another namespace.
    fn all() -> Config {
        let [mut config, _] = everything();
        let http = config.listeners.iter_mut().find(|listener| &*listener.id.name == "http");
        let http = http.expect("a listener");
        http.planes = Planes::Own("shop/edge".into());
        let Serves::Http(name) = &http.serves else { panic!("not for HTTP: {:?}", http.serves) };
        let name = name.clone();
        for host in &mut config.hosts {
            Arc::make_mut(host).entry_point = EntryPoint::Gateway(name.clone());
        }
        let mut other = Consumer::clone(&config.consumers[0]);
        other.id.namespace = "elsewhere".into();
        config.consumers.push(Arc::new(other));
        config
    }

    #[test]
    fn data_planes_of_a_gateway_receive_the_upstreams_of_its_routes_and_policies() {
        let config = all();
        let part = part(&config, Some("shop/edge"));
        assert_eq!(part.hosts, config.hosts);
        let securities: Vec<&Security> = securities(&config).collect();
        let filters = securities.iter().flat_map(|policy| &policy.filters).map(|filter| &filter.upstream);
        let of_services: Vec<_> =
            securities.iter().filter_map(|policy| policy.ext_auth_upstream()).chain(filters).collect();
        let policies =
            config.hosts.iter().flat_map(|host| &host.rules).filter_map(|rule| rule.traffic.as_ref());
        let of_traffic: Vec<_> = policies.flat_map(|policy| policy.features.upstreams()).collect();
        assert!(!of_services.is_empty() && !of_traffic.is_empty(), "the configuration has everything");
        let of_rules = config.hosts.iter().flat_map(|host| &host.rules).flat_map(Rule::upstreams);
        for key in of_rules.chain(of_services).chain(of_traffic) {
            assert_eq!(part.upstreams.get(key), config.upstreams.get(key), "{key}");
        }
    }

    #[test]
    fn data_planes_of_a_gateway_receive_no_secret_that_only_others_need() {
        let config = all();
        let part = part(&config, Some("shop/edge"));
        assert_eq!(part.listeners.len(), 1);
        assert!(part.tls.hosts.is_empty() && part.tls.passthrough.is_empty() && part.tls.default.is_empty());
        assert!(part.default_rule.is_none() && config.default_rule.is_some());
        let secrets = &part.tls.ticket_secrets;
        assert_eq!(secrets.len(), config.tls.ticket_secrets.len());
        assert!(secrets.iter().all(|secret| !config.tls.ticket_secrets.contains(secret)));
        let elsewhere = |config: &Config| {
            config.consumers.iter().filter(|consumer| &*consumer.id.namespace == "elsewhere").count()
        };
        assert_eq!((elsewhere(&config), elsewhere(&part)), (1, 0));
    }

    #[test]
    fn own_data_planes_receive_no_consumers_that_only_a_policy_names() {
        let mut config = all();
        let mut named = 0;
        for host in &mut config.hosts {
            for rule in &mut Arc::make_mut(host).rules {
                let Some(security) = &mut rule.security else { continue };
                if let Some(authentication) = &mut Arc::make_mut(security).authentication {
                    let everywhere = serde_json::from_value(serde_json::json!({"namespaces": ["*"]}));
                    authentication.consumers = Some(everywhere.expect("a scope"));
                    named += 1;
                }
            }
        }
        assert!(named > 0, "a policy authenticates");
        let part = part(&config, Some("shop/edge"));
        let namespaces = |config: &Config| {
            config.consumers.iter().map(|consumer| consumer.id.namespace.clone()).collect::<BTreeSet<_>>()
        };
        assert!(namespaces(&config).contains("elsewhere") && !namespaces(&part).contains("elsewhere"));
        assert!(!part.consumers.is_empty());
    }

    #[test]
    fn configuration_of_a_gateway_without_listeners_is_empty() {
        let mut config = all();
        config.own_scopes = vec!["shop/idle".into()];
        let parts = split(&Arc::new(config));
        let idle = &parts[&Some("shop/idle".into())];
        assert!(idle.listeners.is_empty() && idle.hosts.is_empty() && idle.upstreams.is_empty());
    }

    #[test]
    fn shared_data_planes_receive_nothing_of_a_gateway_with_its_own() {
        let config = Arc::new(all());
        let parts = split(&config);
        assert_eq!(parts.len(), 2);
        let shared = &parts[&None];
        assert!(shared.hosts.is_empty() && shared.consumers.is_empty());
        assert_eq!(shared.listeners.len(), config.listeners.len() - 1);
        assert_eq!((&shared.tls, &shared.default_rule), (&config.tls, &config.default_rule));
        assert!(shared.upstreams.len() < config.upstreams.len());
    }

    #[test]
    fn configuration_without_own_data_planes_is_not_copied() {
        let [config, _] = everything().map(Arc::new);
        let parts = split(&config);
        assert!(parts.len() == 1 && Arc::ptr_eq(&parts[&None], &config));
    }
}
