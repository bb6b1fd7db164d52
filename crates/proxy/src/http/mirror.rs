//! Copies of requests for others, whose responses nobody gets.
//!
//! A copy is sent once the request itself is answered, so that it costs the client no time. A request whose body was too long to
//! be kept, or that changes the protocol, has no copy.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_http1::{HeadLimits, Method, ResponseFraming, ResponseHead};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

use super::exchange::Exchange;
use super::steer::Steered;
use crate::policy::traffic::TrafficPolicy;
use crate::upstream::{Connection, LocalUpstream, Tried, Wish};
use crate::worker::Worker;

/// How many copies one worker may have under way.
const COPIES_MAX: usize = 64;

/// How long a copy may take in all.
const TIME: Duration = Duration::from_secs(30);

/// How much of a response is read, so that the connection can be used again.
const RESPONSE_MAX: u64 = 256 * 1024;

thread_local! {
    static COPIES: Cell<usize> = const { Cell::new(0) };
}

/// A copy under way, counted while it lasts.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let taken = COPIES.get();
        (taken < COPIES_MAX).then(|| {
            COPIES.set(taken + 1);
            Self
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        COPIES.set(COPIES.get() - 1);
    }
}

impl Exchange<'_> {
    /// Sends a copy of the request, which has been sent as a whole.
    pub(super) fn mirror(&self) {
        let Some(Steered { policy, mirror: Some(slot), .. }) = &self.steered else { return };
        let is_whole =
            self.upload.is_complete() && self.upload.is_replayable() && self.scratch.head.upgrade.is_none();
        let place = Place::take().filter(|_| is_whole);
        let (Some(upstream), Some(place)) = (self.worker.upstream(*slot), place) else {
            return policy.stats.of(self.worker.id).mirror_failures.add(1);
        };
        let copy = Copy {
            request: self.scratch.request.clone(),
            method: self.scratch.head.method,
            worker: self.worker.clone(),
            policy: policy.clone(),
        };
        spawn_local(async move {
            copy.send(&upstream).await;
            drop(place);
        });
    }
}

struct Copy {
    request: Vec<u8>,
    method: Method,
    worker: Rc<Worker>,
    policy: Arc<TrafficPolicy>,
}

impl Copy {
    async fn send(&self, upstream: &Rc<LocalUpstream>) {
        let is_answered = matches!(timeout(TIME, self.exchange(upstream)).await, Ok(Some(())));
        let shard = self.policy.stats.of(self.worker.id);
        if is_answered { shard.mirrored.add(1) } else { shard.mirror_failures.add(1) }
    }

    /// Sends it to one endpoint, and reads what comes.
    async fn exchange(&self, upstream: &Rc<LocalUpstream>) -> Option<()> {
        let settings = &*self.policy.compiled.settings;
        let (wish, now) = (Wish::default(), Instant::now());
        let turn = upstream.pick(&Tried::default(), &wish, &settings.resilience, now);
        let pooled = turn.as_ref().and_then(|endpoint| upstream.pooled(endpoint, true, now, &self.worker));
        let mut connection = match pooled {
            Some(connection) => connection,
            None => {
                upstream.connect(&self.worker, (settings, &wish), &mut Tried::default(), turn).await.ok()?
            }
        };
        upstream.count_attempt(connection.endpoint());
        connection.socket.stream.write_all(&self.request).await.ok()?;
        connection.socket.stream.flush().await.ok()?;
        self.receive(connection).await
    }

    async fn receive(&self, mut connection: Connection) -> Option<()> {
        let settings = &*self.policy.compiled.settings;
        let limits = HeadLimits { bytes: settings.limits.response_head, headers: settings.limits.headers };
        let stream = &mut connection.socket.stream;
        let (head, behind) = stream.read_response_head(self.method, &limits).await.ok()?;
        self.drain(connection, &head, behind.len() as u64).await;
        Some(())
    }

    /// Reads a body whose length is known, so that the connection can be used again. All others end it.
    async fn drain(&self, mut connection: Connection, head: &ResponseHead, read: u64) -> Option<()> {
        let length = match head.framing {
            ResponseFraming::None => 0,
            ResponseFraming::Length(length) => length,
            ResponseFraming::Chunked | ResponseFraming::UntilClose => return None,
        };
        let mut rest = length.checked_sub(read).filter(|_| length <= RESPONSE_MAX)?;
        let mut piece = [0; 4096];
        while rest > 0 {
            let most = piece.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            match connection.socket.stream.read(&mut piece[..most]).await.ok()? {
                0 => return None,
                read => rest -= read as u64,
            }
        }
        if head.keep_alive {
            connection.recycle(&self.policy.compiled.settings, Instant::now(), head.keep_alive_timeout);
        }
        Some(())
    }
}
