//! Tests of pods whose addresses drop packets. The tests need root. Without root, they print the reason and pass,
//! unless `SLUICEGATE_NETNS=require` is set.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use sluicegate_netns::{NODE, Namespace, Pod};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::load::Load;
use tokio::time::timeout;

/// The timeout of a connect: longer than any refusal takes, and shorter than the ARP timeout of the kernel (about 3 s).
const CONNECT_LIMIT: Duration = Duration::from_millis(400);

/// The result of a connect.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Connected,
    Refused,
    Hung,
}

async fn connect(namespace: &Namespace, addr: SocketAddr) -> anyhow::Result<Outcome> {
    match timeout(CONNECT_LIMIT, namespace.connect(addr)).await {
        Err(_) => Ok(Outcome::Hung),
        Ok(Ok(_)) => Ok(Outcome::Connected),
        Ok(Err(error)) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => Ok(Outcome::Refused),
            _ => Err(error),
        },
    }
}

fn sleeper(pod: &Pod) -> anyhow::Result<sluicegate_netns::Process> {
    let mut command = Command::new("sleep");
    command.arg("60");
    pod.spawn(command)
}

#[tokio::test]
async fn connect_to_a_black_hole_times_out_and_to_a_dead_process_is_refused() -> anyhow::Result<()> {
    let Some(namespace) = Namespace::for_test()? else { return Ok(()) };
    let (hole, refusing) = (namespace.pod()?, namespace.pod()?);
    let backend = Backend::start_on(hole.listen(9000)?, Behaviour::ok())?;
    assert_eq!(connect(&namespace, backend.addr()).await?, Outcome::Connected);
    hole.blackhole()?;
    let started = Instant::now();
    assert_eq!(connect(&namespace, backend.addr()).await?, Outcome::Hung);
    assert!(started.elapsed() > Duration::from_millis(200));
    assert_eq!(connect(&namespace, (refusing.ip(), 9000).into()).await?, Outcome::Refused);
    hole.restore()?;
    assert_eq!(connect(&namespace, backend.addr()).await?, Outcome::Connected);
    Ok(())
}

#[tokio::test]
async fn black_hole_drops_packets_of_established_connections_until_restored() -> anyhow::Result<()> {
    let Some(namespace) = Namespace::for_test()? else { return Ok(()) };
    let pod = namespace.pod()?;
    let backend = Backend::start_on(pod.listen(9000)?, Behaviour::ok())?;
    let stream = namespace.connect(backend.addr()).await?;
    let mut client = Client::over(stream)?.with_limit(CONNECT_LIMIT);
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(client.request(get).await?.status, 200);
    pod.blackhole()?;
    let error = client.request(get).await.unwrap_err();
    assert!(error.to_string().starts_with("nothing came"), "{error}");
    assert_eq!(backend.requests(), 1);
    pod.restore()?;
    let mut client = client.with_limit(Duration::from_secs(5));
    assert_eq!(client.read_response().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn deletion_of_a_pod_kills_its_processes_and_drops_packets_to_its_address() -> anyhow::Result<()> {
    let Some(namespace) = Namespace::for_test()? else { return Ok(()) };
    let pods = [namespace.pod()?, namespace.pod()?, namespace.pod()?];
    let mut sleepers = Vec::new();
    for pod in &pods {
        sleepers.push(sleeper(pod)?);
    }
    let [killed, deleted, dropped] = pods;
    let addrs = [killed.ip(), deleted.ip(), dropped.ip()].map(|ip| SocketAddr::new(ip, 9000));
    for addr in addrs {
        assert_eq!(connect(&namespace, addr).await?, Outcome::Refused);
    }
    killed.kill()?;
    deleted.delete()?;
    drop(dropped);
    assert_eq!(connect(&namespace, addrs[0]).await?, Outcome::Refused);
    assert_eq!(connect(&namespace, addrs[1]).await?, Outcome::Hung);
    assert_eq!(connect(&namespace, addrs[2]).await?, Outcome::Hung);
    for sleeper in &mut sleepers {
        assert!(!sleeper.is_running());
    }
    Ok(())
}

#[tokio::test]
async fn load_and_process_run_in_the_network_namespace() -> anyhow::Result<()> {
    let Some(namespace) = Namespace::for_test()? else { return Ok(()) };
    let pod = namespace.pod()?;
    let backend = Backend::start_on(pod.listen(9000)?, Behaviour::ok())?;
    let running = namespace.enter(|| Load::new(backend.addr()).start())??;
    running.wait_for_ok(100, Duration::from_secs(5)).await?;
    let report = running.stop().await?;
    assert_eq!(report.failures(), 0, "{report}");

    let mut command = Command::new("ip");
    command.args(["-4", "-brief", "address"]);
    let mut process = namespace.spawn(command)?;
    assert!(process.wait(Duration::from_secs(5)).await?.success());
    assert!(process.output().contains(&NODE.to_string()), "{}", process.output());
    Ok(())
}
