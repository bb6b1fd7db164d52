//! The data plane's side of the link: follows a control plane forever.
//!
//! | module | contents |
//! |---|---|
//! | [`session`] | one connection, from the DNS lookup to its end |
//! | [`backoff`] | the delay before the next connection attempt |
//! | [`snapshot`] | the last configuration, in a file |

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustls_pki_types::ServerName;
use sluicegate_model::{Build, Change};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::quotas::QuotaUses;
use crate::reports::Reports;
use crate::store::{Delta, Store};
use crate::tls::PlaneIdentity;

mod backoff;
mod session;
mod snapshot;

use backoff::Backoff;
use session::LinkError;
use snapshot::{Snapshot, SnapshotError};

/// The time for which a data plane waits for the control plane before it serves the snapshot.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(2);
/// The delay from a change to the snapshot. The snapshot includes the changes during the delay.
const SNAPSHOT_DELAY: Duration = Duration::from_secs(1);
/// The minimum time between two snapshots, because a snapshot contains the whole configuration.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(4);

/// The options of a subscriber: the control plane, the certificates, the snapshot.
#[derive(Clone)]
pub struct SubscriberOptions {
    /// The version of the data plane, for the control plane's list of data planes.
    pub build: Build,
    /// The control plane: `HOST:PORT`. Each connection resolves the name again.
    pub control: Box<str>,
    /// The name that the control plane's certificate must have.
    pub control_name: ServerName<'static>,
    /// The certificate or the token of the data plane.
    pub identity: PlaneIdentity,
    /// The pod or node of the data plane, for logs.
    pub node: Box<str>,
    /// The path of the snapshot. `None`: no snapshot.
    pub snapshot: Option<PathBuf>,
    /// The reports for the control plane. `None`: no reports.
    pub reports: Option<Arc<dyn Reports>>,
    /// The uses of quotas for the control plane. `None`: the data plane counts by itself.
    pub quotas: Option<Arc<dyn QuotaUses>>,
}

impl fmt::Debug for SubscriberOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { build, control, control_name, identity, node, snapshot, reports, quotas } = self;
        f.debug_struct("SubscriberOptions")
            .field("build", build)
            .field("control", control)
            .field("control_name", control_name)
            .field("identity", identity)
            .field("node", node)
            .field("snapshot", snapshot)
            .field("reports", &reports.is_some())
            .field("quotas", &quotas.is_some())
            .finish()
    }
}

/// The state of the link, as seen by a data plane.
#[derive(Clone, Debug, Default)]
pub struct SubscriberTelemetry {
    /// Whether the link is connected.
    pub is_connected: bool,
    /// The time of the last connect or disconnect.
    pub since: Option<SystemTime>,
    /// The number of connections.
    pub connections: u64,
    /// The reason why the last connection or attempt ended.
    pub last_error: Option<Arc<str>>,
    /// The served version. Versions of different runs of a control plane cannot be compared.
    pub version: u64,
    /// The number of resources that this version cannot read. For each of these resources, the data plane serves the
    /// last valid version or nothing.
    pub refused: usize,
    /// The time of the last snapshot.
    pub snapshot_written: Option<SystemTime>,
    /// The number of failed writes of the snapshot.
    pub snapshot_failures: u64,
}

/// A data plane's side of the link.
pub struct Subscriber {
    options: SubscriberOptions,
    telemetry: Arc<watch::Sender<SubscriberTelemetry>>,
    held: Arc<Mutex<Held>>,
    /// Notified when `held` changed.
    changed: Arc<Notify>,
    /// The time at which the data plane serves the snapshot if the control plane is not reachable.
    deadline: Instant,
    /// The epoch of the next batch.
    pending_epoch: Bytes,
    /// Whether the proxy has received a change.
    is_published: bool,
}

/// The state of a data plane.
#[derive(Default)]
struct Held {
    store: Store,
    epoch: Bytes,
    version: u64,
}

/// An epoch that no control plane has, so that the control plane compares all resources.
const UNLIKE_ANY: Bytes = Bytes::from_static(b"last good forms");

impl Held {
    /// The snapshot for the next start.
    fn snapshot(&self) -> Snapshot {
        // A data plane that starts from last valid versions lacks the received versions, so the control plane must send
        // them again.
        let is_whole = self.store.refused() == 0;
        let epoch = if is_whole { self.epoch.clone() } else { UNLIKE_ANY };
        Snapshot { epoch, version: self.version, resources: self.store.snapshot() }
    }
}

impl Subscriber {
    /// Reads the snapshot, if the file exists. An invalid snapshot is ignored and logged.
    #[must_use]
    pub fn new(options: SubscriberOptions) -> Self {
        let held = options.snapshot.as_deref().map(start_from).unwrap_or_default();
        Self {
            telemetry: Arc::default(),
            held: Arc::new(Mutex::new(held)),
            changed: Arc::default(),
            deadline: Instant::now() + SNAPSHOT_PATIENCE,
            pending_epoch: Bytes::new(),
            is_published: false,
            options,
        }
    }

    /// The state of the link, and every change of the state.
    #[must_use]
    pub fn telemetry(&self) -> watch::Receiver<SubscriberTelemetry> {
        self.telemetry.subscribe()
    }

    /// Follows the control plane until the future is dropped. The first change is a complete configuration: from the
    /// control plane, or from the snapshot if the control plane is unreachable or silent for 2 s. Until then `publish`
    /// is not called. The future from `publish` is ready when the proxy serves the change, which the data plane then
    /// reports to the control plane. `publish` itself must not block.
    ///
    /// The first attempt starts at once. After a failure the delay is up to 200 ms, doubling to 1 s, with jitter.
    pub async fn run<F: Future<Output = ()> + Send + 'static>(
        mut self,
        mut publish: impl FnMut(Change) -> F + Send,
    ) -> Infallible {
        let _writer = self.options.snapshot.clone().map(|path| {
            let writer =
                write_snapshots(path, self.held.clone(), self.changed.clone(), self.telemetry.clone());
            AbortOnDrop(tokio::spawn(writer))
        });
        let _certificates = match &self.options.identity {
            PlaneIdentity::Certificate(tls) => Some(AbortOnDrop(tokio::spawn(tls.clone().follow()))),
            PlaneIdentity::Token(_) => None,
        };
        let mut backoff = Backoff::default();
        loop {
            let Err(error) = self.session(&mut publish).await;
            let was_connected = self.disconnected(&error);
            if was_connected {
                backoff.worked();
            }
            if !self.is_published {
                self.publish_snapshot(&mut publish);
            }
            sleep(backoff.next()).await;
        }
    }

    /// Records the end of a connection or attempt. Returns whether the link was connected.
    fn disconnected(&self, error: &LinkError) -> bool {
        let text: Arc<str> = error.to_string().into();
        let mut was_connected = false;
        let mut is_new = false;
        self.telemetry.send_modify(|telemetry| {
            was_connected = std::mem::take(&mut telemetry.is_connected);
            if was_connected || telemetry.since.is_none() {
                telemetry.since = Some(SystemTime::now());
            }
            is_new = telemetry.last_error.replace(text.clone()).as_ref() != Some(&text);
        });
        // The subscriber logs a repeated error once.
        if matches!(error, LinkError::Elsewhere) {
            tracing::debug!(control = %self.options.control, "the data plane looks for the control plane that holds the Lease");
        } else if was_connected || is_new {
            tracing::warn!(control = %self.options.control, "there is no connection to the control plane: {text}");
        }
        was_connected
    }

    fn publish_snapshot<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        publish: &mut (impl FnMut(Change) -> F + Send),
    ) {
        let (config, version) = {
            let mut held = self.held();
            if held.store.is_empty() {
                return;
            }
            (held.store.config(), held.version)
        };
        self.is_published = true;
        tracing::warn!(version, "the control plane is not reachable yet; the data plane serves its snapshot");
        tokio::spawn(publish(Change::Config(Arc::new(config))));
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn start_from(path: &Path) -> Held {
    match Snapshot::read(path) {
        Ok(Snapshot { epoch, version, resources }) => {
            let mut store = Store::default();
            store.apply(Delta { changed: resources, gone: Vec::new() });
            Held { store, epoch, version }
        }
        Err(SnapshotError::Read(error)) if error.kind() == std::io::ErrorKind::NotFound => Held::default(),
        Err(error) => {
            tracing::warn!(path = %path.display(), "the snapshot is ignored: {error}");
            Held::default()
        }
    }
}

/// Writes snapshots of changes, on a thread that may block.
async fn write_snapshots(
    path: PathBuf,
    held: Arc<Mutex<Held>>,
    changed: Arc<Notify>,
    telemetry: Arc<watch::Sender<SubscriberTelemetry>>,
) {
    loop {
        changed.notified().await;
        sleep(SNAPSHOT_DELAY).await;
        let (path_there, held) = (path.clone(), held.clone());
        let written = tokio::task::spawn_blocking(move || {
            let snapshot = held.lock().unwrap_or_else(PoisonError::into_inner).snapshot();
            snapshot.write(&path_there)
        });
        match written.await {
            Ok(Ok(())) => {
                telemetry.send_modify(|telemetry| telemetry.snapshot_written = Some(SystemTime::now()));
            }
            Ok(Err(error)) => {
                telemetry.send_modify(|telemetry| telemetry.snapshot_failures += 1);
                tracing::warn!(path = %path.display(), %error, "cannot write the snapshot; trying again");
                changed.notify_one();
            }
            // The runtime shuts down.
            Err(_) => return,
        }
        sleep(SNAPSHOT_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_model::Config;

    use super::*;
    use crate::cut::cut;
    use crate::resource::Kind;

    #[test]
    fn snapshot_with_rejected_resources_does_not_have_the_epoch_of_the_control_plane() {
        let mut held =
            Held { epoch: Bytes::from_static(b"of a control plane"), version: 7, ..Held::default() };
        let all = || cut(&Config::default()).into_iter().collect::<Vec<_>>();
        let mut resources = all();
        held.store.apply(Delta { changed: resources.clone(), gone: vec![] });
        assert_eq!(held.snapshot().epoch, held.epoch);
        let settings = resources.iter_mut().find(|(name, _)| name.kind() == Some(Kind::Settings));
        settings.expect("there are some").1 = Bytes::from_static(b"nonsense");
        held.store.apply(Delta { changed: resources, gone: vec![] });
        assert_ne!(held.snapshot().epoch, held.epoch);
        assert_eq!(held.snapshot().version, 7);
        held.store.apply(Delta { changed: all(), gone: vec![] });
        assert_eq!(held.snapshot().epoch, held.epoch);
    }
}
