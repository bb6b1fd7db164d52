//! The one place that resolves conflicts between objects: the oldest object has precedence, or the first by
//! name.
//!
//! | module | content |
//! |---|---|
//! | [`rule`] | the owner of each host, and of each match of a host |
//! | [`tls`] | certificates and client certificates of hosts |
//! | [`listener`] | the owner of each socket, and the routes that are in service there |
//! | [`passthrough`] | TLS passthrough of HTTPS listeners |
//! | [`policy`] | the policies of each rule, and the Consumers |

use crate::backend_tls::BackendTlsVerdict;
use crate::intent::Intents;
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::TranslateOptions;
use policy::Policies;

pub(crate) mod listener;
mod passthrough;
pub(crate) mod policy;
pub(crate) mod rule;
pub(crate) mod tls;

/// The intents after all conflicts are decided.
pub(crate) struct Merged<'i, 'a> {
    pub(crate) listeners: listener::Merged<'a>,
    pub(crate) passthrough: passthrough::Merged<'a>,
    pub(crate) tls: tls::Merged,
    pub(crate) rules: rule::Merged<'i, 'a>,
    /// The policies, which each rule looks up by its origin and its upstream.
    pub(crate) policies: Policies<'a>,
    /// The state of BackendTLSPolicies, and their problems.
    pub(crate) backend_tls: (Vec<BackendTlsVerdict>, Vec<Problem>),
}

/// Merges all intents.
pub(crate) fn merge<'i, 'a>(
    store: &'a Store,
    intents: &'i Intents<'a>,
    options: &TranslateOptions,
) -> Merged<'i, 'a> {
    let http = &intents.http;
    let mut listeners = listener::merge(&intents.listeners, &intents.layer4, &intents.http_routes);
    let passthrough = passthrough::merge(http, std::mem::take(&mut listeners.claims));
    let tls = tls::merge(http, &passthrough, options.ssl_redirect);
    let backend_tls = intents.backend_tls.verdicts(store, &intents.http_routes, &intents.listeners);
    let (rules, policies) = (rule::merge(http), Policies::new(store, http));
    Merged { listeners, passthrough, tls, rules, policies, backend_tls }
}
