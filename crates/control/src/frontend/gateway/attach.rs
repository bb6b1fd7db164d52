//! The listeners that accept a route.

use sluicegate_model::HostPattern;

use super::Listeners;
use crate::intent::listener::{Listener, Parent, Refused};
use crate::intent::{At, Place};
use crate::object::gateway;
use crate::object::host::covers;
use crate::object::route::{Hostname, ParentRef};
use crate::problem::Severity;
use crate::store::Store;

/// No listener is as the parent says.
const NO_PARENT: &str = "NoMatchingParent";

/// A listener does not allow the route.
const NOT_ALLOWED: &str = "NotAllowedByListeners";

/// The reason why no listener accepts a route.
struct Refusal {
    /// The reason of the condition `Accepted`.
    reason: &'static str,
    severity: Severity,
    message: String,
    /// How far the checks of a route at a listener succeeded. Of several listeners, the listener with the most
    /// successful checks gives the reason.
    nearness: u8,
}

impl Refusal {
    fn warning(nearness: u8, reason: &'static str, message: String) -> Self {
        Self { reason, severity: Severity::Warning, message, nearness }
    }

    fn note(nearness: u8, message: String) -> Self {
        Self { reason: NO_PARENT, severity: Severity::Note, message, nearness }
    }
}

/// The parents of a route, each with the listeners that accept the route.
pub(super) fn parents<'a>(
    store: &Store,
    known: &Listeners<'_>,
    intents: &[Listener<'_>],
    at: At<'_>,
    hostnames: Option<&[Hostname]>,
    parents: &'a [ParentRef],
) -> Vec<Parent<'a>> {
    let parent = |parent: &'a ParentRef| {
        let place = Place::ParentRef(parent.index);
        let accepted = listeners(store, known, intents, at, hostnames, parent);
        let accepted = accepted.map_err(|refusal| Refused {
            reason: refusal.reason,
            problem: at.problem(refusal.severity, &place.field(), refusal.message),
        });
        let is_ours = parent.object().is_ok_and(|object| known.of_parent.contains_key(&object));
        Parent { place, reference: parent, is_ours, accepted }
    };
    parents.iter().map(parent).collect()
}

/// The listeners that accept a route by one of its parents, each with the names; none, without a message, if the parent
/// belongs to another controller.
fn listeners(
    store: &Store,
    known: &Listeners<'_>,
    intents: &[Listener<'_>],
    at: At<'_>,
    hostnames: Option<&[Hostname]>,
    parent: &ParentRef,
) -> Result<Vec<(usize, Vec<HostPattern>)>, Refusal> {
    let object = parent
        .object()
        .map_err(|kind| Refusal::note(0, format!("routes of a {} are not supported", kind.escape_debug())))?;
    let of_parent = known.of_parent.get(&object).cloned().unwrap_or_default();
    let has_listeners = !of_parent.is_empty();
    let mut refusal = None;
    let mut found = Vec::new();
    for index in of_parent {
        let listener = known.all[index];
        let is_meant = parent.section.as_ref().is_none_or(|name| **name == *listener.name)
            && parent.port.is_none_or(|port| port == listener.port);
        if !is_meant {
            continue;
        }
        match accept(store, listener, &intents[index], at, hostnames) {
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
    if !has_listeners && store.knows(&object) {
        // The parent is of another class, is not allowed, or has no valid listener, which its own problem reports.
        return Ok(found);
    }
    let message = match (&parent.section, parent.port) {
        _ if !has_listeners => format!("{object} does not exist"),
        (Some(name), None) => format!("{object} has no listener named {name:?}"),
        (Some(name), Some(port)) => format!("{object} has no listener named {name:?} at port {port}"),
        (None, Some(port)) => format!("{object} has no listener at port {port}"),
        (None, None) => format!("{object} has no listener"),
    };
    Err(Refusal::warning(0, NO_PARENT, message))
}

/// The names for which a listener accepts a route, or the reason why it does not.
fn accept(
    store: &Store,
    listener: &gateway::Listener,
    intent: &Listener<'_>,
    at: At<'_>,
    hostnames: Option<&[Hostname]>,
) -> Result<Vec<HostPattern>, Refusal> {
    let (kind, namespace) = (at.object.kind, &at.object.namespace);
    let in_words = intent.in_words();
    match listener.protocol.routes() {
        [] => {
            return Err(Refusal::note(
                0,
                format!("{in_words} is for {}, which is not supported", listener.protocol),
            ));
        }
        kinds if !kinds.contains(&kind) => {
            let protocol = listener.protocol;
            return Err(Refusal::warning(
                1,
                NOT_ALLOWED,
                format!("{in_words} is for {protocol}, and does not accept a {kind}"),
            ));
        }
        _ => {}
    }
    if !listener.takes_kind(kind) {
        return Err(Refusal::warning(
            2,
            NOT_ALLOWED,
            format!("{in_words} does not accept a {kind} (allowedRoutes.kinds)"),
        ));
    }
    if !listener.takes_namespace(namespace, &intent.at.object.namespace, || store.namespace(namespace)) {
        let message =
            format!("{in_words} does not accept routes of namespace {namespace} (allowedRoutes.namespaces)");
        return Err(Refusal::warning(3, NOT_ALLOWED, message));
    }
    let hosts = hosts(&listener.hostname, hostnames);
    if hosts.is_empty() {
        let message =
            format!("{in_words} is for {}, which no entry of spec.hostnames matches", listener.hostname);
        return Err(Refusal::warning(4, "NoMatchingListenerHostname", message));
    }
    Ok(hosts)
}

/// The names that both the listener and the route have.
fn hosts(listener: &HostPattern, hostnames: Option<&[Hostname]>) -> Vec<HostPattern> {
    let Some(hostnames) = hostnames else { return vec![listener.clone()] };
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
