//! The way of the uses of quotas from the workers to the place that counts them for all data planes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sluicegate_analytics::Store;
use sluicegate_dashboard::{Name, QuotaUsage, Quotas};
use sluicegate_link::{QuotaLedger, QuotaUses, ReceivedUses};
use sluicegate_model::feature::Quota;
use sluicegate_model::usage::{QuotaTotal, QuotaUse};
use sluicegate_proxy::registry::{PresentUse, QuotaExchange, calendar_window};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// The time between two exchanges. In this time, data planes do not know the uses of the others.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long the start of the process waits for the present uses, and its end until the last uses are counted.
const PATIENCE: Duration = Duration::from_secs(2);

/// The uses in one message: less than 1 MiB, the longest message of a data plane.
const USES: usize = 2000;

/// The uses of a data plane that are not counted yet.
pub(crate) struct Pending {
    /// Set when the workers start.
    exchange: OnceLock<QuotaExchange>,
    instance: String,
    queue: Mutex<Queue>,
    newest: watch::Sender<u64>,
}

#[derive(Default)]
struct Queue {
    /// The number of the last uses.
    number: u64,
    /// Uses with their numbers. They stay until they are counted.
    waiting: VecDeque<(u64, Vec<QuotaUse>)>,
}

impl Pending {
    pub(crate) fn new() -> Arc<Self> {
        let instance = format!("quotas-{:032x}", fastrand::u128(..));
        let (exchange, queue, newest) = (OnceLock::new(), Mutex::default(), watch::Sender::new(0));
        Arc::new(Self { exchange, instance, queue, newest })
    }

    /// Takes the uses of these workers from now on.
    pub(crate) fn attach(&self, exchange: QuotaExchange) {
        // One process has one set of workers.
        let _ = self.exchange.set(exchange);
    }

    /// Takes the uses in each interval, until the future is dropped.
    pub(crate) async fn gather(self: Arc<Self>) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.take();
        }
    }

    fn take(&self) {
        let mut queue = self.queue();
        // Uses stay in the counters, which add them up, while nobody counts them.
        if !queue.waiting.is_empty() {
            return;
        }
        let uses = self.exchange.get().map(QuotaExchange::take).unwrap_or_default();
        for part in uses.chunks(USES) {
            queue.number += 1;
            let number = queue.number;
            queue.waiting.push_back((number, part.to_vec()));
        }
        let number = queue.number;
        drop(queue);
        self.newest.send_if_modified(|newest| std::mem::replace(newest, number) != number);
    }

    /// Asks for the uses of the quotas of the first configuration, so that the process does not grant them again.
    pub(crate) async fn ask(&self) {
        let waiting = self.exchanged().await;
        if waiting > 0 {
            tracing::warn!(
                quotas = waiting,
                "the uses of quotas are not known yet; the process counts from 0 until they are known"
            );
        }
    }

    /// Waits until the last uses are counted, but not long.
    pub(crate) async fn finish(&self) {
        let waiting = self.exchanged().await;
        if waiting > 0 {
            tracing::warn!(quotas = waiting, "the last uses of quotas are not counted, and are lost");
        }
    }

    /// Waits until all uses are counted, but not long. Returns the number of uses that are not counted.
    async fn exchanged(&self) -> usize {
        let end = Instant::now() + PATIENCE;
        loop {
            self.take();
            let waiting = self.queue().waiting.iter().map(|(_, uses)| uses.len()).sum();
            if waiting == 0 || Instant::now() >= end {
                return waiting;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuotaUses for Pending {
    fn instance(&self) -> &str {
        &self.instance
    }

    fn next(&self) -> Option<(u64, Vec<QuotaUse>)> {
        self.queue().waiting.front().cloned()
    }

    fn counted(&self, sequence: u64, totals: &[QuotaTotal]) {
        let mut queue = self.queue();
        let before = queue.waiting.len();
        queue.waiting.retain(|(number, _)| *number != sequence);
        let is_known = queue.waiting.len() < before;
        drop(queue);
        // A second answer may be older than uses that were counted since.
        if is_known && let Some(exchange) = self.exchange.get() {
            exchange.merge(totals);
        }
    }

    fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

/// Counts the uses in the store of the same process, until the future is dropped.
pub(crate) async fn count(pending: Arc<Pending>, store: Arc<Store>) {
    let mut newest = pending.newest();
    loop {
        newest.mark_unchanged();
        let Some((sequence, uses)) = pending.next() else {
            // `pending` holds the sender.
            let _ = newest.changed().await;
            continue;
        };
        match store.count_quotas(&pending.instance, sequence, uses).await {
            Ok(totals) => pending.counted(sequence, &totals),
            // The store logs the failure, and tries again.
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}

/// The uses of quotas that the workers of this process know.
pub(crate) struct QuotasOfWorkers(pub(crate) QuotaExchange);

impl Quotas for QuotasOfWorkers {
    fn of(&self, subscription: &Name, _: &[Quota]) -> Option<Vec<QuotaUsage>> {
        let uses = self.0.present(&subscription.to_string()).into_iter();
        Some(
            uses.map(|PresentUse { quota, used, end }| QuotaUsage { quota: quota.into(), used, end })
                .collect(),
        )
    }
}

/// The uses of quotas that a control plane has counted.
pub(crate) struct QuotasOfStore(pub(crate) Arc<Store>);

impl Quotas for QuotasOfStore {
    fn of(&self, subscription: &Name, quotas: &[Quota]) -> Option<Vec<QuotaUsage>> {
        let windows = self.0.quotas_of(&subscription.to_string()).ok()?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let uses = quotas.iter().filter_map(|quota| {
            let name = quota.name.as_str();
            let last = windows.iter().rfind(|window| window.quota == *name)?;
            let end = match calendar_window(quota, now) {
                Some((start, end)) => (last.start >= start).then_some(end)?,
                None => last.until,
            };
            Some(QuotaUsage { quota: name.to_owned(), used: last.total, end })
        });
        Some(uses.collect())
    }
}

/// The ledger of a control plane, for the uses of data planes.
pub(crate) fn ledger(store: Arc<Store>) -> QuotaLedger {
    QuotaLedger::new(move |ReceivedUses { instance, sequence, uses }| {
        let store = store.clone();
        Box::pin(async move { store.count_quotas(&instance, sequence, uses).await.ok() })
    })
}

#[cfg(test)]
mod tests {
    use sluicegate_analytics::{Location, Retention, StoreOptions};
    use sluicegate_model::usage::QuotaName;

    use super::*;

    fn quota(fields: &str) -> Quota {
        serde_json::from_str(&format!("{{\"requests\": 10, {fields}}}")).expect("a quota")
    }

    #[tokio::test]
    async fn control_plane_knows_the_uses_of_present_windows() {
        let retention = Retention { minutes: 1, hours: 1, days: 1 };
        let store = Store::start(StoreOptions { location: Location::default(), retention }).expect("a store");
        let quotas = [
            quota(r#""name": "day", "calendar": "Day""#),
            quota(r#""name": "last", "calendar": "Day""#),
            quota(r#""name": "hour", "period": "1h""#),
            quota(r#""name": "unused", "period": "1h""#),
        ];
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_secs();
        let (start, end) = calendar_window(&quotas[0], now).expect("a window");
        let of = |name: &str, window, length, count| QuotaUse {
            name: QuotaName { subscription: "shop/a".into(), quota: name.into(), terms: "x".into() },
            window,
            length,
            count,
            known: count,
        };
        let uses = vec![
            of("day", start - 86_400, 0, 9),
            of("day", start, 0, 2),
            of("last", start - 86_400, 0, 9),
            of("hour", now - 60, 3600, 3),
        ];
        store.count_quotas("instance", 1, uses).await.expect("counted uses");
        let subscription = Name { namespace: "shop".to_owned(), name: "a".to_owned() };
        let usage = |quota: &str, used, end| QuotaUsage { quota: quota.to_owned(), used, end };
        let found = QuotasOfStore(Arc::new(store)).of(&subscription, &quotas);
        assert_eq!(found, Some(vec![usage("day", 2, end), usage("hour", 3, now - 60 + 3600)]));
    }
}
