//! TLS: certificates by name, and handshakes. `stream` has the connections over TLS.
//!
//! | module | purpose |
//! |---|---|
//! | [`mod@accept`] | a client's handshake, within limits |
//! | [`turns`] | the turns of handshakes on a worker |
//! | [`table`] | the host names, each with its certificates |
//! | [`mod@own`] | the default certificate, if the configuration has none |
//! | [`mod@acme`] | the proofs for an ACME server that the gateway serves a host |
//! | [`mod@quic`] | TLS inside QUIC, for HTTP/3 |
//! | [`client_auth`] | client certificates |
//! | [`ticket`] | session tickets |
//! | [`upstream`] | TLS with endpoints, and with servers that policies call |
//! | [`verifier`] | the verification of the certificates of endpoints |

mod accept;
mod acme;
mod client_auth;
mod own;
mod quic;
mod table;
mod ticket;
mod turns;
mod upstream;
mod verifier;

use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use sluicegate_model::Certificate;
use sluicegate_model::value::CipherSuites;

pub(crate) use accept::{Accepted, Hello, Rejected, accept, read_client_hello, refuse};
pub(crate) use acme::{AcmeHosts, CHALLENGE_PATH};
pub(crate) use client_auth::{Identity, identity, is_accepted};
pub(crate) use quic::{QuicHandshake, QuicNames};
pub(crate) use table::{Compiler, Session, TlsTable, TlsTables};
pub(crate) use turns::Turns;
pub(crate) use upstream::{Connector, handshake, unverified, verifying};

/// The algorithms, with hybrid post-quantum key exchange (X25519MLKEM768) preferred.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider())).clone()
}

/// The algorithms with these cipher suites of TLS 1.2, and all of TLS 1.3.
fn provider_with(ciphers: CipherSuites) -> Arc<CryptoProvider> {
    if ciphers.are_all() {
        return provider();
    }
    let mut provider = CryptoProvider::clone(&provider());
    provider.cipher_suites.retain(|suite| ciphers.has(suite.suite().into()));
    Arc::new(provider)
}

/// A certificate with its key, ready to sign.
fn certified_key(certificate: &Certificate) -> Result<CertifiedKey, rustls::Error> {
    let key = provider().key_provider.load_private_key(certificate.key.0.clone_key())?;
    Ok(CertifiedKey::new(certificate.chain.clone(), key))
}

/// The CA certificates that browsers trust.
fn well_known() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    ROOTS.get_or_init(|| Arc::new(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect())).clone()
}

/// The trusted CA certificates for a peer.
fn root_store(certificates: &[CertificateDer<'static>]) -> Result<Arc<RootCertStore>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone())?;
    }
    Ok(Arc::new(roots))
}
