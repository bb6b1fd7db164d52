//! The life of a request: route, guard, rewrite, attempt, respond; recorded when it ends.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_http1::{
    Known, Method, Normalised, Rejection, RequestFraming, RequestHead, ResponseFraming, TargetForm, Version,
    normalise,
};
use sluicegate_model::Settings;
use sluicegate_model::policy::traffic::Fixed;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};

use super::cached::{Cached, Settled};
use super::connection::Client;
use super::download::{Body, Coding, Download};
use super::encode::{
    RequestPlan, ResponsePlan, http2_response, needs_chunks, original_peer, write_request, write_response,
};
use super::record::Record;
use super::reply::{self, Grpc, Reply};
use super::steer::Steered;
use super::upload::Upload;
use super::wire::Wire;
use crate::compression::is_grpc;
use crate::deadline::after;
use crate::failure::{ClientFault, Denial, Failure, Fault};
use crate::policy::limit::Permit;
use crate::policy::traffic::TrafficPolicy;
use crate::route::{RouteIndex, host_name};
use crate::upstream::{Admission, Connection, LocalEndpoint, LocalUpstream, Tried, Wish};
use crate::worker::{Scratch, Snapshot, Worker};

/// What becomes of the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persist {
    /// It may carry another request.
    KeepAlive,
    /// It is closed.
    Close,
    /// HTTP/2 is spoken on it.
    Http2,
    /// It is closed once the client had time to read the response: the client may still be sending.
    Linger,
}

/// A response whose head was written.
pub(super) struct Begun {
    pub(super) download: Download,
    /// Whether the client's connection goes on after it.
    pub(super) keep_alive: bool,
    /// What of the `response` buffer is of interim responses.
    interim: usize,
    /// Whether the client took it.
    pub(super) sent: io::Result<()>,
}

/// How often endpoints may refuse a request before it has failed.
const REFUSED_MOST: u32 = 20;

/// Why a request gets no response of an endpoint.
pub(super) enum Refusal {
    Fault(Fault),
    /// A policy turns it away.
    Denied(Denial),
    /// A browser asks whether it may send a request of another origin, and it may.
    Preflight,
    Rejected(Rejection),
    NoRoute,
    /// `OPTIONS *` is about the gateway itself.
    Options,
    /// It is served elsewhere, by this status. The location is in the `request` buffer.
    Redirect(u16),
    /// A policy answers in place of an endpoint.
    Fixed(Arc<TrafficPolicy>),
    /// A policy lets it fail on purpose, by this status.
    Aborted(u16),
    /// The client wants what is kept, and nothing is (RFC 9111, 5.2.1.7).
    NotKept,
}

impl<F: Into<Fault>> From<F> for Refusal {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
    }
}

impl Refusal {
    /// What a policy answers.
    fn fixed(&self) -> Option<&Fixed> {
        match self {
            Self::Fixed(policy) => policy.fixed(),
            _ => None,
        }
    }
}

/// A request on its way.
pub(super) struct Exchange<'c> {
    pub(super) worker: &'c Rc<Worker>,
    pub(super) client: &'c mut Client,
    pub(super) scratch: &'c mut Scratch,
    pub(super) snapshot: Rc<Snapshot>,
    pub(super) upload: Upload,
    pub(super) record: Record,
    /// Whether the peer's forwarding headers are believed.
    pub(super) trusted: bool,
    /// Until when the head of its response has to be there, by the client of a gRPC call or by a policy.
    pub(super) wanted_by: Option<Instant>,
    /// What a policy for traffic makes of it.
    pub(super) steered: Option<Steered>,
    /// What it is counted by as long as it is under way.
    pub(super) permits: Vec<Permit>,
    /// What is to become of what is kept, or will be.
    pub(super) cached: Option<Box<Cached>>,
    /// How much of the `request_lines` buffer passes a trace on, which no two requests do alike.
    pub(super) trace_lines: usize,
    /// How much of the `response` buffer was written ahead of the final response.
    pub(super) interim_written: usize,
    /// How many bytes of interim responses have come.
    pub(super) interim_received: usize,
    /// Whether some of the response was written, so that it cannot be replaced by another.
    committed: bool,
    /// Whether the path in normal form is in the `path` buffer, since it came in another.
    is_rewritten: bool,
}

/// Serves the request whose head is in the buffer.
pub(super) async fn serve(worker: &Rc<Worker>, client: &mut Client, scratch: &mut Scratch) -> Persist {
    let mut exchange = Exchange::new(worker, client, scratch);
    let persist = match exchange.forward().await {
        Ok(persist) => persist,
        Err(refusal) => exchange.refuse(refusal).await,
    };
    drop(exchange);
    scratch.input.consume(scratch.head.len);
    persist
}

impl<'c> Exchange<'c> {
    fn new(worker: &'c Rc<Worker>, client: &'c mut Client, scratch: &'c mut Scratch) -> Self {
        worker.stats().in_flight.add(1);
        client.served += 1;
        scratch.request.clear();
        scratch.response.clear();
        scratch.request_lines.clear();
        scratch.response_lines.clear();
        scratch.query = None;
        let snapshot = worker.snapshot();
        let (head, limits) = (&scratch.head, &snapshot.settings.limits);
        let upload = Upload::new(head, client.is_http2(), limits);
        let mut exchange = Self {
            worker,
            client,
            scratch,
            snapshot,
            upload,
            record: Record::new(Instant::now()),
            trusted: false,
            wanted_by: None,
            steered: None,
            permits: Vec::new(),
            cached: None,
            trace_lines: 0,
            interim_written: 0,
            interim_received: 0,
            committed: false,
            is_rewritten: false,
        };
        exchange.wanted_by = exchange.grpc_deadline();
        exchange.trusted = is_trusted(&exchange.snapshot.settings, exchange.client.origin.peer);
        if exchange.snapshot.settings.tracing.is_some() {
            exchange.begin_trace();
        }
        exchange
    }

    /// Until when a gRPC client wants its answer ("gRPC over HTTP/2", Timeout).
    fn grpc_deadline(&self) -> Option<Instant> {
        let (head, buf) = (&self.scratch.head, self.scratch.input.filled());
        if !self.client.is_http2() || !is_grpc(head.header(buf, Known::ContentType)?) {
            return None;
        }
        Some(after(self.record.started, grpc_timeout(head.find(buf, "grpc-timeout")?)?))
    }

    /// The way of a request that goes well.
    async fn forward(&mut self) -> Result<Persist, Refusal> {
        self.guard()?;
        let index = self.route()?;
        self.check_length()?;
        let target = self.snapshot.table.target(index);
        let (mut slot, is_steered) = (target.upstream, target.course.is_some());
        if target.guard.is_some() {
            self.admit(index).await?;
        }
        if is_steered {
            // Boxed, so that requests without such a policy do not carry its room.
            slot = Box::pin(self.steer(index)).await?;
        }
        let upstream = self.rewrite(slot)?;
        if self.keeps_responses()
            && let Some(persist) = Box::pin(self.consult(&upstream)).await?
        {
            return Ok(persist);
        }
        let asked = match Admission::new(&upstream) {
            Ok(admission) => self.ask_upstream(&upstream).await.map(|connection| (connection, admission)),
            Err(failure) => Err(failure.into()),
        };
        let (mut connection, _admission) = match asked {
            Ok(asked) => asked,
            Err(fault) => match self.stand_in(fault) {
                Some(entry) => return Box::pin(self.answer_in_need(&entry)).await,
                None => return Err(fault.into()),
            },
        };
        if self.steered.is_some() {
            self.mirror();
        }
        if self.cached.is_some() {
            connection = match Box::pin(self.settle(&upstream, connection)).await? {
                Settled::Answered(persist) => return Ok(persist),
                Settled::GoesOn(connection) => connection,
            };
        }
        Ok(self.respond(&upstream, connection).await)
    }

    /// Refuses what is not served at all.
    fn guard(&self) -> Result<(), Refusal> {
        let head = &self.scratch.head;
        match (head.method, head.form) {
            (Method::Connect | Method::Trace, _) => return Err(ClientFault::Method.into()),
            (_, TargetForm::Asterisk) => return Err(Refusal::Options),
            _ => {}
        }
        if let (Some(session), Some(authority)) = (&self.client.origin.session, head.authority)
            && self.snapshot.table.tls.is_misdirected(session, authority.of(self.scratch.input.filled()))
        {
            return Err(ClientFault::Misdirected.into());
        }
        Ok(())
    }

    /// Refuses a body that says itself that it is too long for the route.
    fn check_length(&self) -> Result<(), Refusal> {
        let limit = self.settings().limits.request_body.unwrap_or(u64::MAX);
        match self.scratch.head.framing {
            RequestFraming::Length(length) if length > limit => Err(ClientFault::BodyTooLarge.into()),
            _ => Ok(()),
        }
    }

    /// Finds the route.
    fn route(&mut self) -> Result<RouteIndex, Refusal> {
        let Scratch { input, head, request, path, .. } = &mut *self.scratch;
        let buf = input.filled();
        let raw = raw_path(head, buf);
        let normalised = normalise(raw, path).map_err(Refusal::Rejected)?;
        self.is_rewritten = matches!(normalised, Normalised::Rewritten(_));
        let path = match normalised {
            Normalised::AsIs => raw,
            Normalised::Rewritten(path) => path,
        };
        let authority = head.authority.map_or(&[][..], |authority| authority.of(buf));
        let index = self.snapshot.table.find(authority, path).ok_or(Refusal::NoRoute)?;
        let target = self.snapshot.table.target(index);
        self.record.route = Some(index);
        let is_insecure = || !self.client.origin.is_https(self.trusted, head, buf);
        let mut redirects = target.https_only && !is_acme_challenge(path) && is_insecure();
        if let Some(required) = &target.client_auth {
            match &self.client.origin.session {
                None => redirects = true,
                Some(session) if !session.is_under(required) => return Err(ClientFault::Misdirected.into()),
                Some(_) => {}
            }
        }
        if redirects {
            let port = self.snapshot.settings.tls.redirect_port;
            write_location(request, authority, port, path, head.query.map(|query| query.of(buf)));
            return Err(Refusal::Redirect(308));
        }
        self.refuse_way_around(index)?;
        let snapshot = self.snapshot.clone();
        if let Some(course) = &snapshot.table.target(index).course {
            self.embark(course);
        }
        Ok(index)
    }

    /// The path in normal form, once the route is known.
    pub(super) fn path(&self) -> &[u8] {
        match self.is_rewritten {
            true => &self.scratch.path,
            false => raw_path(&self.scratch.head, self.scratch.input.filled()),
        }
    }

    /// Puts another path in place of the one that came, for the endpoint.
    pub(super) fn set_path(&mut self, path: Vec<u8>) {
        self.scratch.path = path;
        self.is_rewritten = true;
    }

    /// Writes the request's head as an endpoint of the upstream in this slot will get it.
    fn rewrite(&mut self, slot: usize) -> Result<Rc<LocalUpstream>, Refusal> {
        let upstream = self.worker.upstream(slot).ok_or(Failure::NoEndpoint)?;
        self.record.upstream = Some(upstream.clone());
        let Scratch { input, head, request, path, request_lines, query, .. } = &mut *self.scratch;
        let buf = input.filled();
        // h2c is between neighbours (RFC 9113, 3.1 has done away with it): the endpoint gets HTTP/1.1, and must
        // not answer 101. In a list, too: what came through that tunnel would be routed and checked by nobody.
        head.upgrade = head.upgrade.filter(|upgrade| !names_h2c(upgrade.of(buf)));
        let upgrade = head.upgrade.map(|upgrade| upgrade.of(buf));
        let plan = RequestPlan {
            path: if self.is_rewritten { path } else { raw_path(head, buf) },
            query: match query {
                Some(query) => Some(&**query).filter(|query| !query.is_empty()),
                None => head.query.map(|query| query.of(buf)),
            },
            host: self.steered.as_ref().and_then(|steered| steered.policy.source().rewrite.host.as_deref()),
            lines: request_lines,
            trusted: self.trusted.then(|| {
                original_peer(buf, head, self.client.origin.peer, |peer| {
                    is_trusted(&self.snapshot.settings, peer)
                })
            }),
            underscores: self.snapshot.settings.underscores_in_headers,
            request_id: self.record.request_id,
            upgrade,
        };
        let dropped = write_request(request, buf, head, &self.client.origin, &plan);
        if dropped > 0 {
            self.worker.stats().headers_dropped.add(dropped);
        }
        Ok(upstream)
    }

    /// Asks endpoints, and counts how the upstream has failed.
    async fn ask_upstream(&mut self, upstream: &Rc<LocalUpstream>) -> Result<Connection, Fault> {
        self.attempts(upstream).await.inspect_err(|fault| {
            if let Fault::Upstream(failure) = fault {
                upstream.stats().failures[failure.index()].add(1);
            }
        })
    }

    /// Sends the request to one endpoint after the other, as far as that is safe, until one responds.
    async fn attempts(&mut self, upstream: &Rc<LocalUpstream>) -> Result<Connection, Fault> {
        let (snapshot, policy) =
            (self.snapshot.clone(), self.steered.as_ref().map(|steered| steered.policy.clone()));
        let settings = policy.as_ref().map_or(&*snapshot.settings, |policy| &*policy.compiled.settings);
        let wish = self.steered.as_ref().map_or_else(Wish::default, |steered| steered.wish);
        let idempotent = self.scratch.head.method.is_idempotent();
        let mut tried = Tried::default();
        let mut refused = 0;
        loop {
            let now = Instant::now();
            let turn = upstream.pick(&tried, &wish, &settings.resilience, now);
            // Once one connection was dead, others may be as well: a new one proves that somebody is there.
            let unused = turn.as_ref().filter(|_| self.record.attempts == 0);
            let pooled = unused.and_then(|endpoint| upstream.pooled(endpoint, !idempotent, now, self.worker));
            let (mut connection, asked) = match pooled {
                Some(connection) => (connection, now),
                None => (self.connect(upstream, (settings, &wish), &mut tried, turn).await?, Instant::now()),
            };
            self.record.asked = asked;
            let endpoint = connection.endpoint().clone();
            self.record.attempts += 1;
            self.record.endpoint = Some(endpoint.shared.address());
            upstream.count_attempt(&endpoint);
            // What was refused before anything was done with it is as good as not sent.
            let last = self.record.attempts - refused >= settings.resilience.attempts;
            let failure = match self.attempt(upstream, &mut connection, idempotent && !last).await {
                Ok(()) if last || !idempotent || !self.is_unwanted(self.scratch.reply_head.status) => {
                    return Ok(connection);
                }
                Ok(()) => Failure::Unwanted,
                Err(Fault::Upstream(failure)) => failure,
                Err(fault) => return Err(fault),
            };
            let harmless = idempotent || !self.upload.has_sent() || failure == Failure::Refused;
            let is_retryable =
                failure.is_retryable() || failure == Failure::ResponseTimeout && self.may_hurry();
            if is_retryable && !harmless {
                upstream.stats().not_repeated.add(1);
            }
            refused += u32::from(failure == Failure::Refused && refused < REFUSED_MOST);
            let last = last && failure != Failure::Refused || refused == REFUSED_MOST;
            let repeats = !last && is_retryable && harmless && self.upload.is_replayable();
            let repeats = repeats && self.takes_of_budget();
            if !repeats && failure == Failure::Unwanted {
                // It is an answer after all.
                return Ok(connection);
            }
            drop(connection);
            upstream.note_failure(self.worker, &endpoint, failure);
            if !repeats {
                return Err(failure.into());
            }
            self.upload.rewind();
            upstream.stats().retries[failure.index()].add(1);
            match failure {
                Failure::Stale | Failure::Refused => tried.doubt(&endpoint),
                _ => tried.add(&endpoint),
            }
        }
    }

    /// A new connection to an endpoint, for as long as the client waits for it.
    async fn connect(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        ways: (&Settings, &Wish),
        tried: &mut Tried,
        turn: Option<Rc<LocalEndpoint>>,
    ) -> Result<Connection, Fault> {
        let connecting = upstream.connect(self.worker, ways, tried, turn);
        let connected = self.awaited(connecting, self.wanted_by).await?;
        Ok(connected.ok_or(Failure::ResponseTimeout)??)
    }

    /// Counts a response of an endpoint.
    pub(super) fn note_response(&mut self, upstream: &Rc<LocalUpstream>, endpoint: &Rc<LocalEndpoint>) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.record.asked);
        self.record.endpoint_duration = Some(took);
        upstream.stats().latency.record(took);
        endpoint.observe(took, now);
        upstream.note_success(endpoint);
        upstream.note_status(self.worker, endpoint, self.scratch.reply_head.status);
    }

    /// Begins the response whose head is in the `reply` buffer, with its body behind it as far as that has come. `mark` is of the
    /// endpoint that gives it.
    pub(super) fn begin_response(&mut self, mark: Option<u64>) -> Begun {
        self.apply_policies_to_response();
        if self.steered.is_some() {
            self.steer_response(mark);
        }
        let compressed = self.compress();
        let head = &self.scratch.head;
        let reply_head = &self.scratch.reply_head;
        let upgraded = reply_head.status == 101;
        let unframed = matches!(reply_head.framing, ResponseFraming::UntilClose);
        let version = head.version;
        let chunked = compressed.compressor.is_some() || needs_chunks(reply_head, version);
        let keep_alive = head.keep_alive
            && self.upload.is_complete()
            && (chunked || !unframed && (version == Version::Http11 || is_framed(reply_head)))
            && !self.worker.is_stopping()
            && self
                .snapshot
                .settings
                .limits
                .requests_per_connection
                .is_none_or(|most| self.client.served < most);
        let hsts = self.snapshot.settings.tls.hsts.filter(|_| self.client.origin.session.is_some());
        let status = reply_head.status;
        let coding = match chunked {
            _ if self.client.is_http2() => Coding::Stream,
            true => Coding::Chunked,
            false => Coding::Plain,
        };
        let download = Download::new(reply_head.framing, coding, compressed.compressor, self.interim_written);
        let Scratch { response, reply, reply_head, response_lines, .. } = &mut *self.scratch;
        let plan = ResponsePlan {
            version,
            close: !keep_alive && !upgraded,
            hsts,
            chunked,
            lines: &compressed.lines,
            policy_lines: response_lines,
        };
        let interim = response.len();
        let date = self.worker.date();
        let sent = match &mut self.client.wire {
            Wire::Http1(_) => {
                write_response(response, reply.filled(), reply_head, &date, &plan);
                Ok(())
            }
            Wire::Http2(stream) => {
                let head = http2_response(reply.filled(), reply_head, &date, &plan);
                stream.respond(head, !upgraded && download.is_complete())
            }
        };
        reply.consume(reply_head.len);
        self.record.status = status;
        self.committed = true;
        Begun { download, keep_alive, interim, sent }
    }

    /// Passes the response on.
    async fn respond(&mut self, upstream: &Rc<LocalUpstream>, mut connection: Connection) -> Persist {
        let endpoint = connection.endpoint().clone();
        self.note_response(upstream, &endpoint);
        let reply_head = &self.scratch.reply_head;
        let upgraded = reply_head.status == 101;
        if upgraded && (self.scratch.head.upgrade.is_none() || !self.upload.is_complete()) {
            upstream.stats().failures[Failure::Unsolicited.index()].add(1);
            return self.refuse(Failure::Unsolicited.into()).await;
        }
        let (reusable, peer_timeout) = (reply_head.keep_alive, reply_head.keep_alive_timeout);
        let most = self.steered.as_ref().and_then(|steered| steered.policy.source().response_body);
        if matches!(reply_head.framing, ResponseFraming::Length(length) if most.is_some_and(|most| length > most))
        {
            upstream.stats().failures[Failure::TooLong.index()].add(1);
            if let Some(copy) = self.collector() {
                copy.give_up();
            }
            return self.refuse(Failure::TooLong.into()).await;
        }
        let copy = self.collector();
        let Begun { mut download, keep_alive, interim, sent } =
            self.begin_response(Some(endpoint.shared.mark()));
        if let Some(copy) = copy {
            download.copy_to(copy);
        }
        if let Some(most) = most {
            download.limit(most);
        }
        let mut result = match (sent, upgraded) {
            (Err(_), _) => Err(ClientFault::Closed.into()),
            (Ok(()), true) => self.upgrade(&mut connection).await,
            (Ok(()), false) => {
                let body = Body::of(&mut connection.socket.stream, &endpoint);
                self.download(body, &mut download).await
            }
        };
        self.record.bytes += download.bytes_out();
        if let Err(fault) = result {
            if let Fault::Upstream(failure) = fault {
                upstream.stats().failures[failure.index()].add(1);
                endpoint.stats().failures.add(1);
                let is_unseen =
                    download.bytes_out() == self.interim_written as u64 && !self.client.wire.has_unsent();
                if !upgraded && is_unseen {
                    // The client has not seen a byte of it: it can be told what happened.
                    self.scratch.response.truncate(interim);
                    self.committed = false;
                    return self.refuse(failure.into()).await;
                }
                if download.is_unframed() {
                    // Only a reset tells this client that the response is not whole.
                    self.client.wire.break_off();
                }
            }
            if self.client.is_http2() {
                self.client.wire.break_off();
            }
            self.count(fault);
            if upgraded {
                // A tunnel that was ended had its time.
                result = Ok(());
            }
        }
        self.record.complete = result.is_ok();
        if result.is_err() || upgraded {
            return Persist::Close;
        }
        let clean = self.scratch.reply.is_empty() && self.upload.is_sent();
        if reusable && clean {
            connection.recycle(&self.snapshot.settings, Instant::now(), peer_timeout);
        }
        self.persist(keep_alive)
    }

    /// What becomes of the client's connection after a response that came to its end.
    pub(super) fn persist(&self, keep_alive: bool) -> Persist {
        match (keep_alive, self.upload.is_complete()) {
            (true, _) => Persist::KeepAlive,
            // What the client has sent behind the request would turn a close into a reset (RFC 9112, 9.6).
            (false, true) if self.scratch.input.len() == self.scratch.head.len => Persist::Close,
            (false, _) => Persist::Linger,
        }
    }

    /// Writes the 101 and passes on what follows it, both ways.
    async fn upgrade(&mut self, connection: &mut Connection) -> Result<(), Fault> {
        let head_len = self.scratch.head.len;
        let rest = match self.client.wire {
            Wire::Http1(_) => &self.scratch.response[self.interim_written..],
            Wire::Http2(_) => &[],
        };
        let write = self.client.wire.write_all(rest);
        match timeout(self.snapshot.settings.timeouts.client_write, write).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(ClientFault::Closed.into()),
            Err(_) => return Err(ClientFault::WriteTimeout.into()),
        }
        self.record.bytes += self.scratch.response.len() as u64;
        // The head is needed for the log until the tunnel ends, the bytes behind it are the tunnel's.
        let sent = self.scratch.input.filled()[head_len..].to_vec();
        let (moved, result) = self.tunnel(connection, &sent).await;
        self.record.bytes += moved;
        result
    }

    /// Answers a request that no endpoint answered.
    async fn refuse(&mut self, refusal: Refusal) -> Persist {
        // Nobody waits for what does not come.
        self.cached = None;
        let status = match &refusal {
            Refusal::Fault(fault) => {
                let fault = *fault;
                self.count(fault);
                if fault == Fault::Client(ClientFault::Closed) {
                    return Persist::Close;
                }
                fault.status()
            }
            Refusal::Rejected(rejection) => {
                self.worker.stats().rejections[rejection.index()].add(1);
                self.record.reason = Some(rejection.reason());
                rejection.status()
            }
            Refusal::NoRoute => {
                self.worker.stats().unrouted.add(1);
                self.record.reason = Some("no_route");
                404
            }
            Refusal::Denied(denial) => {
                self.record.reason = Some(denial.reason());
                denial.status()
            }
            Refusal::Options => 200,
            Refusal::Preflight => 204,
            Refusal::Redirect(status) => *status,
            Refusal::Fixed(policy) => policy.fixed().map_or(500, |fixed| fixed.status),
            Refusal::Aborted(status) => {
                self.record.reason = Some("fault_injected");
                *status
            }
            Refusal::NotKept => {
                self.record.reason = Some("not_cached");
                504
            }
        };
        if self.committed {
            return Persist::Close;
        }
        self.record.status = status;
        let head = &self.scratch.head;
        let keep_alive = head.keep_alive
            && head.version == Version::Http11
            && self.upload.is_complete()
            && !self.worker.is_stopping();
        let (response, date) = (&mut self.scratch.response, self.worker.date());
        if let Wire::Http2(stream) = &mut self.client.wire {
            let is_late = self.wanted_by.is_some_and(|wanted_by| Instant::now() >= wanted_by);
            let media_type = head.header(self.scratch.input.filled(), Known::ContentType);
            let grpc = media_type.is_some_and(is_grpc).then_some(Grpc { is_late });
            let location = matches!(refusal, Refusal::Redirect(_)).then_some(&*self.scratch.request);
            let fixed = refusal.fixed();
            let grpc = grpc.filter(|_| fixed.is_none());
            let has_body = (status >= 400 || fixed.is_some()) && head.method != Method::Head;
            let lines = &self.scratch.response_lines;
            let sent = Reply { status, has_body, fixed, location, grpc, lines }.send(stream, &date);
            self.record.complete = sent.is_ok();
            self.record.bytes = sent.unwrap_or(0) as u64;
            return Persist::Close;
        }
        match refusal {
            Refusal::Options => reply::write_options(response, &date, !keep_alive),
            Refusal::Redirect(_) => {
                let (location, lines) = (&self.scratch.request, &self.scratch.response_lines);
                reply::write_redirect(response, (status, location), &date, lines, !keep_alive);
            }
            _ => {
                let (lines, with_body) = (&self.scratch.response_lines, head.method != Method::Head);
                let content = refusal.fixed();
                reply::write(response, (status, content), &date, lines, !keep_alive, with_body);
            }
        }
        let rest = &self.scratch.response[self.interim_written..];
        let write = self.client.wire.write_all(rest);
        if !matches!(timeout(self.snapshot.settings.timeouts.client_write, write).await, Ok(Ok(()))) {
            return Persist::Close;
        }
        self.record.bytes = self.scratch.response.len() as u64;
        self.record.complete = true;
        if keep_alive { Persist::KeepAlive } else { Persist::Linger }
    }

    pub(super) fn count(&mut self, fault: Fault) {
        self.record.reason = Some(fault.reason());
        if let Fault::Encoder(_) = fault {
            self.worker.stats().compressions_failed.add(1);
        }
        if let Fault::Client(fault) = fault {
            self.client.gone |= fault == ClientFault::Closed;
            self.worker.stats().client_faults[fault.index()].add(1);
        }
    }
}

/// The path as it came.
fn raw_path<'b>(head: &RequestHead, buf: &'b [u8]) -> &'b [u8] {
    match head.path.of(buf) {
        [] => b"/",
        raw => raw,
    }
}

/// Whether a peer's forwarding headers are believed.
pub(super) fn is_trusted(settings: &Settings, peer: IpAddr) -> bool {
    settings.trusted_peers.iter().any(|net| net.contains(&peer))
}

/// A gRPC timeout: up to 8 digits and a unit.
fn grpc_timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    let amount: u64 = std::str::from_utf8(digits).ok().filter(|digits| digits.len() <= 8)?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(amount * 3600)),
        b'M' => Some(Duration::from_secs(amount * 60)),
        b'S' => Some(Duration::from_secs(amount)),
        b'm' => Some(Duration::from_millis(amount)),
        b'u' => Some(Duration::from_micros(amount)),
        b'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

/// Whether a certificate authority asks for its proof, which must be answered over plain HTTP (RFC 8555, 8.3).
fn is_acme_challenge(path: &[u8]) -> bool {
    path.starts_with(b"/.well-known/acme-challenge/")
}

/// Writes where a request is served over HTTPS.
fn write_location(out: &mut Vec<u8>, authority: &[u8], port: u16, path: &[u8], query: Option<&[u8]>) {
    out.extend_from_slice(b"https://");
    out.extend_from_slice(host_name(authority));
    if port != 443 {
        out.extend_from_slice(format!(":{port}").as_bytes());
    }
    out.extend_from_slice(path);
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
}

/// Whether h2c is among the protocols of an Upgrade header.
fn names_h2c(protocols: &[u8]) -> bool {
    let names = protocols.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    names.filter_map(|name| name.get(..3)).any(|name| name.eq_ignore_ascii_case(b"h2c"))
}

/// Whether the end of the response can be told without the end of the connection.
fn is_framed(head: &sluicegate_http1::ResponseHead) -> bool {
    matches!(head.framing, ResponseFraming::None | ResponseFraming::Length(_))
}
