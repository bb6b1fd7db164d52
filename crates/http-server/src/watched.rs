//! Wraps a connection and its responses, to detect when the connection becomes silent.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::places::Place;

/// The state that a connection shares with its responses.
pub(crate) struct Watch {
    pub(crate) place: Place,
    /// The response's body is complete; some bytes may not be written yet.
    body_ended: AtomicBool,
    /// A read found no data.
    was_quiet: AtomicBool,
}

impl Watch {
    pub(crate) fn new(place: Place) -> Arc<Self> {
        Arc::new(Self { place, body_ended: AtomicBool::new(false), was_quiet: AtomicBool::new(false) })
    }
}

/// A connection that reports silence to its place.
pub struct Watched {
    pub(crate) stream: TcpStream,
    pub(crate) watch: Arc<Watch>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_pending() && !self.watch.was_quiet.swap(true, Ordering::Relaxed) {
            self.watch.place.is_quiet();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes after it has written all buffered bytes.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if self.watch.body_ended.swap(false, Ordering::Relaxed) {
            self.watch.place.is_answered();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The body of a response, which reports its end to the connection.
pub(crate) struct WatchedBody<B> {
    pub(crate) content: B,
    pub(crate) watch: Arc<Watch>,
}

impl<B: Body<Data = Bytes, Error = Infallible> + Unpin> Body for WatchedBody<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.content).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}

impl<B> Drop for WatchedBody<B> {
    fn drop(&mut self) {
        self.watch.body_ended.store(true, Ordering::Relaxed);
    }
}
