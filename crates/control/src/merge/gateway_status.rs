//! The status of GatewayClasses, Gateways, ListenerSets and routes, once all conflicts are decided.

use std::collections::BTreeMap;
use std::ops::Range;

use sluicegate_model::ClientAuthMode;

use super::listener::Merged;
use crate::address::StatusAddresses;
use crate::frontend::gateway::is_ours;
use crate::frontend::gateway::parameters;
use crate::frontend::gateway::service::{self, GatewayAddresses};
use crate::intent::Intents;
use crate::intent::listener::{Backends, GatewayIntent, Listener, ListenerSetIntent, Parent};
use crate::object::gateway::{GatewayClass, RejectedListener};
use crate::object::http_route::HttpRoute;
use crate::object::route::Route;
use crate::object::{Kind, ObjectRef, gateway};
use crate::status::{
    ACCEPTED, ADDRESS_NOT_USABLE, Condition, Content, Fault, GatewayStatus, ListenerSetStatus,
    ListenerStatus, ObjectStatus, PARENT_NOT_PROGRAMMED, PENDING, PROGRAMMED, ParentStatus,
};
use crate::store::Store;
use crate::translate::TranslateOptions;

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
            content: Content::GatewayClass { conditions, lacking: lacking(store, options) },
        });
    }
    let attached = attached_routes(intents, merged);
    let mut gateways: Vec<GatewayStatus> = Vec::with_capacity(intents.gateways.len());
    gateways.extend(intents.gateways.iter().map(|gateway| {
        let behind = options.gateway_services.as_ref().zip(gateway.placement.as_ref());
        let addresses = StatusAddresses {
            own: addresses(store, options, gateway),
            cluster_ip: behind.and_then(|(services, placement)| {
                service::cluster_ip(store, services, placement, gateway.at.object)
            }),
            requests: gateway.gateway.requests.clone(),
        };
        let unusable = unusable_address(store, options, gateway);
        of_gateway(gateway, intents, lost, &attached, (addresses, unusable))
    }));
    let mut sets = Vec::with_capacity(intents.listener_sets.len());
    for set in &intents.listener_sets {
        let gateway = &mut gateways[set.gateway];
        let status = of_set(set, intents, lost, &attached, gateway);
        gateway.attached_sets += usize::from(status.accepted.is_true);
        sets.push(ObjectStatus {
            object: set.at.object.clone(),
            generation: set.set.generation,
            content: Content::ListenerSet(status),
        });
    }
    statuses.extend(intents.gateways.iter().zip(gateways).map(|(intent, status)| ObjectStatus {
        object: intent.at.object.clone(),
        generation: intent.gateway.generation,
        content: Content::Gateway(status),
    }));
    statuses.extend(sets);
    let layer4 = intents.layer4.iter().map(|route| {
        let fallback = store.not_in_service::<Route>(route.at.object);
        let generation = fallback.as_ref().map_or(route.generation, |(newest, _)| newest.generation);
        let conditions = |parent: &Parent<'_>| {
            let unresolved = unresolved(&route.backends, parent, intents);
            let mut conditions = of_parent(parent, intents, lost, None, unresolved);
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

/// The features that need a kind which the cluster does not have, or options that are not set.
fn lacking(store: &Store, options: &TranslateOptions) -> Vec<&'static str> {
    let bundles = store.lacks(Kind::ClusterTrustBundle).then(|| Kind::ClusterTrustBundle.as_str());
    let cluster_ips = options.gateway_services.is_none().then_some("GatewayAddressRoutabilityCluster");
    let infrastructure = options.own_data_planes.is_none().then_some("GatewayInfrastructure");
    bundles.into_iter().chain(cluster_ips).chain(infrastructure).collect()
}

/// The first backend of a route below HTTP that cannot be used at the listeners of a parent.
fn unresolved<'b>(
    backends: &'b Backends<'_>,
    parent: &Parent<'_>,
    intents: &Intents<'_>,
) -> Option<&'b Fault> {
    let accepted = parent.accepted.iter().flatten();
    let mut protocols = accepted.map(|(listener, _)| intents.listeners[*listener].protocol);
    let of_listeners = protocols.find_map(|protocol| backends.at(protocol).unresolved.as_ref());
    of_listeners.or(backends.plain.unresolved.as_ref())
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
    (addresses, unusable): (StatusAddresses, Option<Fault>),
) -> GatewayStatus {
    let gateway = intent.gateway;
    let Summary { listeners, first_fault, is_any_accepted, waiting, .. } = of_listeners(
        intent.listeners.clone(),
        &gateway.listeners,
        &gateway.rejected,
        intents,
        lost,
        attached,
    );
    let fault = intent.parameters.as_ref().err().or(gateway.fault.as_ref());
    let accepted = match fault {
        Some(fault) => Condition::unless(ACCEPTED, ACCEPTED, Some(fault)),
        None => accepted(is_any_accepted, first_fault.as_ref()),
    };
    let mut validations = gateway.frontend.validations();
    // Listeners report their own references.
    let refers = gateway.client_certificate.is_some();
    let resolved =
        refers.then(|| Condition::unless(RESOLVED_REFS, RESOLVED_REFS, intent.unresolved.as_ref()));
    let invalid = (!accepted.is_true).then(|| Fault::new("Invalid", accepted.message.clone()));
    let unprogrammed = invalid.or(unusable).or(waiting);
    let is_insecure = validations.any(|validation| validation.mode != ClientAuthMode::Required);
    GatewayStatus { accepted, resolved, is_insecure, unprogrammed, addresses, listeners, attached_sets: 0 }
}

fn of_set(
    intent: &ListenerSetIntent<'_>,
    intents: &Intents<'_>,
    lost: &BTreeMap<usize, Fault>,
    attached: &[usize],
    gateway: &GatewayStatus,
) -> ListenerSetStatus {
    let addresses = gateway.addresses.clone();
    let of = intents.gateways[intent.gateway].at.object.clone();
    let places = match &intent.listeners {
        Ok(places) => places.clone(),
        Err(fault) => {
            let accepted = Condition::unless(ACCEPTED, ACCEPTED, Some(fault));
            let (unprogrammed, listeners) = (Some(fault.clone()), Vec::new());
            return ListenerSetStatus { gateway: of, accepted, unprogrammed, addresses, listeners };
        }
    };
    let set = intent.set;
    let Summary { listeners, first_fault, first_unresolved, is_any_served, waiting, .. } =
        of_listeners(places, &set.listeners, &set.rejected, intents, lost, attached);
    let of_parent = |reason| {
        let message = format!("{} is not accepted", intents.gateways[intent.gateway].at.object);
        Fault::new(reason, message)
    };
    let accepted = match gateway.accepted.is_true {
        true => accepted(is_any_served, first_fault.or(first_unresolved).as_ref()),
        false => Condition::unless(ACCEPTED, ACCEPTED, Some(&of_parent("ParentNotAccepted"))),
    };
    let unprogrammed = if !gateway.accepted.is_true {
        Some(of_parent(PARENT_NOT_PROGRAMMED))
    } else if !accepted.is_true {
        Some(Fault::new(accepted.reason, accepted.message.clone()))
    } else {
        let of_gateway = gateway.unprogrammed.as_ref();
        of_gateway.map(|fault| Fault::new(PARENT_NOT_PROGRAMMED, fault.message.clone())).or(waiting)
    };
    ListenerSetStatus { gateway: of, accepted, unprogrammed, addresses, listeners }
}

/// The condition `Accepted` of a Gateway or a ListenerSet by its listeners.
fn accepted(is_any_accepted: bool, first_fault: Option<&Fault>) -> Condition {
    match first_fault {
        None => Condition::met(ACCEPTED, ACCEPTED),
        Some(fault) => Condition {
            name: ACCEPTED,
            is_true: is_any_accepted,
            reason: "ListenersNotValid",
            message: fault.message.clone(),
        },
    }
}

/// The status of the listeners of a Gateway or a ListenerSet.
struct Summary {
    /// In the order in which the object lists them.
    listeners: Vec<ListenerStatus>,
    /// The reason why the first listener that is not accepted is not.
    first_fault: Option<Fault>,
    /// The first reference that leads to nothing usable.
    first_unresolved: Option<Fault>,
    is_any_accepted: bool,
    /// Whether a client can use a listener: it is accepted, and has a certificate if it needs one.
    is_any_served: bool,
    /// The reason why a listener is not served yet.
    waiting: Option<Fault>,
}

/// The status of these listeners. `places` are their places in [`Intents`].
fn of_listeners(
    places: Range<usize>,
    listeners: &[gateway::Listener],
    rejected: &[RejectedListener],
    intents: &Intents<'_>,
    lost: &BTreeMap<usize, Fault>,
    attached: &[usize],
) -> Summary {
    let mut statuses: Vec<(usize, ListenerStatus)> = Vec::with_capacity(listeners.len() + rejected.len());
    let (mut first_fault, mut first_unresolved, mut waiting) = (None, None, None);
    let (mut is_any_accepted, mut is_any_served) = (false, false);
    for (index, listener) in places.zip(listeners) {
        let intent = &intents.listeners[index];
        let fault = listener_fault(intent, lost.get(&index));
        is_any_accepted |= fault.is_none();
        let lacks_certificate = listener.protocol.terminates_tls() && intent.certificates.is_empty();
        let is_closed = intent.filters.security.as_ref().is_some_and(|filters| filters.refuses.is_some());
        is_any_served |= fault.is_none() && !lacks_certificate && !is_closed;
        let status = of_listener(intent, listener, fault.as_ref(), lost.get(&index));
        first_fault = first_fault.or(fault);
        first_unresolved = first_unresolved.or_else(|| intent.unresolved.clone());
        waiting = waiting.or_else(|| waits(intent));
        let attached_routes = attached[index];
        statuses.push((listener.index, ListenerStatus { attached_routes, ..status }));
    }
    for RejectedListener { index, name, fault } in rejected {
        let conditions = listener_conditions(Some(fault), None, None, None);
        let status = ListenerStatus { name: name.clone(), kinds: Vec::new(), attached_routes: 0, conditions };
        statuses.push((*index, status));
        first_fault = first_fault.or_else(|| Some(fault.clone()));
    }
    statuses.sort_by_key(|(index, _)| *index);
    let listeners = statuses.into_iter().map(|(_, status)| status).collect();
    Summary { listeners, first_fault, first_unresolved, is_any_accepted, is_any_served, waiting }
}

fn unusable_address(store: &Store, options: &TranslateOptions, intent: &GatewayIntent<'_>) -> Option<Fault> {
    let services = options.gateway_services.as_ref()?;
    let (placement, object) = (intent.placement.as_ref()?, intent.at.object);
    let message = service::unusable_address(store, options, services, placement, object, intent.gateway)?;
    Some(Fault::new(ADDRESS_NOT_USABLE, format!("spec.addresses: {message}")))
}

/// The addresses of a Gateway of its own; `None` for the addresses of the data planes.
fn addresses(store: &Store, options: &TranslateOptions, intent: &GatewayIntent<'_>) -> Option<Vec<Box<str>>> {
    if let Some((services, placement)) = options.gateway_services.as_ref().zip(intent.placement.as_ref()) {
        return match service::addresses(store, services, placement, intent.at.object) {
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
    Some(Fault::new(PENDING, problem.message.clone()))
}

/// The reason why a listener is not served although it is valid: its Gateway has no address.
fn has_no_address(intent: &Listener<'_>) -> Option<Fault> {
    let is_closed = intent.sockets.as_ref().is_ok_and(|sockets| sockets.is_empty());
    is_closed
        .then(|| Fault::new("Invalid", "the Gateway has none of the addresses that it requests".to_owned()))
}

/// The reason why a listener is not accepted.
fn listener_fault(intent: &Listener<'_>, lost: Option<&Fault>) -> Option<Fault> {
    match &intent.sockets {
        Err(_) if waits(intent).is_some() => None,
        Err(problem) => Some(Fault::new("PortUnavailable", problem.message.clone())),
        Ok(_) => lost.or(intent.closed.as_ref()).cloned(),
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
        conditions: listener_conditions(
            fault,
            lost,
            intent.unresolved.as_ref(),
            waits(intent).or_else(|| has_no_address(intent)),
        ),
    }
}

/// The conditions of a listener that is not accepted for `fault`, has lost a conflict, names nothing usable, or waits.
fn listener_conditions(
    fault: Option<&Fault>,
    lost: Option<&Fault>,
    unresolved: Option<&Fault>,
    waiting: Option<Fault>,
) -> Vec<Condition> {
    let reason = lost.map_or("Invalid", |fault| fault.reason);
    let invalid = fault.or(unresolved).map(|fault| Fault::new(reason, fault.message.clone()));
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
    let ours = parents.iter().filter(|parent| parent.is_ours).filter_map(|parent| {
        Some(ParentStatus {
            parent: parent.reference.object().ok()?,
            section: parent.reference.section.clone(),
            port: parent.reference.port,
            conditions: conditions(parent),
        })
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
                None if parent.reference.kind == Ok(Kind::ListenerSet) => {
                    "the ListenerSet has no valid listener, or its Gateway does not allow it".to_owned()
                }
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
