//! Successful and failing handshakes.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::CertifiedKey;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

use crate::server::{Server, load, number, only};

/// Handshakes take long on a busy machine.
const SHORT: &str = "-t2 -c4 -d300ms -R100 --ramp 1s";

/// Starts a server for `localhost` with its own certificate, and returns the certificate in PEM. The server closes each
/// connection after this many responses.
fn start(versions: &[&'static SupportedProtocolVersion], answers: usize, body: usize) -> (Server, String) {
    start_slow(versions, answers, body, Duration::ZERO)
}

/// The same, with this delay before the server responds to a handshake.
fn start_slow(
    versions: &[&'static SupportedProtocolVersion],
    answers: usize,
    body: usize,
    pause: Duration,
) -> (Server, String) {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let server = Server::accepting(move |stream| {
        let session = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(session, stream);
        sleep(pause);
        for left in (0..answers).rev() {
            if stream.read(&mut [0; 4096])? == 0 {
                return Ok(());
            }
            let close = if left == 0 { "Connection: close\r\n" } else { "" };
            let head = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: {body}\r\n\r\n");
            stream.write_all(&[head.as_bytes(), &vec![b'x'; body]].concat())?;
        }
        stream.conn.send_close_notify();
        stream.flush()
    });
    (server, pem(cert.der()))
}

/// A certificate in PEM.
pub(crate) fn pem(der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[test]
fn load_command_uses_tls_1_2_and_1_3_and_verifies_certificates_only_with_cacert() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (server, pem) = start(&[version], usize::MAX, 2);
        fs::write(&file, pem).unwrap();
        let port = server.addr.port();
        let report = load(&format!("{SHORT} --cacert {} https://localhost:{port}/", file.display()));
        assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
        assert_eq!(number(&report, "/requests/answered"), 30);
        assert_eq!(number(&report, "/connected"), 4);
        // The certificate is not for this name, which matters only to a client that verifies it.
        let url = format!("https://127.0.0.1:{port}/");
        assert_eq!(number(&load(&format!("{SHORT} {url}")), "/errors/total"), 0);
        let report = load(&format!("{SHORT} --cacert {} {url}", file.display()));
        assert_eq!(only(&report, "/errors/connect"), number(&report, "/errors/kinds/tls_handshake"));
    }
}

#[test]
fn certificate_is_verified_for_the_host_of_the_url_despite_connect_to() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    let (server, pem) = start(rustls::ALL_VERSIONS, usize::MAX, 2);
    fs::write(&file, pem).unwrap();
    let options = format!("{SHORT} --cacert {} --connect-to {}", file.display(), server.addr);
    assert_eq!(number(&load(&format!("{options} https://localhost/")), "/requests/answered"), 30);
    let report = load(&format!("{options} https://app.invalid/"));
    assert_eq!(only(&report, "/errors/connect"), number(&report, "/errors/kinds/tls_handshake"));
}

#[test]
fn load_command_reconnects_after_the_server_closes_a_tls_connection() {
    let (server, _) = start(rustls::ALL_VERSIONS, 3, 100);
    let report = load(&format!("{SHORT} https://{}/", server.addr));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert_eq!(number(&report, "/requests/answered"), 30);
    assert!(number(&report, "/connected") >= 10, "{report:#}");
}

/// The server takes 20 ms before it responds to the handshake.
#[test]
fn latency_with_new_connections_includes_the_tls_handshake() {
    let (server, _) = start_slow(rustls::ALL_VERSIONS, 1, 100, Duration::from_millis(20));
    for rate in ["-R100", ""] {
        let report = load(&format!("-t2 -c10 -d500ms --new-connections {rate} https://{}/", server.addr));
        assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
        let answered = number(&report, "/requests/answered");
        // At the end of the load, connections that are still being opened carry no request.
        assert!((answered..=answered + 10).contains(&number(&report, "/connected")), "{report:#}");
        assert!(rate.is_empty() || answered == 50, "{report:#}");
        assert!(number(&report, "/latency/min_us") >= 20_000, "{report:#}");
        assert!(number(&report, "/uncorrected_latency/min_us") < 20_000, "{report:#}");
    }
}

#[test]
fn load_command_reads_response_bodies_of_many_tls_records() {
    let (server, _) = start(rustls::ALL_VERSIONS, usize::MAX, 300_000);
    let report = load(&format!("{SHORT} https://{}/", server.addr));
    assert_eq!(number(&report, "/errors/total"), 0, "{report:#}");
    assert!(number(&report, "/bytes_read") > 30 * 300_000);
}

#[test]
fn load_command_counts_a_failed_handshake_with_a_server_without_tls() {
    let server = Server::accepting(|mut stream| {
        let _ = stream.read(&mut [0; 4096])?;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    });
    let report = load(&format!("{SHORT} https://{}/", server.addr));
    assert_eq!(only(&report, "/errors/connect"), number(&report, "/errors/kinds/tls_handshake"));
    let server = Server::accepting(|mut stream| {
        let _ = stream.read(&mut [0; 4096])?;
        Ok(())
    });
    let report = load(&format!("{SHORT} https://{}/", server.addr));
    assert_eq!(only(&report, "/errors/connect"), number(&report, "/errors/kinds/tls_closed"));
}

/// In TLS 1.3 the client completes the handshake before the server verifies the client, so a request may be in flight.
#[test]
fn load_command_fails_if_the_server_requires_a_client_certificate() {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(verifier.clone())
            .with_single_cert(
                vec![cert.der().clone()],
                PrivateKeyDer::Pkcs8(signing_key.serialize_der().into()),
            )
            .unwrap();
        let config = Arc::new(config);
        let server = Server::accepting(move |stream| {
            let session = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(session, stream);
            stream.read(&mut [0; 4096]).map(|_| ())
        });
        let report = load(&format!("{SHORT} https://{}/", server.addr));
        let failed = number(&report, "/errors/kinds/tls_handshake");
        let alerts = number(&report, "/errors/kinds/read_tls_alert");
        let is_early = version.version == rustls::ProtocolVersion::TLSv1_2;
        assert!(if is_early { failed > 0 && alerts == 0 } else { failed + alerts > 0 }, "{report:#}");
        assert_eq!(number(&report, "/requests/answered"), 0);
    }
}

#[test]
fn load_command_ends_an_unanswered_tls_handshake_at_the_timeout() {
    let server = Server::accepting(|mut stream| stream.read_to_end(&mut Vec::new()).map(|_| ()));
    let report = load(&format!("{SHORT} --timeout 50ms https://{}/", server.addr));
    assert_eq!(only(&report, "/errors/timeout"), number(&report, "/errors/kinds/tls_timeout"));
}
