//! The bytes below an HTTP/2 connection. Frames come one by one, many in a turn of the runtime. They are gathered, so
//! that all frames of a turn leave in one write, and over TLS in one record.

mod trailers;

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;

pub(crate) use self::trailers::Sender;
use self::trailers::Trailers;
use super::Stream;
use crate::buffer::{Buffer, give_spare_buffer, spare_buffer};

/// The limit of gathered bytes.
const MOST: usize = 64 * 1024;

/// How many bytes are read before the worker's other connections have their turn. Small frames cost about 40 ns for each
/// byte, so a connection with a megabyte of small frames would block the others for 40 ms.
const TURN: usize = 16 * 1024;

/// A connection, shared by the protocol, which reads and gathers, and by its owner, which sends.
#[derive(Clone)]
pub(crate) struct Batch(Rc<RefCell<Inner>>);

struct Inner {
    stream: Stream,
    /// The bytes that were read before the connection was known to use HTTP/2.
    preread: Bytes,
    gathered: Option<Buffer>,
    /// The peer accepts no more bytes, so that writes are discarded.
    discards: bool,
    has_received: bool,
    /// Bytes read since nothing was readable, or since other connections had their turn.
    turn: usize,
    /// Bytes read, minus explained and allowed bytes.
    unexplained: usize,
    /// Bytes of frames without content, such as PING and SETTINGS, minus allowed bytes.
    control: usize,
    incoming: Frames,
    outgoing: Frames,
    /// The number of requests with possibly unread bytes of their bodies.
    unread: usize,
    trailers: Trailers,
}

/// Follows frames through a stream of bytes.
#[derive(Default)]
struct Frames {
    /// The rest of the bytes before the next frame header.
    skip: usize,
    header: [u8; HEADER],
    have: usize,
}

/// A part of a frame.
enum Part<'b> {
    /// The frame header, and the length of the payload.
    Header([u8; HEADER], usize),
    /// A part of the payload, possibly empty.
    Payload(&'b [u8]),
}

/// The header of a frame (RFC 9113, 4.1).
const HEADER: usize = 9;
/// The offset of the frame type in the header.
const KIND: usize = 3;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

/// The number of bytes of other frames that a peer may send for each received data or head frame, and for each request.
/// Such frames are window updates, cancellations and priorities.
const PER_FRAME: usize = 64;

impl Batch {
    /// `preface`: the number of bytes before the first frame of the peer.
    pub(crate) fn new(stream: Stream, preread: &[u8], preface: usize, sender: Sender) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            stream,
            preread: Bytes::copy_from_slice(preread),
            gathered: None,
            discards: false,
            has_received: false,
            turn: 0,
            unexplained: 0,
            control: 0,
            incoming: Frames { skip: preface, ..Frames::default() },
            outgoing: Frames::default(),
            unread: 0,
            trailers: Trailers::new(sender),
        })))
    }

    /// Whether the trailers of a stream consist of exactly `fields` fields, without pseudo-header fields.
    pub(crate) fn has_valid_trailers(&self, stream: u32, fields: usize) -> bool {
        let count = self.0.borrow_mut().trailers.take_count(stream);
        count.is_none_or(|count| count == Some(fields))
    }

    /// Whether the buffer is full until bytes are sent.
    pub(crate) fn is_full(&self) -> bool {
        self.0.borrow().is_full()
    }

    /// Whether any bytes have arrived.
    pub(crate) fn has_received(&self) -> bool {
        self.0.borrow().has_received
    }

    /// The number of received bytes without a known use.
    pub(crate) fn unexplained(&self) -> usize {
        self.0.borrow().unexplained
    }

    /// The number of bytes of frames without content beyond the allowed number.
    pub(crate) fn control(&self) -> usize {
        self.0.borrow().control
    }

    /// Allows `bytes` more bytes of frames without content.
    pub(crate) fn allow(&self, bytes: usize) {
        self.0.borrow_mut().allow(bytes);
    }

    /// Allows the frames that a client may send about a new request.
    pub(crate) fn allow_request(&self) {
        self.allow(PER_FRAME);
    }

    /// Records that `bytes` of the received bytes were useful.
    pub(crate) fn explain(&self, bytes: usize) {
        let mut inner = self.0.borrow_mut();
        inner.unexplained = inner.unexplained.saturating_sub(bytes);
    }

    /// Records that a request's body may have unread bytes.
    pub(crate) fn note_unread_body(&self) {
        self.0.borrow_mut().unread += 1;
    }

    /// Records that all received bytes of a request's body were read.
    pub(crate) fn is_up_to_date(&self) {
        let mut inner = self.0.borrow_mut();
        inner.unread = inner.unread.saturating_sub(1);
    }

    /// The number of requests with possibly unread bytes of their bodies.
    pub(crate) fn unread(&self) -> usize {
        self.0.borrow().unread
    }

    /// Calls a function with the connection below.
    pub(crate) fn with_stream<T>(&self, ask: impl FnOnce(&Stream) -> T) -> T {
        ask(&self.0.borrow().stream)
    }

    /// Accepts and discards later writes, so that the protocol continues to read after a failed write.
    pub(crate) fn discard_writes(&self) {
        let mut inner = self.0.borrow_mut();
        inner.discards = true;
        if let Some(gathered) = inner.gathered.take() {
            give_spare_buffer(gathered);
        }
    }

    /// Sends the gathered bytes.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }
}

impl Inner {
    fn is_full(&self) -> bool {
        self.gathered.as_ref().is_some_and(|gathered| gathered.len() >= MOST)
    }

    fn allow(&mut self, bytes: usize) {
        self.unexplained = self.unexplained.saturating_sub(bytes);
        self.control = self.control.saturating_sub(bytes);
    }

    fn has_come(&mut self, bytes: &[u8]) {
        let (control, trailers) = (&mut self.control, &mut self.trailers);
        self.incoming.follow(bytes, |part| match part {
            Part::Header(header, length) => {
                if !matches!(header[KIND], DATA | HEADERS | CONTINUATION) {
                    *control += HEADER + length;
                }
                trailers.begin(header);
            }
            Part::Payload(bytes) => trailers.take(bytes),
        });
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(gathered) = &mut self.gathered {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, gathered.filled()))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            gathered.consume(sent);
            if let Some(empty) = self.gathered.take_if(|gathered| gathered.is_empty()) {
                give_spare_buffer(empty);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Frames {
    /// Passes the header of each frame whose header ends in these bytes, and the parts of payloads, to `tell`.
    fn follow(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Part<'_>)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            tell(Part::Payload(&bytes[..skipped]));
            bytes = &bytes[skipped..];
            let taken = (HEADER - self.have).min(bytes.len());
            self.header[self.have..][..taken].copy_from_slice(&bytes[..taken]);
            self.have += taken;
            bytes = &bytes[taken..];
            if self.have == HEADER {
                let [high, mid, low, ..] = self.header;
                self.skip = usize::from(high) << 16 | usize::from(mid) << 8 | usize::from(low);
                self.have = 0;
                tell(Part::Header(self.header, self.skip));
            }
        }
    }
}

impl AsyncRead for Batch {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.0.borrow_mut();
        if inner.preread.is_empty() {
            if inner.turn >= TURN {
                inner.turn = 0;
                // A wake would put the connection behind the ready connections. Unlike a wake, `yield_now` makes the
                // worker check its sockets first.
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
            inner.has_come(&buf.filled()[before..]);
            return Poll::Ready(Ok(()));
        }
        let taken = inner.preread.len().min(buf.remaining());
        let preread = inner.preread.split_to(taken);
        buf.put_slice(&preread);
        inner.has_come(&preread);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Batch {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let inner = &mut *self.0.borrow_mut();
        if inner.discards {
            return Poll::Ready(Ok(data.len()));
        }
        if inner.is_full() {
            ready!(inner.poll_send(cx))?;
        }
        let gathered = inner.gathered.get_or_insert_with(spare_buffer);
        let taken = data.len().min(MOST - gathered.len().min(MOST));
        gathered.append(&data[..taken]);
        let mut allowed = 0;
        inner.outgoing.follow(&data[..taken], |part| {
            if let Part::Header(header, length) = part
                && matches!(header[KIND], DATA | HEADERS)
            {
                // A peer that reads sends window updates, at most one for each frame.
                allowed += PER_FRAME.max(length / 64);
            }
        });
        inner.allow(allowed);
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

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::runtime::LocalOptions;
    use tokio::task::{JoinHandle, spawn_local};

    use super::*;

    #[test]
    fn frame_headers_are_recognized_in_pieces_of_any_size() {
        let mut bytes = b"preface".to_vec();
        for (kind, length) in [(4, 0), (0, 300), (6, 8), (1, 70_000), (8, 4)] {
            let [_, _, _, _, _, high, mid, low] = u64::try_from(length).unwrap().to_be_bytes();
            bytes.extend([high, mid, low, kind, 0, 0, 0, 0, 1]);
            bytes.resize(bytes.len() + length, 0);
        }
        for piece in [1, 2, 5, 9, 10, 299, 70_000, bytes.len()] {
            let mut frames = Frames { skip: 7, ..Frames::default() };
            let mut seen = Vec::new();
            for bytes in bytes.chunks(piece) {
                frames.follow(bytes, |part| {
                    if let Part::Header(header, length) = part {
                        seen.push((header[KIND], length));
                    }
                });
            }
            assert_eq!(seen, [(4, 0), (0, 300), (6, 8), (1, 70_000), (8, 4)], "{piece}");
        }
    }

    async fn pair() -> (std::net::TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[test]
    fn flooding_connection_does_not_starve_other_connections() {
        // The runtime of a worker.
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
        let (flood, turns) = runtime.block_on(async {
            let (mut flooder, flooded) = pair().await;
            // The flooder fills the buffers of the kernel, and refills them as the batch reads.
            flooder.set_nonblocking(true).unwrap();
            while flooder.write(&[0; 65536]).is_ok() {}
            flooder.set_nonblocking(false).unwrap();
            let flood = thread::spawn(move || while flooder.write_all(&[0; 65536]).is_ok() {});
            let (mut near, mut other) = pair().await;
            let other = spawn_local(async move { other.read_u8().await });
            // The other task now waits for its byte.
            yield_now().await;
            near.write_all(&[1]).unwrap();
            (flood, spawn_local(turns_until(flooded, other)).await.unwrap())
        });
        assert!(turns < 5, "{turns} turns before the other's first");
        flood.join().unwrap();
    }

    /// The number of turns of a flooded connection until another task ends.
    async fn turns_until<T>(flooded: TcpStream, other: JoinHandle<T>) -> usize {
        let mut batch = Batch::new(Stream::Plain(flooded.into()), &[], 0, Sender::Client);
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

    #[tokio::test]
    async fn stream_still_reads_bytes_received_before_a_reset_even_if_a_write_failed() {
        let (mut near, far) = pair().await;
        let mut batch = Batch::new(Stream::Plain(far.into()), &[], 0, Sender::Client);
        // A socket that is closed with unread data is reset.
        batch.write_all(b"unread").await.unwrap();
        poll_fn(|cx| batch.poll_send(cx)).await.unwrap();
        while near.peek(&mut [0]).is_err() {}
        near.write_all(&[b'x'; 100_000]).unwrap();
        drop(near);
        let error = loop {
            batch.write_all(b"more").await.unwrap();
            if let Err(error) = poll_fn(|cx| batch.poll_send(cx)).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        batch.discard_writes();
        batch.write_all(&[0; 1 << 20]).await.unwrap();
        let mut received = Vec::new();
        batch.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, [b'x'; 100_000]);
    }
}
