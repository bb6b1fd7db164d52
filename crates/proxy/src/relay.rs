//! Passes bytes both ways, of any protocol, until both sides have ended.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::buffer::{Buffer, give_spare_buffer, spare_buffer};
use crate::deadline::{Deadline, after};
use crate::upstream::LocalEndpoint;

/// How often a long exchange checks whether its endpoint was removed and its drain time is over.
pub(crate) const DRAIN_CHECK: Duration = Duration::from_secs(1);

/// How long the relay waits for the last bytes of a side whose connection broke: the kernel has received them already.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// A client and an endpoint that exchange bytes.
pub(crate) struct Relay {
    up: Flow,
    down: Flow,
}

/// How the relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides have sent all their bytes.
    Done,
    /// The client's connection broke.
    ClientBroke,
    /// The endpoint's connection broke.
    EndpointBroke,
    /// The endpoint closed its connection, the client received all of its bytes, and the endpoint accepts no more.
    EndpointClosed,
    /// No bytes moved for too long.
    Idle,
    /// The endpoint was removed, and its drain time is over.
    Drained,
}

/// The progress of a relay: bytes to the endpoint, and to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) up: u64,
    pub(crate) down: u64,
}

impl Relay {
    /// `sent` holds the bytes that the client has sent already, `received` the bytes of the endpoint.
    pub(crate) fn new(sent: &[u8], received: &[u8]) -> Self {
        Self { up: Flow::new(sent), down: Flow::new(received) }
    }

    /// An endpoint that closes without sending a byte counts as broken, and the client is not notified.
    pub(crate) fn expect_answer(&mut self) {
        self.down.may_be_empty = false;
    }

    /// The client's bytes behind its first `count` bytes, if none of them have left for the endpoint.
    pub(crate) fn unsent_behind(&self, count: usize) -> Option<&[u8]> {
        let held = self.up.held.as_ref().map_or(&[][..], Buffer::filled);
        let left = usize::try_from(self.up.moved).ok().and_then(|moved| count.checked_sub(moved))?;
        held.get(left..)
    }

    pub(crate) fn moved(&self) -> Moved {
        Moved { up: self.up.moved, down: self.down.moved }
    }

    /// Passes bytes both ways until both sides have ended, one breaks, no bytes move for `idle`, or the endpoint's drain
    /// time is over. Calls `progress` after bytes moved.
    ///
    /// A side that closes its connection with unread data resets it. A write sees the reset before the bytes that came
    /// ahead of the reset are read, so the relay delivers these bytes first (RFC 9293, 3.10.7.4).
    pub(crate) async fn run(
        &mut self,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        upstream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        endpoint: &LocalEndpoint,
        deadline: &mut Deadline,
        idle: Duration,
        mut progress: impl FnMut(Moved),
    ) -> End {
        let mut position = self.position();
        let mut moved_at = Instant::now();
        poll_fn(|cx| {
            let end = self.poll(cx, client, upstream);
            if position != self.position() {
                if position.0 != self.moved() {
                    progress(self.moved());
                }
                (position, moved_at) = (self.position(), Instant::now());
            }
            if let Some(end) = end {
                return Poll::Ready(end);
            }
            let last_end = self.awaits_last_bytes();
            let due = after(moved_at, if last_end.is_some() { LAST_BYTES.min(idle) } else { idle });
            loop {
                let now = Instant::now();
                if now >= due {
                    return Poll::Ready(last_end.unwrap_or(End::Idle));
                }
                if endpoint.is_drained(now) {
                    return Poll::Ready(End::Drained);
                }
                deadline.set(due.min(now + DRAIN_CHECK));
                if deadline.poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Moves as many bytes as possible. Returns the end if the relay has ended.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        upstream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Option<End> {
        // Another endpoint may need the client's bytes as long as this endpoint has sent none.
        let has_answered = self.down.moved > 0;
        match self.up.poll(cx, client, upstream, has_answered) {
            Ok(()) => {}
            Err(Broken::Reader) => return Some(End::ClientBroke),
            Err(Broken::Writer(error)) => self.down.note_reset(error),
        }
        match self.down.poll(cx, upstream, client, true) {
            Ok(()) => {}
            Err(Broken::Reader) => return Some(End::EndpointBroke),
            Err(Broken::Writer(error)) => self.up.note_reset(error),
        }
        match (&self.up, &self.down) {
            (Flow { closed: true, .. }, Flow { closed: true, .. }) => Some(End::Done),
            (Flow { cut: true, .. }, Flow { closed: true, .. }) => {
                Some(if self.down.moved > 0 { End::EndpointClosed } else { End::EndpointBroke })
            }
            (Flow { cut: true, .. } | Flow { closed: true, .. }, Flow { cut: true, .. }) => {
                Some(End::ClientBroke)
            }
            _ => None,
        }
    }

    /// The position of both directions.
    fn position(&self) -> (Moved, bool, bool) {
        (self.moved(), self.up.cut, self.down.cut)
    }

    /// The result of a relay that waits only for the last bytes of a broken side.
    fn awaits_last_bytes(&self) -> Option<End> {
        match (self.up.cut, self.down.cut) {
            (true, _) if self.down.held.is_none() => Some(End::EndpointBroke),
            (_, true) if self.up.held.is_none() => Some(End::ClientBroke),
            _ => None,
        }
    }
}

/// One direction. It has a buffer only while bytes are in flight.
struct Flow {
    held: Option<Buffer>,
    /// The reading side has ended.
    ended: bool,
    /// The end was passed to the writing side.
    closed: bool,
    /// Whether the reading side may end without a byte.
    may_be_empty: bool,
    /// The writing side accepts no more bytes.
    cut: bool,
    /// The reading side was reset, so that its end is not a proper end.
    reset: bool,
    moved: u64,
}

/// The side of a flow that broke.
enum Broken {
    Reader,
    Writer(io::ErrorKind),
}

impl Flow {
    fn new(first: &[u8]) -> Self {
        let held = (!first.is_empty()).then(|| {
            let mut buffer = spare_buffer();
            buffer.append(first);
            buffer
        });
        Self { held, ended: false, closed: false, may_be_empty: true, cut: false, reset: false, moved: 0 }
    }

    /// A write to the reading side failed. Linux reports `EPIPE` if the side had closed its direction before the reset
    /// (`tcp_reset` in the kernel's `tcp_input.c`). Any other error is reported once: reading then ends as if the side had
    /// closed its direction. A failed shutdown (`ENOTCONN`) takes no error from the read.
    fn note_reset(&mut self, error: io::ErrorKind) {
        self.reset = !matches!(error, io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected);
    }

    /// Moves bytes as long as both sides are ready. If the writing side breaks, reads on and discards if `discards`, so
    /// that the reading side does not block in a write.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        discards: bool,
    ) -> Result<(), Broken> {
        if self.closed {
            return Ok(());
        }
        if self.cut {
            return if discards { self.discard(cx, from) } else { Ok(()) };
        }
        let mut buffer = self.held.take().unwrap_or_else(spare_buffer);
        let result = self.go_on(cx, from, &mut buffer, to);
        if buffer.is_empty() {
            give_spare_buffer(buffer);
        } else {
            self.held = Some(buffer);
        }
        self.cut = matches!(result, Err(Broken::Writer(_)));
        result
    }

    fn discard(&mut self, cx: &mut Context<'_>, from: &mut (impl AsyncRead + Unpin)) -> Result<(), Broken> {
        let mut buffer = self.held.take().unwrap_or_else(spare_buffer);
        let mut result = Ok(());
        while !self.ended {
            buffer.clear();
            match buffer.poll_fill(cx, from) {
                Poll::Ready(Ok(read)) => self.ended = read == 0,
                Poll::Ready(Err(_)) => {
                    result = Err(Broken::Reader);
                    break;
                }
                Poll::Pending => break,
            }
        }
        give_spare_buffer(buffer);
        result
    }

    fn go_on(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        buffer: &mut Buffer,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Broken> {
        loop {
            while !buffer.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, buffer.filled()) {
                    Poll::Ready(Ok(written @ 1..)) => {
                        buffer.consume(written);
                        self.moved += written as u64;
                    }
                    Poll::Ready(Ok(_)) => return Err(Broken::Writer(io::ErrorKind::WriteZero)),
                    Poll::Ready(Err(error)) => return Err(Broken::Writer(error.kind())),
                    Poll::Pending => return Ok(()),
                }
            }
            if self.ended {
                if self.reset || self.moved == 0 && !self.may_be_empty {
                    return Err(Broken::Reader);
                }
                match Pin::new(&mut *to).poll_shutdown(cx) {
                    Poll::Ready(Ok(())) => self.closed = true,
                    Poll::Ready(Err(error)) => return Err(Broken::Writer(error.kind())),
                    Poll::Pending => {}
                }
                return Ok(());
            }
            match buffer.poll_fill(cx, from) {
                Poll::Ready(Ok(read)) => self.ended = read == 0,
                Poll::Ready(Err(_)) => return Err(Broken::Reader),
                Poll::Pending => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};

    use super::*;
    use crate::upstream::SharedEndpoint;

    /// A stream that accepts `room` bytes, and then fails each write with `error`.
    struct Breaking {
        room: usize,
        error: io::ErrorKind,
        silent: DuplexStream,
    }

    impl AsyncRead for Breaking {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.silent).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Breaking {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
            if self.room == 0 {
                return Poll::Ready(Err(self.error.into()));
            }
            let taken = self.room.min(data.len());
            self.room -= taken;
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn relay_returns_unsent_bytes_for_a_retry_after_its_endpoint_breaks() -> io::Result<()> {
        let endpoint =
            LocalEndpoint::new(SharedEndpoint::new(([127, 0, 0, 1], 1).into(), 1, false).into(), 0);
        // The relay reads the bytes after the ClientHello once the ClientHello was written.
        for (room, unsent) in [(0, Some(&b""[..])), (3, Some(b"")), (5, Some(b"more")), (6, None)] {
            let (mut far, mut client) = duplex(64);
            far.write_all(b"more").await?;
            let (_, silent) = duplex(64);
            let mut upstream = Breaking { room, error: io::ErrorKind::ConnectionReset, silent };
            let mut relay = Relay::new(b"hello", b"");
            let mut deadline = Deadline::new(Instant::now() + Duration::from_secs(60));
            let end = relay
                .run(&mut client, &mut upstream, &endpoint, &mut deadline, Duration::from_secs(60), |_| {})
                .await;
            assert_eq!((end, relay.moved().up), (End::EndpointBroke, room as u64));
            assert_eq!(relay.unsent_behind(5), unsent, "{room}");
        }
        Ok(())
    }

    #[tokio::test]
    async fn client_receives_the_last_bytes_of_an_endpoint_after_a_write_to_the_endpoint_fails()
    -> io::Result<()> {
        let endpoint =
            LocalEndpoint::new(SharedEndpoint::new(([127, 0, 0, 1], 1).into(), 1, false).into(), 0);
        for (error, expected) in [
            (io::ErrorKind::ConnectionReset, End::EndpointBroke),
            (io::ErrorKind::BrokenPipe, End::EndpointClosed),
        ] {
            let (mut far, mut client) = duplex(1 << 20);
            far.write_all(b"more").await?;
            let (mut speaker, silent) = duplex(1 << 20);
            speaker.write_all(&[b'x'; 100_000]).await?;
            drop(speaker);
            let mut upstream = Breaking { room: 0, error, silent };
            let mut deadline = Deadline::new(Instant::now() + Duration::from_secs(60));
            let mut relay = Relay::new(b"", b"");
            let end = relay
                .run(&mut client, &mut upstream, &endpoint, &mut deadline, Duration::from_secs(60), |_| {})
                .await;
            assert_eq!((end, relay.moved()), (expected, Moved { up: 0, down: 100_000 }));
            drop(client);
            let mut received = Vec::new();
            far.read_to_end(&mut received).await?;
            assert_eq!(received, [b'x'; 100_000]);
        }
        Ok(())
    }

    #[tokio::test]
    async fn endpoint_receives_the_last_bytes_of_a_client_after_a_write_to_the_client_fails() -> io::Result<()>
    {
        let endpoint =
            LocalEndpoint::new(SharedEndpoint::new(([127, 0, 0, 1], 1).into(), 1, false).into(), 0);
        // The endpoint accepts few bytes at a time, so that the write to the client fails first.
        let (mut far, mut upstream) = duplex(64);
        let (mut speaker, silent) = duplex(1 << 20);
        speaker.write_all(&[b'x'; 100_000]).await?;
        drop(speaker);
        let mut client = Breaking { room: 0, error: io::ErrorKind::ConnectionReset, silent };
        let mut deadline = Deadline::new(Instant::now() + Duration::from_secs(60));
        let mut relay = Relay::new(b"", b"early");
        let mut received = vec![0; 100_000];
        let (end, read) = tokio::join!(
            relay.run(&mut client, &mut upstream, &endpoint, &mut deadline, Duration::from_secs(60), |_| {}),
            far.read_exact(&mut received)
        );
        read?;
        assert_eq!(received, [b'x'; 100_000]);
        assert_eq!((end, relay.moved()), (End::ClientBroke, Moved { up: 100_000, down: 0 }));
        Ok(())
    }
}
