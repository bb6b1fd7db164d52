//! Health checks of endpoints, if a policy requires them.
//!
//! One worker checks for all: all workers see the results, and the cost for an endpoint does not depend on the number of
//! workers.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use sluicegate_http1::{Chunk, ChunkedDecoder, HeadLimits, Method, ResponseFraming, ResponseHead};
use sluicegate_model::{HealthCheck, HealthCheckType, Protocol};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep_until, timeout};

use super::connect::open;
use super::local::{LocalEndpoint, LocalUpstream};
use crate::deadline::after;
use crate::stream::{Http2Connections, Stream};

/// How many endpoints of an upstream are checked at the same time.
const AT_A_TIME: usize = 32;

/// The limits of a response's head.
const LIMITS: HeadLimits = HeadLimits { bytes: 16 * 1024, headers: 100 };

/// Consecutive checks of an endpoint with the same result.
#[derive(Clone, Copy, Default)]
struct Streak {
    good: u32,
    bad: u32,
}

impl LocalUpstream {
    /// Starts the health checks, if a policy requires them and they do not run already. The task ends by itself.
    pub(crate) fn start_health_checks(self: &Rc<Self>) {
        if self.health_check().is_some() && !self.checking.replace(true) {
            spawn_local(run_health_checks(self.clone()));
        }
    }
}

/// Checks in rounds, until no policy requires checks.
async fn run_health_checks(upstream: Rc<LocalUpstream>) {
    let mut streaks: HashMap<u64, Streak> = HashMap::new();
    let mut asked = Instant::now();
    while let Some(check) = upstream.health_check() {
        // Jitter, so that the checks of many upstreams and data planes do not coincide.
        let due = after(asked, check.interval.get().mul_f64(0.9 + 0.2 * fastrand::f64()));
        tokio::select! {
            biased;
            // The settings of the checks may have changed.
            () = upstream.changed.notified() => continue,
            () = sleep_until(due) => asked = Instant::now(),
        }
        let endpoints = upstream.eligible();
        streaks.retain(|id, _| endpoints.iter().any(|endpoint| endpoint.shared.id == *id));
        for some in endpoints.chunks(AT_A_TIME) {
            let asks: Vec<(_, JoinHandle<bool>)> = some
                .iter()
                .map(|endpoint| {
                    (endpoint, spawn_local(ask(upstream.clone(), endpoint.clone(), check.clone())))
                })
                .collect();
            for (endpoint, ask) in asks {
                let is_good = ask.await.unwrap_or(false);
                upstream.note_check(
                    endpoint,
                    &check,
                    is_good,
                    streaks.entry(endpoint.shared.id).or_default(),
                );
            }
        }
    }
    // Results have no effect after the checks end.
    for endpoint in upstream.endpoints() {
        endpoint.shared.set_failing(false);
    }
    upstream.checking.set(false);
}

impl LocalUpstream {
    fn note_check(&self, endpoint: &LocalEndpoint, check: &HealthCheck, is_good: bool, streak: &mut Streak) {
        self.stats().checks.add(1);
        *streak = match is_good {
            true => Streak { good: streak.good.saturating_add(1), bad: 0 },
            false => {
                self.stats().checks_failed.add(1);
                Streak { good: 0, bad: streak.bad.saturating_add(1) }
            }
        };
        let changed = match *streak {
            Streak { good, .. } if good >= u32::from(check.healthy_threshold.get()) => {
                endpoint.shared.set_failing(false)
            }
            Streak { bad, .. } if bad >= u32::from(check.unhealthy_threshold.get()) => {
                endpoint.shared.set_failing(true)
            }
            Streak { .. } => false,
        };
        if !changed {
            return;
        }
        let (upstream, address) = (self.shared.key(), endpoint.shared.address());
        if is_good {
            self.stats().readmissions.add(1);
            tracing::info!(%upstream, endpoint = %address, "the endpoint passes its health checks again");
        } else {
            self.stats().ejections.add(1);
            tracing::warn!(%upstream, endpoint = %address, "the endpoint fails its health checks; the gateway avoids it while other endpoints are healthy");
        }
    }
}

/// Checks one endpoint.
async fn ask(upstream: Rc<LocalUpstream>, endpoint: Rc<LocalEndpoint>, check: HealthCheck) -> bool {
    let address = endpoint.shared.address();
    let asked = timeout(check.timeout.get(), exchange(&upstream, address, &check));
    match asked.await {
        Ok(Ok(is_good)) => is_good,
        Ok(Err(error)) => {
            tracing::debug!(%address, %error, "a health check failed");
            false
        }
        Err(_) => {
            tracing::debug!(%address, "a health check timed out");
            false
        }
    }
}

async fn exchange(upstream: &LocalUpstream, address: SocketAddr, check: &HealthCheck) -> io::Result<bool> {
    let is_grpc = check.kind == HealthCheckType::Grpc;
    let is_http2 = is_grpc || upstream.shared.key().transport.protocol == Protocol::Http2;
    // A separate connection: a shared connection would show its own state, not the endpoint's.
    let http2 =
        (is_http2 && check.kind != HealthCheckType::Tcp).then(|| Rc::new(Http2Connections::default()));
    let opened = open((address, None), upstream.security(), http2.clone(), check.timeout.get()).await;
    let mut stream = opened.map_err(io::Error::other)?;
    let is_good = match check.kind {
        HealthCheckType::Tcp => true,
        HealthCheckType::Http => {
            let path = check.target();
            let host = check.hostname.as_ref().map_or_else(|| address.to_string(), ToString::to_string);
            let close = if is_http2 { "" } else { "Connection: close\r\n" };
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sluicegate-health-check\r\nAccept: */*\r\n{close}\r\n"
            );
            let (head, _) = answer(&mut stream, request.as_bytes()).await?;
            check.passes(head.status)
        }
        HealthCheckType::Grpc => {
            is_serving(&mut stream, address, check.service.as_deref().unwrap_or_default()).await?
        }
    };
    if let Some(connections) = http2 {
        connections.clear();
    }
    Ok(is_good)
}

/// Sends a request, and reads the head of the final response and the bytes behind it.
async fn answer(stream: &mut Stream, request: &[u8]) -> io::Result<(ResponseHead, Vec<u8>)> {
    stream.write_all(request).await?;
    stream.flush().await?;
    stream.read_response_head(Method::Get, &LIMITS).await
}

/// Checks the health of a service (grpc.health.v1, "GRPC Health Checking Protocol").
async fn is_serving(stream: &mut Stream, address: SocketAddr, service: &str) -> io::Result<bool> {
    // HealthCheckRequest: the service is field 1. Names are short enough for a length of one or two bytes.
    let mut message = Vec::new();
    if !service.is_empty() {
        let length = service.len();
        message.push(0x0a);
        match length {
            0..128 => message.push((length & 0x7f) as u8),
            _ => message.extend([(length & 0x7f) as u8 | 0x80, (length >> 7 & 0x7f) as u8]),
        }
        message.extend_from_slice(service.as_bytes());
    }
    let mut request = format!(
        "POST /grpc.health.v1.Health/Check HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/grpc\r\nTE: trailers\r\n\
         User-Agent: sluicegate-health-check\r\nContent-Length: {}\r\n\r\n",
        5 + message.len()
    )
    .into_bytes();
    request.push(0);
    request.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    request.extend_from_slice(&message);
    let (head, mut bytes) = answer(stream, &request).await?;
    // HealthCheckResponse: the status is field 1, and 1 is SERVING.
    const SERVING: [u8; 7] = [0, 0, 0, 0, 2, 0x08, 1];
    if head.framing != ResponseFraming::Chunked {
        while bytes.len() < SERVING.len() && stream.read_buf(&mut bytes).await? > 0 {}
        return Ok(head.status == 200 && bytes == SERVING);
    }
    let (mut decoder, mut body) = (ChunkedDecoder::default(), Vec::new());
    while head.status == 200 && body.len() < SERVING.len() {
        let (used, chunk) = decoder.next(&bytes).map_err(io::Error::other)?;
        match chunk {
            Chunk::Data(data) => body.extend_from_slice(data),
            Chunk::End | Chunk::Trailers(_) => break,
            Chunk::Partial => {}
        }
        bytes.drain(..used);
        if used == 0 && stream.read_buf(&mut bytes).await? == 0 {
            break;
        }
    }
    Ok(body == SERVING)
}
