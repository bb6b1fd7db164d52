//! The certificate of the webhook, from two files.
//!
//! The server reads the files again for each connection, so that a new certificate applies without a restart. Invalid files do
//! not replace the last valid certificate, and the log names each error once.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::NoServerSessionStorage;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The longest file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The reason why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
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
    /// The certificate and the key do not match each other, or their kind is not supported.
    #[error("{certificate} and {key} cannot be used: {error}")]
    Unusable {
        /// The file with the certificate.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
        /// The error.
        error: rustls::Error,
    },
}

/// The certificate chain and the key of the webhook.
#[derive(Debug)]
pub struct Certificate {
    files: [PathBuf; 2],
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    content: Content,
    config: Arc<ServerConfig>,
    /// The last reported error, until the files are valid again.
    complaint: Option<String>,
}

/// The content of the files in PEM.
#[derive(PartialEq, Eq)]
struct Content([Vec<u8>; 2]);

/// Omits the key.
impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads the certificate chain and the key.
    ///
    /// # Errors
    /// If a file is missing, or if the certificate and the key do not match each other.
    pub fn read(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, CertificateError> {
        let files = [certificate.into(), key.into()];
        let content = Content::read(&files)?;
        let config = Arc::new(content.config(&files)?);
        Ok(Self { files, current: Mutex::new(Current { content, config, complaint: None }) })
    }

    /// The TLS configuration for a new connection. Reads the files, so the caller must be allowed to block.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let content = Content::read(&self.files);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let renewed = match content {
            Ok(content) if content == current.content => Ok(None),
            Ok(content) => content.config(&self.files).map(|config| Some((content, Arc::new(config)))),
            Err(error) => Err(error),
        };
        match renewed {
            Ok(Some((content, config))) => {
                tracing::info!(certificate = %self.files[0].display(), "the certificate of the webhook changed");
                *current = Current { content, config, complaint: None };
            }
            Ok(None) => current.complaint = None,
            Err(error) => {
                let error = error.to_string();
                if current.complaint.as_ref() != Some(&error) {
                    tracing::warn!("{error}; the last valid certificate of the webhook stays in use");
                }
                current.complaint = Some(error);
            }
        }
        current.config.clone()
    }
}

impl Content {
    fn read(files: &[PathBuf; 2]) -> Result<Self, CertificateError> {
        Ok(Self([read_file(&files[0])?, read_file(&files[1])?]))
    }

    fn config(&self, files: &[PathBuf; 2]) -> Result<ServerConfig, CertificateError> {
        let [certificate, key] = files;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.0[0]).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let chain = chain.ok_or_else(|| CertificateError::Pem(certificate.clone(), "certificate"))?;
        let private = PrivateKeyDer::from_pem_slice(&self.0[1])
            .map_err(|_| CertificateError::Pem(key.clone(), "private key"))?;
        let built = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
        let mut config = built.map_err(|error| CertificateError::Unusable {
            certificate: certificate.clone(),
            key: key.clone(),
            error,
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A session of an old certificate would outlive the certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let mut bytes = Vec::new();
    let file = File::open(path);
    match file.and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut bytes)) {
        Ok(length) if length as u64 > FILE_MAX => Err(CertificateError::TooLong(path.to_owned())),
        Ok(_) => Ok(bytes),
        Err(error) => Err(CertificateError::Read { path: path.to_owned(), error }),
    }
}
