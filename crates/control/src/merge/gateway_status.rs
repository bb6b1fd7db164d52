//! The status of GatewayClasses, Gateways and their routes, once all conflicts are decided.

use std::collections::BTreeMap;

use super::listener::Merged;
use crate::frontend::gateway::is_ours;
use crate::frontend::gateway::parameters;
use crate::frontend::gateway::service::{self, GatewayAddresses};
use crate::intent::Intents;
use crate::intent::listener::{GatewayIntent, Listener, Parent};
use crate::object::gateway::{GatewayClass, RejectedListener};
use crate::object::http_route::HttpRoute;
use crate::object::route::Route;
use crate::object::{Kind, ObjectRef, gateway};
use crate::status::{
    ADDRESS_NOT_USABLE, Condition, Content, Fault, GatewayStatus, ListenerStatus, ObjectStatus, ParentStatus,
};
use crate::store::Store;
use crate::translate::TranslateOptions;

const ACCEPTED: &str = "Accepted";
const PROGRAMMED: &str = "Programmed";
const RESOLVED_REFS: &str = "ResolvedRefs";

/// The status of all objects that the gateway serves.
pub(crate) fn statuses(
    store: &Store,
    options: &TranslateOptions,
    intents: &Intents<'_>,
    merged: &Merged<'_>,
) -> Vec<ObjectStatus> {
    let lost = &merged.lost;
    let mut statuses = Vec::new();
    for (object, class, _) in store.all::<GatewayClass>().filter(|(_, class, _)| is_ours(class)) {
        let fault = parameters::of_class(store, options, class).err();
        let conditions = vec![Condition::unless(ACCEPTED, ACCEPTED, fault.as_ref())];
        statuses.push(ObjectStatus {
            object: object.clone(),
            generation: class.generation,
            content: Content::GatewayClass(conditions),
        });
    }
    let attached = attached_routes(intents, merged);
    statuses.extend(intents.gateways.iter().map(|gateway| {
        let addresses = Addresses {
            addresses: addresses(store, options, gateway),
            unusable: unusable_address(store, options, gateway),
        };
        of_gateway(gateway, intents, lost, &attached, addresses)
    }));
    let layer4 = intents.layer4.iter().map(|route| {
        let resolved = route.backends.unresolved.as_ref();
        let fallback = store.not_in_service::<Route>(route.at.object);
        let generation = fallback.as_ref().map_or(route.generation, |(newest, _)| newest.generation);
        let conditions = |parent: &Parent<'_>| {
            let mut conditions = of_parent(parent, intents, lost, None, resolved);
            conditions.extend(fallback.as_ref().map(|(_, error)| falls_back(error)));
            conditions
        };
        of_route(route.at.object, generation, &route.parents, conditions)
    });
    statuses.extend(layer4);
    let http = intents.http_routes.iter().enumerate().map(|(index, route)| {
        let fallback = store.not_in_service::<HttpRoute>(route.at.object);
        let generation = fallback.as_ref().map_or(route.generation, |(newest, _)| newest.generation);
        let conditions = |parent: &Parent<'_>| {
            let fault = route.fault.filter(|_| !route.is_usable);
            let rival = || {
                let mut listeners = parent.accepted.iter().flatten();
                let first = listeners.clone().next();
                let rival = |(listener, _): &(usize, _)| merged.rivals.get(&(index, *listener));
                let is_attached = listeners.any(|listener| rival(listener).is_none());
                first.filter(|_| !is_attached).and_then(rival)
            };
            let fault = fault.or_else(rival);
            let mut conditions = of_parent(parent, intents, lost, fault, route.unresolved.as_ref());
            if let Some((_, error)) = &fallback {
                conditions.push(falls_back(error));
            } else if let Some(fault) = route.fault.filter(|_| route.is_usable) {
                conditions.push(partially_invalid(format!("Dropped Rule: {}", fault.message)));
            }
            conditions
        };
        of_route(route.at.object, generation, &route.parents, conditions)
    });
    statuses.extend(http);
    statuses
}

/// An older version of the route is in service.
fn falls_back(error: &str) -> Condition {
    partially_invalid(format!("Fall Back: {error}"))
}

/// The condition is present only while it is true. The message begins with words that Gateway API prescribes.
fn partially_invalid(message: String) -> Condition {
    Condition { message, ..Condition::met("PartiallyInvalid", "UnsupportedValue") }
}

/// The number of routes that each listener accepts, by the place of the listener.
fn attached_routes(intents: &Intents<'_>, merged: &Merged<'_>) -> Vec<usize> {
    let mut counts = vec![0; intents.listeners.len()];
    let mut count = |parents: &[Parent<'_>], is_attached: &dyn Fn(usize) -> bool| {
        let accepted = parents.iter().filter_map(|parent| parent.accepted.as_ref().ok()).flatten();
        // Two parents may lead to one listener.
        let mut listeners: Vec<usize> = accepted.map(|(listener, _)| *listener).collect();
        listeners.sort_unstable();
        listeners.dedup();
        for listener in listeners.into_iter().filter(|listener| is_attached(*listener)) {
            counts[listener] += 1;
        }
    };
    for route in &intents.layer4 {
        count(&route.parents, &|_| true);
    }
    for (index, route) in intents.http_routes.iter().enumerate() {
        count(&route.parents, &|listener| !merged.rivals.contains_key(&(index, listener)));
    }
    counts
}

fn of_gateway(
    intent: &GatewayIntent<'_>,
    intents: &Intents<'_>,
    lost: &BTreeMap<usize, Fault>,
    attached: &[usize],
    Addresses { addresses, unusable }: Addresses,
) -> ObjectStatus {
    let gateway = intent.gateway;
    let mut listeners: Vec<(usize, ListenerStatus)> = Vec::new();
    let mut first_fault = None;
    let (mut is_any_accepted, mut waiting) = (false, None);
    for (index, listener) in intent.listeners.clone().zip(&gateway.listeners) {
        let fault = listener_fault(&intents.listeners[index], listener, lost.get(&index));
        is_any_accepted |= fault.is_none();
        let status = of_listener(&intents.listeners[index], listener, fault.as_ref(), lost.get(&index));
        first_fault = first_fault.or(fault);
        waiting = waiting.or_else(|| waits(&intents.listeners[index]));
        let attached_routes = attached[index];
        listeners.push((listener.index, ListenerStatus { attached_routes, ..status }));
    }
    for RejectedListener { index, name, fault } in &gateway.rejected {
        let conditions = listener_conditions(Some(fault), None, None, None);
        let status = ListenerStatus { name: name.clone(), kinds: Vec::new(), attached_routes: 0, conditions };
        listeners.push((*index, status));
        first_fault = first_fault.or_else(|| Some(fault.clone()));
    }
    listeners.sort_by_key(|(index, _)| *index);
    let fault = intent.parameters.as_ref().err().or(gateway.fault.as_ref());
    let accepted = match (fault, &first_fault) {
        (Some(fault), _) => Condition::unless(ACCEPTED, ACCEPTED, Some(fault)),
        (None, Some(fault)) => Condition {
            name: ACCEPTED,
            is_true: is_any_accepted,
            reason: "ListenersNotValid",
            message: fault.message.clone(),
        },
        (None, None) => Condition::met(ACCEPTED, ACCEPTED),
    };
    // Listeners report their own references.
    let refers = gateway.client_certificate.is_some();
    let resolved =
        refers.then(|| Condition::unless(RESOLVED_REFS, RESOLVED_REFS, intent.unresolved.as_ref()));
    let invalid = (!accepted.is_true).then(|| Fault::new("Invalid", accepted.message.clone()));
    let unprogrammed = invalid.or(unusable).or(waiting);
    ObjectStatus {
        object: intent.at.object.clone(),
        generation: gateway.generation,
        content: Content::Gateway(GatewayStatus {
            accepted,
            resolved,
            unprogrammed,
            addresses,
            listeners: listeners.into_iter().map(|(_, status)| status).collect(),
        }),
    }
}

/// The addresses of a Gateway, for its status.
struct Addresses {
    /// Its own addresses; `None` for the addresses of the data planes.
    addresses: Option<Vec<Box<str>>>,
    /// The reason why it does not have the addresses that it requests.
    unusable: Option<Fault>,
}

fn unusable_address(store: &Store, options: &TranslateOptions, intent: &GatewayIntent<'_>) -> Option<Fault> {
    let services = options.gateway_services.as_ref()?;
    let message = service::unusable_address(store, options, services, intent.at.object, intent.gateway)?;
    Some(Fault::new(ADDRESS_NOT_USABLE, format!("spec.addresses: {message}")))
}

/// The addresses of a Gateway of its own; `None` for the addresses of the data planes.
fn addresses(store: &Store, options: &TranslateOptions, intent: &GatewayIntent<'_>) -> Option<Vec<Box<str>>> {
    if let Some(services) = &options.gateway_services {
        return match service::addresses(store, services, intent.at.object) {
            Some(GatewayAddresses::Service(addresses)) => Some(addresses),
            Some(GatewayAddresses::Nodes) => None,
            None => Some(Vec::new()),
        };
    }
    let own = intent.gateway.addresses.iter().flatten().filter(|address| !address.is_unspecified());
    let own: Vec<Box<str>> = own.map(|address| address.to_string().into()).collect();
    (!own.is_empty()).then_some(own)
}

/// The reason why a listener is not served yet, although nothing is wrong with it.
fn waits(intent: &Listener<'_>) -> Option<Fault> {
    let problem = intent.sockets.as_ref().err().filter(|_| intent.is_waiting)?;
    Some(Fault::new("Pending", problem.message.clone()))
}

/// The reason why a listener is not accepted.
fn listener_fault(
    intent: &Listener<'_>,
    listener: &gateway::Listener,
    lost: Option<&Fault>,
) -> Option<Fault> {
    match &intent.sockets {
        Err(_) if waits(intent).is_some() => None,
        Err(problem) => {
            let is_supported = !listener.protocol.routes().is_empty();
            let reason = if is_supported { "PortUnavailable" } else { "UnsupportedValue" };
            Some(Fault::new(reason, problem.message.clone()))
        }
        Ok(_) => lost.cloned(),
    }
}

fn of_listener(
    intent: &Listener<'_>,
    listener: &gateway::Listener,
    fault: Option<&Fault>,
    lost: Option<&Fault>,
) -> ListenerStatus {
    ListenerStatus {
        name: listener.name.clone(),
        kinds: Kind::all().filter(|kind| listener.takes_kind(*kind)).collect(),
        attached_routes: 0,
        conditions: listener_conditions(fault, lost, intent.unresolved.as_ref(), waits(intent)),
    }
}

/// The conditions of a listener that is not accepted for `fault`, has lost a conflict, names nothing usable, or waits.
fn listener_conditions(
    fault: Option<&Fault>,
    lost: Option<&Fault>,
    unresolved: Option<&Fault>,
    waiting: Option<Fault>,
) -> Vec<Condition> {
    let invalid = fault.or(unresolved).map(|fault| Fault::new("Invalid", fault.message.clone()));
    let unprogrammed = invalid.or(waiting);
    let conflicted = match lost {
        Some(fault) => {
            Condition { message: fault.message.clone(), ..Condition::met("Conflicted", fault.reason) }
        }
        None => Condition { is_true: false, ..Condition::met("Conflicted", "NoConflicts") },
    };
    vec![
        Condition::unless(ACCEPTED, ACCEPTED, fault),
        conflicted,
        Condition::unless(RESOLVED_REFS, RESOLVED_REFS, unresolved),
        Condition::unless(PROGRAMMED, PROGRAMMED, unprogrammed.as_ref()),
    ]
}

fn of_route(
    object: &ObjectRef,
    generation: Option<i64>,
    parents: &[Parent<'_>],
    conditions: impl Fn(&Parent<'_>) -> Vec<Condition>,
) -> ObjectStatus {
    let ours = parents.iter().filter(|parent| parent.is_ours).map(|parent| ParentStatus {
        namespace: parent.reference.namespace.clone(),
        name: parent.reference.name.clone(),
        section: parent.reference.section.clone(),
        port: parent.reference.port,
        conditions: conditions(parent),
    });
    let object = object.clone();
    ObjectStatus { object, generation, content: Content::Route(ours.collect()) }
}

/// The conditions of a route for a parent. `fault` is an error of the route itself.
fn of_parent(
    parent: &Parent<'_>,
    intents: &Intents<'_>,
    lost: &BTreeMap<usize, Fault>,
    fault: Option<&Fault>,
    unresolved: Option<&Fault>,
) -> Vec<Condition> {
    let is_served =
        |listener: usize| intents.listeners[listener].sockets.is_ok() && !lost.contains_key(&listener);
    let unaccepted = match &parent.accepted {
        Err(refused) => Some(Fault::new(refused.reason, refused.problem.message.clone())),
        Ok(listeners) if listeners.iter().any(|(listener, _)| is_served(*listener)) => None,
        Ok(listeners)
            if let Some(fault) =
                listeners.iter().find_map(|(listener, _)| waits(&intents.listeners[*listener])) =>
        {
            Some(fault)
        }
        Ok(listeners) => {
            let first = listeners.first().map(|(listener, _)| intents.listeners[*listener].in_words());
            let message = match first {
                Some(listener) => format!("{listener} is not served"),
                None => "the Gateway has no valid listener".to_owned(),
            };
            Some(Fault::new("NoMatchingParent", message))
        }
    };
    vec![
        Condition::unless(ACCEPTED, ACCEPTED, unaccepted.as_ref().or(fault)),
        Condition::unless(RESOLVED_REFS, RESOLVED_REFS, unresolved),
    ]
}
