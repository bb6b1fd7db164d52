//! The authorization of callers.

use std::sync::Arc;

use sluicegate_model::PathPattern;
use sluicegate_model::policy::security::{Authentication, Method};
use sluicegate_model::policy::{Authorization, AuthorizationRule};
use sluicegate_model::value::syntax;

use super::written::authorization::{self as written, Action, PathMatch, PathType};
use super::{consumer, jwt, list};
use crate::object::annotation::{closest, edit_distance};
use crate::object::path;
use crate::problem::Findings;

/// The rules of a policy in this namespace with this authentication.
pub(crate) fn check(
    written: written::Authorization,
    namespace: &Arc<str>,
    authentication: Option<&Authentication>,
    findings: &mut Findings,
) -> Authorization {
    let field = "spec.authorization.rules";
    let written_rules = list::filled(Some(written.rules), 64, field, findings);
    let rules: Vec<AuthorizationRule> = written_rules
        .into_iter()
        .enumerate()
        .map(|(index, rule)| {
            let field = format!("{field}[{index}]");
            check_callers(&rule, authentication, &field, findings);
            check_rule(rule, namespace, authentication, &field, findings)
        })
        .collect();
    report_unreachable_rules(&rules, field, findings);
    let allows_others = match written.default_action {
        Some(action) => action == Action::Allow,
        None => !rules.iter().any(|rule| rule.allows),
    };
    Authorization { rules, allows_others }
}

/// Reports rules after a rule that every request matches.
fn report_unreachable_rules(rules: &[AuthorizationRule], field: &str, findings: &mut Findings) {
    let meets_all = |rule: &AuthorizationRule| {
        let AuthorizationRule { allows: _, consumers, groups, claims, methods, paths, addresses } = rule;
        consumers.is_empty()
            && groups.is_empty()
            && claims.is_empty()
            && methods.is_empty()
            && paths.is_empty()
            && addresses.is_empty()
    };
    let Some(first) = rules.iter().position(meets_all) else { return };
    if first + 1 < rules.len() {
        let fault =
            format!("is never reached: rules[{first}] has no conditions, so it matches every request");
        findings.warning(format!("{field}[{}]", first + 1), fault);
    }
}

/// Rules about callers need authentication: a rule that no caller can match would deny no caller.
fn check_callers(
    rule: &written::Rule,
    authentication: Option<&Authentication>,
    field: &str,
    findings: &mut Findings,
) {
    let of_consumers =
        [(rule.consumers.is_some(), "consumers"), (rule.groups.is_some(), "groups")].into_iter();
    // An external service names no Consumer.
    let knows_consumers = authentication.is_some_and(|known| {
        let is_service = |method: &Method| match method {
            Method::External(_) => true,
            Method::Unusable { method, .. } => &**method == "external",
            Method::Jwt(_) | Method::ApiKey { .. } | Method::Basic(_) => false,
        };
        !known.methods.iter().all(is_service)
    });
    for (_, name) in of_consumers.filter(|(is_written, _)| *is_written && !knows_consumers) {
        let fault = "needs spec.authentication with jwt, apiKey or basic: without it every caller is unknown";
        findings.error(format!("{field}.{name}"), fault);
    }
    let has_tokens = authentication
        .is_some_and(|known| known.methods.iter().any(|method| matches!(method, Method::Jwt(_))));
    if rule.claims.is_some() && !has_tokens {
        findings.error(
            format!("{field}.claims"),
            "needs spec.authentication.jwt: without tokens there are no claims",
        );
    }
}

fn check_rule(
    written: written::Rule,
    namespace: &Arc<str>,
    authentication: Option<&Authentication>,
    field: &str,
    findings: &mut Findings,
) -> AuthorizationRule {
    let within = |name: &str| format!("{field}.{name}");
    let consumers = list::filled(written.consumers, 64, &within("consumers"), findings);
    let groups = list::filled(written.groups, 64, &within("groups"), findings);
    let claims = list::filled(written.claims, 16, &within("claims"), findings);
    let methods = list::filled(written.methods, 16, &within("methods"), findings);
    let paths = list::filled(written.paths, 64, &within("paths"), findings);
    AuthorizationRule {
        allows: written.action == Action::Allow,
        consumers: check_consumers(consumers, namespace, authentication, &within("consumers"), findings),
        groups: consumer::check_groups(groups, &within("groups"), findings),
        claims: jwt::check_claims(claims, &within("claims"), findings),
        methods: check_methods(methods, &within("methods"), findings),
        paths: check_paths(paths, &within("paths"), findings),
        addresses: written.addresses,
    }
}

/// Consumers by namespace and name.
fn check_consumers(
    written: Vec<String>,
    namespace: &Arc<str>,
    authentication: Option<&Authentication>,
    field: &str,
    findings: &mut Findings,
) -> Vec<(Arc<str>, Arc<str>)> {
    let known = authentication.and_then(|authentication| authentication.consumers.as_ref());
    let mut consumers = Vec::with_capacity(written.len());
    for (index, text) in written.into_iter().enumerate() {
        let (of, name) = match text.split_once('/') {
            Some((of, name)) => (Arc::from(of), name),
            None => (namespace.clone(), &*text),
        };
        let field = format!("{field}[{index}]");
        if let Some(fault) = [&*of, name].into_iter().find_map(syntax::dns_name_fault) {
            findings.error(field, format!("{text:?} {fault}"));
        } else if known.is_some_and(|known| !known.contains(&of)) {
            let fault = format!(
                "the Consumers of namespace {of} are not known here: add the namespace to spec.authentication.consumers.namespaces"
            );
            findings.error(field, fault);
        } else {
            consumers.push((of, Arc::from(name)));
        }
    }
    consumers
}

fn check_methods(written: Vec<String>, field: &str, findings: &mut Findings) -> Vec<Box<str>> {
    let mut methods = Vec::with_capacity(written.len());
    for (index, method) in written.into_iter().enumerate() {
        let fault = match syntax::token_fault(&method) {
            Some(fault) => format!("{method:?} {fault}"),
            None if method.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                format!("{method:?} is not a method that clients use: write {}", method.to_ascii_uppercase())
            }
            None if method == "*" => "\"*\" is not a method: remove methods to match every method".to_owned(),
            None => {
                if let Some(meant) = misspelt(&method) {
                    let fault = format!("{method:?} is not a known method: did you mean {meant}?");
                    findings.warning(format!("{field}[{index}]"), fault);
                }
                methods.push(method.into());
                continue;
            }
        };
        findings.error(format!("{field}[{index}]"), fault);
    }
    methods
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

fn check_paths(written: Vec<PathMatch>, field: &str, findings: &mut Findings) -> Vec<PathPattern> {
    let mut paths = Vec::with_capacity(written.len());
    for (index, PathMatch { kind, value }) in written.into_iter().enumerate() {
        let kind = match kind {
            PathType::Exact => "Exact",
            PathType::Prefix => "Prefix",
        };
        let field = format!("{field}[{index}].value");
        // Clients percent-encode these characters in a path.
        if let Some(mark) = value.chars().find(|mark| matches!(mark, '?' | '#')) {
            let fault =
                format!("{value:?} has a {mark:?}, which ends a path: remove it and the text after it");
            findings.error(field, fault);
            continue;
        }
        if value.contains(['*', '(', '|', '[', '^', '$']) {
            let fault = format!(
                "{value:?} is matched as plain text, not as a pattern: use type: Prefix to match all paths below a path"
            );
            findings.warning(&field, fault);
        }
        match path::parse(&value, kind) {
            Ok(pattern) => paths.push(pattern),
            Err((_, fault)) => findings.error(field, fault),
        }
    }
    paths
}
