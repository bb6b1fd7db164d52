//! The dialects: from the objects of a store to their intents ([`intent`](crate::intent)).
//!
//! | module | content |
//! |---|---|
//! | [`ingress`] | Ingresses |
//! | [`nginx`] | Ingresses of ingress-nginx |
//! | [`api`] | Apis by OpenAPI documents |
//! | [`gateway`] | Gateways and their routes below HTTP |
//! | [`certificate`] | the certificates of Secrets |

use crate::intent::Intents;
use crate::store::Store;
use crate::translate::TranslateOptions;

pub(crate) mod api;
pub(crate) mod certificate;
pub(crate) mod gateway;
pub(crate) mod ingress;
pub(crate) mod nginx;

/// The intents of all objects that the gateway serves.
pub(crate) fn intents<'a>(store: &'a Store, options: &'a TranslateOptions) -> Intents<'a> {
    let mut intents = Intents::default();
    ingress::ask(store, options, &mut intents);
    api::ask(store, &options.documents, &mut intents);
    gateway::ask(store, options, &mut intents);
    nginx::services::ask(store, options, &mut intents);
    intents
}
