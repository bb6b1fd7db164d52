//! Gateways and their routes.
//!
//! | module | content |
//! |---|---|
//! | [`class`] | the choice of the Gateways that the gateway serves |
//! | [`parameters`] | the parameters of Gateways and classes |
//! | [`listener_set`] | the ListenerSets of a Gateway |
//! | [`listener`] | the listeners of a Gateway or a ListenerSet, and their sockets |
//! | [`attach`] | the listeners that accept a route |
//! | [`backend`] | the backends of a route below HTTP |
//! | [`http_route`] | HTTPRoutes and GRPCRoutes |
//! | [`service_ref`] | the Services that routes and listeners name for HTTP |
//! | [`service`] | the Services of Gateways, and the ports of the data plane that they lead to |

use std::collections::HashMap;
use std::ops::Range;

use crate::backend_tls::BackendTls;
use crate::backend_traffic::BackendTraffic;
use crate::intent::listener::{GatewayIntent, Layer4, ListenerSetIntent};
use crate::intent::{At, Intents};
use crate::object::ObjectRef;
use crate::object::gateway::{Gateway, Listener};
use crate::object::http_route::HttpRoute;
use crate::object::route::Route;
use crate::store::Store;
use crate::translate::TranslateOptions;
use crate::x_backend::XBackends;
use listener::Shared;

mod attach;
mod backend;
mod class;
mod http_route;
mod listener;
mod listener_set;
pub(crate) mod parameters;
pub(crate) mod service;
mod service_ref;

pub(crate) use class::is_ours;
pub(crate) use listener::used_port;

/// The listeners of our Gateways and of their ListenerSets, in the order of [`Intents::listeners`].
#[derive(Default)]
struct Listeners<'a> {
    all: Vec<&'a Listener>,
    /// The listeners of each Gateway and of each ListenerSet. A set that its Gateway does not allow has none.
    of_parent: HashMap<&'a ObjectRef, Range<usize>>,
}

impl<'a> Listeners<'a> {
    /// Adds the listeners of a Gateway or a ListenerSet, and returns their places.
    fn add(&mut self, parent: &'a ObjectRef, listeners: &'a [Listener]) -> Range<usize> {
        let first = self.all.len();
        self.all.extend(listeners);
        let range = first..self.all.len();
        self.of_parent.insert(parent, range.clone());
        range
    }
}

/// Adds the intents of all served Gateways, and of their routes; the oldest objects come first.
pub(super) fn ask<'a>(store: &'a Store, options: &TranslateOptions, intents: &mut Intents<'a>) {
    let classes = class::Classes::new(store, options);
    let mut gateways: Vec<(At<'a>, &'a Gateway)> = Vec::new();
    let mut foreign = Vec::new();
    for (object, gateway, origin) in store.all::<Gateway>() {
        let at = At { object, origin };
        match classes.refusal(gateway) {
            None => gateways.push((at, gateway)),
            Some(message) => foreign.push(at.note("spec.gatewayClassName", message)),
        }
    }
    foreign.sort_unstable_by(|one, other| one.object.cmp(&other.object));
    intents.foreign.extend(foreign);
    gateways.sort_by_cached_key(|(at, gateway)| at.age(gateway.created));
    intents.backend_tls = BackendTls::new(store);
    let mut listeners = Listeners::default();
    let mut shared = Vec::with_capacity(gateways.len());
    for (at, gateway) in gateways {
        let problems = &mut intents.problems;
        let parameters = parameters::of_gateway(store, options, gateway);
        if let (Err(fault), None | Some(Ok(_))) = (&parameters, &gateway.parameters) {
            let message = format!("{}; an existing Service of the Gateway stays as it is", fault.message);
            problems.push(at.warning("", message));
        }
        let number = intents.gateways.len();
        let (of_gateway, unresolved) = Shared::new(store, at, number, gateway, options, problems);
        let range = listeners.add(at.object, &gateway.listeners);
        let tls = &intents.backend_tls;
        let added = listener::intents(store, tls, at, &gateway.listeners, &of_gateway, options, problems);
        intents.listeners.extend(added);
        let parameters = parameters.map(drop);
        let placement = of_gateway.placement.clone();
        let intent = GatewayIntent { at, gateway, listeners: range, parameters, placement, unresolved };
        intents.gateways.push(intent);
        shared.push(of_gateway);
    }
    let gateways = intents.gateways.iter().map(|intent| (intent.at.object, intent.gateway));
    let sets = listener_set::sets(store, gateways, &mut intents.problems);
    for listener_set::Allowed { at, set, gateway, refusal } in sets {
        let own: &[Listener] = if refusal.is_none() { &set.listeners } else { &[] };
        let range = listeners.add(at.object, own);
        let problems = &mut intents.problems;
        let (tls, shared) = (&intents.backend_tls, &shared[gateway]);
        let added = listener::intents(store, tls, at, own, shared, options, problems);
        intents.listeners.extend(added);
        let listeners = refusal.map_or(Ok(range), Err);
        intents.listener_sets.push(ListenerSetIntent { at, set, gateway, listeners });
    }
    intents.x_backends = XBackends::new(store);
    let routes = store.all::<Route>().map(|(object, route, origin)| (At { object, origin }, route));
    let mut routes: Vec<_> = routes.collect();
    routes.sort_by_cached_key(|(at, route)| at.age(route.created));
    for (at, route) in routes {
        let (hostnames, parents) = (route.hostnames.as_deref(), &route.parents);
        let parents = attach::parents(store, &listeners, &intents.listeners, at, hostnames, parents);
        intents.layer4.push(Layer4 {
            at,
            created: route.created,
            generation: route.generation,
            hostnames: route.hostnames.as_deref().unwrap_or_default(),
            parents,
            backends: backend::build(store, (&intents.backend_tls, &intents.x_backends), at, route),
        });
    }
    let routes = store.all::<HttpRoute>().map(|(object, route, origin)| (At { object, origin }, route));
    let mut routes: Vec<_> = routes.collect();
    routes.sort_by_cached_key(|(at, route)| at.age(route.created));
    intents.backend_traffic = BackendTraffic::new(store);
    for (at, route) in routes {
        let (hostnames, parents) = (route.hostnames.as_deref(), &route.parents);
        let parents = attach::parents(store, &listeners, &intents.listeners, at, hostnames, parents);
        let known = (&intents.backend_tls, &intents.x_backends, &intents.backend_traffic);
        intents.http_routes.push(http_route::intent(store, known, at, route, parents));
    }
}
