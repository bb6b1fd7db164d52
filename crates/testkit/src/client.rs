//! A client that sends exactly the given bytes, and parses the response.
//!
//! Every wait has a limit (10 s by default), so that a broken gateway fails a test instead of blocking the test.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::stream::{Stream, Transport};
use crate::tls::ClientOptions;
use crate::wire::{self, BodyDecoder, Framing};

/// The default limit of one wait.
pub const LIMIT: Duration = Duration::from_secs(10);

/// The reason why no response is available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer closed or reset the connection before the response was complete.
    #[error("the connection closed after {received} bytes of the response")]
    Closed {
        /// The received bytes of this response.
        received: usize,
    },
    /// No byte arrived within the limit.
    #[error("nothing came for {0:?}")]
    Timeout(Duration),
    /// The received bytes are not HTTP.
    #[error("not a valid response: {0}")]
    Malformed(String),
    /// Bytes arrived in place of the end of the stream.
    #[error("expected the end of the stream, got {0:?}")]
    NotEnded(String),
    /// Any other failure of the socket.
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed { received: 0 },
            _ => Self::Io(error),
        }
    }
}

/// A complete response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// 0 for HTTP/1.0, 1 for HTTP/1.1.
    pub minor_version: u8,
    /// The header fields, in the order of the wire.
    pub headers: Vec<(String, String)>,
    /// The body without its transfer coding.
    pub body: Vec<u8>,
    /// The trailer fields of a chunked body.
    pub trailers: Vec<(String, String)>,
    /// The statuses of the interim (1xx) responses before this response.
    pub interim: Vec<u16>,
    /// The head on the wire.
    pub head: Vec<u8>,
}

impl Response {
    /// The first value of this header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        wire::find(&self.headers, name)
    }

    /// Every value of this header field.
    pub fn headers_named(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(have, _)| have.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    buffer: BytesMut,
    limit: Duration,
}

impl Client {
    /// Connects, with `TCP_NODELAY`.
    pub async fn connect(addr: SocketAddr) -> Result<Self, Error> {
        Self::connect_by(addr, Transport::Http).await
    }

    /// Connects with this transport.
    pub async fn connect_by(addr: SocketAddr, transport: Transport) -> Result<Self, Error> {
        let stream = timeout(LIMIT, Stream::connect(addr, transport)).await;
        Ok(Self::of(stream.map_err(|_| Error::Timeout(LIMIT))??))
    }

    /// Connects with HTTP/2 in clear text. An adapter sends the requests, which are in HTTP/1.1.
    pub async fn connect_http2(addr: SocketAddr) -> Result<Self, Error> {
        let stream = timeout(LIMIT, Stream::http2(addr)).await;
        Ok(Self::of(stream.map_err(|_| Error::Timeout(LIMIT))??))
    }

    /// Connects over TLS, with the server name `name`.
    pub async fn connect_tls(addr: SocketAddr, options: &ClientOptions, name: &str) -> Result<Self, Error> {
        Self::over_tls(TcpStream::connect(addr).await?, options, name).await
    }

    /// A client over TLS on an existing connection, with the server name `name`.
    pub async fn over_tls(tcp: TcpStream, options: &ClientOptions, name: &str) -> Result<Self, Error> {
        tcp.set_nodelay(true)?;
        let secured = timeout(LIMIT, Stream::tls(tcp, options, name)).await;
        Ok(Self::of(secured.map_err(|_| Error::Timeout(LIMIT))??))
    }

    /// A client on an existing connection.
    pub fn over(stream: TcpStream) -> Result<Self, Error> {
        stream.set_nodelay(true)?;
        Ok(Self::of(Stream::Plain(stream)))
    }

    fn of(stream: Stream) -> Self {
        Self { stream, buffer: BytesMut::new(), limit: LIMIT }
    }

    /// The TLS session, if the connection uses TLS.
    pub fn tls(&self) -> Option<&rustls::ClientConnection> {
        match &self.stream {
            Stream::Plain(_) | Stream::Adapted(..) => None,
            Stream::Tls(tls) => Some(tls.get_ref().1),
        }
    }

    /// The same client with another limit of each wait.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The client's end of the connection.
    pub fn local_addr(&self) -> Result<SocketAddr, Error> {
        Ok(self.stream.local_addr()?)
    }

    /// Sends these bytes unchanged.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Error> {
        let write = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        Ok(timeout(self.limit, write).await.map_err(|_| Error::Timeout(self.limit))??)
    }

    /// Sends these bytes in pieces of `size`, with a pause after each.
    pub async fn send_slowly(
        &mut self,
        bytes: impl AsRef<[u8]>,
        size: usize,
        pause: Duration,
    ) -> Result<(), Error> {
        for piece in bytes.as_ref().chunks(size) {
            self.send(piece).await?;
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Sends a request and reads its response. The client parses the method from the bytes, because the response to
    /// HEAD has no body.
    pub async fn request(&mut self, bytes: impl AsRef<[u8]>) -> Result<Response, Error> {
        let bytes = bytes.as_ref();
        self.send(bytes).await?;
        self.read(bytes.starts_with(b"HEAD ")).await
    }

    /// Reads one response to a request with any method except HEAD. Skips interim responses, except 101, after which
    /// the connection is a tunnel.
    pub async fn read_response(&mut self) -> Result<Response, Error> {
        self.read(false).await
    }

    /// Reads one response to a HEAD request.
    pub async fn read_response_to_head(&mut self) -> Result<Response, Error> {
        self.read(true).await
    }

    /// Reads one interim (1xx) response and returns its status.
    pub async fn read_interim(&mut self) -> Result<u16, Error> {
        let (response, _) = self.read_head(false).await?;
        match response.status {
            100..200 => Ok(response.status),
            status => Err(Error::Malformed(format!("{status} where a 1xx was expected"))),
        }
    }

    /// Reads exactly this many bytes.
    pub async fn read_exact(&mut self, count: usize) -> Result<Vec<u8>, Error> {
        while self.buffer.len() < count {
            if self.read_more().await? == 0 {
                return Err(Error::Closed { received: self.buffer.len() });
            }
        }
        Ok(self.buffer.split_to(count).to_vec())
    }

    /// Reads up to and including these bytes.
    pub async fn read_until(&mut self, end: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        let end = end.as_ref();
        loop {
            if let Some(found) = memchr::memmem::find(&self.buffer, end) {
                return Ok(self.buffer.split_to(found + end.len()).to_vec());
            }
            if self.read_more().await? == 0 {
                return Err(Error::Closed { received: self.buffer.len() });
            }
        }
    }

    /// Reads until the peer closes. A reset is an end too.
    pub async fn read_to_end(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            match self.read_more().await {
                Ok(0) | Err(Error::Closed { .. }) => return Ok(self.buffer.split().to_vec()),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the peer closes (or resets) the connection without another byte.
    pub async fn expect_end(&mut self) -> Result<(), Error> {
        match self.read_to_end().await? {
            rest if rest.is_empty() => Ok(()),
            rest => Err(Error::NotEnded(String::from_utf8_lossy(&rest).into_owned())),
        }
    }

    /// Closes the sending direction. The client can still read.
    pub async fn half_close(&mut self) -> Result<(), Error> {
        Ok(self.stream.shutdown().await?)
    }

    /// Ends the connection with a reset.
    pub fn reset(self) -> Result<(), Error> {
        // Through the adapter, the end of the connection resets the stream.
        self.stream.tcp().map_or(Ok(()), TcpStream::set_zero_linger).map_err(Error::from)
    }

    async fn read(&mut self, to_head: bool) -> Result<Response, Error> {
        let mut interim = Vec::new();
        let (mut response, framing) = loop {
            let (response, framing) = self.read_head(to_head).await?;
            match response.status {
                100 | 102..200 => interim.push(response.status),
                _ => break (response, framing),
            }
        };
        response.interim = interim;
        let mut decoder = BodyDecoder::new(framing);
        loop {
            decoder.decode(&mut self.buffer, &mut response.body, None).map_err(Error::Malformed)?;
            if decoder.is_done() {
                break;
            }
            let received = response.head.len() + response.body.len();
            match self.read_more().await {
                Ok(0) if decoder.ends_by_close() => break,
                Ok(0) | Err(Error::Closed { .. }) => return Err(Error::Closed { received }),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        response.trailers = decoder.trailers;
        Ok(response)
    }

    async fn read_head(&mut self, to_head: bool) -> Result<(Response, Framing), Error> {
        loop {
            if let Some(found) = take_head(&mut self.buffer, to_head).map_err(Error::Malformed)? {
                return Ok(found);
            }
            let received = self.buffer.len();
            match self.read_more().await {
                Ok(0) | Err(Error::Closed { .. }) => return Err(Error::Closed { received }),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn read_more(&mut self) -> Result<usize, Error> {
        let read = wire::read_more(&mut self.stream, &mut self.buffer);
        Ok(timeout(self.limit, read).await.map_err(|_| Error::Timeout(self.limit))??)
    }
}

/// Sends one GET on a new connection. `host` is the Host field.
pub async fn get(addr: SocketAddr, host: &str, path: &str) -> Result<Response, Error> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    Client::connect(addr).await?.request(request).await
}

fn take_head(buffer: &mut BytesMut, to_head: bool) -> Result<Option<(Response, Framing)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; wire::MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let length = match parsed.parse(buffer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("{error}: {:?}", String::from_utf8_lossy(buffer))),
    };
    let status = parsed.code.unwrap_or_default();
    let framing = Framing::of_response(status, to_head, parsed.headers)?;
    let mut response = Response {
        status,
        reason: parsed.reason.unwrap_or_default().to_owned(),
        minor_version: parsed.version.unwrap_or_default(),
        headers: wire::owned(parsed.headers),
        ..Response::default()
    };
    response.head = buffer.split_to(length).to_vec();
    Ok(Some((response, framing)))
}
