//! A control plane and a data plane, each as a separate process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sluicegate_netns::Process;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client;
use sluicegate_testkit::client::Client;
use sluicegate_testkit::load::Load;
use sluicegate_testkit::tls::{Authority, ClientOptions, ExtendedKeyUsagePurpose, Issued};
use tempfile::TempDir;

use crate::support::{LIMIT, Site, free_address, ingress, sluicegate};

type TestResult = anyhow::Result<()>;

/// A site with the certificates and addresses of both planes, and the snapshot.
pub(crate) struct Planes {
    pub(crate) site: Site,
    authority: Authority,
    dir: TempDir,
    link: SocketAddr,
    https: SocketAddr,
    pub(crate) control_plane_admin: SocketAddr,
    /// The database of analytics; `None` without analytics.
    database: Option<PathBuf>,
}

impl Planes {
    pub(crate) fn of<'b>(backends: impl IntoIterator<Item = &'b Backend>) -> anyhow::Result<Self> {
        let this = Self {
            site: Site::of(backends)?,
            authority: Authority::new(),
            dir: tempfile::tempdir()?,
            link: free_address()?,
            https: free_address()?,
            control_plane_admin: free_address()?,
            database: None,
        };
        let names = ["sluicegate-control-plane"];
        this.save("control-plane", &this.authority.issue_for(&names, ExtendedKeyUsagePurpose::ServerAuth))?;
        let names = ["sluicegate-data-plane"];
        this.save("data-plane", &this.authority.issue_for(&names, ExtendedKeyUsagePurpose::ClientAuth))?;
        Ok(this)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Both planes have analytics from now on.
    pub(crate) fn store_analytics(&mut self, database: &Path) {
        self.database = Some(database.to_owned());
    }

    fn tls(&self, plane: &str) -> PathBuf {
        self.dir.path().join(plane)
    }

    fn snapshot(&self) -> PathBuf {
        self.dir.path().join("snapshot")
    }

    fn save(&self, plane: &str, issued: &Issued) -> anyhow::Result<()> {
        let dir = self.tls(plane);
        std::fs::create_dir_all(&dir)?;
        for (name, text) in
            [("tls.crt", &issued.chain_pem), ("tls.key", &issued.key_pem), ("ca.crt", &self.authority.pem())]
        {
            std::fs::write(dir.join(name), text)?;
        }
        Ok(())
    }

    pub(crate) async fn control_plane(&self) -> anyhow::Result<Process> {
        let mut command = sluicegate();
        command.args(["control-plane", "--manifests"]).arg(self.site.path());
        command.args(["--listen", &self.link.to_string(), "--admin", &self.control_plane_admin.to_string()]);
        command
            .arg("--tls-dir")
            .arg(self.tls("control-plane"))
            .args(["--listen-https", &self.https.to_string()]);
        if let Some(database) = &self.database {
            command.args(["--analytics", "--analytics-database", &format!("sqlite:{}", database.display())]);
        }
        let mut control_plane = Process::start(command)?;
        control_plane.wait_for_ok(self.control_plane_admin, "/readyz", LIMIT).await?;
        Ok(control_plane)
    }

    /// Starts a data plane without waiting for its readiness.
    fn start_data_plane(&self) -> anyhow::Result<Process> {
        let mut command = sluicegate();
        command.args(["data-plane", "--control-plane", &self.link.to_string()]);
        command.arg("--tls-dir").arg(self.tls("data-plane")).arg("--snapshot").arg(self.snapshot());
        command.args(["--listen", &self.site.http.to_string(), "--admin", &self.site.admin.to_string()]);
        command.args(["--listen-https", &self.https.to_string()]);
        command.args(["--workers", "2", "--shutdown-grace", "0s", "--shutdown-idle", "300ms"]);
        if self.database.is_some() {
            command.arg("--analytics");
        }
        Process::start(command)
    }

    /// The certificate that a client without SNI receives.
    async fn shown_certificate(&self) -> anyhow::Result<Vec<u8>> {
        let client = Client::connect_tls(self.https, &ClientOptions::default(), "127.0.0.1").await?;
        let chain = client.tls().and_then(|tls| tls.peer_certificates()).unwrap_or_default();
        Ok(chain.first().map(|first| first.to_vec()).unwrap_or_default())
    }

    pub(crate) async fn data_plane(&self) -> anyhow::Result<Process> {
        let mut data_plane = self.start_data_plane()?;
        data_plane.wait_for_ok(self.site.admin, "/readyz", LIMIT).await?;
        Ok(data_plane)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_serves_without_its_control_plane_and_follows_a_new_control_plane() -> TestResult {
    let backends = Backend::group(2, Behaviour::ok()).await?;
    let planes = Planes::of(&backends[..1])?;
    let mut control_plane = planes.control_plane().await?;
    let data_plane = planes.data_plane().await?;
    let load = Load::new(planes.site.http).connections(5).start()?;
    load.wait_for_ok(50, LIMIT).await?;
    // The data plane follows changes of endpoints and of routes.
    planes.site.save_endpoints(&backends)?;
    backends[1].wait_until(|backend| backend.requests() > 0).await?;
    planes.site.save("other.yaml", &ingress("other", "/other"))?;
    planes.site.wait_for_status("/other", 200).await?;

    control_plane.kill()?;
    planes.site.save("other.yaml", &ingress("other", "/another"))?;
    planes.site.save_endpoints(&backends[1..])?;
    // The data plane does not receive the changes, and still serves both backends.
    for backend in &backends {
        let before = backend.requests();
        backend.wait_until(|backend| backend.requests() > before + 50).await?;
    }

    let _control_plane = planes.control_plane().await?;
    wait_for_output(&data_plane, "connected to the control plane", 2).await?;
    planes.site.wait_for_status("/another", 200).await?;
    let end = Instant::now() + LIMIT;
    loop {
        let (gone, stays) = (backends[0].requests(), backends[1].requests());
        backends[1].wait_until(|backend| backend.requests() > stays + 200).await?;
        if backends[0].requests() == gone {
            break;
        }
        anyhow::ensure!(Instant::now() < end, "the removed endpoint still receives requests");
    }
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}\n{}", data_plane.output());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_that_starts_without_a_control_plane_serves_its_snapshot() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let planes = Planes::of([&backend])?;
    // Without a control plane and a snapshot, the data plane is not ready.
    let mut data_plane = planes.start_data_plane()?;
    wait_for_output(&data_plane, "there is no connection to the control plane", 1).await?;
    assert_eq!(client::get(planes.site.admin, "localhost", "/readyz").await?.status, 503);
    let mut control_plane = planes.control_plane().await?;
    data_plane.wait_for_ok(planes.site.admin, "/readyz", LIMIT).await?;
    assert_eq!(planes.site.status("/").await?, 200);
    wait_for_file(&planes.snapshot()).await?;
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(planes.snapshot().metadata()?.permissions().mode() & 0o777, 0o600);

    control_plane.kill()?;
    data_plane.kill()?;
    let data_plane = planes.data_plane().await?;
    assert_eq!(planes.site.status("/").await?, 200);
    wait_for_output(&data_plane, "the data plane serves its snapshot", 1).await?;
    planes.site.save("other.yaml", &ingress("other", "/other"))?;
    std::fs::remove_file(planes.site.path().join("ingress.yaml"))?;
    let _control_plane = planes.control_plane().await?;
    planes.site.wait_for_status("/other", 200).await?;
    planes.site.wait_for_status("/", 404).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn default_certificate_stays_the_same_with_a_new_control_plane() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let planes = Planes::of([&backend])?;
    let mut control_plane = planes.control_plane().await?;
    let data_plane = planes.data_plane().await?;
    let shown = planes.shown_certificate().await?;
    control_plane.kill()?;
    std::fs::remove_file(planes.site.path().join("ingress.yaml"))?;
    let _control_plane = planes.control_plane().await?;
    // The data plane serves the configuration of the second control plane.
    planes.site.wait_for_status("/", 404).await?;
    assert_eq!(planes.shown_certificate().await?, shown, "{}", data_plane.output());
    Ok(())
}

#[tokio::test]
async fn planes_reject_certificates_of_another_ca() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let planes = Planes::of([&backend])?;
    let other = Authority::new();
    let control_plane = planes.control_plane().await?;
    let good = planes.authority.issue_for(&["sluicegate-data-plane"], ExtendedKeyUsagePurpose::ClientAuth);
    planes.save(
        "data-plane",
        &other.issue_for(&["sluicegate-data-plane"], ExtendedKeyUsagePurpose::ClientAuth),
    )?;
    let mut data_plane = planes.start_data_plane()?;
    wait_for_output(&data_plane, "there is no connection to the control plane", 1).await?;
    wait_for_output(&control_plane, "the handshake with a data plane failed", 1).await?;
    assert_eq!(client::get(planes.site.admin, "localhost", "/readyz").await?.status, 503);
    // The data plane uses the valid certificate without a restart.
    planes.save("data-plane", &good)?;
    data_plane.wait_for_ok(planes.site.admin, "/readyz", LIMIT).await?;
    drop((data_plane, control_plane));

    planes.save(
        "control-plane",
        &other.issue_for(&["sluicegate-control-plane"], ExtendedKeyUsagePurpose::ServerAuth),
    )?;
    let _control_plane = planes.control_plane().await?;
    std::fs::remove_file(planes.snapshot()).ok();
    let data_plane = planes.start_data_plane()?;
    wait_for_output(&data_plane, "invalid peer certificate", 1).await?;
    assert_eq!(client::get(planes.site.admin, "localhost", "/readyz").await?.status, 503);
    Ok(())
}

#[tokio::test]
async fn control_plane_serves_data_planes_despite_plain_http_clients() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let planes = Planes::of([&backend])?;
    let mut control_plane = planes.control_plane().await?;
    for _ in 0..20 {
        let answer = client::get(planes.link, "localhost", "/").await;
        assert!(answer.is_err(), "{:?}", answer.map(|answer| answer.status));
    }
    let _data_plane = planes.data_plane().await?;
    assert_eq!(planes.site.status("/").await?, 200);
    assert!(control_plane.is_running(), "{}", control_plane.output());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_between_data_planes_under_load_causes_no_failed_request() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let planes = Planes::of([&backend])?;
    let _control_plane = planes.control_plane().await?;
    let mut data_plane = planes.data_plane().await?;
    let load = Load::new(planes.site.http).connections(10).start()?;
    load.wait_for_ok(100, LIMIT).await?;
    let mut next = planes.start_data_plane()?;
    assert!(data_plane.wait(LIMIT).await?.success(), "{}", data_plane.output());
    load.wait_for_ok(300, LIMIT).await?;
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}");
    assert!(next.is_running(), "{}", next.output());
    Ok(())
}

async fn wait_for_output(process: &Process, text: &str, times: usize) -> TestResult {
    let end = Instant::now() + LIMIT;
    while process.output().matches(text).count() < times {
        anyhow::ensure!(Instant::now() < end, "waited in vain for {text:?}:\n{}", process.output());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn wait_for_file(path: &Path) -> TestResult {
    let end = Instant::now() + LIMIT;
    while !path.exists() {
        anyhow::ensure!(Instant::now() < end, "{} does not appear", path.display());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    Ok(())
}
