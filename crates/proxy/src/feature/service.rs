//! Servers that policies call: issuers of tokens, for their keys, and authorization services.

use std::sync::Arc;

use http::Uri;
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName};

use crate::tls;

/// A server, given by its URL.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) host: Box<str>,
    pub(super) port: u16,
    /// The value of `Host`.
    pub(super) authority: Box<str>,
    /// The path and the query.
    pub(super) target: Box<str>,
    /// For `https`: the TLS configuration and the name to verify.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// Why a server cannot be called.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceError {
    #[error("the URL must have http or https, a host, and no password")]
    Url,
    #[error("cannot use the CA certificates for its certificate: {0}")]
    Authorities(#[from] rustls::Error),
}

impl Service {
    /// The server of a URL. The gateway trusts these CA certificates; if there are none, the certificates that browsers
    /// trust.
    pub(super) fn new(url: &str, authorities: &[CertificateDer<'static>]) -> Result<Self, ServiceError> {
        let url: Uri = url.parse().map_err(|_| ServiceError::Url)?;
        let authority = url.authority().ok_or(ServiceError::Url)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(ServiceError::Url);
        }
        let (tls, default_port) = match url.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                let name = ServerName::try_from(host.to_owned()).map_err(|_| ServiceError::Url)?;
                (Some((Arc::new(tls::verifying(authorities)?), name)), 443)
            }
            _ => return Err(ServiceError::Url),
        };
        Ok(Self {
            host: host.into(),
            port: authority.port_u16().unwrap_or(default_port),
            authority: authority.as_str().into(),
            target: url.path_and_query().map_or("/", |target| target.as_str()).into(),
            tls,
        })
    }
}
