//! The records of requests.

use super::{Context, Parts};

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    parts.features.unrecorded = context.settings.observability.unrecorded;
}
