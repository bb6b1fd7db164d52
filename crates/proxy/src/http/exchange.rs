//! The life of a request: route, admit, rewrite, attempt, respond; recorded at its end.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_http1::{Known, Method, Normalised, RequestFraming, TargetForm, normalise};
use sluicegate_model::Settings;
use sluicegate_model::feature::EndpointForm;
use tokio::time::{Instant, sleep_until};

use super::cached::{Cached, ResponseAction};
use super::connection::Client;
use super::encode::{RequestPlan, write_request};
use super::gather::Room;
use super::protocols::may_be_asked;
use super::record::OpenRecord;
use super::refuse::Refusal;
use super::steer::{Steered, rewritten_host};
use super::target::{check_target, has_encoded_slash, is_acme_challenge, raw_path, with_decoded_slashes};
use super::upload::Upload;
use super::validate::Inspected;
use super::view::is_trusted;
use crate::deadline::after;
use crate::failure::{ClientFault, Failure, Fault};
use crate::feature::compression::is_grpc;
use crate::feature::cors;
use crate::feature::headers::BackendEdits;
use crate::feature::rate_limit::Permit;
use crate::feature::retries::allows_retry;
use crate::feature::returns::{Returned, ReturnedContent};
use crate::feature::session_affinity::Session;
use crate::feature::traffic::TrafficPolicy;
use crate::name::host_name;
use crate::request::HeadView;
use crate::rule::{RouteIndex, Target};
use crate::template::Captured;
use crate::upstream::{
    Admission, AvoidedEndpoints, Connection, EndpointPreference, LocalEndpoint, LocalUpstream,
};
use crate::worker::{Scratch, Snapshot, Worker};

/// The state of the client's connection after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persist {
    /// The connection may carry another request.
    KeepAlive,
    /// The connection is closed.
    Close,
    /// The connection continues with HTTP/2.
    Http2,
    /// The connection is closed after the client had time to read the response: the client may still be sending.
    Linger,
}

/// How often endpoints may refuse a request before the request fails.
const REFUSED_MOST: u32 = 20;

/// A request in progress.
pub(super) struct Exchange<'c> {
    pub(super) worker: &'c Rc<Worker>,
    pub(super) client: &'c mut Client,
    pub(super) scratch: &'c mut Scratch,
    pub(super) snapshot: Rc<Snapshot>,
    pub(super) upload: Upload,
    pub(super) record: OpenRecord,
    /// Whether the peer's forwarding headers are trusted.
    pub(super) trusted: bool,
    /// [`ClientView::address`](crate::request::ClientView::address), once it is known.
    pub(super) known_address: Cell<Option<Result<IpAddr, IpAddr>>>,
    /// The deadline for the head of the response, set by a gRPC client or by a policy.
    pub(super) head_deadline: Option<Instant>,
    /// The effect of a traffic policy.
    pub(super) steered: Option<Steered>,
    /// The edits of the chosen backend.
    pub(super) backend_edits: Option<Arc<BackendEdits>>,
    /// The captures of the rewrite of the path.
    pub(super) captured: Option<Box<Captured>>,
    /// The session that the client states, if the rule or the backend has session affinity.
    pub(super) session: Option<Session>,
    /// The permits of concurrency limits while the request is in flight.
    pub(super) permits: Vec<Permit>,
    /// The state of the request in the cache.
    pub(super) cached: Option<Box<Cached>>,
    /// The length of the part of the `request_lines` buffer that forwards a trace, which is unique to each request.
    pub(super) trace_lines: usize,
    /// The number of bytes of the `response` buffer that were written before the final response.
    pub(super) interim_written: usize,
    /// The number of received bytes of interim responses.
    pub(super) interim_received: usize,
    /// Whether a part of the response was written, so that no other response can replace it.
    pub(super) committed: bool,
    /// Whether the `path` buffer holds the normal form of the path, because the client sent another form.
    pub(super) is_rewritten: bool,
    /// Whether the `path` buffer holds a path that a rule has rewritten.
    pub(super) is_changed: bool,
    /// Whether the listener has filters, so that the request has an identity.
    pub(super) is_filtered: bool,
    /// The memory for the buffered body, if an authorization service receives it, or the gateway validates it.
    pub(super) room: Option<Box<Room>>,
    /// The validation of the response's body, if a copy of the body is validated.
    pub(super) inspects: Option<Box<Inspected>>,
}

/// Serves the request whose head is in the buffer.
pub(super) async fn serve(worker: &Rc<Worker>, client: &mut Client, scratch: &mut Scratch) -> Persist {
    let mut exchange = Exchange::new(worker, client, scratch);
    let persist = match exchange.forward().await {
        Ok(persist) => persist,
        Err(refusal) => exchange.refuse_with_page(refusal).await,
    };
    drop(exchange);
    scratch.input.consume(scratch.head.len);
    persist
}

impl<'c> Exchange<'c> {
    fn new(worker: &'c Rc<Worker>, client: &'c mut Client, scratch: &'c mut Scratch) -> Self {
        worker.stats().requests.add(1);
        worker.stats().in_flight.add(1);
        client.served += 1;
        scratch.request.clear();
        scratch.response.clear();
        scratch.request_lines.clear();
        scratch.response_lines.clear();
        scratch.success_lines.clear();
        scratch.query = None;
        let snapshot = worker.snapshot();
        let (head, limits) = (&scratch.head, &snapshot.settings.limits);
        let upload = Upload::new(head, client.has_streams(), limits);
        let mut exchange = Self {
            worker,
            client,
            scratch,
            snapshot,
            upload,
            record: OpenRecord::new(Instant::now()),
            trusted: false,
            known_address: Cell::new(None),
            head_deadline: None,
            steered: None,
            backend_edits: None,
            captured: None,
            session: None,
            permits: Vec::new(),
            cached: None,
            trace_lines: 0,
            interim_written: 0,
            interim_received: 0,
            committed: false,
            is_rewritten: false,
            is_changed: false,
            is_filtered: false,
            room: None,
            inspects: None,
        };
        exchange.head_deadline = exchange.grpc_deadline();
        exchange.trusted = is_trusted(&exchange.snapshot.settings, exchange.client.origin.peer);
        if exchange.snapshot.settings.tracing.is_some() {
            exchange.begin_trace();
        }
        exchange
    }

    /// The deadline of a gRPC client ("gRPC over HTTP/2", Timeout).
    fn grpc_deadline(&self) -> Option<Instant> {
        let (head, buf) = (&self.scratch.head, self.scratch.input.filled());
        if !self.client.has_streams() || !is_grpc(head.header(buf, Known::ContentType)?) {
            return None;
        }
        Some(after(self.record.started, grpc_timeout(head.find(buf, "grpc-timeout")?)?))
    }

    /// Serves a request. Each refusal is an error.
    async fn forward(&mut self) -> Result<Persist, Refusal> {
        self.guard()?;
        self.normalise()?;
        if self.snapshot.table.acme().is_some() {
            self.answer_acme_challenge()?;
        }
        let entrance = self.client.origin.entrance;
        if self.snapshot.table.filters(entrance, self.head().authority()).is_some() {
            // Boxed, so that requests without such filters do not carry its room.
            Box::pin(self.filter_listener(entrance)).await?;
        }
        let index = self.route()?;
        self.check_length()?;
        let target = self.snapshot.table.target(index);
        let (is_guarded, is_steered) = (target.guard.is_some(), target.course.is_some());
        let is_described = target.has_description();
        if is_steered {
            self.answer(index)?;
        }
        if is_guarded {
            self.admit(index).await?;
        }
        if is_described {
            // Boxed, so that requests without such checks do not carry its room.
            Box::pin(self.check_request(index)).await?;
        }
        let split_off = match is_steered {
            // Boxed, so that requests without such a policy do not carry its room.
            true => Box::pin(self.steer(index)).await?,
            false => None,
        };
        let slot = match split_off {
            Some(slot) => slot,
            None => self.choose_backend(index)?,
        };
        let slot = if is_steered { self.or_default_backend(slot) } else { slot };
        if is_steered && self.scratch.head.framing == RequestFraming::Chunked {
            Box::pin(self.measure_body()).await?;
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
            Err(fault) => match self.stale_for_failure(fault) {
                Some(entry) => return Box::pin(self.serve_stale(&entry)).await,
                None => return Err(fault.into()),
            },
        };
        if self.steered.is_some() {
            self.mirror();
            if self.replaces_response() {
                // Boxed, so that requests without an error page do not carry its room.
                connection = Box::pin(self.replace_response(&upstream, connection)).await?;
            }
        }
        if is_described && self.validates_response() {
            connection = Box::pin(self.check_response(&upstream, connection)).await?;
        }
        if self.cached.is_some() {
            connection = match Box::pin(self.settle(&upstream, connection)).await? {
                ResponseAction::Answered(persist) => return Ok(persist),
                ResponseAction::ForwardResponse(connection) => connection,
            };
        }
        Ok(self.respond(&upstream, connection).await)
    }

    /// Rejects requests that the gateway never serves.
    fn guard(&self) -> Result<(), Refusal> {
        let head = &self.scratch.head;
        match (head.method, head.form) {
            (Method::Connect | Method::Trace, _) => return Err(ClientFault::Method.into()),
            (_, TargetForm::Asterisk) => return Err(Refusal::Options),
            _ => {}
        }
        if let (Some(session), Some(authority)) = (&self.client.origin.session, head.authority)
            && let Some(names) = self.snapshot.table.tls(self.client.origin.entrance)
            && names.is_misdirected(session, authority.of(self.scratch.input.filled()))
        {
            return Err(ClientFault::Misdirected.into());
        }
        Ok(())
    }

    /// Rejects a body whose stated length exceeds the limit of the route.
    fn check_length(&self) -> Result<(), Refusal> {
        let limit = self.settings().limits.request_body.unwrap_or(u64::MAX);
        match self.scratch.head.framing {
            RequestFraming::Length(length) if length > limit => Err(ClientFault::BodyTooLarge.into()),
            _ => Ok(()),
        }
    }

    /// Brings the path into normal form.
    fn normalise(&mut self) -> Result<(), Refusal> {
        let Scratch { input, head, path, .. } = &mut *self.scratch;
        let buf = input.filled();
        let raw = raw_path(head, buf);
        let normalised = normalise(raw, path).map_err(Refusal::Rejected)?;
        let query = head.query.map(|query| query.of(buf));
        check_target(raw, &normalised, query, &self.snapshot.settings).map_err(Refusal::Rejected)?;
        self.is_rewritten = matches!(normalised, Normalised::Rewritten(_));
        if normalised != Normalised::Plain {
            self.decode_slashes()?;
        }
        Ok(())
    }

    /// Answers the request of an ACME server over plain HTTP, before redirects, filters, policies and routes.
    fn answer_acme_challenge(&self) -> Result<(), Refusal> {
        let head = &self.scratch.head;
        if self.client.origin.session.is_some() || !matches!(head.method, Method::Get | Method::Head) {
            return Ok(());
        }
        let (path, authority) = (self.path(), self.head().authority());
        let answer = self.snapshot.table.acme().and_then(|hosts| hosts.answer(authority, path));
        match answer {
            None => Ok(()),
            Some(text) => {
                let media_type = "application/octet-stream".into();
                let content = ReturnedContent::Body { text, media_type };
                Err(Refusal::Returned(Box::new(Returned { status: 200, content })))
            }
        }
    }

    /// Decodes `%2F` in the path, if the host matches paths in this form.
    #[cold]
    fn decode_slashes(&mut self) -> Result<(), Refusal> {
        let (entrance, path) = (self.client.origin.entrance, self.path());
        if !has_encoded_slash(path) || !self.snapshot.table.decodes_slashes(entrance, self.head().authority())
        {
            return Ok(());
        }
        let path = with_decoded_slashes(path).map_err(Refusal::Rejected)?;
        self.scratch.path = path;
        self.is_rewritten = true;
        Ok(())
    }

    /// Finds the route.
    fn route(&mut self) -> Result<RouteIndex, Refusal> {
        let Scratch { input, head, path, .. } = &*self.scratch;
        let buf = input.filled();
        let path = if self.is_rewritten { &**path } else { raw_path(head, buf) };
        let authority = head.authority.map_or(&[][..], |authority| authority.of(buf));
        let view = HeadView { head, buf };
        let entrance = self.client.origin.entrance;
        let index = self.snapshot.table.find(entrance, authority, path, view).ok_or(Refusal::NoRoute)?;
        let target = self.snapshot.table.target(index);
        self.record.route = Some(index);
        let is_insecure = || !self.client.origin.is_https(self.trusted, view);
        let is_nginx = target.course.as_ref().is_some_and(|course| course.is_nginx());
        // The Ingresses of ingress-nginx name the paths that are not redirected.
        let is_open = !is_nginx && is_acme_challenge(path);
        let mut redirects = target.https_only && !is_open && is_insecure();
        if let Some(required) = &target.client_auth {
            match &self.client.origin.session {
                None => redirects = true,
                Some(session) if !session.is_under(required) => return Err(ClientFault::Misdirected.into()),
                Some(_) => {}
            }
        }
        if let Some(fault) = self.client.origin.denied {
            return Err(self.deny_certificate(fault));
        }
        let snapshot = self.snapshot.clone();
        let course = snapshot.table.target(index).course.as_deref();
        let guard = snapshot.table.target(index).guard.as_deref();
        let security = guard.and_then(|guard| guard.security.as_deref());
        if redirects {
            let cors = security.and_then(|policy| policy.compiled.nginx_cors());
            let HeadView { head, buf } = self.head();
            if cors.is_some_and(|cors| cors.kind(head, buf) == cors::Kind::Preflight) {
                return Ok(index);
            }
            // A response that a policy returns comes before the redirect, and the limit of the body before both, as in nginx.
            if let Some(course) = course.filter(|course| is_nginx || course.has_returns())
                && snapshot.table.target(index).client_auth.is_none()
            {
                self.begin_policy(index, course);
                if is_nginx {
                    self.check_length()?;
                }
                if let Some(cors) = cors {
                    self.edit(|exchange, edits| {
                        let HeadView { head, buf } = exchange.head();
                        cors.write_response(head, buf, &mut edits.response_lines);
                    });
                }
                self.answer(index)?;
            }
            return Err(self.redirect_to_https(index));
        }
        self.deny_policy_bypass(index)?;
        if let Some(course) = course {
            self.begin_policy(index, course);
        }
        Ok(index)
    }

    /// Denies a request because of the client's certificate: with a redirect to the error page, if there is one.
    #[cold]
    fn deny_certificate(&mut self, fault: ClientFault) -> Refusal {
        let session = self.client.origin.session.as_ref();
        let auth = session.and_then(|session| session.host.client_auth.clone());
        let page = auth.as_ref().and_then(|auth| auth.at_requests.as_ref()?.error_page.as_ref());
        match page.filter(|_| fault == ClientFault::Certificate) {
            None => fault.into(),
            Some(page) => {
                self.count(fault.into());
                self.scratch.request.extend_from_slice(page.as_bytes());
                Refusal::Redirect(302)
            }
        }
    }

    /// Redirects a client to the same URL over HTTPS. nginx keeps the path as the client wrote it.
    fn redirect_to_https(&mut self, index: RouteIndex) -> Refusal {
        let target = self.snapshot.table.target(index);
        let Scratch { input, head, request, path, .. } = &mut *self.scratch;
        let view = HeadView { head, buf: input.filled() };
        let path = if self.is_rewritten { path } else { raw_path(view.head, view.buf) };
        write_https_location(request, target, (view, path), self.trusted, &self.snapshot.settings);
        Refusal::Redirect(target.https_redirect.status.get())
    }

    /// Writes the request's head for an endpoint of the upstream in this slot.
    fn rewrite(&mut self, slot: usize) -> Result<Rc<LocalUpstream>, Refusal> {
        let upstream = self.worker.upstream(slot).ok_or(Failure::NoEndpoint)?;
        self.record.upstream = Some(upstream.clone());
        let client = self.trusted.then(|| self.client_address());
        let policy = self.traffic_in(&self.snapshot);
        let headers = policy.and_then(|policy| policy.compiled.template_headers.as_ref());
        let form = policy.and_then(|policy| endpoint_form(policy));
        let keeps_target = !self.is_changed && form.is_some_and(|form| form.nginx.is_some());
        let Scratch { input, head, request, path, request_lines, query, .. } = &mut *self.scratch;
        let buf = input.filled();
        // Without the header the endpoint may not change the protocol, and responds in HTTP/1.1.
        head.upgrade = head.upgrade.filter(|upgrade| may_be_asked(upgrade.of(buf)));
        let upgrade = head.upgrade.map(|upgrade| upgrade.of(buf));
        let plan = RequestPlan {
            path: if self.is_rewritten && !keeps_target { path } else { raw_path(head, buf) },
            query: match query {
                Some(query) => Some(&**query).filter(|query| !query.is_empty()),
                None => head.query.map(|query| query.of(buf)),
            },
            host: rewritten_host(self.backend_edits.as_deref(), self.steered.as_ref(), &self.snapshot),
            lines: request_lines,
            headers,
            trusted: client,
            underscores: self.snapshot.settings.underscores_in_headers,
            request_id: self.record.request_id,
            upgrade,
            form,
        };
        let dropped = write_request(request, buf, head, &self.client.origin, &plan);
        if dropped > 0 {
            self.worker.stats().headers_dropped.add(dropped);
        }
        Ok(upstream)
    }

    /// Sends the request to endpoints, and counts failures of the upstream.
    async fn ask_upstream(&mut self, upstream: &Rc<LocalUpstream>) -> Result<Connection, Fault> {
        self.attempts(upstream).await.inspect_err(|fault| {
            if let Fault::Upstream(failure) = fault {
                upstream.stats().failures[failure.index()].add(1);
            }
        })
    }

    /// Sends the request to one endpoint after another, as far as a retry is safe, until one responds.
    async fn attempts(&mut self, upstream: &Rc<LocalUpstream>) -> Result<Connection, Fault> {
        let snapshot = self.snapshot.clone();
        let policy = self.traffic_in(&snapshot);
        let settings = policy.as_ref().map_or(&*snapshot.settings, |policy| &*policy.compiled.settings);
        let steered = self.steered.as_ref().map(|steered| steered.preference);
        let preference = self.of_session(steered.unwrap_or_default());
        let conditions = policy.as_ref().and_then(|policy| policy.retry_conditions());
        let idempotent = self.scratch.head.method.is_idempotent()
            || conditions.is_some_and(|conditions| conditions.non_idempotent);
        let is_safe = self.scratch.head.method.is_safe();
        let budget = upstream.retry_budget();
        if let Some(budget) = &budget {
            budget.count_request(Instant::now());
        }
        let mut tried = AvoidedEndpoints::default();
        let mut refused = 0;
        loop {
            let now = Instant::now();
            let turn = upstream.pick(&tried, &preference, &settings.resilience, now);
            // After one dead connection, others may be dead too: a new connection proves that the endpoint is there.
            let unused = turn.as_ref().filter(|_| self.record.attempts == 0);
            let pooled = unused.and_then(|endpoint| upstream.pooled(endpoint, !idempotent, now));
            let (mut connection, asked) = match pooled {
                Some(connection) => (connection, now),
                None => {
                    // Boxed, so that requests on connections of the pool do not carry its room.
                    let connect = Box::pin(self.connect(upstream, (settings, &preference), &mut tried, turn));
                    (connect.await?, Instant::now())
                }
            };
            self.record.asked = asked;
            self.record.connect_duration = asked.saturating_duration_since(now);
            let endpoint = connection.endpoint().clone();
            self.record.attempts += 1;
            self.record.endpoint = Some(endpoint.shared.address());
            upstream.count_attempt(&endpoint);
            // A request that was refused before any processing counts as not sent.
            let last = self.record.attempts - refused >= settings.resilience.attempts;
            let leaves = idempotent && !last && conditions.is_none_or(|conditions| conditions.error);
            // Without its client, the request has no purpose.
            connection.set_reset(is_safe);
            let attempt = self.attempt(upstream, &mut connection, leaves).await;
            if matches!(attempt, Ok(()) | Err(Fault::Upstream(_))) {
                connection.set_reset(false);
            }
            let failure = match attempt {
                Ok(()) if last || !idempotent || !self.retries_status(self.scratch.reply_head.status) => {
                    return Ok(connection);
                }
                Ok(()) => Failure::RetriedStatus,
                Err(Fault::Upstream(failure)) => failure,
                Err(fault) => return Err(fault),
            };
            let harmless = idempotent || !self.upload.has_sent() || failure == Failure::Refused;
            let is_retryable = match conditions {
                Some(conditions) => allows_retry(conditions, failure, self.record.started),
                None => {
                    failure.is_retryable() || failure == Failure::ResponseTimeout && self.may_retry_timeout()
                }
            };
            if is_retryable && !harmless {
                upstream.stats().not_repeated.add(1);
            }
            refused += u32::from(failure == Failure::Refused && refused < REFUSED_MOST);
            let last = last && failure != Failure::Refused || refused == REFUSED_MOST;
            let repeats = !last && is_retryable && harmless && self.upload.is_replayable();
            let repeats = if repeats { self.spend_retry(budget.as_deref(), failure) } else { Ok(false) };
            if repeats == Ok(false) && failure == Failure::RetriedStatus {
                // The response is final after all.
                return Ok(connection);
            }
            drop(connection);
            upstream.note_failure(&endpoint, failure);
            if !repeats? {
                return Err(failure.into());
            }
            if let Some(backoff) = policy.as_ref().and_then(|policy| policy.backoff(failure)) {
                let over = sleep_until(after(Instant::now(), backoff));
                self.awaited(over, self.head_deadline).await?.ok_or(Failure::ResponseTimeout)?;
            }
            self.upload.rewind();
            upstream.stats().retries[failure.index()].add(1);
            match failure {
                Failure::Stale | Failure::Refused => tried.doubt(&endpoint),
                _ => tried.add(&endpoint),
            }
        }
    }

    /// A new connection to an endpoint, if the client waits that long.
    async fn connect(
        &mut self,
        upstream: &Rc<LocalUpstream>,
        ways: (&Settings, &EndpointPreference),
        tried: &mut AvoidedEndpoints,
        turn: Option<Rc<LocalEndpoint>>,
    ) -> Result<Connection, Fault> {
        let connecting = upstream.connect(ways, tried, turn);
        let connected = self.awaited(connecting, self.head_deadline).await?;
        Ok(connected.ok_or(Failure::ResponseTimeout)??)
    }
}

/// The form of requests to endpoints, if a policy sets it.
pub(crate) fn endpoint_form(policy: &TrafficPolicy) -> Option<&EndpointForm> {
    Some(&policy.source().features.endpoint_form).filter(|form| **form != EndpointForm::default())
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

/// Writes the HTTPS URL to which a route redirects a request with this path in normal form.
pub(crate) fn write_https_location(
    out: &mut Vec<u8>,
    target: &Target,
    (view, path): (HeadView<'_>, &[u8]),
    trusted: bool,
    settings: &Settings,
) {
    let is_nginx = target.course.as_ref().is_some_and(|course| course.is_nginx());
    let path = if is_nginx { raw_path(view.head, view.buf) } else { path };
    let public = view.public_host().filter(|_| is_nginx && trusted);
    let port = settings.tls.redirect_port;
    write_location(out, public.unwrap_or(view.authority()), port, path, view.query());
    // nginx leaves out the slash at the end of the query as well.
    if target.https_redirect.strips_slash && out.ends_with(b"/") {
        out.pop();
    }
}

/// Writes the HTTPS URL of a request.
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
