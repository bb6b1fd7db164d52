//! Quotas of subscriptions: exact counts in long windows, which data planes share.
//!
//! Each quota of a subscription has a [`Counter`], which all workers and all configurations share. A worker counts with one atomic
//! operation. An exchange beside the workers takes the counts that the others do not know yet, and merges the totals.
//!
//! | module | purpose |
//! |---|---|
//! | `window` | the windows: units of the calendar, or a time from the first request on |
//! | `counter` | the count of a quota of one subscription |

mod counter;
mod window;

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use foldhash::HashMap;
use sluicegate_model::ObjectId;
use sluicegate_model::feature::{Quota, QuotaUnit};
use sluicegate_model::usage::{QuotaName, QuotaTotal, QuotaUse};

pub(crate) use counter::{Counter, Taken};
pub(crate) use window::Windows;

use super::rate_limit::shared::Server;

/// The counters of all quotas, which outlive configurations. A counter also outlives its Subscription until its window ends, so that
/// a new Subscription with the same name has no new quota.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Mutex<Counters>);

/// The counters by their keys.
#[derive(Debug, Default)]
struct Counters {
    all: HashMap<QuotaKey, Arc<Counter>>,
    /// The number of counters at which counters without a use are dropped.
    sweep_at: usize,
}

/// The smallest number of counters at which counters without a use are dropped.
const SWEEP_MIN: usize = 64;

/// What identifies a count: a change of the number that a quota allows keeps the count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QuotaKey {
    pub(crate) name: QuotaName,
    /// The server that counts for all data planes; `None`: the control plane does.
    pub(crate) server: Option<Box<str>>,
}

impl QuotaKey {
    /// The name of the count at a server. Each window of the calendar has its own count, and windows that start with a request
    /// follow each other in one count, which expires with the window.
    pub(crate) fn at_server(&self, prefix: &str, window: u64, is_of_calendar: bool) -> String {
        let QuotaName { subscription, quota, terms } = &self.name;
        let mut hasher = DefaultHasher::new();
        hasher.write(terms.as_bytes());
        let terms = hasher.finish();
        match is_of_calendar {
            true => format!("{prefix}:quota:{subscription}/{quota}:{terms:016x}:{window}"),
            false => format!("{prefix}:quota:{subscription}/{quota}:{terms:016x}"),
        }
    }
}

/// A quota of a plan, compiled.
#[derive(Debug)]
pub(crate) struct PlanQuota {
    pub(crate) source: Quota,
    /// For the length of the present window.
    pub(crate) windows: Windows,
    pub(crate) unit: QuotaUnit,
    /// The most that a window allows.
    pub(crate) most: u64,
}

impl PlanQuota {
    pub(crate) fn new(source: &Quota) -> Self {
        let (unit, most) = source.most();
        Self { source: source.clone(), windows: Windows::new(source), unit, most }
    }

    /// What a request uses when it starts.
    pub(crate) fn amount(&self) -> u64 {
        match self.unit {
            QuotaUnit::Requests => 1,
            QuotaUnit::Bytes => 0,
        }
    }

    /// The counter of a subscription. `server` counts for all data planes, or else the control plane.
    pub(crate) fn counter(
        &self,
        subscription: &ObjectId,
        quotas: &Quotas,
        server: Option<&Arc<Server>>,
    ) -> Arc<Counter> {
        let name = QuotaName {
            subscription: format!("{}/{}", subscription.namespace, subscription.name).into(),
            quota: self.source.name.as_str().into(),
            terms: format!("{:?} {:?}", self.unit, self.source.window()).into(),
        };
        let key = QuotaKey { name, server: server.map(|server| server.place().into()) };
        let counter = quotas.counter(key, || Windows::new(&self.source));
        if let Some(server) = server {
            server.add_quota(&counter);
        }
        counter
    }
}

impl Quotas {
    fn counter(&self, key: QuotaKey, windows: impl FnOnce() -> Windows) -> Arc<Counter> {
        let mut counters = self.lock();
        if let Some(known) = counters.all.get(&key) {
            return known.clone();
        }
        if counters.all.len() >= counters.sweep_at {
            let now = now();
            counters
                .all
                .retain(|_, counter| Arc::strong_count(counter) > 1 || counter.present(now).is_some());
            counters.sweep_at = (2 * counters.all.len()).max(SWEEP_MIN);
        }
        let counter = Arc::new(Counter::new(key.clone(), windows()));
        counters.all.insert(key, counter.clone());
        counter
    }

    /// Takes the uses that the control plane does not know yet. A use of 0 asks for the uses of the others.
    fn take(&self) -> Vec<QuotaUse> {
        let (mut uses, now) = (Vec::new(), now());
        for (key, counter) in self.lock().all.iter().filter(|(key, _)| key.server.is_none()) {
            let of = |Taken { window, count, known }| {
                let (name, length) = (key.name.clone(), counter.length());
                QuotaUse { name, window, length, count, known }
            };
            let mut taken = counter.take();
            if let Some(window) = counter.ask(now).filter(|_| taken.is_empty()) {
                taken.push(Taken { window, count: 0, known: 0 });
            }
            uses.extend(taken.into_iter().map(of));
        }
        uses
    }

    /// The uses of the quotas of a subscription in their present windows.
    fn present(&self, subscription: &str, now: u64) -> Vec<PresentUse> {
        let all = self.lock();
        let of = all.all.iter().filter(|(key, _)| *key.name.subscription == *subscription);
        let uses = of.filter_map(|(key, counter)| {
            let (end, used) = counter.present(now)?;
            Some(PresentUse { quota: key.name.quota.clone(), used, end })
        });
        uses.collect()
    }

    fn get(&self, name: &QuotaName) -> Option<Arc<Counter>> {
        let key = QuotaKey { name: name.clone(), server: None };
        self.lock().all.get(&key).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The uses of a quota in its present window, by all data planes as far as they are known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentUse {
    /// The name of the quota.
    pub quota: Box<str>,
    /// The requests or bytes.
    pub used: u64,
    /// The end of the window, in seconds since 1970.
    pub end: u64,
}

/// The start and the end of the window of a quota that is open at a time, in seconds since 1970; `None` for windows that start with
/// the first request.
#[must_use]
pub fn calendar_window(quota: &Quota, now: u64) -> Option<(u64, u64)> {
    match Windows::new(quota) {
        Windows::Calendar(calendar) => calendar.compute(now),
        Windows::FromFirstRequest(_) => None,
    }
}

/// The exchange of the uses of quotas with the control plane, or with the place that counts in its stead.
#[derive(Clone, Debug)]
pub struct QuotaExchange(Arc<Quotas>);

impl QuotaExchange {
    pub(crate) fn new(quotas: Arc<Quotas>) -> Self {
        Self(quotas)
    }

    /// Takes the uses that nobody else knows yet.
    #[must_use]
    pub fn take(&self) -> Vec<QuotaUse> {
        self.0.take()
    }

    /// The uses of the quotas of a subscription, `namespace/name`, in their present windows. A quota without a use has no entry.
    #[must_use]
    pub fn present(&self, subscription: &str) -> Vec<PresentUse> {
        self.0.present(subscription, now())
    }

    /// Keeps uses for the next exchange, because nobody has counted them.
    pub fn put_back(&self, uses: Vec<QuotaUse>) {
        for QuotaUse { name, window, count, known, length: _ } in uses {
            if let Some(counter) = self.0.get(&name) {
                counter.put_back(Taken { window, count, known });
            }
        }
    }

    /// Adopts the totals of all data planes. They include all uses that were taken here.
    pub fn merge(&self, totals: &[QuotaTotal]) {
        for QuotaTotal { name, window, count } in totals {
            if let Some(counter) = self.0.get(name) {
                counter.merge((*window, *count), now());
            }
        }
    }
}

/// The time of this machine, in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_outlives_its_subscription_until_its_window_ends() {
        let quotas = Quotas::default();
        let counter = |subscription: &str| {
            let name = QuotaName { subscription: subscription.into(), quota: "a".into(), terms: "".into() };
            quotas.counter(QuotaKey { name, server: None }, || Windows::FromFirstRequest(3600))
        };
        counter("used").count(10, now(), 3);
        counter("ended").count(10, now() - 7200, 3);
        for nth in 0..4 * SWEEP_MIN {
            counter(&format!("unused-{nth}"));
        }
        assert_eq!(counter("used").present(now()).map(|(_, used)| used), Some(3));
        let counters = quotas.lock();
        assert!(counters.all.len() <= SWEEP_MIN + 1, "{} counters without a use stay", counters.all.len());
        assert!(counters.all.keys().all(|key| &*key.name.subscription != "ended"));
    }
}
