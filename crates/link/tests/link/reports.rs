//! Reports of data planes reach a control plane that stores them, each at least once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sluicegate_link::{DistributorOptions, PlaneIdentity, PlaneTls, Report, ReportStore, Reports};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::support::{Certificates, Control, Data, LIMIT, config_change};

type TestResult = anyhow::Result<()>;

/// The reports that are not stored.
struct Pending {
    reports: Mutex<BTreeMap<u64, Bytes>>,
    newest: watch::Sender<u64>,
    left: watch::Sender<usize>,
}

impl Pending {
    fn new() -> Arc<Self> {
        let (newest, left) = (watch::Sender::new(0), watch::Sender::new(0));
        Arc::new(Self { reports: Mutex::default(), newest, left })
    }

    fn add(&self, body: &[u8]) {
        let sequence = *self.newest.borrow() + 1;
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.insert(sequence, Bytes::copy_from_slice(body));
        self.left.send_replace(reports.len());
        self.newest.send_replace(sequence);
    }

    async fn all_stored(&self) -> TestResult {
        timeout(LIMIT, self.left.subscribe().wait_for(|left| *left == 0)).await??;
        Ok(())
    }
}

impl Reports for Pending {
    fn instance(&self) -> &str {
        "an instance"
    }

    fn after(&self, sequence: u64) -> Option<(u64, Bytes)> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.range(sequence + 1..).next().map(|(sequence, body)| (*sequence, body.clone()))
    }

    fn stored(&self, sequence: u64) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.remove(&sequence);
        self.left.send_replace(reports.len());
    }

    fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

/// A store that notes each report, and answers as long as `works` is true.
#[derive(Clone)]
struct Noted {
    reports: Arc<Mutex<Vec<Report>>>,
    count: watch::Sender<usize>,
    works: watch::Sender<bool>,
}

impl Noted {
    fn new() -> Self {
        Self { reports: Arc::default(), count: watch::Sender::new(0), works: watch::Sender::new(true) }
    }

    fn options(&self) -> DistributorOptions {
        let noted = self.clone();
        let store = ReportStore::new(move |report| {
            let noted = noted.clone();
            Box::pin(async move {
                noted.note(report);
                let mut works = noted.works.subscribe();
                works.wait_for(|works| *works).await.is_ok()
            })
        });
        DistributorOptions { reports: Some(store), ..DistributorOptions::default() }
    }

    fn note(&self, report: Report) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.push(report);
        self.count.send_replace(reports.len());
    }

    fn sequences(&self) -> Vec<u64> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.iter().map(|report| report.sequence).collect()
    }

    async fn at_least(&self, count: usize) -> TestResult {
        timeout(LIMIT, self.count.subscribe().wait_for(|reports| *reports >= count)).await??;
        Ok(())
    }
}

fn data(control: &Control, certificates: &Certificates, pending: &Arc<Pending>) -> anyhow::Result<Data> {
    let identity = PlaneIdentity::Certificate(PlaneTls::read(certificates.proxy.path())?);
    Ok(Data::start_reporting(control.address, identity, None, "one", Some(pending.clone())))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_are_stored_in_order_also_beside_a_large_configuration() -> TestResult {
    let (certificates, pending, noted) = (Certificates::new()?, Pending::new(), Noted::new());
    let large = vec![7; 900 << 10];
    pending.add(b"first");
    for _ in 0..5 {
        pending.add(&large);
    }
    let address = "127.0.0.1:0".parse()?;
    let control = Control::start_at(address, certificates.control.path(), noted.options()).await?;
    control.distributor.publish(&config_change(20_000, 1));
    let mut data = data(&control, &certificates, &pending)?;
    for port in 2..6 {
        let version = control.distributor.publish(&config_change(20_000, port));
        timeout(LIMIT, control.distributor.served_by(1, version)).await?;
    }
    pending.all_stored().await?;
    pending.add(b"last");
    pending.all_stored().await?;
    assert_eq!(noted.sequences(), [1, 2, 3, 4, 5, 6, 7]);
    let reports = noted.reports.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let first = &reports[0];
    assert_eq!((&*first.node, &*first.instance, &first.body[..]), ("one", "an instance", &b"first"[..]));
    assert_eq!(reports[5].body, large);
    data.wait(|served| served.hosts() == 20_000).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_that_is_not_acknowledged_is_sent_to_the_next_control_plane() -> TestResult {
    let (certificates, pending, noted) = (Certificates::new()?, Pending::new(), Noted::new());
    noted.works.send_replace(false);
    let address = "127.0.0.1:0".parse()?;
    let control = Control::start_at(address, certificates.control.path(), noted.options()).await?;
    control.distributor.publish(&config_change(1, 1));
    pending.add(b"one");
    let _data = data(&control, &certificates, &pending)?;
    noted.at_least(1).await?;
    // The control plane stores the report, and ends before it acknowledges the report.
    let address = control.stop().await;
    pending.add(b"two");
    noted.works.send_replace(true);
    let control = Control::start_at(address, certificates.control.path(), noted.options()).await?;
    control.distributor.publish(&config_change(1, 1));
    pending.all_stored().await?;
    assert_eq!(noted.sequences(), [1, 1, 2]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_plane_without_a_store_receives_no_report() -> TestResult {
    let (certificates, pending) = (Certificates::new()?, Pending::new());
    pending.add(b"one");
    let control = Control::start(certificates.control.path()).await?;
    let version = control.distributor.publish(&config_change(10, 1));
    let mut data = data(&control, &certificates, &pending)?;
    timeout(LIMIT, control.distributor.served_by(1, version)).await?;
    data.wait(|served| served.hosts() == 10).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(*pending.left.borrow(), 1, "the report waits");
    Ok(())
}
