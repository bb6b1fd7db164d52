//! Session affinity.

use std::sync::Arc;

use sluicegate_model::feature::Affinity;
use sluicegate_model::value::{CookieName, CookiePath};

use super::{Context, Parts};
use crate::intent::Own;
use crate::object::ingress::RulePath;

/// The name of the cookie without an annotation (ingress-nginx `session-cookie-name`).
const NAME: &str = "INGRESSCOOKIE";

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    let settings = &context.settings.session;
    if settings.is_on {
        parts.features.load_balancing.affinity = Some(Affinity {
            cookie: Some(settings.name.clone().unwrap_or_else(|| CookieName::of(NAME))),
            path: settings.path.clone(),
            nginx: Some(Box::new(settings.session.clone())),
            ..Affinity::default()
        });
    }
}

/// The parts of a path: without an annotation, the cookie has the path as it was written.
pub(super) fn of_path(own: Arc<Own>, path: &RulePath) -> Arc<Own> {
    let affinity = own.features.load_balancing.affinity.as_ref();
    if affinity.is_none_or(|affinity| affinity.path.is_some()) {
        return own;
    }
    let mut own = Own::clone(&own);
    if let Some(affinity) = &mut Arc::make_mut(&mut own.features).load_balancing.affinity {
        affinity.path = CookiePath::new(&path.written).ok();
    }
    Arc::new(own)
}
