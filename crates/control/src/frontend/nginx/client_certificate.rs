//! Client certificates.

use std::sync::Arc;

use sluicegate_model::{ClientAuth, ClientAuthMode, ClientCheck, HostPattern};

use super::{Context, Parts};
use crate::intent::{ClientAuthIntent, Place};

/// The maximum number of intermediate certificates without an annotation.
const DEPTH: u8 = 1;

/// Closes the routes of an Ingress whose CA certificates are missing.
pub(super) fn apply(context: &mut Context<'_, '_>, parts: &mut Parts) {
    let Some(secret) = context.settings.client_certificate.secret.clone() else { return };
    let fault = match context.store.data(&secret) {
        Some(data) if !data.authorities.is_empty() => return,
        Some(_) => format!("{secret} has no certificates in data[ca.crt]"),
        None => format!("{secret} does not exist"),
    };
    context.close(parts, "auth-tls-secret", &fault, Some(&secret));
}

/// The clients that may connect to the hosts of an Ingress.
pub(super) fn of<'a>(context: &Context<'_, 'a>) -> Option<ClientAuthIntent<'a>> {
    let settings = &context.settings.client_certificate;
    let secret = settings.secret.as_ref()?;
    let mode = settings.mode.unwrap_or(Some(ClientAuthMode::Required))?;
    let data = context.store.data(secret);
    let policy = Arc::new(ClientAuth {
        source: secret.to_string().into(),
        roots: data.map(|data| data.authorities.clone()).unwrap_or_default(),
        crls: data.map(|data| data.revoked.clone()).unwrap_or_default(),
        mode,
        forward: settings.forward,
        at_requests: Some(ClientCheck {
            depth: settings.depth.unwrap_or(DEPTH),
            subject: settings.subject.clone(),
            error_page: settings.error_page.clone(),
        }),
    });
    let ingress = context.ingress;
    let of_rules = ingress.rules.iter().map(|rule| &rule.host);
    let of_tls = ingress.tls.iter().flat_map(|tls| &tls.hosts);
    let of_default = ingress.default_backend.iter().map(|_| &HostPattern::Any);
    let hosts = of_rules.chain(of_tls).chain(of_default).collect();
    let place = Place::Annotation("nginx.ingress.kubernetes.io/auth-tls-secret");
    Some(ClientAuthIntent { place, hosts, policy, fault: None })
}
