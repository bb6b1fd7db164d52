//! The HTTPRoutes of a file.
//!
//! Kong compares a request with the parts of all routes, in the order of their priorities. Each part becomes one or more
//! units, and each unit an HTTPRoute with a priority of its own.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use sluicegate_kong::file::{Protocol, Route};
use sluicegate_kong::router::{Part, Path, host_and_port, is_stream, order};
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::syntax;

use super::Conversion;
use super::plugins::Effects;
use super::rewrite::{Inexpressible, Rewrites, rewrites};
use super::services::Backend;
use crate::convert::VERSION;
use crate::object::annotation::PRIORITY;
use crate::object::host;
use crate::object::path::literal;

/// The longest list of hostnames of an HTTPRoute.
const HOSTNAMES_MAX: usize = 16;

/// The longest list of matches of a rule.
const MATCHES_MAX: usize = 64;

/// The longest list of rules of an HTTPRoute.
const RULES_MAX: usize = 16;

/// The greatest number of matches of all rules of an HTTPRoute.
const ROUTE_MATCHES_MAX: usize = 128;

/// The hosts of a unit.
#[derive(Clone, Debug, Default)]
struct Hosts {
    /// Empty: all hosts.
    hostnames: Vec<String>,
    /// The expression of the header Host, for hosts that no hostname can express.
    header: Option<String>,
}

/// The response of a unit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reply {
    /// The response of the service.
    Service,
    /// The gateway responds with this status and message.
    Status(u16, &'static str),
    /// The gateway redirects to HTTPS with this status.
    ToHttps(u16),
}

/// The requests for which a unit applies, beside the conditions of its part.
#[derive(Clone, Debug)]
struct Place {
    hosts: Hosts,
    /// The port of the listeners; `None`: all listeners.
    port: Option<u16>,
    reply: Reply,
}

/// A unit: an HTTPRoute.
struct Unit<'p, 'f> {
    part: &'p Part<'f>,
    place: Place,
    /// Whether only paths apply that the expressions match as a whole.
    is_whole: bool,
    /// The expression of the header User-Agent.
    agent: Option<String>,
}

impl<'f> Conversion<'f> {
    /// Adds the HTTPRoutes of all routes, and their policies.
    pub(super) fn all_routes(&mut self) {
        let file = self.file;
        for route in file.routes.iter().filter(|route| is_stream(route)) {
            let message =
                "protocols without HTTP are not converted: write a TCPRoute, a TLSRoute or a UDPRoute";
            self.notes.unconverted(route.line, &route.label(), message);
        }
        for service in file.services.iter().filter(|service| service.protocol == Protocol::Other) {
            let message = format!(
                "protocol {:?} is not converted, and HTTP is used: write http, https, grpc or grpcs",
                service.protocol_name
            );
            self.notes.unconverted(service.line, &service.label(), message);
        }
        let parts = order(&file.routes);
        let mut effects: HashMap<usize, Effects> = HashMap::new();
        let mut units = Vec::new();
        for part in &parts {
            let service = part.route.service.map(|place| &file.services[place]);
            if service.is_some_and(|service| !service.enabled) {
                continue;
            }
            let of_route = effects.entry(part.place).or_insert_with(|| {
                let mut of_route = self.effects(part.place, part.route.service);
                self.addresses(part.route, &mut of_route);
                of_route
            });
            self.units(part, of_route, &mut units);
        }
        let total = units.len();
        for (index, unit) in units.iter().enumerate() {
            let Some(of_route) = effects.get(&unit.part.place) else { continue };
            self.unit(unit, of_route, total - index);
        }
    }

    /// The conditions on addresses of clients, as a restriction.
    fn addresses(&mut self, route: &Route, effects: &mut Effects) {
        if !route.sources.is_empty() {
            let allow: Option<Vec<&String>> = route
                .sources
                .iter()
                .map(|source| source.ip.as_ref().filter(|_| source.port.is_none()))
                .collect();
            let content = &mut effects.security.1;
            let message = match allow {
                Some(allow) if !content.contains_key("ipAccess") => {
                    content.insert("ipAccess".to_owned(), json!({"allow": allow}));
                    effects.security.0 = effects.security.0.max(route.line);
                    "sources restricts the route instead of selecting it: other clients receive 403. Give other clients hosts or paths of their own"
                }
                _ => {
                    effects.closed = true;
                    "sources is not converted, and the route responds with 503: write addresses without ports, and no ip-restriction"
                }
            };
            self.notes.unconverted(route.line, &route.label(), message);
        }
        let is_port = |ports: &[u16]| {
            route
                .destinations
                .iter()
                .all(|to| to.ip.is_none() && to.port.is_some_and(|port| ports.contains(&port)))
        };
        if !is_port(&[self.options.http_port, self.options.https_port]) {
            effects.closed = true;
            let message =
                "destinations is not converted, and the route responds with 503: write hosts or snis";
            self.notes.unconverted(route.line, &route.label(), message);
        }
    }

    /// Adds the units of a part, the first in precedence first.
    fn units<'p>(&mut self, part: &'p Part<'f>, effects: &Effects, units: &mut Vec<Unit<'p, 'f>>) {
        let service = part.route.service.map(|place| &self.file.services[place]);
        let has_whole = rewrites(part, service.and_then(|service| service.path.as_deref()))
            .is_ok_and(|rewrites| rewrites.whole.is_some());
        for place in self.places(part.route) {
            if place.reply == Reply::Service {
                for agent in &effects.bots {
                    let reply = Reply::Status(403, "Forbidden");
                    let place = Place { reply, ..place.clone() };
                    units.push(Unit { part, place, is_whole: false, agent: Some(agent.clone()) });
                }
                if has_whole {
                    units.push(Unit { part, place: place.clone(), is_whole: true, agent: None });
                }
            }
            units.push(Unit { part, place, is_whole: false, agent: None });
        }
    }

    /// The hosts, ports and responses of a route.
    fn places(&mut self, route: &Route) -> Vec<Place> {
        let (http, https) = (self.options.http_port, self.options.https_port);
        let has = |names: [&str; 2]| route.protocols.iter().any(|protocol| names.contains(&&**protocol));
        let is_https_only = has(["https", "grpcs"]) && !has(["http", "grpc"]);
        let serves = |port: u16| {
            route.destinations.is_empty() || route.destinations.iter().any(|to| to.port == Some(port))
        };
        let hosts = hosts(route.hosts.as_deref().unwrap_or_default());
        let of = |hosts: Vec<Hosts>, port: Option<u16>, reply: Reply| {
            hosts.into_iter().map(move |hosts| Place { hosts, port, reply })
        };
        if !is_https_only && route.snis.is_empty() && route.destinations.is_empty() {
            return of(hosts, None, Reply::Service).collect();
        }
        let mut places = Vec::new();
        if serves(http) {
            let reply = match (is_https_only, route.https_redirect_status_code) {
                (false, _) => Reply::Service,
                (true, status @ (301 | 302 | 307 | 308)) => Reply::ToHttps(status),
                (true, _) => Reply::Status(426, "Please use HTTPS protocol"),
            };
            places.extend(of(hosts.clone(), Some(http), reply));
        }
        let has_https = self.options.has_gateway || !self.listeners.is_empty();
        if serves(https) && has_https {
            let secure = match route.snis.is_empty() {
                true => hosts,
                false => named(route),
            };
            places.extend(of(secure, Some(https), Reply::Service));
        }
        if (is_https_only || !route.snis.is_empty()) && !has_https {
            let message = "is for HTTPS, and the file has no certificate with snis: write a certificate";
            self.notes.unconverted(route.line, &route.label(), message);
        }
        places
    }

    /// Adds the HTTPRoute of a unit, and its policies.
    fn unit(&mut self, unit: &Unit<'_, 'f>, effects: &Effects, priority: usize) {
        let Unit { part, place, is_whole, agent } = unit;
        let route = part.route;
        let service = route.service.map(|place| &self.file.services[place]);
        let (mut of_path, mut is_closed) = (Rewrites::default(), effects.closed);
        match rewrites(part, service.and_then(|service| service.path.as_deref())) {
            Ok(found) => of_path = found,
            Err(Inexpressible(reason)) => {
                is_closed = true;
                let message = format!(
                    "the path for the service is not converted, and the route responds with 503: {reason}"
                );
                self.notes.unconverted(route.line, &route.label(), message);
            }
        }
        let is_served = place.reply == Reply::Service && !effects.redirects;
        let backends = match route.service {
            Some(service) if is_served => self.backends(service),
            _ => Vec::new(),
        };
        let (hostname, is_split) = if is_served { self.hostname(route, &backends) } else { (None, false) };
        let mut content = Map::new();
        if effects.redirects {
            content.extend(effects.traffic.clone());
        } else if let (Some(service), true) = (service, is_served) {
            content = self.traffic(service);
            content.extend(effects.traffic.clone());
            let mut rewrite = Map::new();
            let regex = if *is_whole { &of_path.whole } else { &of_path.regex };
            if let Some((pattern, value)) = regex {
                rewrite.insert("regex".to_owned(), json!({"pattern": pattern, "value": value}));
            }
            if let Some(hostname) = &hostname {
                rewrite.insert("hostname".to_owned(), hostname.clone().into());
            }
            if !rewrite.is_empty() {
                content.insert("urlRewrite".to_owned(), rewrite.into());
            }
        } else if place.reply == Reply::Service {
            content.extend(effects.traffic.clone());
            if !content.contains_key("directResponse") {
                content
                    .insert("directResponse".to_owned(), response(503, "no Service found with those values"));
            }
        }
        match place.reply {
            Reply::Service if is_closed => {
                content.insert(
                    "directResponse".to_owned(),
                    response(503, "The route is closed: a part of it is not converted"),
                );
            }
            Reply::Service | Reply::ToHttps(_) => {}
            Reply::Status(status, message) => {
                content.insert("directResponse".to_owned(), response(status, message));
            }
        }
        let references: Vec<Value> = backends
            .iter()
            .map(|backend| {
                let mut reference = json!({"name": backend.service, "port": backend.port});
                if backends.len() > 1 {
                    reference["weight"] = backend.weight.into();
                }
                if let (true, Some(host)) = (is_split, &backend.host) {
                    reference["filters"] = json!([{"type": "URLRewrite", "urlRewrite": {"hostname": host}}]);
                }
                reference
            })
            .collect();
        let filters = match place.reply {
            Reply::Service => effects.filters.clone(),
            Reply::ToHttps(status) => {
                vec![
                    json!({"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": status}}),
                ]
            }
            Reply::Status(..) => Vec::new(),
        };
        let conditions = Conditions { route, header: place.hosts.header.as_deref(), agent: agent.as_deref() };
        let mut rules = Vec::new();
        if is_served && !is_closed && !is_whole {
            for (exact, to) in &of_path.exact {
                let mut rewrite = json!({"path": {"type": "ReplaceFullPath", "replaceFullPath": to}});
                if let Some(hostname) = &hostname {
                    rewrite["hostname"] = hostname.clone().into();
                }
                let mut filters = filters.clone();
                filters.push(json!({"type": "URLRewrite", "urlRewrite": rewrite}));
                let matches = conditions.matches(&[json!({"type": "Exact", "value": exact})]);
                rules.extend(matches.chunks(MATCHES_MAX).map(|matches| rule(matches, &filters, &references)));
            }
        }
        let paths: Vec<Value> = match part.paths.is_empty() {
            true => vec![json!({"type": "PathPrefix", "value": "/"})],
            false => part.paths.iter().map(|path| path_match(path, *is_whole)).collect(),
        };
        let matches = conditions.matches(&paths);
        if let Some(expression) = matches.iter().find_map(invalid) {
            let message = format!(
                "is not served, because {expression:?} needs too much memory: write a shorter expression"
            );
            self.notes.unconverted(route.line, &route.label(), message);
            return;
        }
        rules.extend(matches.chunks(MATCHES_MAX).map(|matches| rule(matches, &filters, &references)));
        let label = route.name.as_deref().or(route.paths.first().map(String::as_str)).unwrap_or("route");
        for rules in split(rules) {
            let name = self.names.unique("HTTPRoute", label);
            self.apply("TrafficPolicy", 0, route.line, &content, &name);
            if place.reply == Reply::Service {
                let (line, security) = &effects.security;
                self.apply("SecurityPolicy", 0, *line, security, &name);
                let (line, limits) = &effects.limits;
                self.apply("RateLimitPolicy", *line, *line, limits, &name);
            }
            let mut metadata = self.metadata(&name);
            metadata["annotations"] = json!({PRIORITY: priority.to_string()});
            let mut spec = json!({"parentRefs": [self.parent(place.port)]});
            if !place.hosts.hostnames.is_empty() {
                spec["hostnames"] = place.hosts.hostnames.clone().into();
            }
            spec["rules"] = rules.into();
            let object =
                json!({"apiVersion": VERSION, "kind": "HTTPRoute", "metadata": metadata, "spec": spec});
            self.routes.push((route.line, object));
        }
    }

    /// The host that all backends receive, and whether each backend receives a host of its own.
    fn hostname(&mut self, route: &Route, backends: &[Backend]) -> (Option<String>, bool) {
        let Some(service) = route.service.filter(|_| !route.preserve_host) else { return (None, false) };
        let service = &self.file.services[service];
        let is_name = |name: &String| syntax::endpoint_name_fault(name).is_none();
        if let Some(upstream) = self.upstream(service) {
            if let Some(header) = upstream.host_header.clone() {
                let name = header.to_ascii_lowercase();
                return (Some(name).filter(is_name), false);
            }
            match backends {
                [Backend { host: Some(host), .. }] => {
                    return (Some(host.to_ascii_lowercase()).filter(is_name), false);
                }
                _ if backends.iter().all(|backend| backend.host.is_some()) => return (None, true),
                _ => {}
            }
            if !upstream.targets.is_empty() {
                let message =
                    "targets receive the host of the client, not their own address: write host_header";
                self.notes.unconverted(upstream.line, &upstream.label(), message);
            }
            return (None, false);
        }
        let name = Some(service.host.to_ascii_lowercase()).filter(is_name);
        if name.is_none() {
            let message =
                "the service receives the host of the client, not its own address: write the name of a host";
            self.notes.unconverted(service.line, &service.label(), message);
        }
        (name, false)
    }
}

/// A response of the gateway with the body of Kong.
fn response(status: u16, message: &str) -> Value {
    let body = json!({"message": message}).to_string();
    json!({"statusCode": status, "contentType": "application/json; charset=utf-8", "body": body})
}

/// Rules in groups that an HTTPRoute can hold, in their order.
fn split(rules: Vec<Value>) -> Vec<Vec<Value>> {
    let mut groups: Vec<(usize, Vec<Value>)> = Vec::new();
    for rule in rules {
        let matches = rule["matches"].as_array().map_or(0, Vec::len);
        match groups.last_mut() {
            Some((count, group)) if group.len() < RULES_MAX && *count + matches <= ROUTE_MATCHES_MAX => {
                *count += matches;
                group.push(rule);
            }
            _ => groups.push((matches, vec![rule])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn rule(matches: &[Value], filters: &[Value], backends: &[Value]) -> Value {
    let mut rule = json!({"matches": matches});
    if !filters.is_empty() {
        rule["filters"] = filters.into();
    }
    if !backends.is_empty() {
        rule["backendRefs"] = backends.into();
    }
    rule
}

/// The first expression of a match that the gateway cannot use.
fn invalid(of: &Value) -> Option<String> {
    let headers = of["headers"].as_array().into_iter().flatten();
    let all = headers.chain([&of["path"]]);
    let mut expressions =
        all.filter(|of| of["type"] == "RegularExpression").filter_map(|of| of["value"].as_str());
    let is_invalid = |expression: &&str| Pattern::new(format!("^(?:{expression})$"), false).is_err();
    expressions.find(is_invalid).map(str::to_owned)
}

/// The conditions of a unit beside its paths.
struct Conditions<'c> {
    route: &'c Route,
    header: Option<&'c str>,
    agent: Option<&'c str>,
}

impl Conditions<'_> {
    /// A match for each path and each method.
    fn matches(&self, paths: &[Value]) -> Vec<Value> {
        let expression =
            |name: &str, value: String| json!({"type": "RegularExpression", "name": name, "value": value});
        let mut headers: Vec<Value> = self
            .route
            .headers
            .iter()
            .map(|(name, values)| expression(&name.replace('_', "-"), header_value(values)))
            .collect();
        headers.extend(self.header.map(|value| expression("Host", value.to_owned())));
        headers.extend(self.agent.map(|value| expression("User-Agent", format!(".*(?:{value}).*"))));
        let methods: Vec<Option<&String>> = match self.route.methods.is_empty() {
            true => vec![None],
            false => self.route.methods.iter().map(Some).collect(),
        };
        let mut matches = Vec::with_capacity(paths.len() * methods.len());
        for path in paths {
            for method in &methods {
                let mut of = json!({"path": path});
                if let Some(method) = method {
                    of["method"] = (*method).clone().into();
                }
                if !headers.is_empty() {
                    of["headers"] = headers.clone().into();
                }
                matches.push(of);
            }
        }
        matches
    }
}

/// The values of a header, which Kong compares without regard to case.
fn header_value(values: &[String]) -> String {
    let alternatives = values.iter().map(|value| match value.strip_prefix("~*") {
        Some(expression) => format!(".*(?:{}).*", expression.to_lowercase()),
        None => literal(value),
    });
    format!("(?i)(?:{})", alternatives.collect::<Vec<_>>().join("|"))
}

/// A path of a route. `is_whole`: the expression matches the whole path.
fn path_match(path: &Path, is_whole: bool) -> Value {
    let value = match path {
        Path::Prefix(prefix) => format!("{}.*", literal(prefix)),
        Path::Regex(expression, _) if is_whole => format!("(?:{expression})"),
        // The anchor before the expression belongs to its first alternative.
        Path::Regex(expression, _) if has_alternatives(expression) => format!(".*(?:^{expression}).*"),
        Path::Regex(expression, _) => format!("(?:{expression}).*"),
    };
    json!({"type": "RegularExpression", "value": value})
}

/// Whether an expression has alternatives outside its groups.
fn has_alternatives(expression: &str) -> bool {
    let (mut depth, mut is_class, mut characters) = (0_usize, false, expression.chars());
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '[' => is_class = true,
            ']' => is_class = false,
            _ if is_class => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// The hosts of a route, in sets of one HTTPRoute each.
fn hosts(written: &[String]) -> Vec<Hosts> {
    if written.is_empty() {
        return vec![Hosts::default()];
    }
    let (names, others): (Vec<&String>, Vec<&String>) =
        written.iter().partition(|written| host::parse_suffix(written).is_ok());
    let mut sets: Vec<Hosts> = names
        .chunks(HOSTNAMES_MAX)
        .map(|names| Hosts { hostnames: names.iter().map(|name| (*name).clone()).collect(), header: None })
        .collect();
    if !others.is_empty() {
        let alternatives = others.iter().map(|host| {
            let (name, port) = host_and_port(host);
            let name = match (name.strip_prefix('*'), name.strip_suffix('*')) {
                (Some(suffix), _) => format!(".*{}", literal(suffix)),
                (None, Some(prefix)) => format!("{}[^:]*", literal(prefix)),
                (None, None) => literal(name),
            };
            match port {
                Some(port) => format!("{name}:{port}"),
                None => format!("{name}(?::[0-9]+)?"),
            }
        });
        let header = Some(format!("(?i)(?:{})", alternatives.collect::<Vec<_>>().join("|")));
        sets.push(Hosts { hostnames: Vec::new(), header });
    }
    sets
}

/// The names of the ClientHello of a route that are also its hosts.
fn named(route: &Route) -> Vec<Hosts> {
    let hosts = route.hosts.as_deref().unwrap_or_default();
    let is_host = |name: &&str| {
        hosts.is_empty()
            || hosts.iter().any(|host| match (host.strip_prefix('*'), host.strip_suffix('*')) {
                (Some(suffix), _) => name.ends_with(suffix),
                (None, Some(prefix)) => name.starts_with(prefix),
                (None, None) => host_and_port(host).0 == *name,
            })
    };
    let names = route.snis.iter().map(|sni| sni.trim_end_matches('.')).filter(is_host);
    let names: Vec<String> = names.map(str::to_ascii_lowercase).collect();
    names.chunks(HOSTNAMES_MAX).map(|names| Hosts { hostnames: names.to_vec(), header: None }).collect()
}
