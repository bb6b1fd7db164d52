//! Metrics of each policy, and of each consumer.

use std::fmt;

use sluicegate_model::ObjectId;
use sluicegate_proxy::counters::{ApiShard, Check, PolicyShard, SessionEvent, Tally, TrafficShard};
use sluicegate_proxy::failure::Denial;
use sluicegate_proxy::registry::{ApiState, PolicyState, Registry, TrafficState};

use super::families::Families;
use super::route::CODES;

pub(super) fn encode(families: &mut Families<'_>, registry: &Registry) -> fmt::Result {
    policies(families, &registry.policies())?;
    traffic(families, registry)?;
    apis(families, &registry.apis())?;
    published_keys(families, registry)?;
    consumers(families, registry)
}

fn policies(families: &mut Families<'_>, policies: &[PolicyState]) -> fmt::Result {
    let counted = |tally: fn(&PolicyShard) -> &Tally| {
        policies.iter().map(move |policy| (labels(policy), policy.stats.sum(tally)))
    };
    families.gauges(
        "sluicegate_policy_unusable",
        "1 for a policy that cannot be used, so that its routes respond with 503, otherwise 0",
        policies.iter().map(|policy| (labels(policy), u64::from(policy.refuses))),
    )?;
    let shared = || policies.iter().filter_map(|policy| Some((policy, policy.shared?)));
    families.gauges(
        "sluicegate_rate_limit_shared_up",
        "1 while the data planes share the limits of the policy, 0 while each data plane counts by itself instead",
        shared().map(|(policy, shared)| (labels(policy), u64::from(shared.is_up))),
    )?;
    families.counters(
        "sluicegate_rate_limit_shared_exchanges",
        "Exchanges of counts with the server of shared limits, by result",
        shared().flat_map(|(policy, shared)| {
            let counted = [("exchanged", shared.exchanged), ("failed", shared.failed)];
            counted.map(|(result, count)| ((labels(policy), [("result", result)]), count))
        }),
    )?;
    families.counters(
        "sluicegate_policy_admitted",
        "Requests that a policy allowed",
        counted(|shard| &shard.admitted),
    )?;
    families.counters(
        "sluicegate_policy_denied",
        "Requests that a policy denied, by reason",
        policies.iter().flat_map(|policy| {
            let counted = Denial::all()
                .map(|denial| (denial.reason(), policy.stats.sum(|shard| &shard.denied[denial.index()])));
            let happened = counted.into_iter().filter(|(_, count)| *count > 0);
            happened.map(move |(reason, count)| ((labels(policy), [("reason", reason)]), count))
        }),
    )?;
    families.counters(
        "sluicegate_policy_limit_reached",
        "Requests above a limit of a policy, including limits with dryRun",
        policies.iter().flat_map(|policy| {
            let limits = policy.limits.iter().filter(|(_, count)| *count > 0);
            limits.map(move |(limit, count)| ((labels(policy), [("limit", limit.to_string())]), *count))
        }),
    )?;
    families.counters(
        "sluicegate_policy_checks",
        "Requests checked by the HTTP service or the introspection endpoint of a policy, by result; remembered and shared are results without a call of the service",
        policies.iter().flat_map(|policy| {
            let counted = Check::ALL
                .map(|check| (check.result(), policy.stats.sum(|shard| &shard.checks[check as usize])));
            let happened = counted.into_iter().filter(|(_, count)| *count > 0);
            happened.map(move |(result, count)| ((labels(policy), [("result", result)]), count))
        }),
    )?;
    families.counters(
        "sluicegate_policy_sessions",
        "Events of the browser sessions of a policy with OpenID Connect",
        policies.iter().flat_map(|policy| {
            let counted = SessionEvent::ALL
                .map(|event| (event.name(), policy.stats.sum(|shard| &shard.sessions[event as usize])));
            let happened = counted.into_iter().filter(|(_, count)| *count > 0);
            happened.map(move |(event, count)| ((labels(policy), [("event", event)]), count))
        }),
    )?;
    families.counters(
        "sluicegate_policy_preflights",
        "Preflight requests that a policy responded to",
        counted(|shard| &shard.preflights),
    )?;
    families.counters(
        "sluicegate_policy_dry_runs",
        "Requests above a limit with dryRun, which were served",
        counted(|shard| &shard.dry_runs),
    )
}

fn apis(families: &mut Families<'_>, apis: &[ApiState]) -> fmt::Result {
    let labels =
        |api: &ApiState| [("namespace", api.id.namespace.to_string()), ("name", api.id.name.to_string())];
    let sums = |more: &'static [(&'static str, &'static str)], tally: fn(&ApiShard) -> &Tally| {
        apis.iter().map(move |api| {
            let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
            (labels(api).into_iter().chain(more).collect::<Vec<_>>(), api.stats.sum(tally))
        })
    };
    families.counters(
        "sluicegate_api_invalid",
        "Requests and responses that do not match the OpenAPI document; action is reported or rejected",
        sums(&[("message", "request"), ("action", "reported")], |shard| &shard.requests_reported)
            .chain(sums(&[("message", "request"), ("action", "rejected")], |shard| &shard.requests_rejected))
            .chain(sums(&[("message", "response"), ("action", "reported")], |shard| {
                &shard.responses_reported
            }))
            .chain(sums(&[("message", "response"), ("action", "rejected")], |shard| {
                &shard.responses_rejected
            })),
    )?;
    families.counters(
        "sluicegate_api_not_validated",
        "Requests and responses in Report whose body was too long or encoded, so that the gateway did not validate the body",
        sums(&[("message", "request")], |shard| &shard.requests_skipped)
            .chain(sums(&[("message", "response")], |shard| &shard.responses_skipped)),
    )?;
    families.counters(
        "sluicegate_api_mocked",
        "Requests to which the gateway responded with an example of the OpenAPI document",
        sums(&[], |shard| &shard.mocked),
    )
}

fn traffic(families: &mut Families<'_>, registry: &Registry) -> fmt::Result {
    let policies = registry.traffic_policies();
    let labels = |policy: &TrafficState| {
        [("namespace", policy.id.namespace.to_string()), ("name", policy.id.name.to_string())]
    };
    let mut count = |what: &str, help: &str, tally: fn(&TrafficShard) -> &Tally| {
        let sums = policies.iter().map(|policy| (labels(policy), policy.stats.sum(tally)));
        families.counters(&format!("sluicegate_{what}"), help, sums)
    };
    count("traffic_requests", "Requests of routes that the TrafficPolicy applies to", |shard| {
        &shard.requests
    })?;
    count("traffic_diverted", "Requests sent to another Service of the split", |shard| &shard.diverted)?;
    count("traffic_answered", "Requests with a redirect or a fixed response of the policy", |shard| {
        &shard.answered
    })?;
    count("traffic_delayed", "Requests that the policy delayed (fault.delay)", |shard| &shard.delayed)?;
    count("traffic_aborted", "Requests that the policy aborted (fault.abort)", |shard| &shard.aborted)?;
    count("traffic_over_budget", "Requests without a retry because the retry budget was used up", |shard| {
        &shard.over_budget
    })?;
    count("traffic_mirrored", "Mirrored requests with a response", |shard| &shard.mirrored)?;
    count("traffic_error_pages", "Responses that an error page of a Service replaced", |shard| &shard.pages)?;
    count("traffic_error_page_failures", "Error pages that a Service did not serve", |shard| {
        &shard.page_failures
    })?;
    count("traffic_mirror_failures", "Mirrored requests that were not sent, or had no response", |shard| {
        &shard.mirror_failures
    })?;
    count("cache_hits", "Requests served from the cache", |shard| &shard.cache_hits)?;
    count("cache_misses", "Requests sent to endpoints because the cache had no usable response", |shard| {
        &shard.cache_misses
    })?;
    count("cache_bypassed", "Requests that bypassed the cache", |shard| &shard.cache_bypassed)?;
    count("cache_stale", "Requests served with a stale response because endpoints failed", |shard| {
        &shard.cache_stale
    })?;
    count("cache_revalidated", "Stale responses that endpoints confirmed (revalidated)", |shard| {
        &shard.cache_revalidated
    })?;
    count("cache_refreshes", "Stale responses that the gateway revalidated in the background", |shard| {
        &shard.cache_refreshes
    })?;
    count(
        "cache_refresh_failures",
        "Background revalidations that failed, or were skipped at the limit of 64 per worker",
        |shard| &shard.cache_refresh_failures,
    )?;
    count("cache_stored", "Responses stored in the cache", |shard| &shard.cache_stored)?;
    count("cache_evicted", "Responses evicted from the cache", |shard| &shard.cache_evicted)?;
    let caches = || policies.iter().filter_map(|policy| Some((labels(policy), policy.cache?)));
    families.gauges(
        "sluicegate_cache_used_bytes",
        "Memory of the policy's cached responses, in bytes",
        caches().map(|(labels, cache)| (labels, cache.bytes)),
    )?;
    families.gauges(
        "sluicegate_cache_entries",
        "Responses in the cache of the policy",
        caches().map(|(labels, cache)| (labels, cache.entries)),
    )
}

fn labels(PolicyState { id, .. }: &PolicyState) -> [(&'static str, &str); 3] {
    [("kind", id.kind), ("namespace", &id.namespace), ("name", &id.name)]
}

fn published_keys(families: &mut Families<'_>, registry: &Registry) -> fmt::Result {
    let places = registry.published_keys();
    families.gauges(
        "sluicegate_jwks_keys",
        "Known keys of a token issuer that publishes its keys",
        places.iter().map(|place| ([("url", &*place.url)], place.keys as u64)),
    )?;
    families.counters(
        "sluicegate_jwks_fetches",
        "Fetches of the keys of a token issuer, by result",
        places.iter().flat_map(|place| {
            let counted = [("fetched", place.fetched), ("failed", place.failed)];
            counted.map(|(result, count)| ([("url", &*place.url), ("result", result)], count))
        }),
    )?;
    let providers = registry.published_providers();
    families.gauges(
        "sluicegate_oidc_provider_known",
        "1 if the configuration of an OpenID provider is known, otherwise 0",
        providers.iter().map(|place| ([("url", &*place.url)], u64::from(place.is_known))),
    )?;
    families.counters(
        "sluicegate_oidc_provider_fetches",
        "Fetches of the configuration of an OpenID provider, by result",
        providers.iter().flat_map(|place| {
            let counted = [("fetched", place.fetched), ("failed", place.failed)];
            counted.map(|(result, count)| ([("url", &*place.url), ("result", result)], count))
        }),
    )
}

fn consumers(families: &mut Families<'_>, registry: &Registry) -> fmt::Result {
    let consumers: Vec<_> = registry
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
        "Requests of a Consumer with a complete response, by class of the status",
        consumers.iter().flat_map(|(id, responses, ..)| {
            let codes = CODES.iter().zip(responses);
            codes.map(|(code, count)| ((name(id.as_ref()), [("code", *code)]), *count))
        }),
    )?;
    families.counters(
        "sluicegate_consumer_requests_aborted",
        "Requests of a Consumer that ended without a complete response",
        consumers.iter().map(|(id, _, aborted, _)| (name(id.as_ref()), *aborted)),
    )?;
    families.counters(
        "sluicegate_consumer_response_bytes",
        "Bytes of responses to a Consumer, including heads",
        consumers.iter().map(|(id, .., stats)| (name(id.as_ref()), stats.sum(|shard| &shard.bytes_out))),
    )?;
    families.times(
        "sluicegate_consumer_request_seconds",
        "Time of a Consumer's requests, from the end of the request head to the end of the response, in seconds",
        consumers.iter().map(|(id, .., stats)| (name(id.as_ref()), stats.sum(|shard| &shard.micros))),
    )?;
    families.times(
        "sluicegate_consumer_endpoint_seconds",
        "Time that endpoints took for a Consumer's requests, from the last attempt to the response head, in seconds",
        consumers
            .iter()
            .map(|(id, .., stats)| (name(id.as_ref()), stats.sum(|shard| &shard.endpoint_micros))),
    )
}

fn name(id: Option<&ObjectId>) -> [(&'static str, &str); 2] {
    [("namespace", id.map_or("", |id| &id.namespace)), ("name", id.map_or("", |id| &id.name))]
}
