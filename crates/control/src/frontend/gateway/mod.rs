//! Gateways and their routes.
//!
//! | module | content |
//! |---|---|
//! | [`class`] | the choice of the Gateways that the gateway serves |
//! | [`listener`] | the listeners of a Gateway, and their sockets |
//! | [`attach`] | the listeners that accept a route |
//! | [`backend`] | the backends of a route below HTTP |
//! | [`http_route`] | HTTPRoutes and GRPCRoutes |

use std::collections::HashMap;
use std::ops::Range;

use crate::intent::listener::Layer4;
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
    let mut gateways: Vec<(At<'a>, &Gateway)> = Vec::new();
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
        intents.listeners.extend(listener::intents(store, at, gateway, options, &mut intents.problems));
        listeners.of_gateway.insert(at.object, first..listeners.all.len());
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
            hostnames: route.hostnames.as_deref().unwrap_or_default(),
            parents,
            backends: backend::build(store, at, route),
        });
    }
    let routes = store.all::<HttpRoute>().map(|(object, route, origin)| (At { object, origin }, route));
    let mut routes: Vec<_> = routes.collect();
    routes.sort_by_cached_key(|(at, route)| at.age(route.created));
    for (at, route) in routes {
        let (hostnames, parents) = (route.hostnames.as_deref(), &route.parents);
        let parents = attach::parents(store, &listeners, &intents.listeners, at, hostnames, parents);
        intents.http_routes.push(http_route::intent(store, at, route, parents));
    }
}
