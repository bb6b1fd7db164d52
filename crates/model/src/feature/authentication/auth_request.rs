//! The parts of external authorization that annotations of ingress-nginx set. They have variables of nginx, so that policies
//! do not have these parts.

use minicbor::{Decode, Encode};
use serde::Serialize;

use super::ext_auth::CacheTime;
use crate::feature::headers::TemplateHeader;
use crate::value::{AnnotatedHeader, Entries, Number, Template};

/// How the gateway asks the service, and how it applies the answer, in place of parts of [`ExtAuth`](super::ExtAuth).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct AuthRequest {
    /// The path and the query of the URL. `None`: those of the URL of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(0)]
    pub target: Option<Template>,
    /// The URL that clients are redirected to (302) instead of any 401.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub sign_in: Option<Template>,
    /// `X-Auth-Request-Redirect`. `None`: the path and the query of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub request_redirect: Option<Template>,
    /// Headers that the service receives in place of headers of the same name. A header with an empty value is removed.
    #[serde(skip_serializing_if = "crate::feature::is_default")]
    #[cbor(n(3), default, skip_if = "crate::feature::is_default")]
    pub headers: Entries<TemplateHeader, 64, 0>,
    /// Whether `Set-Cookie` of the service goes to the client with each status. Otherwise only with the statuses 200, 201, 204,
    /// 206, 301, 302, 303, 304, 307 and 308.
    #[n(4)]
    pub always_sets_cookies: bool,
    /// Whether the service receives `X-Original-URI` and `X-Scheme`.
    #[n(5)]
    pub tells_uri: bool,
    /// Caches answers by a text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(6)]
    pub cache: Option<AuthRequestCache>,
    /// Further headers of the service's response that endpoints receive, with names such as `X-Forwarded-User`, which policies
    /// may not use. The gateway drops these headers from every client request.
    #[serde(skip_serializing_if = "crate::feature::is_default")]
    #[cbor(n(7), default, skip_if = "crate::feature::is_default")]
    pub response_headers: Entries<AnnotatedHeader, 32, 0>,
}

/// Answers that are cached by a text. Each route has its own answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct AuthRequestCache {
    /// The text.
    #[n(0)]
    pub key: Template,
    /// How long answers stay cached, by status. The first entry of a status applies.
    #[n(1)]
    pub times: Entries<StatusTime, 64, 0>,
}

impl AuthRequestCache {
    /// How long an answer with this status stays cached.
    #[must_use]
    pub fn time(&self, status: u16) -> CacheTime {
        let entry = self.times.iter().find(|entry| entry.status.get() == status);
        entry.map_or(CacheTime::of_millis(0), |entry| entry.time)
    }
}

/// How long an answer with a status stays cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct StatusTime {
    /// The status.
    #[n(0)]
    pub status: Number<u16, 100, 599>,
    /// The time.
    #[n(1)]
    pub time: CacheTime,
}
