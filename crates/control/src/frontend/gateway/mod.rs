//! Gateways and their routes.
//!
//! | module | content |
//! |---|---|
//! | [`class`] | the choice of the Gateways that the gateway serves |
//! | [`listener`] | the listeners of a Gateway, and their sockets |
//! | [`parameters`] | the parameters of Gateways and classes |
//! | [`attach`] | the listeners that accept a route |
//! | [`backend`] | the backends of a route below HTTP |
//! | [`http_route`] | HTTPRoutes and GRPCRoutes |
//! | [`service`] | the Services of Gateways, and the ports of the data plane that they lead to |

use std::collections::HashMap;
use std::ops::Range;

use crate::backend_tls::BackendTls;
use crate::intent::listener::{GatewayIntent, Layer4};
use crate::intent::{At, Intents};
use crate::object::ObjectRef;
use crate::object::gateway::{Gateway, Listener};
use crate::object::http_route::HttpRoute;
use crate::object::route::Route;
use crate::store::Store;
use crate::translate::TranslateOptions;

mod attach;
mod backend;
mod class;
mod http_route;
mod listener;
pub(crate) mod parameters;
pub(crate) mod service;

pub(crate) use class::is_ours;

/// The listeners of our Gateways; the listeners of the oldest Gateway come first. Their places are those in
/// [`Intents::listeners`].
#[derive(Default)]
struct Listeners<'a> {
    all: Vec<&'a Listener>,
    of_gateway: HashMap<&'a ObjectRef, Range<usize>>,
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
    let mut listeners = Listeners::default();
    for (at, gateway) in gateways {
        let first = listeners.all.len();
        listeners.all.extend(&gateway.listeners);
        let problems = &mut intents.problems;
        let parameters = parameters::of_gateway(store, options, gateway);
        if let (Err(fault), None | Some(Ok(_))) = (&parameters, &gateway.parameters) {
            let message = format!("{}; an existing Service of the Gateway stays as it is", fault.message);
            problems.push(at.warning("", message));
        }
        let (certificate, unresolved) = listener::client_certificate(store, at, gateway, problems);
        let certificate = certificate.as_ref();
        intents.listeners.extend(listener::intents(store, at, gateway, options, certificate, problems));
        let range = first..listeners.all.len();
        intents.gateways.push(GatewayIntent {
            at,
            gateway,
            listeners: range.clone(),
            parameters: parameters.map(drop),
            unresolved,
        });
        listeners.of_gateway.insert(at.object, range);
    }
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
            backends: backend::build(store, at, route),
        });
    }
    intents.backend_tls = BackendTls::new(store);
    let routes = store.all::<HttpRoute>().map(|(object, route, origin)| (At { object, origin }, route));
    let mut routes: Vec<_> = routes.collect();
    routes.sort_by_cached_key(|(at, route)| at.age(route.created));
    for (at, route) in routes {
        let (hostnames, parents) = (route.hostnames.as_deref(), &route.parents);
        let parents = attach::parents(store, &listeners, &intents.listeners, at, hostnames, parents);
        intents.http_routes.push(http_route::intent(store, &intents.backend_tls, at, route, parents));
    }
}
