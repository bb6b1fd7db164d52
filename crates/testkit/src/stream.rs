//! A client's connection, in clear text or over TLS. The TLS stream uses another library than the gateway.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::http2;
use crate::http3;
use crate::tls::{Authority, ClientOptions};

/// The transport between the test's clients and the gateway. `SLUICEGATE_TEST_TRANSPORT` (`http`, `https`, `http2`, `http3`)
/// sets the transport of all connections of `Gateway::connect` and `Gateway::load`, so that every test can run over
/// each transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP/1.1 in clear text.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2 over TLS. Clients of HTTP/1.1 use an adapter.
    Http2,
    /// HTTP/3. Clients of HTTP/1.1 use an adapter.
    Http3,
}

impl Transport {
    /// The scheme of URIs.
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https | Self::Http2 | Self::Http3 => "https",
        }
    }

    /// Whether each request has a stream.
    #[must_use]
    pub fn has_streams(self) -> bool {
        matches!(self, Self::Http2 | Self::Http3)
    }

    /// The transport from the environment. Default: HTTP.
    ///
    /// # Panics
    /// If the environment names an unknown transport.
    #[must_use]
    pub fn of_environment() -> Self {
        match std::env::var("SLUICEGATE_TEST_TRANSPORT").as_deref() {
            Err(_) | Ok("http") => Self::Http,
            Ok("https") => Self::Https,
            Ok("http2") => Self::Http2,
            Ok("http3") => Self::Http3,
            Ok(other) => panic!("SLUICEGATE_TEST_TRANSPORT={other}: write http, https, http2 or http3"),
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// Through an adapter to HTTP/2 or HTTP/3, with this local address.
    Adapted(DuplexStream, SocketAddr),
}

impl Stream {
    /// Connects with `TCP_NODELAY`. Clients over TLS trust the process' own [`Authority`].
    pub(crate) async fn connect(addr: SocketAddr, transport: Transport) -> io::Result<Self> {
        if transport == Transport::Http3 {
            let (pipe, local) = http3::adapter::adapt(addr).await?;
            return Ok(Self::Adapted(pipe, local));
        }
        let tcp = TcpStream::connect(addr).await?;
        tcp.set_nodelay(true)?;
        match transport {
            Transport::Http => Ok(Self::Plain(tcp)),
            Transport::Https => Self::tls(tcp, &Authority::of_process().client(), "localhost").await,
            Transport::Http2 | Transport::Http3 => {
                let local = tcp.local_addr()?;
                let options = Authority::of_process().client().protocols(&["h2"]);
                let secured = Self::tls(tcp, &options, "localhost").await?;
                Ok(Self::Adapted(http2::adapt(secured).await?, local))
            }
        }
    }

    /// Connects with HTTP/2 in clear text by prior knowledge (RFC 9113, 3.3).
    pub(crate) async fn http2(addr: SocketAddr) -> io::Result<Self> {
        let tcp = TcpStream::connect(addr).await?;
        tcp.set_nodelay(true)?;
        let local = tcp.local_addr()?;
        Ok(Self::Adapted(http2::adapt(tcp).await?, local))
    }

    /// TLS over an existing connection, with this server name.
    pub(crate) async fn tls(tcp: TcpStream, options: &ClientOptions, name: &str) -> io::Result<Self> {
        let connector = TlsConnector::from(options.config());
        let name = name.to_owned().try_into().map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(connector.connect(name, tcp).await?)))
    }

    /// The TCP connection, unless the stream uses an adapter.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Tls(tls) => Some(tls.get_ref().0),
            Self::Adapted(..) => None,
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Adapted(_, local) => Ok(*local),
            Self::Plain(tcp) => tcp.local_addr(),
            Self::Tls(tls) => tls.get_ref().0.local_addr(),
        }
    }

    /// Whether the peer has sent nothing, neither data nor the end, except TLS messages.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(self).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_pending()
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
            Self::Adapted(pipe, _) => Pin::new(pipe).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, data),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, data),
            Self::Adapted(pipe, _) => Pin::new(pipe).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Self::Adapted(pipe, _) => Pin::new(pipe).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Self::Adapted(pipe, _) => Pin::new(pipe).poll_shutdown(cx),
        }
    }
}
