//! The traffic policy of a described request, and the upstreams that may receive the request.

use std::time::{Duration, SystemTime};

use http::uri::Authority;
use sluicegate_http1::{HeadLimits, HeadScan, Method, Normalised, Rejection, RequestHead, normalise};
use sluicegate_model::UpstreamKey;
use sluicegate_model::rule::{Backend, Rule};
use sluicegate_model::value::{Template, TemplatePart, Variable};

use super::data::{Destination, Outcome, Refused, Sent, Step, Verdict};
use super::trial::{End, Trial, is_call};
use super::upstream::{State, refused};
use super::words::{percent, span, text};
use crate::failure::{ClientFault, Failure};
use crate::feature::headers::BackendEdits;
use crate::feature::returns::{ReturnedContent, returned};
use crate::feature::session_affinity::{Affinity, Session};
use crate::feature::traffic::{RouteTrafficPolicy, Steering};
use crate::http::encode::{RequestPlan, write_request};
use crate::http::exchange::endpoint_form;
use crate::http::protocols::may_be_asked;
use crate::http::steer::host_for_endpoint;
use crate::http::target::raw_path;
use crate::rule::{Backends, WeightedBackend};
use crate::template::{Place, TooLong};

/// The status of nginx that closes the connection without a response.
const CLOSED: u16 = 444;

/// An upstream that may receive the request.
struct Way<'w> {
    upstream: Option<&'w UpstreamKey>,
    percent: f64,
    because: String,
    edits: Option<&'w BackendEdits>,
    affinity: Option<&'w Affinity>,
}

impl<'t> Trial<'t> {
    /// Responds without an endpoint, if the policy returns a response for the request before the security policy decides.
    pub(super) fn answer(&mut self) -> Result<(), End> {
        let Some(target) = self.target() else { return Ok(()) };
        let Some(course) = target.course.as_deref().filter(|course| course.has_returns()) else {
            return Ok(());
        };
        let security = target.guard.as_deref().and_then(|guard| guard.security.as_deref());
        if security.is_some_and(|policy| policy.compiled.refuses) {
            return Ok(());
        }
        let source = course.policy.source();
        let returns = &source.features.returns;
        if self.lacks_address()
            && returns
                .iter()
                .any(|of| of.conditions.iter().any(|condition| reads_address(&condition.subject)))
        {
            self.needs_address("response", &source.id, None);
            return Ok(());
        }
        let found = returned(returns, &self.template_view()).map_err(|_| too_long())?;
        let Some(found) = found else {
            self.allows("response", &source.id, "no condition of a response holds");
            return Ok(());
        };
        let end = match found {
            found if found.status == CLOSED => End {
                because: format!("{} closes the connection without a response.", source.id),
                ..End::client(ClientFault::Closed)
            },
            found => {
                let location = match &found.content {
                    ReturnedContent::Location(location) => Some(text(location)),
                    ReturnedContent::Status | ReturnedContent::Body { .. } => None,
                };
                let because = format!("{} responds with {}.", source.id, found.status);
                End { location, ..End::response(found.status, None, because) }
            }
        };
        Err(self.ends("response", Some(&source.id), Verdict::Responds, end))
    }

    /// Applies the traffic policy: its own responses, and the edits of the request.
    fn apply_policy(&mut self, course: &'t RouteTrafficPolicy) -> Result<Option<Box<str>>, End> {
        let (source, compiled) = (course.policy.source(), &course.policy.compiled);
        let (id, features) = (&source.id, &source.features);
        self.edit(|trial, edits| compiled.request.edit(trial.head(), edits));
        if let Some(headers) = &compiled.template_headers {
            self.edit(|trial, edits| headers.edit(trial.head(), edits));
        }
        if let Some(delay) = features.fault.delay {
            let effect =
                format!("delays {} % of the requests by {}", delay.percent.get(), span(delay.time.get()));
            self.changes("fault injection", id, effect);
        }
        if let Some(abort) = features.fault.abort {
            let (share, status) = (abort.percent.get(), abort.status_code.get());
            let effect = format!("aborts {share} % of the requests with {status}");
            if share >= 100 {
                let end = End::response(status, Some("fault_injected"), format!("{id} {effect}."));
                let end = End { policy: Some(id.clone()), ..end };
                return Err(self.ends("fault injection", Some(id), Verdict::Denies, end));
            }
            self.unknown("fault injection", id, effect, Some((status, "fault_injected")));
        }
        let own = course.own_response(&self.view());
        match own {
            None => {}
            Some(Steering::Redirect { status, location }) => {
                let location = text(&location);
                let because = format!("{id} redirects the request to {location}.");
                let end = End { location: Some(location), ..End::response(status, None, because) };
                return Err(self.ends("redirect", Some(id), Verdict::Responds, end));
            }
            Some(Steering::Reject(rejection)) => return Err(End::rejected(rejection)),
            Some(_) => {
                let status = features.direct_response.as_ref().map_or(500, |fixed| fixed.status_code.get());
                let end = End::response(status, None, format!("{id} responds with {status}."));
                return Err(self.ends("direct response", Some(id), Verdict::Responds, end));
            }
        }
        let (rewritten, _) = course.rewritten(&self.template_view()).map_err(End::rejected)?;
        if let Some(path) = rewritten.path {
            self.changes("URL rewrite", id, format!("the path becomes {}", text(&path)));
            self.set_path(path);
        }
        if let Some(query) = rewritten.query {
            self.changes("URL rewrite", id, format!("the query becomes {:?}", text(&query)));
            self.query = Some(query);
        }
        self.captured = rewritten.captured;
        let mut host = None;
        if let Some(template) = &features.url_rewrite.host {
            let mut rendered = Vec::new();
            self.template_view()
                .render(template, Place::Header, &mut rendered)
                .map_err(|_: TooLong| too_long())?;
            let rendered = String::from_utf8(rendered).ok().filter(|host| host.parse::<Authority>().is_ok());
            host = Some(rendered.ok_or_else(|| End::rejected(Rejection::InvalidHost))?.into_boxed_str());
        }
        if let Some(headers) = &compiled.template_headers {
            let mut lines = std::mem::take(&mut self.request_lines);
            let written = headers.write_request(&self.template_view(), &mut lines);
            self.request_lines = lines;
            written.map_err(|_| too_long())?;
        }
        for mirror in &features.mirrors {
            let effect =
                format!("sends a copy of {} % of the requests to {}", mirror.percent.get(), mirror.upstream);
            self.changes("mirror", id, effect);
        }
        let is_cacheable = matches!(self.head().head.method, Method::Get | Method::Head);
        if compiled.cache.is_some() && is_cacheable {
            self.unknown("cache", id, "responds from the cache, if a fresh response is cached", None);
        }
        Ok(host)
    }

    /// Finds the upstreams that may receive the request.
    pub(super) fn forward(&mut self, rule: &'t Rule) -> Result<(), End> {
        let Some(target) = self.target() else { return Ok(()) };
        let course = target.course.as_deref();
        let host = match course {
            Some(course) => self.apply_policy(course)?,
            None => None,
        };
        let ways = self.ways(rule, course, &target.backends);
        let mut all = Vec::with_capacity(ways.len());
        for way in ways {
            all.push(self.destination(way, course, host.as_deref())?);
        }
        self.found.destinations = all;
        self.outcome(rule)
    }

    /// The upstreams that may receive the request, with their probabilities.
    fn ways(
        &self,
        rule: &'t Rule,
        course: Option<&'t RouteTrafficPolicy>,
        backends: &'t Backends,
    ) -> Vec<Way<'t>> {
        let mut ways = Vec::new();
        let of_rule = course.and_then(|course| course.policy.compiled.affinity.as_ref());
        let session = of_rule.and_then(|affinity| self.session(affinity));
        let mut own = (100.0, None);
        if let Some(course) = course
            && let Some(split) = &course.policy.compiled.split
        {
            let features = &course.policy.source().features;
            let sticks = of_rule.is_some_and(Affinity::is_over_splits);
            let of_session =
                session.filter(|_| sticks).and_then(|session| course.branch_of_session(session.backend));
            let view = self.head();
            let (matched, weights) = (split.matched(view.head, view.buf), split.weights(view.head, view.buf));
            let sum: f64 = weights.clone().map(f64::from).sum();
            let shares: Vec<(f64, String)> = match (of_session, matched) {
                (Some(chosen), _) | (None, chosen @ Some(_)) => {
                    let because = if of_session.is_some() {
                        "the client's session"
                    } else {
                        "a condition of the split"
                    };
                    let share = |place: usize| {
                        if chosen.map_or(0, |chosen| chosen + 1) == place { 100.0 } else { 0.0 }
                    };
                    weights.enumerate().map(|(place, _)| (share(place), because.to_owned())).collect()
                }
                // Without weights, the rule decides.
                (None, None) if sum == 0.0 => vec![(100.0, "no weight of the split".to_owned())],
                (None, None) => weights
                    .map(|weight| {
                        (f64::from(weight) / sum * 100.0, format!("weight {weight} of {sum:.0} of the split"))
                    })
                    .collect(),
            };
            let mut shares = shares.into_iter();
            own = shares.next().map(|(share, because)| (share, Some(because))).unwrap_or(own);
            let skips = features.split.as_ref().is_some_and(|split| split.skips_empty);
            for ((share, because), branch) in
                shares.zip(features.split.iter().flat_map(|split| &split.backends))
            {
                if share == 0.0 {
                    continue;
                }
                if skips && !State::of(self.served, &branch.upstream, None).has_endpoint {
                    own.0 += share;
                    continue;
                }
                let upstream = Some(&branch.upstream);
                ways.push(Way { upstream, percent: share, because, edits: None, affinity: of_rule });
            }
        }
        let (share, because) = own;
        let secure = course.and_then(|course| course.policy.source().features.secure_upstream.as_ref());
        if let Some(upstream) = secure.filter(|_| self.described.is_https) {
            let because = "the upstream for requests over TLS".to_owned();
            ways.insert(
                0,
                Way { upstream: Some(upstream), percent: share, because, edits: None, affinity: of_rule },
            );
        } else if share > 0.0 {
            let of_rule = self.ways_of_rule(rule, backends, of_rule, session);
            for way in of_rule.into_iter().rev() {
                let because = match &because {
                    Some(split) if way.percent >= 100.0 => split.clone(),
                    Some(split) => format!("{split}; {}", way.because),
                    None => way.because,
                };
                ways.insert(0, Way { percent: way.percent * share / 100.0, because, ..way });
            }
        }
        ways.retain(|way| way.percent > 0.0);
        ways
    }

    /// The backends of the rule, with their probabilities.
    fn ways_of_rule(
        &self,
        rule: &'t Rule,
        backends: &'t Backends,
        affinity: Option<&'t Affinity>,
        session: Option<Session>,
    ) -> Vec<Way<'t>> {
        let Backends::Weighted(weighted) = backends else {
            let because = "the only backend of the rule".to_owned();
            let upstream = rule.backends.first().map(|backend| &backend.upstream);
            return vec![Way { upstream, percent: 100.0, because, edits: None, affinity }];
        };
        let pairs = || rule.backends.iter().zip(&**weighted);
        let way = |(backend, weighted): (&'t Backend, &'t WeightedBackend), percent, because| {
            let edits = weighted.edits.as_deref();
            let own = edits.and_then(|edits| edits.affinity.as_ref());
            let upstream = weighted.slot.is_some().then_some(&backend.upstream);
            Way { upstream, percent, because, edits, affinity: own.or(affinity) }
        };
        let sticks = affinity.is_some_and(Affinity::is_over_weights);
        if let Some(session) = session.filter(|_| sticks) {
            let marked = || pairs().filter(|(_, weighted)| weighted.mark == session.backend);
            let of_session = marked().find(|(_, weighted)| weighted.weight > 0).or_else(|| marked().next());
            let serves = |(backend, weighted): &(&Backend, &WeightedBackend)| {
                weighted.slot.is_some() && State::of(self.served, &backend.upstream, None).has_endpoint
            };
            if let Some(found) = of_session.filter(serves) {
                return vec![way(found, 100.0, "the client's session".to_owned())];
            }
        }
        let sum: f64 = weighted.iter().map(|backend| f64::from(backend.weight)).sum();
        let of = |pair: (&'t Backend, &'t WeightedBackend)| {
            let weight = pair.1.weight;
            let because = match weighted.len() {
                1 => "the only backend of the rule".to_owned(),
                _ => format!("weight {weight} of {sum:.0}"),
            };
            way(pair, f64::from(weight) / sum * 100.0, because)
        };
        pairs().filter(|(_, weighted)| weighted.weight > 0).map(of).collect()
    }

    /// The session that the client states.
    fn session(&self, affinity: &Affinity) -> Option<Session> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        affinity.session(self.head(), u64::try_from(since.as_millis()).unwrap_or(u64::MAX >> 2))
    }

    fn destination(
        &mut self,
        way: Way<'t>,
        course: Option<&'t RouteTrafficPolicy>,
        host: Option<&str>,
    ) -> Result<Destination, End> {
        let Way { upstream, percent, because, edits, affinity } = way;
        let mut destination = Destination { percent, because, ..Destination::default() };
        let Some(mut key) = upstream else {
            destination.upstream = "(invalid)".to_owned();
            destination.refusal = Some(refused(Failure::InvalidBackend));
            return Ok(destination);
        };
        let pages = course.and_then(|course| course.policy.source().features.error_pages.as_deref());
        if let Some(pages) = pages.filter(|pages| pages.serves_empty)
            && !State::of(self.served, key, None).has_endpoint
            && State::of(self.served, &pages.upstream, None).has_endpoint
        {
            key = &pages.upstream;
            destination.because =
                "the Service of the error pages: the upstream has no ready endpoint".to_owned();
        }
        let session = affinity.and_then(|affinity| Some((affinity, self.session(affinity)?)));
        let mark = session.filter(|(affinity, _)| !affinity.is_hashed()).map(|(_, session)| session.mark);
        State::of(self.served, key, mark).describe(&mut destination);
        destination.upstream = key.to_string();
        destination.request = Some(self.sent(course, edits, host)?);
        Ok(destination)
    }

    /// The request that an endpoint receives.
    fn sent(
        &mut self,
        course: Option<&'t RouteTrafficPolicy>,
        edits: Option<&'t BackendEdits>,
        host: Option<&str>,
    ) -> Result<Sent, End> {
        let before = self.mark();
        if let Some(of) = edits {
            self.edit(|trial, edits| of.request.edit(trial.head(), edits));
            if let Some(rewrite) = &of.url_rewrite.path {
                let view = self.head();
                let (mut buffer, raw) = (Vec::new(), raw_path(view.head, view.buf));
                let path = match normalise(raw, &mut buffer).map_err(End::rejected)? {
                    Normalised::Plain | Normalised::AsIs => raw,
                    Normalised::Rewritten(path) => path,
                };
                let rewritten = of.matched.apply(rewrite, path).map_err(End::rejected)?;
                self.set_path(rewritten);
            }
        }
        let policy = course.map(|course| &*course.policy);
        let form = policy.and_then(endpoint_form);
        let keeps_target = !self.is_changed && form.is_some_and(|form| form.nginx.is_some());
        let view = self.head();
        let upgrade =
            view.head.upgrade.map(|upgrade| upgrade.of(view.buf)).filter(|upgrade| may_be_asked(upgrade));
        let address = self.address().unwrap_or_else(|last| last);
        let plan = RequestPlan {
            path: if self.is_rewritten && !keeps_target { &self.path } else { raw_path(view.head, view.buf) },
            query: self.query(),
            host: host_for_endpoint(edits, host, policy),
            lines: &self.request_lines,
            headers: policy.and_then(|policy| policy.compiled.template_headers.as_ref()),
            trusted: self.trusted.then_some(address),
            underscores: self.served.table.settings.underscores_in_headers,
            request_id: 0,
            upgrade,
            form,
        };
        let mut out = Vec::new();
        write_request(&mut out, view.buf, view.head, &self.origin, &plan);
        self.restore(before);
        Ok(read_sent(&out))
    }

    /// The outcome of a request that no policy refuses.
    fn outcome(&mut self, rule: &Rule) -> Result<(), End> {
        let all = &self.found.destinations;
        let names: Vec<&str> = all.iter().map(|destination| &*destination.upstream).collect();
        let Some(first) = all.first() else {
            let failure = Failure::NoEndpoint;
            let because = format!("{} has no backend with a weight above 0.", rule.id);
            return Err(End::response(failure.status(), Some(failure.reason()), because));
        };
        let is_same = |refusal: &Refused| {
            all.iter().all(|other| other.refusal.as_ref().is_some_and(|other| other.reason == refusal.reason))
        };
        if let Some(refusal) = first.refusal.as_ref().filter(|refusal| is_same(refusal)) {
            let (failure, because) = match refusal.reason == Failure::InvalidBackend.reason() {
                true => (Failure::InvalidBackend, format!("{} names no valid backend.", rule.id)),
                false => (Failure::NoEndpoint, format!("{} has no ready endpoint.", names.join(" or "))),
            };
            return Err(End::response(failure.status(), Some(failure.reason()), because));
        }
        self.found.outcome = Outcome::Forwards;
        let ways: Vec<String> = match all.len() {
            1 => names.into_iter().map(str::to_owned).collect(),
            _ => all.iter().map(|of| format!("{} ({})", of.upstream, percent(of.percent))).collect(),
        };
        self.found.because = format!("The gateway forwards the request to {}.", ways.join(" or "));
        Ok(())
    }

    /// The error page in place of the gateway's own response, if there is one.
    pub(super) fn page(&mut self, end: &End) {
        let Some((policy, status)) = self.traffic.zip(end.status) else { return };
        let source = policy.source();
        let Some(pages) = source.features.error_pages.as_deref() else { return };
        if pages.codes.iter().any(|code| code.get() == status) && !is_call(self.head()) {
            let effect =
                format!("asks {} for the page of {status}, which this command does not do", pages.upstream);
            let step = Step::of("error page", effect);
            self.step(Step { from: Some(source.id.to_string()), verdict: Verdict::Unknown, ..step });
        }
    }
}

/// Reads a written request.
fn read_sent(out: &[u8]) -> Sent {
    let (mut head, limits) = (RequestHead::default(), HeadLimits { bytes: usize::MAX, headers: usize::MAX });
    if !matches!(head.parse(out, &mut HeadScan::default(), &limits), Ok(true)) {
        return Sent::default();
    }
    let mut sent = Sent {
        path: text(head.path.of(out)),
        query: head.query.map(|query| text(query.of(out))),
        ..Sent::default()
    };
    for line in &head.lines {
        let (name, value) = (text(line.name.of(out)), text(line.value.of(out)));
        match &*name {
            "Host" => sent.host = value,
            "X-Request-ID" if value.bytes().all(|byte| byte == b'0') => {
                sent.headers.push((name, "(new for each request)".to_owned()));
            }
            _ => sent.headers.push((name, value)),
        }
    }
    sent
}

fn too_long() -> End {
    End::rejected(TooLong.into())
}

/// Whether a text has the client IP.
fn reads_address(template: &Template) -> bool {
    template.parts().iter().any(|part| {
        matches!(
            part,
            TemplatePart::Variable(
                Variable::RemoteAddr
                    | Variable::PeerAddress
                    | Variable::ForwardedFor
                    | Variable::FullForwardedFor
            )
        )
    })
}
