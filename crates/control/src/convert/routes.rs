//! The routes of an Ingress.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluicegate_model::{HostPattern, PathPattern, UpstreamKey};

use super::listeners::{self, Clients, Tls};
use super::{Conversion, VERSION, numbered};
use crate::intent::{At, Place};
use crate::object::ingress::{Ingress, Rule};
use crate::object::service::IpProtocol;
use crate::object::{Kind, ObjectRef, annotation};
use crate::problem::Severity;

/// The longest list of rules of an HTTPRoute.
const RULES_MAX: usize = 16;

/// The longest list of hostnames of an HTTPRoute.
const HOSTNAMES_MAX: usize = 16;

/// The longest list of matches of a printed rule. Gateway API allows 64 matches in a rule, but 128 in all rules of a route.
const MATCHES_MAX: usize = 8;

/// The status of the redirects to HTTPS, as for Ingresses.
const REDIRECT: u16 = 308;

/// Hosts of an Ingress with the same rules at the same kind of listeners.
struct Group<'a> {
    hosts: Vec<&'a HostPattern>,
    rules: Vec<Value>,
    /// The HTTPS listeners of the hosts.
    listeners: Vec<Value>,
}

impl<'a> Conversion<'a> {
    /// Adds the HTTPRoutes of an Ingress. Returns their names.
    pub(super) fn http_routes(&mut self, at: At<'a>, ingress: &'a Ingress) -> Vec<String> {
        let clients = self.clients(at, ingress);
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (host, rules) in self.hosts(at, ingress) {
            let listeners = self.tls_listeners(at, ingress, host, &clients);
            let same = |group: &&mut Group<'_>| {
                group.rules == rules
                    && group.listeners.is_empty() == listeners.is_empty()
                    && group.hosts.len() < HOSTNAMES_MAX
                    && group.hosts.iter().all(|host| **host != HostPattern::Any)
                    && *host != HostPattern::Any
            };
            match groups.iter_mut().find(same) {
                Some(group) => {
                    group.hosts.push(host);
                    group.listeners.extend(listeners);
                }
                None => groups.push(Group { hosts: vec![host], rules, listeners }),
            }
        }
        let redirects = ingress.ssl_redirect.unwrap_or(self.options.ssl_redirect);
        let mut names = Vec::new();
        for Group { hosts, rules, mut listeners } in groups {
            let hostnames: Vec<String> = hosts.iter().filter_map(|host| listeners::hostname(host)).collect();
            if ingress.client_auth.is_some() && listeners.is_empty() {
                let message = format!(
                    "has no host for {}, so the client certificates could not be verified. The host is not converted. Add the \
                     host with its Secret",
                    hostnames.first().map_or("all hosts", |name| name)
                );
                self.problems.push(at.problem(Severity::Error, "spec.tls", message));
                continue;
            }
            let http = self.gateways.http(&at.object.namespace);
            // With client certificates, plain HTTP would admit every client.
            let redirected = (redirects || ingress.client_auth.is_some()) && !listeners.is_empty();
            if !redirected {
                listeners.insert(0, http.clone());
            }
            let mut routes: Vec<(&str, Vec<Value>, Vec<Value>)> =
                rules.chunks(RULES_MAX).map(|rules| ("", rules.to_vec(), listeners.clone())).collect();
            if redirected {
                let rules: Vec<Value> = rules.iter().map(redirect).collect();
                let routes_of = rules.chunks(RULES_MAX);
                routes.extend(routes_of.map(|rules| ("-redirect", rules.to_vec(), vec![http.clone()])));
            }
            for (suffix, rules, parents) in routes {
                let base = format!("{}{suffix}", at.object.name);
                let name = (1..).map(|number| numbered(&base, number)).find(|name| !names.contains(name));
                let Some(name) = name else { continue };
                let mut spec = json!({"parentRefs": parents, "rules": rules});
                if !hostnames.is_empty() {
                    spec["hostnames"] = json!(hostnames);
                }
                self.objects.push(json!({
                    "apiVersion": VERSION,
                    "kind": "HTTPRoute",
                    "metadata": {"name": &*name, "namespace": &*at.object.namespace},
                    "spec": spec,
                }));
                names.push(name);
            }
        }
        names
    }

    /// The requirement on clients; notes if Gateway API has not the same.
    fn clients(&mut self, at: At<'_>, ingress: &Ingress) -> Clients {
        let auth = ingress.client_auth.as_ref()?;
        let (clients, is_same) = listeners::clients(auth);
        if !is_same {
            self.warn(
                at,
                annotation::AUTH_TLS_VERIFY_CLIENT,
                "has the value optional, which has no form in Gateway API. The Gateway requires certificates \
                 (AllowValidOnly)",
            );
        }
        if auth.forward {
            self.warn(
                at,
                annotation::AUTH_TLS_PASS_CERTIFICATE,
                "has no form in Gateway API. Endpoints do not receive ssl-client-cert",
            );
        }
        if clients.is_some() {
            self.warn(
                at,
                auth.annotation,
                "needs a Gateway of its own, because a Gateway has one requirement for each port. If Gateways have \
                 Services, the hosts move to the address of this Gateway",
            );
        }
        clients
    }

    /// The hosts of an Ingress with their rules.
    fn hosts(&mut self, at: At<'a>, ingress: &'a Ingress) -> Vec<(&'a HostPattern, Vec<Value>)> {
        let mut hosts: Vec<(&HostPattern, Vec<&Rule>)> = Vec::new();
        for rule in &ingress.rules {
            match hosts.iter_mut().find(|(host, _)| **host == rule.host) {
                Some((_, rules)) => rules.push(rule),
                None => hosts.push((&rule.host, vec![rule])),
            }
        }
        if hosts.is_empty() && !ingress.has_rules {
            hosts.push((&HostPattern::Any, Vec::new()));
        }
        let mut converted = Vec::new();
        for (host, rules) in hosts {
            if matches!(host, HostPattern::Wildcard(_)) {
                let field =
                    rules.first().map_or_else(String::new, |rule| format!("spec.rules[{}].host", rule.index));
                let message = "matches one label in an Ingress. The hostname of the HTTPRoute matches one or more labels";
                self.problems.push(at.warning(&field, message.to_owned()));
            }
            let rules = self.rules(at, ingress, &rules);
            if !rules.is_empty() {
                converted.push((host, rules));
            }
        }
        converted
    }

    /// The rules of a host: one for each backend, with the paths as matches.
    fn rules(&mut self, at: At<'_>, ingress: &Ingress, rules: &[&Rule]) -> Vec<Value> {
        let mut of_backends: Vec<(&UpstreamKey, Place, Vec<Value>)> = Vec::new();
        let mut has_root = false;
        for rule in rules {
            for path in &rule.paths {
                let place = Place::Path(rule.index, path.index);
                has_root |= path.pattern.as_str() == "/" && !matches!(path.pattern, PathPattern::Exact(_));
                let kind = match path.pattern {
                    PathPattern::Exact(_) => "Exact",
                    PathPattern::Prefix(_) => "PathPrefix",
                    PathPattern::Starts(_) => {
                        if path.pattern.as_str() != "/" {
                            let message = "has pathType ImplementationSpecific, which matches by character. The HTTPRoute \
                                           matches whole elements: /foo does not match /foobar";
                            self.problems.push(at.warning(&place.field(), message.to_owned()));
                        }
                        "PathPrefix"
                    }
                };
                let matches = json!({"path": {"type": kind, "value": path.pattern.as_str()}});
                match of_backends.iter_mut().find(|(upstream, ..)| **upstream == path.upstream) {
                    Some((.., known)) => known.push(matches),
                    None => of_backends.push((&path.upstream, place, vec![matches])),
                }
            }
        }
        if let Some(default) = &ingress.default_backend
            && !has_root
        {
            of_backends.push((
                default,
                Place::DefaultBackend,
                vec![json!({"path": {"type": "PathPrefix", "value": "/"}})],
            ));
        }
        let mut converted = Vec::new();
        for (upstream, place, matches) in of_backends {
            let Some(backend) = self.backend(at, place, upstream) else { continue };
            for matches in matches.chunks(MATCHES_MAX) {
                converted.push(json!({"matches": matches, "backendRefs": [backend]}));
            }
        }
        converted
    }

    /// The backend with the number of its port.
    fn backend(&mut self, at: At<'_>, place: Place, upstream: &UpstreamKey) -> Option<Value> {
        let number = upstream.port.parse::<u16>().ok().or_else(|| {
            let (service, _) = self.store.service(&upstream.namespace, &upstream.service)?;
            let port = |port: &&crate::object::service::ServicePort| {
                port.name == upstream.port && port.protocol == IpProtocol::Tcp
            };
            Some(service.ports.iter().find(port)?.port)
        });
        let Some(number) = number else {
            let message = format!(
                "names the port {:?}, but HTTPRoutes need its number. The path is not converted. Add Service {}/{} with \
                 this port to the input",
                upstream.port, upstream.namespace, upstream.service
            );
            self.problems.push(at.problem(Severity::Error, &place.field(), message));
            return None;
        };
        Some(json!({"name": &*upstream.service, "port": number}))
    }

    /// The HTTPS listeners for a host, if the Ingress has TLS for the host.
    fn tls_listeners(
        &mut self,
        at: At<'_>,
        ingress: &Ingress,
        host: &HostPattern,
        clients: &Clients,
    ) -> Vec<Value> {
        let mut of_hosts: BTreeMap<HostPattern, ObjectRef> = BTreeMap::new();
        for (index, tls) in ingress.tls.iter().enumerate() {
            let covering: Vec<HostPattern> = match tls.has_hosts {
                false => vec![host.clone()],
                true if *host == HostPattern::Any => tls.hosts.clone(),
                true => tls.hosts.iter().filter(|of_tls| covers(of_tls, host)).cloned().collect(),
            };
            if covering.is_empty() {
                continue;
            }
            let Some(secret) = &tls.secret else {
                let message = "is missing, and a listener needs a certificate. The host is not converted for HTTPS. Name a Secret";
                let field = Place::Secret(index).field();
                self.problems.push(at.problem(Severity::Error, &field, message.to_owned()));
                continue;
            };
            let (kind, namespace) = (Kind::Secret, at.object.namespace.clone());
            let secret = ObjectRef { kind, namespace, name: secret.clone() };
            for host in covering {
                of_hosts.entry(host).or_insert_with(|| secret.clone());
            }
        }
        let namespace = at.object.namespace.clone();
        let listener = |(host, secret): (&HostPattern, &ObjectRef)| {
            self.gateways.tls(clients, host, Tls::Secret(secret), &namespace)
        };
        of_hosts.iter().map(listener).collect()
    }

    /// Adds the TLSRoutes of an Ingress with TLS passthrough. No policy can name them.
    pub(super) fn tls_routes(&mut self, at: At<'a>, ingress: &'a Ingress) -> Vec<String> {
        let mut number = 0;
        for rule in ingress.rules.iter().filter(|rule| rule.host != HostPattern::Any) {
            let root = rule.paths.iter().find(|path| path.pattern.as_str() == "/");
            let (place, upstream) = match (root, &ingress.default_backend, rule.paths.first()) {
                (Some(path), ..) | (None, None, Some(path)) => {
                    (Place::Path(rule.index, path.index), &path.upstream)
                }
                (None, Some(default), _) => (Place::DefaultBackend, default),
                (None, None, None) => continue,
            };
            let Some(backend) = self.backend(at, place, upstream) else { continue };
            let parent = self.gateways.tls(&None, &rule.host, Tls::Passthrough, &at.object.namespace);
            number += 1;
            self.objects.push(json!({
                "apiVersion": VERSION,
                "kind": "TLSRoute",
                "metadata": {"name": numbered(&at.object.name, number), "namespace": &*at.object.namespace},
                "spec": {
                    "parentRefs": [parent],
                    "hostnames": [listeners::hostname(&rule.host)],
                    "rules": [{"backendRefs": [backend]}],
                },
            }));
        }
        Vec::new()
    }
}

/// The same matches with a redirect to HTTPS.
fn redirect(rule: &Value) -> Value {
    let filter = json!({
        "type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": REDIRECT},
    });
    json!({"matches": rule["matches"], "filters": [filter]})
}

/// Whether the certificate for a host of `spec.tls` is for the host of a rule.
fn covers(tls: &HostPattern, host: &HostPattern) -> bool {
    match (tls, host) {
        (HostPattern::Wildcard(suffix), HostPattern::Exact(name)) => {
            name.split_once('.').is_some_and(|(_, parent)| parent == &**suffix)
        }
        _ => tls == host,
    }
}
