//! One host of the routing table.

use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::{
    ClientAuth, Codings, HostPattern, Route, RouteId, Settings, UpstreamKey, VirtualHost,
};

use super::tree::PathTree;
use crate::policy::traffic::Course;
use crate::policy::{Guard, Policies};
use crate::telemetry::{RouteLabels, RouteStats, Telemetry};

/// A host and its routes, which tables share as long as it stays.
#[derive(Debug)]
pub(crate) struct Host {
    source: Arc<VirtualHost>,
    paths: PathTree,
    /// Of its routes in their order, and behind them of its fallback.
    targets: Vec<Target>,
    fallback: Option<u32>,
    /// Whether a policy says who may call one of its routes.
    is_guarded: bool,
}

/// Where a route leads.
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
    /// The number of the route for a path in normal form.
    pub(super) fn find(&self, path: &[u8]) -> Option<u32> {
        self.paths.find(path).or(self.fallback)
    }

    pub(super) fn target(&self, route: u32) -> &Target {
        &self.targets[route as usize]
    }

    /// The pattern of a route's paths, which its fallback has none of.
    pub(super) fn pattern(&self, route: u32) -> Option<&str> {
        self.source.routes.get(route as usize).map(|route| route.path.as_str())
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

    /// Its routes, each with where it leads.
    fn routes(&self) -> impl Iterator<Item = (&Route, &Target)> {
        self.source.routes.iter().chain(&self.source.fallback).zip(&self.targets)
    }

    /// The counters of its routes.
    pub(crate) fn stats(&self) -> impl Iterator<Item = (RouteLabels, &Arc<RouteStats>)> {
        self.routes().map(|(route, target)| {
            let labels = RouteLabels {
                id: Some(route.id.clone()),
                host: self.source.host.to_string().into(),
                path: route.path.as_str().into(),
                upstream: Some(route.upstream.clone()),
            };
            (labels, &target.stats)
        })
    }
}

/// What tells the counters of one route of a host from another's.
fn label(route: &Route) -> (&RouteId, &str, &UpstreamKey) {
    (&route.id, route.path.as_str(), &route.upstream)
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
        let is_same = host.routes().all(|(route, target)| {
            target.upstream == (self.slot)(&route.upstream)
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
            .flat_map(|host| host.routes())
            .filter(|(_, target)| !self.telemetry.is_overflow(&target.stats))
            .map(|(route, target)| (label(route), target.stats.clone()))
            .collect();
        let mut paths = PathTree::new();
        let mut targets = Vec::with_capacity(source.routes.len() + 1);
        for route in &source.routes {
            paths.insert(&route.path, number(targets.len()));
            targets.push(self.target(&source.host, route, &mut stats));
        }
        let fallback = source.fallback.as_ref().map(|route| {
            targets.push(self.target(&source.host, route, &mut stats));
            number(targets.len() - 1)
        });
        let has_guard = |target: &Target| target.guard.as_ref().is_some_and(|guard| guard.security.is_some());
        let is_guarded = targets.iter().any(has_guard);
        Host { source: source.clone(), paths, targets, fallback, is_guarded }
    }

    fn target<'r>(
        &mut self,
        host: &HostPattern,
        route: &'r Route,
        stats: &mut HashMap<(&'r RouteId, &'r str, &'r UpstreamKey), Arc<RouteStats>>,
    ) -> Target {
        let stats = stats.entry(label(route)).or_insert_with(|| self.telemetry.new_route(self.routes));
        self.routes += 1;
        Target {
            id: route.id.clone(),
            upstream: (self.slot)(&route.upstream),
            https_only: route.https_only,
            client_auth: route.client_auth.clone(),
            compression: Some(route.compression.as_ref().unwrap_or(&self.settings.compression.codings))
                .filter(|codings| !codings.is_off())
                .cloned(),
            guard: self.policies.guard(host, route, self.old_policies.0, self.telemetry),
            course: self.policies.course(
                route,
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
