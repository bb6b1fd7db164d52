//! Connections to endpoints.

use sluicegate_model::feature::endpoint_form::NginxForwarding;
use sluicegate_model::feature::retries::RetryConditions;
use sluicegate_model::feature::{EndpointForm, LoadBalancingAlgorithm, Retries};
use sluicegate_model::value::Number;

use super::{Context, Parts};

/// The largest number of attempts without an annotation (ingress-nginx `proxy-next-upstream-tries`).
const TRIES: u64 = 3;

/// The largest number of retries.
const RETRIES_MAX: u64 = 100;

pub(super) fn apply(context: &Context<'_, '_>, parts: &mut Parts) {
    let settings = &context.settings.upstream;
    let features = &mut parts.features;
    features.load_balancing.algorithm =
        Some(settings.algorithm.unwrap_or(LoadBalancingAlgorithm::RoundRobin));
    let next = settings.next.clone().unwrap_or_default();
    let non_idempotent = next.conditions.non_idempotent || settings.retries_non_idempotent;
    let retries = settings.tries.unwrap_or(TRIES).checked_sub(1).unwrap_or(RETRIES_MAX).min(RETRIES_MAX);
    features.retries = Some(Retries {
        attempts: Number::of(i64::try_from(retries).unwrap_or(0)),
        codes: next.codes,
        conditions: Some(RetryConditions {
            non_idempotent,
            within: settings.next_timeout,
            ..next.conditions
        }),
        ..Retries::default()
    });
    features.limits.response_head = settings.response_head;
    features.limits.replay = settings.body_buffer;
    features.endpoint_form = EndpointForm {
        is_http10: settings.is_http10,
        connection: settings.connection.clone(),
        states_length: settings.buffers_requests.unwrap_or(true),
        nginx: Some(NginxForwarding { is_full: settings.full_forwarded_for }),
    };
}
