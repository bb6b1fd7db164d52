//! The life of a gateway process: ready, taken over, drained (Z10 and Z11).

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{LIMIT, Site, free_address, ingress, sluicegate};
use sluicegate_netns::Process;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client};
use sluicegate_testkit::http3::Http3Load;
use sluicegate_testkit::load::Load;

type TestResult = anyhow::Result<()>;

/// Shutdown options that do not wait for load balancers.
const QUICK: [&str; 4] = ["--shutdown-grace", "0s", "--shutdown-idle", "300ms"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_under_load_causes_no_failed_request() -> TestResult {
    let backends = Backend::group(3, Behaviour::ok()).await?;
    let site = Site::of(&backends)?;
    let mut gateway = site.serve(&QUICK).await?;
    let load = Load::new(site.http).connections(20).posts(0.2, 100).expect_own_id().start()?;
    for round in 1..=3 {
        load.wait_for_ok(round * 300, LIMIT).await?;
        let mut next = site.start(&QUICK)?;
        let status = gateway.wait(LIMIT).await?;
        assert!(status.success(), "{}", gateway.output());
        assert!(next.is_running(), "{}", next.output());
        gateway = next;
    }
    // The load also opens new connections after the last takeover.
    load.wait_for_ok(1200, LIMIT).await?;
    let report = load.stop().await?;
    assert_eq!(report.failures(), 0, "{report}");
    assert_eq!(site.status("/").await?, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_under_http3_load_causes_no_failed_request() -> TestResult {
    let backends = Backend::group(3, Behaviour::ok()).await?;
    let site = Site::of(&backends)?;
    let https = free_address()?;
    let address = https.to_string();
    let options = [&QUICK[..], &["--listen-https", &address, "--http3"]].concat();
    let mut gateway = site.serve(&options).await?;
    let load = Http3Load::start(https, 10).await?;
    for round in 1..=3 {
        load.wait_for_ok(round * 300, LIMIT).await?;
        let mut next = site.start(&options)?;
        let status = gateway.wait(LIMIT).await?;
        assert!(status.success(), "{}", gateway.output());
        assert!(next.is_running(), "{}", next.output());
        gateway = next;
    }
    load.wait_for_ok(1200, LIMIT).await?;
    let connections = load.stop().await?;
    assert!(connections >= 40, "each takeover ends all connections: {connections}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_opened_during_a_takeover_are_served() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let mut gateway = site.serve(&QUICK).await?;
    let http = site.http;
    let (stop, stopped) = tokio::sync::watch::channel(());
    let knocking = tokio::spawn(async move {
        let mut served = 0;
        while stopped.has_changed().is_ok() {
            let response = client::get(http, "localhost", "/").await?;
            anyhow::ensure!(response.status == 200, "{}", response.status);
            served += 1;
        }
        anyhow::Ok(served)
    });
    for _ in 0..3 {
        let next = site.start(&QUICK)?;
        gateway.wait(LIMIT).await?;
        gateway = next;
    }
    drop(stop);
    assert!(knocking.await?? > 10);
    Ok(())
}

#[tokio::test]
async fn draining_process_accepts_no_connection_once_its_successor_serves() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    // The grace period is far longer than every limit of the test.
    let mut old = site.serve(&["--shutdown-grace", "10m", "--shutdown-idle", "0s"]).await?;
    old.terminate()?;
    wait_for_draining(&site).await?;
    assert_eq!(site.status("/").await?, 200, "the old process accepts during its grace period");

    let mut changed = Site::new()?;
    (changed.http, changed.admin) = (site.http, site.admin);
    changed.save_all([&backend])?;
    changed.save("ingress.yaml", &ingress("web", "/new"))?;
    let mut new = changed.start(&QUICK)?;
    assert!(old.wait(LIMIT).await?.success(), "{}", old.output());
    assert!(new.is_running(), "{}", new.output());
    assert_eq!((changed.status("/").await?, changed.status("/new").await?), (404, 200));
    Ok(())
}

#[tokio::test]
async fn successor_serves_even_if_its_predecessor_ends_first() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let mut old = site.serve(&QUICK).await?;
    let mut later = Site::new()?;
    (later.http, later.admin) = (site.http, site.admin);
    later.save_all([&backend])?;
    let (moved, volume) = (later.path().with_extension("moved"), later.path().with_extension("volume"));
    std::fs::rename(later.path(), &moved)?;
    std::os::unix::fs::symlink(&volume, later.path())?;
    let mut new = later.start(&[])?;
    wait_for_output(&mut new, "admin interface").await?;
    old.terminate()?;
    assert!(old.wait(LIMIT).await?.success());
    std::fs::rename(&moved, &volume)?;
    new.wait_for_ok(later.admin, "/readyz", LIMIT).await?;
    wait_for_output(&mut new, "ended before the takeover was complete").await?;
    assert!(new.is_running(), "{}", new.output());
    std::fs::remove_file(later.path())?;
    std::fs::rename(&volume, later.path())?;
    Ok(())
}

#[tokio::test]
async fn process_that_is_paused_and_resumed_still_waits_for_the_takeover() -> TestResult {
    let site = Site::new()?;
    let name = UnixAddr::from_abstract_name(format!("sluicegate/takeover/{}", site.http))?;
    let offer = UnixListener::bind_addr(&name)?;
    offer.set_nonblocking(true)?;
    let offer = tokio::net::UnixListener::from_std(offer)?;
    let mut new = site.start(&[])?;
    let (old, _) = tokio::time::timeout(LIMIT, offer.accept()).await??;
    // The moment when the new process waits for the sockets is unknown, so the test stops it many times.
    for _ in 0..20 {
        new.signal(Signal::STOP)?;
        wait_for_state(&new, |state| state == 'T').await?;
        new.signal(Signal::CONT)?;
        wait_for_state(&new, |state| state != 'T').await?;
    }
    drop(old);
    wait_for_output(&mut new, "did not hand over its sockets: the running gateway closed the connection")
        .await
}

#[tokio::test]
async fn process_without_a_configuration_does_not_disturb_the_running_gateway() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let mut gateway = site.serve(&QUICK).await?;
    // The new process receives the sockets, but never a first configuration.
    let mut broken = sluicegate();
    broken.args(["serve", "--manifests", "/nonexistent", "--listen", &site.http.to_string()]);
    broken.args(["--admin", &site.admin.to_string()]);
    let mut broken = Process::start(broken)?;
    for _ in 0..20 {
        assert_eq!(site.status("/").await?, 200);
    }
    broken.kill()?;
    assert_eq!(site.status("/").await?, 200);
    assert!(gateway.is_running());
    Ok(())
}

/// systemd ends a unit without a main process, so the next process must be the main process before the process before may end.
#[tokio::test]
async fn gateway_reports_its_process_to_systemd_before_its_predecessor_drains() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&socket)?;
    systemd.set_nonblocking(true)?;
    // The test is the predecessor, and hands over no socket.
    let name = UnixAddr::from_abstract_name(format!("sluicegate/takeover/{}", site.http))?;
    let offer = UnixListener::bind_addr(&name)?;
    offer.set_nonblocking(true)?;
    let offer = tokio::net::UnixListener::from_std(offer)?;
    let mut command = site.command(&QUICK);
    command.env("NOTIFY_SOCKET", &socket);
    let new = Process::start(command)?;
    let (mut successor, _) = tokio::time::timeout(LIMIT, offer.accept()).await??;
    drop(offer);
    successor.write_all(&0_u32.to_be_bytes()).await?;
    tokio::time::timeout(LIMIT, successor.read_u8()).await??;
    let mut message = [0; 256];
    let length = systemd.recv(&mut message).context("no report has arrived")?;
    assert_eq!(std::str::from_utf8(&message[..length])?, format!("MAINPID={}\nREADY=1\n", new.pid()));
    Ok(())
}

#[tokio::test]
async fn gateway_fails_readiness_and_finishes_requests_in_flight_on_sigterm() -> TestResult {
    let backend = Backend::start(Behaviour::ok().delay(Duration::from_millis(800))).await?;
    let site = Site::of([&backend])?;
    let mut gateway = site.serve(&["--shutdown-grace", "1s", "--shutdown-idle", "5s"]).await?;
    let mut client = in_flight(&site, &backend).await?;
    gateway.terminate()?;
    wait_for_draining(&site).await?;
    let response = client.read_response().await?;
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    client.expect_end().await?;
    assert!(gateway.wait(LIMIT).await?.success());
    Ok(())
}

#[tokio::test]
async fn repeated_sigterm_does_not_shorten_the_drain() -> TestResult {
    let backend = Backend::start(Behaviour::ok().delay(Duration::from_secs(2))).await?;
    let site = Site::of([&backend])?;
    let mut gateway = site.serve(&QUICK).await?;
    let mut client = in_flight(&site, &backend).await?;
    // `timeout` and process groups send the signal twice.
    gateway.terminate()?;
    gateway.signal(Signal::INT)?;
    wait_for_output(&mut gateway, "draining").await?;
    gateway.terminate()?;
    wait_for_output(&mut gateway, "a further SIGTERM has no effect").await?;
    assert_eq!(client.read_response().await?.status, 200);
    assert!(gateway.wait(LIMIT).await?.success(), "{}", gateway.output());
    Ok(())
}

#[tokio::test]
async fn sigint_during_a_drain_ends_the_gateway_at_once_and_logs_dropped_requests() -> TestResult {
    for first in [Signal::TERM, Signal::QUIT, Signal::INT] {
        let backend = Backend::start(Behaviour::silent()).await?;
        let site = Site::of([&backend])?;
        let mut gateway = site.serve(&QUICK).await?;
        let _client = in_flight(&site, &backend).await?;
        gateway.signal(first)?;
        wait_for_output(&mut gateway, "draining").await?;
        while gateway.is_running() {
            gateway.signal(Signal::INT)?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let output = gateway.output();
        assert_eq!(gateway.wait(LIMIT).await?.code(), Some(1), "{output}");
        assert!(output.contains("dropped requests in flight: 1"), "{output}");
    }
    Ok(())
}

#[tokio::test]
async fn sigint_during_a_drain_without_requests_in_flight_exits_with_success() -> TestResult {
    let site = Site::new()?;
    let mut gateway = site.serve(&["--shutdown-grace", "10m"]).await?;
    gateway.terminate()?;
    wait_for_draining(&site).await?;
    while gateway.is_running() {
        gateway.signal(Signal::INT)?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(gateway.wait(LIMIT).await?.success(), "{}", gateway.output());
    Ok(())
}

#[tokio::test]
async fn gateway_ignores_sighup_sigusr1_and_sigusr2() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let mut gateway = site.serve(&QUICK).await?;
    for (signal, name) in [(Signal::HUP, "SIGHUP"), (Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        gateway.signal(signal)?;
        wait_for_output(&mut gateway, &format!("{name} has no effect")).await?;
        assert_eq!(client::get(site.admin, "localhost", "/readyz").await?.status, 200, "{name}");
        assert_eq!(site.status("/").await?, 200, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn draining_gateway_serves_new_connections_and_one_request_per_idle_connection() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let mut gateway = site.serve(&["--shutdown-grace", "2s", "--shutdown-idle", "300ms"]).await?;
    let mut idle = Client::connect(site.http).await?;
    idle.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    let mut never_used_again = Client::connect(site.http).await?;
    never_used_again.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    gateway.terminate()?;
    wait_for_draining(&site).await?;
    for mut client in [idle, Client::connect(site.http).await?] {
        let response = client.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
        assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    }
    never_used_again.expect_end().await?;
    assert!(gateway.wait(LIMIT).await?.success());
    Ok(())
}

#[tokio::test]
async fn gateway_is_not_ready_before_its_first_configuration() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::new()?;
    let (missing, volume) = (site.path().join("later"), site.path().join(".volume"));
    std::os::unix::fs::symlink(&volume, &missing)?;
    let mut command = sluicegate();
    command.args(["serve", "--listen", &site.http.to_string(), "--admin", &site.admin.to_string()]);
    let mut gateway = Process::start({
        command.arg("--manifests").arg(&missing);
        command
    })?;
    gateway.wait_for_ok(site.admin, "/healthz", LIMIT).await?;
    assert_eq!(client::get(site.admin, "localhost", "/readyz").await?.status, 503);
    // A request that arrives now waits for the first configuration. A response of 404 would be wrong.
    let mut early = Client::connect(site.http).await?.with_limit(LIMIT);
    early.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    site.save_all([&backend])?;
    let staged = site.path().join(".staged");
    std::fs::create_dir(&staged)?;
    for name in ["service.yaml", "slices.yaml", "ingress.yaml"] {
        std::fs::copy(site.path().join(name), staged.join(name))?;
    }
    std::fs::rename(&staged, &volume)?;
    gateway.wait_for_ok(site.admin, "/readyz", LIMIT).await?;
    assert_eq!(early.read_response().await?.status, 200);
    Ok(())
}

/// A client whose request has reached the backend.
async fn in_flight(site: &Site, backend: &Backend) -> anyhow::Result<Client> {
    let mut client = Client::connect(site.http).await?;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    Ok(client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_raises_its_open_file_limit_and_disables_huge_pages() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Site::of([&backend])?.serve(&QUICK).await?;
    let about = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", gateway.pid()));
    let limits = about("limits")?;
    let files = limits.lines().find(|line| line.starts_with("Max open files")).context("a limit")?;
    let [soft, hard] = [3, 4].map(|column| files.split_whitespace().nth(column));
    assert_eq!(soft, hard, "{files}");
    // Kernels without huge pages do not have this line.
    assert!(!about("status")?.contains("THP_enabled:\t1"));
    Ok(())
}

async fn wait_for_output(gateway: &mut Process, text: &str) -> TestResult {
    let end = std::time::Instant::now() + LIMIT;
    while !gateway.output().contains(text) {
        let waits = gateway.is_running() && std::time::Instant::now() < end;
        anyhow::ensure!(waits, "waited in vain for {text:?}:\n{}", gateway.output());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// Waits for a state of the process (proc_pid_stat(5)).
async fn wait_for_state(gateway: &Process, is_expected: impl Fn(char) -> bool) -> TestResult {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", gateway.pid()))?;
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).context("a state")?;
        if is_expected(state) {
            return Ok(());
        }
        anyhow::ensure!(std::time::Instant::now() < end, "the process stays in state {state}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn wait_for_draining(site: &Site) -> TestResult {
    let end = std::time::Instant::now() + LIMIT;
    while client::get(site.admin, "localhost", "/readyz").await?.status != 503 {
        anyhow::ensure!(std::time::Instant::now() < end, "/readyz does not fail");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
