//! The one place that decides conflicts between objects for HTTP and TLS: the oldest object has precedence, or the first
//! by name. [`frontend::gateway`](crate::frontend::gateway) decides conflicts between listeners and between their routes
//! below HTTP, because a route attaches to listeners that are served.
//!
//! | module | content |
//! |---|---|
//! | [`rule`] | the owner of each host, and of each match of a host |
//! | [`tls`] | certificates and client certificates of hosts |
//! | [`passthrough`] | TLS passthrough of HTTPS listeners |
//! | [`policy`] | the policies of each rule, and the Consumers |

use crate::intent::{Claim, Intent};
use crate::store::Store;
use crate::translate::TranslateOptions;
use policy::Policies;

mod passthrough;
pub(crate) mod policy;
pub(crate) mod rule;
pub(crate) mod tls;

/// What remains of the intents after all conflicts.
pub(crate) struct Merged<'i, 'a> {
    pub(crate) passthrough: passthrough::Merged<'a>,
    pub(crate) tls: tls::Merged,
    pub(crate) rules: rule::Merged<'i, 'a>,
    /// The policies, which each rule looks up by its origin and its upstream.
    pub(crate) policies: Policies<'a>,
}

/// Merges the intents for HTTP and TLS.
pub(crate) fn merge<'i, 'a>(
    store: &'a Store,
    http: &'i [Intent<'a>],
    claims: Vec<Claim<'a>>,
    options: &TranslateOptions,
) -> Merged<'i, 'a> {
    let passthrough = passthrough::merge(http, claims);
    let tls = tls::merge(http, &passthrough, options.ssl_redirect);
    Merged { passthrough, tls, rules: rule::merge(http), policies: Policies::new(store, http) }
}
