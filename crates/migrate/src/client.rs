//! One request to one controller.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use sluicegate_any_certificate::AnyCertificate;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::source::Request;

/// The longest body in bytes whose rest is read. The hash of a longer body is the hash of its begin.
const BODY_MAX: u64 = 16 * 1024 * 1024;

/// A controller.
#[derive(Clone, Debug)]
pub struct Controller {
    /// The name in the report.
    pub name: String,
    address: SocketAddr,
    tls: Option<Arc<ClientConfig>>,
}

/// The reason why a controller cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The text is not the URL of a controller.
    #[error("{0:?} is not the URL of a controller: write http://HOST:PORT or https://HOST:PORT")]
    Url(String),
    /// The name has no address.
    #[error("cannot resolve {0}: {1}")]
    Resolve(String, std::io::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// A response, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The SHA-256 of the body.
    pub body: [u8; 32],
    /// The length of the body in bytes.
    pub length: u64,
}

impl Controller {
    /// The controller at a URL such as `https://10.0.0.7:443`. The comparison does not verify certificates, because the DNS names of
    /// the hosts may not lead to this address yet.
    ///
    /// # Errors
    ///
    /// The URL is not valid, or its name has no address.
    pub async fn at(url: &str) -> Result<Self, ControllerError> {
        let fault = || ControllerError::Url(url.to_owned());
        let (is_tls, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(fault()),
        };
        let authority = rest.trim_end_matches('/');
        if authority.is_empty() || authority.contains(['/', '?', '@']) {
            return Err(fault());
        }
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let with_port = match has_port {
            true => authority.to_owned(),
            false => format!("{authority}:{}", if is_tls { 443 } else { 80 }),
        };
        let resolved = lookup_host(&with_port).await;
        let mut addresses = resolved.map_err(|error| ControllerError::Resolve(with_port.clone(), error))?;
        let address = addresses.next().ok_or_else(fault)?;
        let tls = is_tls.then(client_config).transpose()?;
        Ok(Self { name: url.to_owned(), address, tls })
    }

    /// Sends a request on a connection of its own, and reads the response within a timeout. The error is the reason why there is no
    /// response.
    pub async fn ask(&self, request: &Request, timeout: Duration) -> Result<Response, String> {
        match tokio::time::timeout(timeout, self.exchange(request)).await {
            Ok(response) => response,
            Err(_) => Err(format!("no response within {timeout:?}")),
        }
    }

    async fn exchange(&self, request: &Request) -> Result<Response, String> {
        let in_words = |error: std::io::Error| format!("cannot connect: {error}");
        let stream = TcpStream::connect(self.address).await.map_err(in_words)?;
        let Some(tls) = &self.tls else { return over(stream, request).await };
        let name = ServerName::try_from(request.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(tls.clone()).connect(name, stream).await.map_err(in_words)?;
        over(stream, request).await
    }
}

fn client_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

async fn over<S>(stream: S, request: &Request) -> Result<Response, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let http = HttpRequest::builder()
        .method(&*request.method)
        .uri(&*request.target)
        .header(HOST, &*request.host)
        .header(USER_AGENT, concat!("sluicegate-migrate/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let exchange = async {
        let response = sender.send_request(http).await.map_err(|error| error.to_string())?;
        let (head, mut body) = response.into_parts();
        let (mut hash, mut length) = (Context::new(&SHA256), 0_u64);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| format!("the body is incomplete: {error}"))?;
            let Some(data) = frame.data_ref() else { continue };
            hash.update(data);
            length += data.len() as u64;
            if length > BODY_MAX {
                break;
            }
        }
        let mut body = [0; 32];
        body.copy_from_slice(hash.finish().as_ref());
        Ok(Response { status: head.status, headers: head.headers, body, length })
    };
    tokio::select! {
        response = exchange => response,
        ended = connection => Err(match ended {
            Ok(()) => "the connection was closed before the response".to_owned(),
            Err(error) => error.to_string(),
        }),
    }
}
