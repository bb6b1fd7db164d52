//! Hosts and routes from Ingresses, and who wins when two of them want the same.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::{HostPattern, PathPattern, Route, UpstreamKey, VirtualHost};

use super::policy::Policies;
use super::reference::{Place, Reference};
use super::{Source, tls, upstream};
use crate::object::ingress::path_field;
use crate::problem::Problem;
use crate::store::Store;

/// What the Ingresses make together.
#[derive(Default)]
pub(super) struct Built<'a> {
    /// In the order of their patterns.
    pub(super) hosts: Vec<Arc<VirtualHost>>,
    pub(super) default_route: Option<Route>,
    pub(super) problems: Vec<Problem>,
    /// Who named each upstream first, and in which field.
    pub(super) references: Vec<Reference<'a>>,
}

/// A host while it is built.
struct Host<'a> {
    /// The oldest Ingress that names it: its `defaultBackend` is the host's fallback, as in ingress-nginx.
    owner: Source<'a>,
    routes: Vec<Route>,
}

/// Builds the routes of Ingresses, the oldest first.
pub(super) fn build<'a>(
    store: &'a Store,
    ingresses: &[Source<'a>],
    tls: &tls::Built,
    policies: &mut Policies<'_>,
) -> Built<'a> {
    let mut built = Built::default();
    let mut hosts: BTreeMap<&HostPattern, Host<'a>> = BTreeMap::new();
    let mut taken: HashMap<(&HostPattern, &PathPattern), Source<'a>> = HashMap::default();
    let mut default: Option<Source<'a>> = None;
    for &source in ingresses {
        if !source.ingress.has_rules && source.ingress.default_backend.is_some() {
            match default {
                None => default = Some(source),
                Some(winner) => built.problems.push(source.problem(
                    "spec.defaultBackend",
                    format!("is not used: {} is older and sets the default backend", winner.object),
                )),
            }
        }
        for rule in &source.ingress.rules {
            let host = hosts.entry(&rule.host).or_insert(Host { owner: source, routes: Vec::new() });
            if source.ingress.default_backend.is_some() && host.owner.object != source.object {
                built.problems.push(source.problem(
                    "spec.defaultBackend",
                    format!(
                        "is not used for host {}, which belongs to {} (older, or first by name)",
                        rule.host, host.owner.object
                    ),
                ));
            }
            for path in &rule.paths {
                match taken.entry((&rule.host, &path.pattern)) {
                    Entry::Occupied(winner) => built.problems.push(source.problem(
                        &format!("{}.path", path_field(rule.index, path.index)),
                        format!(
                            "{} {} of host {} is not used: it is already taken by {}",
                            path.pattern.path_type(),
                            path.pattern,
                            rule.host,
                            source.in_words(winner.get()),
                        ),
                    )),
                    Entry::Vacant(place) => {
                        place.insert(source);
                        let upstream = upstream::key(store, &path.upstream, source.ingress.backend.as_ref());
                        let pattern = path.pattern.clone();
                        host.routes.push(source.route(&rule.host, pattern, &upstream, tls, policies));
                        let place = Place::Path(rule.index, path.index);
                        built.references.push(Reference { at: source.at(), place, upstream });
                    }
                }
            }
        }
    }
    built.default_route = default
        .and_then(|source| source.fallback(&HostPattern::Any, store, tls, policies, &mut built.references));
    built.hosts = hosts
        .into_iter()
        .map(|(pattern, host)| {
            let fallback = host.owner.fallback(pattern, store, tls, policies, &mut built.references);
            Arc::new(VirtualHost { host: pattern.clone(), routes: host.routes, fallback })
        })
        .collect();
    built
}

impl<'a> Source<'a> {
    fn route(
        self,
        host: &HostPattern,
        path: PathPattern,
        upstream: &UpstreamKey,
        tls: &tls::Built,
        policies: &mut Policies<'_>,
    ) -> Route {
        let governed = policies.govern(self.object, upstream);
        Route {
            id: self.at().id(),
            path,
            upstream: upstream.clone(),
            https_only: tls.is_https_only(self.object, self.ingress, host),
            client_auth: tls.client_auth_of(self.object),
            compression: self.ingress.compression.clone(),
            security: governed.security,
            rate_limits: governed.rate_limits,
            traffic: governed.traffic,
        }
    }

    /// The route of all paths to the Ingress' `defaultBackend`.
    fn fallback(
        self,
        host: &HostPattern,
        store: &Store,
        tls: &tls::Built,
        policies: &mut Policies<'_>,
        references: &mut Vec<Reference<'a>>,
    ) -> Option<Route> {
        let upstream =
            upstream::key(store, self.ingress.default_backend.as_ref()?, self.ingress.backend.as_ref());
        let route = self.route(host, PathPattern::Prefix("/".into()), &upstream, tls, policies);
        references.push(Reference { at: self.at(), place: Place::DefaultBackend, upstream });
        Some(route)
    }

    fn in_words(self, other: &Self) -> String {
        if other.object == self.object {
            "the same Ingress".to_owned()
        } else {
            format!("{} (older, or first by name)", other.object)
        }
    }
}
