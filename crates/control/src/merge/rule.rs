//! Hosts and routes from Ingresses, and the precedence in conflicts between Ingresses.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::rule::{PathMatch, RuleMatch};
use sluicegate_model::{HostPattern, PathPattern, Rule, UpstreamKey, VirtualHost};

use super::tls;
use crate::intent::{Place, Reference};
use crate::object::ingress::path_field;
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::Source;
use crate::translate::policy::Policies;
use crate::upstream;

/// The result of all Ingresses.
#[derive(Default)]
pub(crate) struct Built<'a> {
    /// In the order of their patterns.
    pub(crate) hosts: Vec<Arc<VirtualHost>>,
    pub(crate) default_rule: Option<Rule>,
    pub(crate) problems: Vec<Problem>,
    /// The first object that named each upstream, and its field.
    pub(crate) references: Vec<Reference<'a>>,
}

/// A host while it is built.
struct Host<'a> {
    /// The oldest Ingress with the host: its `defaultBackend` is the host's fallback, as in ingress-nginx.
    owner: Source<'a>,
    rules: Vec<Rule>,
    /// The place of each of the rules.
    places: Vec<(Source<'a>, usize, usize)>,
}

/// Builds the routes of Ingresses, the oldest first.
pub(crate) fn build<'a>(
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
                    format!("is ignored: {} is older and sets the default backend", winner.object),
                )),
            }
        }
        for rule in &source.ingress.rules {
            let host = hosts.entry(&rule.host).or_insert(Host {
                owner: source,
                rules: Vec::new(),
                places: Vec::new(),
            });
            if source.ingress.default_backend.is_some() && host.owner.object != source.object {
                built.problems.push(source.problem(
                    "spec.defaultBackend",
                    format!(
                        "is ignored for host {}, which belongs to {} (older, or first by name)",
                        rule.host, host.owner.object
                    ),
                ));
            }
            for path in &rule.paths {
                match taken.entry((&rule.host, &path.pattern)) {
                    Entry::Occupied(winner) => built.problems.push(source.problem(
                        &format!("{}.path", path_field(rule.index, path.index)),
                        format!(
                            "{} {} of host {} is ignored: {} has it already",
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
                        host.rules.push(source.route(&rule.host, pattern, &upstream, tls, policies));
                        host.places.push((source, rule.index, path.index));
                        let place = Place::Path(rule.index, path.index);
                        built.references.push(Reference { at: source.at(), place, upstream });
                    }
                }
            }
        }
    }
    for source in ingresses {
        if policies.closes(source.object) {
            source.close_literals(store, &mut hosts, &taken, tls, policies);
        }
    }
    for host in hosts.values() {
        host.warn_of_slash_variants(&mut built.problems);
    }
    built.default_rule = default
        .and_then(|source| source.fallback(&HostPattern::Any, store, tls, policies, &mut built.references));
    built.hosts = hosts
        .into_iter()
        .map(|(pattern, host)| {
            let fallback = host.owner.fallback(pattern, store, tls, policies, &mut built.references);
            Arc::new(VirtualHost { host: pattern.clone(), rules: host.rules, fallback })
        })
        .collect();
    built
}

impl Host<'_> {
    /// Warns if a policy guards an exact path, and a route without the policy serves the same path with or without a
    /// final slash: many servers treat both paths alike.
    ///
    /// A route that takes `/admin/` without naming it, such as the route of `/`, is left out: the data plane refuses
    /// such requests.
    fn warn_of_slash_variants(&self, problems: &mut Vec<Problem>) {
        let guards = self.rules.iter().zip(&self.places).filter_map(|(rule, place)| {
            let PathPattern::Exact(path) = path_of(rule)? else { return None };
            let guard = rule.security.as_ref().filter(|security| security.can_deny() && path.len() > 1)?;
            Some((path, guard, place))
        });
        let mut routes = None;
        for (path, guard, (source, rule, index)) in guards {
            let routes = routes.get_or_insert_with(|| ByPath::new(&self.rules));
            let (twin, other) = match path.strip_suffix('/') {
                Some(bare) => (bare.to_owned(), routes.longest(bare)),
                None => {
                    let twin = format!("{path}/");
                    let other = routes.naming(&twin);
                    (twin, other)
                }
            };
            let Some(other) = other.filter(|other| other.security.as_ref() != Some(guard)) else { continue };
            problems.push(source.problem(
                &format!("{}.path", path_field(*rule, *index)),
                format!(
                    "is protected by {}, which does not apply to {twin}: {} serves that path by its path {} ({}). Attach one policy to both",
                    guard.id,
                    other.id,
                    other.matches[0].path,
                    other.matches[0].path.path_type(),
                ),
            ));
        }
    }
}

/// The path of a rule of an Ingress, which has one match.
fn path_of(rule: &Rule) -> Option<&PathPattern> {
    match &rule.matches.first()?.path {
        PathMatch::Literal(path) => Some(path),
        PathMatch::Regex(_) => None,
    }
}

/// The rules of a host by their paths: exact ones, prefixes by element, plain prefixes.
struct ByPath<'r>(HashMap<&'r str, [Option<&'r Rule>; 3]>);

impl<'r> ByPath<'r> {
    fn new(rules: &'r [Rule]) -> Self {
        let mut by_path: HashMap<&str, [Option<&Rule>; 3]> = HashMap::default();
        for (rule, path) in rules.iter().filter_map(|rule| Some((rule, path_of(rule)?))) {
            by_path.entry(path.as_str()).or_default()[usize::from(path.rank())].get_or_insert(rule);
        }
        Self(by_path)
    }

    /// The route that names a path with a final slash: `/admin/`, or `/admin` as a prefix.
    fn naming(&self, twin: &str) -> Option<&'r Rule> {
        let [exact, _, starts] = self.0.get(twin).copied().unwrap_or_default();
        let [_, prefix, bare_starts] = self.0.get(twin.trim_end_matches('/')).copied().unwrap_or_default();
        exact.or(starts).or(prefix).or(bare_starts)
    }

    /// The route of a path without a final slash.
    fn longest(&self, path: &str) -> Option<&'r Rule> {
        let ends = (1..=path.len()).rev().filter(|end| path.is_char_boundary(*end));
        ends.filter_map(|end| {
            let [exact, prefix, starts] = self.0.get(&path[..end]).copied().unwrap_or_default();
            let at_boundary = end == 1 || path[end..].is_empty() || path[end..].starts_with('/');
            exact.filter(|_| end == path.len()).or(prefix.filter(|_| at_boundary)).or(starts)
        })
        .next()
    }
}

impl<'a> Source<'a> {
    /// Closes all paths that the paths of a closed Ingress would match as regular expressions, which no route can
    /// match. Otherwise a less specific route of another Ingress would serve them.
    fn close_literals(
        self,
        store: &Store,
        hosts: &mut BTreeMap<&HostPattern, Host<'a>>,
        taken: &HashMap<(&HostPattern, &PathPattern), Self>,
        tls: &tls::Built,
        policies: &mut Policies<'_>,
    ) {
        for rule in &self.ingress.rules {
            let Some(host) = hosts.get_mut(&rule.host) else { continue };
            for path in &rule.paths {
                let Some(literal) = path.literal.as_ref() else { continue };
                let is_new = host.rules.iter().all(|rule| path_of(rule) != Some(literal));
                if is_new && !taken.contains_key(&(&rule.host, literal)) {
                    let upstream = upstream::key(store, &path.upstream, self.ingress.backend.as_ref());
                    host.rules.push(self.route(&rule.host, literal.clone(), &upstream, tls, policies));
                    host.places.push((self, rule.index, path.index));
                }
            }
        }
    }

    fn route(
        self,
        host: &HostPattern,
        path: PathPattern,
        upstream: &UpstreamKey,
        tls: &tls::Built,
        policies: &mut Policies<'_>,
    ) -> Rule {
        let governed = policies.govern(self.object, upstream);
        Rule {
            id: self.at().id(),
            matches: vec![RuleMatch::path(path)],
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
    ) -> Option<Rule> {
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
