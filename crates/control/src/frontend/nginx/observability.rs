//! The access log, and the spans of requests.

use super::{Context, Parts};

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    let settings = &context.settings.observability;
    parts.features.unrecorded = settings.unrecorded;
    parts.features.spans = settings.spans.clone();
}
