//! Ingresses with annotations of ingress-nginx or of Kong that restrict access.
//!
//! Without the dialect of ingress-nginx, the gateway does not read these annotations. An Ingress that was written for ingress-nginx would be open without
//! them, so its routes respond with 503 until the annotations are replaced or the operator allows the Ingress. The same holds for plugins of Kong.

use std::sync::Arc;

use sluicegate_model::policy::Security;

use crate::intent::At;
use crate::object::annotation;
use crate::object::ingress::Ingress;
use crate::object::nginx::{self, Annotation};
use crate::problem::{Problem, Severity};
use crate::translate::TranslateOptions;

/// The policy that refuses all requests to an Ingress; `None` if the Ingress is not restricted.
pub(super) fn check(
    at: At<'_>,
    ingress: &Ingress,
    options: &TranslateOptions,
    problems: &mut Vec<Problem>,
) -> Option<Arc<Security>> {
    let annotations = || ingress.nginx.with_prefix(nginx::PREFIX);
    let mut first = None;
    let is_served = options.ignore_nginx_access_annotations;
    for Annotation { name, short, value } in annotations() {
        if nginx::allows_all(short, value) {
            continue;
        }
        let replacement = annotation::replacement(short);
        if !nginx::restricts(short, value) {
            problems.push(at.warning(&annotation::field(name), ignored(replacement.as_deref())));
            continue;
        }
        first.get_or_insert(name);
        let replacement = replacement.as_deref().unwrap_or("a SecurityPolicy or a RateLimitPolicy");
        let (severity, consequence) = match is_served {
            true => (
                Severity::Warning,
                "the routes are served without it, because of --ignore-nginx-access-annotations".to_owned(),
            ),
            false => (
                Severity::Error,
                format!(
                    "all routes of this Ingress respond with 503. Replace it by {replacement}, or start with \
                     --ignore-nginx-access-annotations"
                ),
            ),
        };
        let message = format!("restricts access in ingress-nginx, but is not supported; {consequence}");
        problems.push(at.problem(severity, &annotation::field(name), message));
    }
    let mut closing = first.filter(|_| !is_served);
    if ingress.has_kong_plugins {
        let fault = annotation::kong_plugins_fault("all routes of this Ingress respond with 503");
        problems.push(at.problem(Severity::Error, &annotation::field(annotation::KONG_PLUGINS), fault));
        closing.get_or_insert(annotation::KONG_PLUGINS);
    }
    let reason = format!("the annotation {} is not supported", closing?);
    Some(Arc::new(Security::closed(at.id(), reason.into())))
}

/// The message about an annotation of ingress-nginx that does not restrict access and has this equivalent.
pub(crate) fn ignored(replacement: Option<&str>) -> String {
    match replacement {
        Some(replacement) => format!("is ignored: write {replacement}"),
        None => "is ignored without --ingress-nginx-compatibility".to_owned(),
    }
}
