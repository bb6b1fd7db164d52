//! One host of the routing table.

use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::rule::{PathMatch, RuleMatch};
use sluicegate_model::{
    ClientAuth, Codings, HostPattern, PathPattern, RouteId, Rule, Settings, UpstreamKey, VirtualHost,
};

use super::conditions::{Conditions, RequestView};
use super::regexes::Regexes;
use super::tree::{Entry, PathTree};
use crate::policy::traffic::Course;
use crate::policy::{Guard, Policies};
use crate::telemetry::{RouteLabels, RouteStats, Telemetry};

/// A host and its rules, which tables share as long as it stays.
#[derive(Debug)]
pub(crate) struct Host {
    source: Arc<VirtualHost>,
    paths: PathTree,
    regexes: Regexes,
    /// One for each match of each rule in their order, and behind them that of the fallback.
    targets: Vec<Target>,
    /// Beside the targets: the number of the rule, and of the match in it.
    places: Vec<(u32, u32)>,
    fallback: Option<u32>,
    /// Whether every request meets a match, or goes to the fallback.
    takes_all: bool,
    /// Whether a policy says who may call one of its routes.
    is_guarded: bool,
}

/// Where a match of a rule leads.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) id: RouteId,
    /// The slot of its upstream in every worker.
    pub(crate) upstream: usize,
    /// Whether clients that come over plain HTTP are sent to HTTPS.
    pub(crate) https_only: bool,
    /// The policy for certificates of clients that a connection must have been opened under.
    pub(crate) client_auth: Option<Arc<ClientAuth>>,
    /// The codings for its responses; `None`: they are not compressed.
    pub(crate) compression: Option<Codings>,
    /// Who may call it, and how often.
    pub(crate) guard: Option<Box<Guard>>,
    /// How its requests go on, if that is special.
    pub(crate) course: Option<Box<Course>>,
    pub(crate) stats: Arc<RouteStats>,
}

impl Host {
    /// The number of the target of a request, whose path is in normal form.
    pub(super) fn find(&self, path: &[u8], request: RequestView<'_>) -> Option<u32> {
        let found = self.paths.find(path, request, None);
        let found = self.regexes.find(path, request, found);
        found.map(|entry| entry.target).or(self.fallback)
    }

    pub(super) fn target(&self, route: u32) -> &Target {
        &self.targets[route as usize]
    }

    /// The condition on the path that leads to a target; the fallback has none.
    pub(super) fn path(&self, route: u32) -> Option<&PathMatch> {
        let (rule, of) = self.places.get(route as usize)?;
        Some(&self.source.rules[*rule as usize].matches[*of as usize].path)
    }

    /// Whether no request for the host goes to the default rule.
    pub(super) fn takes_all(&self) -> bool {
        self.takes_all
    }

    /// Whether a policy says who may call one of its routes.
    pub(super) fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Whether it was compiled of this very host.
    pub(super) fn is_of(&self, source: &Arc<VirtualHost>) -> bool {
        Arc::ptr_eq(&self.source, source)
    }

    /// Its rules by their matches, each with where the match leads.
    fn matches(&self) -> impl Iterator<Item = (&Rule, &RuleMatch, &Target)> {
        matches(&self.source).zip(&self.targets).map(|((rule, of), target)| (rule, of, target))
    }

    /// The counters of its routes.
    pub(crate) fn stats(&self) -> impl Iterator<Item = (RouteLabels, &Arc<RouteStats>)> {
        self.matches().map(|(rule, of, target)| {
            let labels = RouteLabels {
                id: Some(rule.id.clone()),
                host: self.source.host.to_string().into(),
                path: of.path.as_str().into(),
                upstream: Some(rule.upstream.clone()),
            };
            (labels, &target.stats)
        })
    }
}

/// The matches of all rules of a host, and the first one of its fallback.
fn matches(host: &VirtualHost) -> impl Iterator<Item = (&Rule, &RuleMatch)> {
    let of_rules = host.rules.iter().flat_map(|rule| rule.matches.iter().map(move |of| (rule, of)));
    let of_fallback =
        host.fallback.iter().flat_map(|rule| rule.matches.iter().take(1).map(move |of| (rule, of)));
    of_rules.chain(of_fallback)
}

/// Whether a match takes every request.
fn takes_all(of: &RuleMatch) -> bool {
    let is_root = match &of.path {
        PathMatch::Literal(PathPattern::Prefix(path) | PathPattern::Starts(path)) => &**path == "/",
        PathMatch::Literal(PathPattern::Exact(_)) | PathMatch::Regex(_) => false,
    };
    is_root && of.is_path_alone()
}

/// What tells the counters of one match of a host from those of another. Matches that differ in other conditions than the path
/// share counters.
fn label<'h>(rule: &'h Rule, of: &'h RuleMatch) -> (&'h RouteId, &'h str, &'h UpstreamKey) {
    (&rule.id, of.path.as_str(), &rule.upstream)
}

/// Compiles the hosts of a table.
pub(super) struct Compiler<'a, S> {
    settings: &'a Settings,
    telemetry: &'a Telemetry,
    slot: S,
    /// How many routes there are so far.
    routes: usize,
    /// Those of the table before, and whether its settings were the same.
    old_policies: (&'a Policies, bool),
    policies: Policies,
}

impl<'a, S: Fn(&UpstreamKey) -> usize> Compiler<'a, S> {
    pub(super) fn new(
        settings: &'a Settings,
        telemetry: &'a Telemetry,
        slot: S,
        old_policies: (&'a Policies, bool),
    ) -> Self {
        Self { settings, telemetry, slot, routes: 0, old_policies, policies: Policies::default() }
    }

    /// The policies of all routes.
    pub(super) fn into_policies(self) -> Policies {
        self.policies
    }

    /// Whether a host of the table before is as it would be compiled now.
    pub(super) fn takes_over(&mut self, host: &Host) -> bool {
        let is_same = host.matches().all(|(rule, _, target)| {
            target.upstream == (self.slot)(&rule.upstream)
                && target.course.as_ref().is_none_or(|course| course.is_in_place(&self.slot))
                && !self.telemetry.is_overflow(&target.stats)
        });
        if is_same {
            self.routes += host.targets.len();
            host.targets.iter().filter_map(|target| target.guard.as_deref()).for_each(|guard| {
                self.policies.adopt(guard);
            });
            host.targets.iter().filter_map(|target| target.course.as_deref()).for_each(|course| {
                self.policies.adopt_course(course);
            });
        }
        is_same
    }

    /// Compiles a host. Routes that were in one of the hosts `before` keep its counters.
    pub(super) fn compile<'h>(
        &mut self,
        source: &Arc<VirtualHost>,
        before: impl Iterator<Item = &'h Arc<Host>>,
    ) -> Host {
        let mut stats: HashMap<_, Arc<RouteStats>> = before
            .flat_map(|host| host.matches())
            .filter(|(_, _, target)| !self.telemetry.is_overflow(&target.stats))
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
                PathMatch::Literal(pattern) => paths.push((pattern, entry)),
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
        Host { source: source.clone(), paths, regexes, targets, places, fallback, takes_all, is_guarded }
    }

    fn target<'r>(
        &mut self,
        host: &HostPattern,
        (rule, of): (&'r Rule, &'r RuleMatch),
        stats: &mut HashMap<(&'r RouteId, &'r str, &'r UpstreamKey), Arc<RouteStats>>,
    ) -> Target {
        let stats = stats.entry(label(rule, of)).or_insert_with(|| self.telemetry.new_route(self.routes));
        self.routes += 1;
        Target {
            id: rule.id.clone(),
            upstream: (self.slot)(&rule.upstream),
            https_only: rule.https_only,
            client_auth: rule.client_auth.clone(),
            compression: Some(rule.compression.as_ref().unwrap_or(&self.settings.compression.codings))
                .filter(|codings| !codings.is_off())
                .cloned(),
            guard: self.policies.guard(host, rule, self.old_policies.0, self.telemetry),
            course: self.policies.course(
                (rule, &of.path),
                self.old_policies,
                (self.telemetry, self.settings),
                &self.slot,
            ),
            stats: stats.clone(),
        }
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
