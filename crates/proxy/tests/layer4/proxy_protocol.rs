//! The PROXY protocol, received and sent.

use std::time::Duration;

use sluicegate_model::{ProxyProtocol, Settings};
use sluicegate_proxy::failure::ProxyHeaderFault;
use sluicegate_proxy_protocol::{Addresses, Header, Parsed, parse, write_v1, write_v2};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::{Builder, Gateway};
use sluicegate_testkit::tls::Authority;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::{TestResult, accept, connect, echo, listen, read, read_to_end, tcp};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn believes_loopback(settings: &mut Settings) {
    settings.proxy_protocol_peers = vec!["127.0.0.0/8".parse().expect("a network")];
}

fn told() -> Addresses {
    Addresses { source: ([192, 0, 2, 1], 5678).into(), destination: ([198, 51, 100, 1], 443).into() }
}

fn header(version: ProxyProtocol) -> Vec<u8> {
    let mut header = Vec::new();
    match version {
        ProxyProtocol::V1 => write_v1(&mut header, told()),
        ProxyProtocol::V2 => write_v2(&mut header, told()),
    }
    header
}

fn faults(gateway: &Gateway, fault: ProxyHeaderFault) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| &worker.proxy_header_faults[fault.index()])
}

async fn http(backend: &Backend) -> anyhow::Result<Gateway> {
    Gateway::builder().backends([backend]).settings(believes_loopback).start().await
}

#[tokio::test]
async fn gateway_reads_the_client_ip_from_a_proxy_header_in_any_pieces() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = http(&backend).await?;
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        for pieces in [1, 3] {
            let mut client = Client::connect(gateway.addr()).await?;
            let bytes = [&*header(version), GET].concat();
            if pieces == 1 {
                client.send(&bytes).await?;
            } else {
                let cut = header(version).len();
                for part in [&bytes[..1], &bytes[1..cut - 1], &bytes[cut - 1..cut + 3], &bytes[cut + 3..]] {
                    client.send(part).await?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            assert_eq!(client.read_response().await?.status, 200);
            let request = backend.last_request().expect("a request");
            assert_eq!(request.header("X-Forwarded-For"), Some("192.0.2.1"), "{version:?}");
            assert_eq!(request.header("X-Real-IP"), Some("192.0.2.1"));
            assert_eq!(request.header("X-Forwarded-Port"), Some("443"), "where the client connected to");
        }
    }
    Ok(())
}

#[tokio::test]
async fn gateway_reads_the_proxy_header_before_the_tls_handshake() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = http(&backend).await?;
    let mut tcp = TcpStream::connect(gateway.https_addr()).await?;
    tcp.write_all(&header(ProxyProtocol::V2)).await?;
    let mut client = Client::over_tls(tcp, &Authority::of_process().client(), "localhost").await?;
    assert_eq!(client.request("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?.status, 200);
    let request = backend.last_request().expect("a request");
    assert_eq!(request.header("X-Forwarded-For"), Some("192.0.2.1"));
    Ok(())
}

#[tokio::test]
async fn trusted_peer_without_a_valid_proxy_header_is_rejected() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = http(&backend).await?;
    let malformed = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 99999\r\n";
    let long = [&b"PROXY UNKNOWN "[..], &[b'x'; 100]].concat();
    for (bytes, fault) in [
        (GET, ProxyHeaderFault::Missing),
        (&[22, 3, 1, 0, 5], ProxyHeaderFault::Missing),
        (malformed, ProxyHeaderFault::Malformed),
        (&long, ProxyHeaderFault::TooLong),
    ] {
        let mut stream = TcpStream::connect(gateway.addr()).await?;
        stream.write_all(bytes).await?;
        assert!(read_to_end(&mut stream).await.map_or(true, |answer| answer.is_empty()), "{fault:?}");
        assert!(faults(&gateway, fault) > 0, "{fault:?}");
    }
    let mut stream = TcpStream::connect(gateway.addr()).await?;
    stream.write_all(b"PROXY TCP4 ").await?;
    stream.shutdown().await?;
    assert!(read_to_end(&mut stream).await?.is_empty());
    assert_eq!(faults(&gateway, ProxyHeaderFault::Closed), 1);
    assert_eq!(backend.requests(), 0);
    let mut client = Client::connect(gateway.addr()).await?;
    let local = [&b"PROXY UNKNOWN\r\n"[..], GET].concat();
    assert_eq!(client.request(&local).await?.status, 200, "it may speak for itself");
    let request = backend.last_request().expect("a request");
    assert_eq!(request.header("X-Real-IP"), Some("127.0.0.1"));
    Ok(())
}

#[tokio::test]
async fn connection_without_a_proxy_header_times_out() -> TestResult {
    let gateway = Gateway::builder()
        .settings(|settings| {
            believes_loopback(settings);
            settings.timeouts.proxy_protocol = Duration::from_millis(50);
        })
        .start()
        .await?;
    let mut stream = TcpStream::connect(gateway.addr()).await?;
    stream.write_all(b"PROXY ").await?;
    assert!(read_to_end(&mut stream).await.map_or(true, |answer| answer.is_empty()));
    assert_eq!(faults(&gateway, ProxyHeaderFault::Timeout), 1);
    Ok(())
}

#[tokio::test]
async fn proxy_header_of_an_untrusted_peer_is_rejected() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::of([&backend]).await?;
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        let mut client = Client::connect(gateway.addr()).await?;
        client.send([&*header(version), GET].concat()).await?;
        assert_eq!(client.read_response().await?.status, 400, "{version:?}");
    }
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn endpoints_receive_a_proxy_header_with_the_client_address() -> TestResult {
    let (endpoint, address) = listen().await?;
    let sends = |version| {
        move |builder: Builder| builder.layer4_upstream(move |of| of.proxy_protocol = Some(version))
    };
    for version in [ProxyProtocol::V1, ProxyProtocol::V2] {
        let gateway = sends(version)(tcp([address])).start().await?;
        let mut client = connect(&gateway).await?;
        client.write_all(b"hello").await?;
        let mut server = accept(&endpoint).await?;
        let expected = Addresses { source: client.local_addr()?, destination: client.peer_addr()? };
        assert_eq!(read_header(&mut server).await?, expected, "{version:?}");
        assert_eq!(read(&mut server, 5).await?, b"hello");

        gateway.configure(|config| believes_loopback(&mut config.settings)).await;
        let mut client = connect(&gateway).await?;
        client.write_all(&header(ProxyProtocol::V2)).await?;
        assert_eq!(read_header(&mut accept(&endpoint).await?).await?, told(), "what was told is told on");
    }
    Ok(())
}

#[tokio::test]
async fn endpoints_receive_no_proxy_header_unless_configured() -> TestResult {
    let (address, _echo) = echo("").await?;
    let gateway = tcp([address]).settings(believes_loopback).start().await?;
    let mut client = connect(&gateway).await?;
    client.write_all(&[&*header(ProxyProtocol::V1), b"hello"].concat()).await?;
    assert_eq!(read(&mut client, 5).await?, b"hello");
    Ok(())
}

async fn read_header(stream: &mut TcpStream) -> anyhow::Result<Addresses> {
    let mut bytes = Vec::new();
    loop {
        bytes.extend(read(stream, 1).await?);
        match parse(&bytes)? {
            Parsed::Partial => {}
            Parsed::Whole(Header::Proxied(addresses), _) => return Ok(addresses),
            Parsed::Whole(Header::Local, _) => anyhow::bail!("nobody is named"),
        }
    }
}
