//! The upstreams that objects name.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::feature::ServiceFeatures;
use sluicegate_model::{Config, Protocol, Rule, UpstreamKey};

use crate::backend_traffic::BackendTraffic;
use crate::intent::{At, Reference};
use crate::object::policy;
use crate::object::{Kind, ObjectRef, annotation};
use crate::store::Store;
use crate::translate::Translation;
use crate::upstream;

/// Finds the endpoints of all named upstreams, and reports missing objects. Leaves out references without effect,
/// because an older object had precedence.
pub(super) fn resolve(
    store: &Store,
    references: &[Reference<'_>],
    (governed, traffic): (&HashMap<UpstreamKey, ServiceFeatures>, &BackendTraffic<'_>),
    translation: &mut Translation,
) {
    let config = &mut translation.config;
    let layer4: HashSet<UpstreamKey> = config
        .layer4_routes()
        .flat_map(|(_, route)| route.backends.iter().map(|backend| backend.upstream.clone()))
        .collect();
    let is_used = |reference: &&Reference<'_>| match reference.upstream.transport.protocol {
        Protocol::Http | Protocol::Http2 => true,
        Protocol::Tcp | Protocol::Udp => layer4.contains(&reference.upstream),
    };
    let mut missing: HashMap<&UpstreamKey, (&'static str, String)> = HashMap::default();
    for reference in references.iter().filter(is_used) {
        let key = &reference.upstream;
        if let Entry::Vacant(place) = config.upstreams.entry(key.clone()) {
            let mut resolved = upstream::resolve(store, key);
            if let Some(of_policy) = governed.get(key) {
                policy::traffic::apply(of_policy, &mut resolved.upstream);
            }
            resolved.upstream.retry_constraint = traffic.retry_constraint(key);
            place.insert(Arc::new(resolved.upstream));
            missing.extend(resolved.missing.map(|missing| (key, missing)));
            translation.upstream_problems.extend(resolved.problem.map(|problem| (key.clone(), problem)));
            translation.external_ports.extend(resolved.external_port.map(|port| (key.clone(), port)));
        }
        if let Some((within, message)) = missing.get(key) {
            let problem = reference.problem(within, message.clone());
            translation.problems.push(problem.caused_by(&ObjectRef {
                kind: Kind::Service,
                namespace: key.namespace.clone(),
                name: key.service.clone(),
            }));
        }
    }
    // No object names upstreams that refuse connections.
    for key in layer4 {
        config.upstreams.entry(key).or_default();
    }
}

/// Reports Services that ask for the PROXY protocol where the gateway cannot send it.
pub(super) fn report_unusable_proxy_protocol(store: &Store, translation: &mut Translation) {
    let config = &translation.config;
    let mut told = HashSet::default();
    for key in config.upstreams.keys() {
        let Some((service, origin)) = store.service(&key.namespace, &key.service) else { continue };
        if service.proxy_protocol.is_none() {
            continue;
        }
        let what = match key.transport.protocol {
            Protocol::Tcp => continue,
            Protocol::Udp => "datagrams",
            Protocol::Http | Protocol::Http2 if is_redirected_alone(config, key) => continue,
            Protocol::Http | Protocol::Http2 => {
                "HTTP, where a connection carries the requests of many clients"
            }
        };
        if told.insert((&key.namespace, &key.service)) {
            let object = ObjectRef {
                kind: Kind::Service,
                namespace: key.namespace.clone(),
                name: key.service.clone(),
            };
            let field = annotation::field(annotation::PROXY_PROTOCOL);
            let at = At { object: &object, origin };
            translation.problems.push(at.warning(&field, format!("has no effect for {what}")));
        }
    }
}

/// Whether no request can reach an upstream: TLS passthrough takes all hosts of its routes, and plain HTTP is
/// redirected to TLS.
fn is_redirected_alone(config: &Config, key: &UpstreamKey) -> bool {
    let leads_there = |rule: &Rule| rule.upstreams().any(|upstream| upstream == key);
    let is_default = config.default_rule.as_ref().is_some_and(leads_there);
    let is_reached = config.hosts.iter().any(|host| {
        let is_passed = config.tls.passthrough.iter().any(|route| route.host == host.host);
        let mut rules = host.rules.iter().chain(&host.fallback).filter(|rule| leads_there(rule));
        rules.any(|rule| !(is_passed && rule.https_only))
    });
    !is_default && !is_reached
}
