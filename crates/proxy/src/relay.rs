//! Bytes both ways, whatever they mean, until both sides have ended.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::deadline::{Deadline, after};
use crate::upstream::LocalEndpoint;
use crate::worker::{Buffer, give_spare_buffer, spare_buffer};

/// How often what takes long looks whether its endpoint was removed and its drain time is over.
pub(crate) const DRAIN_CHECK: Duration = Duration::from_secs(1);

/// A client and an endpoint that are left to themselves.
pub(crate) struct Relay {
    up: Flow,
    down: Flow,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Both sides have said all that they had to say.
    Done,
    /// The client's connection broke.
    ClientBroke,
    /// The endpoint's connection broke.
    EndpointBroke,
    /// Nothing moved for too long.
    Idle,
    /// The endpoint was removed, and its drain time is over.
    Drained,
}

/// How far it has come: bytes to the endpoint, and to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) up: u64,
    pub(crate) down: u64,
}

impl Relay {
    /// `sent` is what the client has sent already, `received` what the endpoint has.
    pub(crate) fn new(sent: &[u8], received: &[u8]) -> Self {
        Self { up: Flow::new(sent), down: Flow::new(received) }
    }

    /// An endpoint that ends without a word is one that broke, and the client is not told.
    pub(crate) fn expect_answer(&mut self) {
        self.down.may_be_empty = false;
    }

    /// What has come from the client behind its first `count` bytes, if none of that has left for the endpoint.
    pub(crate) fn unsent_behind(&self, count: usize) -> Option<&[u8]> {
        let held = self.up.held.as_ref().map_or(&[][..], Buffer::filled);
        let left = usize::try_from(self.up.moved).ok().and_then(|moved| count.checked_sub(moved))?;
        held.get(left..)
    }

    pub(crate) fn moved(&self) -> Moved {
        Moved { up: self.up.moved, down: self.down.moved }
    }

    /// Passes bytes both ways until both sides have ended, one breaks, nothing moves for `idle`, or the endpoint's
    /// drain time is over. `progress` is told when bytes were moved.
    pub(crate) async fn run(
        &mut self,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        upstream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        endpoint: &LocalEndpoint,
        deadline: &mut Deadline,
        idle: Duration,
        mut progress: impl FnMut(Moved),
    ) -> End {
        let mut moved = self.moved();
        let mut moved_at = Instant::now();
        poll_fn(|cx| {
            let broken = match self.up.poll(cx, client, upstream) {
                Ok(()) => self.down.poll(cx, upstream, client).err().map(|side| match side {
                    Side::Reading => End::EndpointBroke,
                    Side::Writing => End::ClientBroke,
                }),
                Err(Side::Reading) => Some(End::ClientBroke),
                Err(Side::Writing) => Some(End::EndpointBroke),
            };
            let now = Instant::now();
            if moved != self.moved() {
                (moved, moved_at) = (self.moved(), now);
                progress(moved);
            }
            if let Some(end) = broken {
                return Poll::Ready(end);
            }
            if self.up.closed && self.down.closed {
                return Poll::Ready(End::Done);
            }
            let due = after(moved_at, idle);
            loop {
                let now = Instant::now();
                if now >= due {
                    return Poll::Ready(End::Idle);
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
}

/// One direction. It has a buffer only while something is under way.
struct Flow {
    held: Option<Buffer>,
    /// The reading side has ended.
    ended: bool,
    /// The writing side was told so.
    closed: bool,
    /// Whether the reading side may end without a byte.
    may_be_empty: bool,
    moved: u64,
}

/// Which side of a flow broke.
enum Side {
    Reading,
    Writing,
}

impl Flow {
    fn new(first: &[u8]) -> Self {
        let held = (!first.is_empty()).then(|| {
            let mut buffer = spare_buffer();
            buffer.append(first);
            buffer
        });
        Self { held, ended: false, closed: false, may_be_empty: true, moved: 0 }
    }

    /// Moves bytes as long as both sides let it.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Side> {
        if self.closed {
            return Ok(());
        }
        let mut buffer = self.held.take().unwrap_or_else(spare_buffer);
        let result = self.go_on(cx, from, &mut buffer, to);
        if buffer.is_empty() {
            give_spare_buffer(buffer);
        } else {
            self.held = Some(buffer);
        }
        result
    }

    fn go_on(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        buffer: &mut Buffer,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Side> {
        loop {
            while !buffer.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, buffer.filled()) {
                    Poll::Ready(Ok(written @ 1..)) => {
                        buffer.consume(written);
                        self.moved += written as u64;
                    }
                    Poll::Ready(_) => return Err(Side::Writing),
                    Poll::Pending => return Ok(()),
                }
            }
            if self.ended {
                if self.moved == 0 && !self.may_be_empty {
                    return Err(Side::Reading);
                }
                match Pin::new(&mut *to).poll_shutdown(cx) {
                    Poll::Ready(Ok(())) => self.closed = true,
                    Poll::Ready(Err(_)) => return Err(Side::Writing),
                    Poll::Pending => {}
                }
                return Ok(());
            }
            match buffer.poll_fill(cx, from) {
                Poll::Ready(Ok(read)) => self.ended = read == 0,
                Poll::Ready(Err(_)) => return Err(Side::Reading),
                Poll::Pending => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::io::{AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};

    use super::*;
    use crate::upstream::SharedEndpoint;

    /// Takes so many bytes, and then breaks.
    struct Breaking {
        room: usize,
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
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
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
    async fn what_a_broken_endpoint_did_not_take_is_known() -> io::Result<()> {
        let endpoint =
            LocalEndpoint::new(SharedEndpoint::new(([127, 0, 0, 1], 1).into(), 1, false).into(), 0);
        // What is behind the hello is read once that has left.
        for (room, unsent) in [(0, Some(&b""[..])), (3, Some(b"")), (5, Some(b"more")), (6, None)] {
            let (mut far, mut client) = duplex(64);
            far.write_all(b"more").await?;
            let (_other_end, silent) = duplex(64);
            let mut upstream = Breaking { room, silent };
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
}
