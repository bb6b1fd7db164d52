//! Gateways and their routes below HTTP.
//!
//! | module | content |
//! |---|---|
//! | [`class`] | the Gateways that are ours |
//! | [`listener`] | the listeners that are served, and their sockets |
//! | [`attach`] | the routes of each listener |
//! | [`backend`] | the backends of a route |

use std::collections::{BTreeMap, HashSet};

use sluicegate_model::{HostPattern, Layer4, Layer4Route, Listener, TlsRoute};

use crate::intent::{At, Claim, Intents, Reference};
use crate::object::gateway::{self, ListenerProtocol};
use crate::object::route::Route;
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::TranslateOptions;
use attach::Attachment;
use listener::{Site, Sites, Socket};

mod attach;
mod backend;
mod class;
mod listener;

/// The result of all Gateways and their routes.
#[derive(Default)]
struct Built<'a> {
    listeners: Vec<Listener>,
    /// The TLS passthrough of HTTPS listeners.
    claims: Vec<Claim<'a>>,
    /// The backends of routes that are in service at a listener.
    references: Vec<Reference<'a>>,
    problems: Vec<Problem>,
    /// The Gateways of other classes, each with a note of the option that would serve it.
    foreign: Vec<Problem>,
}

/// A Gateway that is ours.
#[derive(Clone, Copy)]
struct OurGateway<'a> {
    at: At<'a>,
    gateway: &'a gateway::Gateway,
}

/// A route, and its destination as soon as the route is in service.
struct Candidate<'a> {
    at: At<'a>,
    route: &'a Route,
    leads_to: Option<Layer4Route>,
}

/// Adds the intents of all Gateways that are ours. In a conflict the older object has precedence, for Gateways and
/// for routes.
pub(super) fn ask<'a>(store: &'a Store, options: &TranslateOptions, intents: &mut Intents<'a>) {
    let mut built = Built::default();
    let classes = class::Classes::new(store, options);
    let mut gateways: Vec<OurGateway<'a>> = Vec::new();
    for (object, gateway, origin) in store.all::<gateway::Gateway>() {
        let at = At { object, origin };
        match classes.refusal(gateway) {
            None => gateways.push(OurGateway { at, gateway }),
            Some(message) => built.foreign.push(at.note("spec.gatewayClassName", message)),
        }
    }
    built.foreign.sort_unstable_by(|one, other| one.object.cmp(&other.object));
    gateways.sort_by_cached_key(|gateway| gateway.at.age(gateway.gateway.created));
    let sites = Sites::new(&gateways, options, &mut built.problems);
    let routes = store.all::<Route>();
    let mut candidates: Vec<Candidate<'a>> = routes
        .map(|(object, route, origin)| Candidate { at: At { object, origin }, route, leads_to: None })
        .collect();
    candidates.sort_by_cached_key(|candidate| candidate.at.age(candidate.route.created));
    let attached = attach::all(store, &sites, &candidates, &mut built.problems);
    for (socket, listeners) in &sites.sockets {
        built.add_socket(store, *socket, listeners, &sites, &attached, &mut candidates);
    }
    // One listener may lose the same conflict at several addresses.
    let mut seen = HashSet::new();
    built.problems.retain(|problem| seen.insert(problem.clone()));
    intents.listeners = built.listeners;
    intents.claims = built.claims;
    intents.references = built.references;
    intents.problems.extend(built.problems);
    intents.foreign.extend(built.foreign);
}

impl<'a> Built<'a> {
    /// Adds the socket of these listeners.
    fn add_socket(
        &mut self,
        store: &'a Store,
        socket: Socket,
        listeners: &[usize],
        sites: &Sites<'a>,
        attached: &[Vec<Attachment>],
        candidates: &mut [Candidate<'a>],
    ) {
        let Some(&first) = listeners.first() else { return };
        let site = &sites.all[first];
        let serves = match site.listener.protocol {
            ListenerProtocol::Tcp => Layer4::Tcp(self.only_route(store, site, &attached[first], candidates)),
            ListenerProtocol::Udp => Layer4::Udp(self.only_route(store, site, &attached[first], candidates)),
            _ => {
                let routes = self.tls_routes(store, listeners, sites, attached, candidates);
                match socket {
                    Socket::Https(_) => {
                        self.claims.extend(routes.into_iter().map(|(host, attachment, leads_to)| {
                            let candidate = &candidates[attachment.route];
                            let (at, created) = (candidate.at, candidate.route.created);
                            Claim { host, leads_to, at, created, field: attachment.place() }
                        }));
                        return;
                    }
                    Socket::Own { .. } => Layer4::Tls(
                        routes.into_iter().map(|(host, _, route)| TlsRoute { host, route }).collect(),
                    ),
                }
            }
        };
        if let Socket::Own { address, .. } = socket {
            self.listeners.push(Listener { id: site.id(), address, serves });
        }
    }

    /// The single route of a listener without hostnames: the oldest route.
    fn only_route(
        &mut self,
        store: &'a Store,
        site: &Site<'a>,
        attached: &[Attachment],
        candidates: &mut [Candidate<'a>],
    ) -> Option<Layer4Route> {
        let first = attached.first()?;
        for loser in attached.iter().filter(|attachment| attachment.route != first.route) {
            let winner = candidates[first.route].at.object;
            let message = format!(
                "is ignored at {}: {winner} is attached there (older, or first by name)",
                site.in_words()
            );
            self.problems.push(candidates[loser.route].at.warning(&loser.place().field(), message));
        }
        Some(self.leads_to(store, &mut candidates[first.route]))
    }

    /// The routes of the listeners for TLS that share a socket, by name.
    fn tls_routes<'s>(
        &mut self,
        store: &'a Store,
        listeners: &[usize],
        sites: &Sites<'a>,
        attached: &'s [Vec<Attachment>],
        candidates: &mut [Candidate<'a>],
    ) -> Vec<(HostPattern, &'s Attachment, Layer4Route)> {
        let mut taken: BTreeMap<HostPattern, &Attachment> = BTreeMap::new();
        for &index in listeners {
            let hostname = &sites.all[index].listener.hostname;
            // A name belongs to the listener with the most specific matching hostname, whether a route of that listener
            // takes the name or not.
            let others = listeners.iter().map(|other| &sites.all[*other]);
            let closer: Vec<&Site<'a>> = others
                .filter(|other| {
                    other.listener.hostname != *hostname && attach::covers(hostname, &other.listener.hostname)
                })
                .collect();
            for attachment in &attached[index] {
                let at = candidates[attachment.route].at;
                for host in &attachment.hosts {
                    if let Some(owner) =
                        closer.iter().find(|other| attach::covers(&other.listener.hostname, host))
                    {
                        let message = format!(
                            "{host} is ignored: it belongs to {}, to which this entry does not attach the route",
                            owner.in_words()
                        );
                        self.problems.push(at.warning(&attachment.place().field(), message));
                        continue;
                    }
                    match taken.get(host) {
                        None => {
                            taken.insert(host.clone(), attachment);
                        }
                        Some(winner) if winner.route == attachment.route => {}
                        Some(winner) => {
                            let message = format!(
                                "{host} is ignored at {}: {} has it already (older, or first by name)",
                                sites.all[index].in_words(),
                                candidates[winner.route].at.object
                            );
                            self.problems.push(at.warning(&attachment.place().field(), message));
                        }
                    }
                }
            }
        }
        let mut routes = Vec::with_capacity(taken.len());
        for (host, attachment) in taken {
            let leads_to = self.leads_to(store, &mut candidates[attachment.route]);
            routes.push((host, attachment, leads_to));
        }
        routes
    }

    /// The destination of a route, computed once.
    fn leads_to(&mut self, store: &'a Store, candidate: &mut Candidate<'a>) -> Layer4Route {
        if let Some(known) = &candidate.leads_to {
            return known.clone();
        }
        let route = backend::build(store, candidate, &mut self.references, &mut self.problems);
        candidate.leads_to.insert(route).clone()
    }
}
