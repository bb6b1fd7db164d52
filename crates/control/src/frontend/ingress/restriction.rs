//! Ingresses with annotations of ingress-nginx that restrict access.
//!
//! Sluicegate does not read these annotations. An Ingress that was written for ingress-nginx would be open without
//! them, so its routes respond with 503 until the annotations are replaced or the operator allows the Ingress.

use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::policy::Security;

use crate::object::{ObjectRef, annotation};
use crate::problem::{Problem, Severity};
use crate::translate::{Source, TranslateOptions};

/// The Ingresses whose routes respond with 503.
#[derive(Default)]
pub(crate) struct Restricted<'a> {
    closed: HashMap<&'a ObjectRef, Arc<Security>>,
    pub(crate) problems: Vec<Problem>,
}

impl<'a> Restricted<'a> {
    pub(crate) fn new(ingresses: &[Source<'a>], options: &TranslateOptions) -> Self {
        let mut restricted = Self::default();
        for source in ingresses {
            let Some(first) = source.ingress.unread_restrictions.first() else { continue };
            let (severity, consequence) = match options.ignore_nginx_access_annotations {
                true => (
                    Severity::Warning,
                    "the routes are served without it, because of --ignore-nginx-access-annotations",
                ),
                false => {
                    let reason = format!("the annotation {first} is not supported");
                    let closed = Arc::new(Security::closed(source.at().id(), reason.into()));
                    restricted.closed.insert(source.object, closed);
                    (Severity::Error, "all routes of this Ingress respond with 503")
                }
            };
            for name in &source.ingress.unread_restrictions {
                let replacement = annotation::replacement(name);
                let replacement = replacement.as_deref().unwrap_or("a SecurityPolicy or a RateLimitPolicy");
                let remedy = match severity {
                    Severity::Error => {
                        format!(
                            ". Replace it by {replacement}, or start with --ignore-nginx-access-annotations"
                        )
                    }
                    _ => String::new(),
                };
                let message =
                    format!("restricts access in ingress-nginx, but is not supported; {consequence}{remedy}");
                restricted.problems.push(source.at().problem(severity, &annotation::field(name), message));
            }
        }
        restricted
    }

    /// The policy that refuses all requests to an Ingress; `None` if the Ingress is not restricted.
    pub(crate) fn of(&self, ingress: &ObjectRef) -> Option<&Arc<Security>> {
        self.closed.get(ingress)
    }
}
