//! One host of the routing table.

use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::rule::{ApiOperation, HttpsRedirect, PathMatch, RuleMatch};
use sluicegate_model::{
    ClientAuth, Codings, HostPattern, ObjectId, PathPattern, Rule, Settings, UpstreamKey, VirtualHost,
};

use super::backends::Backends;
use super::conditions::Conditions;
use super::regexes::Regexes;
use super::tree::{Entry, PathKey, PathTree};
use crate::counters::{RouteLabels, RouteStats};
use crate::feature::traffic::RouteTrafficPolicy;
use crate::feature::validation::Checks;
use crate::feature::{Guard, Policies, Resources};
use crate::request::HeadView;
use crate::template::RuleView;
use crate::upstream::slot;

/// A host and its rules. Successive tables share an unchanged host.
#[derive(Debug)]
pub(crate) struct Host {
    source: Arc<VirtualHost>,
    paths: PathTree,
    regexes: Regexes,
    /// One target for each match of each rule, in order. The target of the fallback is last.
    targets: Vec<Target>,
    /// For each target: the number of its rule, and of its match in that rule.
    places: Vec<(u32, u32)>,
    fallback: Option<u32>,
    /// Whether every request meets a match or uses the fallback.
    takes_all: bool,
    /// Whether a security policy applies to one of the routes.
    is_guarded: bool,
    /// The filters of the listener.
    filters: Option<Box<Guard>>,
    /// The paths of logins, whatever the rules match.
    logins: Vec<LoginPath>,
    /// Whether every upstream that its rules and policies name has a slot.
    is_placed: bool,
}

/// A path that a login needs on its host (OpenID Connect): the gateway responds itself.
#[derive(Debug)]
struct LoginPath {
    path: Box<[u8]>,
    /// The number of a target with the login.
    target: u32,
    /// Whether the path comes before every match: all rules of the host are of one namespace. Otherwise the path comes after
    /// them, so that no policy takes a path from the routes of another namespace.
    comes_first: bool,
}

/// The target of a match: route, backends and policies.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: ObjectId,
    pub(crate) backends: Backends,
    /// Whether the gateway redirects plain HTTP clients to HTTPS.
    pub(crate) https_only: bool,
    pub(crate) https_redirect: HttpsRedirect,
    /// The client certificate policy under which the TLS connection must have been opened.
    pub(crate) client_auth: Option<Arc<ClientAuth>>,
    /// The content codings for responses; `None`: no compression.
    pub(crate) compression: Option<Codings>,
    /// The security policy and the rate limits.
    pub(crate) guard: Option<Box<Guard>>,
    /// The traffic policy.
    pub(crate) course: Option<Box<RouteTrafficPolicy>>,
    pub(crate) stats: Arc<RouteStats>,
    /// The operation of an API.
    pub(crate) api: Option<Box<ApiOperation>>,
    /// Validation and mocks.
    pub(crate) checks: Option<Box<Checks>>,
}

impl Target {
    /// Whether requests are checked by the description of an operation.
    pub(crate) fn has_description(&self) -> bool {
        self.checks.is_some() || self.api.as_ref().is_some_and(|api| !api.media_types.is_empty())
    }
}

impl Host {
    /// A host without routes.
    pub(super) fn vacant() -> Self {
        Self {
            source: Arc::new(VirtualHost::new(HostPattern::Any, Vec::new())),
            paths: PathTree::new(Vec::new()),
            regexes: Regexes::new(Vec::new()),
            targets: Vec::new(),
            places: Vec::new(),
            fallback: None,
            takes_all: false,
            is_guarded: false,
            filters: None,
            logins: Vec::new(),
            is_placed: true,
        }
    }

    /// Whether every upstream that its rules and policies name has a slot.
    pub(super) fn is_placed(&self) -> bool {
        self.is_placed
    }

    /// The number of the target for a request. `path` is in normal form.
    pub(super) fn find(&self, path: &[u8], request: HeadView<'_>) -> Option<u32> {
        let login = self.logins.iter().find(|login| *login.path == *path);
        if let Some(login) = login.filter(|login| login.comes_first) {
            return Some(login.target);
        }
        let found = self.paths.find(path, request, None);
        let found = self.regexes.find(path, request, found);
        found.map(|entry| entry.target).or(login.map(|login| login.target)).or(self.fallback)
    }

    pub(super) fn target(&self, route: u32) -> &Target {
        &self.targets[route as usize]
    }

    /// The path condition of a target; `None` for the fallback.
    pub(super) fn path(&self, route: u32) -> Option<&PathMatch> {
        let (rule, of) = self.places.get(route as usize)?;
        Some(&self.source.rules[*rule as usize].matches[*of as usize].path)
    }

    /// The rule of a target, as templates show it.
    pub(super) fn rule(&self, route: u32) -> Option<RuleView<'_>> {
        let rule = match self.places.get(route as usize) {
            Some((rule, _)) => &self.source.rules[*rule as usize],
            None => self.source.fallback.as_ref()?,
        };
        let path = self.path(route).map_or_else(|| rule.path(), PathMatch::as_str);
        let upstream = rule.backends.first().map(|backend| &backend.upstream);
        Some(RuleView { id: &rule.id, host: &self.source.host, path, upstream })
    }

    /// The pattern of the host's names.
    pub(super) fn pattern(&self) -> &HostPattern {
        &self.source.host
    }

    /// Every match with its rule, without the fallback.
    pub(super) fn written(&self) -> impl Iterator<Item = (&Rule, &RuleMatch)> {
        self.source.rules.iter().flat_map(|rule| rule.matches.iter().map(move |of| (rule, of)))
    }

    /// The rule and the match of a target; no match for the fallback.
    pub(super) fn source(&self, route: u32) -> Option<(&Rule, Option<&RuleMatch>)> {
        match self.places.get(route as usize) {
            Some((rule, of)) => {
                let rule = self.source.rules.get(*rule as usize)?;
                Some((rule, rule.matches.get(*of as usize)))
            }
            None => Some((self.source.fallback.as_ref()?, None)),
        }
    }

    /// Whether no request for the host uses the default rule.
    pub(super) fn takes_all(&self) -> bool {
        self.takes_all
    }

    /// Whether a request that meets no match goes to the next less specific host.
    pub(super) fn continues(&self) -> bool {
        self.source.continues && !self.takes_all
    }

    /// Whether `%2F` in a path is a slash.
    pub(super) fn decodes_slashes(&self) -> bool {
        self.source.decodes_slashes
    }

    /// Whether a security policy applies to one of the routes.
    pub(super) fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// The filters of the listener.
    pub(super) fn filters(&self) -> Option<&Guard> {
        self.filters.as_deref()
    }

    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Whether all its policies are among these policies. A host with filters, subscriptions or contracts has further policies.
    pub(super) fn has_only(&self, policies: &Policies) -> bool {
        let has_only = |target: &Target| {
            target.guard.as_ref().is_none_or(|guard| policies.has_guard(guard))
                && target.course.as_ref().is_none_or(|course| policies.has_traffic_policy(course))
                && target.checks.is_none()
        };
        self.filters.is_none() && self.targets.iter().all(has_only)
    }

    /// The addresses of its policies, some of them several times.
    pub(super) fn policies(&self) -> impl Iterator<Item = usize> {
        self.targets.iter().flat_map(|target| {
            let guard = target.guard.iter();
            let security =
                guard.clone().filter_map(|guard| guard.security.as_ref()).map(|of| Arc::as_ptr(of).addr());
            let limits = guard.filter_map(|guard| guard.limits.as_ref()).map(|of| Arc::as_ptr(of).addr());
            let course = target.course.iter().map(|course| Arc::as_ptr(&course.policy).addr());
            security.chain(limits).chain(course)
        })
    }

    /// Whether this host was compiled from exactly `source`.
    pub(super) fn is_of(&self, source: &Arc<VirtualHost>) -> bool {
        Arc::ptr_eq(&self.source, source)
    }

    /// The rules with their matches and targets.
    fn matches(&self) -> impl Iterator<Item = (&Rule, &RuleMatch, &Target)> {
        matches(&self.source).zip(&self.targets).map(|((rule, of), target)| (rule, of, target))
    }

    /// The counters of the routes.
    pub(crate) fn stats(&self) -> impl Iterator<Item = (RouteLabels, &Arc<RouteStats>)> {
        self.matches().map(|(rule, of, target)| {
            let labels = RouteLabels {
                id: Some(rule.id.clone()),
                host: self.source.host.to_string().into(),
                path: of.path.as_str().into(),
                upstream: upstream_of(rule).cloned(),
            };
            (labels, &target.stats)
        })
    }
}

/// The matches of all rules of a host, and the first match of the fallback.
fn matches(host: &VirtualHost) -> impl Iterator<Item = (&Rule, &RuleMatch)> {
    let of_rules = host.rules.iter().flat_map(|rule| rule.matches.iter().map(move |of| (rule, of)));
    let of_fallback =
        host.fallback.iter().flat_map(|rule| rule.matches.iter().take(1).map(move |of| (rule, of)));
    of_rules.chain(of_fallback)
}

/// Whether a match accepts every request.
fn takes_all(of: &RuleMatch) -> bool {
    let is_root = match &of.path {
        PathMatch::Literal(PathPattern::Prefix(path) | PathPattern::Starts(path)) => &**path == "/",
        PathMatch::Literal(PathPattern::Exact(_)) | PathMatch::Regex(_) | PathMatch::Template(_) => false,
    };
    is_root && of.is_path_alone()
}

/// The label of a match's counters. Matches that differ only in conditions other than the path share counters.
type Label<'h> = (&'h ObjectId, &'h str, Option<&'h UpstreamKey>);

fn label<'h>(rule: &'h Rule, of: &'h RuleMatch) -> Label<'h> {
    (&rule.id, of.path.as_str(), upstream_of(rule))
}

/// The upstream of a rule with one backend.
fn upstream_of(rule: &Rule) -> Option<&UpstreamKey> {
    match &rule.backends[..] {
        [backend] => Some(&backend.upstream),
        _ => None,
    }
}

/// Compiles the hosts of a table.
pub(super) struct Compiler<'a, S> {
    settings: &'a Settings,
    resources: &'a Resources,
    slot: S,
    /// The number of routes so far.
    routes: usize,
    /// The policies of the previous table, and whether that table had the same settings.
    old_policies: (&'a Policies, bool),
    policies: Policies,
}

impl<'a, S: Fn(&UpstreamKey) -> usize> Compiler<'a, S> {
    /// A compiler after `routes` other routes.
    pub(super) fn new(
        settings: &'a Settings,
        resources: &'a Resources,
        slot: S,
        old_policies: (&'a Policies, bool),
        routes: usize,
    ) -> Self {
        Self { settings, resources, slot, routes, old_policies, policies: Policies::default() }
    }

    /// The policies of all routes, and the number of routes.
    pub(super) fn finish(self) -> (Policies, usize) {
        (self.policies, self.routes)
    }

    /// Whether a host of the previous table is unchanged, so that the new table can share the host.
    pub(super) fn takes_over(&mut self, host: &Host) -> bool {
        let is_same = host.matches().all(|(rule, _, target)| {
            target.backends.are_in_place(rule, &self.slot)
                && target.course.as_ref().is_none_or(|course| course.is_in_place(&self.slot))
                && target.guard.as_ref().is_none_or(|guard| guard.is_in_place(&self.slot))
                && !(self.resources.counters.is_overflow(&target.stats)
                    && self.resources.counters.has_room(self.routes))
        }) && host.filters().is_none_or(|filters| filters.is_in_place(&self.slot));
        if is_same {
            self.routes += host.targets.len();
            let guards = host.targets.iter().filter_map(|target| target.guard.as_deref());
            guards.chain(host.filters()).for_each(|guard| {
                self.policies.adopt(guard);
            });
            host.targets.iter().filter_map(|target| target.course.as_deref()).for_each(|course| {
                self.policies.adopt_traffic_policy(course);
            });
            host.targets.iter().filter_map(|target| target.checks.as_deref()).for_each(|checks| {
                self.policies.apis.adopt(checks);
            });
        }
        is_same
    }

    /// Compiles a host. Routes that exist in one of the hosts `before` retain their counters.
    pub(super) fn compile<'h>(
        &mut self,
        source: &Arc<VirtualHost>,
        before: impl Iterator<Item = &'h Arc<Host>>,
    ) -> Host {
        let mut stats: HashMap<_, Arc<RouteStats>> = before
            .flat_map(|host| host.matches())
            .filter(|(_, _, target)| !self.resources.counters.is_overflow(&target.stats))
            .map(|(rule, of, target)| (label(rule, of), target.stats.clone()))
            .collect();
        let (mut paths, mut regexes) = (Vec::with_capacity(source.rules.len()), Vec::new());
        let mut targets = Vec::with_capacity(source.rules.len() + 1);
        let mut places = Vec::with_capacity(source.rules.len());
        let numbered = (0..).zip(&source.rules).flat_map(|(at, rule)| {
            let matches = (0..).zip(&rule.matches);
            matches.map(move |(of_rule, of)| ((at, of_rule), rule, of))
        });
        for (place, rule, of) in numbered {
            places.push(place);
            let order = of.precedence.min(Entry::LAST - 1);
            let entry = Entry { order, target: number(targets.len()), conditions: Conditions::of(of) };
            match &of.path {
                PathMatch::Literal(pattern) => paths.push((PathKey::from(pattern), entry)),
                PathMatch::Template(template) => paths.push((PathKey::from(template), entry)),
                PathMatch::Regex(pattern) => regexes.push((pattern.clone(), entry)),
            }
            targets.push(self.target(&source.host, (rule, of), &mut stats));
        }
        let fallback = source.fallback.as_ref().and_then(|rule| Some((rule, rule.matches.first()?)));
        let fallback = fallback.map(|fallback| {
            targets.push(self.target(&source.host, fallback, &mut stats));
            number(targets.len() - 1)
        });
        let takes_all = fallback.is_some() || matches(source).any(|(_, of)| takes_all(of));
        let (paths, regexes) = (PathTree::new(paths), Regexes::new(regexes));
        let has_guard = |target: &Target| target.guard.as_ref().is_some_and(|guard| guard.security.is_some());
        let is_guarded = targets.iter().any(has_guard);
        let filters = source.filters.as_ref();
        let filters = filters
            .map(|source| self.policies.filters(source, self.old_policies.0, self.resources, &self.slot));
        let logins = login_paths(source, &targets, &places);
        let is_placed = source.upstreams().all(|upstream| (self.slot)(upstream) != slot::NONE);
        let source = source.clone();
        Host {
            is_placed,
            logins,
            source,
            paths,
            regexes,
            targets,
            places,
            fallback,
            takes_all,
            is_guarded,
            filters,
        }
    }

    fn target<'r>(
        &mut self,
        host: &HostPattern,
        (rule, of): (&'r Rule, &'r RuleMatch),
        stats: &mut HashMap<Label<'r>, Arc<RouteStats>>,
    ) -> Target {
        let has_series = self.settings.nginx_controller.is_some() && rule.id.kind == "Ingress";
        let new = || self.resources.counters.new_route(self.routes, has_series);
        let stats = stats.entry(label(rule, of)).or_insert_with(new);
        if stats.has_series() != has_series && !self.resources.counters.is_overflow(stats) {
            *stats = new();
        }
        self.routes += 1;
        Target {
            id: rule.id.clone(),
            backends: Backends::new(rule, &of.path, &self.slot),
            https_only: rule.https_only,
            https_redirect: rule.https_redirect,
            client_auth: rule.client_auth.clone(),
            compression: Some(rule.compression.as_ref().unwrap_or(&self.settings.compression.codings))
                .filter(|codings| !codings.is_off())
                .cloned(),
            guard: self.policies.guard(host, rule, self.old_policies.0, self.resources, &self.slot),
            course: self.policies.course(
                (rule, &of.path),
                self.old_policies,
                (self.resources, self.settings),
                &self.slot,
            ),
            stats: stats.clone(),
            checks: self.policies.apis.checks(rule, &self.old_policies.0.apis, &self.resources.counters),
            // The contract is a part of the checks.
            api: rule.api.as_ref().map(|api| Box::new(ApiOperation { checks: None, ..(**api).clone() })),
        }
    }
}

/// The paths of the logins of a host. The first of several policies with the same path has the path.
fn login_paths(source: &VirtualHost, targets: &[Target], places: &[(u32, u32)]) -> Vec<LoginPath> {
    let mut rules = source.rules.iter().chain(&source.fallback).map(|rule| &rule.id.namespace);
    let first = rules.next();
    let comes_first = rules.all(|namespace| Some(namespace) == first);
    let mut logins: Vec<LoginPath> = Vec::new();
    for (target, _) in (0..).zip(places) {
        let guard = targets.get(target as usize).and_then(|target| target.guard.as_deref());
        for path in guard.into_iter().flat_map(Guard::login_paths) {
            if logins.iter().all(|known| *known.path != *path.as_bytes()) {
                logins.push(LoginPath { path: path.as_bytes().into(), target, comes_first });
            }
        }
    }
    logins
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
