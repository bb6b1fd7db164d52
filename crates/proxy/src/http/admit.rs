//! Admission of a request: the policies of its route, in the documented order.

use std::borrow::Cow;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluicegate_http1::RequestHead;
use sluicegate_model::{ObjectId, policy};

use super::encode::is_override;
use super::exchange::Exchange;
use super::refuse::Refusal;
use crate::counters::{PolicyShard, PolicyStats};
use crate::failure::Denial;
use crate::feature::authentication::basic::{CheckQueue, Credential};
use crate::feature::authentication::consumer::Consumers;
use crate::feature::authentication::credential::{Place, Remainder, line_has_name};
use crate::feature::authentication::jwt::Verified;
use crate::feature::authorization::Call;
use crate::feature::cors;
use crate::feature::cors::Cors;
use crate::feature::ext_auth::{Answer, External, Told, Verdict};
use crate::feature::rate_limit::{Caller, Limits, Lines, Outcome, seconds_up};
use crate::feature::security::{Authentication, Method, Security};
use crate::feature::{Guard, LimitPolicy, Policy, SecurityPolicy};
use crate::name::host_name;
use crate::request::HeadView;
use crate::rule::RouteIndex;

/// The identity of the caller.
#[derive(Clone, Debug, Default)]
struct Identity {
    consumer: Option<u32>,
    token: Option<Rc<Verified>>,
    answer: Option<Rc<Answer>>,
    /// The index of the only method that authenticated the caller, if one method is enough.
    by: Option<usize>,
}

/// The results of slow checks so far.
#[derive(Debug, Default)]
struct SlowCheckResults {
    password: Option<bool>,
    /// The answers of services, by the numbers of the services.
    answers: Vec<(u64, Result<Rc<Answer>, Denial>)>,
}

/// Why the caller is not authenticated yet.
enum NotAuthenticated {
    Denied(Denial),
    /// A password must be checked first, which takes long.
    PasswordCheckPending {
        check: Box<dyn FnOnce() -> bool + Send>,
        queue: Arc<CheckQueue>,
        mark: [u8; 32],
    },
    /// A service must be asked first.
    ExternalCheckPending(Arc<External>),
}

impl From<Denial> for NotAuthenticated {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

/// The policy that denies a request.
struct By<'p> {
    id: &'p ObjectId,
    stats: &'p PolicyStats,
}

impl Exchange<'_> {
    /// Applies the policies of the request's route. Header lines that the policies add are in the scratch buffers
    /// afterwards.
    pub(super) async fn admit(&mut self, index: RouteIndex) -> Result<(), Refusal> {
        let snapshot = self.snapshot.clone();
        let target = snapshot.table.target(index);
        let Some(Guard { security, limits, route }) = target.guard.as_deref() else { return Ok(()) };
        let known = self.client_view().address;
        let address = known.unwrap_or_else(|last| last);
        let route = *route;
        let mut lines = Lines::default();
        if let Some(policy) = security {
            self.arrive(policy, known.ok())?;
        }
        let mut identity = Identity::default();
        if let Some(limits) = limits {
            self.limit(limits, &identity, (address, route), &mut lines, false)?;
        }
        if let Some(policy) = security {
            if let Some(authentication) = &policy.compiled.authentication {
                identity = self.authenticate(policy, authentication, snapshot.table.consumers()).await?;
                self.forward_identity(authentication, &identity, snapshot.table.consumers());
                let is_refused = |consumer| snapshot.table.consumers().get(consumer).consumer.refused;
                if identity.consumer.is_some_and(is_refused) {
                    return Err(self.deny(&By::of(policy), Denial::Consumer));
                }
                // Endpoints may treat trailers as headers, which could set the caller's identity.
                self.upload.discard_trailers();
            }
            self.authorize(policy, &identity, known.ok())?;
            self.shard(&policy.stats).admitted.add(1);
        }
        if let Some(limits) = limits {
            self.limit(limits, &identity, (address, route), &mut lines, true)?;
            self.add_limit_headers(&limits.compiled, lines);
            self.shard(&limits.stats).admitted.add(1);
        }
        Ok(())
    }

    /// The checks before authentication.
    fn arrive(&mut self, policy: &SecurityPolicy, address: Option<IpAddr>) -> Result<(), Refusal> {
        let Security { refuses, access, cors, drops_overrides, .. } = &policy.compiled;
        let by = By::of(policy);
        if *drops_overrides {
            self.drop_overrides();
        }
        if *refuses {
            return Err(self.deny(&by, Denial::Unusable));
        }
        if access.as_ref().is_some_and(|access| !access.allows(address)) {
            return Err(self.deny(&by, Denial::Address));
        }
        let Some(cors) = cors else { return Ok(()) };
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        if Cors::kind(head, buf) != cors::Kind::Preflight {
            cors.write_response(head, buf, &mut self.scratch.response_lines);
            return Ok(());
        }
        if !cors.allows(head, buf) {
            return Err(self.deny(&by, Denial::Origin));
        }
        cors.write_preflight(head, buf, &mut self.scratch.response_lines);
        self.shard(&policy.stats).preflights.add(1);
        Err(Refusal::Preflight)
    }

    /// Removes headers with which an endpoint would serve another path or method than the policy has checked.
    /// Authorization services and mirrors do not receive them either.
    fn drop_overrides(&mut self) {
        let scratch = &mut *self.scratch;
        let buf = scratch.input.filled();
        let mut dropped = 0;
        for line in scratch.head.lines.iter_mut().filter(|line| is_override(line.name.of(buf))) {
            line.hop_by_hop = true;
            dropped += 1;
        }
        if dropped > 0 {
            self.worker.stats().headers_dropped.add(dropped);
        }
        // Endpoints may treat trailers as headers.
        self.upload.discard_trailers();
    }

    /// Authenticates the caller.
    async fn authenticate(
        &mut self,
        policy: &SecurityPolicy,
        authentication: &Authentication,
        consumers: &Consumers,
    ) -> Result<Identity, Refusal> {
        let mut awaited = SlowCheckResults::default();
        loop {
            // Both futures are boxed, so that requests without a password and a service do not carry their memory.
            match self.identify(authentication, consumers, &awaited) {
                Ok(identity) => return Ok(identity),
                Err(NotAuthenticated::Denied(denial)) => {
                    let denial = self.challenge(authentication, &awaited, denial);
                    return Err(self.deny(&By::of(policy), denial));
                }
                Err(NotAuthenticated::PasswordCheckPending { check, queue, mark }) => {
                    let checked = Box::pin(queue.check(check)).await;
                    let checked = checked.ok_or(Denial::TooManyPasswordChecks);
                    let is_right = checked.map_err(|denial| self.deny(&By::of(policy), denial))?;
                    if is_right {
                        self.worker.passwords.borrow_mut().remember(mark);
                    }
                    awaited.password = Some(is_right);
                }
                Err(NotAuthenticated::ExternalCheckPending(external)) => {
                    let answer = Box::pin(self.ask(policy, &external)).await?;
                    awaited.answers.push((external.number(), answer));
                }
            }
        }
    }

    /// Tries the methods in order. Slow methods are last.
    fn identify(
        &self,
        authentication: &Authentication,
        consumers: &Consumers,
        awaited: &SlowCheckResults,
    ) -> Result<Identity, NotAuthenticated> {
        let mut identity = Identity::default();
        let mut denial = Denial::NoCredentials;
        for (number, method) in authentication.methods.iter().enumerate() {
            match self.identify_by(method, authentication, consumers, awaited) {
                Ok(found) if !authentication.requires_all => {
                    return Ok(Identity { by: Some(number), ..found });
                }
                // The API key of one consumer does not complete the token of another consumer.
                Ok(found) if differ(identity.consumer, found.consumer) => {
                    return Err(Denial::AmbiguousCredentials.into());
                }
                Ok(found) => {
                    identity.consumer = identity.consumer.or(found.consumer);
                    identity.token = identity.token.or(found.token);
                    identity.answer = identity.answer.or(found.answer);
                }
                Err(NotAuthenticated::Denied(found))
                    if !authentication.requires_all && found != Denial::AmbiguousCredentials =>
                {
                    if denial == Denial::NoCredentials {
                        denial = found;
                    }
                }
                Err(found) => return Err(found),
            }
        }
        if authentication.requires_all { Ok(identity) } else { Err(denial.into()) }
    }

    fn identify_by(
        &self,
        method: &Method,
        Authentication { scope, .. }: &Authentication,
        consumers: &Consumers,
        awaited: &SlowCheckResults,
    ) -> Result<Identity, NotAuthenticated> {
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        match method {
            Method::Unusable => Err(Denial::NoCredentials.into()),
            Method::ApiKey { places, .. } => {
                let key = first(places, head, buf)?.ok_or(Denial::NoCredentials)?;
                let consumer = consumers.of_key(&key, scope).ok_or(Denial::Key)?;
                Ok(Identity { consumer: Some(consumer), ..Identity::default() })
            }
            Method::Jwt(tokens) => {
                let text = first(&tokens.places, head, buf)?.ok_or(Denial::NoCredentials)?;
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
                let mut memory = self.worker.tokens.borrow_mut();
                let token = tokens.verify(&text, now, &mut memory)?;
                let consumer = token.consumer(consumers, scope);
                Ok(Identity { consumer, token: Some(token), ..Identity::default() })
            }
            Method::Basic(passwords) => {
                let text = passwords.place.find(head, buf).map_err(|_| Denial::AmbiguousCredentials)?;
                let text = text.ok_or(Denial::NoCredentials)?;
                let credential = Credential::decode(&text).ok_or(Denial::Password)?;
                let consumer = consumers.of_user(credential.user(), scope);
                let mut memory = self.worker.passwords.borrow_mut();
                let mark = passwords.mark(&credential, &memory);
                match awaited.password.or_else(|| memory.knows(&mark).then_some(true)) {
                    Some(true) => Ok(Identity { consumer, ..Identity::default() }),
                    Some(false) => Err(Denial::Password.into()),
                    None => {
                        let check = Box::new(passwords.check(credential));
                        Err(NotAuthenticated::PasswordCheckPending {
                            check,
                            queue: passwords.queue.clone(),
                            mark,
                        })
                    }
                }
            }
            Method::External(external) => match awaited.answer_of(external) {
                None => Err(NotAuthenticated::ExternalCheckPending(external.clone())),
                Some(Err(denial)) => Err((*denial).into()),
                Some(Ok(answer)) => match answer.verdict {
                    Verdict::Admitted => Ok(Identity { answer: Some(answer.clone()), ..Identity::default() }),
                    Verdict::Forbidden => Err(Denial::CheckForbidden.into()),
                    Verdict::Unauthorized if external.sign_in().is_some() => Err(Denial::SignIn.into()),
                    Verdict::Unauthorized => Err(Denial::CheckUnauthorized.into()),
                },
            },
        }
    }

    /// Adds the header lines that tell the caller how or where to authenticate.
    fn challenge(
        &mut self,
        authentication: &Authentication,
        awaited: &SlowCheckResults,
        denial: Denial,
    ) -> Denial {
        let lines = &mut self.scratch.response_lines;
        match denial {
            Denial::Token(_) => lines.extend_from_slice(&authentication.token_challenges),
            _ if denial.status() == 401 => lines.extend_from_slice(&authentication.challenges),
            _ => {}
        }
        for (_, answer) in &awaited.answers {
            let Ok(answer) = answer else { continue };
            if denial.status() == 401 {
                lines.extend_from_slice(&answer.challenges);
            }
            if matches!(denial, Denial::CheckUnauthorized | Denial::CheckForbidden | Denial::SignIn) {
                lines.extend_from_slice(&answer.cookies);
            }
        }
        let sign_in = authentication.methods.iter().find_map(|method| match method {
            Method::External(external) => external.sign_in().filter(|_| denial == Denial::SignIn),
            _ => None,
        });
        if let Some(sign_in) = sign_in {
            self.write_sign_in(sign_in);
        }
        denial
    }

    /// Adds the caller's identity for the endpoint, and removes credentials that the endpoint does not need.
    fn forward_identity(
        &mut self,
        authentication: &Authentication,
        identity: &Identity,
        consumers: &Consumers,
    ) {
        let scratch = &mut *self.scratch;
        let buf = scratch.input.filled();
        for line in &mut scratch.head.lines {
            let is_own =
                authentication.own_headers.iter().any(|(known, name)| line_has_name(line, *known, name, buf));
            line.hop_by_hop |= is_own;
        }
        let mut remainder = Remainder::default();
        // An endpoint may assume that the gateway checked a received credential. A service that receives all headers has
        // checked all credentials.
        let has_seen_all = |method: &Method| match method {
            Method::External(external) => matches!(external.told, Told::All),
            _ => false,
        };
        let by = identity.by.filter(|by| !has_seen_all(&authentication.methods[*by]));
        for (number, method) in authentication.methods.iter().enumerate() {
            let is_checked = by.is_none_or(|by| by == number);
            let places = method.places();
            let is_there = |place: &Place| place.find(&scratch.head, buf).is_ok_and(|found| found.is_some());
            let used = match is_checked && method.forwards() {
                true if places.len() < 2 => continue,
                true => places.iter().position(is_there),
                false => None,
            };
            for (_, place) in places.iter().enumerate().filter(|(index, _)| Some(*index) != used) {
                place.strip(&mut scratch.head, buf, &mut remainder);
            }
        }
        remainder.write_lines(&mut scratch.request_lines);
        scratch.query = remainder.query;
        if let Some(token) = &identity.token {
            scratch.request_lines.extend_from_slice(&token.lines);
        }
        if let Some(answer) = &identity.answer {
            scratch.request_lines.extend_from_slice(&answer.request_lines);
            scratch.response_lines.extend_from_slice(&answer.cookies);
        }
        if let Some(consumer) = identity.consumer {
            scratch.request_lines.extend_from_slice(&consumers.get(consumer).lines);
        }
        self.record.consumer = identity.consumer;
    }

    fn authorize(
        &mut self,
        policy: &SecurityPolicy,
        identity: &Identity,
        address: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let Some(authorization) = &policy.compiled.authorization else { return Ok(()) };
        let snapshot = self.snapshot.clone();
        let buf = self.scratch.input.filled();
        let call = Call {
            consumer: identity.consumer.map(|consumer| &*snapshot.table.consumers().get(consumer).consumer),
            claims: identity.token.as_ref().map(|token| &token.claims),
            method: self.scratch.head.method_name.of(buf),
            path: self.path(),
            address,
        };
        authorization.decide(&call).map_err(|denial| self.deny(&By::of(policy), denial))
    }

    /// Counts the request under the limits that need the caller's identity, or under the other limits.
    fn limit(
        &mut self,
        policy: &LimitPolicy,
        identity: &Identity,
        (address, route): (IpAddr, u64),
        lines: &mut Lines,
        with_identity: bool,
    ) -> Result<(), Refusal> {
        let snapshot = self.snapshot.clone();
        let (begun, outcome) = {
            let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
            let caller = Caller {
                address,
                route,
                consumer: identity
                    .consumer
                    .map(|consumer| &*snapshot.table.consumers().get(consumer).consumer),
                claims: identity.token.as_ref().map(|token| &token.claims),
                header: &|name| match name {
                    "host" => head.authority.map(|host| host_name(host.of(buf)).to_ascii_lowercase().into()),
                    _ => head.find_only(buf, name).map(Cow::Borrowed),
                },
            };
            let begun = policy.compiled.begin(&caller, with_identity, &mut self.permits);
            let outcome = match begun.refused_by.is_some() {
                true => Outcome::default(),
                false => policy.compiled.count(&caller, with_identity, self.record.started.into_std(), lines),
            };
            (begun, outcome)
        };
        for name in begun.dry_runs.iter().chain(&outcome.dry_runs) {
            self.shard(&policy.stats).dry_runs.add(1);
            let id = By::of(policy).id;
            self.record.dry_runs.push(format!("{}/{}/{name}", id.namespace, id.name));
        }
        if let Some(limit) = begun.refused_by {
            self.record.limit = Some(limit);
            self.permits.clear();
            self.add_limit_headers(&policy.compiled, std::mem::take(lines));
            return Err(self.deny(&By::of(policy), Denial::Concurrency));
        }
        let Some((limit, wait)) = outcome.refused_by else { return Ok(()) };
        self.record.limit = Some(limit);
        // A denied request is not in flight, however long its client takes to read the response.
        self.permits.clear();
        let wait = format!("Retry-After: {}\r\n", seconds_up(wait.max(Duration::from_nanos(1))));
        self.scratch.response_lines.extend_from_slice(wait.as_bytes());
        self.add_limit_headers(&policy.compiled, std::mem::take(lines));
        Err(self.deny(&By::of(policy), Denial::RateLimit))
    }

    fn add_limit_headers(&mut self, limits: &Limits, lines: Lines) {
        self.scratch.response_lines.extend_from_slice(limits.policy_line());
        self.scratch.response_lines.extend_from_slice(lines.end().as_bytes());
    }

    /// Denies a request that would bypass the security policy of another route.
    pub(super) fn deny_policy_bypass(&mut self, index: RouteIndex) -> Result<(), Refusal> {
        let snapshot = self.snapshot.clone();
        let (buf, head) = (self.scratch.input.filled(), &self.scratch.head);
        let authority = head.authority.map_or(&[][..], |authority| authority.of(buf));
        let view = HeadView { head, buf };
        match snapshot.table.bypassed_policy(index, authority, self.path(), view) {
            Some(policy) => Err(self.deny(&By::of(policy), Denial::AmbiguousPath)),
            None => Ok(()),
        }
    }

    fn deny(&mut self, by: &By<'_>, denial: Denial) -> Refusal {
        by.stats.of(self.worker.id).denied[denial.index()].add(1);
        self.record.policy = Some(by.id.clone());
        Refusal::Denied(denial)
    }

    fn shard<'s>(&self, stats: &'s PolicyStats) -> &'s PolicyShard {
        stats.of(self.worker.id)
    }

    /// Removes the CORS headers of the endpoint, if a policy decides about origins.
    pub(super) fn apply_policies_to_response(&mut self) {
        let Some(route) = self.record.route else { return };
        let guard = self.snapshot.table.target(route).guard.as_deref();
        if guard.is_some_and(Guard::decides_on_origins) {
            Cors::silence(&mut self.scratch.reply_head, self.scratch.reply.filled());
        }
    }
}

impl SlowCheckResults {
    fn answer_of(&self, external: &External) -> Option<&Result<Rc<Answer>, Denial>> {
        self.answers.iter().find(|(number, _)| *number == external.number()).map(|(_, answer)| answer)
    }
}

impl<'p> By<'p> {
    fn of<S: policy::Written, C>(policy: &'p Policy<S, C>) -> Self {
        Self { id: policy.source().id(), stats: &policy.stats }
    }
}

/// Whether these are two different consumers.
fn differ(one: Option<u32>, other: Option<u32>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// The credential at the first place that has one.
fn first<'b>(places: &[Place], head: &RequestHead, buf: &'b [u8]) -> Result<Option<Cow<'b, [u8]>>, Denial> {
    for place in places {
        if let Some(found) = place.find(head, buf).map_err(|_| Denial::AmbiguousCredentials)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
