//! Limits of requests, connections and bandwidth by client IP.

use sluicegate_model::feature::rate_limit::Requests;
use sluicegate_model::feature::{Bandwidth, Concurrency, Limit, LimitAlgorithm, LimitKey, LimitStatus};
use sluicegate_model::value::{Entries, LimitName, Number, Span};

use super::access::chosen;
use super::{Context, Parts};

/// The burst as a multiple of the rate, without an annotation.
const BURST_MULTIPLIER: u32 = 5;

/// The status of refused requests, without a key of the ConfigMap.
const STATUS: i64 = 503;

/// The highest number of requests of a limit.
const REQUESTS_MAX: i64 = 1_000_000;

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    let settings = &context.settings.limits;
    if let Some(per_second) = settings.rate {
        parts.features.bandwidth = Some(Bandwidth { per_second, after: settings.rate_after });
    }
    let multiplier = i64::from(settings.burst_multiplier.unwrap_or(BURST_MULTIPLIER));
    let rates = [("rps", settings.per_second, 1000), ("rpm", settings.per_minute, 60_000)];
    for (name, requests, millis) in rates {
        let Some(requests) = requests else { continue };
        // A burst of nginx comes on top of the request that the rate itself allows.
        let burst = i64::from(requests.get()).saturating_mul(multiplier).saturating_add(1);
        parts.limits.limits.push(Limit {
            name: LimitName::of(name),
            requests,
            per: Span::of_millis(millis),
            burst: Some(Requests::of(burst.min(REQUESTS_MAX))),
            algorithm: LimitAlgorithm::TokenBucket,
            key: by_address(),
            groups: Entries::default(),
            dry_run: false,
            status_code: Some(settings.rate_status.unwrap_or(LimitStatus::of(STATUS))),
        });
    }
    if let Some(requests) = settings.connections {
        parts.limits.concurrency.push(Concurrency {
            name: LimitName::of("connections"),
            requests,
            key: by_address(),
            groups: Entries::default(),
            dry_run: false,
            status_code: Some(settings.connections_status.unwrap_or(LimitStatus::of(STATUS))),
        });
    }
    let names = ("limit-allowlist", "limit-whitelist");
    let exempt = chosen(context, names, (&settings.exempt, &settings.former_exempt));
    parts.limits.exempt = exempt.cloned().unwrap_or_default();
}

/// The whole client IP, as nginx counts also IPv6.
fn by_address() -> Entries<LimitKey, 8> {
    Entries::new(vec![LimitKey::Address { ipv6_prefix: Number::of(128) }]).unwrap_or_default()
}
