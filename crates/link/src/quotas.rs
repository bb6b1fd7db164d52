//! The uses of quotas of data planes, which a control plane counts together.
//!
//! A data plane numbers its uses, and sends the next uses after the control plane has answered the last ones with the totals of all
//! data planes. After a lost connection, the data plane sends the uses again. The control plane knows them by the instance of the
//! data plane and the number, and counts them once.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use sluicegate_model::usage::{QuotaTotal, QuotaUse};
use tokio::sync::watch;

/// The uses of quotas of a data plane that no control plane has counted yet.
pub trait QuotaUses: Send + Sync {
    /// The identity of this run of the data plane.
    fn instance(&self) -> &str;

    /// The next uses, with their number. The same until they are counted.
    fn next(&self) -> Option<(u64, Vec<QuotaUse>)>;

    /// The control plane has counted the uses with this number.
    fn counted(&self, sequence: u64, totals: &[QuotaTotal]);

    /// Changes when there may be uses to send.
    fn newest(&self) -> watch::Receiver<u64>;
}

/// Uses of quotas as a control plane receives them.
#[derive(Clone, Debug)]
pub struct ReceivedUses {
    /// The run of the data plane.
    pub instance: String,
    /// The number of the uses in this run.
    pub sequence: u64,
    /// The uses.
    pub uses: Vec<QuotaUse>,
}

/// The totals after the uses are counted. `None`: the uses are not counted, and the data plane sends them again after some seconds.
pub type Counted = Pin<Box<dyn Future<Output = Option<Vec<QuotaTotal>>> + Send>>;

/// Counts the uses of all data planes.
#[derive(Clone)]
pub struct QuotaLedger(Arc<dyn Fn(ReceivedUses) -> Counted + Send + Sync>);

impl fmt::Debug for QuotaLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuotaLedger")
    }
}

impl QuotaLedger {
    /// A ledger that calls this function.
    pub fn new(count: impl Fn(ReceivedUses) -> Counted + Send + Sync + 'static) -> Self {
        Self(Arc::new(count))
    }

    pub(crate) fn count(&self, uses: ReceivedUses) -> Counted {
        (self.0)(uses)
    }
}
