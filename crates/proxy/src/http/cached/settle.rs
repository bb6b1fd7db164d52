//! Effects of endpoints' responses on the cache.

use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use sluicegate_http1::{HeadScan, Known, Method, ResponseHead};
use sluicegate_model::feature as model;
use tokio::time::Instant;

use super::super::encode::copy_lines;
use super::super::exchange::{Exchange, Persist};
use super::super::refuse::Refusal;
use super::key::invalidate;
use super::{Cached, HitKind, limits};
use crate::feature::cache::{
    Asked, Collector, Compared, Draft, Entry, Flight, Outcome, Times, is_of_bytes, withdraws,
};
use crate::upstream::{Connection, LocalUpstream};
use crate::worker::Worker;

/// The result of an endpoint's response for the client.
pub(in crate::http) enum ResponseAction {
    /// The cached response has served the client instead.
    Answered(Persist),
    /// The response goes to the client.
    ForwardResponse(Connection),
}

impl Exchange<'_> {
    /// Applies an endpoint's response to the cache, and decides whether the cached response serves the client instead.
    pub(in crate::http) async fn settle(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        connection: Connection,
    ) -> Result<ResponseAction, Refusal> {
        let (Some(mut cached), Some(policy)) = (self.cached.take(), self.traffic().cloned()) else {
            return Ok(ResponseAction::ForwardResponse(connection));
        };
        let status = self.scratch.reply_head.status;
        if !matches!(self.scratch.head.method, Method::Get | Method::Head) {
            if matches!(status, 200..=399) {
                let reply = (&self.scratch.reply_head, self.scratch.reply.filled());
                invalidate(&cached.cache, &cached.asked, &self.view(), reply);
            }
            return Ok(ResponseAction::ForwardResponse(connection));
        }
        let now = Instant::now();
        let renewed = match (status, cached.revalidates, cached.stale.take()) {
            (304, true, Some(stale)) => {
                let reply = (&self.scratch.reply_head, self.scratch.reply.filled());
                let times = times(self.worker, self.record.asked, now);
                let flight = cached.flight.take();
                let renewed = flight.and_then(|flight| {
                    renew(flight, &cached.asked, &self.scratch.request, &stale, reply, &times)
                });
                let own = self.lines_of_one(renewed.as_deref());
                Some((renewed.unwrap_or(stale), HitKind::Revalidated, own))
            }
            (500 | 502..=504, _, Some(stale)) if stale.may_serve_if_error(&cached.asked, now) => {
                if let Some(flight) = &cached.flight {
                    flight.ends(Outcome::Failed);
                }
                Some((stale, HitKind::StaleIfError, Vec::new()))
            }
            (.., stale) => {
                cached.stale = stale;
                None
            }
        };
        if let Some((entry, way, own)) = renewed {
            // Other requests must not wait for this client.
            drop(cached);
            self.note_response(upstream, &connection.endpoint().clone());
            self.leave(connection);
            return self.answer_from(&entry, way, &own).await.map(ResponseAction::Answered);
        }
        let is_kept = self.collect(&mut cached, now);
        let why = cached.why(now);
        self.tell(&policy, &format!("fwd={why}{}", if is_kept { "; stored" } else { "" }), why);
        self.cached = cached.collector.is_some().then_some(cached);
        Ok(ResponseAction::ForwardResponse(connection))
    }

    /// The collector of the response, if the response is to be cached.
    pub(in crate::http) fn collector(&mut self) -> Option<Box<Collector>> {
        self.cached.take()?.collector
    }

    /// The header lines of a 304 for its own client. The cached response is served to other clients without these lines.
    fn lines_of_one(&self, renewed: Option<&Entry>) -> Vec<u8> {
        let (buf, mut own) = (self.scratch.reply.filled(), Vec::new());
        copy_lines(&mut own, buf, &self.scratch.reply_head.lines, |line| {
            let name = line.name.of(buf);
            match renewed {
                None => line.known == Known::SetCookie || name.eq_ignore_ascii_case(b"cache-control"),
                Some(entry) => {
                    let is_own = [Known::ContentLength, Known::ContentEncoding].contains(&line.known)
                        || is_of_bytes(name)
                        || name.eq_ignore_ascii_case(b"age");
                    !line.hop_by_hop && !is_own && !entry.has_line(name)
                }
            }
        });
        own
    }

    /// Renews or removes a cached response by the response to a HEAD of the same target (RFC 9111, 4.3.5).
    fn compare(&self, cached: &Cached, now: Instant) {
        let (head, buf) = (&self.scratch.reply_head, self.scratch.reply.filled());
        let Some(stored) = &cached.stale else { return };
        if self.scratch.head.method != Method::Head || head.status != 200 || cached.asked.has_credentials {
            return;
        }
        match stored.compared_with(head, buf) {
            Compared::Unknown => {}
            Compared::Other => cached.cache.remove(stored),
            Compared::Same => {
                let times = times(self.worker, self.record.asked, now);
                let renewed = renewed(
                    &cached.asked,
                    cached.cache.rules(),
                    &self.scratch.request,
                    stored,
                    (head, buf),
                    &times,
                );
                match renewed {
                    None => cached.cache.remove(stored),
                    Some(draft) => {
                        if let Some(entry) = stored.renewed(draft, &cached.cache) {
                            cached.cache.replace(stored, entry);
                        }
                    }
                }
            }
        }
    }

    /// Begins to collect a response, if it may be cached. Returns whether it does.
    fn collect(&self, cached: &mut Cached, now: Instant) -> bool {
        let head = &self.scratch.reply_head;
        if !cached.asked.has_credentials
            && let Some(stale) = &cached.stale
            && withdraws(head, self.scratch.reply.filled())
        {
            cached.cache.remove(stale);
        }
        self.compare(cached, now);
        let (Some(flight), Some(policy)) = (cached.flight.take(), self.traffic()) else { return false };
        let (request, reply) = (&self.scratch.request, (head, self.scratch.reply.filled()));
        let times = times(self.worker, self.record.asked, now);
        let draft = Draft::of(&cached.asked, request, reply, cached.cache.rules(), &times);
        let Some(draft) = draft else {
            flight.is_of_no_use();
            return false;
        };
        flight.ends(Outcome::NotShareable);
        let stats = (policy.stats.clone(), self.worker.id);
        cached.collector = Collector::new(flight, draft, head.framing, stats).map(Box::new);
        cached.collector.is_some()
    }

    /// Returns a connection whose response was not needed to the pool, if the connection is clean.
    fn leave(&self, connection: Connection) {
        let head = &self.scratch.reply_head;
        let is_clean = head.framing == sluicegate_http1::ResponseFraming::None
            && self.scratch.reply.len() == head.len
            && self.upload.is_sent();
        if head.keep_alive && is_clean {
            connection.recycle(&self.snapshot.settings, Instant::now(), head.keep_alive_timeout);
        }
    }
}

/// The cached response, updated by a 304. `None` if the update forbids caching.
pub(super) fn renew(
    flight: Flight,
    asked: &Asked,
    request: &[u8],
    stale: &Arc<Entry>,
    (head, buf): (&ResponseHead, &[u8]),
    times: &Times,
) -> Option<Arc<Entry>> {
    let cache = flight.cache().clone();
    let is_other = stale.is_other_than(head.find(buf, "etag"));
    let draft = renewed(asked, cache.rules(), request, stale, (head, buf), times).filter(|_| !is_other);
    let Some(draft) = draft else {
        cache.remove(stale);
        flight.is_of_no_use();
        return None;
    };
    let Some(entry) = stale.renewed(draft, &cache).map(Arc::new) else {
        flight.ends(Outcome::NotShareable);
        return None;
    };
    flight.keep(entry.clone());
    Some(entry)
}

/// The head of a cached response, updated by another head. `None` if the update forbids caching.
fn renewed(
    asked: &Asked,
    rules: &model::Cache,
    request: &[u8],
    stored: &Entry,
    (head, buf): (&ResponseHead, &[u8]),
    times: &Times,
) -> Option<Draft> {
    let mut bytes = stored.renewed_head(head, buf);
    bytes.extend_from_slice(b"\r\n");
    let (mut head, limits) = (ResponseHead::default(), limits(&bytes));
    let is_parsed = head.parse(&bytes, &mut HeadScan::default(), Method::Head, &limits).unwrap_or(false);
    is_parsed.then(|| Draft::of(asked, request, (&head, &bytes), rules, times)).flatten()
}

/// The times of a request to an endpoint and of its response.
pub(super) fn times(worker: &Worker, asked: Instant, now: Instant) -> Times {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Times { asked, now, date: (since.as_secs(), worker.date()) }
}
