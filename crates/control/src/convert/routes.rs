//! The routes of an Ingress.

use serde_json::{Value, json};
use sluicegate_model::{HostPattern, PathPattern, UpstreamKey};

use super::hosts::HttpsListener;
use super::listeners::{self, Tls};
use super::{Conversion, VERSION};
use crate::intent::{At, Place};
use crate::object::annotation;
use crate::object::ingress::{Ingress, Rule};
use crate::object::service::IpProtocol;
use crate::problem::Severity;

/// The longest list of rules of an HTTPRoute.
const RULES_MAX: usize = 16;

/// The longest list of hostnames of an HTTPRoute.
const HOSTNAMES_MAX: usize = 16;

/// The longest list of parents of an HTTPRoute.
const PARENTS_MAX: usize = 32;

/// The longest list of matches of a printed rule. Gateway API allows 64 matches in a rule, but 128 in all rules of a route.
const MATCHES_MAX: usize = 8;

/// The status of the redirects to HTTPS, as for Ingresses.
const REDIRECT: u16 = 308;

/// Hosts of an Ingress with the same rules at the same kind of listeners.
struct Group<'a> {
    hosts: Vec<&'a HostPattern>,
    rules: Vec<Value>,
    /// The HTTPS listeners of the hosts.
    https: Vec<Value>,
    /// Whether the rules redirect plain HTTP to HTTPS.
    redirects: bool,
}

impl<'a> Conversion<'a> {
    /// Adds the HTTPRoutes of an Ingress. Returns their names.
    pub(super) fn http_routes(&mut self, at: At<'a>, ingress: &'a Ingress) -> Vec<String> {
        self.note_clients(at, ingress);
        let mut groups: Vec<Group<'_>> = Vec::new();
        for (host, rules) in self.rules_of_hosts(at, ingress) {
            let (https, redirects) = self.https_listeners(at, ingress, host);
            let same = |group: &&mut Group<'_>| {
                *host != HostPattern::Any
                    && group.hosts.iter().all(|host| **host != HostPattern::Any)
                    && group.hosts.len() < HOSTNAMES_MAX
                    && (&group.rules, group.redirects) == (&rules, redirects)
            };
            match groups.iter_mut().find(same) {
                Some(group) => {
                    group.hosts.push(host);
                    let new = https.into_iter().filter(|listener| !group.https.contains(listener));
                    let new: Vec<Value> = new.collect();
                    group.https.extend(new);
                }
                None => groups.push(Group { hosts: vec![host], rules, https, redirects }),
            }
        }
        let mut names = Vec::new();
        for Group { hosts, rules, https, redirects } in groups {
            let hostnames: Vec<String> = hosts.iter().filter_map(|host| listeners::hostname(host)).collect();
            let http = self.gateways.http(&at.object.namespace);
            let mut parents = https;
            let redirected = redirects.then(|| http.clone());
            if !redirects {
                parents.insert(0, http);
            }
            for parents in parents.chunks(PARENTS_MAX) {
                names.extend(self.http_route(at, "", (&hostnames, &rules, parents)));
            }
            if let Some(http) = redirected {
                let rules: Vec<Value> = rules.iter().map(redirect).collect();
                names.extend(self.http_route(at, "-redirect", (&hostnames, &rules, &[http])));
            }
        }
        names
    }

    /// Adds HTTPRoutes with these hostnames, rules and parents. Returns their names.
    fn http_route(
        &mut self,
        at: At<'_>,
        suffix: &str,
        (hostnames, rules, parents): (&[String], &[Value], &[Value]),
    ) -> Vec<String> {
        let mut names = Vec::new();
        for rules in rules.chunks(RULES_MAX) {
            let name = self.route_name("HTTPRoute", at.object, suffix);
            let mut spec = json!({"parentRefs": parents, "rules": rules});
            if !hostnames.is_empty() {
                spec["hostnames"] = json!(hostnames);
            }
            self.routes.push(json!({
                "apiVersion": VERSION,
                "kind": "HTTPRoute",
                "metadata": {"name": &*name, "namespace": &*at.object.namespace},
                "spec": spec,
            }));
            names.push(name);
        }
        names
    }

    /// The HTTPS listeners of a host, and whether plain HTTP is redirected to them.
    fn https_listeners(&mut self, at: At<'_>, ingress: &Ingress, host: &HostPattern) -> (Vec<Value>, bool) {
        let redirects = ingress.ssl_redirect.unwrap_or(self.options.ssl_redirect);
        let namespace = &at.object.namespace;
        let (hosts, gateways) = (&self.hosts, &mut self.gateways);
        let mut listener = |https: HttpsListener<'_>| {
            gateways.tls(&https.clients, https.host, Tls::Secret(https.secret), namespace)
        };
        if *host == HostPattern::Any {
            let all: Vec<Value> = hosts.all_https().map(&mut listener).collect();
            return (all, redirects && hosts.has_any_certificate());
        }
        let verifies_clients = hosts.verifies_clients(host);
        let https = hosts.https(host).map(&mut listener);
        if https.is_none() && verifies_clients {
            let message = format!(
                "has no Secret for {}, so the gateway cannot verify client certificates. Add the host with its Secret",
                listeners::hostname(host).unwrap_or_default()
            );
            self.problems.push(at.problem(Severity::Error, "spec.tls", message));
        }
        // With client certificates, plain HTTP would admit every client.
        let redirects = https.is_some() && (redirects || verifies_clients);
        (https.into_iter().collect(), redirects)
    }

    /// Notes the requirements on clients that Gateway API does not have.
    fn note_clients(&mut self, at: At<'_>, ingress: &Ingress) {
        let Some(auth) = &ingress.client_auth else { return };
        if !listeners::clients(auth).1 {
            self.warn(
                at,
                annotation::AUTH_TLS_VERIFY_CLIENT,
                "has the value optional, which Gateway API does not have. The Gateway requires certificates \
                 (AllowValidOnly)",
            );
        }
        if auth.forward {
            self.warn(
                at,
                annotation::AUTH_TLS_PASS_CERTIFICATE,
                "has no equivalent in Gateway API. Endpoints do not receive ssl-client-cert",
            );
        }
        self.warn(
            at,
            auth.annotation,
            "needs a Gateway of its own, because a Gateway has one requirement for each port. With --gateway-services, \
             the hosts have another address: update DNS",
        );
    }

    /// The hosts of an Ingress with their rules.
    fn rules_of_hosts(&mut self, at: At<'a>, ingress: &'a Ingress) -> Vec<(&'a HostPattern, Vec<Value>)> {
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
            let rules = self.rules(at, ingress, host, &rules);
            if !rules.is_empty() {
                converted.push((host, rules));
            }
        }
        converted
    }

    /// The rules of a host: one for each backend, with the paths as matches.
    fn rules(&mut self, at: At<'_>, ingress: &Ingress, host: &HostPattern, rules: &[&Rule]) -> Vec<Value> {
        let mut of_backends: Vec<(&UpstreamKey, Place, Vec<Value>)> = Vec::new();
        let mut has_root = false;
        for rule in rules {
            for path in &rule.paths {
                let place = Place::Path(rule.index, path.index);
                if !self.matches.insert((host.clone(), path.pattern.clone())) {
                    let message =
                        "occurs twice for the host, here or in an older Ingress; the first path applies";
                    self.problems.push(at.warning(&place.field(), message.to_owned()));
                    continue;
                }
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
            && !self.hosts.is_owner(at.object, host)
        {
            let message =
                format!("is ignored for host {host}, which belongs to an older Ingress: {}", default.service);
            self.problems.push(at.warning(&Place::DefaultBackend.field(), message));
        } else if let Some(default) = &ingress.default_backend
            && !has_root
            && self.matches.insert((host.clone(), PathPattern::Prefix("/".into())))
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
                "names the port {:?}, but HTTPRoutes need its number. Add Service {}/{} with \
                 this port to the input",
                upstream.port, upstream.namespace, upstream.service
            );
            self.problems.push(at.problem(Severity::Error, &place.field(), message));
            return None;
        };
        Some(json!({"name": &*upstream.service, "port": number}))
    }

    /// Adds the TLSRoutes of an Ingress with TLS passthrough. No policy can name them.
    pub(super) fn tls_routes(&mut self, at: At<'a>, ingress: &'a Ingress) -> Vec<String> {
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
            let name = self.route_name("TLSRoute", at.object, "");
            self.routes.push(json!({
                "apiVersion": VERSION,
                "kind": "TLSRoute",
                "metadata": {"name": name, "namespace": &*at.object.namespace},
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
