//! `SecurityPolicy`.

use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_model::feature::{Authentication, Authorization, Check, Cors, Faults, IpAccess};

use super::target::TargetRef;

/// Sets which clients may call the routes of its targets. A policy for a port of a Service has precedence over a policy
/// for the Service. Both have precedence over policies for an Ingress, a Gateway, a listener, a route or a rule, and
/// apply alone. On a rule of an HTTPRoute or a GRPCRoute without a policy for the Service, the policies for the rule,
/// the route, the listener and the Gateway combine. The gateway takes each of ipAccess, cors, authentication and
/// authorization from the most specific policy that sets the field. If several policies have the same target, the
/// oldest policy applies. If a policy cannot be used, its routes respond with 503.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.authentication) || !has(self.authorization) || self.authorization.rules.all(rule, \
             !has(rule.consumers) && !has(rule.groups) && !has(rule.claims))",
    "message": "rules with consumers, groups or claims need authentication: without it every caller is unknown"
}]))]
#[expect(dead_code, reason = "the schema joins the types that are read one by one")]
pub(crate) struct SecurityPolicySpec {
    /// The objects that the policy applies to, in its own namespace. 1 to 16 entries. With a Gateway, the policy applies
    /// to all HTTPRoutes and GRPCRoutes of the Gateway, or of the listener in sectionName. With an HTTPRoute or a
    /// GRPCRoute, the policy applies to all its rules, or to the rule with the name in sectionName. With an Ingress, the
    /// policy applies to all routes of the Ingress. With a Service, the policy applies to all routes that lead to the
    /// Service, or to the port in sectionName.
    #[schemars(length(min = 1, max = 16))]
    target_refs: Vec<TargetRef>,
    #[schemars(flatten)]
    parts: SecurityParts,
}

/// The parts of a policy beside its targets.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SecurityParts {
    /// The client IPs that may call. Other clients receive 403. Behind a trusted proxy, the client IP is the address
    /// that the proxy reports. Default: all client IPs.
    pub(crate) ip_access: IpAccess,
    /// The web pages of other origins that may call (CORS). The gateway responds to preflight requests itself, before
    /// authentication. Default: the gateway adds no CORS headers.
    pub(crate) cors: Option<Cors>,
    /// The methods by which callers authenticate. A caller without a valid credential receives 401. Default: no
    /// authentication.
    pub(crate) authentication: Option<Authentication>,
    /// The rules that allow or deny requests. A denied request receives 403. Default: every request that passes
    /// authentication is allowed.
    pub(crate) authorization: Option<Authorization>,
    /// Whether endpoints receive the client's headers X-Original-URL, X-Rewrite-URL, X-HTTP-Method-Override,
    /// X-HTTP-Method and X-Method-Override. Some frameworks take the path or method from these headers. So the gateway
    /// drops the headers where a rule names paths or methods, or an external service decides on them. Default: false.
    pub(crate) forward_override_headers: bool,
}

impl Check for SecurityParts {
    fn check(&self, at: &mut Faults<'_>) {
        at.within("cors", &self.cors);
        at.within("authentication", &self.authentication);
        at.within("authorization", &self.authorization);
    }
}
