//! The subscriptions to an API: the plan by which a consumer calls.

use std::io::Write as _;
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::feature::QuotaUnit;
use sluicegate_model::policy::{self as model, SubscriptionState};
use sluicegate_model::{ObjectId, policy};

use super::LimitPolicy;
use super::quota::{Counter, PlanQuota, Quotas, now};
use super::rate_limit::{Lines, SubscriptionHashes};
use crate::failure::Denial;
use crate::hash::Fingerprint;

/// The subscriptions to operations of an API, compiled.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    is_required: bool,
    plans: Vec<Plan>,
    /// The places of subscriptions, by their consumers.
    by_consumer: HashMap<Fingerprint, u32>,
    all: Vec<Subscription>,
}

/// A plan.
#[derive(Debug)]
pub(crate) struct Plan {
    /// `namespace/name`
    pub(crate) label: Box<str>,
    /// All APIs share the limits of a plan.
    pub(crate) limits: Arc<LimitPolicy>,
    quotas: Vec<PlanQuota>,
    pub(crate) headers: bool,
    pub(crate) x_headers: bool,
}

/// A subscription.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) id: ObjectId,
    state: SubscriptionState,
    plan: u32,
    pub(crate) hashes: SubscriptionHashes,
    /// The counters of the quotas of the plan, in their order.
    counters: Box<[Arc<Counter>]>,
}

/// A subscription with its plan.
#[derive(Clone, Copy)]
pub(crate) struct Subscribed<'s> {
    pub(crate) subscription: &'s Subscription,
    pub(crate) plan: &'s Plan,
}

/// A quota that is used up.
pub(crate) struct Exhausted<'s> {
    pub(crate) quota: &'s str,
    /// The time until the next window, in seconds.
    pub(crate) reset: u64,
}

impl Subscriptions {
    pub(super) fn new(
        source: &model::Subscriptions,
        quotas: &Quotas,
        mut limits: impl FnMut(Arc<policy::RateLimits>) -> Arc<LimitPolicy>,
    ) -> Self {
        let plan = |source: &model::Plan| Plan {
            label: format!("{}/{}", source.limits.id.namespace, source.limits.id.name).into(),
            limits: limits(Arc::new(source.limits.clone())),
            quotas: source.quotas.iter().map(PlanQuota::new).collect(),
            headers: source.limits.headers,
            x_headers: source.x_headers,
        };
        let plans: Vec<Plan> = source.plans.iter().map(plan).collect();
        let (mut by_consumer, mut all) = (HashMap::default(), Vec::with_capacity(source.subscriptions.len()));
        for model::Subscription { id, consumer, plan, state } in &source.subscriptions {
            let Some(of) = plans.get(*plan as usize) else { continue };
            let server = of.limits.compiled.server();
            let counters = of.quotas.iter().map(|quota| quota.counter(id, quotas, server)).collect();
            by_consumer
                .entry(Fingerprint::of(consumer))
                .or_insert(u32::try_from(all.len()).unwrap_or(u32::MAX));
            let hashes = of.limits.compiled.hashes_of(id);
            all.push(Subscription { id: id.clone(), state: *state, plan: *plan, hashes, counters });
        }
        Self { is_required: source.required, plans, by_consumer, all }
    }

    /// The place of the subscription by which a caller calls; `None` if the caller needs no subscription.
    pub(crate) fn of(&self, consumer: Option<Fingerprint>) -> Result<Option<u32>, Denial> {
        let found = consumer.and_then(|consumer| self.by_consumer.get(&consumer));
        let place = match (found, self.is_required) {
            (Some(place), _) => *place,
            (None, true) => return Err(Denial::NoSubscription),
            (None, false) => return Ok(None),
        };
        match self.all.get(place as usize).map(|subscription| subscription.state) {
            Some(SubscriptionState::Active) => Ok(Some(place)),
            Some(SubscriptionState::Pending) => Err(Denial::SubscriptionPending),
            _ => Err(Denial::SubscriptionInactive),
        }
    }

    /// The subscription at a place.
    pub(crate) fn get(&self, place: u32) -> Option<Subscribed<'_>> {
        let subscription = self.all.get(place as usize)?;
        Some(Subscribed { subscription, plan: self.plans.get(subscription.plan as usize)? })
    }

    /// The limits of all plans.
    pub(super) fn limits(&self) -> impl Iterator<Item = &Arc<LimitPolicy>> {
        self.plans.iter().map(|plan| &plan.limits)
    }
}

impl<'s> Subscribed<'s> {
    /// Counts a request under all quotas. If one quota is used up, no quota counts the request.
    pub(crate) fn count(self, lines: &mut Lines) -> Result<(), Exhausted<'s>> {
        if self.plan.quotas.is_empty() {
            return Ok(());
        }
        let now = now();
        let pairs = || self.plan.quotas.iter().zip(&self.subscription.counters);
        for (place, (quota, counter)) in pairs().enumerate() {
            let counted = counter.count(quota.most, now, quota.amount());
            if self.plan.headers || self.plan.x_headers {
                let of_requests = quota.unit == QuotaUnit::Requests;
                lines.say_quota(&quota.source.name, (quota.most, counted.left, counted.reset), of_requests);
            }
            if !counted.is_allowed {
                for (earlier, counter) in pairs().take(place) {
                    counter.give_back(earlier.amount());
                }
                return Err(Exhausted { quota: &quota.source.name, reset: counted.reset });
            }
        }
        Ok(())
    }

    /// Adds the bytes of a finished request.
    pub(crate) fn add_bytes(self, bytes: u64) {
        for (quota, counter) in self.plan.quotas.iter().zip(&self.subscription.counters) {
            if quota.unit == QuotaUnit::Bytes {
                counter.add(now(), bytes);
            }
        }
    }

    /// Writes the response header lines that state the limits and quotas (draft-ietf-httpapi-ratelimit-headers-11, 3).
    pub(crate) fn write_policy_lines(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.plan.limits.compiled.policy_line());
        if !self.plan.headers || self.plan.quotas.is_empty() {
            return;
        }
        let now = now();
        for (place, quota) in self.plan.quotas.iter().enumerate() {
            out.extend_from_slice(if place == 0 { &b"RateLimit-Policy: "[..] } else { b", " });
            let (name, most, window) = (&quota.source.name, quota.most, quota.windows.length(now));
            // Writing to a Vec does not fail.
            let _ = write!(out, "\"{name}\";q={most};w={window}");
            if quota.unit == QuotaUnit::Bytes {
                out.extend_from_slice(b";qu=\"content-bytes\"");
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}
