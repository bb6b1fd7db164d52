//! TLS with clients: the choice of certificates, client certificates, and hostile bytes.
//!
//! | module | contents |
//! |---|---|
//! | `listeners` | names and certificates of the listeners of Gateways |
//! | `names` | certificates by name and by type of key, unknown names, 421, redirects, HSTS |
//! | `changes` | certificates that change under load, tickets |
//! | `clients` | client certificates |
//! | `hostile` | broken, slow and endless handshakes |
//! | `acme` | the answers to challenges of an ACME server |
//! | `alerts` | alerts for records that the gateway rejects |
//! | `early_data` | early data that the gateway rejects |
//! | `upstream` | TLS with endpoints |

mod acme;
mod alerts;
mod changes;
mod clients;
mod early_data;
mod hostile;
mod listeners;
mod names;
mod upstream;

use std::sync::Arc;

use sluicegate_model::tls::Tls;
use sluicegate_model::{Certificate, HostPattern, TlsHost};
use sluicegate_proxy::failure::TlsFault;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;
use sluicegate_testkit::gateway::{Builder, Gateway};
use sluicegate_testkit::tls::{Authority, ClientOptions};

type TestResult = anyhow::Result<()>;

/// A request for a host.
fn get(host: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

/// A client that trusts the test CA of this process.
fn trusting() -> ClientOptions {
    Authority::of_process().client()
}

/// A certificate issued by the test CA of this process.
fn certificate(names: &[&str]) -> Arc<Certificate> {
    Authority::of_process().issue(names).certificate
}

/// Sets the certificates of a name.
fn set_host(tls: &mut Tls, name: &str, certificates: &[Arc<Certificate>]) {
    let host = match name.strip_prefix("*.") {
        Some(suffix) => HostPattern::Wildcard(suffix.into()),
        None => HostPattern::Exact(name.into()),
    };
    tls.hosts.retain(|known| known.host != host);
    tls.hosts.push(Arc::new(TlsHost::new(host, certificates.to_vec())));
}

/// A backend, and a gateway in front of it that serves these names, each with its own certificate.
async fn serving(names: &[&str]) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = with_names(names).backends([&backend]).start().await?;
    Ok((backend, gateway))
}

fn with_names(names: &[&str]) -> Builder {
    Gateway::builder().tls(|tls| names.iter().for_each(|name| set_host(tls, name, &[certificate(&[name])])))
}

/// The configuration of a server that is not Sluicegate, with a certificate for this name.
fn server_config(name: &str) -> anyhow::Result<rustls::ServerConfig> {
    let certificate = certificate(&[name]);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificate.chain.clone(), certificate.key.0.clone_key())?)
}

/// The certificate that the client received.
fn shown(client: &Client) -> &[u8] {
    let certificates = client.tls().and_then(|tls| tls.peer_certificates()).unwrap_or_default();
    certificates.first().map_or(&[], |certificate| certificate.as_ref())
}

/// The number of handshakes that failed for this reason.
fn failures(gateway: &Gateway, fault: TlsFault) -> u64 {
    gateway.proxy().registry().counters().workers().sum(|worker| &worker.tls_faults[fault.index()])
}

/// Waits until exactly this many handshakes have failed for this reason.
async fn failed(gateway: &Gateway, fault: TlsFault, count: u64) -> TestResult {
    gateway.wait_until(|gateway| failures(gateway, fault) >= count).await?;
    anyhow::ensure!(failures(gateway, fault) == count, "{fault:?}: {}", failures(gateway, fault));
    Ok(())
}
