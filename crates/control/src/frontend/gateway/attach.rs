//! The attachment of routes to listeners.

use sluicegate_model::HostPattern;

use super::Candidate;
use super::listener::{Site, Sites};
use crate::intent::Place;
use crate::object::route::{ParentRef, Route};
use crate::object::{Kind, ObjectRef};
use crate::problem::{Problem, Severity};
use crate::store::Store;

/// A route at a listener.
pub(super) struct Attachment {
    /// Its place among the candidates.
    pub(super) route: usize,
    /// The place in `spec.parentRefs` that attaches it.
    parent: usize,
    /// The names of the attachment: names that both the listener and the route have.
    pub(super) hosts: Vec<HostPattern>,
}

impl Attachment {
    /// The field that attaches it.
    pub(super) fn place(&self) -> Place {
        Place::ParentRef(self.parent)
    }
}

/// The routes of each listener, the oldest first.
pub(super) fn all(
    store: &Store,
    sites: &Sites<'_>,
    candidates: &[Candidate<'_>],
    problems: &mut Vec<Problem>,
) -> Vec<Vec<Attachment>> {
    let mut attached: Vec<Vec<Attachment>> = sites.all.iter().map(|_| Vec::new()).collect();
    for (route, candidate) in candidates.iter().enumerate() {
        let mut names = Vec::new();
        for parent in &candidate.route.parents {
            match listeners(store, sites, candidate, parent) {
                Ok(listeners) => {
                    for (listener, hosts) in listeners {
                        names.extend(hosts.iter().cloned());
                        attached[listener].push(Attachment { route, parent: parent.index, hosts });
                    }
                }
                Err(refusal) => {
                    let field = Place::ParentRef(parent.index).field();
                    problems.push(candidate.at.problem(refusal.severity, &field, refusal.message));
                }
            }
        }
        if !names.is_empty() {
            report_unused_names(candidate, &names, problems);
        }
    }
    attached
}

/// The reason why a route is not attached.
struct Refusal {
    severity: Severity,
    message: String,
    /// How near the route came to an attachment: the nearest of several listeners gives the reason.
    nearness: u8,
}

impl Refusal {
    fn warning(nearness: u8, message: String) -> Self {
        Self { severity: Severity::Warning, message, nearness }
    }

    fn note(nearness: u8, message: String) -> Self {
        Self { severity: Severity::Note, message, nearness }
    }
}

/// The listeners that a route is attached to by one of its parents, each with the names; none, without a message, if
/// the parent belongs to another controller.
fn listeners(
    store: &Store,
    sites: &Sites<'_>,
    candidate: &Candidate<'_>,
    parent: &ParentRef,
) -> Result<Vec<(usize, Vec<HostPattern>)>, Refusal> {
    if let Some(kind) = &parent.other_kind {
        return Err(Refusal::note(0, format!("routes of a {} are not supported", kind.escape_debug())));
    }
    let gateway =
        ObjectRef { kind: Kind::Gateway, namespace: parent.namespace.clone(), name: parent.name.clone() };
    let of_gateway = sites.of_gateway.get(&gateway).cloned().unwrap_or_default();
    let has_listeners = !of_gateway.is_empty();
    let mut refusal = None;
    let mut found = Vec::new();
    for index in of_gateway {
        let site = &sites.all[index];
        let is_meant = parent.section.as_ref().is_none_or(|name| **name == *site.listener.name)
            && parent.port.is_none_or(|port| port == site.listener.port);
        if !is_meant {
            continue;
        }
        match attach(site, candidate) {
            Ok(hosts) => found.push((index, hosts)),
            Err(new) if refusal.as_ref().is_none_or(|old: &Refusal| new.nearness > old.nearness) => {
                refusal = Some(new);
            }
            Err(_) => {}
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    if !has_listeners && store.knows(&gateway) {
        // The Gateway is of another class, or has no valid listener, which its own problem reports.
        return Ok(found);
    }
    let message = match (&parent.section, parent.port) {
        _ if !has_listeners => format!("{gateway} does not exist"),
        (Some(name), None) => format!("{gateway} has no listener named {name:?}"),
        (Some(name), Some(port)) => format!("{gateway} has no listener named {name:?} at port {port}"),
        (None, Some(port)) => format!("{gateway} has no listener at port {port}"),
        (None, None) => format!("{gateway} has no listener"),
    };
    Err(Refusal::warning(0, message))
}

/// The names for which a route is attached to a listener, or the reason why it is not attached.
fn attach(site: &Site<'_>, candidate: &Candidate<'_>) -> Result<Vec<HostPattern>, Refusal> {
    let (kind, namespace) = (candidate.at.object.kind, &candidate.at.object.namespace);
    let (listener, in_words) = (site.listener, site.in_words());
    match listener.protocol.route() {
        None => {
            return Err(Refusal::note(
                0,
                format!("{in_words} is for {}, which is not supported", listener.protocol),
            ));
        }
        Some(other) if other != kind => {
            let protocol = listener.protocol;
            return Err(Refusal::warning(
                1,
                format!("{in_words} is for {protocol}, and does not accept a {kind}"),
            ));
        }
        Some(_) => {}
    }
    if !listener.takes_kind(kind) {
        return Err(Refusal::warning(
            2,
            format!("{in_words} does not accept a {kind} (allowedRoutes.kinds)"),
        ));
    }
    if !listener.takes_namespace(namespace, &site.gateway.at.object.namespace) {
        let message =
            format!("{in_words} does not accept routes of namespace {namespace} (allowedRoutes.namespaces)");
        return Err(Refusal::warning(3, message));
    }
    let hosts = hosts(&listener.hostname, candidate.route);
    if hosts.is_empty() {
        let message =
            format!("{in_words} is for {}, which no entry of spec.hostnames matches", listener.hostname);
        return Err(Refusal::warning(4, message));
    }
    if !site.is_served {
        return Err(Refusal::warning(5, format!("{in_words} is not served")));
    }
    Ok(hosts)
}

/// The names that both the listener and the route have.
fn hosts(listener: &HostPattern, route: &Route) -> Vec<HostPattern> {
    let Some(hostnames) = &route.hostnames else { return vec![listener.clone()] };
    let mut hosts: Vec<HostPattern> =
        hostnames.iter().filter_map(|name| intersection(listener, &name.pattern)).collect();
    hosts.sort();
    hosts.dedup();
    hosts
}

/// The names that both patterns match, as the narrower of the two; `None` if there are none.
fn intersection(one: &HostPattern, other: &HostPattern) -> Option<HostPattern> {
    if covers(one, other) {
        Some(other.clone())
    } else if covers(other, one) {
        Some(one.clone())
    } else {
        None
    }
}

/// Whether a pattern matches all names of another pattern.
pub(super) fn covers(wide: &HostPattern, narrow: &HostPattern) -> bool {
    match (wide, narrow) {
        (HostPattern::Any, _) => true,
        (HostPattern::Suffix(_), HostPattern::Suffix(name)) => wide == narrow || wide.matches(name),
        (_, HostPattern::Exact(name)) => wide.matches(name),
        _ => wide == narrow,
    }
}

/// Reports the names of a route that are outside its attachments.
fn report_unused_names(candidate: &Candidate<'_>, attached: &[HostPattern], problems: &mut Vec<Problem>) {
    for name in candidate.route.hostnames.iter().flatten() {
        if !attached.iter().any(|host| covers(&name.pattern, host)) {
            let field = format!("spec.hostnames[{}]", name.index);
            let message = format!("{} matches no listener of the route, and is ignored", name.pattern);
            problems.push(candidate.at.warning(&field, message));
        }
    }
}
