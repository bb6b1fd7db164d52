//! Responses from the cache.

use std::sync::Arc;

use memchr::memchr_iter;
use sluicegate_http1::{HeadScan, MAX_HEADERS, Method};
use tokio::time::Instant;

use super::super::download::Body;
use super::super::exchange::{Exchange, Persist};
use super::super::refuse::Refusal;
use super::super::respond::Begun;
use super::{HitKind, limits};
use crate::buffer::BUFFER;
use crate::counters::{Tally, TrafficShard};
use crate::failure::{ClientFault, Failure};
use crate::feature::cache::{Entry, Part};
use crate::feature::traffic::TrafficPolicy;

impl Exchange<'_> {
    /// Responds with a cached response, and with further header lines of the endpoint.
    pub(super) async fn answer_from(
        &mut self,
        entry: &Arc<Entry>,
        way: HitKind,
        own: &[u8],
    ) -> Result<Persist, Refusal> {
        let now = Instant::now();
        let Some(policy) = self.traffic().cloned() else {
            return Err(Refusal::NotCached);
        };
        let ttl = entry.ttl(now);
        let hit;
        let (said, logged, tally): (_, _, fn(&TrafficShard) -> &Tally) = match way {
            HitKind::Hit => {
                hit = format!("hit; ttl={ttl}");
                (&*hit, "hit", |shard| &shard.cache_hits)
            }
            HitKind::Collapsed => ("fwd=miss; collapsed", "hit", |shard| &shard.cache_hits),
            HitKind::Revalidated => {
                ("fwd=stale; fwd-status=304", "revalidated", |shard| &shard.cache_revalidated)
            }
            HitKind::StaleIfError => {
                ("fwd=stale; detail=stale-if-error", "stale_if_error", |shard| &shard.cache_stale)
            }
        };
        self.tally_of(&policy, tally);
        self.tell(&policy, said, logged);
        let scratch = &mut *self.scratch;
        let (head, buf) = (&scratch.head, scratch.input.filled());
        let part = Part::of(head, buf).filter(|_| head.method == Method::Get);
        let shape = entry.shape(head, buf, part);
        let mut written = Vec::with_capacity(1024);
        entry.write_head(&mut written, &shape, now);
        // The position before the blank line.
        let end = written.len() - 2;
        let room = MAX_HEADERS.saturating_sub(lines_in(&written[..end]) - 1);
        written.splice(end..end, beginning(own, room).iter().copied());
        scratch.reply.clear();
        scratch.reply.append(&written);
        let (limits, method) = (limits(&written), scratch.head.method);
        let parsed = scratch.reply_head.parse(&written, &mut HeadScan::default(), method, &limits);
        if !parsed.map_err(Failure::BadResponse)? {
            return Err(Refusal::NotCached);
        }
        let body = if method == Method::Head { &[] } else { entry.body_in(&shape) };
        // The part of the body that fits beside the head leaves in one write with it.
        let beside = body.len().min(BUFFER.saturating_sub(written.len()));
        scratch.reply.append(&body[..beside]);
        let body = &body[beside..];
        let Begun { mut download, keep_alive, sent: begun, .. } = self.begin_response(None);
        let result = match begun {
            Ok(()) => self.download(Body::Buffered(body), &mut download).await,
            Err(_) => Err(ClientFault::Closed.into()),
        };
        self.record.bytes += download.bytes_out();
        self.record.complete = result.is_ok();
        if let Err(fault) = result {
            if self.client.has_streams() {
                self.client.wire.break_off();
            }
            self.count(fault);
            return Ok(Persist::Close);
        }
        Ok(self.persist(keep_alive))
    }

    /// Reports the effect of the cache to the client and to the log (RFC 9211).
    pub(super) fn tell(&mut self, policy: &TrafficPolicy, said: &str, logged: &'static str) {
        self.record.cache = Some(logged);
        if policy.compiled.reports_cache_status {
            let lines = &mut self.scratch.response_lines;
            for part in ["Cache-Status: sluicegate; ", said, "\r\n"] {
                lines.extend_from_slice(part.as_bytes());
            }
        }
    }

    pub(super) fn tally_of(&self, policy: &TrafficPolicy, tally: fn(&TrafficShard) -> &Tally) {
        tally(policy.stats.of(self.worker.id)).add(1);
    }
}

/// The number of header lines.
fn lines_in(lines: &[u8]) -> usize {
    memchr_iter(b'\n', lines).count()
}

/// The first header lines, at most `most`: the client could not parse a head with too many.
fn beginning(lines: &[u8], most: usize) -> &[u8] {
    match memchr_iter(b'\n', lines).nth(most) {
        None => lines,
        Some(_) => most
            .checked_sub(1)
            .and_then(|last| memchr_iter(b'\n', lines).nth(last))
            .map_or(&[], |end| &lines[..=end]),
    }
}
