//! TLS passthrough of the HTTPS listeners: by routes of Gateway API at their ports, and by hosts of Ingresses.

use std::collections::{BTreeMap, HashMap, HashSet};

use sluicegate_model::{HostPattern, Layer4Route, ObjectId, TlsRoute, UpstreamKey, WeightedUpstream};

use crate::intent::{Claim, Intent, Passthrough, Reference, Rule};
use crate::problem::Problem;

/// The hosts with TLS passthrough.
#[derive(Default)]
pub(crate) struct Merged<'a> {
    /// By the text of the pattern: `*.example.com` may stand for one label or several, but two objects with this
    /// pattern conflict.
    routes: BTreeMap<String, TlsRoute>,
    pub(crate) references: Vec<Reference<'a>>,
    pub(crate) problems: Vec<Problem>,
}

/// Joins the claims of routes with the claims of hosts; both come with the oldest first.
///
/// The gateway decrypts connections to a closed object, since it could not refuse a request in a passthrough
/// connection.
pub(super) fn merge<'a>(intents: &[Intent<'a>], of_routes: Vec<Claim<'a>>) -> Merged<'a> {
    let mut merged = Merged::default();
    let mut claims = of_routes;
    merged.claim_hosts(intents, &mut claims);
    claims.sort_by_cached_key(|claim| claim.at.age(claim.created));
    let holders = holders(intents, &claims);
    for Claim { host, leads_to, at, created, field } in claims {
        if let Some(holder) = holders.get(&host.to_string())
            && holder.at.object.namespace != at.object.namespace
            && holder.at.age(holder.created) < at.age(created)
        {
            let message = format!(
                "does not pass {host} through: {} (older, or first by name), of another namespace, serves it",
                holder.at.object
            );
            merged.problems.push(at.warning(&field.field(), message));
            continue;
        }
        match merged.routes.get(&host.to_string()) {
            None => {
                merged.routes.insert(host.to_string(), TlsRoute::new(host, leads_to));
            }
            Some(winner) if winner.route.id == leads_to.id => {}
            Some(winner) => {
                let message = format!(
                    "does not pass {host} through: {} (older, or first by name) does",
                    winner.route.id
                );
                merged.problems.push(at.warning(&field.field(), message));
            }
        }
    }
    if !merged.routes.is_empty() {
        merged.report_shadowed_paths(intents);
    }
    merged
}

/// The oldest object that names each claimed host, in a rule or for TLS.
fn holders<'i, 'a>(intents: &'i [Intent<'a>], claims: &[Claim<'_>]) -> HashMap<String, &'i Intent<'a>> {
    let claimed: HashSet<String> = claims.iter().map(|claim| claim.host.to_string()).collect();
    let mut holders = HashMap::new();
    for intent in intents.iter().filter(|_| !claimed.is_empty()) {
        for host in intent.hosts().map(ToString::to_string).filter(|host| claimed.contains(host)) {
            holders.entry(host).or_insert(intent);
        }
    }
    holders
}

impl<'a> Merged<'a> {
    /// The object whose passthrough takes the connections for a host.
    pub(super) fn of(&self, host: &HostPattern) -> Option<&ObjectId> {
        if self.routes.is_empty() {
            return None;
        }
        self.routes.get(&host.to_string()).map(|route| &route.route.id)
    }

    /// In the order of their patterns.
    pub(crate) fn routes(&self) -> Vec<TlsRoute> {
        let mut routes: Vec<TlsRoute> = self.routes.values().cloned().collect();
        routes.sort_by(|one, other| one.host.cmp(&other.host));
        routes
    }

    /// The claims of hosts. A host belongs to the oldest object that names it, as in ingress-nginx: that object decides
    /// whether connections for the host use passthrough, and to which Service.
    fn claim_hosts(&mut self, intents: &[Intent<'a>], claims: &mut Vec<Claim<'a>>) {
        let hosts = || intents.iter().flat_map(|intent| intent.hosts.iter().map(move |host| (intent, host)));
        if hosts().all(|(_, host)| matches!(host.passthrough, Passthrough::Off)) {
            return;
        }
        let mut owners: HashMap<&HostPattern, &Intent<'a>> = HashMap::new();
        for (intent, host) in hosts() {
            let is_new = !owners.contains_key(&*host.host);
            let owner = *owners.entry(&*host.host).or_insert(intent);
            let (Passthrough::To { field, .. } | Passthrough::Nowhere { field }) = host.passthrough else {
                continue;
            };
            if owner.at.object != intent.at.object {
                let message = format!(
                    "has no effect for host {}, which belongs to {} (older, or first by name)",
                    host.host, owner.at.object
                );
                self.problems.push(intent.problem(field, message));
                continue;
            }
            match &host.passthrough {
                _ if !is_new => {}
                Passthrough::To { place, upstream, .. } => {
                    let (at, upstream) = (intent.at, upstream.clone());
                    self.references.push(Reference { at, place: *place, upstream: upstream.clone() });
                    let backends = vec![WeightedUpstream { upstream, weight: 1 }];
                    let leads_to = Layer4Route { id: at.id(), backends };
                    let (host, created) = (HostPattern::clone(&host.host), intent.created);
                    if intent.refuses.is_none() {
                        claims.push(Claim { host, leads_to, at, created, field });
                    }
                }
                _ => {
                    let message = format!(
                        "has no effect for host {}: the host has no path, and the Ingress has no defaultBackend",
                        host.host
                    );
                    self.problems.push(intent.problem(field, message));
                }
            }
        }
    }

    /// Reports paths that clients cannot reach over TLS, because an Ingress passes connections for their host to
    /// another Service.
    fn report_shadowed_paths(&mut self, intents: &[Intent<'a>]) {
        for intent in intents {
            for host in &intent.hosts {
                let Some(TlsRoute { route, .. }) = self.routes.get(&host.host.to_string()) else { continue };
                if route.id.kind != intent.at.object.kind.as_str() {
                    continue;
                }
                let Some(backend) = route.backends.first() else { continue };
                let is_elsewhere = |rule: &&Rule| {
                    rule.upstream.as_ref().is_some_and(|upstream| !is_same_port(upstream, &backend.upstream))
                };
                for rule in host.rules.iter().filter(is_elsewhere) {
                    let message = format!(
                        "{} is not reachable over TLS, which {} passes through to {} for host {}",
                        rule.of.path, route.id, backend.upstream, host.host
                    );
                    let field = rule.place.path_field();
                    self.problems.push(intent.at.warning(&field, message));
                }
            }
        }
    }
}

/// Whether both upstreams are the same port of a Service, regardless of the protocol.
fn is_same_port(one: &UpstreamKey, other: &UpstreamKey) -> bool {
    (&one.namespace, &one.service, &one.port) == (&other.namespace, &other.service, &other.port)
}
