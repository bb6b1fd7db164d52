//! A connection, in clear text or over TLS.
//!
//! | module | purpose |
//! |---|---|
//! | [`tls`] | a TLS connection, over rustls' core without I/O |
//! | [`http2`] | connections to endpoints that many requests share |
//! | [`batch`] | gathers the bytes of an HTTP/2 connection into few writes |

mod batch;
mod http2;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::net::TcpStream;
use sluicegate_http1::{HeadLimits, HeadScan, Method, ResponseHead};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{sleep, timeout};

use crate::buffer::BUFFER;
pub(crate) use batch::{Batch, Sender};
pub(crate) use http2::{Http2Call, Http2Connections, NoWebSocket, Refused, header_fields};
pub(crate) use tls::{RECORD_HEADER, TlsStream, record_length};

/// A connection to a client or an endpoint.
///
/// A write accepts bytes once they have been passed to the kernel. After `Pending`, the caller must retry with the same
/// bytes.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
    /// A request on a shared connection.
    Http2(Box<Http2Call>),
}

impl Stream {
    /// The connection below, unless it is shared.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Tls(tls) => Some(tls.tcp()),
            Self::Http2(_) => None,
        }
    }

    /// Reads the head of the final response, and the bytes behind it.
    pub(crate) async fn read_response_head(
        &mut self,
        method: Method,
        limits: &HeadLimits,
    ) -> io::Result<(ResponseHead, Vec<u8>)> {
        let (head, mut bytes) = self.read_response(method, limits).await?;
        bytes.drain(..head.len);
        Ok((head, bytes))
    }

    /// Reads the head of the final response. Returns its bytes, and the bytes behind it.
    pub(crate) async fn read_response(
        &mut self,
        method: Method,
        limits: &HeadLimits,
    ) -> io::Result<(ResponseHead, Vec<u8>)> {
        let (mut bytes, mut head, mut scan) = (Vec::new(), ResponseHead::default(), HeadScan::default());
        let mut interim = 0;
        loop {
            if self.read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            while !bytes.is_empty()
                && head.parse(&bytes, &mut scan, method, limits).map_err(io::Error::other)?
            {
                if head.status >= 200 {
                    return Ok((head, bytes));
                }
                bytes.drain(..head.len);
                interim += head.len;
                scan = HeadScan::default();
            }
            if interim + bytes.len() > limits.bytes {
                return Err(io::Error::other("the head is too long"));
            }
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp().ok_or(io::ErrorKind::Unsupported)?.local_addr()
    }

    /// Whether the stream is a request on a shared connection.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// For a shared connection: whether the peer's kernel has acknowledged no bytes for `time`.
    pub(crate) fn is_unacknowledged_for(&self, time: Duration) -> bool {
        match self {
            Self::Http2(call) => call.with_stream(|stream| stream.is_unacknowledged_for(time)),
            stream => stream
                .tcp()
                .and_then(|tcp| crate::net::unacknowledged_for(tcp).ok().flatten())
                .is_some_and(|silent| silent >= time),
        }
    }

    /// Ready once bytes may be readable, or the connection is over.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp) => tcp.poll_read_ready(cx),
            Self::Tls(tls) => tls.poll_readable(cx),
            Self::Http2(_) => Poll::Ready(Ok(())),
        }
    }

    /// Whether nothing can be read. If so, the waker wakes when that changes.
    pub(crate) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            Self::Plain(tcp) => tcp.poll_read_ready(cx).is_pending(),
            Self::Tls(tls) => tls.is_quiet(cx),
            Self::Http2(_) => false,
        }
    }

    /// Whether a write is incomplete, so that no other response can replace it.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Http2(_) => false,
            Self::Tls(tls) => tls.has_unsent(),
        }
    }

    /// Whether a TLS alert explained to the peer why the connection ends.
    pub(crate) fn has_alerted(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.has_alerted())
    }

    /// Makes the peer see a broken connection instead of a proper end when the stream closes.
    pub(crate) fn break_off(&mut self) {
        if let Some(tcp) = self.tcp() {
            // This fails only on a socket that is already broken.
            let _ = tcp.set_zero_linger();
        }
        if let Self::Tls(tls) = self {
            tls.break_off();
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buf),
            Self::Http2(call) => call.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, data),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, data),
            Self::Http2(call) => call.poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
            Self::Http2(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
            Self::Http2(call) => Poll::Ready(call.end()),
        }
    }
}

/// How long the gateway continues to read after it ended a connection: in total, and between two reads (nginx
/// `lingering_time`, `lingering_timeout`). So the client receives the last bytes rather than a reset (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(30);
const LINGER_STILL: Duration = Duration::from_secs(5);
/// The total time after a TLS alert, which responds to no request.
const LINGER_ALERT: Duration = Duration::from_secs(1);
/// The pauses between two checks of the peer's acknowledgements: the first pause, and the longest.
const LOOK: Duration = Duration::from_millis(1);
const LOOK_MOST: Duration = Duration::from_millis(100);

/// Ends the connection so that the client can read the last bytes although it may still be sending.
pub(crate) async fn linger(stream: Stream) {
    let _ = timeout(LINGER, end(stream)).await;
}

/// Ends the connection so that the client can read the alert.
pub(crate) async fn part(stream: Stream) {
    let _ = timeout(LINGER_ALERT, end(stream)).await;
}

async fn end(mut stream: Stream) {
    if stream.shutdown().await.is_ok()
        && let Some(tcp) = stream.tcp()
    {
        discard(tcp).await;
    }
}

/// Reads and discards bytes that a peer still sends after the gateway's end of stream, until the peer closes too.
pub(crate) async fn discard(tcp: &TcpStream) {
    let until_closed = async {
        // TLS records are not opened.
        let mut sink = vec![0; BUFFER];
        while let Ok(Ok(())) = timeout(LINGER_STILL, tcp.readable()).await {
            match tcp.try_read(&mut sink) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return,
            }
        }
    };
    let _ = timeout(LINGER, until_closed).await;
}

/// Waits until the peer's kernel has acknowledged all sent bytes. Until then a reset, or a close with unread data,
/// discards them.
pub(crate) async fn delivered(tcp: &TcpStream) {
    let until_acknowledged = async {
        let (mut pause, mut left, mut still) = (LOOK, usize::MAX, Duration::ZERO);
        while still < LINGER_STILL
            && let Ok(unacknowledged @ 1..) = crate::net::unacknowledged_bytes(tcp)
        {
            still = if unacknowledged < left { Duration::ZERO } else { still + pause };
            left = unacknowledged;
            sleep(pause).await;
            pause = LOOK_MOST.min(2 * pause);
        }
    };
    let _ = timeout(LINGER, until_acknowledged).await;
}
