//! A CA for tests, and clients that trust the CA.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
pub use rcgen::ExtendedKeyUsagePurpose;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use sluicegate_any_certificate::AnyCertificate;
use sluicegate_model::tls::PrivateKey;
use sluicegate_model::{Certificate, HostPattern, KeyKind};

/// The CA for the certificates of a test.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate in the form of the model.
    pub certificate: Arc<Certificate>,
    /// The chain in PEM.
    pub chain_pem: String,
    /// The key in PEM.
    pub key_pem: String,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Authority {
    /// A new CA.
    #[must_use]
    pub fn new() -> Self {
        Self::named("Test authority")
    }

    /// A new CA with another name.
    ///
    /// # Panics
    /// If no random numbers are available.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    /// An intermediate CA, whose certificate this CA signs.
    ///
    /// # Panics
    /// If no random numbers are available.
    #[must_use]
    pub fn between(&self, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::signed_by(params, key, &self.issuer).expect("a certificate") }
    }

    /// The CA for the default certificates of the [`Gateway`](crate::gateway::Gateway)s in this process.
    #[must_use]
    pub fn of_process() -> &'static Self {
        static AUTHORITY: OnceLock<Authority> = OnceLock::new();
        AUTHORITY.get_or_init(Self::new)
    }

    /// A certificate for these hosts and URIs with an ECDSA key, valid from yesterday until tomorrow.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_with(names, KeyKind::Ecdsa, SystemTime::now() + DAY)
    }

    /// A certificate for a single use (RFC 5280, 4.2.1.12), such as client authentication.
    #[must_use]
    pub fn issue_for(&self, names: &[&str], usage: ExtendedKeyUsagePurpose) -> Issued {
        self.issue_full(names, KeyKind::Ecdsa, SystemTime::now() + DAY, vec![usage])
    }

    /// A certificate for these names with this kind of key, valid from yesterday, or from the day before its end.
    #[must_use]
    pub fn issue_with(&self, names: &[&str], kind: KeyKind, not_after: SystemTime) -> Issued {
        self.issue_full(names, kind, not_after, Vec::new())
    }

    fn issue_full(
        &self,
        names: &[&str],
        kind: KeyKind,
        not_after: SystemTime,
        usages: Vec<ExtendedKeyUsagePurpose>,
    ) -> Issued {
        let key = match kind {
            KeyKind::Ecdsa => KeyPair::generate(),
            KeyKind::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
            KeyKind::Rsa => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048),
        };
        let key = key.expect("a key");
        let not_before = (SystemTime::now() - DAY).min(not_after - DAY);
        let (uris, hosts): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
        let hosts_owned: Vec<String> = hosts.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(hosts_owned).expect("names");
        let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().expect("a URI")));
        params.subject_alt_names.extend(uris);
        params.extended_key_usages = usages;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, names.first().copied().unwrap_or("nobody"));
        params.not_before = not_before.into();
        params.not_after = not_after.into();
        let chain = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        let key_der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let pattern = |name: &&str| match name.strip_prefix("*.") {
            Some(suffix) => HostPattern::Wildcard(suffix.into()),
            None => HostPattern::Exact((*name).into()),
        };
        Issued {
            chain_pem: pem("CERTIFICATE", &chain),
            key_pem: pem("PRIVATE KEY", key_der.secret_der()),
            certificate: Arc::new(Certificate {
                source: format!("test {}", names.join(" ")).into(),
                chain: vec![chain],
                key: PrivateKey(key_der),
                key_kind: kind,
                names: hosts.iter().map(pattern).collect(),
                not_before,
                not_after,
            }),
        }
    }

    /// The CA certificate.
    #[must_use]
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// The CA certificate in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate())
    }

    /// A revocation list of the CA with these certificates.
    ///
    /// # Panics
    /// If no random numbers are available.
    #[must_use]
    pub fn revoke(
        &self,
        certificates: &[&Issued],
    ) -> rustls::pki_types::CertificateRevocationListDer<'static> {
        let now = SystemTime::now();
        let revoked = |issued: &&Issued| rcgen::RevokedCertParams {
            serial_number: serial_of(&issued.certificate.chain[0]),
            revocation_time: (now - DAY).into(),
            reason_code: None,
            invalidity_date: None,
        };
        let params = rcgen::CertificateRevocationListParams {
            this_update: (now - DAY).into(),
            next_update: (now + DAY).into(),
            crl_number: rcgen::SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: certificates.iter().map(revoked).collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("a list").into()
    }

    /// A client that trusts the CA, without a client certificate.
    #[must_use]
    pub fn client(&self) -> ClientOptions {
        ClientOptions { root: Some(self.certificate()), ..ClientOptions::default() }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Issued {
    /// A `kubernetes.io/tls` Secret with this name and the certificate.
    #[must_use]
    pub fn secret(&self, name: &str) -> String {
        format!(
            "---\napiVersion: v1\nkind: Secret\ntype: kubernetes.io/tls\nmetadata: {{name: {name}}}\n\
             data: {{tls.crt: {}, tls.key: {}}}\n",
            BASE64_STANDARD.encode(&self.chain_pem),
            BASE64_STANDARD.encode(&self.key_pem)
        )
    }
}

/// The TLS options of a client. By default the client accepts any certificate.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The trusted CA certificate. `None`: any certificate is accepted.
    root: Option<CertificateDer<'static>>,
    identity: Option<Arc<Certificate>>,
    versions: &'static [&'static SupportedProtocolVersion],
    protocols: Vec<Vec<u8>>,
    provider: Arc<CryptoProvider>,
    config: OnceLock<Arc<ClientConfig>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            root: None,
            identity: None,
            versions: rustls::ALL_VERSIONS,
            protocols: Vec::new(),
            provider: Arc::new(aws_lc_rs::default_provider()),
            config: OnceLock::new(),
        }
    }
}

impl ClientOptions {
    /// Presents this certificate if the server requests a certificate.
    #[must_use]
    pub fn identity(self, issued: &Issued) -> Self {
        Self { identity: Some(issued.certificate.clone()), config: OnceLock::new(), ..self }
    }

    /// Uses only TLS 1.2.
    #[must_use]
    pub fn tls12(self) -> Self {
        static TLS12: &[&SupportedProtocolVersion] = &[&rustls::version::TLS12];
        Self { versions: TLS12, config: OnceLock::new(), ..self }
    }

    /// Offers these protocols by ALPN.
    #[must_use]
    pub fn protocols(self, protocols: &[&str]) -> Self {
        let protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Self { protocols, config: OnceLock::new(), ..self }
    }

    /// Changes the algorithms.
    #[must_use]
    pub fn provider(mut self, change: impl FnOnce(&mut CryptoProvider)) -> Self {
        change(Arc::make_mut(&mut self.provider));
        Self { config: OnceLock::new(), ..self }
    }

    /// The configuration for rustls. Connections with the same options resume each other's sessions.
    #[must_use]
    pub fn config(&self) -> Arc<ClientConfig> {
        self.config.get_or_init(|| Arc::new(self.build())).clone()
    }

    fn build(&self) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(self.versions)
            .expect("versions");
        let builder = match &self.root {
            Some(root) => {
                let mut roots = RootCertStore::empty();
                roots.add(root.clone()).expect("the authority's certificate");
                builder.with_root_certificates(roots)
            }
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(self.provider.clone()))),
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                let (chain, key) = (certificate.chain.clone(), certificate.key.0.clone_key());
                builder.with_client_auth_cert(chain, key).expect("a certificate with its key")
            }
        };
        config.alpn_protocols.clone_from(&self.protocols);
        config
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// The serial number of a certificate: the first INTEGER of its body, after the version (RFC 5280, 4.1).
fn serial_of(certificate: &[u8]) -> rcgen::SerialNumber {
    let version = memchr::memmem::find(certificate, &[0xa0, 0x03, 0x02, 0x01, 0x02]).expect("version 3");
    let serial = &certificate[version + 5..];
    rcgen::SerialNumber::from_slice(&serial[2..2 + usize::from(serial[1])])
}
