//! The policies that decide whether a described request may pass, in the order of [`admit`](crate::http).

use std::cell::RefCell;

use sluicegate_http1::RequestFraming;
use sluicegate_model::ObjectId;
use sluicegate_model::feature::authentication::Require;
use sluicegate_model::feature::{LimitKey, QuotaUnit, ValidationMode};
use sluicegate_model::policy::{Plan, RateLimits};
use sluicegate_validation::{Operation, Place, Preferences, Violation};

use super::data::{Outcome, Step, Verdict};
use super::trial::{ADD_FROM, End, Trial, sentence};
use super::words::{span, things};
use crate::failure::{ClientFault, Denial};
use crate::feature::authentication::basic::PasswordMemory;
use crate::feature::authentication::introspection::Introspections;
use crate::feature::authentication::jwt::TokenMemory;
use crate::feature::authentication::{
    Authentication, Identity, Memories, Method, NotAuthenticated, SlowCheckResults,
};
use crate::feature::cors::Kind;
use crate::feature::rate_limit::needs_identity;
use crate::feature::security::Arrival;
use crate::feature::{Guard, SecurityPolicy, SubscriptionPolicy};
use crate::http::validate::{foreign_media_type, values, violations_of_head};

/// The caller, as far as it is known.
struct Caller {
    identity: Identity,
    /// Whether an unknown step decides about the identity.
    is_known: bool,
}

impl<'t> Trial<'t> {
    /// Applies the policies of the route.
    pub(super) fn admit(&mut self) -> Result<(), End> {
        let Some(guard) = self.target().and_then(|target| target.guard.as_deref()) else { return Ok(()) };
        if let Some(policy) = &guard.security {
            self.arrive(policy)?;
        }
        let address = self.address().ok();
        let limits = guard.limits.as_ref().filter(|limits| !limits.compiled.exempts(address));
        let mut caller = Caller { identity: Identity::default(), is_known: true };
        if let Some(limits) = limits {
            self.limits(limits.source(), &caller, false);
        }
        if let Some(policy) = &guard.security {
            caller = self.identify(policy)?;
            self.authorize(policy, &caller)?;
            for filter in &policy.source().filters {
                let effect = format!("asks {}, which this command does not do", filter.upstream);
                self.unknown("external authorization", &policy.source().id, effect, Some((403, "")));
            }
        }
        if let Some(limits) = limits {
            self.limits(limits.source(), &caller, true);
        }
        match &guard.subscriptions {
            Some(policy) => self.subscribe(policy, &caller),
            None => Ok(()),
        }
    }

    /// The checks before authentication.
    fn arrive(&mut self, policy: &SecurityPolicy) -> Result<(), End> {
        let (source, compiled) = (policy.source(), &policy.compiled);
        let id = &source.id;
        let mut arrival = self.edit(|trial, edits| compiled.arrive(&trial.view(), edits));
        if matches!(arrival, Arrival::Denied(Denial::Address)) && self.lacks_address() {
            self.needs_address("client IP", id, Some((403, Denial::Address.reason())));
            let late = compiled.cors.as_ref().filter(|cors| !cors.is_nginx());
            let next = late.and_then(|cors| {
                self.edit(|trial, edits| cors.arrive(trial.head().head, trial.head().buf, edits))
            });
            arrival = next.unwrap_or(Arrival::Goes);
        } else if compiled.access.is_some() && !source.satisfies_any && !matches!(arrival, Arrival::Denied(_))
        {
            let address =
                self.address().map_or_else(|_| "an early preflight".to_owned(), |ip| ip.to_string());
            self.allows("client IP", id, format!("{address} is allowed"));
        }
        match arrival {
            Arrival::Denied(Denial::Unusable) => {
                let because = match &source.refuses {
                    Some(reason) => format!("{id} is invalid, so the route is closed: {reason}"),
                    None => format!("{id} has no usable method of authentication, so the route is closed."),
                };
                Err(self.denied("security", id, Denial::Unusable, Some(because)))
            }
            Arrival::Denied(Denial::Address) => {
                let because = match self.address() {
                    Ok(address) => format!("{id} does not allow the client IP {address}."),
                    Err(peer) => {
                        format!("The trusted proxy {peer} does not send a client IP, which {id} needs.")
                    }
                };
                Err(self.denied("client IP", id, Denial::Address, Some(because)))
            }
            Arrival::Denied(denial) => Err(self.denied("CORS", id, denial, None)),
            Arrival::Preflight => {
                let because =
                    format!("{id} allows the origin: the gateway responds to the preflight request.");
                let end = End { policy: None, ..End::response(204, None, because) };
                Err(self.ends("CORS", Some(id), Verdict::Responds, end))
            }
            Arrival::Goes => {
                let Some(cors) = &compiled.cors else { return Ok(()) };
                let view = self.head();
                let effect = match cors.kind(view.head, view.buf) {
                    Kind::Actual if cors.allows(view.head, view.buf) => "adds CORS headers for the origin",
                    Kind::Actual => "adds no CORS headers: the origin is not allowed",
                    _ => "the request has no origin to decide about",
                };
                self.changes("CORS", id, effect);
                Ok(())
            }
        }
    }

    /// Authenticates the caller with empty memories.
    fn identify(&mut self, policy: &SecurityPolicy) -> Result<Caller, End> {
        let anonymous = || Caller { identity: Identity::default(), is_known: true };
        let id = &policy.source().id;
        let Some(authentication) = &policy.compiled.authentication else { return Ok(anonymous()) };
        if authentication.login().is_some_and(|login| login.step(&self.view()).is_some()) {
            let effect = "the login of OpenID Connect responds at this path";
            self.unknown("authentication", id, effect, None);
            return Err(End {
                outcome: Outcome::Responds,
                because: format!("The login of {id} responds at this path. It asks the provider."),
                ..End::default()
            });
        }
        let address = self.address().ok();
        if policy.compiled.is_satisfied_by(address) {
            self.allows("authentication", id, "the client IP is enough");
            return Ok(anonymous());
        }
        let may_satisfy = policy.source().satisfies_any && self.lacks_address();
        let consumers = self.served.table.consumers();
        let (tokens, passwords) =
            (RefCell::new(TokenMemory::of_explanation()), RefCell::new(PasswordMemory::default()));
        let memories =
            Memories { tokens: &tokens, passwords: &passwords, introspections: &Introspections::default() };
        let mut awaited = SlowCheckResults::default();
        let mut result = authentication.identify(&self.view(), consumers, &memories, &awaited);
        if let Err(NotAuthenticated::PasswordCheckPending { .. }) = &result {
            let effect = "checks the password, which this command does not do";
            awaited.password = Some(false);
            let wrong = authentication.identify(&self.view(), consumers, &memories, &awaited);
            let denial = match wrong {
                Err(NotAuthenticated::Denied(denial)) => Some(authentication.final_denial(denial)),
                _ => None,
            };
            let response = denial.map(|denial| (denial.status(), denial.reason()));
            self.unknown("authentication", id, effect, response);
            awaited.password = Some(true);
            result = authentication.identify(&self.view(), consumers, &memories, &awaited);
        }
        let unknown = |trial: &mut Self, effect: String, response: Option<(u16, &str)>| {
            trial.unknown("authentication", id, effect, response);
            Ok(Caller { identity: Identity::default(), is_known: false })
        };
        let caller = match result {
            Ok(identity) => {
                let who = self.words_of(&identity, authentication);
                self.allows("authentication", id, who);
                Ok(Caller { identity, is_known: true })
            }
            Err(NotAuthenticated::Denied(denial)) if may_satisfy => {
                self.needs_address("authentication", id, Some((denial.status(), denial.reason())));
                Ok(anonymous())
            }
            Err(NotAuthenticated::Denied(Denial::KeysUnknown)) => unknown(
                self,
                "the keys of the token's issuer are not fetched yet".to_owned(),
                Some((503, "keys_unknown")),
            ),
            Err(NotAuthenticated::Denied(denial)) => {
                let denial = authentication.final_denial(denial);
                let because = (denial == Denial::Login)
                    .then(|| format!("{id} redirects the browser to the login of its OpenID provider."));
                return Err(self.denied("authentication", id, denial, because));
            }
            Err(NotAuthenticated::PasswordCheckPending { .. }) => {
                unknown(self, "checks a password, which this command does not do".to_owned(), None)
            }
            Err(NotAuthenticated::ExternalCheckPending(_)) => {
                let asked = policy.source().ext_auth_upstream().map(ToString::to_string);
                let asked = asked.unwrap_or_else(|| "an authorization service".to_owned());
                unknown(self, format!("asks {asked}, which this command does not do"), Some((401, "")))
            }
            Err(NotAuthenticated::IntrospectionPending(..)) => {
                let effect = "asks the authorization server about the token, which this command does not do";
                unknown(self, effect.to_owned(), Some((401, "token_inactive")))
            }
            Err(NotAuthenticated::RefreshPending { .. }) => {
                let effect =
                    "asks the OpenID provider to refresh the session, which this command does not do";
                unknown(self, effect.to_owned(), Some((302, "login")))
            }
        }?;
        self.edit(|trial, edits| authentication.forward(trial.head(), &caller.identity, consumers, edits));
        let is_refused = |consumer| consumers.get(consumer).consumer.refused;
        if caller.identity.consumer.is_some_and(is_refused) {
            return Err(self.denied("authentication", id, Denial::Consumer, None));
        }
        Ok(caller)
    }

    /// The caller in words.
    fn words_of(&self, identity: &Identity, authentication: &Authentication) -> String {
        let in_words = |method: &Method| match method {
            Method::Jwt(_) => "JSON Web Token",
            Method::ApiKey { .. } => "API key",
            Method::Basic(_) => "Basic authentication",
            Method::Digest(_) => "Digest authentication",
            Method::Introspection(_) => "token introspection",
            Method::Oidc(_) => "session of OpenID Connect",
            Method::External(_) | Method::Unusable => "authorization service",
        };
        let methods = identity.by.map(|by| {
            let used = authentication.methods.iter().enumerate().filter(|(number, _)| by.has(*number));
            used.map(|(_, method)| in_words(method)).collect::<Vec<_>>().join(" and ")
        });
        let consumer = identity.consumer.map(|consumer| self.served.table.consumers().get(consumer));
        let who = consumer
            .map_or_else(|| "a caller without a Consumer".to_owned(), |of| of.consumer.id.to_string());
        match (methods.as_deref(), authentication.require) {
            (Some(""), Require::Optional) => "the caller has no credential, and needs none".to_owned(),
            (Some(""), _) => format!("{who}, by a client certificate"),
            (Some(methods), _) => format!("{who}, by {methods}"),
            (None, Require::Optional) => "the caller has no credential, and needs none".to_owned(),
            (None, _) => format!("{who}, by all methods"),
        }
    }

    /// Whether the caller may make the request.
    fn authorize(&mut self, policy: &SecurityPolicy, caller: &Caller) -> Result<(), End> {
        let id = &policy.source().id;
        let authorization = &policy.compiled.authorization;
        let has_scopes =
            policy.source().authentication.as_ref().is_some_and(|of| !of.required_scopes.is_empty());
        if authorization.is_none() && !has_scopes {
            return Ok(());
        }
        let reads_address = authorization.as_ref().is_some_and(|rules| rules.reads_addresses());
        let forbidden = Some((403, Denial::Forbidden.reason()));
        if !caller.is_known {
            self.unknown("authorization", id, "depends on the caller, who is not known", forbidden);
            return Ok(());
        }
        if reads_address && self.lacks_address() {
            self.needs_address("authorization", id, forbidden);
            return Ok(());
        }
        let decided =
            policy.compiled.authorize(&self.view(), &caller.identity, self.served.table.consumers());
        match decided {
            Ok(()) => {
                let rules = policy.source().authorization.as_ref().map_or(0, |of| of.rules.len());
                self.allows("authorization", id, format!("{} allow the caller", things(rules, "rule")));
                Ok(())
            }
            Err(denial) => Err(self.denied("authorization", id, denial, None)),
        }
    }

    /// The limits that need the caller's identity, or the other limits. Nothing is counted.
    fn limits(&mut self, source: &RateLimits, caller: &Caller, with_identity: bool) {
        let server =
            if source.shared.is_some() { "all data planes together" } else { "each data plane for itself" };
        for limit in &source.concurrency {
            if needs_identity(&limit.key, &limit.groups) == with_identity {
                let effect = format!(
                    "{}: {} in flight, {}",
                    limit.name,
                    things(limit.requests.get() as usize, "request"),
                    self.key_in_words(&limit.key, caller)
                );
                let status = limit.status_code.map_or(429, |status| status.get());
                self.counts(
                    "concurrency limit",
                    &source.id,
                    effect,
                    (status, Denial::Concurrency.reason()),
                    limit.dry_run,
                );
            }
        }
        for limit in &source.limits {
            if needs_identity(&limit.key, &limit.groups) == with_identity {
                let effect = format!(
                    "{}: {} per {}, {}, counted by {server}",
                    limit.name,
                    things(limit.requests.get() as usize, "request"),
                    span(limit.per.get()),
                    self.key_in_words(&limit.key, caller)
                );
                let status = limit.status_code.map_or(429, |status| status.get());
                self.counts(
                    "rate limit",
                    &source.id,
                    effect,
                    (status, Denial::RateLimit.reason()),
                    limit.dry_run,
                );
            }
        }
    }

    fn counts(
        &mut self,
        phase: &str,
        id: &ObjectId,
        effect: String,
        (status, reason): (u16, &str),
        dry_run: bool,
    ) {
        let refuses = (!dry_run).then_some((status, reason));
        let step = Step::of(phase, if dry_run { format!("{effect} (dry run)") } else { effect });
        self.step(Step {
            verdict: Verdict::Counts,
            from: Some(id.to_string()),
            status: refuses.map(|(status, _)| status),
            reason: refuses.map(|(_, reason)| reason.to_owned()),
            ..step
        });
    }

    /// The parts of a request by which a limit counts, with the values of this request.
    fn key_in_words(&self, key: &[LimitKey], caller: &Caller) -> String {
        let part = |key: &LimitKey| match key {
            LimitKey::Address { .. } => match self.address() {
                _ if self.lacks_address() => format!("client IP (unknown: {ADD_FROM})"),
                Ok(address) | Err(address) => format!("client IP {address}"),
            },
            LimitKey::Header(name) => match self.head().head.find_only(self.head().buf, name.as_str()) {
                Some(value) => format!("header {}={:?}", name.as_str(), String::from_utf8_lossy(value)),
                None => format!("header {} (missing)", name.as_str()),
            },
            LimitKey::Claim(name) => format!("claim {}", name.as_str()),
            LimitKey::Consumer => match caller.identity.consumer {
                Some(consumer) => self.served.table.consumers().get(consumer).consumer.id.to_string(),
                None => "client IP (no Consumer)".to_owned(),
            },
            LimitKey::Route => "route".to_owned(),
        };
        match key {
            [] => "for all requests".to_owned(),
            parts => format!("by {}", parts.iter().map(part).collect::<Vec<_>>().join(", ")),
        }
    }

    /// The subscription of the caller, and the limits of its plan.
    fn subscribe(&mut self, policy: &SubscriptionPolicy, caller: &Caller) -> Result<(), End> {
        let source = policy.source();
        let id = &source.id;
        if !caller.is_known {
            let denial = Denial::NoSubscription;
            let effect = "depends on the caller, who is not known";
            self.unknown("subscription", id, effect, Some((denial.status(), denial.reason())));
            return Ok(());
        }
        let consumers = self.served.table.consumers();
        let consumer = caller.identity.consumer.map(|consumer| consumers.get(consumer).fingerprint);
        let place = match policy.compiled.of(consumer) {
            Ok(place) => place,
            Err(denial) => return Err(self.denied("subscription", id, denial, None)),
        };
        let Some(place) = place else {
            self.allows("subscription", id, "the caller needs no subscription");
            return Ok(());
        };
        let subscription = source.subscriptions.get(place as usize);
        let plan = subscription.and_then(|of| source.plans.get(of.plan as usize));
        let name = subscription.map(|of| of.id.to_string()).unwrap_or_default();
        self.allows("subscription", id, format!("{name} is active"));
        if let Some(Plan { limits, quotas, .. }) = plan {
            self.limits(limits, caller, false);
            self.limits(limits, caller, true);
            for quota in quotas {
                let unit = if quota.most().0 == QuotaUnit::Bytes { "bytes" } else { "requests" };
                let effect = format!("{}: {} {unit} in each window", quota.name, quota.most().1);
                let denial = Denial::Quota;
                self.counts("quota", &limits.id, effect, (denial.status(), denial.reason()), false);
            }
        }
        Ok(())
    }

    /// The checks by the description of an operation.
    pub(super) fn check(&mut self) -> Result<(), End> {
        let Some(target) = self.target() else { return Ok(()) };
        let id = &target.id;
        let view = self.head();
        let framing = view.head.framing;
        if let Some(api) = target.api.as_deref()
            && let Some(detail) =
                foreign_media_type(api, framing, &values(&view.head.lines, view.buf, "content-type"))
        {
            let end = End::response(415, Some("media_type"), detail);
            return Err(self.ends("media type", Some(id), Verdict::Denies, end));
        }
        let Some(checks) = target.checks.as_deref() else { return Ok(()) };
        let Some(operation) = checks.operation.as_deref() else {
            let end = End::response(503, Some("schema"), "A schema of the operation cannot be compiled.");
            return Err(self.ends("validation", Some(id), Verdict::Denies, end));
        };
        let mode = checks.validation.request();
        if mode != ValidationMode::Disabled {
            let pattern = self.index.and_then(|index| self.served.table.path(index));
            let violations = violations_of_head(operation, pattern, &self.path, self.head());
            let enforces = mode == ValidationMode::Enforce;
            match violations {
                None if enforces => {
                    let response = Some((checks.validation.status(), "invalid_request"));
                    self.unknown(
                        "validation",
                        id,
                        "validates the body, which the description does not have",
                        response,
                    );
                }
                None => self.allows("validation", id, "validates the body, and reports violations"),
                Some(violations) if violations.is_empty() => {
                    self.allows("validation", id, "the parameters match the description of the operation");
                }
                Some(violations) => {
                    let all: Vec<String> = violations.iter().map(words_of_violation).collect();
                    let because = format!(
                        "The request does not match the description of the operation: {}.",
                        all.join("; ")
                    );
                    if enforces {
                        let end = End::response(checks.validation.status(), Some("invalid_request"), because);
                        return Err(self.ends("validation", Some(id), Verdict::Denies, end));
                    }
                    self.allows("validation", id, format!("reports: {because}"));
                }
            }
        }
        if checks.is_mocked {
            let because = format!("{id} mocks the operation.");
            let end = End { outcome: Outcome::Responds, because, ..End::default() };
            let end = self.mocked(operation, end);
            return Err(self.ends("mock", Some(id), Verdict::Responds, end));
        }
        Ok(())
    }

    fn mocked(&self, operation: &Operation, end: End) -> End {
        let view = self.head();
        let accept = values(&view.head.lines, view.buf, "accept").join(&b", "[..]);
        let preferences = Preferences::of(values(&view.head.lines, view.buf, "prefer"));
        match operation.mock(Some(&*accept), &preferences) {
            Ok(mock) => End { status: Some(mock.status), ..end },
            Err(fault) => End {
                status: Some(fault.status()),
                reason: Some("mock"),
                because: format!("{}: {fault}.", fault.title()),
                ..end
            },
        }
    }

    /// Rejects a body whose stated length exceeds the limit of the route.
    pub(super) fn check_length(&self) -> Result<(), End> {
        let limit = self.settings().limits.request_body.unwrap_or(u64::MAX);
        match self.head().head.framing {
            RequestFraming::Length(length) if length > limit => Err(End {
                because: format!("The body has {length} bytes. The limit of the route is {limit} bytes."),
                ..End::client(ClientFault::BodyTooLarge)
            }),
            _ => Ok(()),
        }
    }

    /// The end of a request that a policy denies.
    pub(super) fn denied(
        &mut self,
        phase: &str,
        id: &ObjectId,
        denial: Denial,
        because: Option<String>,
    ) -> End {
        let because = because.unwrap_or_else(|| format!("{}.", sentence(&denial.to_string())));
        let end = End {
            policy: Some(id.clone()),
            ..End::response(denial.status(), Some(denial.reason()), because)
        };
        self.ends(phase, Some(id), Verdict::Denies, end)
    }

    /// The filters of a listener, which decide before the route is known.
    pub(super) fn filter_listener(&mut self, guard: &Guard) {
        let Some(policy) = &guard.security else { return };
        for filter in &policy.source().filters {
            let effect = format!("asks {}, which this command does not do", filter.upstream);
            self.unknown("filter of the listener", &policy.source().id, effect, Some((403, "")));
        }
    }
}

fn words_of_violation(Violation { place, detail }: &Violation) -> String {
    match place {
        Place::Parameter(name, of) => format!("{of} parameter {name} {detail}"),
        Place::Header(name) => format!("header {name} {detail}"),
        Place::Body(pointer) if pointer.is_empty() => format!("the body {detail}"),
        Place::Body(pointer) => format!("{pointer} of the body {detail}"),
        Place::Status => format!("the status {detail}"),
    }
}
