//! Mirrored requests: copies whose responses are dropped.
//!
//! The gateway sends a copy after the response to the request itself, so that mirroring costs the client no time. A
//! request whose body is too long to buffer, or that changes the protocol, is not mirrored.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use sluicegate_http1::{HeadLimits, Known, Method, ResponseFraming, ResponseHead};
use sluicegate_model::feature::mirror::MirrorForm;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

use super::encode::write_line;
use super::exchange::Exchange;
use super::steer::Steered;
use crate::feature::mirror::Receiver;
use crate::feature::traffic::TrafficPolicy;
use crate::name::is_same_name;
use crate::template::Place as TemplatePlace;
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
        let Some(Steered { mirrors, .. }) =
            self.steered.as_ref().filter(|steered| !steered.mirrors.is_empty())
        else {
            return;
        };
        let Some(policy) = self.traffic() else { return };
        let failures = &policy.stats.of(self.worker.id).mirror_failures;
        let is_whole =
            self.upload.is_complete() && self.upload.is_replayable() && self.scratch.head.upgrade.is_none();
        if !is_whole {
            return failures.add(mirrors.len() as u64);
        }
        let request: Rc<[u8]> = self.scratch.request.as_slice().into();
        for Receiver { slot, index } in mirrors {
            let form = policy.source().features.mirrors.get(*index).and_then(|mirror| mirror.form.as_deref());
            let request = match form {
                None => Some(request.clone()),
                Some(form) => self.formed(form, &request),
            };
            let upstream = self.worker.upstream(*slot);
            let (Some(upstream), Some(request), Some(place)) = (upstream, request, Place::take()) else {
                failures.add(1);
                continue;
            };
            let copy = Copy {
                request,
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

impl Exchange<'_> {
    /// A request in the form of a mirror; `None` if its target has no valid form.
    fn formed(
        &self,
        MirrorForm { target, host, drops_body }: &MirrorForm,
        request: &[u8],
    ) -> Option<Rc<[u8]>> {
        let head_end = memmem::find(request, b"\r\n\r\n")? + b"\r\n".len();
        let (head, body) = (&request[..head_end], &request[head_end + b"\r\n".len()..]);
        let mut lines = head.split_inclusive(|byte| *byte == b'\n').skip(1);
        let mut rendered = Vec::new();
        self.template_view().render(target, TemplatePlace::Url, &mut rendered).ok()?;
        let mut formed = Vec::with_capacity(request.len() + rendered.len());
        formed.extend_from_slice(self.head().method_name());
        formed.push(b' ');
        if !rendered.starts_with(b"/") {
            formed.push(b'/');
        }
        formed.extend_from_slice(&rendered);
        formed.extend_from_slice(b" HTTP/1.1\r\n");
        write_line(&mut formed, b"Host", host.as_bytes());
        let is_dropped = |name: &[u8]| match Known::of(name) {
            Known::Host => true,
            Known::ContentLength => *drops_body,
            _ => *drops_body && is_same_name(name, b"transfer-encoding"),
        };
        lines.by_ref().for_each(|line| {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            if !is_dropped(name) {
                formed.extend_from_slice(line);
            }
        });
        formed.extend_from_slice(b"\r\n");
        if !drops_body {
            formed.extend_from_slice(body);
        }
        Some(formed.into())
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
