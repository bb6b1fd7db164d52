//! `SecurityPolicy`.

use schemars::JsonSchema;
use serde::Deserialize;

use super::authentication::Authentication;
use super::authorization::Authorization;
use super::target::TargetRef;

/// Says who may call the routes of an Ingress or of a Service. The most specific policy governs a route, as a whole: one for
/// a port of the Service, then one for the Service, then one for the Ingress; of equals the oldest. A policy that
/// cannot be honoured closes the routes that it governs, which are answered 503.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.authentication) || !has(self.authorization) || self.authorization.rules.all(rule, \
             !has(rule.consumers) && !has(rule.groups) && !has(rule.claims))",
    "message": "rules that name consumers, groups or claims need authentication, else nobody is known"
}]))]
pub(crate) struct SecurityPolicySpec {
    /// What the policy is for: from 1 to 16 Ingresses and Services of its own namespace. It governs all routes of a targeted
    /// Ingress, and all routes that lead to a targeted Service, or to the port that sectionName names.
    #[schemars(length(min = 1, max = 16))]
    pub(crate) target_refs: Vec<TargetRef>,
    /// Which addresses may call; others are answered 403. The address is that of the client, as far as trusted peers tell it.
    pub(crate) access: Option<Access>,
    /// Which pages of other origins may call (CORS). Preflights are answered by the gateway, before authentication.
    pub(crate) cors: Option<Cors>,
    /// How callers have to say who they are; who does not is answered 401. Without it nobody has to.
    pub(crate) authentication: Option<Authentication>,
    /// Which callers may do what; others are answered 403. Without it every caller who is let in may do everything.
    pub(crate) authorization: Option<Authorization>,
    /// Whether endpoints get the headers X-Original-URL, X-Rewrite-URL, X-HTTP-Method-Override, X-HTTP-Method and
    /// X-Method-Override of clients. Some frameworks take the path or the method from these headers. So the gateway drops them
    /// where a rule names paths or methods, and where an external service decides on them. Default: false.
    pub(crate) forward_override_headers: Option<bool>,
}

/// Addresses that may call, and that may not.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Access {
    /// Who may call, as CIDRs or single addresses of IPv4 or IPv6, such as 10.0.0.0/8: from 1 to 256. Default: everybody.
    #[schemars(length(min = 1, max = 256), inner(length(min = 2, max = 49)))]
    pub(crate) allow: Option<Vec<String>>,
    /// Who may not call, although allow has them: at most 256.
    #[schemars(length(max = 256), inner(length(min = 2, max = 49)))]
    pub(crate) deny: Option<Vec<String>>,
}

/// Cross-origin requests (Fetch standard, "CORS protocol").
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.allowCredentials) || !self.allowCredentials || !self.allowOrigins.exists(origin, origin == '*')",
    "message": "allowCredentials with the origin * lets any page act for its visitors: name the origins"
}]))]
pub(crate) struct Cors {
    /// The origins whose pages may read responses, from 1 to 64: `https://app.example.com`, with a port where it is not
    /// the scheme's own; `https://*.example.com` for every host below a domain; or * for all, which allowCredentials forbids.
    #[schemars(
        length(min = 1, max = 64),
        inner(length(max = 300), regex(pattern = r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^/]+)$"))
    )]
    pub(crate) allow_origins: Vec<String>,
    /// The methods that pages may use; * is any. Default: GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS.
    #[schemars(length(min = 1, max = 32), inner(length(min = 1, max = 32)))]
    pub(crate) allow_methods: Option<Vec<String>>,
    /// The headers that pages may send beside those that need no leave; * is any. Default: none.
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub(crate) allow_headers: Option<Vec<String>>,
    /// The headers of responses that pages may read beside those that need no leave; * is all. Default: none.
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    pub(crate) expose_headers: Option<Vec<String>>,
    /// Whether pages may send cookies and the like. Default: false.
    pub(crate) allow_credentials: Option<bool>,
    /// How long a browser remembers the answer to a preflight, such as 2h or 1h30m, from 0s to 24h. Default: 5s.
    #[schemars(regex(pattern = r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
    pub(crate) max_age: Option<String>,
}
