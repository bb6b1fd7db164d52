//! Mirrored requests: copies whose responses are dropped.
//!
//! The gateway sends a copy after the response to the request itself, so that mirroring costs the client no time. A
//! request whose body is too long to buffer, or that changes the protocol, is not mirrored.

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
use crate::feature::traffic::TrafficPolicy;
use crate::upstream::{AvoidedEndpoints, Connection, EndpointPreference, LocalUpstream};
use crate::worker::Worker;

/// The limit of copies in flight of one worker.
const COPIES_MAX: usize = 64;

/// The time limit of a copy.
const TIME: Duration = Duration::from_secs(30);

/// The limit of a response's bytes that the gateway reads to reuse the connection.
const RESPONSE_MAX: u64 = 256 * 1024;

thread_local! {
    static COPIES: Cell<usize> = const { Cell::new(0) };
}

/// A copy in flight, counted until the value is dropped.
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
    /// Sends a copy of the request to each mirror. The request itself was sent completely.
    pub(super) fn mirror(&self) {
        let Some(Steered { policy, mirrors, .. }) = &self.steered else { return };
        if mirrors.is_empty() {
            return;
        }
        let failures = &policy.stats.of(self.worker.id).mirror_failures;
        let is_whole =
            self.upload.is_complete() && self.upload.is_replayable() && self.scratch.head.upgrade.is_none();
        if !is_whole {
            return failures.add(mirrors.len() as u64);
        }
        let request: Rc<[u8]> = self.scratch.request.as_slice().into();
        for slot in mirrors {
            let (Some(upstream), Some(place)) = (self.worker.upstream(*slot), Place::take()) else {
                failures.add(1);
                continue;
            };
            let copy = Copy {
                request: request.clone(),
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
}

struct Copy {
    /// The bytes of the request, which all its copies share.
    request: Rc<[u8]>,
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

    /// Sends the copy to one endpoint, and reads the response.
    async fn exchange(&self, upstream: &Rc<LocalUpstream>) -> Option<()> {
        let settings = &*self.policy.compiled.settings;
        let (preference, now) = (EndpointPreference::default(), Instant::now());
        let turn = upstream.pick(&AvoidedEndpoints::default(), &preference, &settings.resilience, now);
        let pooled = turn.as_ref().and_then(|endpoint| upstream.pooled(endpoint, true, now));
        let mut connection = match pooled {
            Some(connection) => connection,
            None => upstream
                .connect((settings, &preference), &mut AvoidedEndpoints::default(), turn)
                .await
                .ok()?,
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

    /// Reads a body with a known length, so that the connection can be used again. Any other body closes the connection.
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
