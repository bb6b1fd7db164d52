//! `Ingress`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::networking::v1;
use sluicegate_model::value::syntax;
use sluicegate_model::{ClientAuthMode, Codings, HostPattern, PathPattern, UpstreamKey};

use super::annotation::{Settings, Verify};
use super::backend::Backend;
use super::kind::Raw;
use super::{Kind, Object, ObjectRef, annotation, host, nginx, path};
use crate::problem::Findings;

/// The annotation for the class of an Ingress before `spec.ingressClassName` existed.
pub(crate) const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// A checked `Ingress`: the parts of it that can be served.
#[derive(Debug, PartialEq)]
pub(crate) struct Ingress {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// `spec.ingressClassName`.
    pub(crate) class_name: Option<Box<str>>,
    /// The value of [`CLASS_ANNOTATION`].
    pub(crate) class_annotation: Option<Box<str>>,
    /// `spec.defaultBackend`.
    pub(crate) default_backend: Option<UpstreamKey>,
    /// Whether the Ingress has rules, even if none of them is valid.
    pub(crate) has_rules: bool,
    /// Its valid rules.
    pub(crate) rules: Vec<Rule>,
    /// `spec.tls`.
    pub(crate) tls: Vec<Tls>,
    /// Whether plain HTTP is redirected to HTTPS for hosts with TLS, if the Ingress sets it.
    pub(crate) ssl_redirect: Option<bool>,
    /// Whether plain HTTP is redirected to HTTPS in any case.
    pub(crate) force_ssl_redirect: bool,
    /// Whether the gateway orders its certificates from an ACME server.
    pub(crate) acme: bool,
    /// Whether its hosts use TLS passthrough.
    pub(crate) ssl_passthrough: bool,
    /// The protocol to the endpoints of its routes, if the Ingress sets it.
    pub(crate) backend: Option<Backend>,
    /// The clients that may connect to its hosts.
    pub(crate) client_auth: Option<ClientAuth>,
    /// The compression of responses, if the Ingress sets it.
    pub(crate) compression: Option<Codings>,
    /// The annotations that ingress-nginx may read.
    pub(crate) nginx: nginx::Annotations,
    /// Whether plugins of Kong are attached.
    pub(crate) has_kong_plugins: bool,
}

/// The clients that may connect.
#[derive(Debug, PartialEq)]
pub(crate) struct ClientAuth {
    /// The annotation that names the CA certificates.
    pub(crate) annotation: &'static str,
    /// The object with the CA certificates; `None` if the reference is invalid, so that no client may connect.
    pub(crate) authorities: Option<ObjectRef>,
    pub(crate) mode: ClientAuthMode,
    pub(crate) forward: bool,
}

/// An entry of `spec.tls`.
#[derive(Debug, PartialEq)]
pub(crate) struct Tls {
    /// The hosts; an empty list means every host of the Ingress.
    pub(crate) hosts: Vec<HostPattern>,
    /// Whether the entry has hosts, even if none of them is valid.
    pub(crate) has_hosts: bool,
    /// The Secret of the same namespace that holds the certificate.
    pub(crate) secret: Option<Arc<str>>,
}

impl Tls {
    /// The Secret of an Ingress of this namespace.
    pub(crate) fn secret_of(&self, namespace: &Arc<str>) -> Option<ObjectRef> {
        let name = self.secret.clone()?;
        Some(ObjectRef { kind: Kind::Secret, namespace: namespace.clone(), name })
    }
}

/// A valid rule, with its valid paths.
#[derive(Debug, PartialEq)]
pub(crate) struct Rule {
    /// Its place in `spec.rules`.
    pub(crate) index: usize,
    pub(crate) host: HostPattern,
    pub(crate) paths: Vec<RulePath>,
}

/// A valid path of a rule.
#[derive(Debug, PartialEq)]
pub(crate) struct RulePath {
    /// Its place in `spec.rules[].http.paths`.
    pub(crate) index: usize,
    /// The path as written.
    pub(crate) written: Box<str>,
    pub(crate) pattern: PathPattern,
    /// The common prefix of all paths that the pattern would match as a regular expression, if it looks like one.
    pub(crate) literal: Option<PathPattern>,
    /// The path as regular expressions of ingress-nginx.
    pub(crate) patterns: nginx::pattern::Patterns,
    pub(crate) upstream: UpstreamKey,
}

/// The field of a path, as problems name it.
pub(crate) fn path_field(rule: usize, path: usize) -> String {
    format!("spec.rules[{rule}].http.paths[{path}]")
}

/// The field of the Secret of an entry of `spec.tls`, as problems name it.
pub(crate) fn secret_field(index: usize) -> String {
    format!("spec.tls[{index}].secretName")
}

impl Ingress {
    pub(crate) fn check(raw: v1::Ingress, namespace: &Arc<str>, findings: &mut Findings) -> Self {
        let annotations = raw.metadata.annotations.as_ref();
        let settings = annotation::read(Kind::Ingress, annotations, namespace, findings);
        let spec = raw.spec.unwrap_or_default();
        let raw_rules = spec.rules.unwrap_or_default();
        if raw_rules.is_empty() && spec.default_backend.is_none() {
            findings.error("spec", "has neither rules nor a defaultBackend: write one of them");
        }
        let has_rules = !raw_rules.is_empty();
        let rules: Vec<Rule> = raw_rules
            .into_iter()
            .enumerate()
            .filter_map(|(index, rule)| Rule::check(rule, index, namespace, findings))
            .collect();
        if settings.ssl_passthrough {
            check_passthrough(has_rules, &rules, findings);
        }
        let backend = Backend::check(annotations, &settings, findings);
        let client_auth = ClientAuth::check(annotations, &settings, findings);
        let nginx = nginx::Annotations::new(annotations);
        let has_kong_plugins = annotation::has_kong_plugins(annotations);
        let tls = spec.tls.unwrap_or_default().into_iter().enumerate();
        let tls = tls.map(|(index, tls)| Tls::check(tls, index, findings)).collect();
        let class_annotation =
            raw.metadata.annotations.and_then(|mut annotations| annotations.remove(CLASS_ANNOTATION));
        if class_annotation.is_some() && spec.ingress_class_name.is_some() {
            findings.warning(
                annotation::field(CLASS_ANNOTATION),
                "is ignored, because spec.ingressClassName is set: remove one of them",
            );
        }
        Self {
            created: raw.metadata.creation_timestamp.map(|time| time.0.as_second()),
            class_name: spec.ingress_class_name.map(Into::into),
            class_annotation: class_annotation.map(Into::into),
            default_backend: spec
                .default_backend
                .and_then(|backend| check_backend(backend, "spec.defaultBackend", namespace, findings)),
            has_rules,
            rules,
            tls,
            ssl_redirect: settings.ssl_redirect,
            force_ssl_redirect: settings.force_ssl_redirect,
            acme: settings.acme,
            ssl_passthrough: settings.ssl_passthrough,
            backend,
            client_auth,
            compression: settings.compression,
            nginx,
            has_kong_plugins,
        }
    }
}

/// The server name alone distinguishes TLS connections.
fn check_passthrough(has_rules: bool, rules: &[Rule], findings: &mut Findings) {
    if !has_rules {
        let fault = "needs rules with hosts: TLS passthrough routes by the name that clients ask for";
        findings.error(annotation::field(annotation::SSL_PASSTHROUGH), fault);
    }
    for rule in rules.iter().filter(|rule| rule.host == HostPattern::Any) {
        let annotation = annotation::SSL_PASSTHROUGH;
        let fault = format!("is missing: {annotation} needs a host, and has no effect for this rule");
        findings.error(format!("spec.rules[{}].host", rule.index), fault);
    }
}

impl Tls {
    fn check(raw: v1::IngressTLS, index: usize, findings: &mut Findings) -> Self {
        let written = raw.hosts.unwrap_or_default();
        let has_hosts = !written.is_empty();
        let mut hosts = Vec::new();
        for (nth, host) in written.into_iter().enumerate() {
            let field = format!("spec.tls[{index}].hosts[{nth}]");
            match host::parse(&host) {
                Ok(HostPattern::Any) => findings.error(field, "is empty: write a host, or remove the entry"),
                Ok(pattern) => hosts.push(pattern),
                Err(fault) => findings.error(field, fault),
            }
        }
        Self { hosts, has_hosts, secret: raw.secret_name.filter(|name| !name.is_empty()).map(Into::into) }
    }
}

impl ClientAuth {
    fn check(
        annotations: Option<&BTreeMap<String, String>>,
        settings: &Settings,
        findings: &mut Findings,
    ) -> Option<Self> {
        let sources = [
            (annotation::AUTH_TLS_SECRET, &settings.auth_tls_secret),
            (annotation::AUTH_TLS_CONFIGMAP, &settings.auth_tls_configmap),
        ];
        let mut named = sources.into_iter().filter_map(|(name, source)| Some((name, source.as_ref()?)));
        let Some((annotation, authorities)) = named.next() else {
            for name in [annotation::AUTH_TLS_VERIFY_CLIENT, annotation::AUTH_TLS_PASS_CERTIFICATE] {
                if annotations.is_some_and(|annotations| annotations.contains_key(name)) {
                    let needed = annotation::AUTH_TLS_SECRET;
                    findings.warning(annotation::field(name), format!("has no effect without {needed}"));
                }
            }
            return None;
        };
        if let Some((other, _)) = named.next() {
            findings.warning(
                annotation::field(other),
                format!("is ignored, because {annotation} is set: remove one of them"),
            );
        }
        let mode = match settings.auth_tls_verify_client {
            None => ClientAuthMode::default(),
            Some(Verify::On(mode)) => mode,
            Some(Verify::Off) => return None,
        };
        let forward = settings.auth_tls_pass_certificate;
        Some(Self { annotation, authorities: authorities.clone(), mode, forward })
    }
}

impl Rule {
    fn check(
        raw: v1::IngressRule,
        index: usize,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let host = host::parse(raw.host.as_deref().unwrap_or_default())
            .map_err(|fault| findings.error(format!("spec.rules[{index}].host"), fault));
        let paths = raw
            .http
            .map(|http| http.paths)
            .unwrap_or_default()
            .into_iter()
            .enumerate()
            .filter_map(|(nth, path)| RulePath::check(path, index, nth, namespace, findings))
            .collect();
        Some(Self { index, host: host.ok()?, paths })
    }
}

impl RulePath {
    fn check(
        raw: v1::HTTPIngressPath,
        rule: usize,
        index: usize,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let field = path_field(rule, index);
        let written = raw.path.as_deref().unwrap_or_default();
        let pattern = path::parse(written, &raw.path_type)
            .map_err(|(within, fault)| findings.error(format!("{field}.{within}"), fault));
        let upstream = check_backend(raw.backend, &format!("{field}.backend"), namespace, findings)?;
        let (written, literal) = (written.into(), literal_prefix(written));
        let patterns = nginx::pattern::Patterns::default();
        Some(Self { index, written, pattern: pattern.ok()?, literal, patterns, upstream })
    }

    /// Whether the path was probably written for `use-regex` or `rewrite-target` of ingress-nginx.
    pub(crate) fn looks_like_a_regex(&self) -> bool {
        matches!(self.pattern, PathPattern::Starts(_))
            && self.written.contains(['(', '[', '{', '|', '^', '$', '*', '\\'])
    }
}

/// The beginning of a path before its first special part in a regular expression.
fn literal_prefix(written: &str) -> Option<PathPattern> {
    let end = written.find(['(', '[', '{', '|', '^', '$', '*', '+', '?', '\\'])?;
    let mut literal = &written[..end];
    // `*`, `+`, `?` and `{` apply to the preceding character, which therefore is not literal.
    if written[end..].starts_with(['*', '+', '?', '{']) {
        literal = &literal[..literal.char_indices().next_back().map_or(0, |(last, _)| last)];
    }
    path::parse(literal, "ImplementationSpecific").ok()
}

fn check_backend(
    raw: v1::IngressBackend,
    field: &str,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> Option<UpstreamKey> {
    if raw.resource.is_some() {
        findings.error(format!("{field}.resource"), "is not supported: write service instead");
        return None;
    }
    let Some(service) = raw.service else {
        findings.error(field, "has no service: write service.name and service.port");
        return None;
    };
    if service.name.is_empty() {
        findings.error(format!("{field}.service.name"), "is missing");
        return None;
    }
    if let Some(fault) = syntax::dns_name_fault(&service.name) {
        findings.error(format!("{field}.service.name"), format!("{:?} {fault}", service.name));
        return None;
    }
    let field = format!("{field}.service.port");
    let port: Arc<str> = match service.port.map(|port| (port.name.unwrap_or_default(), port.number)) {
        Some((name, Some(number))) if name.is_empty() => match u16::try_from(number) {
            Ok(number @ 1..) => number.to_string().into(),
            _ => {
                findings.error(format!("{field}.number"), format!("{number} is not between 1 and 65535"));
                return None;
            }
        },
        Some((name, None)) if !name.is_empty() => {
            if name.bytes().all(|byte| byte.is_ascii_digit()) {
                findings.error(
                    format!("{field}.name"),
                    format!("{name:?} is not the name of a port: write number: {name}"),
                );
                return None;
            }
            name.into()
        }
        Some((_, Some(_))) => {
            findings.error(field, "has both a name and a number: remove one of them");
            return None;
        }
        _ => {
            findings.error(field, "is missing: write number or name");
            return None;
        }
    };
    Some(UpstreamKey::new(namespace.clone(), service.name, port))
}

impl Raw for v1::Ingress {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Ingress::check(self, &object.namespace, findings).into())
    }
}
