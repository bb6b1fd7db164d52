//! What is counted for each policy, and for each consumer.

use std::fmt;

use sluicegate_model::RouteId;
use sluicegate_proxy::failure::Denial;
use sluicegate_proxy::telemetry::{
    Check, PolicyShard, PolicyState, Tally, Telemetry, TrafficShard, TrafficState,
};

use super::families::Families;
use super::route::CODES;

pub(super) fn encode(families: &mut Families<'_>, telemetry: &Telemetry) -> fmt::Result {
    policies(families, &telemetry.policies())?;
    traffic(families, telemetry)?;
    published_keys(families, telemetry)?;
    consumers(families, telemetry)
}

fn policies(families: &mut Families<'_>, policies: &[PolicyState]) -> fmt::Result {
    let counted = |tally: fn(&PolicyShard) -> &Tally| {
        policies.iter().map(move |policy| (labels(policy), policy.stats.sum(tally)))
    };
    families.gauges(
        "sluicegate_policy_unusable",
        "1 for a policy that lets nobody in because it cannot be honoured",
        policies.iter().map(|policy| (labels(policy), u64::from(policy.refuses))),
    )?;
    let shared = || policies.iter().filter_map(|policy| Some((policy, policy.shared?)));
    families.gauges(
        "sluicegate_rate_limit_shared_up",
        "1 for a policy whose limits are shared with other data planes, 0 while each counts for itself though they should be",
        shared().map(|(policy, shared)| (labels(policy), u64::from(shared.is_up))),
    )?;
    families.counters(
        "sluicegate_rate_limit_shared_exchanges",
        "Exchanges of counts with the server through which the limits of a policy are shared, by what came of them",
        shared().flat_map(|(policy, shared)| {
            let counted = [("exchanged", shared.exchanged), ("failed", shared.failed)];
            counted.map(|(result, count)| ((labels(policy), [("result", result)]), count))
        }),
    )?;
    families.counters(
        "sluicegate_policy_admitted",
        "Requests that a policy let in",
        counted(|shard| &shard.admitted),
    )?;
    families.counters(
        "sluicegate_policy_denied",
        "Requests that a policy turned away, by reason",
        policies.iter().flat_map(|policy| {
            let counted = Denial::all()
                .map(|denial| (denial.reason(), policy.stats.sum(|shard| &shard.denied[denial.index()])));
            let happened = counted.into_iter().filter(|(_, count)| *count > 0);
            happened.map(move |(reason, count)| ((labels(policy), [("reason", reason)]), count))
        }),
    )?;
    families.counters(
        "sluicegate_policy_limit_reached",
        "Requests that were beyond a limit of a policy, tried out or not",
        policies.iter().flat_map(|policy| {
            let limits = policy.limits.iter().filter(|(_, count)| *count > 0);
            limits.map(move |(limit, count)| ((labels(policy), [("limit", limit.to_string())]), *count))
        }),
    )?;
    families.counters(
        "sluicegate_policy_checks",
        "Questions to the HTTP service of a policy, by what came of them; of those remembered and shared it was asked nothing",
        policies.iter().flat_map(|policy| {
            let counted = Check::ALL
                .map(|check| (check.result(), policy.stats.sum(|shard| &shard.checks[check as usize])));
            let happened = counted.into_iter().filter(|(_, count)| *count > 0);
            happened.map(move |(result, count)| ((labels(policy), [("result", result)]), count))
        }),
    )?;
    families.counters(
        "sluicegate_policy_preflights",
        "Preflights of browsers that a policy answered",
        counted(|shard| &shard.preflights),
    )?;
    families.counters(
        "sluicegate_policy_dry_runs",
        "Requests that were over a limit that is only tried out",
        counted(|shard| &shard.dry_runs),
    )
}

fn traffic(families: &mut Families<'_>, telemetry: &Telemetry) -> fmt::Result {
    let policies = telemetry.traffic_policies();
    let labels = |policy: &TrafficState| {
        [("namespace", policy.id.namespace.to_string()), ("name", policy.id.name.to_string())]
    };
    let mut count = |what: &str, help: &str, tally: fn(&TrafficShard) -> &Tally| {
        let sums = policies.iter().map(|policy| (labels(policy), policy.stats.sum(tally)));
        families.counters(&format!("sluicegate_{what}"), help, sums)
    };
    count("traffic_requests", "Requests of routes that a TrafficPolicy governs", |shard| &shard.requests)?;
    count("traffic_diverted", "Requests that went to another Service than their route's", |shard| {
        &shard.diverted
    })?;
    count("traffic_answered", "Requests that were redirected or answered without an endpoint", |shard| {
        &shard.answered
    })?;
    count("traffic_delayed", "Requests that were kept waiting on purpose", |shard| &shard.delayed)?;
    count("traffic_aborted", "Requests that were let fail on purpose", |shard| &shard.aborted)?;
    count(
        "traffic_over_budget",
        "Requests that were not sent once more since the budget was used up",
        |shard| &shard.over_budget,
    )?;
    count("traffic_mirrored", "Copies of requests that were sent and answered", |shard| &shard.mirrored)?;
    count("traffic_mirror_failures", "Copies of requests that were not sent, or not answered", |shard| {
        &shard.mirror_failures
    })?;
    count("cache_hits", "Requests that a kept response has answered", |shard| &shard.cache_hits)?;
    count(
        "cache_misses",
        "Requests that endpoints were asked for, since no kept response could answer",
        |shard| &shard.cache_misses,
    )?;
    count("cache_bypassed", "Requests that no kept response may answer", |shard| &shard.cache_bypassed)?;
    count("cache_stale", "Requests that a stale response has answered since endpoints failed", |shard| {
        &shard.cache_stale
    })?;
    count("cache_revalidated", "Stale responses of which endpoints said that they still hold", |shard| {
        &shard.cache_revalidated
    })?;
    count("cache_refreshes", "Stale responses that the gateway revalidated in the background", |shard| {
        &shard.cache_refreshes
    })?;
    count(
        "cache_refresh_failures",
        "Revalidations in the background that failed, or were left out at 64 per worker",
        |shard| &shard.cache_refresh_failures,
    )?;
    count("cache_stored", "Responses that were kept", |shard| &shard.cache_stored)?;
    count("cache_evicted", "Responses that were thrown out to make room", |shard| &shard.cache_evicted)?;
    let caches = || policies.iter().filter_map(|policy| Some((labels(policy), policy.cache?)));
    families.gauges(
        "sluicegate_cache_used_bytes",
        "Memory that the responses which a TrafficPolicy keeps take",
        caches().map(|(labels, cache)| (labels, cache.bytes)),
    )?;
    families.gauges(
        "sluicegate_cache_entries",
        "Responses that a TrafficPolicy keeps",
        caches().map(|(labels, cache)| (labels, cache.entries)),
    )
}

fn labels(PolicyState { id, .. }: &PolicyState) -> [(&'static str, &str); 3] {
    [("kind", id.kind), ("namespace", &id.namespace), ("name", &id.name)]
}

fn published_keys(families: &mut Families<'_>, telemetry: &Telemetry) -> fmt::Result {
    let places = telemetry.published_keys();
    families.gauges(
        "sluicegate_jwks_keys",
        "Keys that are known of an issuer of tokens that publishes them",
        places.iter().map(|place| ([("url", &*place.url)], place.keys as u64)),
    )?;
    families.counters(
        "sluicegate_jwks_fetches",
        "Fetches of such keys, by what came of them",
        places.iter().flat_map(|place| {
            let counted = [("fetched", place.fetched), ("failed", place.failed)];
            counted.map(|(result, count)| ([("url", &*place.url), ("result", result)], count))
        }),
    )
}

fn consumers(families: &mut Families<'_>, telemetry: &Telemetry) -> fmt::Result {
    let consumers: Vec<_> = telemetry
        .consumers()
        .into_iter()
        .map(|(id, stats)| {
            let responses: Vec<u64> =
                (0..CODES.len()).map(|class| stats.sum(|shard| &shard.responses[class])).collect();
            (id, responses, stats.sum(|shard| &shard.aborted), stats)
        })
        .filter(|(_, responses, aborted, _)| *aborted > 0 || responses.iter().any(|count| *count > 0))
        .collect();
    families.counters(
        "sluicegate_consumer_requests",
        "Requests of a consumer that got a complete response, by the first digit of its status",
        consumers.iter().flat_map(|(id, responses, ..)| {
            let codes = CODES.iter().zip(responses);
            codes.map(|(code, count)| ((name(id.as_ref()), [("code", *code)]), *count))
        }),
    )?;
    families.counters(
        "sluicegate_consumer_requests_aborted",
        "Requests of a consumer that ended without a complete response",
        consumers.iter().map(|(id, _, aborted, _)| (name(id.as_ref()), *aborted)),
    )?;
    families.counters(
        "sluicegate_consumer_response_bytes",
        "Bytes of responses to a consumer, heads included",
        consumers.iter().map(|(id, .., stats)| (name(id.as_ref()), stats.sum(|shard| &shard.bytes_out))),
    )?;
    families.times(
        "sluicegate_consumer_request_seconds",
        "From the end of the heads of a consumer's requests to the end of their responses",
        consumers.iter().map(|(id, .., stats)| (name(id.as_ref()), stats.sum(|shard| &shard.micros))),
    )?;
    families.times(
        "sluicegate_consumer_endpoint_seconds",
        "What of it endpoints took, from the last attempt to the head of the response",
        consumers
            .iter()
            .map(|(id, .., stats)| (name(id.as_ref()), stats.sum(|shard| &shard.endpoint_micros))),
    )
}

fn name(id: Option<&RouteId>) -> [(&'static str, &str); 2] {
    [("namespace", id.map_or("", |id| &id.namespace)), ("name", id.map_or("", |id| &id.name))]
}
