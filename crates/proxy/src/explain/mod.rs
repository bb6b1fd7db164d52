//! Explains what the gateway does with a described request, and why: for `sluicegate explain`, `/explain` and the dashboard.
//!
//! The parser, the normal form of paths, the routing table and the compiled policies are those that serve requests. An
//! explanation sends nothing, counts nothing and remembers nothing. A step that would need that has the verdict
//! [`Verdict::Unknown`] or [`Verdict::Counts`].
//!
//! | module | purpose |
//! |---|---|
//! | `described` | described requests |
//! | `data` | explanations as data |
//! | `trial` | a described request on its way, and its views |
//! | `routing` | listeners, hosts, matches and their precedence |
//! | `admit` | security policies, limits, subscriptions, validation |
//! | `steer` | traffic policies, backends, the request that the endpoint receives |
//! | `upstream` | endpoints |
//! | `reasons` | cause and cure of each reason in the access log |
//! | `words` | words of explanations |

mod admit;
mod data;
mod described;
pub mod reasons;
mod routing;
mod steer;
#[cfg(test)]
mod tests;
mod trial;
mod upstream;
mod words;

use sluicegate_http1::{Method, Normalised, Rejection, RequestHead, TargetForm, normalise};
use sluicegate_model::Change;
use sluicegate_model::rule::Rule;

pub use data::{
    ApiRoute, Candidate, Destination, Explanation, HostTried, Member, Outcome, Precedence, Refused, Route,
    RouteUpstream, Sent, Step, Verdict,
};
pub use described::{DESCRIPTION_MAX, Described, DescriptionError};

use crate::failure::{ClientFault, Denial};
use crate::feature::cors;
use crate::http::exchange::write_https_location;
use crate::http::target::{
    check_target, has_encoded_slash, is_acme_challenge, raw_path, with_decoded_slashes,
};
use crate::registry::{OwnListeners, Registry};
use routing::{Place, no_route, places, precedence, route, tried};
use trial::{End, Served, Trial, parsed};

impl Registry {
    /// Explains what happens to a described request; `None` before the first configuration.
    #[must_use]
    pub fn explain(&self, request: &Described) -> Option<Explanation> {
        self.explain_with(request, true)
    }

    /// Explains what happens to a described request with the configuration of a directory of manifests, in which upstreams
    /// without endpoints may have endpoints.
    #[must_use]
    pub fn of_manifests(change: &Change, request: &Described) -> Option<Explanation> {
        let registry = Self::of_no_worker();
        registry.show(change);
        registry.explain_with(request, false)
    }

    fn explain_with(&self, request: &Described, knows_endpoints: bool) -> Option<Explanation> {
        let (table, config, upstreams) = (self.table(), self.config()?, self.upstreams());
        let served = Served { table: &table, config: &config, upstreams: &upstreams, knows_endpoints };
        let mut explained = explain(served, &self.own_listeners(), request);
        explained.cure =
            explained.reason.as_deref().and_then(reasons::of).map(|reason| reason.cure.to_owned());
        Some(explained)
    }
}

/// Explains a request at the listener that most likely receives it.
fn explain(served: Served<'_>, own: &OwnListeners, request: &Described) -> Explanation {
    let buf = request.head();
    let ended = |end: End| finish(Explanation { is_certain: true, ..Explanation::default() }, end);
    let head = match parsed(&buf, &served.table.settings) {
        Ok(head) => head,
        Err(rejection) => return ended(End::rejected(rejection)),
    };
    match (head.method, head.form) {
        (Method::Connect | Method::Trace, _) => {
            let because = format!("The gateway does not support the method {}.", request.method);
            return ended(End { outcome: Outcome::Rejected, because, ..End::client(ClientFault::Method) });
        }
        (_, TargetForm::Asterisk) => {
            return ended(End::response(200, None, "The gateway itself responds to OPTIONS *."));
        }
        _ => {}
    }
    let places = places(served.config, own, request);
    let mut explanations = places.iter().map(|place| at(served, request, place, &head, &buf));
    let Some(first) = explanations.next() else { return Explanation::default() };
    if first.outcome != Outcome::NoRoute {
        return first;
    }
    // The port of a Service differs from the port of its listener, so another listener may be meant.
    let other = explanations.find(|other| !matches!(other.outcome, Outcome::NoRoute | Outcome::Rejected));
    other.unwrap_or(first)
}

/// Explains a request at a listener.
fn at(served: Served<'_>, request: &Described, place: &Place, head: &RequestHead, buf: &[u8]) -> Explanation {
    let mut trial = Trial::new(served, request, place, head, buf);
    match trial.run() {
        Ok(()) => trial.found,
        Err(end) => {
            trial.page(&end);
            finish(trial.found, end)
        }
    }
}

fn finish(explanation: Explanation, end: End) -> Explanation {
    let End { outcome, status, reason, policy, location, because } = end;
    Explanation {
        outcome,
        status,
        reason: reason.map(str::to_owned),
        policy: policy.map(|policy| policy.to_string()),
        location,
        because,
        ..explanation
    }
}

impl<'t> Trial<'t> {
    /// The way of a request, in the order of [`Exchange::forward`](crate::http).
    fn run(&mut self) -> Result<(), End> {
        self.normalise().map_err(End::rejected)?;
        let (table, entrance) = (self.served.table, self.origin.entrance);
        self.answer_acme_challenge()?;
        if let Some(guard) = table.filters(entrance, self.head().authority()) {
            self.filter_listener(guard);
        }
        let rule = self.route()?;
        self.check_length()?;
        self.answer()?;
        self.admit()?;
        self.check()?;
        self.forward(rule)
    }

    /// Ends the explanation if the gateway answers the request of an ACME server.
    fn answer_acme_challenge(&self) -> Result<(), End> {
        let is_open =
            !self.described.is_https && matches!(self.head().head.method, Method::Get | Method::Head);
        let hosts = self.served.table.acme().filter(|_| is_open);
        match hosts.and_then(|hosts| hosts.answer(self.head().authority(), &self.path)) {
            None => Ok(()),
            Some(_) => {
                Err(End::response(200, None, "The gateway itself answers the challenge of an ACME server."))
            }
        }
    }

    /// Brings the path into normal form.
    fn normalise(&mut self) -> Result<(), Rejection> {
        let view = self.head();
        let raw = raw_path(view.head, view.buf);
        let mut scratch = Vec::new();
        let normalised = normalise(raw, &mut scratch)?;
        check_target(raw, &normalised, view.query(), &self.served.table.settings)?;
        let is_plain = normalised == Normalised::Plain;
        let (mut path, mut is_rewritten) = match normalised {
            Normalised::Plain | Normalised::AsIs => (raw.to_vec(), false),
            Normalised::Rewritten(path) => (path.to_vec(), true),
        };
        let decodes = || self.served.table.decodes_slashes(self.origin.entrance, view.authority());
        if !is_plain && has_encoded_slash(&path) && decodes() {
            (path, is_rewritten) = (with_decoded_slashes(&path)?, true);
        }
        (self.path, self.is_rewritten) = (path, is_rewritten);
        self.found.path = words::text(&self.path);
        Ok(())
    }

    /// Finds the route, and applies the rules for connections to it.
    fn route(&mut self) -> Result<&'t Rule, End> {
        let Served { table, config, .. } = self.served;
        let (entrance, is_https) = (self.origin.entrance, self.described.is_https);
        let view = self.head();
        let steps = table.steps(entrance, view.authority(), &self.path, view);
        let index = table.find(entrance, view.authority(), &self.path, view);
        let chosen = index.and_then(|index| table.source(index));
        let hosts = steps.iter().map(|step| tried(step, chosen)).collect();
        let (Some(index), Some((rule, of))) = (index, chosen) else {
            let because = no_route(&steps, self.described, &self.found.path);
            self.found.hosts = hosts;
            self.identify_certificate()?;
            return Err(End { outcome: Outcome::NoRoute, ..End::response(404, Some("no_route"), because) });
        };
        let before = precedence(&steps, (rule, of));
        let host = table.pattern(index).map(ToString::to_string).unwrap_or_default();
        (self.found.hosts, self.found.precedence) = (hosts, before);
        self.found.route = Some(route(config, (rule, of), host));
        self.index = Some(index);
        self.identify_certificate()?;
        let target = table.target(index);
        let course = target.course.as_deref();
        let is_nginx = course.is_some_and(|course| course.is_nginx());
        // The Ingresses of ingress-nginx name the paths that are not redirected.
        let is_open = !is_nginx && is_acme_challenge(&self.path);
        let is_insecure = !self.view().is_https();
        let redirects =
            target.https_only && !is_open && is_insecure || target.client_auth.is_some() && !is_https;
        if let Some(fault) = self.origin.denied {
            return Err(self.deny_certificate(fault));
        }
        let security = target.guard.as_deref().and_then(|guard| guard.security.as_deref());
        if redirects {
            let cors = security.and_then(|policy| policy.compiled.nginx_cors());
            let view = self.head();
            if cors.is_some_and(|cors| cors.kind(view.head, view.buf) == cors::Kind::Preflight) {
                return Ok(rule);
            }
            if let Some(course) = course.filter(|course| is_nginx || course.has_returns())
                && target.client_auth.is_none()
            {
                self.traffic = Some(&course.policy);
                if is_nginx {
                    self.check_length()?;
                }
                self.answer()?;
            }
            let mut location = Vec::new();
            let path = (self.head(), &*self.path);
            write_https_location(&mut location, target, path, self.trusted, &table.settings);
            let location = words::text(&location);
            let because = format!("{} redirects plain HTTP to {location}.", rule.id);
            let status = target.https_redirect.status.get();
            let end = End { location: Some(location), ..End::response(status, None, because) };
            return Err(self.ends("redirect to HTTPS", Some(&rule.id), Verdict::Responds, end));
        }
        let view = self.head();
        if let Some(policy) = table.bypassed_policy((entrance, index), view.authority(), &self.path, view) {
            let id = &policy.source().id;
            let because = format!(
                "An endpoint may read the path as a path of another route, to which {id} applies. The gateway denies the \
                 request, so that it does not bypass the policy."
            );
            return Err(self.denied("path", id, Denial::AmbiguousPath, Some(because)));
        }
        if let Some(course) = course {
            self.traffic = Some(&course.policy);
        }
        Ok(rule)
    }

    /// Denies a request because of the client's certificate: with a redirect to the error page, if there is one.
    fn deny_certificate(&mut self, fault: ClientFault) -> End {
        let auth = self.target().and_then(|target| target.client_auth.as_ref());
        let page = auth.and_then(|auth| auth.at_requests.as_ref()?.error_page.as_ref());
        let end = match page.filter(|_| fault == ClientFault::Certificate) {
            None => End::client(fault),
            Some(page) => End { status: Some(302), location: Some(page.to_string()), ..End::client(fault) },
        };
        self.ends("client certificate", None, Verdict::Denies, end)
    }
}
