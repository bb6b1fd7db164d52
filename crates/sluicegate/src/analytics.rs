//! Analytics as options, and the way of the sums from the workers to the store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use sluicegate_admin::Measure;
use sluicegate_analytics::{Location, Outbox, Retention, Store, StoreError, StoreOptions};
use sluicegate_link::{Report, ReportStore, Reports};
use sluicegate_model::analytics::Batch;
use sluicegate_proxy::record::analytics::{Analytics, AnalyticsOut, DEFAULT_MAX_SERIES};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::settings::size_in;

/// The pause after a batch that could not be stored.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the end of the process waits until the last sums are stored.
const LAST: Duration = Duration::from_secs(3);
/// The variable with the password of PostgreSQL.
const PASSWORD: &str = "SLUICEGATE_ANALYTICS_DATABASE_PASSWORD";

/// The sums of a data plane.
#[derive(Debug, Args)]
#[command(next_help_heading = "Analytics")]
pub(crate) struct CollectArgs {
    /// Add requests up by minute, route, API, operation, consumer, plan, endpoint and status, for sluicegate apis, sluicegate top and
    /// the page /analytics of the admin interface. A data plane sends the sums to its control plane, which needs the option too.
    #[arg(long)]
    pub(crate) analytics: bool,
    /// The maximum number of series in a minute. A series is a combination of route, operation, consumer, plan, endpoint and status.
    /// Beyond the limit, requests of new series are counted with the consumer and the endpoint (other);
    /// sluicegate_analytics_over_limit_total counts these requests. [range: 1000 to 1000000]
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_MAX_SERIES as u32,
        requires = "analytics",
        value_parser = clap::value_parser!(u32).range(1000..=1_000_000)
    )]
    analytics_max_series: u32,
    /// The size of the sums that wait while the control plane or the database is unavailable. Beyond this size, the oldest sums lose
    /// their consumers and endpoints, and then the oldest sums are dropped; sluicegate_analytics_dropped_total counts their
    /// requests. [range: 1Mi to 1Gi]
    #[arg(long, value_name = "SIZE", value_parser = size_in(1 << 20..=1 << 30), default_value = "24Mi", requires = "analytics")]
    analytics_buffer: u64,
}

/// The store of a control plane.
#[derive(Debug, Args)]
#[command(next_help_heading = "Analytics")]
pub(crate) struct StoreArgs {
    /// The database of analytics, of the uses of quotas and of the audit trail: sqlite:FILE, or postgres://USER@HOST:PORT/DATABASE?sslmode=require for several control planes.
    /// Without sslmode, a server on another machine must have TLS. [default: in memory, at most 64 MiB, and lost at the end of the
    /// process]
    #[arg(long, value_name = "DATABASE")]
    analytics_database: Option<Location>,
    /// The file with the password of PostgreSQL, which is read for each connection. Without the file, the password is in the variable
    /// SLUICEGATE_ANALYTICS_DATABASE_PASSWORD. [default: none]
    #[arg(long, value_name = "FILE", requires = "analytics_database")]
    analytics_database_password_file: Option<PathBuf>,
    /// The file with the CA certificates of PostgreSQL, in PEM. [default: the certificates that browsers trust]
    #[arg(long, value_name = "FILE", requires = "analytics_database")]
    analytics_database_ca: Option<PathBuf>,
    /// The days for which the sums of minutes are kept. [range: 1 to 366]
    #[arg(
        long,
        value_name = "DAYS",
        default_value = "2",
        requires = "analytics",
        value_parser = clap::value_parser!(u32).range(1..=366)
    )]
    analytics_keep_minutes: u32,
    /// The days for which the sums of hours are kept. [range: 1 to 3660]
    #[arg(
        long,
        value_name = "DAYS",
        default_value = "60",
        requires = "analytics",
        value_parser = clap::value_parser!(u32).range(1..=3660)
    )]
    analytics_keep_hours: u32,
    /// The days for which the sums of days are kept. [range: 1 to 3660]
    #[arg(
        long,
        value_name = "DAYS",
        default_value = "730",
        requires = "analytics",
        value_parser = clap::value_parser!(u32).range(1..=3660)
    )]
    analytics_keep_days: u32,
}

impl CollectArgs {
    /// The sums that wait for the store, if analytics are enabled.
    pub(crate) fn outbox(&self) -> Option<Arc<Outbox>> {
        let instance = format!("{:032x}", fastrand::u128(..));
        self.analytics.then(|| Arc::new(Outbox::new(instance.into(), self.analytics_buffer as usize)))
    }

    /// The analytics of the workers.
    pub(crate) fn to(&self, outbox: &Arc<Outbox>) -> Analytics {
        Analytics {
            max_series: usize::try_from(self.analytics_max_series).unwrap_or(DEFAULT_MAX_SERIES),
            out: Arc::new(ToOutbox(outbox.clone())),
        }
    }
}

impl StoreArgs {
    /// Whether the options name a database.
    pub(crate) fn has_database(&self) -> bool {
        self.analytics_database.is_some()
    }

    /// The place of the database.
    pub(crate) fn location(&self) -> Location {
        let mut location = self.analytics_database.clone().unwrap_or_default();
        if let Some(path) = &self.analytics_database_password_file {
            location = location.with_password_file(path.clone());
        } else if let Ok(password) = std::env::var(PASSWORD) {
            location = location.with_password(&password);
        }
        if let Some(path) = &self.analytics_database_ca {
            location = location.with_authorities(path.clone());
        }
        location
    }

    /// Starts the store.
    pub(crate) fn start(&self) -> anyhow::Result<Arc<Store>> {
        let location = self.location();
        let retention = Retention {
            minutes: self.analytics_keep_minutes,
            hours: self.analytics_keep_hours,
            days: self.analytics_keep_days,
        };
        tracing::info!(database = %location, "the database of analytics and quotas opens");
        let store = Store::start(StoreOptions { location, retention });
        Ok(Arc::new(store.context("cannot start the thread of analytics")?))
    }
}

/// The sums of workers go to the outbox.
struct ToOutbox(Arc<Outbox>);

impl AnalyticsOut for ToOutbox {
    fn batch(&self, batch: Batch) {
        self.0.push(batch);
    }
}

/// The sums of the outbox go over the link.
pub(crate) struct OverLink(pub(crate) Arc<Outbox>);

impl Reports for OverLink {
    fn instance(&self) -> &str {
        self.0.instance()
    }

    fn after(&self, sequence: u64) -> Option<(u64, Bytes)> {
        self.0.after(sequence)
    }

    fn stored(&self, sequence: u64) {
        self.0.acknowledge(sequence);
    }

    fn newest(&self) -> watch::Receiver<u64> {
        self.0.newest()
    }
}

/// The store of a control plane, for the reports of data planes.
pub(crate) fn report_store(store: Arc<Store>) -> ReportStore {
    ReportStore::new(move |Report { node, instance, sequence, body }| {
        let store = store.clone();
        Box::pin(async move {
            match store.store(&instance, sequence, body).await {
                Ok(_) => true,
                Err(error @ StoreError::Batch(_)) => {
                    tracing::warn!(%node, "a report of a data plane is dropped: {error}");
                    true
                }
                Err(StoreError::Busy | StoreError::Database(_)) => false,
            }
        })
    })
}

/// Stores the batches of the outbox in the same process, until the future is dropped.
pub(crate) async fn deliver(outbox: Arc<Outbox>, store: Arc<Store>) {
    let mut newest = outbox.newest();
    loop {
        newest.mark_unchanged();
        let Some((sequence, body)) = outbox.after(0) else {
            // The outbox holds the sender.
            let _ = newest.changed().await;
            continue;
        };
        match store.store(outbox.instance(), sequence, body).await {
            Ok(_) | Err(StoreError::Batch(_)) => outbox.acknowledge(sequence),
            Err(StoreError::Busy | StoreError::Database(_)) => sleep(PAUSE).await,
        }
    }
}

/// Waits until the last sums are stored.
pub(crate) async fn finish(outbox: &Outbox) {
    let requests = outbox.drain(LAST).await;
    if requests > 0 {
        tracing::warn!(requests, "the analytics of the last requests are not stored, and are lost");
    }
}

/// The numbers of an outbox and of a store, for metrics.
pub(crate) fn measures(outbox: Option<&Outbox>, store: Option<&Store>) -> Vec<Measure> {
    let mut measures = Vec::new();
    if let Some(outbox) = outbox {
        let status = outbox.status();
        measures.extend([
            Measure::gauge(
                "sluicegate_analytics_waiting",
                "Batches of sums that are not stored yet",
                status.waiting as u64,
            ),
            Measure::gauge(
                "sluicegate_analytics_waiting_bytes",
                "Size of the batches of sums that are not stored yet",
                status.bytes as u64,
            ),
            Measure::counter(
                "sluicegate_analytics_coarsened",
                "Requests whose sums lost their consumer and endpoint, because --analytics-buffer was full",
                status.coarsened,
            ),
            Measure::counter(
                "sluicegate_analytics_dropped",
                "Requests whose sums were dropped, because --analytics-buffer was full",
                status.dropped,
            ),
        ]);
    }
    if let Some(store) = store {
        let status = store.status();
        measures.extend([
            Measure::counter(
                "sluicegate_analytics_stored",
                "Requests whose sums were stored",
                status.requests,
            ),
            Measure::counter(
                "sluicegate_analytics_repeated",
                "Batches of sums that had been stored before, and did not count again",
                status.repeated,
            ),
            Measure::counter(
                "sluicegate_analytics_database_failures",
                "Failures of the database of analytics",
                status.failures,
            ),
        ]);
    }
    measures
}

#[cfg(test)]
mod tests {
    use sluicegate_analytics::outbox::DEFAULT_BYTES;

    use super::*;

    #[test]
    fn default_buffer_is_the_default_of_the_outbox() {
        assert_eq!(size_in(0..=u64::MAX)("24Mi"), Ok(DEFAULT_BYTES as u64));
    }
}
