//! Ports of `--tcp-services-configmap` and `--udp-services-configmap`, from the YAML to the bytes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::support::{LIMIT, Site, free_address, slices};

type TestResult = anyhow::Result<()>;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: web\r\n\r\n";

/// A ConfigMap with entries `port: value`.
fn configmap(name: &str, entries: &[(u16, &str)]) -> String {
    let data: String = entries.iter().map(|(port, value)| format!("  \"{port}\": \"{value}\"\n")).collect();
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n{data}")
}

const OPTIONS: &[&str] = &[
    "--tcp-services-configmap=default/tcp",
    "--udp-services-configmap=default/udp",
    "--gateway-address=127.0.0.1",
];

/// Waits until a port accepts connections, or refuses them.
async fn wait_until(address: SocketAddr, is_open: bool) -> TestResult {
    let end = Instant::now() + LIMIT;
    while TcpStream::connect(address).await.is_ok() != is_open {
        anyhow::ensure!(Instant::now() < end, "{address}: open is not {is_open}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

#[tokio::test]
async fn tcp_ports_open_and_close_without_a_restart_and_connections_stay() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = Site::of([&backend])?;
    let (first, second) = (free_address()?, free_address()?);
    site.save("udp.yaml", &configmap("udp", &[]))?;
    site.save("tcp.yaml", &configmap("tcp", &[(first.port(), "default/web:http")]))?;
    let _gateway = site.serve(OPTIONS).await?;
    let mut client = Client::connect(first).await?;
    assert_eq!(client.request(REQUEST).await?.status, 200);

    let entries = [(second.port(), "default/web:80"), (site.http.port(), "default/web:80"), (1, "web")];
    site.save("tcp.yaml", &configmap("tcp", &entries))?;
    wait_until(second, true).await?;
    assert_eq!(Client::connect(second).await?.request(REQUEST).await?.status, 200);
    wait_until(first, false).await?;
    assert_eq!(client.request(REQUEST).await?.status, 200, "the connection stays");
    assert_eq!(site.status("/").await?, 200);
    Ok(())
}

#[tokio::test]
async fn proxy_protocol_passes_a_tcp_port_in_both_directions() -> TestResult {
    let endpoint = TcpListener::bind("127.0.0.1:0").await?;
    let site = Site::of(std::iter::empty::<&Backend>())?;
    site.save("slices.yaml", &slices([endpoint.local_addr()?]))?;
    let port = free_address()?;
    site.save("udp.yaml", &configmap("udp", &[]))?;
    site.save("tcp.yaml", &configmap("tcp", &[(port.port(), "default/web:http:PROXY:PROXY")]))?;
    let _gateway = site.serve(OPTIONS).await?;
    let header = "PROXY TCP4 192.0.2.7 198.51.100.1 4000 9000\r\n";
    let mut client = TcpStream::connect(port).await?;
    client.write_all(format!("{header}hello").as_bytes()).await?;
    let (mut seen, _) = endpoint.accept().await?;
    let mut bytes = vec![0; header.len() + 5];
    seen.read_exact(&mut bytes).await?;
    assert_eq!(String::from_utf8(bytes)?, format!("{header}hello"));
    Ok(())
}

#[tokio::test]
async fn udp_ports_lead_to_services() -> TestResult {
    let endpoint = UdpSocket::bind("127.0.0.1:0").await?;
    let site = Site::of(std::iter::empty::<&Backend>())?;
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{name: http, port: 53, protocol: UDP}]}\n";
    site.save("service.yaml", service)?;
    let slices = slices([endpoint.local_addr()?])
        .replace("ports: [{name: http,", "ports: [{name: http, protocol: UDP,");
    site.save("slices.yaml", &slices)?;
    let port = free_address()?;
    site.save("tcp.yaml", &configmap("tcp", &[]))?;
    site.save("udp.yaml", &configmap("udp", &[(port.port(), "default/web:53")]))?;
    let _gateway = site.serve(OPTIONS).await?;
    let client = UdpSocket::bind("127.0.0.1:0").await?;
    client.send_to(b"ask", port).await?;
    let mut buffer = [0; 16];
    let (count, gateway) = tokio::time::timeout(LIMIT, endpoint.recv_from(&mut buffer)).await??;
    assert_eq!(&buffer[..count], b"ask");
    endpoint.send_to(b"answer", gateway).await?;
    let (count, _) = tokio::time::timeout(LIMIT, client.recv_from(&mut buffer)).await??;
    assert_eq!(&buffer[..count], b"answer");
    Ok(())
}
