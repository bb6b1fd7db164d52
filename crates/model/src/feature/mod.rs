//! Features: each thing that happens to a request of a rule, or at the endpoints of a Service, in one file.
//!
//! The file of a feature defines its fields once. From this definition come the schema of the CRDs with the text of `kubectl
//! explain`, the check of YAML, the encoding for data planes, and the dump of the admin interface. `crates/proxy/src/feature`
//! has the runtime half of a feature under the same file name.
//!
//! | module | what |
//! |---|---|
//! | [`timeouts`] | timeouts of requests, attempts and connects |
//! | [`retries`] | retries and the retry budget |
//! | [`limits`] | sizes of bodies |
//! | [`headers`] | edits of request and response headers |
//! | [`url_rewrite`] | the path and host for endpoints |
//! | [`response_rewrite`] | cookies and locations in responses |
//! | [`redirect`] | redirects |
//! | [`error_pages`] | responses of a Service in place of errors |
//! | [`direct_response`] | responses without an endpoint |
//! | [`returns`] | responses without an endpoint that depend on the request, for annotations of ingress-nginx |
//! | [`fault`] | injected delays and errors |
//! | [`split`] | other Services by weight or condition |
//! | [`load_balancing`] | the choice of an endpoint, session affinity |
//! | [`mirror`] | copies of requests |
//! | [`cache`] | the response cache |
//! | [`bandwidth`] | the bandwidth of responses |
//! | [`circuit_breaker`] | limits of requests in flight, ejection of endpoints |
//! | [`health_check`] | health checks of endpoints |
//! | [`authorization`] | rules that allow or deny requests |
//! | [`authentication`] | JSON Web Tokens, introspection, API keys, passwords, login, external authorization |
//! | [`endpoint_form`] | the form of requests to endpoints |
//! | [`external_auth`] | the filter `ExternalAuth` of Gateway API |
//! | [`cors`] | cross-origin requests |
//! | [`ip_access`] | access by client IP |
//! | [`rate_limit`] | rate limits and concurrency limits |
//! | [`quota`] | quotas of plans |
//! | [`compression`] | compression of responses |
//! | [`validation`] | validation of requests and responses of an API |
//! | [`observability`] | the records of requests |
//! | [`service_ref`] | a Service that a feature names |
//!
//! # A new field
//!
//! A new field of a feature is one line in its file: the doc comment (which `kubectl explain` shows), `#[n(index)]` with the next
//! index, and a type of [`value`](crate::value) with the range. A condition over several fields goes into the feature's
//! `check`. The runtime half in the proxy then reads the field. `make manifests` writes the CRDs anew.

pub mod authentication;
pub mod authorization;
pub mod bandwidth;
pub mod cache;
pub mod circuit_breaker;
pub mod compression;
pub mod cors;
pub mod direct_response;
pub mod endpoint_form;
pub mod error_pages;
pub mod external_auth;
pub mod fault;
pub mod headers;
pub mod health_check;
pub mod ip_access;
pub mod limits;
pub mod load_balancing;
pub mod mirror;
pub mod observability;
pub mod quota;
pub mod rate_limit;
pub mod redirect;
pub mod response_rewrite;
pub mod retries;
pub mod returns;
pub mod service_ref;
pub mod split;
pub mod timeouts;
pub mod url_rewrite;
pub mod validation;

use minicbor::{Decode, Encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use authentication::{
    ApiKey, AuthRequest, AuthRequestCache, Authentication, Basic, ConsumerScope, Credential, Digest, ExtAuth,
    Introspection, Jwt, Oidc, Require, StatusTime,
};
pub use authorization::{Action, Authorization, AuthorizationRule, ClaimRequirement};
pub use bandwidth::Bandwidth;
pub use cache::Cache;
pub use circuit_breaker::{CircuitBreaker, Ejection};
pub use cors::Cors;
pub use direct_response::DirectResponse;
pub use endpoint_form::EndpointForm;
pub use error_pages::ErrorPages;
pub use external_auth::{ExternalAuth, ExternalAuthProtocol};
pub use fault::{Abort, Delay, FaultInjection};
pub use headers::{Header, HeaderEdits, ResponseHeader, ResponseHeaderMode, TemplateHeader, TemplateHeaders};
pub use health_check::{HealthCheck, HealthCheckType};
pub use ip_access::IpAccess;
pub use limits::BodyLimits;
pub use load_balancing::{
    Affinity, HashPart, HashPartType, LoadBalancing, LoadBalancingAlgorithm, SessionTimeout,
};
pub use mirror::{MIRRORS_MAX, Mirror};
pub use observability::{Spans, Unrecorded};
pub use quota::{CalendarUnit, Quota, QuotaUnit, QuotaWindow};
pub use rate_limit::{Concurrency, Limit, LimitAlgorithm, LimitKey, LimitStatus, Window};
pub use redirect::{Redirect, Scheme};
pub use response_rewrite::ResponseRewrite;
pub use retries::{Retries, RetryBudget, RetryConstraint};
pub use returns::Return;
pub use split::{RequestMatch, Split, SplitBackend};
pub use timeouts::RouteTimeouts;
pub use url_rewrite::{PathRewrite, PathRewriteType, RegexRewrite, TargetRewrite, UrlRewrite};
pub use validation::{Validation, ValidationMode};

use crate::UpstreamKey;
use crate::encoding::Bound;
use crate::tls::Hsts;
use crate::value::Entries;

/// The features of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase", default)]
#[cbor(map)]
pub struct Features {
    /// Timeouts that replace the global timeouts. 1ms to 24h each.
    #[serde(skip_serializing_if = "is_default")]
    #[n(0)]
    pub timeouts: RouteTimeouts,
    /// Sets when and how often the gateway retries a request. Default: retries as set by the global --attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub retries: Option<Retries>,
    /// Size limits that replace the global limits.
    #[serde(skip_serializing_if = "is_default")]
    #[n(2)]
    pub limits: BodyLimits,
    /// Changes of request headers on the way to the endpoint. Default: none.
    #[serde(skip_serializing_if = "is_default")]
    #[n(3)]
    pub request_headers: HeaderEdits,
    /// Changes of response headers on the way to the client. The gateway's own responses also have the headers of set
    /// and add. Default: none.
    #[serde(skip_serializing_if = "is_default")]
    #[n(4)]
    pub response_headers: HeaderEdits,
    /// Replaces the path or the host of requests on the way to the endpoint. Default: the path and host of the client.
    #[serde(skip_serializing_if = "is_default")]
    #[n(5)]
    pub url_rewrite: UrlRewrite,
    /// Redirects clients without a request to an endpoint. If a request is already for the target of the redirect,
    /// the gateway forwards the request, so that there is no loop. Default: no redirect.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(6)]
    pub redirect: Option<Redirect>,
    /// Responds with a fixed response, without a request to an endpoint. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(7)]
    pub direct_response: Option<DirectResponse>,
    /// Delays or aborts requests, to test how clients handle faults. Default: none.
    #[serde(skip_serializing_if = "is_default")]
    #[n(8)]
    pub fault: FaultInjection,
    /// Sends some of the requests to other Services. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(9)]
    pub split: Option<Split>,
    /// The choice of an endpoint for each request. Default: the setting of the Service.
    #[serde(skip_serializing_if = "is_default")]
    #[n(10)]
    pub load_balancing: LoadBalancing,
    /// Sends copies of requests to another Service, and drops its responses. Default: none.
    #[serde(
        rename = "mirror",
        skip_serializing_if = "is_default",
        deserialize_with = "mirror::deserialize",
        serialize_with = "mirror::serialize"
    )]
    #[schemars(with = "Option<Mirror>")]
    #[cbor(n(11), default, skip_if = "is_default")]
    pub mirrors: Entries<Mirror, MIRRORS_MAX>,
    /// Caches responses as a shared cache (RFC 9111): responses that allow caching, and never responses with private
    /// or Set-Cookie. The gateway caches nothing on routes whose SecurityPolicy authenticates callers. Default: no
    /// cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(12)]
    pub cache: Option<Cache>,
    /// Limits how fast the gateway sends each response to its client. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(20)]
    pub bandwidth: Option<Bandwidth>,
    /// Replaces responses with some status codes by responses of a Service: error pages. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(40)]
    pub error_pages: Option<Box<ErrorPages>>,
    /// Rewrites of cookies and locations in responses of endpoints.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(41)]
    pub response_rewrite: Option<Box<ResponseRewrite>>,
    /// The form of requests to endpoints with HTTP/1.
    #[serde(skip_deserializing, skip_serializing_if = "is_default")]
    #[schemars(skip)]
    #[cbor(n(42), default, skip_if = "is_default")]
    pub endpoint_form: EndpointForm,
    /// The upstream for requests over TLS, in place of the backends of the rule (`backend-protocol: AUTO_HTTP` of
    /// ingress-nginx).
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(43)]
    pub secure_upstream: Option<UpstreamKey>,
    /// The records that the gateway does not make of the requests.
    #[serde(skip_deserializing, skip_serializing_if = "is_default")]
    #[schemars(skip)]
    #[cbor(n(44), default, skip_if = "is_default")]
    pub unrecorded: Unrecorded,
    /// The spans of the requests.
    #[serde(skip_deserializing, skip_serializing_if = "is_default")]
    #[schemars(skip)]
    #[cbor(n(66), default, skip_if = "is_default")]
    pub spans: Spans,
    /// Responses without an endpoint, which annotations of ingress-nginx set. The first response whose conditions hold
    /// applies, before the security policy.
    #[serde(skip_deserializing, skip_serializing_if = "is_default")]
    #[schemars(skip)]
    #[cbor(n(13), default, skip_if = "is_default")]
    pub returns: Entries<Return, { Return::MAX }, 0>,
    /// Headers with variables of nginx, which annotations of ingress-nginx set.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(14)]
    pub template_headers: Option<TemplateHeaders>,
    /// The header `Strict-Transport-Security` of all responses over TLS, in place of the endpoint's header. Only for hosts with a
    /// certificate of their own (ingress-nginx `hsts`).
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    #[n(45)]
    pub hsts: Option<Hsts>,
}

impl Features {
    /// The features as bytes. Only equal features have equal bytes.
    #[must_use]
    pub fn encoding(&self) -> Vec<u8> {
        // Only a writer has errors, and a vector has none.
        minicbor::to_vec(self).unwrap_or_default()
    }

    /// The upstreams that the features name.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamKey> {
        let backends =
            self.split.iter().flat_map(|split| split.backends.iter().map(|backend| &backend.upstream));
        let mirrors = self.mirrors.iter().map(|mirror| &mirror.upstream);
        let pages = self.error_pages.iter().map(|pages| &pages.upstream);
        backends.chain(mirrors).chain(pages).chain(&self.secure_upstream)
    }

    /// The upstreams that the features name, to complete them.
    pub fn upstreams_mut(&mut self) -> impl Iterator<Item = &mut UpstreamKey> {
        let backends = self
            .split
            .iter_mut()
            .flat_map(|split| split.backends.iter_mut().map(|backend| &mut backend.upstream));
        let mirrors = self.mirrors.iter_mut().map(|mirror| &mut mirror.upstream);
        let pages = self.error_pages.iter_mut().map(|pages| &mut pages.upstream);
        backends.chain(mirrors).chain(pages).chain(&mut self.secure_upstream)
    }
}

impl Check for Features {
    fn check(&self, at: &mut Faults<'_>) {
        if self.redirect.is_some() && self.direct_response.is_some() {
            at.error("redirect", "cannot be combined with directResponse: remove one of them");
            at.error("directResponse", "cannot be combined with redirect: remove one of them");
        }
        at.within("urlRewrite", &Some(&self.url_rewrite));
        at.within("redirect", &self.redirect);
        at.within("directResponse", &self.direct_response);
        at.within("split", &self.split);
        at.within("loadBalancing", &Some(&self.load_balancing));
        at.within("cache", &self.cache);
    }
}

/// The decoder applies the same conditions as the check of YAML.
impl Bound for Features {
    type Value = Self;
    const FIELD: &'static str = "a combination of features";

    fn allows(features: &Self) -> bool {
        is_valid(features)
    }
}

/// The features of one backend of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct BackendFeatures {
    /// Changes of request headers on the way to the backend.
    #[serde(skip_serializing_if = "is_default")]
    #[n(0)]
    pub request_headers: HeaderEdits,
    /// Changes of response headers on the way to the client. If the backend is chosen, the gateway's own responses also have
    /// the headers of set and add.
    #[serde(skip_serializing_if = "is_default")]
    #[n(1)]
    pub response_headers: HeaderEdits,
    /// The path and host that the backend receives, in place of those of the features of the rule.
    #[serde(skip_serializing_if = "is_default")]
    #[cbor(n(2), default, skip_if = "is_default")]
    pub url_rewrite: UrlRewrite,
    /// Session affinity at the backend, in place of the affinity of the features of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub affinity: Option<Affinity>,
}

/// The features of a Service: settings for the upstream itself, for all routes that lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceFeatures {
    /// Limits the requests in flight at the Service, and ejects endpoints that return errors. All targets must be
    /// Services. Default: none.
    #[serde(skip_serializing_if = "is_default")]
    pub circuit_breaker: CircuitBreaker,
    /// Checks the health of the Service's endpoints. All targets must be Services. Default: no checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

impl Check for ServiceFeatures {
    fn check(&self, at: &mut Faults<'_>) {
        at.within("healthCheck", &self.health_check);
    }
}

/// The conditions over several fields of a feature.
pub trait Check {
    /// Reports each condition that is not satisfied.
    fn check(&self, at: &mut Faults<'_>);
}

impl<T: Check> Check for &T {
    fn check(&self, at: &mut Faults<'_>) {
        T::check(self, at);
    }
}

/// Whether all conditions are satisfied.
pub(crate) fn is_valid(value: &impl Check) -> bool {
    let mut is_valid = true;
    value.check(&mut Faults {
        prefix: String::new(),
        report: &mut |_, fault| is_valid &= matches!(fault, Fault::Warning(_)),
    });
    is_valid
}

/// A condition that is not satisfied, as the rest of a sentence about the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The feature has no effect.
    Error(String),
    /// The feature has less effect than its author may expect.
    Warning(String),
}

/// The receiver of faults, at a field of an object.
pub struct Faults<'a> {
    prefix: String,
    report: &'a mut dyn FnMut(String, Fault),
}

impl<'a> Faults<'a> {
    /// A receiver at a field such as `spec`.
    pub fn new(field: &str, report: &'a mut dyn FnMut(String, Fault)) -> Self {
        Self { prefix: format!("{field}."), report }
    }

    /// Reports an error at a field.
    pub fn error(&mut self, field: &str, message: impl Into<String>) {
        let field = self.field(field);
        (self.report)(field, Fault::Error(message.into()));
    }

    /// Reports a warning at a field.
    pub fn warning(&mut self, field: &str, message: impl Into<String>) {
        let field = self.field(field);
        (self.report)(field, Fault::Warning(message.into()));
    }

    /// Checks the value of a field.
    pub fn within<T: Check>(&mut self, field: &str, value: &Option<T>) {
        if let Some(value) = value {
            value
                .check(&mut Faults { prefix: format!("{}{field}.", self.prefix), report: &mut *self.report });
        }
    }

    /// The whole path of a field. An empty field is the feature itself.
    fn field(&self, field: &str) -> String {
        match field {
            "" => self.prefix.trim_end_matches('.').to_owned(),
            field => format!("{}{field}", self.prefix),
        }
    }
}

impl std::fmt::Debug for Faults<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Warns of entries that are written twice.
fn warn_of_repeated<T: PartialEq + std::fmt::Debug>(field: &str, entries: &[T], at: &mut Faults<'_>) {
    for (index, entry) in entries.iter().enumerate() {
        if entries[..index].contains(entry) {
            at.warning(&format!("{field}[{index}]"), "is written twice");
        }
    }
}

/// The default of a field that is on.
pub(crate) fn yes() -> bool {
    true
}

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
