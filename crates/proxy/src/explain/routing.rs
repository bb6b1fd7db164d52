//! The route of a described request: the hosts and matches that the gateway compares, and the precedence among them.

use std::net::SocketAddr;

use sluicegate_model::rule::{Backend, PathMatch, Rule, RuleMatch};
use sluicegate_model::{Config, PathPattern, Serves};

use super::data::{ApiRoute, Candidate, HostTried, Precedence, Route, RouteUpstream};
use super::described::Described;
use crate::registry::OwnListeners;
use crate::rule::Entrance;
use crate::rule::trace::{HostStep, Near, conditions};

/// A listener that may receive a request, with its name and its address, as far as the address is known.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) entrance: Entrance,
    pub(super) name: String,
    pub(super) address: SocketAddr,
}

/// The rule and the match of a route; no match for a fallback.
pub(super) type Chosen<'t> = (&'t Rule, Option<&'t RuleMatch>);

/// The listeners that may receive the request, the most likely first: one listener, if the URL names its port.
pub(super) fn places(config: &Config, own: &OwnListeners, request: &Described) -> Vec<Place> {
    let is_of_scheme = |serves: &Serves| match serves {
        Serves::Http(_) => !request.is_https,
        Serves::Https(_) => request.is_https,
        Serves::Tcp(_) | Serves::Tls(_) | Serves::Udp(_) => false,
    };
    let gateways = config.listeners.iter().filter(|listener| is_of_scheme(&listener.serves));
    let mut gateways: Vec<SocketAddr> = gateways.map(|listener| listener.address).collect();
    gateways.sort_by_key(|address| (address.port() != request.port(), *address));
    let (entrance, name, own) = match request.is_https {
        true => (Entrance::FlagHttps, "https", &own.https),
        false => (Entrance::FlagHttp, "http", &own.http),
    };
    let with_port = own.iter().find(|address| address.port() == request.port());
    let address = with_port.or(own.first()).copied();
    let address = address.unwrap_or_else(|| ([0, 0, 0, 0], request.port()).into());
    let is_named = request.names_port();
    if is_named && with_port.is_some() {
        return vec![Place { entrance, name: name.to_owned(), address }];
    }
    let own = Place { entrance, name: name.to_owned(), address };
    let same = gateways.iter().take_while(|address| address.port() == request.port()).count();
    let of_gateway = |address: SocketAddr| Place {
        entrance: Entrance::Gateway(address),
        name: address.to_string(),
        address,
    };
    let mut places: Vec<_> = gateways.into_iter().map(of_gateway).collect();
    places.insert(same, own);
    // Otherwise the port may be that of a Service, and another listener may be meant.
    if is_named && same > 0 {
        places.truncate(same);
    }
    places
}

/// A host that the gateway asked.
pub(super) fn tried(step: &HostStep<'_>, chosen: Option<Chosen<'_>>) -> HostTried {
    let is_chosen = |near: &Near<'_>| step.found.is_some() && is_match(chosen, near);
    let candidate = |near: &Near<'_>| Candidate {
        from: near.rule.id.to_string(),
        path: near.of.path.to_string(),
        path_type: near.of.path.path_type().to_owned(),
        selected: is_chosen(near),
        unmet: near.unmet.clone(),
    };
    HostTried {
        host: step.pattern.to_string(),
        matches: step.matches,
        selected: step.found.is_some(),
        continues: step.continues,
        near: step.near.iter().map(candidate).collect(),
    }
}

fn is_match(chosen: Option<Chosen<'_>>, near: &Near<'_>) -> bool {
    chosen.is_some_and(|(_, of)| of.is_some_and(|of| std::ptr::eq(of, near.of)))
}

/// The reason for a 404.
pub(super) fn no_route(steps: &[HostStep<'_>], request: &Described, path: &str) -> String {
    let Some(last) = steps.last() else {
        return format!(
            "No route has the host {:?}, and there is no default backend. Check the hosts of your routes.",
            request.authority
        );
    };
    let near = steps.iter().flat_map(|step| &step.near).find(|near| !near.unmet.is_empty());
    match near {
        Some(near) => format!(
            "The path matches {} of {}, but the request does not meet a condition: {}.",
            near.of.path,
            near.rule.id,
            near.unmet.join(", ")
        ),
        None => format!(
            "The host {} has {} match{}, and none matches the path {path}.",
            last.pattern,
            last.matches,
            if last.matches == 1 { "" } else { "es" }
        ),
    }
}

/// The route of a rule.
pub(super) fn route(config: &Config, (rule, of): Chosen<'_>, host: String) -> Route {
    let upstream = |backend: &Backend| {
        let endpoints = config.upstreams.get(&backend.upstream).map_or(&[][..], |of| &of.endpoints);
        RouteUpstream {
            upstream: match backend.is_invalid {
                true => "(invalid)".to_owned(),
                false => backend.upstream.to_string(),
            },
            weight: backend.weight.get(),
            ready: endpoints.iter().filter(|endpoint| endpoint.conditions.ready).count(),
            endpoints: endpoints.len(),
        }
    };
    Route {
        from: rule.id.to_string(),
        host,
        path: of.map_or_else(|| "*".to_owned(), |of| of.path.to_string()),
        path_type: of.map_or("DefaultBackend", |of| of.path.path_type()).to_owned(),
        conditions: of.map(conditions).unwrap_or_default(),
        api: rule.api.as_ref().map(|api| ApiRoute {
            version: api.version.to_string(),
            environment: api.environment.to_string(),
            operation: api.operation.as_ref().map(ToString::to_string),
        }),
        upstreams: rule.backends.iter().map(upstream).collect(),
    }
}

/// The reason why the selected match comes before the next match of its host that the request meets too.
pub(super) fn precedence(steps: &[HostStep<'_>], chosen: Chosen<'_>) -> Option<Precedence> {
    let step = steps.iter().find(|step| step.found.is_some())?;
    let next = step.near.iter().find(|near| near.unmet.is_empty() && !is_match(Some(chosen), near))?;
    let because = match chosen.1 {
        Some(of) => before((chosen.0, of), (next.rule, next.of)),
        // The paths of a login come before every match.
        None => "The gateway needs the path for the login of a policy.".to_owned(),
    };
    Some(Precedence {
        over: next.rule.id.to_string(),
        path: next.of.path.to_string(),
        path_type: next.of.path.path_type().to_owned(),
        because,
    })
}

/// The rule of precedence by which one match comes before another one ([`RuleMatch::precedence`]).
fn before((rule, of): (&Rule, &RuleMatch), (other_rule, other): (&Rule, &RuleMatch)) -> String {
    // The places of the number that `RuleMatch::new` computes. Annotations and frontends may set another number.
    let computed = |of: &RuleMatch| {
        let RuleMatch { path, method, headers, query, .. } = of.clone();
        RuleMatch::new(path, method, headers, query).precedence
    };
    let is_computed = (of.precedence < other.precedence) == (computed(of) < computed(other))
        && (of.precedence == other.precedence) == (computed(of) == computed(other));
    if of.precedence != other.precedence && !is_computed {
        return match rule.id.kind == other_rule.id.kind {
            true => "Its object has precedence: by a priority, by a more specific hostname, or by its place."
                .to_owned(),
            false => format!(
                "A match of kind {} comes before this match of kind {}.",
                rule.id.kind, other_rule.id.kind
            ),
        };
    }
    let (class, other_class) = (class(&of.path), class(&other.path));
    if class.0 != other_class.0 {
        return format!("{} comes before {}.", capital(class.1), other_class.1);
    }
    let (length, other_length) = (of.path.as_str().len(), other.path.as_str().len());
    if matches!(of.path, PathMatch::Template(_)) && of.path.as_str() != other.path.as_str() {
        return "A template with more fixed segments comes before a template with fewer.".to_owned();
    }
    if length != other_length {
        return format!(
            "A longer path comes before a shorter path: {length} before {other_length} characters."
        );
    }
    if of.path.path_type() != other.path.path_type() {
        return "A prefix of whole segments comes before a prefix of characters.".to_owned();
    }
    let conditions = [
        (
            usize::from(of.method.is_some()),
            usize::from(other.method.is_some()),
            "A match with a method",
            "one without",
        ),
        (of.headers.len(), other.headers.len(), "A match with more headers", "one with fewer"),
        (of.query.len(), other.query.len(), "A match with more query parameters", "one with fewer"),
    ];
    match conditions.into_iter().find(|(one, two, ..)| one != two) {
        Some((_, _, first, second)) => format!("{first} comes before {second}."),
        None if rule.id != other_rule.id => "The matches are equal: the older object comes first.".to_owned(),
        None => "The matches are equal: the first match of the object comes first.".to_owned(),
    }
}

/// The class of a path condition, by which Gateway API and Ingress order matches.
fn class(path: &PathMatch) -> (u8, &'static str) {
    match path {
        PathMatch::Literal(PathPattern::Exact(_)) => (0, "an exact path"),
        PathMatch::Regex(_) => (1, "a regular expression"),
        PathMatch::Template(_) => (1, "a template"),
        PathMatch::Literal(PathPattern::Prefix(_) | PathPattern::Starts(_)) => (2, "a prefix"),
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
