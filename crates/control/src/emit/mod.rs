//! From merged intents to the model.
//!
//! | module | content |
//! |---|---|
//! | [`rule`] | hosts and rules, with the policies of each rule |
//! | [`slash`] | paths that a policy guards with a final slash, but not without it |
//! | [`tls`] | the certificates of options |
//! | [`backend`] | the upstreams that objects name |

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_model::{Config, Tls};

use crate::intent::Intents;
use crate::merge::Merged;
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::{TranslateOptions, Translation};

mod backend;
mod rule;
mod slash;
mod tls;

/// Emits the configuration from the merged intents for HTTP and TLS, and the other intents. `of_options` are the problems
/// with options.
pub(crate) fn emit(
    store: &Store,
    options: &TranslateOptions,
    others: Intents<'_>,
    merged: Merged<'_, '_>,
    of_options: Vec<Problem>,
) -> Translation {
    let Merged { passthrough, tls, rules, mut policies } = merged;
    let emitted = rule::emit(&rules, &tls, &mut policies);
    let mut problems = Vec::new();
    let tls_hosts = tls.hosts(&passthrough);
    problems.extend(tls.problems);
    let mut config = Config {
        settings: options.settings.clone(),
        hosts: emitted.hosts,
        default_rule: emitted.default_rule,
        listeners: others.listeners,
        consumers: Vec::new(),
        tls: Arc::new(Tls {
            hosts: tls_hosts,
            passthrough: passthrough.routes(),
            default: tls::default_certificate(store, options, &mut problems).into_iter().collect(),
            ticket_secrets: tls::ticket_secrets(store, options, &mut problems),
        }),
        upstreams: BTreeMap::new(),
    };
    let of_policies = policies.finish(store, &config);
    config.consumers = of_policies.consumers;
    problems.extend(of_policies.problems);
    problems.extend(of_options);
    problems.extend(rules.problems);
    problems.extend(emitted.problems);
    problems.extend(others.problems);
    problems.extend(passthrough.problems);
    let mut references = rules.references;
    references.extend(emitted.references);
    references.extend(others.references);
    references.extend(passthrough.references);
    references.extend(of_policies.references);
    let mut translation = Translation {
        config,
        problems,
        foreign: others.foreign,
        policy_statuses: of_policies.policy_statuses,
        ..Translation::default()
    };
    backend::resolve(store, &references, &of_policies.upstreams, &mut translation);
    backend::report_unusable_proxy_protocol(store, &mut translation);
    translation
}
