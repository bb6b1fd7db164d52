//! From merged intents to the model.
//!
//! | module | content |
//! |---|---|
//! | [`alias`] | further names of hosts of Ingresses |
//! | [`rule`] | hosts and rules of Ingresses, with the policies of each rule |
//! | [`http_route`] | hosts and rules of HTTPRoutes and GRPCRoutes |
//! | [`slash`] | paths that a policy guards with a final slash, but not without it |
//! | [`tls`] | the certificates of options |
//! | [`backend`] | the upstreams that objects name |

use std::sync::Arc;

use sluicegate_model::{Config, Tls, Upstreams};

use crate::frontend::gateway::service::{self, Placement};
use crate::intent::Intents;
use crate::merge::Merged;
use crate::merge::policy::standing::{Reason, Standing};
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::{TranslateOptions, Translation};

mod alias;
mod backend;
mod http_route;
mod rule;
mod slash;
mod tls;

/// Emits the configuration, with the problems of options and of intents.
pub(crate) fn emit(
    store: &Store,
    options: &TranslateOptions,
    merged: Merged<'_, '_>,
    intents: &Intents<'_>,
    of_options: Vec<Problem>,
    of_intents: Vec<Problem>,
) -> Translation {
    let Merged { listeners, passthrough, tls, acme, rules, mut policies } = merged;
    let mut emitted = rule::emit(&rules, &tls, &mut policies);
    let mut problems = Vec::new();
    let mut tls_hosts = tls.hosts(&passthrough);
    alias::add(&intents.aliases, &mut emitted.hosts, &mut tls_hosts, &mut problems);
    let of_routes = http_route::emit(&listeners.hosts, intents, &emitted.hosts, &mut policies);
    emitted.hosts.extend(of_routes);
    // Other parts compare configurations in this order.
    emitted.hosts.sort_unstable_by(|one, other| one.key().cmp(&other.key()));
    tls_hosts.extend(listeners.tls_hosts);
    tls_hosts.sort_unstable_by(|one, other| one.key().cmp(&other.key()));
    problems.extend(tls.problems);
    problems.extend(acme.problems);
    let mut passed = passthrough.routes();
    passed.extend(listeners.passthrough);
    let own =
        intents.gateways.iter().filter(|gateway| gateway.placement.as_ref().is_some_and(Placement::has_own));
    let of_acme = crate::acme::emit(store, &options.acme, acme.wished);
    let mut config = Config {
        settings: options.settings.clone(),
        hosts: emitted.hosts,
        default_rule: emitted.default_rule,
        listeners: listeners.listeners,
        consumers: Vec::new(),
        tls: Arc::new(Tls {
            hosts: tls_hosts,
            passthrough: passed,
            acme: of_acme.hosts,
            default: tls::default_certificate(store, options, &mut problems).into_iter().collect(),
            ticket_secrets: tls::ticket_secrets(store, options, &mut problems),
        }),
        upstreams: Upstreams::default(),
        own_scopes: own.map(|gateway| service::scope(gateway.at.object)).collect(),
    };
    let of_policies = policies.finish(store, &config);
    config.consumers = of_policies.consumers;
    problems.extend(of_policies.problems);
    problems.extend(of_options);
    problems.extend(rules.problems);
    problems.extend(emitted.problems);
    problems.extend(of_intents);
    problems.extend(listeners.problems);
    problems.extend(passthrough.problems);
    let mut references = rules.references;
    references.extend(emitted.references);
    references.extend(listeners.references);
    references.extend(passthrough.references);
    references.extend(of_policies.references);
    let mut translation = Translation {
        config,
        problems,
        policy_statuses: of_policies
            .policy_statuses
            .into_iter()
            .chain(intents.standings.iter().map(|standing| {
                let fault = of_policies.api_faults.get(&standing.object);
                match fault.filter(|_| standing.reason == Reason::Accepted) {
                    Some(fault) => {
                        Standing { reason: Reason::Invalid, message: fault.clone(), ..standing.clone() }
                    }
                    None => standing.clone(),
                }
            }))
            .collect(),
        acme: of_acme.translated,
        ..Translation::default()
    };
    let governed = (&of_policies.upstreams, &intents.backend_traffic);
    backend::resolve(store, &references, governed, &mut translation);
    backend::report_unusable_proxy_protocol(store, &mut translation);
    translation
}
