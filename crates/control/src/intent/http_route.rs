//! The intents of HTTPRoutes and GRPCRoutes.

use std::sync::Arc;

use sluicegate_model::UpstreamKey;
use sluicegate_model::feature::{BackendFeatures, Cors, Features};
use sluicegate_model::rule::RuleMatch;

use super::listener::Parent;
use super::{At, Reference};
use crate::object::route::Hostname;
use crate::problem::Problem;

/// An HTTPRoute or a GRPCRoute.
pub(crate) struct HttpRoute<'a> {
    pub(crate) at: At<'a>,
    /// Its names, if it has names.
    pub(crate) hostnames: &'a [Hostname],
    pub(crate) parents: Vec<Parent>,
    pub(crate) rules: Vec<HttpRule<'a>>,
    /// The backends and mirrors of the rules. They count if the route is in service at a listener.
    pub(crate) references: Vec<Reference<'a>>,
    /// The problems with backends. They count if the route is in service at a listener.
    pub(crate) problems: Vec<Problem>,
}

/// A rule of a route.
pub(crate) struct HttpRule<'a> {
    /// Its place in `spec.rules`.
    pub(crate) index: usize,
    pub(crate) matches: &'a [RuleMatch],
    /// The features of filters, timeouts and retries.
    pub(crate) features: Arc<Features>,
    pub(crate) cors: Option<&'a Cors>,
    pub(crate) backends: Vec<HttpBackend<'a>>,
}

/// A backend of a rule.
pub(crate) struct HttpBackend<'a> {
    pub(crate) weight: u32,
    /// `None` if the reference is invalid: requests for the backend receive 500.
    pub(crate) upstream: Option<UpstreamKey>,
    pub(crate) features: Option<&'a BackendFeatures>,
}
