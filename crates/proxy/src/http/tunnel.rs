//! What follows a 101: bytes both ways, whatever they mean (RFC 9110, 7.8).

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::download::DRAIN_CHECK;
use super::exchange::Exchange;
use crate::deadline::after;
use crate::failure::{Failure, Fault};
use crate::upstream::Connection;
use crate::worker::Buffer;

/// One direction of a tunnel.
#[derive(Default)]
struct Flow {
    /// The reading side has ended.
    ended: bool,
    /// The writing side was told so.
    closed: bool,
    moved: u64,
}

impl Flow {
    /// Moves bytes as long as both sides let it. An error of either side ends the tunnel.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        buffer: &mut Buffer,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), Broken> {
        while !self.closed {
            while !buffer.is_empty() {
                match Pin::new(&mut *to).poll_write(cx, buffer.filled()) {
                    Poll::Ready(Ok(written @ 1..)) => {
                        buffer.consume(written);
                        self.moved += written as u64;
                    }
                    Poll::Ready(_) => return Err(Broken),
                    Poll::Pending => return Ok(()),
                }
            }
            if self.ended {
                match Pin::new(&mut *to).poll_shutdown(cx) {
                    Poll::Ready(Ok(())) => self.closed = true,
                    Poll::Ready(Err(_)) => return Err(Broken),
                    Poll::Pending => return Ok(()),
                }
                continue;
            }
            match buffer.poll_fill(cx, from) {
                Poll::Ready(Ok(read)) => self.ended = read == 0,
                Poll::Ready(Err(_)) => return Err(Broken),
                Poll::Pending => return Ok(()),
            }
        }
        Ok(())
    }
}

/// One side of the tunnel broke.
struct Broken;

impl Exchange<'_> {
    /// Passes bytes both ways until both sides have ended, one breaks, nothing moves for too long, or the
    /// endpoint's drain time is over. Returns how many went to the client. `sent` is what the client sent
    /// behind its request.
    pub(super) async fn tunnel(
        &mut self,
        connection: &mut Connection,
        sent: &mut Buffer,
    ) -> (u64, Result<(), Fault>) {
        let idle = self.snapshot.settings.timeouts.tunnel_idle;
        let endpoint = connection.endpoint().clone();
        let (mut up, mut down) = (Flow::default(), Flow::default());
        let mut moved = 0;
        let mut moved_at = Instant::now();
        let result = poll_fn(|cx| {
            let (client, upstream) = (&mut self.client.wire, &mut connection.socket.stream);
            let scratch = &mut *self.scratch;
            let broken = up.poll(cx, client, sent, upstream).is_err()
                || down.poll(cx, upstream, &mut scratch.reply, client).is_err();
            if broken || (up.closed && down.closed) {
                return Poll::Ready(Ok(()));
            }
            loop {
                let now = Instant::now();
                if moved != up.moved + down.moved {
                    (moved, moved_at) = (up.moved + down.moved, now);
                }
                let due = after(moved_at, idle);
                if now >= due || endpoint.is_drained(now) {
                    let failure = if now >= due { Failure::BodyTimeout } else { Failure::Drained };
                    return Poll::Ready(Err(Fault::Upstream(failure)));
                }
                self.client.deadline.set(due.min(now + DRAIN_CHECK));
                if self.client.deadline.poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await;
        (down.moved, result)
    }
}
