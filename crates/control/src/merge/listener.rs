//! The owner of each socket, and the routes that are in service there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use sluicegate_model::{EntryPoint, HostPattern, Layer4Route, Serves, TlsHost, TlsRoute};

use crate::backend_tls;
use crate::intent::http_route::HttpRoute;
use crate::intent::listener::{Layer4, Listener, Parent, Socket};
use crate::intent::{At, Claim, Place, Reference};
use crate::object::ObjectRef;
use crate::object::gateway::ListenerProtocol;
use crate::object::host::covers;
use crate::object::route::Hostname;
use crate::problem::{Problem, Severity};
use crate::status::Fault;

/// The listeners of Gateways, with the routes that are in service.
#[derive(Default)]
pub(crate) struct Merged<'a> {
    pub(crate) listeners: Vec<sluicegate_model::Listener>,
    /// The hosts of listeners for HTTP.
    pub(crate) hosts: Vec<HttpHost>,
    /// The names of listeners for HTTPS.
    pub(crate) tls_hosts: Vec<Arc<TlsHost>>,
    /// The TLS passthrough of HTTPS listeners.
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
}

/// An HTTPRoute of a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostRoute {
    /// Its place in [`Intents`](crate::intent::Intents).
    pub(crate) route: usize,
    /// The port of the listener.
    pub(crate) port: u16,
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
    /// The routes of each listener, the oldest first. An HTTP listener has HTTPRoutes and GRPCRoutes.
    attached: Vec<Vec<Attachment>>,
    /// The routes whose backends are in the result.
    in_service: HashSet<usize>,
    /// The entry points of Gateways whose hosts are in the result.
    entered: HashSet<Arc<str>>,
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
        attached: listeners.iter().map(|_| Vec::new()).collect(),
        in_service: HashSet::new(),
        entered: HashSet::new(),
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
        let others = self.ports.get(&socket.port())?.iter();
        others.filter(|other| other.overlaps(socket)).find_map(|other| {
            // The listeners of a socket can share it with each other, so that the first one stands for all.
            let first = &self.listeners[*self.sockets.get(other)?.first()?];
            if *other != socket || !can_share(first, listener, socket) {
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
        let attached = self.attached[listener].iter().filter(|_| is_http);
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
        let is_http = |index: &usize| self.listeners[*index].protocol.is_http();
        let (http, listeners): (Vec<usize>, Vec<usize>) = listeners.iter().copied().partition(is_http);
        self.serve_http(socket, &http);
        let Some(&first) = listeners.first() else { return };
        let listener = &self.listeners[first];
        let serves = match listener.protocol {
            ListenerProtocol::Tcp => Serves::Tcp(self.only_route(first)),
            ListenerProtocol::Udp => Serves::Udp(self.only_route(first)),
            _ => {
                let routes = self.tls_routes(&listeners);
                match socket {
                    Socket::Http(_) | Socket::Https(_) => {
                        let claims = routes.into_iter().map(|(host, route, field, leads_to)| {
                            let Layer4 { at, created, .. } = self.routes[route];
                            Claim { host, leads_to, at, created, field }
                        });
                        self.merged.claims.extend(claims);
                        return;
                    }
                    Socket::Own { .. } => {
                        let routes = routes.into_iter();
                        Serves::Tls(routes.map(|(host, .., route)| TlsRoute { host, route }).collect())
                    }
                }
            }
        };
        if let Socket::Own { address, .. } = socket {
            self.merged.listeners.push(sluicegate_model::Listener { id: listener.id(), address, serves });
        }
    }

    /// Adds the hosts of these listeners for HTTP, which share a socket.
    fn serve_http(&mut self, socket: Socket, listeners: &[usize]) {
        let Some(&first) = listeners.first() else { return };
        let entry_point = match socket {
            Socket::Http(_) => EntryPoint::FlagsHttp,
            Socket::Https(_) => EntryPoint::FlagsHttps,
            Socket::Own { address, .. } => {
                let id = self.listeners[first].id();
                let name = self.listeners[first].entry_point.clone();
                let name = name.unwrap_or_else(|| address.to_string().into());
                let serves = match self.listeners[first].protocol {
                    ListenerProtocol::Https => Serves::Https(name.clone()),
                    _ => Serves::Http(name.clone()),
                };
                self.merged.listeners.push(sluicegate_model::Listener { id, address, serves });
                // The same listeners have another address too.
                if !self.entered.insert(name.clone()) {
                    return;
                }
                EntryPoint::Gateway(name)
            }
        };
        let names = Names::new(self.listeners, listeners);
        let mut hosts: BTreeMap<HostPattern, HttpHost> = BTreeMap::new();
        for &index in listeners {
            let listener = &self.listeners[index];
            let new = |host: &HostPattern| HttpHost {
                entry_point: entry_point.clone(),
                host: host.clone(),
                routes: Vec::new(),
                continues: host != listener.hostname,
            };
            if listener.protocol == ListenerProtocol::Https && !listener.certificates.is_empty() {
                self.merged.tls_hosts.push(Arc::new(TlsHost {
                    entry_point: entry_point.clone(),
                    ..TlsHost::new(listener.hostname.clone(), listener.certificates.clone())
                }));
            }
            // Requests for the names of a listener never reach the routes of another listener.
            if *listener.hostname != HostPattern::Any {
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
                        let mut of_owner = self.attached[owner].iter();
                        if !of_owner.any(|other| other.route == attachment.route) {
                            let message = foreign(host, &self.listeners[owner]);
                            self.merged.problems.push(route.at.warning(&attachment.parent.field(), message));
                        }
                        continue;
                    }
                    let known = hosts.entry(host.clone()).or_insert_with(|| new(host));
                    if !known.routes.iter().any(|known| known.route == attachment.route) {
                        let (route, port) = (attachment.route, listener.port);
                        known.routes.push(HostRoute { route, port, client_certificate: certificate.clone() });
                    }
                }
            }
        }
        self.merged.hosts.extend(hosts.into_values().map(|mut host| {
            // Routes have the order of their age, whatever the order of the listeners.
            host.routes.sort_unstable();
            host
        }));
    }

    /// The single route of a listener without hostnames: the oldest route.
    fn only_route(&mut self, listener: usize) -> Option<Layer4Route> {
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
        Some(self.leads_to(first))
    }

    /// The routes of the listeners for TLS that share a socket, by name: the route, and the parent that attaches it.
    fn tls_routes(&mut self, listeners: &[usize]) -> Vec<(HostPattern, usize, Place, Layer4Route)> {
        let mut taken: BTreeMap<&HostPattern, &Attachment> = BTreeMap::new();
        let names = Names::new(self.listeners, listeners);
        for &index in listeners {
            let hostname = self.listeners[index].hostname;
            for attachment in &self.attached[index] {
                for host in &attachment.hosts {
                    // A name belongs to the listener with the most specific matching hostname, whether a route of that
                    // listener takes the name or not.
                    let message = if let Some(owner) = names.closer(hostname, host) {
                        foreign(host, &self.listeners[owner])
                    } else {
                        match taken.get(host) {
                            None => {
                                taken.insert(host, attachment);
                                continue;
                            }
                            Some(winner) if winner.route == attachment.route => continue,
                            Some(winner) => format!(
                                "{host} is ignored at {}: {} has it already (older, or first by name)",
                                self.listeners[index].in_words(),
                                self.routes[winner.route].at.object
                            ),
                        }
                    };
                    let at = self.routes[attachment.route].at;
                    self.merged.problems.push(at.warning(&attachment.parent.field(), message));
                }
            }
        }
        let taken: Vec<(HostPattern, usize, Place)> = taken
            .into_iter()
            .map(|(host, attachment)| (host.clone(), attachment.route, attachment.parent))
            .collect();
        let routes = taken.into_iter();
        routes.map(|(host, route, parent)| (host, route, parent, self.leads_to(route))).collect()
    }

    /// The destination of a route, which is in service.
    fn leads_to(&mut self, route: usize) -> Layer4Route {
        let backends = &self.routes[route].backends;
        if self.in_service.insert(route) {
            self.merged.references.extend(backends.references.iter().cloned());
            self.merged.problems.extend(backends.problems.iter().cloned());
        }
        backends.route.clone()
    }
}

/// Whether two listeners with different hostnames can share a socket: the names of their clients tell them apart.
fn can_share(one: &Listener<'_>, other: &Listener<'_>, socket: Socket) -> bool {
    // HTTPS listeners of the process also pass TLS through.
    let are_tls = |listener: &Listener<'_>| {
        matches!(listener.protocol, ListenerProtocol::Https | ListenerProtocol::Tls)
    };
    let is_same = one.protocol == other.protocol
        || matches!(socket, Socket::Https(_)) && are_tls(one) && are_tls(other);
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
    let is_by_name = listener.protocol == winner.protocol
        && listener.protocol.has_names()
        && winner.hostname == listener.hostname;
    let (within, what) = match is_by_name {
        true => ("hostname", format!("{} at port", listener.hostname)),
        false => ("port", "port".to_owned()),
    };
    let fault = format!("{what} {} is already taken by {}", listener.port, winner.in_words_to(listener));
    (listener.field(within), fault)
}
