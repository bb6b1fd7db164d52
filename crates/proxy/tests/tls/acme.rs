use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use sluicegate_model::tls::PrivateKey;
use sluicegate_model::{AcmeHost, Certificate, KeyKind};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::tls::ClientOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::hostile::hello_of;
use crate::{TestResult, get, shown, trusting, with_names};

const TOKEN: &str = "evaGxfADs6pSRb2LAv9IZf17Dt3juxGJ-PCt92wr-oA";
const THUMBPRINT: &str = "LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ";

fn host(name: &str, challenge: Option<Arc<Certificate>>) -> Arc<AcmeHost> {
    Arc::new(AcmeHost { host: name.into(), thumbprint: THUMBPRINT.into(), challenge })
}

/// The certificate for a challenge (RFC 8737, 3).
fn challenge(name: &str) -> anyhow::Result<Arc<Certificate>> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    let mut identifier = CustomExtension::new_acme_identifier(&[7; 32]);
    // The clients of tests verify no certificate with an unknown critical extension.
    identifier.set_criticality(false);
    params.custom_extensions = vec![identifier];
    Ok(Arc::new(Certificate {
        source: "Secret sluicegate/challenges".into(),
        chain: vec![params.self_signed(&key)?.der().clone()],
        key: PrivateKey(PrivateKeyDer::Pkcs8(key.serialize_der().into())),
        key_kind: KeyKind::Ecdsa,
        names: Vec::new(),
        not_before: std::time::SystemTime::UNIX_EPOCH,
        not_after: std::time::SystemTime::UNIX_EPOCH,
    }))
}

/// A client that accepts every certificate, with these protocols.
fn acme(protocols: &[&str]) -> ClientOptions {
    ClientOptions::default().protocols(protocols)
}

#[tokio::test]
async fn gateway_answers_http_challenges_of_managed_hosts_before_redirects_and_routes() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = with_names(&["a.test"])
        .tls(|tls| tls.acme.push(host("a.test", None)))
        .route("a.test", "/", "default")
        .backends([&backend])
        .start()
        .await?;
    gateway
        .configure(|config| {
            for host in &mut config.hosts {
                Arc::make_mut(host).rules.iter_mut().for_each(|rule| rule.https_only = true);
            }
        })
        .await;
    let path = format!("/.well-known/acme-challenge/{TOKEN}");
    let ask =
        |method: &str, host: &str, path: &str| format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut client = gateway.connect().await?;
    let response = client.request(ask("GET", "A.test:80", &path)).await?;
    assert_eq!((response.status, response.text()), (200, format!("{TOKEN}.{THUMBPRINT}")));
    assert_eq!(backend.requests(), 0);
    // Other hosts, other methods and invalid tokens reach their routes.
    for (method, host, path) in [
        ("GET", "b.test", &*path),
        ("POST", "a.test", &path),
        ("GET", "a.test", "/.well-known/acme-challenge/x"),
    ] {
        let response = client.request(ask(method, host, path)).await?;
        assert!(!response.text().contains(THUMBPRINT), "{method} {host} {path}");
    }
    // Over TLS, the path belongs to the routes.
    let mut client = gateway.connect_tls(&trusting(), "a.test").await?;
    assert!(!client.request(ask("GET", "a.test", &path)).await?.text().contains(THUMBPRINT));
    Ok(())
}

#[tokio::test]
async fn challenge_certificate_is_only_for_clients_that_offer_acme_alone() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let made = challenge("a.test")?;
    let gateway = with_names(&["a.test", "b.test"])
        .tls(|tls| tls.acme.extend([host("a.test", Some(made.clone())), host("b.test", None)]))
        .backends([&backend])
        .start()
        .await?;
    let mut client = gateway.connect_tls(&acme(&["acme-tls/1"]), "a.test").await?;
    assert_eq!(shown(&client), made.chain[0].as_ref());
    assert_eq!(client.tls().and_then(|tls| tls.alpn_protocol()), Some(&b"acme-tls/1"[..]));
    client.expect_end().await?;
    for protocols in [&["http/1.1", "acme-tls/1"][..], &["http/1.1"], &[]] {
        let mut client = gateway.connect_tls(&acme(protocols), "a.test").await?;
        assert_ne!(shown(&client), made.chain[0].as_ref(), "{protocols:?}");
        assert_eq!(client.request(get("a.test")).await?.status, 200);
    }
    // Without a challenge in progress, the handshake fails (RFC 7301, 3.2).
    for name in ["b.test", "c.test"] {
        assert!(gateway.connect_tls(&acme(&["acme-tls/1"]), name).await.is_err(), "{name}");
    }
    // The end of the challenge.
    gateway.configure(|config| Arc::make_mut(&mut config.tls).acme.clear()).await;
    assert!(gateway.connect_tls(&acme(&["acme-tls/1"]), "a.test").await.is_err());
    Ok(())
}

#[tokio::test]
async fn client_that_stalls_in_a_challenge_delays_no_other_handshake() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let made = challenge("a.test")?;
    let gateway = with_names(&["a.test"])
        .workers(1)
        .tls(|tls| tls.acme.push(host("a.test", Some(made))))
        .settings(|settings| settings.timeouts.tls_handshake = Duration::from_secs(3600))
        .backends([&backend])
        .start()
        .await?;
    let mut stalled = TcpStream::connect(gateway.https_addr()).await?;
    stalled.write_all(&hello_of(acme(&["acme-tls/1"])).await?).await?;
    // The gateway has answered, and waits for the client.
    stalled.read_u8().await?;
    let options = acme(&[]);
    let other = timeout(Duration::from_secs(10), gateway.connect_tls(&options, "a.test"));
    assert_eq!(other.await??.request(get("a.test")).await?.status, 200);
    drop(stalled);
    Ok(())
}
