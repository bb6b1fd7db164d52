//! Timeouts of routes, and the other settings that a route changes.

use std::time::Duration;

use sluicegate_model::Settings;
use sluicegate_model::policy as model;
use tokio::time::Instant;

use crate::deadline::after;

/// The deadline of a request that began at `started`: the earlier of `deadline` and the end of `timeout`.
pub(crate) fn request_deadline(
    started: Instant,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
) -> Option<Instant> {
    let own = timeout.map(|timeout| after(started, timeout));
    own.into_iter().chain(deadline).min()
}

/// The settings for the policy's routes.
pub(super) fn adapted(settings: &Settings, source: &model::Traffic) -> Settings {
    let mut settings = settings.clone();
    let timeouts = &mut settings.timeouts;
    for (place, time) in [
        (&mut timeouts.connect, source.timeouts.connect),
        (&mut timeouts.response_head, source.timeouts.response_head),
        (&mut timeouts.upstream_idle, source.timeouts.upstream_idle),
        (&mut timeouts.request_body, source.timeouts.request_body),
        (&mut timeouts.tunnel_idle, source.timeouts.tunnel_idle),
    ] {
        *place = time.unwrap_or(*place);
    }
    if let Some(retries) = &source.retries {
        settings.resilience.attempts = retries.attempts;
    }
    if let Some(most) = source.request_body {
        settings.limits.request_body = Some(most).filter(|most| *most > 0);
    }
    settings
}
