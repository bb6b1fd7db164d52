//! The bytes below an HTTP/2 connection. Its frames come one by one, many to a turn of the runtime; they are gathered, so
//! that all of a turn go in one write, and over TLS in one record.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

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
                // Unlike a wake, which would put the connection behind those that are known to be ready, this has the
                // worker look at its sockets first.
                return pin!(yield_now()).poll(cx).map(Ok);
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
    use std::io::Write as _;
    use std::thread;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::runtime::LocalOptions;
    use tokio::task::{JoinHandle, spawn_local};

    use super::*;

    async fn pair() -> (std::net::TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[test]
    fn who_sends_much_does_not_keep_others_from_their_turn() {
        // As a worker's.
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
        let (flood, turns) = runtime.block_on(async {
            let (mut flooder, flooded) = pair().await;
            // There is always more: as much as the kernel takes, and then what makes room for itself.
            flooder.set_nonblocking(true).unwrap();
            while flooder.write(&[0; 65536]).is_ok() {}
            flooder.set_nonblocking(false).unwrap();
            let flood = thread::spawn(move || while flooder.write_all(&[0; 65536]).is_ok() {});
            let (mut near, mut other) = pair().await;
            let other = spawn_local(async move { other.read_u8().await });
            // It waits for its byte now.
            yield_now().await;
            near.write_all(&[1]).unwrap();
            (flood, spawn_local(turns_until(flooded, other)).await.unwrap())
        });
        assert!(turns < 5, "{turns} turns before the other's first");
        flood.join().unwrap();
    }

    /// How many turns a connection has until another task is over.
    async fn turns_until<T>(flooded: TcpStream, other: JoinHandle<T>) -> usize {
        let mut batch = Batch::new(Stream::Plain(flooded), &[]);
        let mut turns = 0;
        poll_fn(|cx| {
            turns += 1;
            let mut read = 0;
            let mut space = [0; 1000];
            let mut buf = ReadBuf::new(&mut space);
            while Pin::new(&mut batch).poll_read(cx, &mut buf).is_ready() {
                read += buf.filled().len();
                buf.clear();
            }
            assert!(read < TURN + 1000, "{read} bytes in one turn");
            if other.is_finished() { Poll::Ready(turns) } else { Poll::Pending }
        })
        .await
    }
}
