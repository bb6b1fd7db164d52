//! Traffic policies: the parts of a `TrafficPolicy`, and the decision about a request.

use std::sync::Arc;

use sluicegate_http1::Rejection;
use sluicegate_model::feature::FaultInjection;
use sluicegate_model::policy as model;
use sluicegate_model::rule::{PathMatch, Rule};
use sluicegate_model::{Settings, UpstreamKey};

use super::headers::HeaderEdit;
use super::load_balancing::{HashSource, hash, hash_of_text};
use super::mirror::Receiver;
use super::redirect::{Redirected, redirect};
use super::returns::{Returned, returned};
use super::session_affinity::{Affinity, backend_mark};
use super::split::Split;
use super::template_headers::TemplateHeaderEdit;
use super::url_rewrite::{MatchedPrefix, Rewritten, Target, rewrite};
use super::{Policy, fault, mirror};
use crate::counters::{TrafficShard, TrafficStats};
use crate::feature::cache::Cache;
use crate::request::{HeadView, RequestView};
use crate::template::{TemplateView, TooLong};
use crate::upstream::{EndpointPreference, RetryBudget};

/// A compiled `TrafficPolicy`.
pub(crate) type TrafficPolicy = Policy<model::Traffic, Traffic, TrafficStats>;

/// The traffic policy of one route.
#[derive(Debug)]
pub(crate) struct RouteTrafficPolicy {
    pub(crate) policy: Arc<TrafficPolicy>,
    /// The slots of the other upstreams, in their order.
    branches: Box<[usize]>,
    /// The [`backend_mark`]s of the other upstreams, in their order.
    branch_marks: Box<[u32]>,
    /// The [`backend_mark`]s of the backends of the rule, if there are other upstreams.
    own_marks: Box<[u32]>,
    /// The slots of the upstreams that receive mirrored requests.
    mirrors: Box<[usize]>,
    /// The slot of the upstream with the error pages.
    pub(crate) pages: Option<usize>,
    /// The slot of the upstream for requests over TLS.
    secure: Option<usize>,
    matched: MatchedPrefix,
    /// Whether the rule has backends.
    has_backends: bool,
}

/// The decision of a traffic policy about a request.
pub(crate) enum Steering {
    /// The request goes to an upstream.
    Forward(Forward),
    /// The gateway injects a failure with this status.
    Abort(u16),
    /// The gateway sends the policy's fixed response.
    Respond,
    Redirect {
        status: u16,
        location: Vec<u8>,
    },
    Reject(Rejection),
}

/// The edits of a request that goes to an upstream.
pub(crate) struct Forward {
    /// The slot of the other upstream of a split; `None`: a backend of the rule.
    pub(crate) slot: Option<usize>,
    /// Whether the slot is an upstream of the split.
    pub(crate) is_diverted: bool,
    pub(crate) preference: EndpointPreference,
    /// The mirrors that receive a copy.
    pub(crate) mirrors: Vec<Receiver>,
    /// The new path and query, as far as they change.
    pub(crate) rewritten: Rewritten,
}

/// A compiled policy.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// All settings for requests of its routes.
    pub(crate) settings: Arc<Settings>,
    pub(crate) request: HeaderEdit,
    pub(crate) response: HeaderEdit,
    pub(crate) template_headers: Option<TemplateHeaderEdit>,
    rewrites: Vec<Target>,
    pub(crate) budget: Option<Arc<RetryBudget>>,
    pub(crate) split: Option<Split>,
    hash: Vec<HashSource>,
    pub(crate) affinity: Option<Affinity>,
    /// The header line `Strict-Transport-Security` of responses over TLS.
    pub(crate) hsts: Option<Box<str>>,
    pub(crate) faults: FaultInjection,
    /// The cached responses. A changed policy begins with an empty cache.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Whether responses state the effect of the cache: unless the policy itself sets or removes that header.
    pub(crate) reports_cache_status: bool,
}

impl Traffic {
    /// Compiles `source` with these settings. `before` is the compiled previous version. `beside` is another form of the
    /// policy that is also in use, with which the new form shares what it can.
    pub(crate) fn new(
        source: &model::Traffic,
        settings: Arc<Settings>,
        before: Option<&Self>,
        beside: Option<&Self>,
    ) -> Self {
        let features = &source.features;
        let cache = features.cache.as_ref().map(|rules| {
            let shared =
                beside.and_then(|beside| beside.cache.clone()).filter(|cache| cache.rules() == rules);
            shared.unwrap_or_else(|| Arc::new(Cache::new(rules)))
        });
        let before = beside.or(before);
        let budget = features.retries.as_ref().and_then(|retries| retries.budget);
        let budget =
            RetryBudget::following(budget.map(Into::into), before.and_then(|before| before.budget.as_ref()));
        Self {
            settings,
            request: HeaderEdit::new(&features.request_headers),
            response: HeaderEdit::new(&features.response_headers),
            template_headers: features.template_headers.as_ref().map(TemplateHeaderEdit::new),
            rewrites: Target::all(&features.url_rewrite),
            budget,
            split: features.split.as_ref().map(Split::new),
            hash: features.load_balancing.hash.iter().map(HashSource::new).collect(),
            affinity: features.load_balancing.affinity.as_ref().map(Affinity::new),
            faults: features.fault,
            hsts: features.hsts.map(|hsts| format!("Strict-Transport-Security: {hsts}\r\n").into()),
            cache,
            reports_cache_status: !features
                .response_headers
                .removed()
                .any(|name| name.eq_ignore_ascii_case("cache-status")),
        }
    }
}

impl RouteTrafficPolicy {
    pub(crate) fn new(
        policy: Arc<TrafficPolicy>,
        rule: &Rule,
        path: &PathMatch,
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Self {
        let features = &policy.source().features;
        let branches = features.split.iter().flat_map(|split| &split.backends);
        let own = rule.upstreams().filter(|_| features.split.is_some());
        Self {
            branch_marks: branches.clone().map(|branch| backend_mark(&branch.upstream)).collect(),
            own_marks: own.map(backend_mark).collect(),
            branches: branches.map(|branch| slot(&branch.upstream)).collect(),
            mirrors: features.mirrors.iter().map(|mirror| slot(&mirror.upstream)).collect(),
            pages: features.error_pages.as_ref().map(|pages| slot(&pages.upstream)),
            secure: features.secure_upstream.as_ref().map(&slot),
            matched: MatchedPrefix::of(path),
            has_backends: !rule.backends.is_empty(),
            policy,
        }
    }

    /// Whether the other upstreams still have the same slots.
    pub(crate) fn is_in_place(&self, slot: impl Fn(&UpstreamKey) -> usize) -> bool {
        let slots = self.branches.iter().chain(&self.mirrors).chain(&self.pages).chain(&self.secure).copied();
        slots.eq(self.policy.source().features.upstreams().map(slot))
    }

    /// The choice of a session with this mark of a backend: `Some(None)` for a backend of the rule, `Some(Some(_))` for another
    /// upstream.
    pub(crate) fn branch_of_session(&self, mark: u32) -> Option<Option<usize>> {
        if self.own_marks.contains(&mark) {
            return Some(None);
        }
        self.branch_marks.iter().position(|of| *of == mark).map(Some)
    }

    /// Whether the rule is of an Ingress of ingress-nginx.
    pub(crate) fn is_nginx(&self) -> bool {
        self.policy.source().features.endpoint_form.nginx.is_some()
    }

    /// Whether some requests receive a response before the security policy decides.
    pub(crate) fn has_returns(&self) -> bool {
        !self.policy.source().features.returns.is_empty()
    }

    /// The response that a request receives before the security policy decides.
    pub(crate) fn returned(
        &self,
        view: &TemplateView<'_>,
        shard: &TrafficShard,
    ) -> Result<Option<Returned>, TooLong> {
        let returned = returned(&self.policy.source().features.returns, view)?;
        if returned.is_some() {
            shard.answered.add(1);
        }
        Ok(returned)
    }

    /// Decides about a request. `session_backend` is the mark of the backend of the client's session, if the session has
    /// precedence over weights.
    pub(crate) fn steer(
        &self,
        view: &TemplateView<'_>,
        session_backend: Option<u32>,
        shard: &TrafficShard,
    ) -> Steering {
        let request = &view.request;
        let (features, compiled) = (&self.policy.source().features, &self.policy.compiled);
        if let Some(status) = fault::abort(&compiled.faults) {
            shard.aborted.add(1);
            return Steering::Abort(status);
        }
        if let Some(own) = self.own_response(request) {
            if !matches!(own, Steering::Reject(_)) {
                shard.answered.add(1);
            }
            return own;
        }
        let HeadView { head, buf } = request.head;
        let random = |below| fastrand::u64(..below);
        let of_session = session_backend.and_then(|mark| self.branch_of_session(mark));
        let branch = match of_session {
            Some(branch) => branch,
            None => compiled.split.as_ref().and_then(|split| split.choose(head, buf, random)),
        };
        if branch.is_some() {
            shard.diverted.add(1);
        }
        let slot = branch.and_then(|branch| self.branches.get(branch).copied());
        let slot = slot.or_else(|| self.secure.filter(|_| request.client.is_tls));
        let mirrors = mirror::receivers(&features.mirrors, &self.mirrors);
        let (rewritten, hash) = match self.rewritten(view) {
            Ok(rewritten) => rewritten,
            Err(rejection) => return Steering::Reject(rejection),
        };
        let balancing = &features.load_balancing;
        let preference = EndpointPreference {
            balance: balancing.balance(),
            hash,
            is_strict: false,
            subset: balancing.hash_subset.map_or(1, |size| size.get().into()),
            // The backend may have an affinity of its own.
            mark: None,
        };
        Steering::Forward(Forward { slot, is_diverted: branch.is_some(), preference, mirrors, rewritten })
    }

    /// The response of the policy itself to a request that is not aborted, if the policy has one.
    pub(crate) fn own_response(&self, request: &RequestView<'_>) -> Option<Steering> {
        let features = &self.policy.source().features;
        if features.direct_response.is_some() {
            return Some(Steering::Respond);
        }
        let to = features.redirect.as_ref()?;
        match redirect(to, self.matched, request) {
            Redirected::MissingHost => Some(Steering::Reject(Rejection::MissingHost)),
            // A backend serves the request instead.
            Redirected::Loop(_) if self.has_backends => None,
            Redirected::To(location) | Redirected::Loop(location) => {
                Some(Steering::Redirect { status: to.status_code.get(), location })
            }
        }
    }

    /// The path and the query for the endpoint, and the hash that selects the endpoint.
    pub(crate) fn rewritten(&self, view: &TemplateView<'_>) -> Result<(Rewritten, Option<u64>), Rejection> {
        let (features, compiled) = (&self.policy.source().features, &self.policy.compiled);
        let mut rewritten = rewrite(&compiled.rewrites, view)?;
        if let Some(rewrite) = &features.url_rewrite.path {
            rewritten.path = Some(self.matched.apply(rewrite, view.request.path)?);
        }
        let hash = match &features.load_balancing.hash_text {
            Some(text) => Some(hash_of_text(text, &rewritten.view(view))?),
            None => hash(&compiled.hash, &view.request),
        };
        Ok((rewritten, hash))
    }
}
