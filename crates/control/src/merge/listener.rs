//! The owner of each socket, and the routes that are in service there.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use sluicegate_model::policy::Security;
use sluicegate_model::{ClientAuth, EntryPoint, HostPattern, Layer4Route, Serves, TlsHost, TlsRoute};

use crate::backend_tls;
use crate::intent::http_route::HttpRoute;
use crate::intent::listener::{Layer4, Listener, Parent, Socket, uses_backend_tls};
use crate::intent::{At, Claim, Place, Reference};
use crate::object::gateway::ListenerProtocol;
use crate::object::host::covers;
use crate::object::route::{Hostname, claim};
use crate::object::{Kind, ObjectRef};
use crate::problem::{Problem, Severity};
use crate::status::Fault;

/// The listeners of Gateways, with the routes that are in service.
#[derive(Default)]
pub(crate) struct Merged<'a> {
    pub(crate) listeners: Vec<sluicegate_model::Listener>,
    /// The hosts of listeners for HTTP.
    pub(crate) hosts: Vec<HttpHost>,
    /// The names of listeners that terminate TLS.
    pub(crate) tls_hosts: Vec<Arc<TlsHost>>,
    /// The TLS passthrough of listeners that share an entry point with listeners that terminate TLS, in the order of their
    /// entry points and patterns.
    pub(crate) passthrough: Vec<TlsRoute>,
    /// The TLS passthrough of the HTTPS listeners that flags set.
    pub(crate) claims: Vec<Claim<'a>>,
    /// The backends of routes that are in service.
    pub(crate) references: Vec<Reference<'a>>,
    pub(crate) problems: Vec<Problem>,
    /// The listeners that are not served at one of their sockets, by their places in
    /// [`Intents`](crate::intent::Intents), and the reason.
    pub(crate) lost: BTreeMap<usize, Fault>,
    /// The HTTPRoutes and GRPCRoutes that are not attached to a listener, because an older route of the other kind is: by
    /// the places of the route and of the listener.
    pub(crate) rivals: HashMap<(usize, usize), Fault>,
}

/// A host of listeners for HTTP.
pub(crate) struct HttpHost {
    pub(crate) entry_point: EntryPoint,
    pub(crate) host: HostPattern,
    /// The routes of the host, the oldest first.
    pub(crate) routes: Vec<HostRoute>,
    /// Whether a less specific host of the same listener takes requests that meet no match.
    pub(crate) continues: bool,
    /// The clients whose requests the host serves, if the listener validates their certificates.
    pub(crate) client_auth: Option<Arc<ClientAuth>>,
    /// The filters of the listener.
    pub(crate) filters: Option<Arc<Security>>,
}

/// An HTTPRoute of a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostRoute {
    /// Its place in [`Intents`](crate::intent::Intents).
    pub(crate) route: usize,
    /// The place of the listener in [`Intents`](crate::intent::Intents).
    pub(crate) listener: usize,
    /// The Secret with the client certificate of the Gateway.
    pub(crate) client_certificate: Option<Arc<str>>,
}

/// A route at a listener.
struct Attachment {
    /// Its place among the routes.
    route: usize,
    /// The parent that attaches it.
    parent: Place,
    /// The names of the attachment: names that both the listener and the route have.
    hosts: Vec<HostPattern>,
}

/// A name of a listener for TLS.
struct TlsName {
    host: HostPattern,
    /// The place of the listener.
    listener: usize,
    /// The place of the route.
    route: usize,
    /// The parent that attaches the route.
    parent: Place,
    leads_to: Layer4Route,
}

/// Listeners and routes while they are merged.
struct Merging<'i, 'a> {
    listeners: &'i [Listener<'a>],
    routes: &'i [Layer4<'a>],
    http_routes: &'i [HttpRoute<'a>],
    /// The listeners at each socket, by their places: one listener, or several with different hostnames.
    sockets: BTreeMap<Socket, Vec<usize>>,
    /// The sockets of each port, which may overlap.
    ports: HashMap<u16, Vec<Socket>>,
    /// The listener with a hostname at a socket.
    names: HashMap<(Socket, &'i HostPattern), usize>,
    /// The listener with a hostname at the HTTP ports, or at the HTTPS ports, that flags set.
    flag_names: HashMap<(bool, &'i HostPattern), usize>,
    /// The routes of each listener, the oldest first. An HTTP listener has HTTPRoutes and GRPCRoutes.
    attached: Vec<Vec<Attachment>>,
    /// The kinds of these routes.
    kinds: Vec<Vec<Kind>>,
    /// The routes whose backends are in the result: by their places, whether BackendTLSPolicies apply, and the client certificate of
    /// the Gateway.
    in_service: HashSet<(usize, bool, Option<Arc<str>>)>,
    /// The entry points of Gateways whose hosts are in the result.
    entered: HashSet<Arc<str>>,
    /// The listeners for HTTP whose filters are in the result.
    filtered: HashSet<usize>,
    /// The HTTPRoutes and GRPCRoutes whose backends are in the result, each with the client certificate of a Gateway.
    http_in_service: HashSet<(usize, Option<Arc<str>>)>,
    merged: Merged<'a>,
}

/// Merges the listeners and their routes; the oldest object comes first.
pub(super) fn merge<'a>(
    listeners: &[Listener<'a>],
    routes: &[Layer4<'a>],
    http_routes: &[HttpRoute<'a>],
) -> Merged<'a> {
    let mut merging = Merging {
        listeners,
        routes,
        http_routes,
        sockets: BTreeMap::new(),
        ports: HashMap::new(),
        names: HashMap::new(),
        flag_names: HashMap::new(),
        attached: listeners.iter().map(|_| Vec::new()).collect(),
        kinds: listeners.iter().map(|_| Vec::new()).collect(),
        in_service: HashSet::new(),
        entered: HashSet::new(),
        filtered: HashSet::new(),
        http_in_service: HashSet::new(),
        merged: Merged::default(),
    };
    for index in 0..listeners.len() {
        merging.open(index);
    }
    let served: HashSet<usize> = merging.sockets.values().flatten().copied().collect();
    for (index, Layer4 { at, parents, hostnames, .. }) in routes.iter().enumerate() {
        merging.attach(index, *at, parents, hostnames, &served);
    }
    for (index, HttpRoute { at, parents, hostnames, .. }) in http_routes.iter().enumerate() {
        merging.attach(index, *at, parents, hostnames, &served);
    }
    for (socket, listeners) in std::mem::take(&mut merging.sockets) {
        merging.serve(socket, &listeners);
    }
    let mut merged = merging.merged;
    merged.passthrough.sort_by_cached_key(|route| (route.entry_point.clone(), route.host.clone()));
    // One listener may lose the same conflict at several addresses.
    let mut seen = HashSet::new();
    merged.problems.retain(|problem| seen.insert(problem.clone()));
    merged
}

impl<'i, 'a> Merging<'i, 'a> {
    /// Gives a listener its sockets, unless another listener has them.
    fn open(&mut self, index: usize) {
        let listener = &self.listeners[index];
        let sockets = match &listener.sockets {
            Ok(sockets) => sockets,
            Err(problem) => return self.merged.problems.push(problem.clone()),
        };
        for &socket in sockets {
            if let Some(winner) = self.conflict(listener, socket) {
                let (field, fault) = defeat(listener, winner);
                let is_by_name = field.ends_with("hostname");
                let reason = if is_by_name { "HostnameConflict" } else { "ProtocolConflict" };
                self.merged.lost.entry(index).or_insert_with(|| Fault::new(reason, fault.clone()));
                let message = format!("{fault}; no route of this listener is served at {socket}");
                self.merged.problems.push(listener.at.warning(&field, message));
            } else {
                self.names.entry((socket, listener.hostname)).or_insert(index);
                if let Some(is_https) = socket.of_flags() {
                    self.flag_names.entry((is_https, listener.hostname)).or_insert(index);
                }
                let at_socket = self.sockets.entry(socket).or_default();
                if at_socket.is_empty() {
                    self.ports.entry(socket.port()).or_default().push(socket);
                }
                at_socket.push(index);
            }
        }
    }

    /// The listener that has precedence over another listener at a socket.
    fn conflict(&self, listener: &Listener<'_>, socket: Socket) -> Option<&'i Listener<'a>> {
        // All HTTPS listeners that flags set serve the same hosts, and so do all HTTP listeners. So a host has one validation
        // of client certificates, and one list of filters.
        if let Some(is_https) = socket.of_flags()
            && let Some(&holder) = self.flag_names.get(&(is_https, listener.hostname))
            && (self.listeners[holder].client_auth != listener.client_auth
                || self.listeners[holder].filters.security != listener.filters.security)
        {
            return Some(&self.listeners[holder]);
        }
        let others = self.ports.get(&socket.port())?.iter();
        others.filter(|other| other.overlaps(socket)).find_map(|other| {
            // The listeners of a socket can share it with each other, so that the first one stands for all.
            let first = &self.listeners[*self.sockets.get(other)?.first()?];
            if *other != socket || !can_share(first, listener) {
                return Some(first);
            }
            self.names.get(&(socket, listener.hostname)).map(|holder| &self.listeners[*holder])
        })
    }

    /// Attaches a route to the listeners that accept it and that are served.
    fn attach(
        &mut self,
        route: usize,
        at: At<'_>,
        parents: &[Parent<'_>],
        hostnames: &[Hostname],
        served: &HashSet<usize>,
    ) {
        let mut names = Vec::new();
        for parent in parents {
            let accepted = match &parent.accepted {
                Ok(accepted) => accepted,
                Err(refused) => {
                    self.merged.problems.push(refused.problem.clone());
                    continue;
                }
            };
            let mut is_attached = false;
            for (listener, hosts) in accepted.iter().filter(|(listener, _)| served.contains(listener)) {
                is_attached = true;
                names.extend(hosts.iter().cloned());
                if let Some((rival, host)) = self.rival(*listener, at, hosts) {
                    let message = format!(
                        "is not attached to {}: {rival} (older, or first by name) has the host name {host} there. Use other \
                         host names, or one kind of route",
                        self.listeners[*listener].in_words()
                    );
                    self.merged
                        .rivals
                        .insert((route, *listener), Fault::new("NotAllowedByListeners", message.clone()));
                    self.merged.problems.push(at.warning(&parent.place.field(), message));
                    continue;
                }
                let hosts = hosts.clone();
                let kinds = &mut self.kinds[*listener];
                if !kinds.contains(&at.object.kind) {
                    kinds.push(at.object.kind);
                }
                self.attached[*listener].push(Attachment { route, parent: parent.place, hosts });
            }
            if let Some((first, _)) = accepted.first().filter(|_| !is_attached) {
                let listener = &self.listeners[*first];
                // A listener that only waits is no problem of its routes either.
                let severity = if listener.is_waiting { Severity::Note } else { Severity::Warning };
                let message = format!("{} is not served", listener.in_words());
                self.merged.problems.push(at.problem(severity, &parent.place.field(), message));
            }
        }
        // Names that are outside its attachments.
        for name in hostnames.iter().filter(|_| !names.is_empty()) {
            if !names.iter().any(|host| covers(&name.pattern, host)) {
                let field = format!("spec.hostnames[{}]", name.index);
                let message = format!("{} matches no listener of the route, and is ignored", name.pattern);
                self.merged.problems.push(at.warning(&field, message));
            }
        }
    }

    /// The route of another kind at a listener for HTTP that has one of these host names, and its host name: a listener
    /// accepts an HTTPRoute or a GRPCRoute for a name (Gateway API, `GRPCRouteSpec.hostnames`).
    fn rival(
        &self,
        listener: usize,
        at: At<'_>,
        hosts: &[HostPattern],
    ) -> Option<(&ObjectRef, &HostPattern)> {
        let is_http = self.listeners[listener].protocol.is_http();
        // Most listeners have routes of one kind. A search for each of thousands of routes would take long.
        if !is_http || self.kinds[listener].iter().all(|kind| *kind == at.object.kind) {
            return None;
        }
        let attached = self.attached[listener].iter();
        let attached = attached.map(|other| (self.http_routes[other.route].at.object, &other.hosts));
        let mut others = attached.filter(|(other, _)| other.kind != at.object.kind);
        others.find_map(|(other, names)| {
            let overlaps =
                |name: &&HostPattern| hosts.iter().any(|host| covers(host, name) || covers(name, host));
            Some((other, names.iter().find(overlaps)?))
        })
    }

    /// Adds the socket of these listeners.
    fn serve(&mut self, socket: Socket, listeners: &[usize]) {
        let Some(&first) = listeners.first() else { return };
        let all = self.listeners;
        let of = |index: &usize| all[*index].protocol;
        let (http, others): (Vec<usize>, Vec<usize>) =
            listeners.iter().copied().partition(|index| of(index).is_http());
        let address = match socket {
            Socket::Http(_) => return self.serve_http(&EntryPoint::FlagsHttp, &http, listeners),
            Socket::Https(_) => {
                self.serve_http(&EntryPoint::FlagsHttps, &http, listeners);
                return self.claim(&others, listeners);
            }
            Socket::Own { address, .. } => address,
        };
        let name = || {
            let name = all[first].entry_point.clone();
            name.unwrap_or_else(|| address.to_string().into())
        };
        let serves = match of(&first) {
            ListenerProtocol::Tcp => Serves::Tcp(self.only_route(first)),
            ListenerProtocol::Udp => Serves::Udp(self.only_route(first)),
            ListenerProtocol::Http => Serves::Http(name()),
            _ if listeners.iter().all(|index| of(index) == ListenerProtocol::Tls) => {
                let names = self.tls_names(&others, listeners).into_iter();
                Serves::Tls(names.map(|name| TlsRoute::new(name.host, name.leads_to)).collect())
            }
            _ => Serves::Https(name()),
        };
        let id = all[first].id();
        self.merged.listeners.push(sluicegate_model::Listener {
            id,
            address,
            serves: serves.clone(),
            planes: all[first].planes.clone(),
            proxy_header: all[first].proxy_header,
            client_port: Some(all[first].port)
                .filter(|port| matches!(serves, Serves::Https(_)) && *port != address.port()),
        });
        // The same listeners may have another address too.
        if let Serves::Http(name) | Serves::Https(name) = serves
            && self.entered.insert(name.clone())
        {
            let entry_point = EntryPoint::Gateway(name);
            self.serve_http(&entry_point, &http, listeners);
            self.serve_tls(&entry_point, &others, listeners);
        }
    }

    /// Claims the names of these listeners for TLS passthrough at the HTTPS listeners that flags set. `all` are all
    /// listeners of the socket.
    fn claim(&mut self, listeners: &[usize], all: &[usize]) {
        let claims = self.tls_names(listeners, all).into_iter().map(|name| {
            let Layer4 { at, created, .. } = self.routes[name.route];
            Claim { host: name.host, leads_to: name.leads_to, at, created, field: name.parent }
        });
        let claims: Vec<Claim<'a>> = claims.collect();
        self.merged.claims.extend(claims);
    }

    /// Adds the names of these listeners for TLS, which share an entry point with listeners that terminate TLS. `all` are
    /// all listeners of the entry point.
    fn serve_tls(&mut self, entry_point: &EntryPoint, listeners: &[usize], all: &[usize]) {
        let names = self.tls_names(listeners, all);
        let served: HashSet<&HostPattern> = names.iter().map(|name| &name.host).collect();
        for listener in listeners.iter().map(|index| &self.listeners[*index]) {
            if !served.contains(listener.hostname) {
                self.merged.passthrough.push(nowhere(entry_point, listener, listener.hostname.clone()));
            }
        }
        for TlsName { host, listener, leads_to, .. } in names {
            let listener = &self.listeners[listener];
            if listener.protocol == ListenerProtocol::Tls {
                let entry_point = entry_point.clone();
                self.merged.passthrough.push(TlsRoute { entry_point, ..TlsRoute::new(host, leads_to) });
            } else if listener.certificates.is_empty() {
                self.merged.passthrough.push(nowhere(entry_point, listener, host));
            } else {
                self.merged.tls_hosts.push(Arc::new(TlsHost {
                    entry_point: entry_point.clone(),
                    relay: Some(leads_to),
                    ..TlsHost::new(host, listener.certificates.clone())
                }));
            }
        }
    }

    /// Adds the hosts of these listeners for HTTP, which share an entry point. `all` are all listeners of the entry point.
    fn serve_http(&mut self, entry_point: &EntryPoint, listeners: &[usize], all: &[usize]) {
        let names = Names::new(self.listeners, all);
        let mut hosts: BTreeMap<HostPattern, HttpHost> = BTreeMap::new();
        for &index in listeners {
            let listener = &self.listeners[index];
            let new = |host: &HostPattern| HttpHost {
                entry_point: entry_point.clone(),
                host: host.clone(),
                routes: Vec::new(),
                continues: host != listener.hostname,
                client_auth: listener.client_auth.clone(),
                filters: listener.filters.security.clone(),
            };
            if self.filtered.insert(index) {
                self.merged.references.extend(listener.filters.references.iter().cloned());
            }
            if listener.protocol == ListenerProtocol::Https
                && (!listener.certificates.is_empty() || listener.client_auth.is_some())
            {
                self.merged.tls_hosts.push(Arc::new(TlsHost {
                    client_auth: listener.client_auth.clone(),
                    entry_point: entry_point.clone(),
                    ..TlsHost::new(listener.hostname.clone(), listener.certificates.clone())
                }));
            } else if listener.protocol == ListenerProtocol::Https
                && matches!(entry_point, EntryPoint::Gateway(_))
            {
                self.merged.passthrough.push(nowhere(entry_point, listener, listener.hostname.clone()));
            }
            // Requests for the names of a listener never reach the routes of another listener. Filters decide about every
            // request of the listener.
            if *listener.hostname != HostPattern::Any || listener.filters.security.is_some() {
                hosts.entry(listener.hostname.clone()).or_insert_with(|| new(listener.hostname));
            }
            for attachment in &self.attached[index] {
                let certificate = listener.client_certificate.clone();
                let is_new = self.http_in_service.insert((attachment.route, certificate.clone()));
                let route = &self.http_routes[attachment.route];
                if is_new {
                    let references = route.references.iter().cloned().map(|mut reference| {
                        backend_tls::present(&mut reference.upstream, certificate.as_ref());
                        reference
                    });
                    self.merged.references.extend(references);
                    self.merged.problems.extend(route.problems.iter().cloned());
                }
                for host in &attachment.hosts {
                    if let Some(owner) = names.closer(listener.hostname, host) {
                        let is_http = self.listeners[owner].protocol.is_http();
                        let mut of_owner = self.attached[owner].iter().filter(|_| is_http);
                        if !of_owner.any(|other| other.route == attachment.route) {
                            let message = foreign(host, &self.listeners[owner]);
                            self.merged.problems.push(route.at.warning(&attachment.parent.field(), message));
                        }
                        continue;
                    }
                    let known = hosts.entry(host.clone()).or_insert_with(|| new(host));
                    known.routes.push(HostRoute {
                        route: attachment.route,
                        listener: index,
                        client_certificate: certificate.clone(),
                    });
                }
            }
        }
        self.attach_to_narrower_hosts(&names, listeners, &mut hosts);
        self.merged.hosts.extend(hosts.into_values().map(|mut host| {
            // Routes have the order of their age, whatever the order of the listeners. A route that several parents or listeners
            // attach has the port and the certificate of the first listener.
            host.routes.sort_by_key(|known| known.route);
            host.routes.dedup_by_key(|known| known.route);
            host
        }));
    }

    /// Attaches routes with a priority also to the more specific hosts of their listener: the priority decides before the
    /// hostnames.
    fn attach_to_narrower_hosts(
        &self,
        names: &Names<'_>,
        listeners: &[usize],
        hosts: &mut BTreeMap<HostPattern, HttpHost>,
    ) {
        for &index in listeners {
            let Listener { hostname, client_certificate, .. } = &self.listeners[index];
            let has_priority = |of: &&Attachment| self.http_routes[of.route].priority > 0;
            for attachment in self.attached[index].iter().filter(has_priority) {
                let wide: Vec<&HostPattern> =
                    attachment.hosts.iter().filter(|host| !matches!(host, HostPattern::Exact(_))).collect();
                for (host, known) in hosts.iter_mut().filter(|_| !wide.is_empty()) {
                    let is_narrower = wide.iter().any(|wide| *wide != host && covers(wide, host));
                    if is_narrower && covers(hostname, host) && names.closer(hostname, host).is_none() {
                        known.routes.push(HostRoute {
                            route: attachment.route,
                            listener: index,
                            client_certificate: client_certificate.clone(),
                        });
                    }
                }
            }
        }
    }

    /// The single route of a listener without hostnames: the oldest route.
    fn only_route(&mut self, listener: usize) -> Option<Layer4Route> {
        if let Some(destination) = &self.listeners[listener].leads_to {
            self.merged.references.extend(destination.references.iter().cloned());
            return Some(destination.route.clone());
        }
        let attached = std::mem::take(&mut self.attached[listener]);
        let first = attached.first()?.route;
        for loser in attached.iter().filter(|attachment| attachment.route != first) {
            let message = format!(
                "is ignored at {}: {} is attached there (older, or first by name)",
                self.listeners[listener].in_words(),
                self.routes[first].at.object
            );
            let at = self.routes[loser.route].at;
            self.merged.problems.push(at.warning(&loser.parent.field(), message));
        }
        self.attached[listener] = attached;
        Some(self.leads_to(first, listener))
    }

    /// The names of the listeners for TLS that share a socket. `all` are all listeners of the socket.
    fn tls_names(&mut self, listeners: &[usize], all: &[usize]) -> Vec<TlsName> {
        let mut claims: BTreeMap<&HostPattern, Vec<(usize, &Attachment)>> = BTreeMap::new();
        let names = Names::new(self.listeners, all);
        for &index in listeners {
            let hostname = self.listeners[index].hostname;
            for attachment in &self.attached[index] {
                for host in &attachment.hosts {
                    // A name belongs to the listener with the most specific matching hostname, whether a route of that
                    // listener takes the name or not.
                    let Some(owner) = names.closer(hostname, host) else {
                        claims.entry(host).or_default().push((index, attachment));
                        continue;
                    };
                    let at = self.routes[attachment.route].at;
                    let message = foreign(host, &self.listeners[owner]);
                    self.merged.problems.push(at.warning(&attachment.parent.field(), message));
                }
            }
        }
        let routes = self.routes;
        let mut taken: Vec<(HostPattern, usize, usize, Place)> = Vec::with_capacity(claims.len());
        for (host, claims) in claims {
            // The route whose own hostname is the most specific has precedence, then the older route (Gateway API 1.7,
            // `TLSRouteSpec.hostnames`).
            let claim_of = |of: &Attachment| Reverse(claim(routes[of.route].hostnames, host));
            let Some(&(listener, winner)) = claims.iter().min_by_key(|(_, of)| claim_of(of)) else {
                continue;
            };
            for &(index, loser) in claims.iter().filter(|(_, of)| of.route != winner.route) {
                let reason = match claim_of(loser) == claim_of(winner) {
                    true => "has it already (older, or first by name)",
                    false => "has a more specific hostname",
                };
                let message = format!(
                    "{host} is ignored at {}: {} {reason}",
                    self.listeners[index].in_words(),
                    routes[winner.route].at.object
                );
                let at = routes[loser.route].at;
                self.merged.problems.push(at.warning(&loser.parent.field(), message));
            }
            taken.push((host.clone(), listener, winner.route, winner.parent));
        }
        let names = taken.into_iter().map(|(host, listener, route, parent)| {
            let leads_to = self.leads_to(route, listener);
            TlsName { host, listener, route, parent, leads_to }
        });
        names.collect()
    }

    /// The destination of a route, which is in service at this listener.
    fn leads_to(&mut self, route: usize, listener: usize) -> Layer4Route {
        let Listener { protocol, client_certificate, .. } = &self.listeners[listener];
        let backends = &self.routes[route].backends;
        let mut destination = backends.at(*protocol).clone();
        let is_secured = backends.secured.is_some() && uses_backend_tls(*protocol);
        let certificate = client_certificate.as_ref().filter(|_| is_secured);
        let of_route = destination.route.backends.iter_mut().map(|backend| &mut backend.upstream);
        let of_references = destination.references.iter_mut().map(|reference| &mut reference.upstream);
        of_route.chain(of_references).for_each(|upstream| backend_tls::present(upstream, certificate));
        if self.in_service.insert((route, is_secured, certificate.cloned())) {
            self.merged.references.extend(destination.references);
            self.merged.problems.extend(destination.problems);
        }
        destination.route
    }
}

/// Rejects the connections for a host of a listener. A name never reaches a listener with a less specific hostname, whether
/// its own listener can serve the name or not.
fn nowhere(entry_point: &EntryPoint, listener: &Listener<'_>, host: HostPattern) -> TlsRoute {
    let route = Layer4Route { id: listener.at.id(), backends: Vec::new() };
    TlsRoute { entry_point: entry_point.clone(), ..TlsRoute::new(host, route) }
}

/// Whether two listeners with different hostnames can share a socket: the names of their clients tell them apart.
fn can_share(one: &Listener<'_>, other: &Listener<'_>) -> bool {
    let is_same = one.protocol == other.protocol || one.protocol.is_tls() && other.protocol.is_tls();
    is_same && one.protocol.has_names()
}

/// The listeners that share a socket, by hostname.
struct Names<'i>(HashMap<&'i HostPattern, usize>);

impl<'i> Names<'i> {
    fn new(all: &'i [Listener<'_>], listeners: &[usize]) -> Self {
        Self(listeners.iter().map(|index| (all[*index].hostname, *index)).collect())
    }

    /// The listener with the most specific hostname that covers a host, if this hostname is more specific than
    /// `hostname`, which covers the host too.
    fn closer(&self, hostname: &HostPattern, host: &HostPattern) -> Option<usize> {
        let name = match host {
            HostPattern::Exact(name) | HostPattern::Wildcard(name) | HostPattern::Suffix(name) => &**name,
            HostPattern::Any => "",
        };
        let suffixes = name.match_indices('.').map(|(dot, _)| HostPattern::Suffix(name[dot + 1..].into()));
        let candidates = [host.clone()].into_iter().chain(suffixes);
        let mut narrower = candidates.take_while(|candidate| candidate != hostname);
        narrower.find_map(|candidate| self.0.get(&candidate).copied())
    }
}

/// The name belongs to a listener to which the entry does not attach the route.
fn foreign(host: &HostPattern, owner: &Listener<'_>) -> String {
    format!(
        "{host} is ignored: it belongs to {}, to which this entry does not attach the route",
        owner.in_words()
    )
}

/// The field by which another listener has precedence at a socket, and the reason.
fn defeat(listener: &Listener<'_>, winner: &Listener<'_>) -> (String, String) {
    let is_by_name = can_share(winner, listener) && winner.hostname == listener.hostname;
    let (within, what) = match is_by_name {
        true => ("hostname", format!("{} at port", listener.hostname)),
        false => ("port", "port".to_owned()),
    };
    let fault = format!("{what} {} is already taken by {}", listener.port, winner.in_words_to(listener));
    (listener.field(within), fault)
}
