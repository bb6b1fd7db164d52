//! Annotations: the gateway checks its own (`sluicegate.dev/*`) by name, and reports annotations of ingress-nginx.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluicegate_model::value::syntax;

use super::{Kind, ObjectRef};
use crate::problem::Findings;

/// The prefix of our annotations.
pub(crate) const PREFIX: &str = "sluicegate.dev/";

/// The prefix of the annotations of ingress-nginx.
const NGINX_PREFIX: &str = "nginx.ingress.kubernetes.io/";

/// The load balancing of a Service: `ewma`, `round_robin` or `least_request`.
pub(crate) const LOAD_BALANCE: &str = "sluicegate.dev/load-balance";
/// The concurrency limit of a Service.
pub(crate) const MAX_REQUESTS: &str = "sluicegate.dev/max-requests";
/// The concurrency limit of one endpoint of a Service.
pub(crate) const MAX_REQUESTS_PER_ENDPOINT: &str = "sluicegate.dev/max-requests-per-endpoint";
/// The version of the PROXY protocol that sends the client's address of a TCP connection to the endpoints of a Service:
/// `v1` or `v2`. HTTP connections carry the requests of many clients, so the annotation has no effect on them.
pub(crate) const PROXY_PROTOCOL: &str = "sluicegate.dev/proxy-protocol";

/// The protocol of endpoints: `HTTP` (default), `HTTPS`, HTTP/2 in clear text (`H2C`, `GRPC`) or over TLS (`H2`, `GRPCS`).
pub(crate) const BACKEND_PROTOCOL: &str = "sluicegate.dev/backend-protocol";
/// The Secret with the CA certificates for endpoints (`ca.crt`, `ca.crl`), and with the client certificate for
/// endpoints (`tls.crt`, `tls.key`): `name`, or `namespace/name` of the same namespace.
pub(crate) const PROXY_SSL_SECRET: &str = "sluicegate.dev/proxy-ssl-secret";
/// Whether certificates of endpoints are verified: `on` or `off`; `on` by default if there are CA certificates.
pub(crate) const PROXY_SSL_VERIFY: &str = "sluicegate.dev/proxy-ssl-verify";
/// The name that certificates of endpoints must have; by default `SERVICE.NAMESPACE.svc`, or the external name.
pub(crate) const PROXY_SSL_NAME: &str = "sluicegate.dev/proxy-ssl-name";
/// Whether the gateway sends that name to endpoints (SNI): `on` (default) or `off`.
pub(crate) const PROXY_SSL_SERVER_NAME: &str = "sluicegate.dev/proxy-ssl-server-name";

const SERVICE_ANNOTATIONS: [&str; 9] = [
    LOAD_BALANCE,
    MAX_REQUESTS,
    MAX_REQUESTS_PER_ENDPOINT,
    PROXY_PROTOCOL,
    BACKEND_PROTOCOL,
    PROXY_SSL_SECRET,
    PROXY_SSL_VERIFY,
    PROXY_SSL_NAME,
    PROXY_SSL_SERVER_NAME,
];

/// Whether plain HTTP is redirected to HTTPS if the host has TLS: `true` (default) or `false`.
pub(crate) const SSL_REDIRECT: &str = "sluicegate.dev/ssl-redirect";
/// Whether plain HTTP is redirected to HTTPS in any case, such as behind a load balancer that terminates TLS: `true` or `false`.
pub(crate) const FORCE_SSL_REDIRECT: &str = "sluicegate.dev/force-ssl-redirect";
/// Whether the hosts of the Ingress use TLS passthrough to the Service of the path `/`: `true` or `false` (default).
pub(crate) const SSL_PASSTHROUGH: &str = "sluicegate.dev/ssl-passthrough";
/// The Secret with the CA certificates (`ca.crt`, and `ca.crl`) for client certificates: `name`, or `namespace/name` of
/// the same namespace.
pub(crate) const AUTH_TLS_SECRET: &str = "sluicegate.dev/auth-tls-secret";
/// The ConfigMap with the CA certificates for client certificates: `name`, or `namespace/name` of the same namespace.
pub(crate) const AUTH_TLS_CONFIGMAP: &str = "sluicegate.dev/auth-tls-configmap";
/// The requirement of client certificates: `on` (default), `optional`, `optional_no_ca` or `off`.
pub(crate) const AUTH_TLS_VERIFY_CLIENT: &str = "sluicegate.dev/auth-tls-verify-client";
/// Whether endpoints receive the client's certificate: `true` or `false` (default).
pub(crate) const AUTH_TLS_PASS_CERTIFICATE: &str = "sluicegate.dev/auth-tls-pass-certificate-to-upstream";

/// The compression of responses: codings in the order of preference (`zstd, br, gzip`), or `off`.
pub(crate) const COMPRESSION: &str = "sluicegate.dev/compression";

/// The problems of an Ingress, which Sluicegate itself writes.
pub(crate) const PROBLEMS: &str = "sluicegate.dev/problems";

const INGRESS_ANNOTATIONS: [&str; 14] = [
    PROBLEMS,
    COMPRESSION,
    SSL_REDIRECT,
    FORCE_SSL_REDIRECT,
    SSL_PASSTHROUGH,
    AUTH_TLS_SECRET,
    AUTH_TLS_CONFIGMAP,
    AUTH_TLS_VERIFY_CLIENT,
    AUTH_TLS_PASS_CERTIFICATE,
    BACKEND_PROTOCOL,
    PROXY_SSL_SECRET,
    PROXY_SSL_VERIFY,
    PROXY_SSL_NAME,
    PROXY_SSL_SERVER_NAME,
];

/// Our annotations that have an effect on an object of this kind.
fn known(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Service => &SERVICE_ANNOTATIONS,
        Kind::Ingress => &INGRESS_ANNOTATIONS,
        _ => &[],
    }
}

/// The value of an annotation with the values `on` and `off`, as in nginx.
pub(crate) fn switch(
    annotations: &BTreeMap<String, String>,
    name: &str,
    findings: &mut Findings,
) -> Option<bool> {
    let value = annotations.get(name)?;
    match &**value {
        "on" => Some(true),
        "off" => Some(false),
        _ => {
            findings.error(field(name), format!("{value:?} is neither \"on\" nor \"off\""));
            None
        }
    }
}

/// The object of the same namespace that an annotation names, as `name` or `namespace/name`.
pub(crate) fn object(kind: Kind, namespace: &Arc<str>, value: &str) -> Result<ObjectRef, String> {
    let (within, name) = value.split_once('/').unwrap_or((namespace, value));
    if *within != **namespace {
        return Err(format!("{value:?} is of another namespace: name an object of the same namespace"));
    }
    match syntax::dns_name_fault(name) {
        Some(fault) => Err(format!("{name:?} {fault}")),
        None => Ok(ObjectRef { kind, namespace: namespace.clone(), name: name.into() }),
    }
}

/// The value of an annotation with the values `true` and `false`.
pub(crate) fn flag(
    annotations: Option<&BTreeMap<String, String>>,
    name: &str,
    findings: &mut Findings,
) -> Option<bool> {
    let value = annotations?.get(name)?;
    match &**value {
        "true" => Some(true),
        "false" => Some(false),
        _ => {
            findings.error(field(name), format!("{value:?} is neither \"true\" nor \"false\""));
            None
        }
    }
}

/// The field of an annotation, as problems name it.
pub(crate) fn field(annotation: &str) -> String {
    format!("metadata.annotations[{annotation}]")
}

/// The annotations of ingress-nginx that restrict the callers of an Ingress, or their rate, and that the gateway does
/// not read. Without them the Ingress would be open.
pub(crate) fn unread_restrictions(annotations: Option<&BTreeMap<String, String>>) -> Vec<Box<str>> {
    let annotations = annotations.into_iter().flatten();
    annotations.filter(|(name, value)| restricts(name, value)).map(|(name, _)| name.as_str().into()).collect()
}

/// Whether an annotation of ingress-nginx with this value restricts access. In doubt the answer is yes.
fn restricts(name: &str, value: &str) -> bool {
    let Some(name) = name.strip_prefix(NGINX_PREFIX) else { return false };
    let is_limit = name.starts_with("limit-");
    let is_known = ["whitelist-source-range", "allowlist-source-range", "denylist-source-range", "satisfy"];
    let is_off = match value.trim() {
        "" => true,
        "off" => name == "auth-tls-verify-client",
        number => is_limit && number.parse() == Ok(0_u32),
    };
    (is_limit || name.starts_with("auth-") || is_known.contains(&name)) && !is_off
}

/// Warns of annotations without an effect on an object of this kind.
pub(crate) fn check_names(
    kind: Kind,
    annotations: Option<&BTreeMap<String, String>>,
    findings: &mut Findings,
) {
    for (name, value) in annotations.into_iter().flatten() {
        // Translation reports annotations that restrict access, since it knows the class of the Ingress.
        if name.starts_with(NGINX_PREFIX) && kind == Kind::Ingress && !restricts(name, value) {
            findings.warning(field(name), "is ignored: annotations of ingress-nginx are not supported");
        }
        if !name.starts_with(PREFIX) || known(kind).contains(&&**name) {
            continue;
        }
        let elsewhere =
            [Kind::Service, Kind::Ingress].into_iter().find(|kind| known(*kind).contains(&&**name));
        let message = if let Some(right) = elsewhere {
            format!("has no effect on an object of kind {kind}: write it on the {right}")
        } else if let Some(meant) = closest(name, known(kind)) {
            format!("is unknown and ignored: did you mean {meant}?")
        } else {
            "is unknown and ignored".to_owned()
        };
        findings.warning(field(name), message);
    }
}

/// The candidate that `name` is most likely a misspelling of.
pub(crate) fn closest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let (distance, best) = candidates
        .iter()
        .map(|candidate| (edit_distance(&name.to_lowercase(), &candidate.to_lowercase()), *candidate))
        .min()?;
    (distance <= 3).then_some(best)
}

/// The Levenshtein distance: the number of bytes to insert, remove or change.
pub(crate) fn edit_distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.bytes().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::{closest, edit_distance, restricts};

    #[test]
    fn ingress_nginx_access_annotations_are_recognized_by_name_and_value() {
        for (name, value, expected) in [
            ("auth-url", "http://auth.example", true),
            ("auth-type", "basic", true),
            ("auth-secret", "users", true),
            ("auth-signin", "https://login.example", true),
            ("auth-tls-secret", "default/ca", true),
            ("auth-tls-verify-client", "on", true),
            ("auth-tls-verify-client", "Off", true),
            ("auth-tls-verify-client", " off ", false),
            ("auth-realm", "Shop", true),
            ("auth-of-a-later-version", "x", true),
            ("whitelist-source-range", "10.0.0.0/8", true),
            ("allowlist-source-range", "10.0.0.0/8", true),
            ("denylist-source-range", "10.0.0.0/8", true),
            ("denylist-source-range", "", false),
            ("limit-rps", "10", true),
            ("limit-rps", "0", false),
            ("limit-rps", "0.5", true),
            ("limit-rpm", "60", true),
            ("limit-connections", "20", true),
            ("limit-whitelist", "10.0.0.0/8", true),
            ("limit-rate", "100k", true),
            ("satisfy", "any", true),
            ("rewrite-target", "/", false),
            ("proxy-body-size", "8m", false),
            ("authority", "x", false),
        ] {
            let name = format!("nginx.ingress.kubernetes.io/{name}");
            assert_eq!(restricts(&name, value), expected, "{name}: {value:?}");
        }
        assert!(!restricts("other.example/auth-url", "x"));
    }

    #[test]
    fn misspelled_annotation_has_a_suggestion_and_an_unrelated_name_has_none() {
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        let known = ["sluicegate.dev/load-balance", "sluicegate.dev/max-requests"];
        assert_eq!(closest("sluicegate.dev/loadbalance", &known), Some(known[0]));
        assert_eq!(closest("sluicegate.dev/Max-Request", &known), Some(known[1]));
        assert_eq!(closest("sluicegate.dev/rewrite-target", &known), None);
    }
}
