//! Handshakes, limits, new addresses of clients, and shutdown.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::tls::{Http3, Tls, UnknownNames};
use sluicegate_model::{ClientAuth, ClientAuthMode, HostPattern, TlsHost};
use sluicegate_proxy::failure::TlsFault;
use sluicegate_proxy::{Drain, Options};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::http3::{self, Http3Client, receive};
use sluicegate_testkit::tls::{Authority, ExtendedKeyUsagePurpose};
use tokio::time::timeout;

use crate::{TestResult, URI, before, client, count, get, with_http3};

const SOON: Duration = Duration::from_secs(20);

fn set_host(tls: &mut Tls, name: &str, auth: Option<Arc<ClientAuth>>) {
    let certificate = Authority::of_process().issue(&[name]).certificate;
    let mut host = TlsHost::new(HostPattern::Exact(name.into()), vec![certificate]);
    host.client_auth = auth;
    tls.hosts.push(Arc::new(host));
}

#[tokio::test]
async fn requested_name_selects_the_certificate() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = with_http3()
        .tls(|tls| ["a.test", "b.test"].iter().for_each(|name| set_host(tls, name, None)))
        .settings(|settings| settings.tls.unknown_names = UnknownNames::Refuse)
        .backends([&backend])
        .start()
        .await?;
    let options = Authority::of_process().client();
    for name in ["a.test", "b.test"] {
        // The client verifies the name of the certificate.
        let client = Http3Client::connect(gateway.https_addr(), &options, name).await?;
        assert_eq!(client.get(&format!("https://{name}/")).await?.status, 200);
    }
    let a = Http3Client::connect(gateway.https_addr(), &options, "a.test").await?;
    assert_eq!(a.get("https://b.test/").await?.status, 421, "the certificate is for another host");
    let error = Http3Client::connect(gateway.https_addr(), &options, "c.test").await.err().unwrap();
    assert!(format!("{error:#}").contains("error 112"), "{error:#}");
    let failed = |gateway: &Gateway| {
        gateway
            .proxy()
            .registry()
            .counters()
            .workers()
            .sum(|worker| &worker.tls_faults[TlsFault::UnknownName.index()])
    };
    gateway.wait_until(|gateway| failed(gateway) == 1).await?;
    Ok(())
}

#[tokio::test]
async fn host_with_client_authentication_demands_a_certificate() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let clients = Authority::named("clients");
    let auth = Arc::new(ClientAuth {
        source: "test".into(),
        roots: vec![clients.certificate()],
        crls: Vec::new(),
        mode: ClientAuthMode::Required,
        forward: false,
        at_requests: None,
    });
    let gateway =
        with_http3().tls(|tls| set_host(tls, "a.test", Some(auth))).backends([&backend]).start().await?;
    let options = Authority::of_process().client();
    let issued = clients.issue_for(&["me"], ExtendedKeyUsagePurpose::ClientAuth);
    let known =
        Http3Client::connect(gateway.https_addr(), &options.clone().identity(&issued), "a.test").await?;
    let seen = String::from_utf8(known.get("https://a.test/").await?.body)?;
    assert!(seen.contains("ssl-client-verify: SUCCESS"), "{seen}");
    let unknown = async {
        let client = Http3Client::connect(gateway.https_addr(), &options, "a.test").await?;
        client.get("https://a.test/").await
    };
    assert!(timeout(SOON, unknown).await?.is_err());
    Ok(())
}

#[tokio::test]
async fn connection_survives_a_new_address_of_its_client() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    // Many workers: the new address most likely reaches the socket of another worker.
    let gateway = with_http3().workers(8).backends([&backend]).start().await?;
    let client = client(&gateway).await?;
    assert_eq!(client.get(URI).await?.status, 200);
    for _ in 0..10 {
        client.endpoint.rebind(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?)?;
        assert_eq!(timeout(SOON, client.get(URI)).await??.status, 200);
    }
    assert!(count(&gateway, |stats| &stats.datagrams_passed) > 0, "another worker received datagrams");
    assert_eq!(count(&gateway, |stats| &stats.connections), 1);
    Ok(())
}

#[tokio::test]
async fn client_always_proves_its_address_if_the_gateway_demands_it() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let http3 = Http3 { handshakes: 0, ..Http3::default() };
    let gateway = with_http3()
        .settings(|settings| settings.tls.http3 = Some(http3))
        .backends([&backend])
        .start()
        .await?;
    assert_eq!(client(&gateway).await?.get(URI).await?.status, 200);
    assert!(count(&gateway, |stats| &stats.retries) > 0);
    Ok(())
}

#[tokio::test]
async fn client_proves_its_address_while_handshakes_are_in_progress() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let http3 = Http3 { handshakes: 1, ..Http3::default() };
    let gateway = with_http3()
        .workers(1)
        .settings(|settings| settings.tls.http3 = Some(http3))
        .backends([&backend])
        .start()
        .await?;
    // A handshake that does not end.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    silent.connect(gateway.https_addr())?;
    let first_packet = first_packet(&gateway).await?;
    silent.send(&first_packet)?;
    gateway.wait_until(|gateway| count(gateway, |stats| &stats.handshaking) == 1).await?;
    let client = client(&gateway).await?;
    assert_eq!(client.get(URI).await?.status, 200);
    assert!(count(&gateway, |stats| &stats.retries) > 0);
    Ok(())
}

/// The first packet of a client, which the gateway has not seen.
async fn first_packet(gateway: &Gateway) -> anyhow::Result<Vec<u8>> {
    let mut trap = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    trap.set_read_timeout(Some(SOON))?;
    let endpoint = http3::endpoint()?;
    let options = Authority::of_process().client();
    let connecting = endpoint.connect_with(http3::config(&options)?, trap.local_addr()?, "localhost")?;
    let packet = tokio::task::spawn_blocking(move || {
        let mut packet = vec![0; 2048];
        let length = trap.recv(&mut packet)?;
        trap = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        drop(trap);
        packet.truncate(length);
        std::io::Result::Ok(packet)
    })
    .await??;
    drop(connecting);
    let _ = gateway;
    Ok(packet)
}

#[tokio::test]
async fn unfinished_handshake_sends_at_most_three_times_what_it_received() -> TestResult {
    let gateway = with_http3().workers(1).start().await?;
    let packet = first_packet(&gateway).await?;
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    silent.connect(gateway.https_addr())?;
    silent.set_read_timeout(Some(Duration::from_millis(1500)))?;
    silent.send(&packet)?;
    let received = tokio::task::spawn_blocking(move || {
        let (mut received, mut answer) = (0, [0; 2048]);
        while let Ok(length) = silent.recv(&mut answer) {
            received += length;
        }
        received
    })
    .await?;
    // RFC 9000, 8.1.
    assert!((1..=3 * packet.len()).contains(&received), "{received} for {}", packet.len());
    Ok(())
}

#[tokio::test]
async fn shutdown_serves_requests_in_flight_and_then_ends_the_connection() -> TestResult {
    let backend = Backend::start(Behaviour::ok().delay(Duration::from_millis(300))).await?;
    let gateway = Arc::new(before(&backend).await?);
    let client = client(&gateway).await?;
    let mut stream = client.open(get("/")).await?;
    stream.finish().await?;
    backend.wait_until(|backend| backend.requests() == 1).await?;
    let drain = Drain { grace: Duration::ZERO, idle: Duration::from_millis(50), timeout: SOON };
    let of_task = gateway.clone();
    let end = tokio::spawn(async move { of_task.proxy().shutdown(drain).await });
    assert_eq!(receive(&mut stream).await?.status, 200);
    drop(stream);
    timeout(SOON, client.connection.closed()).await?;
    let reason = client.connection.close_reason().unwrap();
    assert!(reason.to_string().contains("H3_NO_ERROR"), "{reason}");
    timeout(SOON, end).await??;
    Ok(())
}

#[tokio::test]
async fn requests_that_are_under_way_when_the_shutdown_begins_are_served() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Arc::new(before(&backend).await?);
    let client = Arc::new(client(&gateway).await?);
    client.get(URI).await?;
    let of_task = client.clone();
    let load = tokio::spawn(async move {
        let mut served = 0;
        loop {
            match of_task.get(URI).await {
                Ok(response) if response.status == 200 => served += 1,
                Ok(response) => anyhow::bail!("{response:?}"),
                // The client knows that the connection ends, and sends no further request on it.
                Err(error) if format!("{error:#}").to_lowercase().contains("clos") => return Ok(served),
                Err(error) => return Err(error),
            }
        }
    });
    backend.wait_until(|backend| backend.requests() > 20).await?;
    let drain = Drain { grace: Duration::from_millis(200), idle: Duration::from_millis(200), timeout: SOON };
    gateway.proxy().shutdown(drain).await;
    assert!(load.await?? > 20);
    assert_eq!(backend.malformed(), 0);
    Ok(())
}

#[tokio::test]
async fn process_that_takes_over_passes_datagrams_back_and_serves_new_connections() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let old = Arc::new(with_http3().workers(2).backends([&backend]).start().await?);
    let clients = [client(&old).await?, client(&old).await?, client(&old).await?, client(&old).await?];
    for client in &clients {
        assert_eq!(client.get(URI).await?.status, 200);
    }
    let inherited = old.proxy().sockets()?;
    let (http, https) = (old.addr(), old.https_addr());
    // Fewer workers than before: a worker reads several sockets.
    let new = with_http3()
        .options(move |options| {
            *options =
                Options { http: vec![http], https: vec![https], workers: 1, inherited, ..Options::default() };
        })
        .backends([&backend])
        .start()
        .await?;
    // The old process still reads.
    assert_eq!(clients[0].get(URI).await?.status, 200);
    let of_task = old.clone();
    let end = tokio::spawn(async move {
        of_task.proxy().end_grace();
        let drain = Drain { grace: SOON, idle: Duration::from_millis(500), timeout: SOON };
        of_task.proxy().shutdown(drain).await;
    });
    let newcomer = timeout(SOON, client(&new)).await??;
    assert_eq!(newcomer.get(URI).await?.status, 200);
    assert_eq!(count(&new, |stats| &stats.connections), 1);
    for client in &clients {
        timeout(SOON, client.connection.closed()).await?;
        let reason = client.connection.close_reason().unwrap();
        assert!(reason.to_string().contains("H3_NO_ERROR"), "{reason}");
    }
    assert!(count(&new, |stats| &stats.datagrams_passed) > 0);
    timeout(SOON, end).await??;
    Ok(())
}

#[tokio::test]
async fn http3_begins_and_ends_with_the_configuration() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = Gateway::builder().backends([&backend]).start().await?;
    let bind = || UdpSocket::bind(gateway.https_addr());
    assert!(bind().is_ok(), "no socket without HTTP/3");
    gateway.configure(|config| config.settings.tls.http3 = Some(Http3::default())).await;
    let client = client(&gateway).await?;
    assert_eq!(client.get(URI).await?.status, 200);
    assert!(bind().is_err());
    gateway.configure(|config| config.settings.tls.http3 = None).await;
    // The gateway ends an open connection in order: a request is served, or the client knows that it must go elsewhere.
    match client.get(URI).await {
        Ok(response) => assert_eq!(response.status, 200),
        Err(error) => assert!(error.to_string().contains("closing"), "{error}"),
    }
    timeout(SOON, client.connection.closed()).await?;
    let reason = client.connection.close_reason().unwrap();
    assert!(reason.to_string().contains("H3_NO_ERROR"), "{reason}");
    Ok(())
}
