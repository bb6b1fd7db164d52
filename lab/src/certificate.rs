//! The certificates of the gateways, which a CA of this process issues one after another.

use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::{ClientConfig, RootCertStore};

use crate::gateway::{HOST, Pem};

/// The number of keys: the lab makes the keys before a measurement, because making a key takes long.
const KEYS: usize = 3;

/// The type of the gateways' keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// RSA with 2048 bits, as in the published studies.
    Rsa,
    /// ECDSA with P-256.
    P256,
}

/// Issues certificates for [`HOST`] and all names below `example.com`.
pub(crate) struct Issuer {
    authority: CertifiedIssuer<'static, KeyPair>,
    keys: Vec<KeyPair>,
    issued: usize,
}

impl Issuer {
    pub(crate) fn new(key: Key) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "The lab's authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let make = |_| match key {
            Key::Rsa => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048),
            Key::P256 => KeyPair::generate(),
        };
        let keys = (0..KEYS).map(make).collect::<Result<_, _>>().context("making keys")?;
        Ok(Self { authority, keys, issued: 0 })
    }

    /// The next certificate, with another key than the previous one, and its DER form.
    pub(crate) fn issue(&mut self) -> anyhow::Result<(Pem, Vec<u8>)> {
        let key = &self.keys[self.issued % self.keys.len()];
        self.issued += 1;
        let mut params = CertificateParams::new(vec![HOST.to_owned(), "*.example.com".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, HOST);
        params.serial_number = Some((self.issued as u64).into());
        let certificate = params.signed_by(key, &self.authority).context("signing a certificate")?;
        let der = certificate.der().to_vec();
        Ok((Pem { chain: pem("CERTIFICATE", &der), key: pem("PRIVATE KEY", &key.serialize_der()) }, der))
    }

    /// A client that trusts this CA, and resumes no session.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        // This process made the certificate, so the certificate is valid.
        let _ = roots.add(self.authority.der().clone());
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        Arc::new(config)
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        (0..text.len()).step_by(64).map(|at| &text[at..(at + 64).min(text.len())]).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
