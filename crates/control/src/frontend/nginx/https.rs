//! Redirects to HTTPS.

use std::sync::Arc;

use super::Context;
use crate::intent::{Https, Own};
use crate::object::ingress::RulePath;

/// The paths that are never redirected (ingress-nginx `no-tls-redirect-locations`): ACME challenges come over plain HTTP.
const ACME: &str = "/.well-known/acme-challenge";

/// The redirect to HTTPS of an Ingress.
pub(super) fn of(context: &Context<'_, '_>) -> Https {
    let settings = &context.settings.https;
    Https { is_forced: settings.force_ssl_redirect.unwrap_or(false), if_tls: settings.ssl_redirect }
}

/// The parts of a path.
pub(super) fn of_path(own: &Arc<Own>, path: &RulePath) -> Arc<Own> {
    if !path.written.starts_with(ACME) {
        return own.clone();
    }
    let https = Https { is_forced: false, if_tls: Some(false) };
    Arc::new(Own { https, ..Own::clone(own) })
}
