//! Reports of data planes, such as the sums of requests, which a control plane stores.
//!
//! A data plane numbers its reports, and sends the next report after the control plane has stored the last one. After a lost
//! connection, the data plane sends the report again. The control plane knows a report by the instance of the data plane and the
//! number.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;

/// The reports of a data plane that no control plane has stored yet.
pub trait Reports: Send + Sync {
    /// The identity of this run of the data plane.
    fn instance(&self) -> &str;

    /// The first report after this number, with its number.
    fn after(&self, sequence: u64) -> Option<(u64, Bytes)>;

    /// Removes a report that is stored.
    fn stored(&self, sequence: u64);

    /// The number of the newest report, and every change.
    fn newest(&self) -> watch::Receiver<u64>;
}

/// A report as a control plane receives it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pod or node of the data plane.
    pub node: Arc<str>,
    /// The run of the data plane.
    pub instance: String,
    /// The number of the report.
    pub sequence: u64,
    /// The contents.
    pub body: Bytes,
}

/// Whether a report is stored. If not, the data plane sends the report again after some seconds.
pub type ReportStored = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Stores the reports of data planes.
#[derive(Clone)]
pub struct ReportStore(Arc<dyn Fn(Report) -> ReportStored + Send + Sync>);

impl fmt::Debug for ReportStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReportStore")
    }
}

impl ReportStore {
    /// A store that calls this function.
    pub fn new(store: impl Fn(Report) -> ReportStored + Send + Sync + 'static) -> Self {
        Self(Arc::new(store))
    }

    pub(crate) fn store(&self, report: Report) -> ReportStored {
        (self.0)(report)
    }
}
