//! The parts of RateLimitPolicies that are in Secrets.

use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::Config;
use sluicegate_model::feature::{Authentication, LimitKey};
use sluicegate_model::policy::{self, RateLimits, Redis, Shared};

use super::attach::{Attached, Parts, Policy};
use super::security::{authorities, value_of};
use crate::intent::At;
use crate::object::plan::Plan;
use crate::object::policy::rate_limit::RateLimitPolicy;
use crate::object::policy::secret::without_line_end;
use crate::object::policy::shared::{Need, Needed, Sharing};
use crate::problem::{Problem, Severity};
use crate::store::Store;

/// The limits of a policy count requests together, so a policy is one part.
impl Parts for RateLimits {
    fn over(&self, _: &Self) -> Option<Self> {
        None
    }

    fn replaces(&self, _: &Self) -> bool {
        true
    }
}

/// The effective policy, `None` if it is empty, and the parts of it that cannot be honoured.
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
    let (shared, fault) = shared(store, at, sharing, problems);
    (Some(Arc::new(RateLimits { shared: Some(shared), ..RateLimits::clone(limits) })), fault)
}

/// The terms of a plan, and the part of them that cannot be honoured.
pub(crate) fn complete_plan(
    store: &Store,
    at: At<'_>,
    plan: &Plan,
    problems: &mut Vec<Problem>,
) -> (policy::Plan, Option<String>) {
    let mut terms = plan.terms.clone();
    let Some(sharing) = &plan.sharing else { return (terms, None) };
    let (shared, fault) = shared(store, at, sharing, problems);
    terms.limits.shared = Some(shared);
    (terms, fault)
}

/// The server that shares counts, and the reason why there is none.
fn shared(
    store: &Store,
    at: At<'_>,
    sharing: &Sharing,
    problems: &mut Vec<Problem>,
) -> (Shared, Option<String>) {
    let (mut redis, mut first) = (sharing.redis.clone(), None);
    for need in &sharing.needs {
        if let Err(fault) = fill(store, need, &mut redis) {
            let told = format!("{fault}; each data plane counts by itself");
            problems.push(at.problem(Severity::Error, &need.field, told));
            first.get_or_insert_with(|| format!("{}: {fault}; each data plane counts by itself", need.field));
        }
    }
    let shared = match &first {
        None => Shared::Redis(Arc::new(redis)),
        Some(fault) => Shared::Unusable(fault.clone().into()),
    };
    (shared, first)
}

/// Warns of limits for authenticated callers on routes without authentication.
pub(super) fn warn_of_unauthenticated_limits(
    attached: &Attached<'_, RateLimits>,
    config: &Config,
    problems: &mut Vec<Problem>,
) {
    // By the limits' addresses: the warning names the first of their routes.
    let mut unknown: HashMap<*const RateLimits, String> = HashMap::default();
    for route in config.rules() {
        let Some(limits) = &route.rate_limits else { continue };
        // Denied requests are not counted.
        let is_closed = route.security.as_ref().is_some_and(|security| security.refuses.is_some());
        if is_closed || unknown.contains_key(&Arc::as_ptr(limits)) {
            continue;
        }
        let methods = route.security.as_ref().and_then(|security| security.authentication.as_ref());
        let knows_consumers = methods.is_some_and(Authentication::identifies_consumers);
        let has_tokens = methods.is_some_and(Authentication::has_claims);
        let mut whom = limits.limits.iter().map(|limit| (&limit.key, &limit.groups)).collect::<Vec<_>>();
        whom.extend(limits.concurrency.iter().map(|limit| (&limit.key, &limit.groups)));
        let has = |wanted: fn(&LimitKey) -> bool| whom.iter().any(|(key, _)| key.iter().any(wanted));
        let (what, asks) = if !knows_consumers && whom.iter().any(|(_, groups)| !groups.is_empty()) {
            ("limits with groups apply to no caller", "authenticates callers")
        } else if !knows_consumers && has(|part| *part == LimitKey::Consumer) {
            ("counts callers by client IP instead of by Consumer", "authenticates callers")
        } else if !has_tokens && has(|part| matches!(part, LimitKey::Claim(_))) {
            ("counts all callers together instead of by claim", "accepts tokens")
        } else {
            continue;
        };
        let message = format!("{what} on {} {}, where no SecurityPolicy {asks}", route.id, route.path());
        unknown.insert(Arc::as_ptr(limits), message);
    }
    for Policy { at, value, .. } in attached.policies() {
        if let Some(message) = value.as_ref().and_then(|limits| unknown.remove(&Arc::as_ptr(limits))) {
            problems.push(at.warning("spec", message));
        }
    }
}

/// Inserts the value of a Secret.
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
