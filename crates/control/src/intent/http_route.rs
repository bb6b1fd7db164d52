//! The intents of HTTPRoutes and GRPCRoutes.

use std::sync::Arc;

use sluicegate_model::UpstreamKey;
use sluicegate_model::feature::{Affinity, BackendFeatures, Cors, ExternalAuth, Features};
use sluicegate_model::rule::RuleMatch;

use super::listener::Parent;
use super::{At, Reference};
use crate::backend_tls;
use crate::object::ObjectRef;
use crate::object::route::Hostname;
use crate::problem::Problem;
use crate::status::Fault;
use crate::store::ServiceRef;

/// An HTTPRoute or a GRPCRoute.
pub(crate) struct HttpRoute<'a> {
    pub(crate) at: At<'a>,
    /// Its names, if it has names.
    pub(crate) hostnames: &'a [Hostname],
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// The priority among the routes of a listener.
    pub(crate) priority: u32,
    pub(crate) parents: Vec<Parent<'a>>,
    /// The first error in a rule, beside its backends.
    pub(crate) fault: Option<&'a Fault>,
    /// Whether a rule is without an error.
    pub(crate) is_usable: bool,
    /// The Services that do not exist, or lack a port.
    pub(crate) missing: Vec<ServiceRef>,
    /// The first backend that may not be named, or does not exist.
    pub(crate) unresolved: Option<Fault>,
    pub(crate) rules: Vec<HttpRule<'a>>,
    /// The names of all rules that have a name, also of rules that are not served.
    pub(crate) rule_names: &'a [Arc<str>],
    /// The upstreams that the rules name, without regard to BackendTLSPolicies.
    pub(crate) named: Vec<UpstreamKey>,
    /// The XBackends that the rules name, and that they may name.
    pub(crate) x_backends: Vec<ObjectRef>,
    /// The backends and mirrors of the rules. They count if the route is in service at a listener.
    pub(crate) references: Vec<Reference<'a>>,
    /// The problems with backends. They count if the route is in service at a listener.
    pub(crate) problems: Vec<Problem>,
}

/// A rule of a route.
#[derive(Clone)]
pub(crate) struct HttpRule<'a> {
    /// Its place in `spec.rules`.
    pub(crate) index: usize,
    pub(crate) name: Option<&'a Arc<str>>,
    pub(crate) matches: &'a [RuleMatch],
    /// The features of filters, timeouts and retries.
    pub(crate) features: Arc<Features>,
    /// Whether no session persistence applies to the rule, because its own is invalid.
    pub(crate) is_sessionless: bool,
    pub(crate) cors: Option<&'a Cors>,
    /// The Services of filters, in order.
    pub(crate) auth: Vec<ExternalAuth>,
    pub(crate) backends: Vec<HttpBackend<'a>>,
}

impl HttpRule<'_> {
    /// The rule at a Gateway with this client certificate for endpoints.
    pub(crate) fn presenting(&self, client_certificate: Option<&Arc<str>>) -> Self {
        let mut rule = self.clone();
        let of_backends = rule.backends.iter_mut().filter_map(|backend| backend.upstream.as_mut());
        of_backends.for_each(|upstream| backend_tls::present(upstream, client_certificate));
        rule.auth.iter_mut().for_each(|auth| backend_tls::present(&mut auth.upstream, client_certificate));
        if client_certificate.is_some() && !rule.features.mirrors.is_empty() {
            let mirrors = Arc::make_mut(&mut rule.features).upstreams_mut();
            mirrors.for_each(|upstream| backend_tls::present(upstream, client_certificate));
        }
        rule
    }
}

/// A backend of a rule.
#[derive(Clone)]
pub(crate) struct HttpBackend<'a> {
    pub(crate) weight: u32,
    /// The Service, also if it does not exist, or the Service of the upstream of an XBackend. `None` if the route may not name
    /// it.
    pub(crate) service: Option<ServiceRef>,
    /// `None` if the reference is invalid: requests for the backend receive 500.
    pub(crate) upstream: Option<UpstreamKey>,
    pub(crate) features: Option<&'a BackendFeatures>,
    /// The session affinity of the Service.
    pub(crate) affinity: Option<&'a Affinity>,
}
