//! The traffic policy of an admitted request: injected faults, fixed responses, other upstreams, changed paths and
//! headers.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_http1::Rejection;
use sluicegate_model::Settings;
use sluicegate_model::policy::traffic::{Answer, HashPart, Redirect, Retries};
use tokio::time::{Instant, sleep_until};

use super::exchange::Exchange;
use super::refuse::Refusal;
use crate::counters::{Tally, TrafficShard};
use crate::deadline::after;
use crate::failure::Failure;
use crate::feature::traffic::{RouteTrafficPolicy, Traffic, TrafficPolicy};
use crate::hash::StableHash;
use crate::name::host_name;
use crate::request::HeadView;
use crate::rule::RouteIndex;
use crate::upstream::Wish;

/// A request with a traffic policy.
pub(super) struct Steered {
    pub(super) policy: Arc<TrafficPolicy>,
    /// The endpoint that the request prefers.
    pub(super) wish: Wish,
    /// The slot of the upstream that receives a copy.
    pub(super) mirror: Option<usize>,
}

impl Exchange<'_> {
    /// All settings for the request.
    pub(super) fn settings(&self) -> &Settings {
        match &self.steered {
            Some(steered) => &steered.policy.compiled.settings,
            None => &self.snapshot.settings,
        }
    }

    /// The time limit of a response. The limit is shorter for an attempt that another attempt may follow.
    pub(super) fn response_limit(&self, repeatable: bool) -> Duration {
        let limit = self.settings().timeouts.response_head;
        let per_attempt = self.retries().and_then(|retries| retries.per_attempt);
        match per_attempt.filter(|_| repeatable && self.upload.is_replayable()) {
            Some(per_attempt) => limit.min(per_attempt),
            None => limit,
        }
    }

    /// Begins to apply the policy. Its settings apply from here on.
    pub(super) fn begin_policy(&mut self, course: &RouteTrafficPolicy) {
        let policy = course.policy.clone();
        let source = policy.source();
        if let Some(most) = source.timeouts.request {
            let due = after(self.record.started, most);
            self.head_deadline = Some(self.head_deadline.map_or(due, |head_deadline| head_deadline.min(due)));
        }
        self.upload.set_limit(policy.compiled.settings.limits.request_body);
        // These lines apply to every response, also from this gateway.
        self.scratch.response_lines.extend_from_slice(&policy.compiled.response.lines);
        self.steered = Some(Steered { policy, wish: Wish::default(), mirror: None });
    }

    /// Applies the policy. Returns the slot of the upstream for the request.
    pub(super) async fn steer(&mut self, index: RouteIndex) -> Result<usize, Refusal> {
        let snapshot = self.snapshot.clone();
        let target = snapshot.table.target(index);
        let Some(course) = target.course.as_deref() else { return Ok(target.upstream) };
        let (source, compiled) = (course.policy.source(), &course.policy.compiled);
        self.tally(course, |shard| &shard.requests);
        if let Some(budget) = &compiled.budget {
            budget.request(self.record.started);
        }
        self.edit(compiled);
        if let Some(delay) = compiled.faults.delay.filter(|delay| is_sampled(delay.percent)) {
            self.tally(course, |shard| &shard.delayed);
            self.wait(delay.time).await?;
        }
        if let Some(abort) = compiled.faults.abort.filter(|abort| is_sampled(abort.percent)) {
            self.tally(course, |shard| &shard.aborted);
            self.record.policy = Some(source.id.clone());
            return Err(Refusal::Aborted(abort.status));
        }
        match &source.answer {
            Some(Answer::Fixed(_)) => {
                self.tally(course, |shard| &shard.answered);
                return Err(Refusal::Fixed(course.policy.clone()));
            }
            Some(Answer::Redirect(redirect)) if self.cannot_be_named(redirect) => {
                return Err(Refusal::Rejected(Rejection::MissingHost));
            }
            Some(Answer::Redirect(redirect)) if self.write_redirect(course, redirect) => {
                self.tally(course, |shard| &shard.answered);
                return Err(Refusal::Redirect(redirect.status));
            }
            // A redirect to the requested URL itself would loop.
            Some(Answer::Redirect(_)) | None => {}
        }
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let branch =
            compiled.split.as_ref().and_then(|split| split.choose(head, buf, |below| fastrand::u64(..below)));
        let slot = branch.and_then(|branch| course.branch(branch)).unwrap_or(target.upstream);
        if branch.is_some() {
            self.tally(course, |shard| &shard.diverted);
        }
        let wish = self.wish(course);
        if let Some(steered) = &mut self.steered {
            steered.wish = wish;
            let percent = source.mirror.as_ref().map_or(0, |mirror| mirror.percent);
            steered.mirror = course.mirror.filter(|_| is_sampled(percent));
        }
        if let Some(rewrite) = &source.rewrite.path {
            let mut path = Vec::with_capacity(self.path().len() + 64);
            course.rewrite(rewrite, self.path(), &mut path);
            if course.makes_dots(rewrite, self.path()) {
                return Err(Refusal::Rejected(Rejection::PathAboveRoot));
            }
            self.set_path(path);
        }
        Ok(slot)
    }

    /// Changes the headers of the request.
    fn edit(&mut self, compiled: &Traffic) {
        if compiled.request.strips() {
            // Endpoints may treat trailers as headers (RFC 9110, 6.5.1), which would restore removed headers.
            self.upload.discard_trailers();
        }
        let scratch = &mut *self.scratch;
        let buf = scratch.input.filled();
        compiled.request.strip(&mut scratch.head.lines, buf);
        scratch.request_lines.extend_from_slice(&compiled.request.lines);
    }

    /// Waits, unless the client leaves or the request's deadline ends.
    async fn wait(&mut self, time: Duration) -> Result<(), Refusal> {
        let over = sleep_until(after(Instant::now(), time));
        Ok(self.awaited(over, self.head_deadline).await?.ok_or(Failure::ResponseTimeout)?)
    }

    /// Whether a client that named no host is to be redirected to HTTPS: such a client can only be redirected to a path.
    fn cannot_be_named(&self, redirect: &Redirect) -> bool {
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let has_name =
            redirect.host.is_some() || head.authority.is_some_and(|authority| !authority.of(buf).is_empty());
        redirect.https == Some(true) && !has_name && !self.client_view().is_https(self.head())
    }

    /// Writes the location of a redirect. Returns whether it differs from the requested URL.
    fn write_redirect(&mut self, course: &RouteTrafficPolicy, redirect: &Redirect) -> bool {
        let mut path = Vec::new();
        match &redirect.path {
            Some(rewrite) => course.rewrite(rewrite, self.path(), &mut path),
            None => path.extend_from_slice(self.path()),
        }
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let is_secure = self.client_view().is_https(self.head());
        let authority = head.authority.map_or(&[][..], |authority| authority.of(buf));
        let name = host_name(authority);
        let is_same_path = path == self.path();
        let out = &mut self.scratch.request;
        let host = redirect.host.as_ref().map_or(name, |host| host.as_bytes());
        let https = redirect.https.unwrap_or(is_secure);
        let mut is_elsewhere = !is_same_path;
        // A client that named no host can only be redirected to a path.
        if !host.is_empty() {
            out.extend_from_slice(if https { b"https://" } else { b"http://" });
            out.extend_from_slice(host);
            let named = authority
                .get(name.len()..)
                .and_then(|rest| std::str::from_utf8(rest.strip_prefix(b":")?).ok());
            let of_scheme = |https: bool| if https { 443 } else { 80 };
            let named: Option<u16> = named.and_then(|port| port.parse().ok());
            let own = of_scheme(https);
            let port = match (redirect.port, redirect.https) {
                (Some(port), _) => Some(port),
                (None, Some(_)) => None,
                (None, None) => named,
            };
            is_elsewhere |= https != is_secure || !host.eq_ignore_ascii_case(name);
            is_elsewhere |= port.unwrap_or(own) != named.unwrap_or(of_scheme(is_secure));
            if let Some(port) = port.filter(|port| *port != own) {
                out.extend_from_slice(format!(":{port}").as_bytes());
            }
        }
        out.extend_from_slice(&path);
        if let Some(query) = head.query {
            out.push(b'?');
            out.extend_from_slice(query.of(buf));
        }
        if !is_elsewhere {
            out.clear();
        }
        is_elsewhere
    }

    /// The endpoint that the request prefers.
    fn wish(&self, course: &RouteTrafficPolicy) -> Wish {
        let compiled = &course.policy.compiled;
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let mark = compiled.affinity.as_ref().and_then(|affinity| {
            let value = affinity.place.find(head, buf).ok()??;
            u64::from_str_radix(std::str::from_utf8(&value).ok()?, 16).ok()
        });
        let hash = (!compiled.hash.is_empty()).then(|| {
            let mut hash = StableHash::new();
            for (part, place) in &compiled.hash {
                match (part, place) {
                    (HashPart::Address, _) => hash.part(self.client_address().to_string().as_bytes()),
                    (HashPart::Path, _) => hash.part(self.path()),
                    (_, Some(place)) => hash.part(&place.find(head, buf).ok().flatten().unwrap_or_default()),
                    (_, None) => {}
                }
            }
            hash.finish()
        });
        Wish { balance: course.policy.source().choice.balance, hash, mark }
    }

    /// Changes the head of the response, and sets the cookie for session affinity if an endpoint responded.
    pub(super) fn steer_response(&mut self, mark: Option<u64>) {
        let Some(Steered { policy, wish, .. }) = &self.steered else { return };
        let scratch = &mut *self.scratch;
        policy.compiled.response.strip(&mut scratch.reply_head.lines, scratch.reply.filled());
        let (Some(mark), Some(affinity)) =
            (mark.filter(|mark| wish.mark != Some(*mark)), &policy.compiled.affinity)
        else {
            return;
        };
        let mut line = format!("Set-Cookie: {}={mark:016x}; Path=/; HttpOnly", affinity.cookie.name);
        if let Some(age) = affinity.cookie.max_age {
            // Writing to a String does not fail.
            let _ = write!(line, "; Max-Age={}", age.as_secs());
        }
        // Browsers accept a cookie in a frame of another site only over HTTPS.
        let is_https = self
            .client
            .origin
            .is_https(self.trusted, HeadView { head: &scratch.head, buf: scratch.input.filled() });
        line.push_str(if is_https { "; Secure; SameSite=None" } else { "; SameSite=Lax" });
        line.push_str("\r\n");
        scratch.response_lines.extend_from_slice(line.as_bytes());
    }

    /// The retry settings of the policy.
    fn retries(&self) -> Option<&Retries> {
        self.steered.as_ref()?.policy.retries()
    }

    /// Whether the policy retries responses with this status.
    pub(super) fn retries_status(&self, status: u16) -> bool {
        self.retries().is_some_and(|retries| retries.statuses.contains(&status))
    }

    /// Whether another attempt may follow an attempt that timed out: the attempt had less time than the request.
    pub(super) fn may_retry_timeout(&self) -> bool {
        self.retries().is_some_and(|retries| retries.per_attempt.is_some())
            && self.head_deadline.is_none_or(|due| Instant::now() < due)
    }

    /// Whether the retry budget allows another attempt.
    pub(super) fn spend_retry_budget(&self) -> bool {
        let Some(Steered { policy, .. }) = &self.steered else { return true };
        let Some(budget) = &policy.compiled.budget else { return true };
        let is_free = budget.retry(Instant::now());
        if !is_free {
            policy.stats.of(self.worker.id).over_budget.add(1);
        }
        is_free
    }

    fn tally(&self, course: &RouteTrafficPolicy, tally: fn(&TrafficShard) -> &Tally) {
        tally(course.policy.stats.of(self.worker.id)).add(1);
    }
}

/// Whether this request is among `percent` of 100 requests.
fn is_sampled(percent: u8) -> bool {
    percent >= 100 || percent > 0 && fastrand::u8(..100) < percent
}
