//! The bytes below an HTTP/2 connection. Its frames come one by one, many to a turn of the runtime; they are gathered, so
//! that all of a turn go in one write, and over TLS in one record.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::stream::Stream;
use crate::worker::{Buffer, give_spare_buffer, spare_buffer};

/// How much is gathered at most.
const MOST: usize = 64 * 1024;

/// How much is read before the worker's other connections get their turn: small frames cost some 40 ns for each byte, so
/// a connection that has a megabyte of them would keep the others waiting for 40 ms.
const TURN: usize = 16 * 1024;

/// A connection, shared by the protocol, which reads and gathers, and by its owner, who sends.
#[derive(Clone)]
pub(crate) struct Batch(Rc<RefCell<Inner>>);

struct Inner {
    stream: Stream,
    /// What was read before it was known to be HTTP/2.
    preread: Bytes,
    gathered: Option<Buffer>,
    has_received: bool,
    /// Bytes read since there was nothing to read, or others had their turn.
    turn: usize,
    /// Bytes read, less what was allowed for.
    unexplained: usize,
}

impl Batch {
    pub(crate) fn new(stream: Stream, preread: &[u8]) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            stream,
            preread: Bytes::copy_from_slice(preread),
            gathered: None,
            has_received: false,
            turn: 0,
            unexplained: 0,
        })))
    }

    /// Whether nothing more is gathered until something was sent.
    pub(crate) fn is_full(&self) -> bool {
        self.0.borrow().is_full()
    }

    /// Whether anything came yet.
    pub(crate) fn has_received(&self) -> bool {
        self.0.borrow().has_received
    }

    /// How many bytes came that nothing explains yet.
    pub(crate) fn unexplained(&self) -> usize {
        self.0.borrow().unexplained
    }

    /// So many of the bytes that came were of use.
    pub(crate) fn explain(&self, bytes: usize) {
        let mut inner = self.0.borrow_mut();
        inner.unexplained = inner.unexplained.saturating_sub(bytes);
    }

    /// Asks the connection below something.
    pub(crate) fn with_stream<T>(&self, ask: impl FnOnce(&Stream) -> T) -> T {
        ask(&self.0.borrow().stream)
    }

    /// Sends what was gathered.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }
}

impl Inner {
    fn is_full(&self) -> bool {
        self.gathered.as_ref().is_some_and(|gathered| gathered.len() >= MOST)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(gathered) = &mut self.gathered {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, gathered.filled()))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            gathered.consume(sent);
            // A client makes room for what it has read.
            self.unexplained = self.unexplained.saturating_sub(sent / 64);
            if let Some(empty) = self.gathered.take_if(|gathered| gathered.is_empty()) {
                give_spare_buffer(empty);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Batch {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.0.borrow_mut();
        if inner.preread.is_empty() {
            if inner.turn >= TURN {
                inner.turn = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let before = buf.filled().len();
            let Poll::Ready(result) = Pin::new(&mut inner.stream).poll_read(cx, buf) else {
                inner.turn = 0;
                return Poll::Pending;
            };
            result?;
            let read = buf.filled().len() - before;
            inner.turn += read;
            inner.has_received |= read > 0;
            inner.unexplained += read;
            return Poll::Ready(Ok(()));
        }
        let taken = inner.preread.len().min(buf.remaining());
        buf.put_slice(&inner.preread[..taken]);
        inner.preread.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Batch {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let inner = &mut *self.0.borrow_mut();
        if inner.is_full() {
            ready!(inner.poll_send(cx))?;
        }
        let gathered = inner.gathered.get_or_insert_with(spare_buffer);
        let taken = data.len().min(MOST - gathered.len().min(MOST));
        gathered.append(&data[..taken]);
        Poll::Ready(Ok(taken))
    }

    /// The protocol flushes after each frame; its owner sends when the turn is over.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.0.borrow_mut();
        ready!(inner.poll_send(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn who_sends_much_does_not_keep_others_from_their_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (receiver, _) = listener.accept().await.unwrap();
        let sent = vec![0; 100_000];
        sender.write_all(&sent).await.unwrap();
        sender.shutdown().await.unwrap();
        let mut batch = Batch::new(Stream::Plain(receiver), &[]);
        let (mut total, mut ended) = (0, false);
        while !ended {
            let turn = poll_fn(|cx| {
                let mut turn = 0;
                loop {
                    let mut space = [0; 1000];
                    let mut buf = ReadBuf::new(&mut space);
                    let Poll::Ready(read) = Pin::new(&mut batch).poll_read(cx, &mut buf) else { break };
                    read.unwrap();
                    turn += buf.filled().len();
                    ended = buf.filled().is_empty();
                    if ended {
                        break;
                    }
                }
                Poll::Ready(turn)
            });
            let turn = turn.await;
            assert!(turn < TURN + 1000, "{turn} bytes in one turn");
            total += turn;
            tokio::task::yield_now().await;
        }
        assert_eq!(total, sent.len());
    }
}
