//! Authentication, authorization and the like of a route (`SecurityPolicy`).

use std::iter;

use minicbor::{Decode, Encode};
use serde::Serialize;

use crate::encoding::{Adapt as _, Maybe, Part, Within};
use crate::feature::{Authentication, Authorization, Cors, ExternalAuth, IpAccess};
use crate::{ObjectId, UpstreamKey};

/// The checks of a request before it goes to an endpoint. The gateway applies the parts in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct Security {
    /// The object with the policy.
    #[n(0)]
    pub id: ObjectId,
    /// The reason why the policy is invalid. The gateway responds to every request with 503.
    #[n(1)]
    pub refuses: Option<Box<str>>,
    /// The allowed and the denied client IPs.
    #[n(2)]
    pub ip_access: IpAccess,
    /// Cross-origin requests. The gateway responds to a preflight request before authentication.
    #[n(3)]
    pub cors: Option<Cors>,
    /// Authentication, if callers must authenticate.
    #[cbor(n(4), with = "Maybe::<Within<Authentication>>")]
    pub authentication: Option<Authentication>,
    /// Authorization of the callers.
    #[n(5)]
    pub authorization: Option<Authorization>,
    /// Whether endpoints receive headers that override the path or method of the request line, such as `X-Original-URL` and
    /// `X-HTTP-Method-Override`, if the policy decides on paths or methods. Otherwise the gateway drops these headers.
    #[n(6)]
    pub forward_overrides: bool,
    /// The less specific policies with parts in this policy, the most specific first. [`id`](Self::id) is the most specific
    /// policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(7), default, skip_if = "Vec::is_empty")]
    pub inherits: Vec<ObjectId>,
    /// The Services of filters, in order. Each of them must allow the request, in addition to the other parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cbor(n(8), default, skip_if = "Vec::is_empty")]
    pub filters: Vec<ExternalAuth>,
    /// Whether an allowed client IP is enough: the gateway then does not authenticate the caller. Other callers must
    /// authenticate, whatever their client IP (nginx: `satisfy any`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[cbor(n(9), default, skip_if = "std::ops::Not::not")]
    pub satisfies_any: bool,
}

impl Part for Security {
    const KIND: u32 = 14;
    const WHAT: &'static str = "policy for callers";
}

impl Security {
    /// A policy that denies nothing.
    #[must_use]
    pub fn open(id: ObjectId) -> Self {
        Self {
            id,
            refuses: None,
            ip_access: IpAccess::default(),
            cors: None,
            authentication: None,
            authorization: None,
            forward_overrides: false,
            inherits: Vec::new(),
            filters: Vec::new(),
            satisfies_any: false,
        }
    }

    /// An invalid policy, with the reason.
    #[must_use]
    pub fn closed(id: ObjectId, reason: Box<str>) -> Self {
        Self { refuses: Some(reason), ..Self::open(id) }
    }

    /// The objects with the parts of the policy, the most specific first.
    pub fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        iter::once(&self.id).chain(&self.inherits)
    }

    /// The upstream of the external authorization service.
    #[must_use]
    pub fn ext_auth_upstream(&self) -> Option<&UpstreamKey> {
        self.authentication.as_ref()?.ext_auth.as_ref()?.upstream.as_ref()
    }

    /// The upstreams that decide about requests.
    pub fn upstreams(&self) -> impl Iterator<Item = &UpstreamKey> {
        self.ext_auth_upstream().into_iter().chain(self.filters.iter().map(|filter| &filter.upstream))
    }

    /// Whether the policy denies any request.
    #[must_use]
    pub fn can_deny(&self) -> bool {
        self.refuses.is_some()
            || !self.ip_access.is_open()
            || self.authentication.is_some()
            || self.authorization.is_some()
            || !self.filters.is_empty()
    }
}
