use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::ServerConnection;
use sluicegate_model::value::CipherSuites;
use sluicegate_model::{AlternativeName, KeyKind, UpstreamTls, Verification};
use sluicegate_proxy::failure::Failure;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::{Gateway, key};
use sluicegate_testkit::terminator::Terminator;
use sluicegate_testkit::tls::{Authority, Issued};

use crate::{TestResult, get, server_config};

fn verified() -> UpstreamTls {
    let roots = vec![Authority::of_process().certificate()];
    let verification = Verification::Authorities { roots, crls: Vec::new() };
    UpstreamTls {
        server_name: "web.test".into(),
        sends_name: true,
        verification,
        identity: None,
        alternative_names: None,
        ciphers: CipherSuites::default(),
        depth: None,
    }
}

fn issue(name: &str) -> Issued {
    Authority::of_process().issue(&[name])
}

/// A gateway that speaks TLS with a backend that sends this certificate.
async fn before(tls: UpstreamTls, shown: &Issued) -> anyhow::Result<(Backend, Terminator, Gateway)> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let terminator = Terminator::start(backend.addr(), shown, None).await?;
    // One worker, so that every request reuses the connection of the previous request.
    let gateway = Gateway::builder()
        .workers(1)
        .endpoints([terminator.addr()])
        .upstream(|upstream| upstream.tls = Some(Arc::new(tls)))
        .start()
        .await?;
    Ok((backend, terminator, gateway))
}

/// Changes the TLS settings for endpoints.
async fn change(gateway: &Gateway, tls: UpstreamTls) {
    gateway
        .configure(|config| {
            let upstream = config.upstreams.get_mut(&key("backend")).expect("the upstream");
            Arc::make_mut(upstream).tls = Some(Arc::new(tls));
        })
        .await;
}

async fn status(gateway: &Gateway) -> anyhow::Result<u16> {
    Ok(gateway.connect().await?.request(get("a")).await?.status)
}

#[tokio::test]
async fn gateway_sends_the_server_name_to_endpoints_verifies_them_and_reuses_connections() -> TestResult {
    let (backend, terminator, gateway) = before(verified(), &issue("web.test")).await?;
    let mut client = gateway.connect().await?;
    for _ in 0..5 {
        assert_eq!(client.request(get("a")).await?.status, 200);
    }
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(client.request(post).await?.status, 200);
    assert_eq!((terminator.handshakes(), backend.requests()), (1, 6), "one connection for all");
    assert_eq!(terminator.names(), [Some("web.test".to_owned())]);
    Ok(())
}

#[tokio::test]
async fn endpoint_with_more_intermediates_than_the_depth_receives_no_request() -> TestResult {
    let between = Authority::of_process().between("Intermediate");
    let mut shown = between.issue(&["web.test"]);
    Arc::make_mut(&mut shown.certificate).chain.push(between.certificate());
    for (depth, expected) in [(None, 200), (Some(1), 200), (Some(0), 502)] {
        let (_backend, _terminator, gateway) = before(UpstreamTls { depth, ..verified() }, &shown).await?;
        assert_eq!(status(&gateway).await?, expected, "{depth:?}");
    }
    Ok(())
}

#[tokio::test]
async fn endpoint_with_an_untrusted_certificate_receives_no_request() -> TestResult {
    for shown in [issue("other.test"), Authority::named("Nobody").issue(&["web.test"])] {
        let (backend, _terminator, gateway) = before(verified(), &shown).await?;
        assert_eq!(status(&gateway).await?, 502);
        assert_eq!(backend.requests(), 0);
        assert!(gateway.count(|upstream| &upstream.connect_failures[Failure::TlsHandshake.index()]) > 0);
        // Without verification any certificate is accepted.
        change(&gateway, UpstreamTls { verification: Verification::None, ..verified() }).await;
        assert_eq!(status(&gateway).await?, 200);
    }
    Ok(())
}

#[tokio::test]
async fn post_goes_to_another_endpoint_if_a_certificate_is_untrusted() -> TestResult {
    let (backend, good, gateway) = before(verified(), &issue("web.test")).await?;
    let bad = Terminator::start(backend.addr(), &issue("other.test"), None).await?;
    gateway.set_addresses([bad.addr(), good.addr()]).await;
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    for _ in 0..20 {
        assert_eq!(gateway.connect().await?.request(post).await?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn gateway_can_omit_the_server_name_and_verify_certificates_for_ip_addresses() -> TestResult {
    let (_backend, terminator, gateway) =
        before(UpstreamTls { sends_name: false, ..verified() }, &issue("web.test")).await?;
    assert_eq!(status(&gateway).await?, 200);
    assert_eq!(terminator.names(), [None]);
    let of_address = issue("127.0.0.1");
    terminator.show(&of_address);
    change(&gateway, UpstreamTls { server_name: "127.0.0.1".into(), ..verified() }).await;
    assert_eq!(status(&gateway).await?, 200);
    Ok(())
}

const SPIFFE_ID: &str = "spiffe://web.test/ns/shop";

fn dns(name: &str) -> AlternativeName {
    AlternativeName::Dns(name.into())
}

fn uri(uri: &str) -> AlternativeName {
    AlternativeName::Uri(uri.into())
}

/// Requires one of these names instead of the server name.
fn named(names: &[AlternativeName]) -> UpstreamTls {
    UpstreamTls { alternative_names: Some(names.to_vec()), ..verified() }
}

#[tokio::test]
async fn certificate_of_an_endpoint_must_have_one_of_the_alternative_names() -> TestResult {
    let (_backend, terminator, gateway) = before(verified(), &issue("web.test")).await?;
    for (shown, names, expected) in [
        // A connection under the same names would be reused, so a rejected certificate comes first.
        (&["web.test"][..], &[dns("other.test")][..], 502),
        (&["other.test"], &[dns("other.test")], 200),
        (&["web.test"], &[], 502),
        (&["*.web.test"], &[dns("a.web.test")], 200),
        (&["a.web.test"], &[dns("*.web.test")], 502),
        (&["*.web.test"], &[dns("*.web.test")], 200),
        (&[SPIFFE_ID], &[uri(SPIFFE_ID)], 200),
        (&["web.test", SPIFFE_ID], &[dns("other.test"), uri(SPIFFE_ID)], 200),
        (&["web.test", SPIFFE_ID], &[dns("other.test"), uri("spiffe://web.test/ns/other")], 502),
        (&["web.test", SPIFFE_ID], &[uri("spiffe://web.test/ns")], 502),
        (&["web.test", SPIFFE_ID], &[uri("web.test")], 502),
        (&["127.0.0.1"], &[dns("127.0.0.1")], 502),
    ] {
        terminator.show(&Authority::of_process().issue(shown));
        change(&gateway, named(names)).await;
        assert_eq!(status(&gateway).await?, expected, "{shown:?} {names:?}");
    }
    assert_eq!(terminator.names().last(), Some(&Some("web.test".to_owned())), "the server name stays");
    Ok(())
}

#[tokio::test]
async fn alternative_name_of_an_untrusted_certificate_authenticates_no_endpoint() -> TestResult {
    let expired = SystemTime::now() - Duration::from_secs(3600);
    let (trusted, nobody) = (Authority::of_process(), Authority::named("Nobody"));
    let tls = named(&[dns("web.test"), uri(SPIFFE_ID)]);
    for shown in [
        nobody.issue(&["web.test", SPIFFE_ID]),
        trusted.issue_with(&["web.test", SPIFFE_ID], KeyKind::Ecdsa, expired),
    ] {
        let (backend, _terminator, gateway) = before(tls.clone(), &shown).await?;
        assert_eq!((status(&gateway).await?, backend.requests()), (502, 0));
    }
    let revoked = trusted.issue(&[SPIFFE_ID]);
    let (roots, crls) = (vec![trusted.certificate()], vec![trusted.revoke(&[&revoked])]);
    let verification = Verification::Authorities { roots, crls };
    let (backend, _terminator, gateway) = before(UpstreamTls { verification, ..tls }, &revoked).await?;
    assert_eq!((status(&gateway).await?, backend.requests()), (502, 0));
    Ok(())
}

#[tokio::test]
async fn well_known_authorities_do_not_include_the_authority_of_an_operator() -> TestResult {
    let well_known = UpstreamTls { verification: Verification::WellKnown, ..verified() };
    let (backend, terminator, gateway) = before(well_known, &issue("web.test")).await?;
    assert_eq!((status(&gateway).await?, backend.requests()), (502, 0));
    assert!(!terminator.names().is_empty(), "the settings are usable");
    Ok(())
}

#[tokio::test]
async fn gateway_presents_its_client_certificate_to_endpoints() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let clients = Authority::named("Clients");
    let terminator = Terminator::start(backend.addr(), &issue("web.test"), Some(&clients)).await?;
    let gateway = Gateway::builder()
        .endpoints([terminator.addr()])
        .upstream(|upstream| upstream.tls = Some(Arc::new(verified())))
        .start()
        .await?;
    assert_eq!(status(&gateway).await?, 502);
    let identity = Some(clients.issue(&["gateway"]).certificate);
    change(&gateway, UpstreamTls { identity, ..verified() }).await;
    assert_eq!(status(&gateway).await?, 200);
    assert_eq!(backend.requests(), 1);
    Ok(())
}

#[tokio::test]
async fn connections_verified_under_an_earlier_tls_policy_are_not_reused() -> TestResult {
    let (_backend, terminator, gateway) = before(verified(), &issue("web.test")).await?;
    assert_eq!(status(&gateway).await?, 200);
    let nobody = Authority::named("Nobody");
    let roots = vec![nobody.certificate()];
    let stricter = Verification::Authorities { roots, crls: Vec::new() };
    change(&gateway, UpstreamTls { verification: stricter, ..verified() }).await;
    assert_eq!(status(&gateway).await?, 502);
    terminator.show(&nobody.issue(&["web.test"]));
    assert_eq!(status(&gateway).await?, 200);
    Ok(())
}

#[tokio::test]
async fn upstream_with_an_unusable_tls_policy_returns_502_and_receives_no_clear_text() -> TestResult {
    let nobody = Verification::Authorities { roots: Vec::new(), crls: Vec::new() };
    let (backend, terminator, gateway) =
        before(UpstreamTls { verification: nobody, ..verified() }, &issue("web.test")).await?;
    assert_eq!(status(&gateway).await?, 502);
    assert_eq!((backend.requests(), terminator.handshakes()), (0, 0));
    change(&gateway, UpstreamTls { server_name: "not a name".into(), ..verified() }).await;
    assert_eq!(status(&gateway).await?, 502);
    Ok(())
}

#[tokio::test]
async fn large_bodies_are_forwarded_both_ways_over_upstream_tls() -> TestResult {
    let (backend, _terminator, gateway) = before(verified(), &issue("web.test")).await?;
    backend.set(Behaviour::sized(3_000_000));
    let mut client = gateway.connect().await?;
    let body = "x".repeat(2_000_000);
    for framing in [
        "Content-Length: 2000000\r\n\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n\r\n1E8480\r\n".to_owned(),
    ] {
        let end = if framing.contains("chunked") { "\r\n0\r\n\r\n" } else { "" };
        let response = client.request(format!("PUT / HTTP/1.1\r\nHost: a\r\n{framing}{body}{end}")).await?;
        assert_eq!((response.status, response.body.len()), (200, 3_000_000));
    }
    Ok(())
}

#[tokio::test]
async fn response_reaches_the_client_if_the_endpoint_closes_before_reading_the_request() -> TestResult {
    const ROUNDS: usize = 20;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let config = Arc::new(server_config("web.test")?);
    let answering = std::thread::spawn(move || -> anyhow::Result<()> {
        for tcp in listener.incoming().take(ROUNDS) {
            let mut tcp = tcp?;
            // The close discards bytes that the kernel has not sent.
            tcp.set_nodelay(true)?;
            let mut tls = ServerConnection::new(config.clone())?;
            let mut stream = rustls::Stream::new(&mut tls, &mut tcp);
            stream.read_exact(&mut [0; 20])?;
            let body = "z".repeat(30_000);
            let head = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 30000\r\nConnection: close\r\n\r\n";
            stream.write_all(format!("{head}{body}").as_bytes())?;
            // Waits until more of the body has arrived.
            tcp.peek(&mut [0])?;
        }
        Ok(())
    });
    let gateway = Gateway::builder()
        .workers(1)
        .endpoints([address])
        .upstream(|upstream| upstream.tls = Some(Arc::new(verified())))
        .settings(|settings| settings.resilience.attempts = 1)
        .start()
        .await?;
    for round in 0..ROUNDS {
        let mut client = Client::connect(gateway.addr()).await?;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n").await?;
        for _ in 0..40 {
            // The gateway may have responded.
            drop(client.send([b'x'; 20_000]).await);
        }
        let response = client.read_response().await?;
        assert_eq!((response.status, response.body.len()), (413, 30_000), "round {round}");
    }
    drop(gateway);
    answering.join().expect("an endpoint that does not panic")
}
