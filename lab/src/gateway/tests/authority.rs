//! The CA of the tests, and its certificates.

use std::sync::LazyLock;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::super::{HOST, Pem};

static AUTHORITY: LazyLock<CertifiedIssuer<'static, KeyPair>> = LazyLock::new(|| {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
});

/// A certificate for all hosts of the tests.
pub(super) fn issue(key: &KeyPair) -> anyhow::Result<Pem> {
    let params = CertificateParams::new([HOST, "*.example.net"].map(str::to_owned))?;
    let certificate = params.signed_by(key, &*AUTHORITY)?;
    Ok(Pem { chain: pem("CERTIFICATE", certificate.der()), key: pem("PRIVATE KEY", &key.serialize_der()) })
}

pub(super) fn trusted() -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(AUTHORITY.der().clone())?;
    Ok(roots)
}

/// The first certificate of a chain.
pub(super) fn first(pem: &Pem) -> anyhow::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.chain.as_bytes()).ok().context("a chain without a certificate")
}

fn pem(label: &str, der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
