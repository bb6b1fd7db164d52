//! Rewrites of responses.

use sluicegate_model::feature::ResponseRewrite;

use super::{Context, Parts};

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    let settings = &context.settings.response;
    let rewrite = ResponseRewrite {
        cookie_domains: settings.cookie_domain.iter().cloned().collect(),
        cookie_paths: settings.cookie_path.iter().cloned().collect(),
        locations: settings.redirect().into_iter().collect(),
    };
    if rewrite != ResponseRewrite::default() {
        parts.features.response_rewrite = Some(Box::new(rewrite));
    }
}
