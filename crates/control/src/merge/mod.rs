//! The one place that resolves conflicts between objects: the oldest object has precedence, or the first by
//! name.
//!
//! | module | content |
//! |---|---|
//! | [`rule`] | the owner of each host, and of each match of a host |
//! | [`tls`] | certificates and client certificates of hosts |
//! | [`acme`] | the certificates that objects ask an ACME server for |
//! | [`listener`] | the owner of each socket, and the routes that are in service there |
//! | [`gateway_status`] | the status of GatewayClasses, Gateways and their routes |
//! | [`passthrough`] | TLS passthrough of HTTPS listeners |
//! | [`policy`] | the policies of each rule, and the Consumers |

use crate::intent::Intents;
use crate::store::Store;
use crate::translate::TranslateOptions;
use policy::Policies;

pub(crate) mod acme;
pub(crate) mod gateway_status;
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
    pub(crate) acme: acme::Merged,
    pub(crate) rules: rule::Merged<'i, 'a>,
    /// The policies, which each rule looks up by its origin and its upstream.
    pub(crate) policies: Policies<'a>,
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
    let acme = acme::merge(store, intents, &passthrough, &options.acme);
    let policies = Policies::new(store, intents);
    Merged { listeners, passthrough, tls, acme, rules: rule::merge(http), policies }
}
