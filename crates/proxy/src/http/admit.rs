//! Admission of a request: the policies of its route, in the documented order.
//!
//! Each check is a function of the request. The exchange waits for slow checks, applies the edits, and records denials.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_model::{ObjectId, policy};

use super::exchange::Exchange;
use super::question::{Added, NoQuestion, question, write_sign_in, write_sign_in_of};
use super::refuse::Refusal;
use crate::counters::{PolicyShard, PolicyStats};
use crate::failure::{Denial, Failure};
use crate::feature::authentication::consumer::Consumers;
use crate::feature::authentication::{
    Authentication, Identity, Memories, NotAuthenticated, SlowCheckResults,
};
use crate::feature::ext_auth::{Answer, External};
use crate::feature::rate_limit::{Caller, LimitRefusal, Limits, Lines, SubscriptionHashes, seconds_up};
use crate::feature::security::Arrival;
use crate::feature::subscriptions::{Exhausted, Subscribed};
use crate::feature::template_headers::is_success;
use crate::feature::{Guard, LimitPolicy, Policy, SecurityPolicy, SubscriptionPolicy};
use crate::name::host_name;
use crate::rule::RouteIndex;
use crate::worker::Scratch;

/// The policy that denies a request.
struct By<'p> {
    id: &'p ObjectId,
    stats: &'p PolicyStats,
}

/// The caller of a request, for limits.
struct Limited<'l> {
    identity: &'l Identity,
    /// The number of the route.
    route: u64,
    subscription: Option<&'l SubscriptionHashes>,
}

impl Exchange<'_> {
    /// Applies the policies of the request's route.
    pub(super) async fn admit(&mut self, index: RouteIndex) -> Result<(), Refusal> {
        let snapshot = self.snapshot.clone();
        let consumers = snapshot.table.consumers();
        let Some(guard) = snapshot.table.target(index).guard.as_deref() else { return Ok(()) };
        let mut lines = Lines::default();
        if let Some(policy) = &guard.security {
            let arrival = self.edit(|exchange, edits| policy.compiled.arrive(&exchange.view(), edits));
            match arrival {
                Arrival::Goes => {}
                Arrival::Denied(denial) => return Err(self.deny(&By::of(policy), denial)),
                Arrival::Preflight => {
                    self.shard(&policy.stats).preflights.add(1);
                    return Err(Refusal::Preflight);
                }
            }
        }
        let mut identity = Identity::default();
        let address = self.client_view().address.ok();
        let limits = guard.limits.as_ref().filter(|limits| !limits.compiled.exempts(address));
        if let Some(limits) = limits {
            self.limit(limits, &identity, guard.route, &mut lines, false)?;
        }
        if let Some(policy) = &guard.security {
            if let Some(authentication) = &policy.compiled.authentication {
                if let Some(login) = authentication.login()
                    && let Some(step) = login.step(&self.view())
                {
                    return Err(Box::pin(self.take_step(policy, login, step)).await?);
                }
                if !policy.compiled.is_satisfied_by(address) {
                    identity = self.authenticate(policy, authentication, consumers, guard).await?;
                }
                self.edit(|exchange, edits| {
                    authentication.forward(exchange.head(), &identity, consumers, edits);
                });
                self.record.consumer = identity.consumer;
                let is_refused = |consumer| consumers.get(consumer).is_refused;
                if identity.consumer.is_some_and(is_refused) {
                    return Err(self.deny(&By::of(policy), Denial::Consumer));
                }
            }
            let authorized = policy.compiled.authorize(&self.view(), &identity, consumers);
            if let Err(denial) = authorized {
                if let Some(authentication) = &policy.compiled.authentication {
                    let awaited = SlowCheckResults::default();
                    self.edit(|_, edits| authentication.challenge(&awaited, denial, edits));
                }
                return Err(self.deny(&By::of(policy), denial));
            }
            if !policy.compiled.filters.is_empty() {
                Box::pin(self.filter_rule(policy, guard)).await?;
            }
            self.count_admitted(policy);
        }
        if let Some(limits) = limits {
            self.limit(limits, &identity, guard.route, &mut lines, true)?;
            self.add_limit_headers(&limits.compiled, lines);
            self.shard(&limits.stats).admitted.add(1);
        }
        if let Some(policy) = &guard.subscriptions {
            self.count_under_plan(policy, &identity, guard.route)?;
        }
        Ok(())
    }

    /// Finds the subscription of the caller, and counts the request under its plan.
    fn count_under_plan(
        &mut self,
        policy: &SubscriptionPolicy,
        identity: &Identity,
        route: u64,
    ) -> Result<(), Refusal> {
        let snapshot = self.snapshot.clone();
        let consumers = snapshot.table.consumers();
        let consumer = identity.consumer.map(|consumer| consumers.get(consumer).fingerprint);
        let found = policy.compiled.of(consumer).map_err(|denial| self.deny(&By::of(policy), denial))?;
        self.shard(&policy.stats).admitted.add(1);
        let Some(place) = found else { return Ok(()) };
        self.record.subscription = Some(place);
        let Some(subscribed) = policy.compiled.get(place) else { return Ok(()) };
        let (plan, mut lines) = (subscribed.plan, Lines::default());
        let caller = Limited { identity, route, subscription: Some(&subscribed.subscription.hashes) };
        for with_identity in [false, true] {
            let refusal = self.refused_by_limits(&plan.limits, &caller, &mut lines, with_identity);
            if let Some(refusal) = refusal {
                self.add_plan_headers(subscribed, lines);
                return Err(refusal);
            }
        }
        let counted = subscribed.count(&mut lines);
        self.add_plan_headers(subscribed, lines);
        if let Err(Exhausted { quota, reset }) = counted {
            self.record.limit = Some(quota.into());
            self.permits.clear();
            let wait = format!("Retry-After: {reset}\r\n");
            self.scratch.response_lines.extend_from_slice(wait.as_bytes());
            self.note_denial(&By::of(&*plan.limits), Denial::Quota);
            return Err(Refusal::Limited(Denial::Quota, Denial::Quota.status()));
        }
        self.shard(&plan.limits.stats).admitted.add(1);
        Ok(())
    }

    fn add_plan_headers(&mut self, subscribed: Subscribed<'_>, lines: Lines) {
        let out = &mut self.scratch.response_lines;
        subscribed.write_policy_lines(out);
        if subscribed.plan.x_headers {
            out.extend_from_slice(lines.x_headers().as_bytes());
        }
        if subscribed.plan.headers {
            out.extend_from_slice(&lines.end());
        }
    }

    /// Authenticates the caller.
    async fn authenticate(
        &mut self,
        policy: &SecurityPolicy,
        authentication: &Authentication,
        consumers: &Consumers,
        guard: &Guard,
    ) -> Result<Identity, Refusal> {
        let mut awaited = SlowCheckResults::default();
        loop {
            let memories = Memories {
                tokens: &self.worker.tokens,
                passwords: &self.worker.passwords,
                introspections: &self.worker.introspections,
            };
            // Both futures are boxed, so that requests without a password and a service do not carry their memory.
            match authentication.identify(&self.view(), consumers, &memories, &awaited) {
                Ok(identity) => return Ok(identity),
                Err(NotAuthenticated::Denied(denial)) => {
                    let denial = match authentication.login().filter(|_| denial == Denial::Login) {
                        Some(login) => Box::pin(self.begin_login(policy, login)).await?,
                        None => authentication.final_denial(denial),
                    };
                    self.edit(|_, edits| authentication.challenge(&awaited, denial, edits));
                    if let Some(page) = authentication.sign_in(denial) {
                        self.edit(|exchange, edits| {
                            write_sign_in(&mut edits.response_lines, &exchange.view(), page);
                        });
                    }
                    if let Some(page) = authentication.sign_in_template(denial) {
                        let mut line = Vec::new();
                        write_sign_in_of(&mut line, &self.template_view(), page)
                            .map_err(|fault| Refusal::Rejected(fault.into()))?;
                        self.scratch.response_lines.extend_from_slice(&line);
                    }
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
                    let answer = Box::pin(self.ask(policy, &external, guard)).await?;
                    awaited.answers.push((external.number(), answer));
                }
                Err(NotAuthenticated::IntrospectionPending(introspector, question)) => {
                    let (all, stats) = (self.worker.introspections.clone(), policy.stats.clone());
                    let asking = all.ask(introspector, question, stats, self.worker.id);
                    let outcome = Box::pin(self.awaited(asking, self.head_deadline)).await?;
                    awaited.introspected = Some(outcome.ok_or(Failure::ResponseTimeout)?);
                }
                Err(NotAuthenticated::RefreshPending { login, session, verified }) => {
                    let refreshing = self.refresh_session(policy, &login, &session, verified);
                    awaited.refreshed = Some(Box::pin(refreshing).await?);
                }
            }
        }
    }

    /// The answer of the service, if the client waits that long and the request's deadline is not over.
    async fn ask(
        &mut self,
        policy: &SecurityPolicy,
        external: &Arc<External>,
        guard: &Guard,
    ) -> Result<Result<Rc<Answer>, Denial>, Refusal> {
        let added = Added {
            origin: &self.client.origin,
            underscores: self.snapshot.settings.underscores_in_headers,
            request_id: self.record.request_id,
            nginx: self.nginx_forwarding(),
        };
        let question = match question(external, &self.template_view(), guard.route, &added) {
            Ok(question) => question,
            Err(NoQuestion::Ambiguous) => return Ok(Err(Denial::AmbiguousCredentials)),
            Err(NoQuestion::TooLong(fault)) => return Err(Refusal::Rejected(fault.into())),
        };
        let upstream = guard.service.and_then(|slot| self.worker.upstream(slot));
        let service = self.worker.externals.of(external, &policy.stats, self.worker.id);
        let asking = service.ask(external.clone(), upstream, question);
        Ok(self.awaited(asking, self.head_deadline).await?.ok_or(Failure::ResponseTimeout)?)
    }

    /// Counts the request under the limits that need the caller's identity, or under the other limits.
    fn limit(
        &mut self,
        policy: &LimitPolicy,
        identity: &Identity,
        route: u64,
        lines: &mut Lines,
        with_identity: bool,
    ) -> Result<(), Refusal> {
        let caller = Limited { identity, route, subscription: None };
        match self.refused_by_limits(policy, &caller, lines, with_identity) {
            None => Ok(()),
            Some(refusal) => {
                self.add_limit_headers(&policy.compiled, std::mem::take(lines));
                Err(refusal)
            }
        }
    }

    /// Counts the request under limits. Returns the refusal of a limit that is reached.
    fn refused_by_limits(
        &mut self,
        policy: &LimitPolicy,
        Limited { identity, route, subscription }: &Limited<'_>,
        lines: &mut Lines,
        with_identity: bool,
    ) -> Option<Refusal> {
        if !policy.compiled.counts(with_identity) {
            return None;
        }
        let snapshot = self.snapshot.clone();
        let mut permits = std::mem::take(&mut self.permits);
        let head = self.head();
        let caller = Caller {
            address: self.client_address(),
            route: *route,
            subscription: *subscription,
            consumer: identity.consumer.map(|consumer| &*snapshot.table.consumers().get(consumer).consumer),
            claims: identity.token.as_ref().map(|token| &token.claims),
            header: &|name| match name {
                "host" => {
                    let host = head.head.authority.map(|host| host.of(head.buf));
                    host.map(|host| host_name(host).to_ascii_lowercase().into())
                }
                _ => head.head.find_only(head.buf, name).map(Cow::Borrowed),
            },
        };
        let now = self.record.started.into_std();
        let (dry_runs, refusal) = policy.compiled.check(&caller, with_identity, now, &mut permits, lines);
        self.permits = permits;
        for name in &dry_runs {
            self.shard(&policy.stats).dry_runs.add(1);
            let id = By::of(policy).id;
            self.record.dry_runs.push(format!("{}/{}/{name}", id.namespace, id.name));
        }
        let LimitRefusal { limit, denial, status, wait } = refusal?;
        self.record.limit = Some(limit);
        // A denied request is not in flight, however long its client takes to read the response.
        self.permits.clear();
        if let Some(wait) = wait {
            let wait = format!("Retry-After: {}\r\n", seconds_up(wait.max(Duration::from_nanos(1))));
            self.scratch.response_lines.extend_from_slice(wait.as_bytes());
        }
        self.note_denial(&By::of(policy), denial);
        Some(Refusal::Limited(denial, status))
    }

    fn add_limit_headers(&mut self, limits: &Limits, lines: Lines) {
        self.scratch.response_lines.extend_from_slice(limits.policy_line());
        self.scratch.response_lines.extend_from_slice(&lines.end());
    }

    /// Denies a request that would bypass the security policy of another route.
    pub(super) fn deny_policy_bypass(&mut self, index: RouteIndex) -> Result<(), Refusal> {
        let snapshot = self.snapshot.clone();
        let head = self.head();
        match snapshot.table.bypassed_policy(
            (self.client.origin.entrance, index),
            head.authority(),
            self.path(),
            head,
        ) {
            Some(policy) => Err(self.deny(&By::of(policy), Denial::AmbiguousPath)),
            None => Ok(()),
        }
    }

    /// Counts a request that a policy denies.
    pub(super) fn deny_by(&mut self, policy: &SecurityPolicy, denial: Denial) -> Refusal {
        self.deny(&By::of(policy), denial)
    }

    /// Counts a request that a policy allows.
    pub(super) fn count_admitted(&self, policy: &SecurityPolicy) {
        self.shard(&policy.stats).admitted.add(1);
    }

    fn deny(&mut self, by: &By<'_>, denial: Denial) -> Refusal {
        self.note_denial(by, denial);
        Refusal::Denied(denial)
    }

    fn note_denial(&mut self, by: &By<'_>, denial: Denial) {
        by.stats.of(self.worker.id).denied[denial.index()].add(1);
        self.record.policy = Some(by.id.clone());
    }

    fn shard<'s>(&self, stats: &'s PolicyStats) -> &'s PolicyShard {
        stats.of(self.worker.id)
    }

    /// Adds the header lines that only some statuses have.
    pub(super) fn add_success_lines(&mut self, status: u16) {
        let scratch = &mut *self.scratch;
        if !scratch.success_lines.is_empty() && is_success(status) {
            scratch.response_lines.extend_from_slice(&scratch.success_lines);
            scratch.success_lines.clear();
        }
    }

    /// Removes the CORS headers of the endpoint, if a policy decides about origins.
    pub(super) fn apply_policies_to_response(&mut self) {
        let Some(route) = self.record.route else { return };
        let guard = self.snapshot.table.target(route).guard.as_deref();
        if let Some(cors) = guard.and_then(Guard::cors) {
            let Scratch { reply_head, reply, response_lines, .. } = &mut *self.scratch;
            cors.silence(reply_head, reply.filled(), response_lines);
        }
    }
}

impl<'p> By<'p> {
    fn of<S: policy::Written, C>(policy: &'p Policy<S, C>) -> Self {
        Self { id: policy.source().id(), stats: &policy.stats }
    }
}
