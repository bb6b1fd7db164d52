//! The traffic policy of an admitted request: its decision, and the edits of the request.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::uri::Authority;
use sluicegate_http1::{Known, Normalised, Rejection, normalise};
use sluicegate_model::Settings;
use sluicegate_model::feature::{PathRewrite, UrlRewrite};
use sluicegate_model::rule::PathMatch;
use sluicegate_model::tls::Hsts;
use tokio::time::{Instant, sleep_until};

use super::connection::Client;
use super::exchange::Exchange;
use super::refuse::Refusal;
use super::target::raw_path;
use crate::deadline::after;
use crate::failure::{ClientFault, Failure};
use crate::feature::Guard;
use crate::feature::fault;
use crate::feature::headers::BackendEdits;
use crate::feature::mirror::Receiver;
use crate::feature::response_rewrite::rewrite;
use crate::feature::returns::ReturnedContent;
use crate::feature::session_affinity::{Affinity, Told};
use crate::feature::timeouts::request_deadline;
use crate::feature::traffic::{Forward, RouteTrafficPolicy, Steering, TrafficPolicy};
use crate::feature::url_rewrite::MatchedPrefix;
use crate::request::HeadView;
use crate::rule::{self, Backends, RouteIndex, WeightedBackend};
use crate::template::{Place, TooLong};
use crate::upstream::{EndpointPreference, RetryBudget};
use crate::worker::{Scratch, Snapshot};

/// The status of nginx that closes the connection without a response.
const CLOSED: u16 = 444;

/// A request with a traffic policy.
pub(super) struct Steered {
    /// The target with the policy. A reference count of the policy itself would be written by all workers for each request.
    route: RouteIndex,
    pub(super) preference: EndpointPreference,
    /// The mirrors that receive a copy.
    pub(super) mirrors: Vec<Receiver>,
    /// The host for the endpoint, if the policy has a host with variables.
    host: Option<Box<str>>,
}

impl Steered {
    /// The policy. The snapshot is the snapshot of the request.
    fn policy<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s Arc<TrafficPolicy>> {
        let course = snapshot.table.target(self.route).course.as_deref()?;
        Some(&course.policy)
    }
}

/// The host that the endpoint receives in place of the client's host: by the backend, or else by the rule.
pub(super) fn rewritten_host<'r>(
    backend: Option<&'r BackendEdits>,
    rule: Option<&'r Steered>,
    snapshot: &'r Snapshot,
) -> Option<&'r str> {
    let rendered = rule.and_then(|steered| steered.host.as_deref());
    let policy = rule.and_then(|steered| steered.policy(snapshot));
    host_for_endpoint(backend, rendered, policy.map(|policy| &**policy))
}

/// The host that the endpoint receives in place of the client's host. `rendered` is the host of the rule's policy, if the host
/// has variables.
pub(crate) fn host_for_endpoint<'r>(
    backend: Option<&'r BackendEdits>,
    rendered: Option<&'r str>,
    rule: Option<&'r TrafficPolicy>,
) -> Option<&'r str> {
    let of_backend = backend.map(|edits| &edits.url_rewrite);
    let of_rule = rule.map(|policy| &policy.source().features.url_rewrite);
    let of = |rewrite: Option<&'r UrlRewrite>| rewrite.and_then(|rewrite| rewrite.hostname.as_deref());
    of(of_backend).or(rendered).or_else(|| of(of_rule))
}

impl Exchange<'_> {
    /// All settings for the request.
    pub(super) fn settings(&self) -> &Settings {
        match self.traffic() {
            Some(policy) => &policy.compiled.settings,
            None => &self.snapshot.settings,
        }
    }

    /// The traffic policy of the route.
    pub(super) fn traffic(&self) -> Option<&Arc<TrafficPolicy>> {
        self.traffic_in(&self.snapshot)
    }

    /// The traffic policy of the route, in the snapshot of the request. The request can change while the policy is borrowed.
    pub(super) fn traffic_in<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s Arc<TrafficPolicy>> {
        self.steered.as_ref()?.policy(snapshot)
    }

    /// `Strict-Transport-Security` of the settings: over TLS, unless a policy sets its own.
    pub(super) fn hsts(&self) -> Option<Hsts> {
        let has_own = self.traffic().is_some_and(|policy| policy.compiled.hsts.is_some());
        let is_tls = self.client.origin.session.is_some();
        self.snapshot.settings.tls.hsts.filter(|_| is_tls && !has_own)
    }

    /// Begins to apply the policy of a target. Its settings apply from here on.
    pub(super) fn begin_policy(&mut self, route: RouteIndex, course: &RouteTrafficPolicy) {
        let policy = &course.policy;
        self.head_deadline = request_deadline(
            self.record.started,
            policy.source().features.timeouts.request,
            self.head_deadline,
        );
        self.upload.set_limits(&policy.compiled.settings.limits);
        // These lines apply to every response, also from this gateway.
        self.scratch.response_lines.extend_from_slice(&policy.compiled.response.lines);
        if let Some(line) = policy.compiled.hsts.as_deref().filter(|_| is_own_host(self.client)) {
            self.scratch.response_lines.extend_from_slice(line.as_bytes());
        }
        let preference = EndpointPreference::default();
        if policy.source().features.unrecorded.traces {
            self.end_trace();
        } else if policy.source().features.spans.ignores_callers {
            self.ignore_caller_trace();
        }
        self.steered = Some(Steered { route, preference, mirrors: Vec::new(), host: None });
    }

    /// Responds without an endpoint, if the policy returns a response for the request. A route whose security policy is
    /// invalid never does.
    pub(super) fn answer(&mut self, index: RouteIndex) -> Result<(), Refusal> {
        let snapshot = self.snapshot.clone();
        let target = snapshot.table.target(index);
        let Some(course) = target.course.as_deref().filter(|course| course.has_returns()) else {
            return Ok(());
        };
        let is_closed = |guard: &Guard| guard.security.as_ref().is_some_and(|policy| policy.compiled.refuses);
        if target.guard.as_deref().is_some_and(is_closed) {
            return Ok(());
        }
        let shard = course.policy.stats.of(self.worker.id);
        let returned = course.returned(&self.template_view(), shard).map_err(too_long)?;
        let Some(returned) = returned else { return Ok(()) };
        shard.requests.add(1);
        if returned.status == CLOSED {
            return Err(ClientFault::Closed.into());
        }
        Err(match returned.content {
            ReturnedContent::Location(location) => {
                self.scratch.request.extend_from_slice(&location);
                Refusal::Redirect(returned.status)
            }
            _ => Refusal::Returned(Box::new(returned)),
        })
    }

    /// Applies the policy. Returns the slot of the upstream for the request, if the policy splits it off to another Service
    /// than the backends of the rule.
    pub(super) async fn steer(&mut self, index: RouteIndex) -> Result<Option<usize>, Refusal> {
        let snapshot = self.snapshot.clone();
        let target = snapshot.table.target(index);
        let Some(course) = target.course.as_deref() else { return Ok(None) };
        let (policy, shard) = (&course.policy, course.policy.stats.of(self.worker.id));
        shard.requests.add(1);
        if let Some(budget) = &policy.compiled.budget {
            budget.count_request(self.record.started);
        }
        self.edit(|exchange, edits| policy.compiled.request.edit(exchange.head(), edits));
        if let Some(headers) = &policy.compiled.template_headers {
            self.edit(|exchange, edits| headers.edit(exchange.head(), edits));
        }
        if let Some(delay) = fault::delay(&policy.compiled.faults) {
            shard.delayed.add(1);
            self.wait(delay).await?;
        }
        self.read_session();
        let sticks = self.affinity().is_some_and(Affinity::is_over_splits);
        let session_backend = self.session.filter(|_| sticks).map(|session| session.backend);
        match course.steer(&self.template_view(), session_backend, shard) {
            Steering::Forward(forward) => self.apply_forward(forward),
            Steering::Abort(status) => {
                self.record.policy = Some(policy.source().id.clone());
                Err(Refusal::Aborted(status))
            }
            Steering::Respond => Err(Refusal::Fixed(policy.clone())),
            Steering::Redirect { status, location } => {
                self.scratch.request.extend_from_slice(&location);
                Err(Refusal::Redirect(status))
            }
            Steering::Reject(rejection) => Err(Refusal::Rejected(rejection)),
        }
    }

    /// Applies the edits of a request that goes to an upstream. Returns the slot of the upstream.
    fn apply_forward(&mut self, forward: Forward) -> Result<Option<usize>, Refusal> {
        let Forward { slot, is_diverted, preference, mirrors, rewritten } = forward;
        if let Some(steered) = &mut self.steered {
            (steered.preference, steered.mirrors) = (preference, mirrors);
        }
        if let Some(path) = rewritten.path {
            self.set_path(path);
        }
        if let Some(query) = rewritten.query {
            self.scratch.query = Some(query);
        }
        self.captured = rewritten.captured;
        self.render_request()?;
        let skips_empty = self
            .traffic()
            .is_some_and(|policy| policy.source().features.split.as_ref().is_some_and(|of| of.skips_empty));
        let has_endpoint = |slot| self.worker.upstream(slot).is_some_and(|upstream| upstream.has_endpoint());
        let slot = slot.filter(|slot| !skips_empty || has_endpoint(*slot));
        self.record.is_diverted = is_diverted && slot.is_some();
        Ok(slot)
    }

    /// The preference for an endpoint, with the preference of the client's session.
    pub(super) fn of_session(&self, preference: EndpointPreference) -> EndpointPreference {
        let Some(session) = self.session else { return preference };
        match self.affinity() {
            Some(affinity) if affinity.is_hashed() => {
                EndpointPreference { hash: Some(session.mark), is_strict: true, subset: 1, ..preference }
            }
            _ => EndpointPreference { mark: Some(session.mark), ..preference },
        }
    }

    /// Renders the host and the headers for the endpoint, as far as they have variables.
    fn render_request(&mut self) -> Result<(), Refusal> {
        let has_variables = |policy: &&Arc<TrafficPolicy>| {
            let has_host = policy.source().features.url_rewrite.host.is_some();
            has_host || policy.compiled.template_headers.is_some()
        };
        let snapshot = self.snapshot.clone();
        let Some(policy) = self.traffic_in(&snapshot).filter(has_variables) else { return Ok(()) };
        if let Some(host) = &policy.source().features.url_rewrite.host {
            let mut rendered = Vec::new();
            self.template_view().render(host, Place::Header, &mut rendered).map_err(too_long)?;
            let host = String::from_utf8(rendered).ok().filter(|host| host.parse::<Authority>().is_ok());
            let host = host.ok_or(Refusal::Rejected(Rejection::InvalidHost))?;
            if let Some(steered) = &mut self.steered {
                steered.host = Some(host.into());
            }
        }
        if let Some(headers) = &policy.compiled.template_headers {
            let mut lines = std::mem::take(&mut self.scratch.request_lines);
            let written = headers.write_request(&self.template_view(), &mut lines);
            self.scratch.request_lines = lines;
            written.map_err(too_long)?;
        }
        Ok(())
    }

    /// Chooses one of the backends of a rule, and applies its features. Returns the slot of its upstream.
    pub(super) fn choose_backend(&mut self, index: RouteIndex) -> Result<usize, Refusal> {
        let backends = match &self.snapshot.table.target(index).backends {
            Backends::One(slot) => return Ok(*slot),
            Backends::Weighted(backends) => backends,
        };
        let of_session = self.backend_of_session(backends);
        let backend = of_session.or_else(|| rule::choose(backends)).ok_or(Failure::NoEndpoint)?;
        let slot = backend.slot.ok_or(Failure::InvalidBackend)?;
        let edits = backend.edits.clone();
        if let Some(of) = &edits {
            self.edit(|exchange, edits| of.request.edit(exchange.head(), edits));
            self.scratch.response_lines.extend_from_slice(&of.response.lines);
            if let Some(rewrite) = &of.url_rewrite.path {
                self.rewrite_from_client(rewrite, of.matched)?;
            }
        }
        self.backend_edits = edits;
        if self.backend_edits.as_ref().is_some_and(|edits| edits.affinity.is_some()) {
            self.read_session();
        }
        Ok(slot)
    }

    /// The session affinity of the backend, or else of the rule.
    pub(super) fn affinity(&self) -> Option<&Affinity> {
        let of_backend = self.backend_edits.as_ref().and_then(|edits| edits.affinity.as_ref());
        of_backend.or_else(|| self.traffic()?.compiled.affinity.as_ref())
    }

    /// Reads the session that the client states.
    fn read_session(&mut self) {
        let session = self.affinity().and_then(|affinity| {
            let now = if affinity.is_timed() { unix_millis() } else { 0 };
            let head = HeadView { head: &self.scratch.head, buf: self.scratch.input.filled() };
            affinity.session(head, now).or_else(|| affinity.begin())
        });
        self.session = session;
    }

    /// The backend of the client's session, if the session has precedence over the weights, and an endpoint of the backend
    /// can serve the request.
    fn backend_of_session<'b>(&self, backends: &'b [WeightedBackend]) -> Option<&'b WeightedBackend> {
        let mark = self.session?.backend;
        let marked = || backends.iter().filter(move |backend| backend.mark == mark);
        // Several backends may name one Service.
        let of_session = || marked().find(|backend| backend.weight > 0).or_else(|| marked().next());
        let backend =
            self.affinity().filter(|affinity| affinity.is_over_weights()).and_then(|_| of_session())?;
        let upstream = self.worker.upstream(backend.slot?)?;
        upstream.has_endpoint().then_some(backend)
    }

    /// Rewrites the client's path, also if the policy of the rule has rewritten it already.
    fn rewrite_from_client(&mut self, rewrite: &PathRewrite, matched: MatchedPrefix) -> Result<(), Refusal> {
        let (mut buffer, raw) = (Vec::new(), raw_path(&self.scratch.head, self.scratch.input.filled()));
        let path = match normalise(raw, &mut buffer).map_err(Refusal::Rejected)? {
            Normalised::Plain | Normalised::AsIs => raw,
            Normalised::Rewritten(path) => path,
        };
        let rewritten = matched.apply(rewrite, path).map_err(Refusal::Rejected)?;
        self.set_path(rewritten);
        Ok(())
    }

    /// Waits, unless the client leaves or the request's deadline ends.
    async fn wait(&mut self, time: Duration) -> Result<(), Refusal> {
        let over = sleep_until(after(Instant::now(), time));
        Ok(self.awaited(over, self.head_deadline).await?.ok_or(Failure::ResponseTimeout)?)
    }

    /// Changes the head of the response.
    pub(super) fn steer_response(&mut self) {
        let Some(policy) = self.traffic_in(&self.snapshot) else { return };
        let scratch = &mut *self.scratch;
        policy.compiled.response.strip(&mut scratch.reply_head.lines, scratch.reply.filled());
        if policy.compiled.hsts.is_some() && is_own_host(self.client) {
            let lines = scratch.reply_head.lines.iter_mut();
            lines
                .filter(|line| line.known == Known::StrictTransportSecurity)
                .for_each(|line| line.hop_by_hop = true);
        }
        if let Some(source) = &policy.source().features.response_rewrite {
            rewrite(source, &mut scratch.reply_head, scratch.reply.filled(), &mut scratch.response_lines);
        }
        self.add_template_headers(self.scratch.reply_head.status);
    }

    /// Adds the headers with variables to the response. Its head is that of an endpoint, or empty.
    pub(super) fn add_template_headers(&mut self, status: u16) {
        let snapshot = self.snapshot.clone();
        let policy = self.traffic_in(&snapshot);
        let Some(headers) = policy.and_then(|policy| policy.compiled.template_headers.as_ref()) else {
            return;
        };
        let Scratch { reply, reply_head, response_lines, .. } = &mut *self.scratch;
        headers.strip(status, &mut reply_head.lines, reply.filled(), response_lines);
        let mut lines = std::mem::take(&mut self.scratch.response_lines);
        let missing = headers.write_response(status, &self.template_view(), &mut lines);
        self.scratch.response_lines = lines;
        self.worker.stats().headers_dropped.add(missing);
    }

    /// States the session in the response. `mark` is the mark of the responding endpoint; `None`: a cached response, which
    /// only renews a session.
    pub(super) fn state_session(&mut self, mark: Option<u64>) {
        let is_of_endpoint = mark.is_some();
        let Some(mut mark) = mark.or(self.session.map(|session| session.mark)) else { return };
        let Some(upstream) = self.record.upstream.clone() else { return };
        // Apart from `self`, whose lines change.
        let (snapshot, edits) = (self.snapshot.clone(), self.backend_edits.clone());
        let policy = self.traffic_in(&snapshot);
        let of_backend = edits.as_ref().and_then(|edits| edits.affinity.as_ref());
        let Some(affinity) = of_backend.or_else(|| policy?.compiled.affinity.as_ref()) else { return };
        if let Some(session) = self.session.filter(|_| is_of_endpoint) {
            let (stays, before) = (affinity.outlives_failures(), session.mark);
            match affinity.is_hashed() {
                // The endpoint that the hash leads to has failed, or was at its limit.
                true if !stays => mark = upstream.hash_of(mark, before).unwrap_or(before),
                true => mark = before,
                false if stays && upstream.has_marked(before) => mark = before,
                false => {}
            }
        }
        let before = self.session.filter(|session| !session.is_new);
        let snapshot = self.snapshot.clone();
        let scratch = &mut *self.scratch;
        affinity.strip(&mut scratch.reply_head.lines, scratch.reply.filled());
        let now = unix_millis();
        if let Some(session) = affinity.renewed(before, mark, upstream.shared.key(), now) {
            let head = HeadView { head: &scratch.head, buf: scratch.input.filled() };
            let path = self.record.route.and_then(|route| snapshot.table.path(route));
            let told = Told {
                is_https: self.client.origin.is_https(self.trusted, head),
                location: path.map_or("/", PathMatch::as_str),
                user_agent: head.head.header(head.buf, Known::UserAgent).unwrap_or_default(),
            };
            affinity.write(session, &told, now, &mut scratch.response_lines);
        }
    }

    /// The deadline for the end of the response, if the policy limits requests or attempts (Gateway API, HTTPRouteTimeouts).
    pub(super) fn response_deadline(&self) -> Option<Instant> {
        let request = self.traffic()?.source().features.timeouts.request;
        request_deadline(self.record.started, request, self.attempt_deadline())
    }

    /// The end of the attempt, if the policy limits attempts.
    pub(super) fn attempt_deadline(&self) -> Option<Instant> {
        let timeout = self.traffic()?.source().features.timeouts.backend_request?;
        Some(after(self.record.asked, timeout.get()))
    }

    /// Whether the policy retries responses with this status.
    pub(super) fn retries_status(&self, status: u16) -> bool {
        self.traffic().is_some_and(|policy| policy.retries_status(status))
    }

    /// Whether another attempt may follow an attempt that timed out: the attempt had less time than the request.
    pub(super) fn may_retry_timeout(&self) -> bool {
        self.attempt_deadline().is_some() && self.head_deadline.is_none_or(|due| Instant::now() < due)
    }

    /// Whether the retry budget of the policy allows another attempt after this failure, which then counts for both budgets.
    /// Both budgets allow every retry of an unprocessed request: an endpoint that closes an idle connection must not cost a
    /// request.
    ///
    /// # Errors
    /// The budget of the upstream does not allow another attempt.
    pub(super) fn spend_retry(
        &self,
        of_upstream: Option<&RetryBudget>,
        failure: Failure,
    ) -> Result<bool, Failure> {
        let now = Instant::now();
        if of_upstream.is_some_and(|budget| !failure.is_unprocessed() && !budget.allows_retry(now)) {
            return Err(Failure::OverRetryBudget);
        }
        let is_allowed = self.traffic().is_none_or(|policy| policy.spend_retry(self.worker.id, failure, now));
        if let Some(budget) = of_upstream.filter(|_| is_allowed) {
            budget.count_retry(now);
        }
        Ok(is_allowed)
    }
}

/// Whether the client's connection is for a host with TLS in the configuration.
fn is_own_host(client: &Client) -> bool {
    client.origin.session.as_ref().is_some_and(|session| session.host.is_configured())
}

/// A text with the values of the request is too long.
fn too_long(fault: TooLong) -> Refusal {
    Refusal::Rejected(fault.into())
}

/// The time in milliseconds since 1970.
fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX >> 2)
}
