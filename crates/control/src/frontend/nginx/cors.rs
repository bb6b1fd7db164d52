//! Cross-origin requests.

use sluicegate_model::feature::Cors;
use sluicegate_model::feature::cors::NginxCors;
use sluicegate_model::value::{Entries, HeaderValue, OriginPattern};

use super::{Context, Parts};

/// The defaults of ingress-nginx 1.15.
const METHODS: &str = "GET, PUT, POST, DELETE, PATCH, OPTIONS";
const HEADERS: &str = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization";
const MAX_AGE: i64 = 1_728_000;

pub(super) fn apply(context: &mut Context<'_, '_>, parts: &mut Parts) {
    let settings = context.settings.clone();
    let settings = &settings.cors;
    if !settings.is_on {
        return;
    }
    for fault in &settings.origin_faults {
        context.fault("cors-allow-origin", format!("{fault}; the gateway does not allow such origins"));
    }
    let any = || Entries::new(vec![OriginPattern::Any]).unwrap_or_default();
    let nginx = NginxCors {
        methods: settings.methods.clone().unwrap_or_else(|| HeaderValue::of(METHODS)),
        headers: settings.headers.clone().unwrap_or_else(|| HeaderValue::of(HEADERS)),
        exposed: settings.exposed.clone(),
        max_age: settings.max_age.unwrap_or(MAX_AGE),
    };
    parts.security.cors = Some(Cors {
        allow_origins: settings.origins.clone().unwrap_or_else(any),
        allow_methods: Entries::default(),
        allow_headers: Entries::default(),
        expose_headers: Entries::default(),
        allow_credentials: settings.credentials.unwrap_or(true),
        max_age: sluicegate_model::value::Span::of_millis(0),
        nginx: Some(Box::new(nginx)),
    });
}
