//! The parts of authorization rules that need other objects or other parts of the policy.

use std::sync::Arc;

use sluicegate_model::feature::{Authentication, Authorization, AuthorizationRule};
use sluicegate_model::value::ConsumerName;

use crate::object::annotation::{closest, edit_distance};
use crate::problem::Findings;

/// Completes and checks the rules of a policy in this namespace with this authentication.
pub(crate) fn check(
    authorization: &mut Authorization,
    namespace: &Arc<str>,
    authentication: Option<&Authentication>,
    findings: &mut Findings,
) {
    for (index, rule) in authorization.rules.iter_mut().enumerate() {
        let field = format!("spec.authorization.rules[{index}]");
        check_callers(rule, authentication, &field, findings);
        let known = authentication.and_then(|authentication| authentication.namespaces(namespace));
        for (index, consumer) in rule.consumers.iter_mut().enumerate() {
            if !consumer.contains('/') {
                *consumer = ConsumerName::in_namespace(namespace, consumer);
            }
            let (of, _) = consumer.parts();
            if known.as_ref().is_some_and(|known| !known.iter().any(|namespace| **namespace == *of)) {
                let fault = format!(
                    "the Consumers of namespace {of} are not known here: add the namespace to spec.authentication.consumers.namespaces"
                );
                findings.error(format!("{field}.consumers[{index}]"), fault);
            }
        }
        for (index, method) in rule.methods.iter().enumerate() {
            if let Some(meant) = misspelt(method) {
                let fault = format!("{method:?} is not a known method: did you mean {meant}?");
                findings.warning(format!("{field}.methods[{index}]"), fault);
            }
        }
    }
}

/// Rules about callers need authentication: a rule that no caller can match would deny no caller.
fn check_callers(
    rule: &AuthorizationRule,
    authentication: Option<&Authentication>,
    field: &str,
    findings: &mut Findings,
) {
    let of_consumers =
        [(!rule.consumers.is_empty(), "consumers"), (!rule.groups.is_empty(), "groups")].into_iter();
    // An external service names no Consumer.
    let knows_consumers = authentication.is_some_and(Authentication::identifies_consumers);
    for (_, name) in of_consumers.filter(|(is_written, _)| *is_written && !knows_consumers) {
        let fault = "needs spec.authentication with jwt, introspection, apiKey, basic or oidc: without it every caller is unknown";
        findings.error(format!("{field}.{name}"), fault);
    }
    let has_tokens = authentication.is_some_and(Authentication::has_claims);
    if !rule.claims.is_empty() && !has_tokens {
        findings.error(
            format!("{field}.claims"),
            "needs spec.authentication with jwt, introspection or oidc: without tokens there are no claims",
        );
    }
}

/// The method that a misspelt method probably means.
fn misspelt(method: &str) -> Option<&'static str> {
    /// The methods that are registered with IANA, and some that caches and UPnP know.
    const KNOWN: [&str; 45] = [
        "ACL",
        "BAN",
        "BASELINE-CONTROL",
        "BIND",
        "CHECKIN",
        "CHECKOUT",
        "CONNECT",
        "COPY",
        "DELETE",
        "GET",
        "HEAD",
        "LABEL",
        "LINK",
        "LOCK",
        "MERGE",
        "MKACTIVITY",
        "MKCALENDAR",
        "MKCOL",
        "MKREDIRECTREF",
        "MKWORKSPACE",
        "MOVE",
        "NOTIFY",
        "OPTIONS",
        "ORDERPATCH",
        "PATCH",
        "POST",
        "PRI",
        "PROPFIND",
        "PROPPATCH",
        "PURGE",
        "PUT",
        "QUERY",
        "REBIND",
        "REPORT",
        "SEARCH",
        "SUBSCRIBE",
        "TRACE",
        "UNBIND",
        "UNCHECKOUT",
        "UNLINK",
        "UNLOCK",
        "UNSUBSCRIBE",
        "UPDATE",
        "UPDATEREDIRECTREF",
        "VERSION-CONTROL",
    ];
    let meant = closest(method, &KNOWN)?;
    (edit_distance(method, meant) == 1 && !method.contains('-')).then_some(meant)
}
