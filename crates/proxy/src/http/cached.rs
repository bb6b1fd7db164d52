//! Where the cache meets the life of a request: answers without an endpoint, and what is kept of those that endpoints give.

use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use sluicegate_http1::{HeadLimits, HeadScan, Known, Line, Method, RequestFraming, ResponseHead};
use sluicegate_model::UpstreamKey;
use tokio::time::Instant;

use super::download::Body;
use super::encode::{copy_lines, is_same_name};
use super::exchange::{Exchange, Persist};
use super::refuse::Refusal;
use super::respond::Begun;
use crate::cache::{
    Asked, Cache, Collector, Draft, Entered, Entry, Flight, Outcome, RequestDirectives, Times, UnderWay,
    WAIT, is_condition, sent, withdraws,
};
use crate::failure::{ClientFault, Failure, Fault};
use crate::policy::Guard;
use crate::policy::traffic::TrafficPolicy;
use crate::telemetry::{Tally, TrafficShard};
use crate::upstream::{Connection, LocalUpstream};
use crate::worker::BUFFER;

/// A request on its way to an endpoint, whose response may be kept.
pub(super) struct Cached {
    cache: Arc<Cache>,
    asked: Asked,
    /// Others may wait for what it asks for.
    flight: Option<Flight>,
    /// What was kept, and cannot be used without asking.
    stale: Option<Arc<Entry>>,
    /// Whether the endpoint is asked if that still holds.
    revalidates: bool,
    collector: Option<Box<Collector>>,
}

/// How a response that was kept came to answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Hit,
    /// Another request has brought it.
    Collapsed,
    /// The endpoint says that it still holds.
    Revalidated,
    /// The endpoint has failed.
    StandsIn,
}

/// What becomes of an endpoint's response.
pub(super) enum Settled {
    /// What is kept has answered in its place.
    Answered(Persist),
    /// It goes on to the client.
    GoesOn(Connection),
}

impl Exchange<'_> {
    /// Whether the policy of the route keeps responses.
    pub(super) fn keeps_responses(&self) -> bool {
        self.steered.as_ref().is_some_and(|steered| steered.policy.compiled.cache.is_some())
    }

    /// Looks for a response that was kept. Gives what became of the client's connection if one has answered.
    pub(super) async fn consult(&mut self, upstream: &LocalUpstream) -> Result<Option<Persist>, Refusal> {
        let Some(policy) = self.steered.as_ref().map(|steered| steered.policy.clone()) else {
            return Ok(None);
        };
        let Some(cache) = policy.compiled.cache.clone() else { return Ok(None) };
        let asked = self.asked(&cache, upstream.shared.key());
        let method = self.scratch.head.method;
        if !matches!(method, Method::Get | Method::Head) {
            self.tell(&policy, "fwd=method", "bypass");
            if !matches!(method, Method::Options) {
                self.cached = Some(Box::new(Cached::new(cache, asked)));
            }
            return Ok(None);
        }
        if asked.directives.no_store || self.passes_by() {
            self.tally_of(&policy, |shard| &shard.cache_bypassed);
            self.tell(&policy, "fwd=bypass", "bypass");
            return Ok(None);
        }
        let until = self.record.started + WAIT;
        let is_get = method == Method::Get;
        // What others asked for before does not serve who wants it newer than that.
        let wants_newest =
            asked.directives.no_cache || asked.directives.max_age.is_some_and(|age| age.is_zero());
        let (mut waits, mut way) = (is_get && !wants_newest, Way::Hit);
        let mut cached = Cached::new(cache, asked);
        loop {
            let now = Instant::now();
            match cached.cache.enter(&cached.asked, &self.scratch.request, (waits, is_get), now) {
                Entered::Kept(entry) => return self.answer_from(&entry, way, &[]).await.map(Some),
                Entered::Leads(flight, stale) => {
                    (cached.flight, cached.stale) = (Some(flight), stale);
                    break;
                }
                Entered::Alone(stale) => {
                    cached.stale = stale;
                    break;
                }
                Entered::Waits(under_way, stale) => {
                    let outcome = self.wait_for(&under_way, until).await?;
                    let now = Instant::now();
                    let is_late = self.wanted_by.is_some_and(|due| now >= due);
                    if (is_late || outcome == Some(Outcome::Failed))
                        && let Some(entry) = stale.filter(|entry| entry.may_stand_in(&cached.asked, now))
                    {
                        return self.answer_from(&entry, Way::StandsIn, &[]).await.map(Some);
                    }
                    if is_late {
                        return Err(Failure::ResponseTimeout.into());
                    }
                    way = Way::Collapsed;
                    // Who went away, or takes too long, is followed by one of those that wait.
                    waits = matches!(outcome, None | Some(Outcome::Lost)) && now < until;
                }
            }
        }
        if cached.asked.directives.only_if_cached {
            return Err(Refusal::NotKept);
        }
        if let (Some(_), Some(stale)) = (&cached.flight, &cached.stale) {
            cached.revalidates = stale.ask_whether_it_holds(&mut self.scratch.request);
        }
        self.tally_of(&policy, |shard| &shard.cache_misses);
        self.record.cache = Some(cached.why(Instant::now()));
        self.cached = Some(Box::new(cached));
        Ok(None)
    }

    /// What is asked for, as an endpoint is about to be asked.
    fn asked(&self, cache: &Cache, upstream: &UpstreamKey) -> Asked {
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let mut key = Vec::with_capacity(256);
        let mut part = |bytes: &[u8]| {
            key.extend_from_slice(&bytes.len().to_le_bytes());
            key.extend_from_slice(bytes);
        };
        part(if self.client.origin.is_https(self.trusted, head, buf) { b"https" } else { b"http" });
        part(&head.authority.map_or(&[][..], |authority| authority.of(buf)).to_ascii_lowercase());
        // Endpoints make links and redirects of it.
        part(&self.client.origin.listener.port().to_le_bytes());
        part(self.path());
        let query = match &self.scratch.query {
            Some(query) => Some(&**query).filter(|query| !query.is_empty()),
            None => head.query.map(|query| query.of(buf)),
        };
        part(if query.is_some() { b"?" } else { b"" });
        part(query.unwrap_or_default());
        // Endpoints make links and redirects of these.
        if self.trusted {
            for line in head.lines.iter().filter(|line| is_believed(line, buf)) {
                part(&line.name.of(buf).to_ascii_lowercase());
                part(line.value.of(buf));
            }
        }
        for name in &cache.rules().key_headers {
            part(&sent(&self.scratch.request, name.as_bytes()));
        }
        let has = |known| head.header(buf, known).is_some();
        Asked {
            key: key.into(),
            upstream: upstream.clone(),
            lines: self.scratch.request_lines[self.trace_lines..].into(),
            directives: RequestDirectives::of(head, buf),
            has_credentials: has(Known::Authorization) || has(Known::ProxyAuthorization),
            has_cookie: has(Known::Cookie),
            is_conditional: head.lines.iter().any(|line| is_condition(line.name.of(buf))),
        }
    }

    /// Whether a request has nothing to do with what is kept.
    fn passes_by(&self) -> bool {
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let target = self.record.route.map(|route| self.snapshot.table.target(route));
        // Who says who it is may get what is for nobody else, and not by a header that caches know of.
        let is_identified = !self.client.origin.identity.is_empty()
            || target.is_some_and(|target| {
                target.client_auth.is_some() || target.guard.as_deref().is_some_and(Guard::identifies)
            });
        is_identified
            || head.authority.is_none()
            || head.upgrade.is_some()
            || !matches!(head.framing, RequestFraming::None)
            || head.lines.iter().any(|line| line.known == Known::Other && is_special(line.name.of(buf)))
            // The endpoint gets it as it came, and the key has it in one form.
            || head.authority.is_some_and(|host| host.of(buf).iter().any(u8::is_ascii_uppercase))
    }

    /// Waits until another request has brought what is wanted, or time is over.
    async fn wait_for(&mut self, under_way: &UnderWay, until: Instant) -> Result<Option<Outcome>, Refusal> {
        let until = until.min(under_way.until());
        let until = self.wanted_by.map_or(until, |due| due.min(until));
        Ok(self.awaited(under_way.end(), Some(until)).await?)
    }

    /// No endpoint has answered: others need not wait for this one. Gives what was kept for such a time.
    pub(super) fn stand_in(&mut self, fault: Fault) -> Option<Arc<Entry>> {
        let cached = self.cached.take()?;
        if !matches!(fault, Fault::Upstream(_)) {
            return None;
        }
        if let Some(flight) = &cached.flight {
            flight.ends(Outcome::Failed);
        }
        cached.stale.filter(|entry| entry.may_stand_in(&cached.asked, Instant::now()))
    }

    /// Answers by what was kept, since no endpoint does.
    pub(super) async fn answer_in_need(&mut self, entry: &Arc<Entry>) -> Result<Persist, Refusal> {
        self.answer_from(entry, Way::StandsIn, &[]).await
    }

    /// An endpoint has answered: decides what becomes of what is kept, and whether that answers in its place.
    pub(super) async fn settle(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        connection: Connection,
    ) -> Result<Settled, Refusal> {
        let (Some(mut cached), Some(steered)) = (self.cached.take(), &self.steered) else {
            return Ok(Settled::GoesOn(connection));
        };
        let policy = steered.policy.clone();
        let status = self.scratch.reply_head.status;
        if !matches!(self.scratch.head.method, Method::Get | Method::Head) {
            // RFC 9111, 4.4: what an unsafe request has changed.
            if matches!(status, 200..=399) {
                cached.cache.invalidate(&cached.asked.key);
            }
            return Ok(Settled::GoesOn(connection));
        }
        let now = Instant::now();
        let renewed = match (status, cached.revalidates, cached.stale.take()) {
            (304, true, Some(stale)) => {
                let renewed = self.renew(&mut cached, &stale, now);
                let own = if renewed.is_none() { self.what_is_not_kept() } else { Vec::new() };
                Some((renewed.unwrap_or(stale), Way::Revalidated, own))
            }
            (500 | 502..=504, _, Some(stale)) if stale.may_stand_in(&cached.asked, now) => {
                if let Some(flight) = &cached.flight {
                    flight.ends(Outcome::Failed);
                }
                Some((stale, Way::StandsIn, Vec::new()))
            }
            (.., stale) => {
                cached.stale = stale;
                None
            }
        };
        if let Some((entry, way, own)) = renewed {
            // Nobody waits for this client.
            drop(cached);
            self.note_response(upstream, &connection.endpoint().clone());
            self.leave(connection);
            return self.answer_from(&entry, way, &own).await.map(Settled::Answered);
        }
        let is_kept = self.collect(&mut cached, now);
        let why = cached.why(now);
        self.tell(&policy, &format!("fwd={why}{}", if is_kept { "; stored" } else { "" }), why);
        self.cached = cached.collector.is_some().then_some(cached);
        Ok(Settled::GoesOn(connection))
    }

    /// What is to be collected of the response.
    pub(super) fn collector(&mut self) -> Option<Box<Collector>> {
        self.cached.take()?.collector
    }

    /// What is kept, with what a 304 says of it. None if it is not kept any longer.
    fn renew(&self, cached: &mut Cached, stale: &Arc<Entry>, now: Instant) -> Option<Arc<Entry>> {
        let flight = cached.flight.take()?;
        let (reply_head, reply) = (&self.scratch.reply_head, self.scratch.reply.filled());
        let etag = reply_head.lines.iter().find(|line| line.name.of(reply).eq_ignore_ascii_case(b"etag"));
        if stale.is_other_than(etag.map(|line| line.value.of(reply))) {
            cached.cache.remove(stale);
            flight.is_of_no_use();
            return None;
        }
        let mut bytes = stale.renewed_head(&self.scratch.reply_head, self.scratch.reply.filled());
        bytes.extend_from_slice(b"\r\n");
        let mut head = ResponseHead::default();
        let times = self.times(now);
        let limits = limits(&bytes);
        let is_parsed = head.parse(&bytes, &mut HeadScan::default(), Method::Head, &limits).unwrap_or(false);
        let draft = is_parsed.then(|| {
            let request = &self.scratch.request;
            Draft::of(&cached.asked, request, (&head, &bytes), cached.cache.rules(), &times)
        });
        let Some(draft) = draft.flatten() else {
            cached.cache.remove(stale);
            flight.is_of_no_use();
            return None;
        };
        let Some(entry) = stale.renewed(draft, &cached.cache).map(Arc::new) else {
            flight.ends(Outcome::OfNoUse);
            return None;
        };
        flight.keep(entry.clone());
        Some(entry)
    }

    /// The header lines by which a 304 speaks to its own client alone: they go on with what was kept before.
    fn what_is_not_kept(&self) -> Vec<u8> {
        let (buf, mut own) = (self.scratch.reply.filled(), Vec::new());
        copy_lines(&mut own, buf, &self.scratch.reply_head.lines, |line| {
            line.known == Known::SetCookie || line.name.of(buf).eq_ignore_ascii_case(b"cache-control")
        });
        own
    }

    /// Begins to collect a response, if it is to be kept. Whether it is.
    fn collect(&self, cached: &mut Cached, now: Instant) -> bool {
        let head = &self.scratch.reply_head;
        if !cached.asked.has_credentials
            && let Some(stale) = &cached.stale
            && withdraws(head, self.scratch.reply.filled())
        {
            cached.cache.remove(stale);
        }
        let (Some(flight), Some(steered)) = (cached.flight.take(), &self.steered) else { return false };
        let (request, reply) = (&self.scratch.request, (head, self.scratch.reply.filled()));
        let draft = Draft::of(&cached.asked, request, reply, cached.cache.rules(), &self.times(now));
        let Some(draft) = draft else {
            flight.is_of_no_use();
            return false;
        };
        flight.ends(Outcome::OfNoUse);
        let stats = (steered.policy.stats.clone(), self.worker.id);
        cached.collector = Collector::new(flight, draft, head.framing, stats).map(Box::new);
        cached.collector.is_some()
    }

    fn times(&self, now: Instant) -> Times {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Times { asked: self.record.asked, now, date: (since.as_secs(), self.worker.date()) }
    }

    /// Keeps a connection whose response was not needed, if it is clean.
    fn leave(&self, connection: Connection) {
        let head = &self.scratch.reply_head;
        let is_clean = head.framing == sluicegate_http1::ResponseFraming::None
            && self.scratch.reply.len() == head.len
            && self.upload.is_sent();
        if head.keep_alive && is_clean {
            connection.recycle(&self.snapshot.settings, Instant::now(), head.keep_alive_timeout);
        }
    }

    /// Answers by what is kept, with further header lines of the endpoint.
    async fn answer_from(&mut self, entry: &Arc<Entry>, way: Way, own: &[u8]) -> Result<Persist, Refusal> {
        let now = Instant::now();
        let Some(policy) = self.steered.as_ref().map(|steered| steered.policy.clone()) else {
            return Err(Refusal::NotKept);
        };
        let ttl = entry.ttl(now);
        let hit;
        let (said, logged, tally): (_, _, fn(&TrafficShard) -> &Tally) = match way {
            Way::Hit => {
                hit = format!("hit; ttl={ttl}");
                (&*hit, "hit", |shard| &shard.cache_hits)
            }
            Way::Collapsed => ("fwd=miss; collapsed", "hit", |shard| &shard.cache_hits),
            Way::Revalidated => {
                ("fwd=stale; fwd-status=304", "revalidated", |shard| &shard.cache_revalidated)
            }
            Way::StandsIn => {
                ("fwd=stale; detail=stale-if-error", "stale_if_error", |shard| &shard.cache_stale)
            }
        };
        self.tally_of(&policy, tally);
        self.tell(&policy, said, logged);
        let scratch = &mut *self.scratch;
        let is_known = entry.is_known_to(&scratch.head, scratch.input.filled());
        let mut written = Vec::with_capacity(1024);
        entry.write_head(&mut written, is_known, now);
        // Before the blank line.
        let end = written.len() - 2;
        written.splice(end..end, own.iter().copied());
        scratch.reply.clear();
        scratch.reply.append(&written);
        let (limits, method) = (limits(&written), scratch.head.method);
        let parsed = scratch.reply_head.parse(&written, &mut HeadScan::default(), method, &limits);
        if !parsed.map_err(Failure::BadResponse)? {
            return Err(Refusal::NotKept);
        }
        let has_body = !is_known && method != Method::Head;
        let body = if has_body { &entry.body[..] } else { &[] };
        // What fits beside the head goes in one write with it.
        let beside = body.len().min(BUFFER.saturating_sub(written.len()));
        scratch.reply.append(&body[..beside]);
        let body = &body[beside..];
        let Begun { mut download, keep_alive, sent: begun, .. } = self.begin_response(None);
        let result = match begun {
            Ok(()) => self.download(Body::Kept(body), &mut download).await,
            Err(_) => Err(ClientFault::Closed.into()),
        };
        self.record.bytes += download.bytes_out();
        self.record.complete = result.is_ok();
        if let Err(fault) = result {
            if self.client.is_http2() {
                self.client.wire.break_off();
            }
            self.count(fault);
            return Ok(Persist::Close);
        }
        Ok(self.persist(keep_alive))
    }

    /// Says to the client and to the log what the cache had to do with it (RFC 9211).
    fn tell(&mut self, policy: &TrafficPolicy, said: &str, logged: &'static str) {
        self.record.cache = Some(logged);
        if policy.compiled.tells_of_cache {
            let lines = &mut self.scratch.response_lines;
            for part in ["Cache-Status: sluicegate; ", said, "\r\n"] {
                lines.extend_from_slice(part.as_bytes());
            }
        }
    }

    fn tally_of(&self, policy: &TrafficPolicy, tally: fn(&TrafficShard) -> &Tally) {
        tally(policy.stats.of(self.worker.id)).add(1);
    }
}

impl Cached {
    /// Why an endpoint is asked (RFC 9211, 2.2): there is nothing, or what is kept does not hold, or the request alone wants it
    /// newer.
    fn why(&self, now: Instant) -> &'static str {
        match &self.stale {
            None => "miss",
            Some(entry) if entry.holds(now) => "request",
            Some(_) => "stale",
        }
    }

    fn new(cache: Arc<Cache>, asked: Asked) -> Self {
        Self { cache, asked, flight: None, stale: None, revalidates: false, collector: None }
    }
}

/// Limits that a head which was accepted before keeps.
fn limits(head: &[u8]) -> HeadLimits {
    HeadLimits { bytes: head.len() + 1, headers: usize::MAX }
}

/// Whether a trusted peer says by this line what a client asked it for, or who the client is.
fn is_believed(line: &Line, buf: &[u8]) -> bool {
    let begins = |with: &str| {
        let name = line.name.of(buf).get(..with.len());
        name.is_some_and(|start| is_same_name(start, with.as_bytes()))
    };
    match line.known {
        Known::XForwardedFor => false,
        Known::Forwarded
        | Known::XForwardedHost
        | Known::XForwardedPort
        | Known::XForwardedPrefix
        | Known::XForwardedProto
        | Known::XForwardedScheme
        | Known::XScheme => true,
        _ => begins("x-forwarded-") || begins("x-consumer-"),
    }
}

/// Whether a request with this header is for the endpoint alone: it wants a part, sets conditions that only the endpoint knows
/// of (RFC 9111, 4.3.2), or means another method, scheme, host or target than it has, for some endpoints.
fn is_special(name: &[u8]) -> bool {
    const NAMES: [&str; 14] = [
        "range",
        "if-range",
        "if-match",
        "if-unmodified-since",
        "base-url",
        "cf-visitor",
        "cloudfront-forwarded-proto",
        "destination",
        "front-end-https",
        "http-host",
        "request-uri",
        "ssl-offloaded",
        "wl-proxy-ssl",
        "x-forwarded",
    ];
    const ENDS: [&str; 10] = [
        "-host",
        "-url",
        "-uri",
        "-path",
        "-proto",
        "-scheme",
        "-ssl",
        "-method",
        "-override",
        "-destinationurl",
    ];
    let begins =
        |start: &str| name.get(..start.len()).is_some_and(|begin| is_same_name(begin, start.as_bytes()));
    let ends = |end: &&str| {
        let at = name.len().checked_sub(end.len());
        at.is_some_and(|at| is_same_name(&name[at..], end.as_bytes()))
    };
    // Those of trusted peers are part of the key, and others do not pass.
    let is_forwarding = begins("x-forwarded-");
    NAMES.into_iter().any(|other| is_same_name(name, other.as_bytes()))
        || begins("x-") && !is_forwarding && ENDS.iter().any(ends)
}
