//! Redirects to HTTPS.

use std::sync::Arc;

use sluicegate_model::rule::HttpsRedirect;

use super::{Context, Parts};
use crate::intent::{Https, Own};
use crate::object::ingress::RulePath;

/// The paths that are not redirected without `no-tls-redirect-locations`: ACME challenges come over plain HTTP.
const ACME: &str = "/.well-known/acme-challenge";

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    parts.features.hsts = context.options.globals.https.hsts.header();
}

/// The redirect to HTTPS of an Ingress.
pub(super) fn of(context: &Context<'_, '_>) -> Https {
    let settings = &context.settings.https;
    let redirect = HttpsRedirect {
        status: settings.redirect_code.unwrap_or(HttpsRedirect::default().status),
        strips_slash: !settings.preserve_trailing_slash,
    };
    Https { is_forced: settings.force_ssl_redirect.unwrap_or(false), if_tls: settings.ssl_redirect, redirect }
}

/// The parts of a path.
pub(super) fn of_path(context: &Context<'_, '_>, own: &Arc<Own>, path: &RulePath) -> Arc<Own> {
    let not_redirected = match &context.settings.https.not_redirected {
        Some(paths) => paths.iter().any(|known| path.written.starts_with(&**known)),
        None => path.written.starts_with(ACME),
    };
    if !not_redirected {
        return own.clone();
    }
    let https = Https { is_forced: false, if_tls: Some(false), ..own.https };
    Arc::new(Own { https, ..Own::clone(own) })
}
