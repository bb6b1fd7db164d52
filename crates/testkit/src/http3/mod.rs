//! Clients of HTTP/3: a client by the crates quinn and h3, and bare QUIC connections for messages that no client sends.

pub(crate) mod adapter;
mod load;

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Buf as _, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3_quinn::{BidiStream, OpenStreams};
use http::{HeaderMap, Request, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, TransportConfig};
use tokio::task::JoinHandle;

use crate::tls::ClientOptions;
pub use load::Http3Load;

/// A response with its whole body.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Option<HeaderMap>,
}

impl Response {
    /// The value of a header, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A client of HTTP/3 with one connection.
pub struct Http3Client {
    /// The socket of the client.
    pub endpoint: Endpoint,
    /// The QUIC connection.
    pub connection: Connection,
    requests: SendRequest<OpenStreams, Bytes>,
    driver: JoinHandle<h3::error::ConnectionError>,
}

/// The configuration of a QUIC client.
///
/// # Errors
/// If the TLS configuration does not fit QUIC.
pub fn config(options: &ClientOptions) -> anyhow::Result<ClientConfig> {
    let mut tls = rustls::ClientConfig::clone(&options.config());
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.enable_early_data = true;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_secs(1)));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// A new socket for QUIC clients.
///
/// # Errors
/// If no port is free.
pub fn endpoint() -> anyhow::Result<Endpoint> {
    Ok(Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?)
}

/// A bare QUIC connection for the protocol of HTTP/3.
///
/// # Errors
/// If the handshake fails.
pub async fn connect(
    endpoint: &Endpoint,
    gateway: SocketAddr,
    options: &ClientOptions,
    name: &str,
) -> anyhow::Result<Connection> {
    Ok(endpoint.connect_with(config(options)?, gateway, name)?.await?)
}

impl Http3Client {
    /// A new connection.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn connect(gateway: SocketAddr, options: &ClientOptions, name: &str) -> anyhow::Result<Self> {
        let endpoint = endpoint()?;
        let connection = connect(&endpoint, gateway, options, name).await?;
        Self::of(endpoint, connection).await
    }

    /// A client of an open connection.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn of(endpoint: Endpoint, connection: Connection) -> anyhow::Result<Self> {
        let quic = h3_quinn::Connection::new(connection.clone());
        let (mut driver, requests) = h3::client::new(quic).await?;
        let driver = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        Ok(Self { endpoint, connection, requests, driver })
    }

    /// Sends a request with this body, and receives the response.
    ///
    /// # Errors
    /// If the connection or the stream is lost.
    pub async fn request(&self, request: Request<()>, body: &[u8]) -> anyhow::Result<Response> {
        let mut stream = self.open(request).await?;
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body)).await?;
        }
        stream.finish().await?;
        receive(&mut stream).await
    }

    /// Sends a GET, and receives the response.
    ///
    /// # Errors
    /// If the connection or the stream is lost.
    pub async fn get(&self, uri: &str) -> anyhow::Result<Response> {
        self.request(Request::get(uri).body(())?, b"").await
    }

    /// Sends the head of a request.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn open(
        &self,
        request: Request<()>,
    ) -> anyhow::Result<RequestStream<BidiStream<Bytes>, Bytes>> {
        Ok(self.requests.clone().send_request(request).await?)
    }

    /// The reason why the connection ended, once it has ended.
    ///
    /// # Errors
    /// If the driver panicked.
    pub async fn ended(self) -> anyhow::Result<h3::error::ConnectionError> {
        self.driver.await.context("the driver")
    }
}

/// Receives a response.
///
/// # Errors
/// If the connection or the stream is lost.
pub async fn receive(stream: &mut RequestStream<BidiStream<Bytes>, Bytes>) -> anyhow::Result<Response> {
    let (head, ()) = stream.recv_response().await?.into_parts();
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        while data.has_remaining() {
            let chunk = data.chunk();
            body.extend_from_slice(chunk);
            let length = chunk.len();
            data.advance(length);
        }
    }
    let trailers = stream.recv_trailers().await?;
    Ok(Response { status: head.status, headers: head.headers, body, trailers })
}
