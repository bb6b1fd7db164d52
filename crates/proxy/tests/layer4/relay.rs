//! TLS connections that the gateway terminates and relays, and TLS to endpoints below HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use sluicegate_model::value::CipherSuites;
use sluicegate_model::{
    EntryPoint, HostPattern, Protocol, ProxyProtocol, Serves, TlsHost, TlsRoute, Upstream, UpstreamTls,
    Verification, VirtualHost,
};
use sluicegate_proxy::Drain;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::{Builder, Gateway, LAYER4, layer4_key, layer4_route};
use sluicegate_testkit::terminator::Terminator;
use sluicegate_testkit::tls::{Authority, ClientOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::{SOON, TestResult, accept, connect, echo, listen, read, read_to_break, read_to_end};

const GET: &str = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";

fn exact(name: &str) -> HostPattern {
    HostPattern::Exact(name.into())
}

fn edge() -> EntryPoint {
    EntryPoint::Gateway("edge".into())
}

/// A gateway with a TLS listener that relays the connections for `a.test` to these endpoints.
fn relaying(endpoints: impl IntoIterator<Item = SocketAddr>) -> Builder {
    let serves = |_| Serves::Https("edge".into());
    Gateway::builder().layer4(Protocol::Tcp, serves, endpoints).tls(|tls| {
        let certificate = Authority::of_process().issue(&["a.test"]).certificate;
        let relay = Some(layer4_route(LAYER4, Protocol::Tcp));
        let host = TlsHost { entry_point: edge(), relay, ..TlsHost::new(exact("a.test"), vec![certificate]) };
        tls.hosts.push(Arc::new(host));
    })
}

fn trusting() -> ClientOptions {
    Authority::of_process().client()
}

async fn open(gateway: &Gateway, options: &ClientOptions) -> anyhow::Result<Client> {
    Ok(Client::connect_tls(gateway.layer4_addr(), options, "a.test").await?.with_limit(SOON))
}

#[tokio::test]
async fn bytes_of_a_terminated_connection_are_relayed_in_clear_text_both_ways() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway = relaying([address]).start().await?;
    for options in [trusting(), trusting().tls12(), trusting().protocols(&["h2", "http/1.1"])] {
        let mut client = open(&gateway, &options).await?;
        let mut server = accept(&endpoint).await?;
        server.write_all(b"220 hello\r\n").await?;
        assert_eq!(client.read_exact(11).await?, b"220 hello\r\n", "the endpoint may speak first");
        client.send(b"quit").await?;
        assert_eq!(read(&mut server, 4).await?, b"quit");
        let large = vec![b'x'; 1 << 20];
        let (sent, received) = tokio::join!(server.write_all(&large), client.read_exact(large.len()));
        sent?;
        assert_eq!(received?, large);
        let (sent, received) = tokio::join!(client.send(&large), read(&mut server, large.len()));
        sent?;
        assert_eq!(received?, large);
    }
    Ok(())
}

#[tokio::test]
async fn directions_of_a_relayed_tls_connection_close_independently() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway = relaying([address]).start().await?;
    // First the client closes its direction, then the endpoint.
    let mut client = open(&gateway, &trusting()).await?;
    let mut server = accept(&endpoint).await?;
    client.send(b"quit").await?;
    client.half_close().await?;
    assert_eq!(read_to_end(&mut server).await?, b"quit");
    let large = vec![b'x'; 1 << 20];
    let (sent, received) = tokio::join!(
        async {
            server.write_all(&large).await?;
            server.shutdown().await
        },
        client.read_to_end()
    );
    sent?;
    assert_eq!(received?, large);
    // First the endpoint closes its direction, then the client.
    let mut client = open(&gateway, &trusting()).await?;
    let mut server = accept(&endpoint).await?;
    server.write_all(b"bye").await?;
    server.shutdown().await?;
    assert_eq!(client.read_to_end().await?, b"bye");
    client.send(b"last words").await?;
    assert_eq!(read(&mut server, 10).await?, b"last words");
    Ok(())
}

#[tokio::test]
async fn reset_by_client_or_endpoint_ends_the_other_connection() -> TestResult {
    let (endpoint, address) = listen().await?;
    let gateway = relaying([address]).start().await?;
    let (mut client, mut server) = (open(&gateway, &trusting()).await?, accept(&endpoint).await?);
    server.write_all(b"half of").await?;
    assert_eq!(client.read_exact(7).await?, b"half of");
    server.set_zero_linger()?;
    drop(server);
    client.expect_end().await?;

    let (client, mut server) = (open(&gateway, &trusting()).await?, accept(&endpoint).await?);
    client.reset()?;
    let error = read_to_end(&mut server).await.expect_err("no proper end");
    assert!(error.to_string().contains("reset"), "{error}");
    Ok(())
}

#[tokio::test]
async fn change_of_route_or_certificate_closes_no_relayed_tls_connection() -> TestResult {
    let ((one, _one), (two, _two)) = (echo("1").await?, echo("2").await?);
    let gateway = relaying([one]).start().await?;
    let mut old = open(&gateway, &trusting()).await?;
    assert_eq!(old.read_exact(1).await?, b"1");
    gateway
        .configure(|config| {
            let host = Arc::make_mut(&mut Arc::make_mut(&mut config.tls).hosts[0]);
            host.certificates = vec![Authority::of_process().issue(&["a.test"]).certificate];
        })
        .await;
    gateway.set_addresses_of(layer4_key(LAYER4, Protocol::Tcp), [two]).await;
    assert_eq!(open(&gateway, &trusting()).await?.read_exact(1).await?, b"2");
    gateway.configure(|config| Arc::make_mut(&mut config.tls).hosts.clear()).await;
    assert!(open(&gateway, &trusting()).await.is_err(), "the name is gone");
    old.send(b"still").await?;
    assert_eq!(old.read_exact(5).await?, b"still");
    Ok(())
}

#[tokio::test]
async fn idle_relayed_tls_connection_ends_at_its_timeout() -> TestResult {
    let (one, _one) = echo("1").await?;
    let time = Duration::from_millis(100);
    let gateway = relaying([one]).settings(|settings| settings.timeouts.tunnel_idle = time).start().await?;
    assert_eq!(open(&gateway, &trusting()).await?.read_to_end().await?, b"1");
    Ok(())
}

#[tokio::test]
async fn shutdown_waits_for_relayed_tls_connections() -> TestResult {
    let (one, _one) = echo("1").await?;
    let gateway = relaying([one]).start().await?;
    let mut client = open(&gateway, &trusting()).await?;
    assert_eq!(client.read_exact(1).await?, b"1");
    let gateway = Arc::new(gateway);
    let stopped = tokio::spawn({
        let gateway = gateway.clone();
        let drain = Drain { grace: Duration::ZERO, idle: Duration::ZERO, timeout: SOON };
        async move { gateway.proxy().shutdown(drain).await }
    });
    client.send(b"still").await?;
    assert_eq!(client.read_exact(5).await?, b"still");
    assert!(!stopped.is_finished());
    drop(client);
    timeout(SOON, stopped).await.context("the shutdown waits")??;
    Ok(())
}

/// Also a listener for passthrough keeps its socket when the first name is terminated.
#[tokio::test]
async fn server_name_selects_between_passthrough_relay_and_http_at_one_port() -> TestResult {
    let own = Backend::start(Behaviour::ok()).await?;
    let inside = Backend::start(Behaviour::ok()).await?;
    let terminator =
        Terminator::start(inside.addr(), &Authority::of_process().issue(&["p.test"]), None).await?;
    let gateway = Gateway::builder()
        .backends([&own])
        .layer4(
            Protocol::Tcp,
            |route| Serves::Tls(vec![TlsRoute::new(exact("p.test"), route)]),
            [terminator.addr()],
        )
        .start()
        .await?;
    let listener = gateway.layer4_addr();
    let ask = async |name: &str, host: &str| {
        let mut client = Client::connect_tls(listener, &trusting(), name).await?;
        anyhow::Ok(client.request(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await?.status)
    };
    assert_eq!(ask("p.test", "p.test").await?, 200);
    assert!(ask("h.test", "h.test").await.is_err(), "no route yet");
    let (relay, address) = listen().await?;
    gateway
        .configure(|config| {
            let passed = layer4_route(LAYER4, Protocol::Tcp);
            let upstream = config.upstreams[&layer4_key(LAYER4, Protocol::Tcp)].clone();
            config.upstreams.insert(layer4_key("relay", Protocol::Tcp), upstream);
            config.listeners[0].serves = Serves::Https("edge".into());
            let rules = config.hosts[0].rules.clone();
            let host = VirtualHost::new(exact("h.test"), rules);
            config.hosts.push(Arc::new(VirtualHost { entry_point: edge(), ..host }));
            let names = |name: &str, relay| {
                let certificates = vec![Authority::of_process().issue(&["h.test", "r.test"]).certificate];
                Arc::new(TlsHost { entry_point: edge(), relay, ..TlsHost::new(exact(name), certificates) })
            };
            let tls = Arc::make_mut(&mut config.tls);
            tls.hosts =
                vec![names("h.test", None), names("r.test", Some(layer4_route("relay", Protocol::Tcp)))];
            tls.passthrough =
                vec![TlsRoute { entry_point: edge(), ..TlsRoute::new(exact("p.test"), passed) }];
        })
        .await;
    gateway.set_addresses_of(layer4_key("relay", Protocol::Tcp), [address]).await;
    assert_eq!(gateway.layer4_addr(), listener, "the same socket");
    assert_eq!((ask("p.test", "p.test").await?, terminator.handshakes()), (200, 2));
    assert_eq!((ask("h.test", "h.test").await?, own.requests()), (200, 1));
    assert_eq!(ask("h.test", "r.test").await?, 421, "a relayed name has no HTTP");
    assert_eq!(ask("h.test", "p.test").await?, 421, "a name that passes through has no HTTP");
    let mut client = Client::connect_tls(listener, &trusting(), "r.test").await?;
    client.send(GET).await?;
    assert_eq!(read(&mut accept(&relay).await?, GET.len()).await?, GET.as_bytes());
    assert!(ask("other.test", "other.test").await.is_err());
    let mut clear = connect(&gateway).await?;
    clear.write_all(GET.as_bytes()).await?;
    assert!(read_to_end(&mut clear).await?.starts_with(b"HTTP/1.1 400"));
    Ok(())
}

/// A gateway with a TCP listener that uses TLS to an endpoint at this address, which must have the certificate of the CA.
fn securing(address: SocketAddr, authority: &Authority) -> Builder {
    let roots = vec![authority.certificate()];
    let tls = UpstreamTls {
        server_name: "db.test".into(),
        sends_name: true,
        verification: Verification::Authorities { roots, crls: Vec::new() },
        identity: None,
        alternative_names: None,
        ciphers: CipherSuites::default(),
        depth: None,
    };
    Gateway::builder()
        .layer4(Protocol::Tcp, |route| Serves::Tcp(Some(route)), [address])
        .layer4_upstream(|upstream| upstream.tls = Some(Arc::new(tls)))
}

/// Accepts a TCP connection, and the TLS handshake on it.
async fn accept_tls(endpoint: &TcpListener, acceptor: &TlsAcceptor) -> anyhow::Result<TlsStream<TcpStream>> {
    let tcp = accept(endpoint).await?;
    Ok(timeout(SOON, acceptor.accept(tcp)).await.context("no handshake")??)
}

fn acceptor(authority: &Authority) -> anyhow::Result<TlsAcceptor> {
    let issued = authority.issue(&["db.test"]).certificate;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config =
        config.with_no_client_auth().with_single_cert(issued.chain.clone(), issued.key.0.clone_key())?;
    config.alpn_protocols = vec![b"other".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn bytes_of_a_tcp_connection_reach_the_endpoint_over_tls_and_directions_close_independently()
-> TestResult {
    let (endpoint, address) = listen().await?;
    let authority = Authority::of_process();
    let acceptor = acceptor(authority)?;
    let gateway = securing(address, authority).start().await?;
    let mut client = connect(&gateway).await?;
    let mut server = accept_tls(&endpoint, &acceptor).await?;
    assert_eq!(server.get_ref().1.server_name(), Some("db.test"));
    assert_eq!(server.get_ref().1.alpn_protocol(), None, "the gateway does not know the protocol inside");
    server.write_all(b"220 hello\r\n").await?;
    assert_eq!(read(&mut client, 11).await?, b"220 hello\r\n", "the endpoint may speak first");
    client.write_all(b"quit").await?;
    client.shutdown().await?;
    let mut received = Vec::new();
    timeout(SOON, server.read_to_end(&mut received)).await??;
    assert_eq!(received, b"quit", "the close notice is the end");
    let large = vec![b'x'; 1 << 20];
    let (sent, received) = tokio::join!(
        async {
            server.write_all(&large).await?;
            server.shutdown().await
        },
        read_to_end(&mut client)
    );
    sent?;
    assert_eq!(received?, large);
    // First the endpoint closes its direction, then the client.
    let mut client = connect(&gateway).await?;
    let mut server = accept_tls(&endpoint, &acceptor).await?;
    server.write_all(b"bye").await?;
    server.shutdown().await?;
    assert_eq!(read_to_end(&mut client).await?, b"bye");
    client.write_all(b"last words").await?;
    let mut last = [0; 10];
    timeout(SOON, server.read_exact(&mut last)).await??;
    assert_eq!(&last, b"last words");
    Ok(())
}

#[tokio::test]
async fn terminated_connection_is_encrypted_again_to_the_endpoint() -> TestResult {
    let (endpoint, address) = listen().await?;
    let authority = Authority::of_process();
    let acceptor = acceptor(authority)?;
    let mut builder = relaying([address]);
    let tls =
        securing(address, authority).into_config().upstreams[&layer4_key(LAYER4, Protocol::Tcp)].tls.clone();
    builder = builder.layer4_upstream(|upstream| upstream.tls = tls);
    let gateway = builder.start().await?;
    let mut client = open(&gateway, &trusting()).await?;
    let mut server = accept_tls(&endpoint, &acceptor).await?;
    server.write_all(b"hello").await?;
    assert_eq!(client.read_exact(5).await?, b"hello");
    client.send(b"quit").await?;
    client.half_close().await?;
    let mut received = Vec::new();
    timeout(SOON, server.read_to_end(&mut received)).await??;
    assert_eq!(received, b"quit");
    server.write_all(b"bye").await?;
    server.shutdown().await?;
    assert_eq!(client.read_to_end().await?, b"bye");
    Ok(())
}

#[tokio::test]
async fn endpoint_that_is_not_verified_receives_no_byte_of_the_client() -> TestResult {
    let (endpoint, address) = listen().await?;
    let acceptor = acceptor(Authority::of_process())?;
    let gateway = securing(address, &Authority::named("Other")).start().await?;
    let mut client = connect(&gateway).await?;
    client.write_all(b"secret").await?;
    let rejected = accept_tls(&endpoint, &acceptor).await;
    assert!(rejected.is_err(), "the gateway rejects the certificate");
    assert!(read_to_break(&mut client).await?.is_empty(), "the connection ends");
    Ok(())
}

#[tokio::test]
async fn proxy_header_precedes_the_tls_handshake_with_the_endpoint() -> TestResult {
    let (endpoint, address) = listen().await?;
    let authority = Authority::of_process();
    let acceptor = acceptor(authority)?;
    let with_header = |upstream: &mut Upstream| upstream.proxy_protocol = Some(ProxyProtocol::V1);
    let gateway = securing(address, authority).layer4_upstream(with_header).start().await?;
    let mut client = connect(&gateway).await?;
    let mut tcp = accept(&endpoint).await?;
    let (source, destination) = (client.local_addr()?, client.peer_addr()?);
    let expected = format!(
        "PROXY TCP4 {} {} {} {}\r\n",
        source.ip(),
        destination.ip(),
        source.port(),
        destination.port()
    );
    assert_eq!(read(&mut tcp, expected.len()).await?, expected.as_bytes());
    let mut server = timeout(SOON, acceptor.accept(tcp)).await??;
    client.write_all(b"hello").await?;
    let mut received = [0; 5];
    timeout(SOON, server.read_exact(&mut received)).await??;
    assert_eq!(&received, b"hello");
    Ok(())
}
