//! What Secrets hold of RateLimitPolicies.

use std::sync::Arc;

use sluicegate_model::policy::{RateLimits, Redis, Shared};

use super::security::{authorities, value_of};
use crate::object::policy::rate_limit::RateLimitPolicy;
use crate::object::policy::secret::without_line_end;
use crate::object::policy::shared::{Need, Needed};
use crate::problem::{Problem, Severity};
use crate::store::Store;
use crate::translate::reference::At;

/// What a policy asks for, nothing if that is nothing, and what of it cannot be honoured.
pub(super) fn complete(
    store: &Store,
    at: At<'_>,
    policy: &RateLimitPolicy,
    problems: &mut Vec<Problem>,
) -> (Option<Arc<RateLimits>>, Option<String>) {
    let limits = &policy.limits;
    if limits.limits.is_empty() && limits.concurrency.is_empty() {
        return (None, None);
    }
    let Some(sharing) = &policy.sharing else { return (Some(limits.clone()), None) };
    let (mut redis, mut first) = (sharing.redis.clone(), None);
    for need in &sharing.needs {
        if let Err(fault) = fill(store, need, &mut redis) {
            let told = format!("{fault}: each data plane counts for itself");
            problems.push(at.problem(Severity::Error, &need.field, told));
            first
                .get_or_insert_with(|| format!("{}: {fault}: each data plane counts for itself", need.field));
        }
    }
    let shared = match &first {
        None => Shared::Redis(Arc::new(redis)),
        Some(fault) => Shared::Unusable(fault.clone().into()),
    };
    (Some(Arc::new(RateLimits { shared: Some(shared), ..RateLimits::clone(limits) })), first)
}

/// Puts in its place what a Secret holds.
fn fill(store: &Store, need: &Need, redis: &mut Redis) -> Result<(), String> {
    match need.what {
        Needed::Password => {
            let password = without_line_end(value_of(store, &need.value)?);
            if password.is_empty() {
                return Err(format!("{} has an empty data[{}]", need.value.secret, need.value.key));
            }
            redis.password = Some(password.into());
        }
        Needed::Authorities => {
            let found = authorities(store, &need.value)?;
            if let Some(tls) = &mut redis.tls {
                tls.authorities = found;
            }
        }
    }
    Ok(())
}
