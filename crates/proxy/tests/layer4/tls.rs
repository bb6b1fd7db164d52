//! TLS passthrough.

use std::sync::Arc;

use sluicegate_model::{HostPattern, Protocol, Serves, TlsRoute};
use sluicegate_proxy::failure::{Failure, TlsFault};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::{Builder, Gateway, LAYER4, layer4_route};
use sluicegate_testkit::terminator::Terminator;
use sluicegate_testkit::tls::Authority;
use tokio::io::AsyncWriteExt as _;

use crate::{TestResult, accept, connect, last_bytes, listen, read, read_to_end};

const GET: &str = "GET / HTTP/1.1\r\nHost: inside.test\r\n\r\n";

/// A server that terminates TLS as `inside.test`, with a backend behind it.
async fn inside() -> anyhow::Result<(Backend, Terminator)> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let shown = Authority::of_process().issue(&["inside.test"]);
    let terminator = Terminator::start(backend.addr(), &shown, None).await?;
    Ok((backend, terminator))
}

fn exact(name: &str) -> HostPattern {
    HostPattern::Exact(name.into())
}

fn by_name(host: HostPattern, endpoints: impl IntoIterator<Item = std::net::SocketAddr>) -> Builder {
    let serves = |route| Serves::Tls(vec![TlsRoute::new(host, route)]);
    Gateway::builder().layer4(Protocol::Tcp, serves, endpoints)
}

fn faults(gateway: &Gateway, fault: TlsFault) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| &worker.tls_faults[fault.index()])
}

async fn ask(address: std::net::SocketAddr, name: &str) -> anyhow::Result<u16> {
    let mut client = Client::connect_tls(address, &Authority::of_process().client(), name).await?;
    Ok(client.request(GET).await?.status)
}

#[tokio::test]
async fn server_name_selects_the_endpoint_of_a_passthrough_connection() -> TestResult {
    let (_backend, terminator) = inside().await?;
    let gateway = by_name(exact("inside.test"), [terminator.addr()]).start().await?;
    assert_eq!(ask(gateway.layer4_addr(), "inside.test").await?, 200, "the certificate is the endpoint's");
    assert_eq!(ask(gateway.layer4_addr(), "INSIDE.test").await?, 200);
    assert_eq!(terminator.names(), [Some("inside.test".to_owned()), Some("inside.test".to_owned())]);
    let error = ask(gateway.layer4_addr(), "other.test").await.expect_err("nobody has this name");
    assert!(format!("{error:#}").contains("eof"), "{error:#}");
    assert_eq!(faults(&gateway, TlsFault::UnknownName), 1);
    let mut clear = connect(&gateway).await?;
    clear.write_all(GET.as_bytes()).await?;
    assert!(read_to_end(&mut clear).await.map_or(true, |answer| answer.is_empty()));
    assert_eq!(faults(&gateway, TlsFault::NotTls), 1);
    Ok(())
}

#[tokio::test]
async fn wildcard_host_of_gateway_api_matches_several_labels() -> TestResult {
    let (_backend, terminator) = inside().await?;
    let gateway = by_name(HostPattern::Suffix("test".into()), [terminator.addr()]).start().await?;
    assert_eq!(ask(gateway.layer4_addr(), "inside.test").await?, 200);
    for (name, taken) in [("a.b.test", true), ("test", false), ("a.example", false)] {
        // The endpoint's certificate is for another name. The test checks only that the client received it.
        let error = format!("{:#}", ask(gateway.layer4_addr(), name).await.expect_err(name));
        assert_eq!(error.contains("eof"), !taken, "{name}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn https_listener_forwards_configured_server_names_without_terminating_tls() -> TestResult {
    let (_backend, terminator) = inside().await?;
    let own = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder()
        .backends([&own])
        .layer4(Protocol::Tcp, |_| Serves::Tcp(None), [terminator.addr()])
        .tls(|tls| {
            let route = layer4_route(LAYER4, Protocol::Tcp);
            tls.passthrough.push(TlsRoute::new(exact("inside.test"), route));
        })
        .start()
        .await?;
    assert_eq!(ask(gateway.https_addr(), "inside.test").await?, 200);
    assert_eq!((terminator.handshakes(), own.requests()), (1, 0));
    let mut client = gateway.connect_tls(&Authority::of_process().client(), "localhost").await?;
    assert_eq!(client.request("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?.status, 200);
    assert_eq!(own.requests(), 1, "all other names end here");
    assert_eq!(client.request(GET).await?.status, 421, "a request for that name belongs elsewhere");
    gateway.configure(|config| Arc::make_mut(&mut config.tls).passthrough.clear()).await;
    let error = ask(gateway.https_addr(), "inside.test").await.expect_err("it is not passed on any more");
    assert!(format!("{error:#}").contains("ertificate"), "{error:#}");
    Ok(())
}

/// A killed pod may or may not have accepted the connections in its queue. No endpoint has responded, so the gateway
/// can send the ClientHello to another endpoint.
#[tokio::test]
async fn client_hello_is_retried_when_an_endpoint_closes_without_a_response() -> TestResult {
    for is_reset in [true, false] {
        let (dying, dead) = listen().await?;
        let (_backend, terminator) = inside().await?;
        let gateway = by_name(exact("inside.test"), [dead]).start().await?;
        let asked = tokio::spawn({
            let address = gateway.layer4_addr();
            async move { ask(address, "inside.test").await }
        });
        let mut victim = accept(&dying).await?;
        // The endpoint reads all of it: a close with unread data would be a reset.
        let header = read(&mut victim, 5).await?;
        assert_eq!(header[0], 22, "a handshake");
        read(&mut victim, usize::from(u16::from_be_bytes([header[3], header[4]]))).await?;
        gateway
            .set_addresses_of(
                sluicegate_testkit::gateway::layer4_key(LAYER4, Protocol::Tcp),
                [dead, terminator.addr()],
            )
            .await;
        if is_reset {
            victim.set_zero_linger()?;
        }
        drop(dying);
        drop(victim);
        assert_eq!(asked.await??, 200, "reset: {is_reset}");
        let upstream = gateway.proxy().registry().upstreams().remove(0);
        assert_eq!(upstream.shards().sum(|shard| &shard.retries[Failure::Reset.index()]), 1);
    }
    Ok(())
}

/// The gateway never resends bytes that an endpoint may have acted on.
#[tokio::test]
async fn connection_with_bytes_after_the_client_hello_is_not_retried() -> TestResult {
    let (dying, dead) = listen().await?;
    let (_backend, terminator) = inside().await?;
    let gateway = by_name(exact("inside.test"), [dead]).start().await?;
    // As with early data (RFC 8446, 2.3): the client sends its first flight and more data at once.
    let record = client_hello_record("inside.test")?;
    let mut client = connect(&gateway).await?;
    client.write_all(&record).await?;
    let mut victim = accept(&dying).await?;
    read(&mut victim, record.len()).await?;
    client.write_all(b"more").await?;
    assert_eq!(read(&mut victim, 4).await?, b"more");
    let key = sluicegate_testkit::gateway::layer4_key(LAYER4, Protocol::Tcp);
    gateway.set_addresses_of(key, [dead, terminator.addr()]).await;
    victim.set_zero_linger()?;
    drop(victim);
    assert!(read_to_end(&mut client).await.is_err(), "the client sees that it broke");
    assert_eq!(terminator.handshakes(), 0);
    Ok(())
}

#[tokio::test]
async fn client_receives_all_data_that_an_endpoint_sent_before_closing_with_unread_input() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway = by_name(exact("inside.test"), [address]).start().await?;
    let record = client_hello_record("inside.test")?;
    let last = vec![b'z'; 50_000];
    for round in 0..40 {
        let mut client = connect(&gateway).await?;
        client.write_all(&record).await?;
        let mut server = accept(&endpoint).await?;
        read(&mut server, record.len()).await?;
        let received = last_bytes(&mut client, server, &last).await?;
        assert!(received == last, "round {round}: {} bytes", received.len());
    }
    Ok(())
}

/// A ClientHello in one record.
fn client_hello_record(name: &str) -> anyhow::Result<Vec<u8>> {
    let hello = client_hello(name);
    let mut record = vec![22, 3, 1];
    record.extend_from_slice(&u16::try_from(hello.len())?.to_be_bytes());
    record.extend_from_slice(&hello);
    Ok(record)
}

/// A TLS 1.2 ClientHello with a server name and no other extension (RFC 5246, 7.4.1.2; RFC 6066, 3).
fn client_hello(name: &str) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).expect("short").to_be_bytes();
    let name = [&[0][..], &length(name.as_bytes()), name.as_bytes()].concat();
    let list = [&length(&name)[..], &name].concat();
    let extension = [&[0, 0][..], &length(&list), &list].concat();
    let schemes = [0, 13, 0, 4, 0, 2, 4, 3];
    let extensions = [&extension[..], &schemes].concat();
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0xc0, 0x2b], &[1, 0], &length(&extensions), &extensions]
        .concat();
    let size = u32::try_from(body.len()).expect("short").to_be_bytes();
    [&[1][..], &size[1..], &body].concat()
}
