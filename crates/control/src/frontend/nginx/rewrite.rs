//! Rewrites of the path and the host.

use std::sync::Arc;

use sluicegate_model::feature::{TargetRewrite, TemplateHeader};
use sluicegate_model::value::AnnotatedHeader;

use super::{Context, Parts};
use crate::intent::Own;
use crate::object::ingress::RulePath;
use crate::object::nginx::Settings;

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    parts.features.url_rewrite.host = context.settings.rewrite.vhost.clone();
}

/// The parts of a path. The whole path is searched for the text of the path, as `rewrite "(?i)PATH" TARGET break` of nginx
/// does.
pub(super) fn of_path(own: Arc<Own>, path: &RulePath, settings: &Settings) -> Arc<Own> {
    let settings = &settings.rewrite;
    let Some(target) = settings.target_of(path) else { return own };
    let text = if path.written.is_empty() { "/" } else { &*path.written };
    // The match of the path reports an invalid expression, and closes the path.
    let Ok(pattern) = path.patterns.anywhere(text) else { return own };
    let mut own = Own::clone(&own);
    let features = Arc::make_mut(&mut own.features);
    if let Some(redirect) = settings.redirect_of(target, &pattern) {
        features.returns.push(redirect);
        return Arc::new(own);
    }
    let rewrite = TargetRewrite { pattern, target: target.clone(), continues: false };
    features.url_rewrite.targets.push(rewrite);
    if let Some(value) = &settings.forwarded_prefix {
        let header = TemplateHeader { name: AnnotatedHeader::of("X-Forwarded-Prefix"), value: value.clone() };
        features.template_headers.get_or_insert_default().request.push(header);
    }
    Arc::new(own)
}
