//! The life of a request: route, guard, rewrite, attempt, respond; recorded when it ends.

use std::future::{Future as _, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use sluicegate_http1::{
    Known, Method, Normalised, Rejection, RequestFraming, RequestHead, TargetForm, Version, normalise,
};
use sluicegate_model::Settings;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};

use super::connection::Client;
use super::download::{Coding, Download};
use super::encode::{
    RequestPlan, ResponsePlan, http2_response, needs_chunks, original_peer, write_request, write_response,
};
use super::record::Record;
use super::reply::{self, Grpc, Reply};
use super::upload::Upload;
use super::wire::Wire;
use crate::compression::is_grpc;
use crate::deadline::after;
use crate::failure::{ClientFault, Failure, Fault};
use crate::route::host_name;
use crate::upstream::{Admission, Connection, LocalEndpoint, LocalUpstream, Tried};
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

/// How often endpoints may refuse a request before it has failed.
const REFUSED_MOST: u32 = 20;

/// Why a request gets no response of an endpoint.
enum Refusal {
    Fault(Fault),
    Rejected(Rejection),
    NoRoute,
    /// `OPTIONS *` is about the gateway itself.
    Options,
    /// Over HTTPS it would be served. The location is in the `request` buffer.
    Redirect,
}

impl<F: Into<Fault>> From<F> for Refusal {
    fn from(fault: F) -> Self {
        Self::Fault(fault.into())
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
    /// Until when the client of a gRPC call wants its answer.
    pub(super) wanted_by: Option<Instant>,
    /// How much of the `response` buffer was written ahead of the final response.
    pub(super) interim_written: usize,
    /// How many bytes of interim responses have come.
    pub(super) interim_received: usize,
    /// Whether some of the response was written, so that it cannot be replaced by another.
    committed: bool,
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
            interim_written: 0,
            interim_received: 0,
            committed: false,
        };
        exchange.wanted_by = exchange.grpc_deadline();
        exchange.trusted = is_trusted(&exchange.snapshot.settings, exchange.client.origin.peer);
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
        let upstream = self.route()?;
        let _admission = Admission::new(&upstream)?;
        let connection = self.attempts(&upstream).await.inspect_err(|fault| {
            if let Fault::Upstream(failure) = fault {
                upstream.stats().failures[failure.index()].add(1);
            }
        })?;
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
        let limit = self.snapshot.settings.limits.request_body.unwrap_or(u64::MAX);
        match head.framing {
            RequestFraming::Length(length) if length > limit => Err(ClientFault::BodyTooLarge.into()),
            _ => Ok(()),
        }
    }

    /// Finds the route, and writes the request's head as the endpoint will get it.
    fn route(&mut self) -> Result<Rc<LocalUpstream>, Refusal> {
        let Scratch { input, head, request, path, .. } = &mut *self.scratch;
        let buf = input.filled();
        let raw = match head.path.of(buf) {
            [] => b"/",
            raw => raw,
        };
        let path = match normalise(raw, path).map_err(Refusal::Rejected)? {
            Normalised::AsIs => raw,
            Normalised::Rewritten(path) => path,
        };
        let authority = head.authority.map_or(&[][..], |authority| authority.of(buf));
        let index = self.snapshot.table.find(authority, path).ok_or(Refusal::NoRoute)?;
        let target = self.snapshot.table.target(index);
        self.record.route = Some(index);
        let is_insecure =
            self.client.origin.session.is_none() && !(self.trusted && came_over_https(head, buf));
        let mut redirects = target.https_only && is_insecure && !is_acme_challenge(path);
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
            return Err(Refusal::Redirect);
        }
        let upstream = self.worker.upstream(target.upstream).ok_or(Failure::NoEndpoint)?;
        self.record.upstream = Some(upstream.clone());
        // h2c is between neighbours (RFC 9113, 3.1 has done away with it): the endpoint gets HTTP/1.1, and must
        // not answer 101. In a list, too: what came through that tunnel would be routed and checked by nobody.
        head.upgrade = head.upgrade.filter(|upgrade| !names_h2c(upgrade.of(buf)));
        let upgrade = head.upgrade.map(|upgrade| upgrade.of(buf));
        let plan = RequestPlan {
            path,
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

    /// Sends the request to one endpoint after the other, as far as that is safe, until one responds.
    async fn attempts(&mut self, upstream: &Rc<LocalUpstream>) -> Result<Connection, Fault> {
        let settings = self.snapshot.settings.clone();
        let idempotent = self.scratch.head.method.is_idempotent();
        let mut tried = Tried::default();
        let mut refused = 0;
        loop {
            let now = Instant::now();
            let turn = upstream.pick(&tried, &settings.resilience, now);
            // Once one connection was dead, others may be as well: a new one proves that somebody is there.
            let unused = turn.as_ref().filter(|_| self.record.attempts == 0);
            let pooled = unused.and_then(|endpoint| upstream.pooled(endpoint, !idempotent, now, self.worker));
            let (mut connection, asked) = match pooled {
                Some(connection) => (connection, now),
                None => (self.connect(upstream, &mut tried, turn).await?, Instant::now()),
            };
            self.record.asked = asked;
            let endpoint = connection.endpoint().clone();
            self.record.attempts += 1;
            self.record.endpoint = Some(endpoint.shared.address());
            upstream.count_attempt(&endpoint);
            // What was refused before anything was done with it is as good as not sent.
            let last = self.record.attempts - refused >= settings.resilience.attempts;
            let failure = match self.attempt(upstream, &mut connection, idempotent && !last).await {
                Ok(()) => return Ok(connection),
                Err(Fault::Upstream(failure)) => failure,
                Err(fault) => return Err(fault),
            };
            drop(connection);
            upstream.note_failure(self.worker, &endpoint, failure);
            let harmless = idempotent || !self.upload.has_sent() || failure == Failure::Refused;
            if failure.is_retryable() && !harmless {
                upstream.stats().not_repeated.add(1);
            }
            refused += u32::from(failure == Failure::Refused && refused < REFUSED_MOST);
            let last = last && failure != Failure::Refused || refused == REFUSED_MOST;
            if last || !failure.is_retryable() || !harmless || !self.upload.rewind() {
                return Err(failure.into());
            }
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
        tried: &mut Tried,
        turn: Option<Rc<LocalEndpoint>>,
    ) -> Result<Connection, Fault> {
        let mut connecting = pin!(upstream.connect(self.worker, tried, turn));
        poll_fn(|cx| {
            if let Poll::Ready(connected) = connecting.as_mut().poll(cx) {
                return Poll::Ready(connected.map_err(Fault::from));
            }
            self.watch_client(cx)?;
            Poll::Pending
        })
        .await
    }

    /// Passes the response on.
    async fn respond(&mut self, upstream: &Rc<LocalUpstream>, mut connection: Connection) -> Persist {
        let endpoint = connection.endpoint().clone();
        let now = Instant::now();
        let took = now.saturating_duration_since(self.record.asked);
        self.record.endpoint_duration = Some(took);
        upstream.stats().latency.record(took);
        endpoint.observe(took, now);
        upstream.note_success(&endpoint);

        let compressed = self.compress();
        let head = &self.scratch.head;
        let reply_head = &self.scratch.reply_head;
        let upgraded = reply_head.status == 101;
        if upgraded && (head.upgrade.is_none() || !self.upload.is_complete()) {
            upstream.stats().failures[Failure::Unsolicited.index()].add(1);
            return self.refuse(Failure::Unsolicited.into()).await;
        }
        let unframed = matches!(reply_head.framing, sluicegate_http1::ResponseFraming::UntilClose);
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
        let plan = ResponsePlan {
            version,
            close: !keep_alive && !upgraded,
            hsts,
            chunked,
            lines: &compressed.lines,
        };
        let (status, reusable) = (reply_head.status, reply_head.keep_alive);
        let peer_timeout = reply_head.keep_alive_timeout;
        let coding = match chunked {
            _ if self.client.is_http2() => Coding::Stream,
            true => Coding::Chunked,
            false => Coding::Plain,
        };
        let mut download =
            Download::new(reply_head.framing, coding, compressed.compressor, self.interim_written);
        let Scratch { response, reply, reply_head, .. } = &mut *self.scratch;
        let interim = response.len();
        let date = self.worker.date();
        let begun = match &mut self.client.wire {
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

        let mut result = match (begun, upgraded) {
            (Err(_), _) => Err(ClientFault::Closed.into()),
            (Ok(()), true) => self.upgrade(&mut connection).await,
            (Ok(()), false) => self.download(&mut connection, &mut download).await,
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
        let status = match refusal {
            Refusal::Fault(fault) => {
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
            Refusal::Options => 200,
            Refusal::Redirect => 308,
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
            let location = matches!(refusal, Refusal::Redirect).then_some(&*self.scratch.request);
            let has_body = status >= 400 && head.method != Method::Head;
            let sent = Reply { status, has_body, location, grpc }.send(stream, &date);
            self.record.complete = sent.is_ok();
            self.record.bytes = sent.unwrap_or(0) as u64;
            return Persist::Close;
        }
        match refusal {
            Refusal::Options => reply::write_options(response, &date, !keep_alive),
            Refusal::Redirect => reply::write_redirect(response, &self.scratch.request, &date, !keep_alive),
            _ => reply::write(response, status, &date, !keep_alive, head.method != Method::Head),
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

    fn count(&mut self, fault: Fault) {
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

/// Whether a trusted peer says that the client came to it over HTTPS.
fn came_over_https(head: &RequestHead, buf: &[u8]) -> bool {
    let said = head.header(buf, Known::XForwardedProto).or_else(|| head.header(buf, Known::XForwardedScheme));
    said.is_some_and(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"))
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
    use sluicegate_http1::ResponseFraming;
    matches!(head.framing, ResponseFraming::None | ResponseFraming::Length(_))
}
