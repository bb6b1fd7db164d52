//! A server with a URL.

use std::sync::Arc;

use http::Uri;
use rustls::{ClientConfig, Error};
use rustls_pki_types::{CertificateDer, ServerName};

use crate::tls;

/// A server, given by its URL.
#[derive(Clone, Debug)]
pub struct Server {
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    /// The value of `Host`.
    pub(crate) authority: Box<str>,
    /// The path and the query.
    pub(crate) target: Box<str>,
    /// For `https`: the TLS configuration and the name to verify.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// The fault in the URL or in the CA certificates of a server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The URL has another scheme, no host, a user, or an invalid character.
    #[error("the URL must have http or https, a host, and no password")]
    Url,
    /// No certificate can have the host.
    #[error("the host of the URL is not a name or an address that a certificate can have")]
    Name,
    /// The CA certificates are in a Secret that cannot be used.
    #[error("the CA certificates for the server's certificate are missing")]
    NoAuthorities,
    /// A CA certificate is invalid.
    #[error("cannot use the CA certificates for the server's certificate: {0}")]
    Authorities(#[from] Error),
}

impl Server {
    /// The server of a URL. The client trusts `authorities`; if they are empty, the CA certificates that browsers trust.
    ///
    /// # Errors
    /// If the URL or a CA certificate is invalid.
    pub fn new(url: &str, authorities: &[CertificateDer<'static>]) -> Result<Self, ServerError> {
        Self::with(url, || tls::verifying(authorities))
    }

    /// The server of a URL, with any certificate.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub(crate) fn unverified(url: &str) -> Result<Self, ServerError> {
        Self::with(url, tls::unverified)
    }

    /// The host, with brackets around an IPv6 address.
    pub(crate) fn host_without_port(&self) -> &str {
        let authority = &*self.authority;
        match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        }
    }

    fn with(url: &str, config: impl FnOnce() -> Result<ClientConfig, Error>) -> Result<Self, ServerError> {
        let url: Uri = url.parse().map_err(|_| ServerError::Url)?;
        let authority = url.authority().ok_or(ServerError::Url)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || authority.as_str().contains('@') {
            return Err(ServerError::Url);
        }
        let (tls, default_port) = match url.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => {
                let name = ServerName::try_from(host.to_owned()).map_err(|_| ServerError::Name)?;
                (Some((Arc::new(config()?), name)), 443)
            }
            _ => return Err(ServerError::Url),
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
