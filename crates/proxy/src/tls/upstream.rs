//! TLS with endpoints.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::net::TcpStream;
use rustls::Error;
use rustls::client::ClientConfig;
use rustls::sign::SingleCertAndKey;
use rustls_pki_types::{CertificateDer, ServerName};
use sluicegate_any_certificate::AnyCertificate;
use sluicegate_model::{Protocol, UpstreamTls};

use super::{certified_key, provider, provider_with, root_store, verifier, well_known};
use crate::stream::TlsStream;

/// The TLS settings for endpoints of an upstream, compiled once for all workers.
pub(crate) struct Connector {
    /// The source of the settings.
    pub(crate) model: Arc<UpstreamTls>,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    http2: bool,
}

impl Connector {
    pub(crate) fn new(
        model: &Arc<UpstreamTls>,
        protocol: Protocol,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let name = ServerName::try_from(&*model.server_name)?.to_owned();
        let builder = ClientConfig::builder_with_provider(provider_with(model.ciphers))
            .with_safe_default_protocol_versions()?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier::of(model)?);
        let mut config = match &model.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = SingleCertAndKey::from(certified_key(identity)?);
                builder.with_client_cert_resolver(Arc::new(key))
            }
        };
        config.enable_sni = model.sends_name;
        config.alpn_protocols = match protocol {
            Protocol::Http => vec![b"http/1.1".to_vec()],
            Protocol::Http2 => vec![b"h2".to_vec()],
            // The gateway does not know the protocol inside.
            Protocol::Tcp | Protocol::Udp => Vec::new(),
        };
        let http2 = protocol == Protocol::Http2;
        Ok(Self { model: model.clone(), config: Arc::new(config), name, http2 })
    }

    /// Performs the handshake on a connection to an endpoint.
    pub(crate) async fn connect(&self, tcp: TcpStream) -> io::Result<Box<TlsStream>> {
        let stream = handshake(tcp, self.config.clone(), self.name.clone()).await?;
        if self.http2 && stream.protocol() != Some(b"h2") {
            return Err(io::Error::other("the endpoint does not offer h2 by ALPN"));
        }
        Ok(stream)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("model", &self.model).finish_non_exhaustive()
    }
}

/// Performs the handshake with the server of this name.
pub(crate) async fn handshake(
    tcp: TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> io::Result<Box<TlsStream>> {
    let stream = TlsStream::client(tcp, config, name);
    let mut stream = Box::new(stream.map_err(io::Error::other)?);
    std::future::poll_fn(|cx| stream.poll_handshake(cx)).await?;
    Ok(stream)
}

/// The TLS settings for a server with any certificate.
pub(crate) fn unverified() -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let verifier = Arc::new(AnyCertificate(provider()));
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// The TLS settings for a server with a certificate from one of these CA certificates; if there are none, from the CAs
/// that browsers trust.
pub(crate) fn verifying(authorities: &[CertificateDer<'static>]) -> Result<ClientConfig, Error> {
    let roots = match authorities {
        [] => well_known(),
        _ => root_store(authorities)?,
    };
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
