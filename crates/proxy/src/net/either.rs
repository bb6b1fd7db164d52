//! Sockets of the kernel or of the simulated network, with the interface of the kernel's sockets.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UdpSocket;

use super::{kernel, simulated};

#[derive(Debug)]
pub(crate) enum TcpStream {
    Kernel(kernel::TcpStream),
    Simulated(simulated::Stream),
}

/// A connection outside of any runtime.
#[derive(Debug)]
pub(crate) enum DetachedTcpStream {
    Kernel(std::net::TcpStream),
    Simulated(simulated::Stream),
}

#[derive(Debug)]
pub(crate) enum TcpListener {
    Kernel(kernel::TcpListener),
    Simulated(simulated::Listener),
}

#[derive(Debug)]
pub(crate) enum ListeningSocket {
    Kernel(kernel::ListeningSocket),
    Simulated(simulated::Listener),
}

impl ListeningSocket {
    pub(crate) fn new(socket: Socket) -> Self {
        Self::Kernel(kernel::ListeningSocket::new(socket))
    }

    pub(crate) fn listen(self) -> io::Result<TcpListener> {
        match self {
            Self::Kernel(socket) => socket.listen().map(TcpListener::Kernel),
            Self::Simulated(listener) => Ok(TcpListener::Simulated(listener)),
        }
    }

    pub(crate) fn detach(self) -> io::Result<std::net::UdpSocket> {
        match self {
            Self::Kernel(socket) => socket.detach(),
            Self::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(crate) fn receive(self) -> io::Result<UdpSocket> {
        match self {
            Self::Kernel(socket) => socket.receive(),
            Self::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl TcpListener {
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Kernel(socket) => {
                let (stream, peer) = socket.accept().await?;
                Ok((TcpStream::Kernel(stream), peer))
            }
            Self::Simulated(listener) => {
                let (stream, peer) = listener.accept().await;
                Ok((TcpStream::Simulated(stream), peer))
            }
        }
    }
}

impl From<kernel::TcpStream> for TcpStream {
    fn from(stream: kernel::TcpStream) -> Self {
        Self::Kernel(stream)
    }
}

impl TcpStream {
    pub(crate) fn into_std(self) -> io::Result<DetachedTcpStream> {
        Ok(match self {
            Self::Kernel(stream) => DetachedTcpStream::Kernel(stream.into_std()?),
            Self::Simulated(stream) => DetachedTcpStream::Simulated(stream),
        })
    }

    pub(crate) fn from_std(stream: DetachedTcpStream) -> io::Result<Self> {
        Ok(match stream {
            DetachedTcpStream::Kernel(stream) => Self::Kernel(kernel::TcpStream::from_std(stream)?),
            DetachedTcpStream::Simulated(stream) => Self::Simulated(stream),
        })
    }

    pub(crate) fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.set_nodelay(nodelay),
            Self::Simulated(_) => Ok(()),
        }
    }

    pub(crate) fn set_zero_linger(&self) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.set_zero_linger(),
            Self::Simulated(stream) => {
                stream.reset_on_close();
                Ok(())
            }
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kernel(stream) => stream.local_addr(),
            Self::Simulated(stream) => Ok(stream.local_addr()),
        }
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Kernel(stream) => stream.poll_read_ready(cx),
            Self::Simulated(stream) => stream.poll_read_ready(cx).map(Ok),
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.readable().await,
            Self::Simulated(stream) => {
                std::future::poll_fn(|cx| stream.poll_read_ready(cx)).await;
                Ok(())
            }
        }
    }

    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Kernel(stream) => stream.poll_peek(cx, buf),
            Self::Simulated(stream) => stream.poll_receive(cx, buf, true),
        }
    }

    pub(crate) async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.poll_peek(cx, &mut ReadBuf::new(buf))).await
    }

    pub(crate) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(stream) => stream.try_read(buf),
            Self::Simulated(stream) => stream.try_read(buf),
        }
    }

    pub(crate) fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(stream) => stream.try_write(data),
            Self::Simulated(stream) => stream.try_write(data),
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Simulated(stream) => stream.poll_receive(cx, buf, false).map_ok(drop),
        }
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_write(cx, data),
            Self::Simulated(stream) => stream.poll_send(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kernel(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Simulated(stream) => {
                stream.shut();
                Poll::Ready(Ok(()))
            }
        }
    }
}

pub(crate) fn unacknowledged_bytes(stream: &TcpStream) -> io::Result<usize> {
    match stream {
        TcpStream::Kernel(stream) => sluicegate_sys::unacknowledged_bytes(stream),
        TcpStream::Simulated(stream) => Ok(stream.unacknowledged()),
    }
}

pub(crate) fn unsent_bytes(stream: &TcpStream) -> io::Result<usize> {
    match stream {
        TcpStream::Kernel(stream) => sluicegate_sys::unsent_bytes(stream),
        TcpStream::Simulated(_) => Ok(0),
    }
}

pub(crate) fn unacknowledged_for(stream: &TcpStream) -> io::Result<Option<Duration>> {
    match stream {
        TcpStream::Kernel(stream) => sluicegate_sys::unacknowledged_for(stream),
        TcpStream::Simulated(_) => Ok(None),
    }
}

/// Connects to a socket of the kernel or of the simulated network.
pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    match simulated::is_running() {
        true => simulated::connect(address).await.map(TcpStream::Simulated),
        false => kernel::connect(address).await.map(TcpStream::Kernel),
    }
}

pub(crate) fn is_silent(stream: &TcpStream) -> bool {
    match stream {
        TcpStream::Kernel(stream) => kernel::is_silent(stream),
        TcpStream::Simulated(stream) => stream.is_silent(),
    }
}
