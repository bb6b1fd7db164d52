//! Hosts and rules, with the policies of each rule.

use std::sync::Arc;

use sluicegate_model::rule::{Backend, RuleMatch};
use sluicegate_model::{HostPattern, PathPattern, Rule, UpstreamKey, VirtualHost};

use super::slash;
use crate::intent::{Intent, OfApi, Own, Place, Reference};
use crate::merge::policy::Policies;
use crate::merge::{rule, tls};
use crate::problem::Problem;

/// The hosts and rules of a configuration.
#[derive(Default)]
pub(super) struct Emitted<'a> {
    /// In the order of their patterns.
    pub(super) hosts: Vec<Arc<VirtualHost>>,
    pub(super) default_rule: Option<Rule>,
    pub(super) problems: Vec<Problem>,
    /// The upstreams of fallbacks.
    pub(super) references: Vec<Reference<'a>>,
}

/// Emits the hosts.
pub(super) fn emit<'a>(
    merged: &rule::Merged<'_, 'a>,
    tls: &tls::Merged,
    policies: &mut Policies<'_>,
) -> Emitted<'a> {
    let mut emitted = Emitted::default();
    let mut emitting = Emitting { tls, policies };
    let mut hosts = Vec::with_capacity(merged.hosts.len());
    for (pattern, host) in &merged.hosts {
        let rules = host.rules.iter();
        let rules: Vec<Rule> = rules
            .map(|won| {
                let (own, upstream) = (won.rule.own.as_deref(), won.rule.upstream.as_ref());
                let of_api = won.rule.api.as_deref();
                let rule = emitting.rule(won.intent, own, pattern, won.of.clone(), upstream, of_api);
                let subscriptions = of_api.and_then(|of| of.subscriptions.clone());
                Rule { api: of_api.map(|of| Box::new(of.operation.clone())), subscriptions, ..rule }
            })
            .collect();
        let asked = host.rules.iter().filter_map(|won| auth_service(won.intent, won.rule.own.as_deref()));
        emitted.references.extend(asked);
        slash::warn_of_variants(&rules, &host.rules, &mut emitted.problems);
        hosts.push((*pattern, host.owner, rules));
    }
    emitted.default_rule = merged
        .default
        .and_then(|intent| emitting.fallback(intent, &HostPattern::Any, &mut emitted.references));
    for (pattern, owner, rules) in hosts {
        let fallback = emitting.fallback(owner, pattern, &mut emitted.references);
        let decodes_slashes = fallback.iter().chain(&rules).any(is_of_nginx);
        let host = VirtualHost { fallback, decodes_slashes, ..VirtualHost::new(pattern.clone(), rules) };
        emitted.hosts.push(Arc::new(host));
    }
    emitted
}

/// Whether a rule is of an Ingress of ingress-nginx.
fn is_of_nginx(rule: &Rule) -> bool {
    rule.traffic.as_ref().is_some_and(|traffic| traffic.features.endpoint_form.nginx.is_some())
}

/// The Service that decides about the requests of a rule, if the object itself names it.
fn auth_service<'a>(intent: &Intent<'a>, own: Option<&Own>) -> Option<Reference<'a>> {
    let upstream = own?.security.as_ref()?.ext_auth_upstream()?.clone();
    let place = Place::Annotation("nginx.ingress.kubernetes.io/auth-url");
    Some(Reference { at: intent.at, place, upstream })
}

/// The settings that rules look up.
struct Emitting<'e, 'p> {
    tls: &'e tls::Merged,
    policies: &'e mut Policies<'p>,
}

impl Emitting<'_, '_> {
    fn rule(
        &mut self,
        intent: &Intent<'_>,
        own: Option<&Own>,
        host: &HostPattern,
        of: RuleMatch,
        upstream: Option<&UpstreamKey>,
        of_api: Option<&OfApi>,
    ) -> Rule {
        let attached = self.policies.govern(intent, own, upstream, of_api);
        let https = own.map_or(intent.https, |own| own.https);
        Rule {
            id: intent.at.id(),
            matches: vec![of],
            backends: upstream.cloned().map(Backend::new).into_iter().collect(),
            https_only: self.tls.is_https_only(intent, https, host),
            https_redirect: https.redirect,
            client_auth: intent.client_auth.as_ref().map(|auth| auth.policy.clone()),
            compression: intent.compression.cloned(),
            security: attached.security,
            rate_limits: attached.rate_limits,
            traffic: attached.traffic,
            api: None,
            subscriptions: None,
        }
    }

    /// The rule of all paths to the default of an object.
    fn fallback<'a>(
        &mut self,
        intent: &Intent<'a>,
        host: &HostPattern,
        references: &mut Vec<Reference<'a>>,
    ) -> Option<Rule> {
        let of = RuleMatch::path(PathPattern::Prefix("/".into()));
        let Some(upstream) = &intent.default else {
            let own = intent.unmatched.as_deref()?;
            return Some(self.rule(intent, Some(own), host, of, None, None));
        };
        let rule = self.rule(intent, intent.own.as_deref(), host, of, Some(upstream), None);
        references.extend(auth_service(intent, intent.own.as_deref()));
        let place = Place::DefaultBackend;
        references.push(Reference { at: intent.at, place, upstream: upstream.clone() });
        Some(rule)
    }
}
