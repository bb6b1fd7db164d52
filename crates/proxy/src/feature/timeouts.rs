//! Timeouts of routes, and the other settings that a route changes.

use sluicegate_model::Settings;
use sluicegate_model::feature::Features;
use sluicegate_model::value::Timeout;
use tokio::time::Instant;

use crate::deadline::after;

/// The deadline of a request that began at `started`: the earlier of `deadline` and the end of `timeout`.
pub(crate) fn request_deadline(
    started: Instant,
    timeout: Option<Timeout>,
    deadline: Option<Instant>,
) -> Option<Instant> {
    let own = timeout.map(|timeout| after(started, timeout.get()));
    own.into_iter().chain(deadline).min()
}

/// The settings for the policy's routes.
pub(super) fn adapted(settings: &Settings, features: &Features) -> Settings {
    let mut settings = settings.clone();
    let (timeouts, of_route) = (&mut settings.timeouts, &features.timeouts);
    for (place, time) in [
        (&mut timeouts.connect, of_route.connect),
        (&mut timeouts.response_head, of_route.response),
        (&mut timeouts.upstream_idle, of_route.idle),
        (&mut timeouts.request_body, of_route.request_body),
        (&mut timeouts.tunnel_idle, of_route.tunnel),
    ] {
        *place = time.map_or(*place, Timeout::get);
    }
    if let Some(retries) = &features.retries {
        settings.resilience.attempts = u32::from(retries.attempts.get()) + 1;
    }
    if let Some(most) = features.limits.request_body {
        settings.limits.request_body = Some(most.get()).filter(|most| *most > 0);
    }
    if let Some(most) = features.limits.response_head {
        settings.limits.response_head = usize::try_from(most.get()).unwrap_or(usize::MAX);
    }
    if let Some(size) = features.limits.replay {
        let size = usize::try_from(size.get()).unwrap_or(usize::MAX);
        settings.limits.replay = settings.limits.replay.max(size);
    }
    settings
}
