//! Retries: their conditions, and the budget of a policy ([`RetryBudget`](crate::upstream::RetryBudget)).

use std::time::Duration;

use sluicegate_model::feature::Retries;
use sluicegate_model::feature::retries::RetryConditions;
use sluicegate_model::value::Span;
use tokio::time::Instant;

use super::traffic::TrafficPolicy;
use crate::failure::Failure;

/// Whether conditions allow a retry after this failure of a request that began at `started`. A request that no endpoint has
/// processed is always retried.
pub(crate) fn allows_retry(conditions: &RetryConditions, failure: Failure, started: Instant) -> bool {
    let RetryConditions { error, timeout, invalid_head, non_idempotent: _, within } = conditions;
    let is_condition = match failure {
        Failure::Reset | Failure::Unacknowledged | Failure::Drained | Failure::Truncated => *error,
        Failure::ResponseTimeout | Failure::WriteTimeout => *timeout,
        Failure::BadResponse(_) => *invalid_head,
        // The codes of the policy are conditions of their own.
        Failure::RetriedStatus => true,
        _ => false,
    };
    failure.is_unprocessed() || is_condition && within.is_none_or(|within| started.elapsed() < within.get())
}

impl TrafficPolicy {
    fn retries(&self) -> Option<&Retries> {
        self.source().features.retries.as_ref()
    }

    /// The conditions of retries, in place of the gateway's own.
    pub(crate) fn retry_conditions(&self) -> Option<&RetryConditions> {
        self.retries()?.conditions.as_ref()
    }

    /// Whether the policy retries responses with this status.
    pub(crate) fn retries_status(&self, status: u16) -> bool {
        self.retries().is_some_and(|retries| retries.codes.iter().any(|code| code.get() == status))
    }

    /// The wait before a retry after this failure.
    pub(crate) fn backoff(&self, failure: Failure) -> Option<Duration> {
        // Nothing processed the request, so the endpoint needs no rest.
        self.retries()?.backoff.filter(|_| !failure.is_unprocessed()).map(Span::get)
    }

    /// Whether the retry budget allows another attempt after this failure, which counts as made. The budget allows every retry
    /// of an unprocessed request.
    pub(crate) fn spend_retry(&self, worker: usize, failure: Failure, now: Instant) -> bool {
        let Some(budget) = &self.compiled.budget else { return true };
        let is_allowed = failure.is_unprocessed() || budget.allows_retry(now);
        match is_allowed {
            true => budget.count_retry(now),
            false => self.stats.of(worker).over_budget.add(1),
        }
        is_allowed
    }
}
