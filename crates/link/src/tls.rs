//! Mutual TLS between the planes, with certificates from a directory or from the caller.
//!
//! The directory holds `tls.crt`, `tls.key` and `ca.crt` in PEM, as in a mounted Secret. The process reads the
//! directory every second. New certificates apply to new connections, and open connections continue. The process logs
//! invalid certificates once, and keeps the last valid certificates.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::HeaderValue;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// The interval of reading the directory.
const INTERVAL: Duration = Duration::from_secs(1);
/// The longest file, in bytes.
const FILE_MAX: u64 = 1 << 20;
const ALPN: &[u8] = b"h2";

/// The reason why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{path}: cannot be read: {error}")]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error.
        error: std::io::Error,
    },
    /// A file is too long.
    #[error("{0}: exceeds the limit of 1 MiB")]
    TooLong(PathBuf),
    /// A file has no PEM block of the expected kind.
    #[error("{0}: contains no {1} in PEM")]
    Pem(PathBuf, &'static str),
    /// A file contains no token.
    #[error("{0}: contains no token; project a token of the ServiceAccount into the pod")]
    Token(PathBuf),
    /// The process ends.
    #[error("the process ends")]
    Ends,
    /// The certificates do not match each other, or their kind is not supported.
    #[error("{dir}: the certificates cannot be used: {error}")]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// The error.
        error: String,
    },
}

/// The certificates of one plane. The plane reloads them when their directory changes.
#[derive(Clone, Debug)]
pub struct PlaneTls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Current {
    files: Files,
    server: Arc<ServerConfig>,
    /// Also accepts clients without a certificate.
    open_server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// The contents of the directory: PEM.
#[derive(PartialEq, Eq)]
pub struct Files {
    /// `tls.crt`: the certificate chain of this plane.
    pub chain: Vec<u8>,
    /// `tls.key`: the private key.
    pub key: Vec<u8>,
    /// `ca.crt`: the CA certificates to trust for the other plane.
    pub authorities: Vec<u8>,
}

/// Omits the key.
impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").finish_non_exhaustive()
    }
}

impl PlaneTls {
    /// The certificates of a directory.
    ///
    /// # Errors
    /// If a file is missing, or the certificates do not match each other.
    pub fn read(dir: impl Into<PathBuf>) -> Result<Self, TlsError> {
        let dir = dir.into();
        let current = Current::read(&dir, Files::read(&dir)?)?;
        Ok(Self(Arc::new(Inner { dir, current: RwLock::new(current) })))
    }

    /// Certificates from the caller. `by` names their source in messages.
    ///
    /// # Errors
    /// If the certificates do not match each other.
    pub fn given(by: impl Into<PathBuf>, files: Files) -> Result<Self, TlsError> {
        let dir = by.into();
        let current = Current::read(&dir, files)?;
        Ok(Self(Arc::new(Inner { dir, current: RwLock::new(current) })))
    }

    /// Replaces the certificates for new connections.
    ///
    /// # Errors
    /// If the new certificates do not match each other. The old certificates stay.
    pub fn set(&self, files: Files) -> Result<(), TlsError> {
        let new = Current::read(&self.0.dir, files)?;
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// Follows the directory until the future is dropped.
    pub async fn follow(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut complaint = None;
        loop {
            ticks.tick().await;
            let this = self.clone();
            // Fails only when the runtime shuts down.
            let Ok(changed) = tokio::task::spawn_blocking(move || this.read_again()).await else { return };
            match changed {
                Ok(true) => {
                    complaint = None;
                    tracing::info!(dir = %self.0.dir.display(), "the planes' certificates changed");
                }
                Ok(false) => complaint = None,
                Err(error) => {
                    let error = error.to_string();
                    if complaint.as_ref() != Some(&error) {
                        tracing::warn!("{error}; the last valid certificates stay in use");
                    }
                    complaint = Some(error);
                }
            }
        }
    }

    /// Whether the certificates changed.
    fn read_again(&self) -> Result<bool, TlsError> {
        let files = Files::read(&self.0.dir)?;
        if self.0.current.read().unwrap_or_else(PoisonError::into_inner).files == files {
            return Ok(false);
        }
        self.set(files)?;
        Ok(true)
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).server.clone()
    }

    /// The configuration that also accepts clients without a certificate, which then need a token.
    pub(crate) fn open_server(&self) -> Arc<ServerConfig> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).open_server.clone()
    }

    /// The CA certificates for the other plane, in PEM.
    #[must_use]
    pub fn authorities(&self) -> Vec<u8> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).files.authorities.clone()
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).client.clone()
    }
}

/// The identity of a data plane that serves one Gateway: a token of its ServiceAccount, which the kubelet renews. Both files are
/// read again for each connection.
#[derive(Clone, Debug)]
pub struct PlaneToken {
    /// The file with the token.
    pub token: PathBuf,
    /// The file with the CA certificates of the control plane, in PEM.
    pub authorities: PathBuf,
}

/// How a data plane authenticates.
#[derive(Clone, Debug)]
pub enum PlaneIdentity {
    /// By a client certificate, as a shared data plane.
    Certificate(PlaneTls),
    /// By a token, as a data plane of one Gateway.
    Token(PlaneToken),
}

impl PlaneIdentity {
    /// The TLS configuration for a connection, and the value of the header `authorization`.
    pub(crate) async fn client(&self) -> Result<(Arc<ClientConfig>, Option<HeaderValue>), TlsError> {
        let files = match self {
            Self::Certificate(tls) => return Ok((tls.client(), None)),
            Self::Token(files) => files.clone(),
        };
        let read = tokio::task::spawn_blocking(move || files.client());
        let (config, token) = read.await.map_err(|_| TlsError::Ends)??;
        Ok((config, Some(token)))
    }
}

impl PlaneToken {
    fn client(&self) -> Result<(Arc<ClientConfig>, HeaderValue), TlsError> {
        let roots = roots(&read_file(&self.authorities)?, &self.authorities)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let unusable = |error: String| TlsError::Unusable { dir: self.authorities.clone(), error };
        let config = client_config(&provider, &roots, None).map_err(unusable)?;
        let token = read_file(&self.token)?;
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", token.trim_ascii()].concat())
            .map_err(|_| TlsError::Token(self.token.clone()))?;
        value.set_sensitive(true);
        Ok((Arc::new(config), value))
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path);
    match file.and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes)) {
        Ok(length) if length as u64 > FILE_MAX => Err(TlsError::TooLong(path.to_owned())),
        Ok(_) => Ok(bytes),
        Err(error) => Err(TlsError::Read { path: path.to_owned(), error }),
    }
}

/// The certificates of a file, at least one.
fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| TlsError::Pem(path.to_owned(), "certificate"))
}

fn roots(pem: &[u8], path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for root in certificates(pem, path)? {
        let unusable =
            |error: rustls::Error| TlsError::Unusable { dir: path.to_owned(), error: error.to_string() };
        roots.add(root).map_err(unusable)?;
    }
    Ok(Arc::new(roots))
}

impl Files {
    fn read(dir: &Path) -> Result<Self, TlsError> {
        let read = |name: &str| read_file(&dir.join(name));
        Ok(Self { chain: read("tls.crt")?, key: read("tls.key")?, authorities: read("ca.crt")? })
    }
}

impl Current {
    fn read(dir: &Path, files: Files) -> Result<Self, TlsError> {
        let chain = certificates(&files.chain, &dir.join("tls.crt"))?;
        let key = PrivateKeyDer::from_pem_slice(&files.key);
        let key = key.map_err(|_| TlsError::Pem(dir.join("tls.key"), "private key"))?;
        let unusable = |error: String| TlsError::Unusable { dir: dir.to_owned(), error };
        let roots = roots(&files.authorities, &dir.join("ca.crt"))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let server = server_config(&provider, &roots, &chain, &key, true).map_err(unusable)?;
        let open_server = server_config(&provider, &roots, &chain, &key, false).map_err(unusable)?;
        let client = client_config(&provider, &roots, Some((chain, key))).map_err(unusable)?;
        let (server, open_server) = (Arc::new(server), Arc::new(open_server));
        Ok(Self { files, server, open_server, client: Arc::new(client) })
    }
}

/// The planes resume no sessions, so that each handshake verifies the peer with the current CA certificates.
fn server_config(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    is_mandatory: bool,
) -> Result<ServerConfig, String> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    let verifier = verifier.build().map_err(|error| error.to_string())?;
    let verifier = ForClients { verifier, is_mandatory };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?;
    let builder = builder.with_client_cert_verifier(Arc::new(verifier));
    let built = builder.with_single_cert(chain.to_vec(), key.clone_key());
    let mut config = built.map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client_config(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    certificate: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?;
    let builder = builder.with_root_certificates(roots.clone());
    let mut config = match certificate {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

/// Requires a certificate with the extended key usage for clients. The library accepts certificates without the
/// extension for any use (RFC 5280, 4.2.1.12), and the same CA may have signed such certificates for servers.
#[derive(Debug)]
struct ForClients {
    verifier: Arc<dyn ClientCertVerifier>,
    /// Whether clients without a certificate are rejected.
    is_mandatory: bool,
}

impl ClientCertVerifier for ForClients {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now)?;
        let usage = X509Certificate::from_der(end_entity).ok().and_then(|(_, certificate)| {
            certificate.extended_key_usage().ok().flatten().map(|usage| usage.value.client_auth)
        });
        match usage {
            Some(true) => Ok(verified),
            _ => Err(rustls::Error::InvalidCertificate(CertificateError::InvalidPurpose)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// The name in a certificate: its first DNS name, else its common name.
pub(crate) fn name_of(certificate: &CertificateDer<'_>) -> String {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return String::new() };
    let names = certificate.subject_alternative_name().ok().flatten();
    let dns = names.and_then(|names| {
        names.value.general_names.iter().find_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
    });
    let common = || {
        let mut common = certificate.subject().iter_common_name();
        common.next().and_then(|name| name.as_str().ok()).map(ToOwned::to_owned)
    };
    dns.or_else(common).unwrap_or_default()
}
