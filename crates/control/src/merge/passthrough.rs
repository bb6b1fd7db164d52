//! TLS passthrough of the HTTPS listeners: by TLSRoutes at their ports, and by the annotation `ssl-passthrough` of Ingresses.

use std::collections::{BTreeMap, HashMap, HashSet};

use sluicegate_model::{HostPattern, Layer4Route, ObjectId, Protocol, TlsRoute, WeightedUpstream};

use crate::frontend::ingress::restriction::Restricted;
use crate::intent::{At, Place, Reference};
use crate::object::annotation;
use crate::object::ingress::{RulePath, path_field};
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::Source;
use crate::upstream;

/// An object that claims the connections for a host.
pub(crate) struct Claim<'a> {
    pub(crate) host: HostPattern,
    pub(crate) leads_to: Layer4Route,
    pub(crate) at: At<'a>,
    /// The creation time of the object.
    pub(crate) created: Option<i64>,
    /// The field with the claim.
    pub(crate) field: String,
}

/// The hosts with TLS passthrough.
#[derive(Default)]
pub(crate) struct Built<'a> {
    /// By the text of the pattern: `*.example.com` may stand for one label or several, but two objects with this
    /// pattern conflict.
    routes: BTreeMap<String, TlsRoute>,
    pub(crate) references: Vec<Reference<'a>>,
    pub(crate) problems: Vec<Problem>,
}

/// Joins the claims of TLSRoutes with the claims of Ingresses; both come with the oldest first.
///
/// The gateway decrypts connections to a restricted Ingress, since it could not refuse a request in a passthrough connection.
pub(crate) fn build<'a>(
    store: &Store,
    ingresses: &[Source<'a>],
    of_gateways: Vec<Claim<'a>>,
    restricted: &Restricted<'_>,
) -> Built<'a> {
    let mut built = Built::default();
    let mut claims = of_gateways;
    if ingresses.iter().any(|source| source.ingress.ssl_passthrough) {
        let of_ingresses = built.of_ingresses(store, ingresses);
        claims.extend(of_ingresses.into_iter().filter(|claim| restricted.of(claim.at.object).is_none()));
    }
    claims.sort_by_cached_key(|claim| claim.at.age(claim.created));
    let holders = holders(ingresses, &claims);
    for Claim { host, leads_to, at, created, field } in claims {
        if let Some(holder) = holders.get(&host.to_string())
            && holder.object.namespace != at.object.namespace
            && holder.at().age(holder.ingress.created) < at.age(created)
        {
            let message = format!(
                "does not pass {host} through: {} (older, or first by name), of another namespace, serves it",
                holder.object
            );
            built.problems.push(at.warning(&field, message));
            continue;
        }
        match built.routes.get(&host.to_string()) {
            None => {
                built.routes.insert(host.to_string(), TlsRoute { host, route: leads_to });
            }
            Some(winner) if winner.route.id == leads_to.id => {}
            Some(winner) => {
                let message = format!(
                    "does not pass {host} through: {} (older, or first by name) does",
                    winner.route.id
                );
                built.problems.push(at.warning(&field, message));
            }
        }
    }
    if !built.routes.is_empty() {
        built.report_shadowed_paths(store, ingresses);
    }
    built
}

/// The oldest Ingress that names each claimed host, in a rule or for TLS.
fn holders<'a>(ingresses: &[Source<'a>], claims: &[Claim<'_>]) -> HashMap<String, Source<'a>> {
    let claimed: HashSet<String> = claims.iter().map(|claim| claim.host.to_string()).collect();
    let mut holders = HashMap::new();
    for &source in ingresses.iter().filter(|_| !claimed.is_empty()) {
        let of_rules = source.ingress.rules.iter().map(|rule| &rule.host);
        let of_tls = source.ingress.tls.iter().flat_map(|tls| &tls.hosts);
        for host in of_rules.chain(of_tls).map(ToString::to_string).filter(|host| claimed.contains(host)) {
            holders.entry(host).or_insert(source);
        }
    }
    holders
}

impl<'a> Built<'a> {
    /// The object whose passthrough takes the connections for a host.
    pub(crate) fn of(&self, host: &HostPattern) -> Option<&ObjectId> {
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

    /// The claims of Ingresses. A host belongs to the oldest Ingress that names it, as in ingress-nginx: that Ingress
    /// decides whether connections for the host use passthrough, and to which Service.
    fn of_ingresses(&mut self, store: &Store, ingresses: &[Source<'a>]) -> Vec<Claim<'a>> {
        let field = annotation::field(annotation::SSL_PASSTHROUGH);
        let mut owners: HashMap<&HostPattern, Source<'a>> = HashMap::new();
        let mut claims = Vec::new();
        for &source in ingresses {
            for rule in &source.ingress.rules {
                let is_new = !owners.contains_key(&rule.host);
                let owner = *owners.entry(&rule.host).or_insert(source);
                // The check of the Ingress reported a rule without a host.
                if !source.ingress.ssl_passthrough || rule.host == HostPattern::Any {
                    continue;
                }
                if owner.object != source.object {
                    let message = format!(
                        "has no effect for host {}, which belongs to {} (older, or first by name)",
                        rule.host, owner.object
                    );
                    self.problems.push(source.problem(&field, message));
                } else if is_new {
                    claims.extend(self.of_host(store, source, &rule.host, &field));
                }
            }
        }
        claims
    }

    /// The claim of an Ingress for one of its hosts: for the Service of the path `/`, else of the default backend, else
    /// of the first path.
    fn of_host(
        &mut self,
        store: &Store,
        source: Source<'a>,
        host: &HostPattern,
        field: &str,
    ) -> Option<Claim<'a>> {
        let rules = source.ingress.rules.iter().filter(|rule| rule.host == *host);
        let mut paths = rules.flat_map(|rule| rule.paths.iter().map(|path| (rule.index, path)));
        let of_path = |(rule, path): (usize, &'a RulePath)| (Place::Path(rule, path.index), &path.upstream);
        let first = paths.clone().next();
        let named = paths
            .find(|(_, path)| path.pattern.as_str() == "/")
            .map(of_path)
            .or_else(|| Some((Place::DefaultBackend, source.ingress.default_backend.as_ref()?)))
            .or_else(|| first.map(of_path));
        let Some((place, named)) = named else {
            let message = format!(
                "has no effect for host {host}: the host has no path, and the Ingress has no defaultBackend"
            );
            self.problems.push(source.problem(field, message));
            return None;
        };
        let named = (&named.namespace, &named.service, &named.port);
        let upstream = upstream::layer4_key(store, named, Protocol::Tcp);
        self.references.push(Reference { at: source.at(), place, upstream: upstream.clone() });
        let leads_to =
            Layer4Route { id: source.at().id(), backends: vec![WeightedUpstream { upstream, weight: 1 }] };
        let created = source.ingress.created;
        Some(Claim { host: host.clone(), leads_to, at: source.at(), created, field: field.to_owned() })
    }

    /// Reports paths that clients cannot reach over TLS, because an Ingress passes connections for their host to another Service.
    fn report_shadowed_paths(&mut self, store: &Store, ingresses: &[Source<'a>]) {
        for &source in ingresses {
            for rule in &source.ingress.rules {
                let Some(TlsRoute { route, .. }) = self.routes.get(&rule.host.to_string()) else { continue };
                if route.id.kind != source.object.kind.as_str() {
                    continue;
                }
                let Some(backend) = route.backends.first() else { continue };
                for path in &rule.paths {
                    let named = (&path.upstream.namespace, &path.upstream.service, &path.upstream.port);
                    if upstream::layer4_key(store, named, Protocol::Tcp) != backend.upstream {
                        let message = format!(
                            "{} is not reachable over TLS, which {} passes through to {} for host {}",
                            path.pattern, route.id, backend.upstream, rule.host
                        );
                        let field = format!("{}.path", path_field(rule.index, path.index));
                        self.problems.push(source.problem(&field, message));
                    }
                }
            }
        }
    }
}
