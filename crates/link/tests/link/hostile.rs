//! A misbehaving data plane does not harm other data planes.

use std::time::Duration;

use bytes::Bytes;
use sluicegate_link::DistributorOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::support::{Certificates, Control, Data, LIMIT, config_change, endpoints_change};

type TestResult = anyhow::Result<()>;

#[tokio::test]
async fn control_plane_rejects_a_plain_http_client_and_serves_data_planes() -> TestResult {
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    control.distributor.publish(&config_change(1, 1));
    let mut stream = TcpStream::connect(control.address).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await?;
    let mut answer = Vec::new();
    // The control plane sends a TLS alert, or resets the connection.
    let _ = timeout(LIMIT, stream.read_to_end(&mut answer)).await?;
    assert!(!answer.starts_with(b"HTTP"));
    let mut data = Data::start(control.address, certificates.proxy.path(), None, "")?;
    data.wait(|served| served.hosts() == 1).await?;
    assert_eq!(control.distributor.telemetry().counts.handshakes_failed, 1);
    Ok(())
}

/// An HTTP/2 connection to the control plane with a valid client certificate.
async fn connect(
    certificates: &Certificates,
    control: &Control,
) -> anyhow::Result<h2::client::SendRequest<Bytes>> {
    let issued = certificates
        .authority
        .issue_for(&["sluicegate-data-plane"], sluicegate_testkit::tls::ExtendedKeyUsagePurpose::ClientAuth);
    let config = certificates.authority.client().identity(&issued).protocols(&["h2"]).config();
    let stream = TcpStream::connect(control.address).await?;
    let stream = TlsConnector::from(config).connect("sluicegate-control-plane".try_into()?, stream).await?;
    let (calls, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    Ok(calls.ready().await?)
}

async fn call(
    certificates: &Certificates,
    control: &Control,
    path: &str,
    body: &'static [u8],
) -> anyhow::Result<http::HeaderMap> {
    let request = http::Request::post(format!("https://sluicegate-control-plane{path}"))
        .header("content-type", "application/grpc+cbor")
        .body(())?;
    let (response, mut stream) = connect(certificates, control).await?.send_request(request, false)?;
    stream.send_data(Bytes::from_static(body), true)?;
    let response = timeout(LIMIT, response).await??;
    Ok(response.headers().clone())
}

#[tokio::test]
async fn control_plane_responds_to_an_invalid_call_with_a_grpc_status() -> TestResult {
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    control.distributor.publish(&config_change(1, 1));
    const FOLLOW: &str = "/sluicegate.link.v1.Configuration/Follow";
    for (path, body, status) in [
        ("/sluicegate.link.v1.Configuration/Other", &b""[..], "12"),
        (FOLLOW, b"", "3"),
        (FOLLOW, b"\0\0\0\0\x03abc", "3"),
        (FOLLOW, b"\0\0\0\0\x09abc", "3"),
        (FOLLOW, b"\x01\0\0\0\0", "12"),
        (FOLLOW, b"\0\xff\xff\xff\xff", "8"),
        // The first message is Served instead of Hello.
        (FOLLOW, b"\0\0\0\0\x0b\xa1\x00\x82\x02\xa1\x00\xa2\x00\x00\x01\x00", "3"),
    ] {
        let headers = call(&certificates, &control, path, body).await?;
        let found = headers.get("grpc-status").and_then(|status| status.to_str().ok());
        assert_eq!(found, Some(status), "{path} {body:?}");
    }
    assert_eq!(control.distributor.telemetry().counts.accepted, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_that_reads_nothing_is_disconnected_without_delaying_other_data_planes() -> TestResult {
    let certificates = Certificates::new()?;
    let options =
        DistributorOptions { patience: Duration::from_millis(500), ..DistributorOptions::default() };
    let address = "127.0.0.1:0".parse()?;
    let control = Control::start_at(address, certificates.control.path(), options).await?;
    control.distributor.publish(&config_change(2000, 1));
    let request =
        http::Request::post("https://sluicegate-control-plane/sluicegate.link.v1.Configuration/Follow")
            .header("content-type", "application/grpc+cbor")
            .body(())?;
    let mut calls = connect(&certificates, &control).await?;
    let (response, mut stream) = calls.send_request(request, false)?;
    // A Hello without a node name and without resources.
    stream.send_data(
        Bytes::from_static(
            b"\0\0\0\0\x11\xa1\x00\x82\x00\xa1\x00\xa5\x00\x60\x01\x60\x02\x40\x03\x00\x04\x40",
        ),
        false,
    )?;
    let response = timeout(LIMIT, response).await??;
    assert!(!response.headers().contains_key("grpc-status"), "it is accepted, and reads no further");

    let mut data = Data::start(control.address, certificates.proxy.path(), None, "good")?;
    data.wait(|served| served.hosts() == 2000).await?;
    let mut port = 2;
    let begin = std::time::Instant::now();
    while control.distributor.telemetry().subscribers.len() > 1 {
        control.distributor.publish(&endpoints_change(0, port));
        data.wait(|served| served.port(0) == Some(port)).await?;
        port += 1;
        anyhow::ensure!(begin.elapsed() < LIMIT, "the slow one stays");
    }
    let telemetry = control.distributor.telemetry();
    assert_eq!((telemetry.counts.dropped, &*telemetry.subscribers[0].node), (1, "good"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_beyond_the_limit_is_refused_until_another_data_plane_disconnects() -> TestResult {
    let certificates = Certificates::new()?;
    let options = DistributorOptions { max_subscribers: 1, ..DistributorOptions::default() };
    let address = "127.0.0.1:0".parse()?;
    let control = Control::start_at(address, certificates.control.path(), options).await?;
    control.distributor.publish(&config_change(1, 1));
    let mut one = Data::start(control.address, certificates.proxy.path(), None, "one")?;
    one.wait(|served| served.hosts() == 1).await?;
    let mut two = Data::start(control.address, certificates.proxy.path(), None, "two")?;
    let told = timeout(LIMIT, two.telemetry.wait_for(|telemetry| telemetry.last_error.is_some())).await??;
    assert_eq!(told.last_error.as_deref(), Some("there are too many data planes"));
    drop(told);
    drop(one);
    two.wait(|served| served.hosts() == 1).await?;
    assert!(control.distributor.telemetry().counts.refused > 0);
    Ok(())
}
