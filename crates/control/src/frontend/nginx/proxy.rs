//! Timeouts and sizes of requests.

use sluicegate_model::value::Size;

use super::{Context, Parts};

/// The largest request body without an annotation (ingress-nginx `proxy-body-size`).
const BODY_SIZE: Size = Size::of(1024 * 1024);

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    let settings = &context.settings.proxy;
    parts.features.limits.request_body = Some(settings.body_size.unwrap_or(BODY_SIZE));
    let timeouts = &mut parts.features.timeouts;
    timeouts.connect = settings.connect_timeout;
    timeouts.response = settings.read_timeout;
    // nginx has one timeout for reads and one for writes, the gateway has one for both.
    timeouts.idle = settings.read_timeout.max(settings.send_timeout);
    timeouts.tunnel = settings.read_timeout.max(settings.send_timeout);
}
