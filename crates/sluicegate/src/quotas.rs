//! The way of the uses of quotas from the workers to the place that counts them for all data planes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sluicegate_analytics::Store;
use sluicegate_link::{QuotaLedger, QuotaUses, ReceivedUses};
use sluicegate_model::usage::{QuotaTotal, QuotaUse};
use sluicegate_proxy::registry::QuotaExchange;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

/// The time between two exchanges. In this time, data planes do not know the uses of the others.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long the end of the process waits until the last uses are counted.
const LAST: Duration = Duration::from_secs(2);

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

    /// Takes the uses of these workers in each interval, until the future is dropped.
    pub(crate) async fn gather(self: Arc<Self>, exchange: QuotaExchange) {
        // One process has one set of workers.
        let _ = self.exchange.set(exchange);
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

    /// Waits until the last uses are counted, but not long.
    pub(crate) async fn finish(&self) {
        let end = Instant::now() + LAST;
        loop {
            self.take();
            let waiting: usize = self.queue().waiting.iter().map(|(_, uses)| uses.len()).sum();
            if waiting == 0 {
                return;
            }
            if Instant::now() >= end {
                tracing::warn!(quotas = waiting, "the last uses of quotas are not counted, and are lost");
                return;
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

/// The ledger of a control plane, for the uses of data planes.
pub(crate) fn ledger(store: Arc<Store>) -> QuotaLedger {
    QuotaLedger::new(move |ReceivedUses { instance, sequence, uses }| {
        let store = store.clone();
        Box::pin(async move { store.count_quotas(&instance, sequence, uses).await.ok() })
    })
}
