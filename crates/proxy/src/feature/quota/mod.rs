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

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use foldhash::HashMap;
use sluicegate_model::ObjectId;
use sluicegate_model::feature::{Quota, QuotaUnit};

pub(crate) use counter::{Counter, Taken};
pub(crate) use window::Windows;

/// The counters of all quotas, which outlive configurations.
#[derive(Debug, Default)]
pub(crate) struct Quotas(Mutex<HashMap<QuotaKey, Weak<Counter>>>);

/// What identifies a count: a change of the number that a quota allows keeps the count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QuotaKey {
    pub(crate) subscription: ObjectId,
    pub(crate) name: Box<str>,
    pub(crate) unit: QuotaUnit,
    /// The windows, as a text.
    pub(crate) windows: Box<str>,
}

/// A use of a quota that others do not know yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) counter: Arc<Counter>,
    /// The start of the window, in seconds since 1970.
    pub(crate) window: u64,
    pub(crate) count: u64,
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

    /// The counter of a subscription.
    pub(crate) fn counter(&self, subscription: &ObjectId, quotas: &Quotas) -> Arc<Counter> {
        let (unit, windows) = (self.unit, format!("{:?}", self.source.window()).into());
        let name = self.source.name.as_str().into();
        let key = QuotaKey { subscription: subscription.clone(), name, unit, windows };
        quotas.counter(key, || Windows::new(&self.source))
    }
}

impl Quotas {
    fn counter(&self, key: QuotaKey, windows: impl FnOnce() -> Windows) -> Arc<Counter> {
        let mut all = self.lock();
        if let Some(known) = all.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let counter = Arc::new(Counter::new(key.clone(), windows()));
        all.insert(key, Arc::downgrade(&counter));
        counter
    }

    /// Takes what the others do not know yet.
    pub(crate) fn take(&self) -> Vec<Usage> {
        let mut all = self.lock();
        let mut taken = Vec::new();
        all.retain(|_, counter| {
            let Some(counter) = counter.upgrade() else { return false };
            for Taken { window, count } in counter.take() {
                taken.push(Usage { counter: counter.clone(), window, count });
            }
            true
        });
        taken
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<QuotaKey, Weak<Counter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time of this machine, in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
