//! `BackendTLSPolicy`: TLS to the endpoints of Services, for routes of Gateway API.

use std::sync::Arc;

use serde_json::Value;
use sluicegate_model::value::syntax;
use sluicegate_model::{AlternativeName, HostPattern};

use super::gateway_api::{
    BackendTlsPolicySpec, BackendTlsTarget, BackendTlsValidation, LocalObjectReference, ObjectReference,
    SubjectAltName, Written,
};
use super::kind::Raw;
use super::policy::{created, list};
use super::{Kind, Object, ObjectRef, annotation, host, trust_bundle};
use crate::problem::Findings;

/// The field of the verification.
const VALIDATION: &str = "spec.validation";

/// The consequence of an error for requests.
pub(crate) const DENIED: &str = "requests of routes to the Services of spec.targetRefs receive 500, and connections of TLSRoutes \
                               and TCPRoutes are closed";

/// A checked `BackendTLSPolicy`.
#[derive(Debug, PartialEq)]
pub(crate) struct BackendTlsPolicy {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// The Services of its namespace that need TLS.
    pub(crate) targets: Vec<Target>,
    /// The verification of endpoints; or the field and the reason why endpoints cannot be verified.
    pub(crate) validation: Result<Validation, (String, String)>,
}

/// A Service, or one of its ports.
#[derive(Debug, PartialEq)]
pub(crate) struct Target {
    /// Its place in `spec.targetRefs`.
    pub(crate) index: usize,
    pub(crate) service: Arc<str>,
    pub(crate) port: Option<Arc<str>>,
}

/// The verification of the certificates of endpoints.
#[derive(Debug, PartialEq)]
pub(crate) struct Validation {
    /// The field of the verification.
    pub(crate) field: &'static str,
    pub(crate) authorities: Authorities,
    /// The server name (SNI). Certificates must have this name, unless there are alternative names.
    pub(crate) hostname: Box<str>,
    /// The names of which certificates must have one, if the policy lists names.
    pub(crate) alternative_names: Option<Vec<AlternativeName>>,
}

/// The trusted CA certificates.
#[derive(Debug, PartialEq)]
pub(crate) enum Authorities {
    /// The CA certificates that browsers trust.
    WellKnown,
    /// The objects with CA certificates.
    Of(Vec<AuthoritiesRef>),
}

/// A reference to CA certificates.
#[derive(Debug, PartialEq)]
pub(crate) struct AuthoritiesRef {
    /// The field of the reference.
    pub(crate) field: String,
    /// The Secret, ConfigMap or ClusterTrustBundle, or the reason why the reference is invalid.
    pub(crate) object: Result<ObjectRef, UnsupportedReference>,
}

/// The reason why a reference to CA certificates is invalid.
#[derive(Debug, PartialEq)]
pub(crate) struct UnsupportedReference {
    /// Whether the kind is not supported.
    pub(crate) is_kind: bool,
    pub(crate) message: String,
}

impl BackendTlsPolicy {
    /// The Secrets, ConfigMaps and ClusterTrustBundles with CA certificates.
    pub(crate) fn references(&self) -> impl Iterator<Item = &ObjectRef> {
        self.validation.iter().flat_map(Validation::references)
    }
}

impl Target {
    pub(crate) fn field(&self) -> String {
        let within = if self.port.is_some() { "sectionName" } else { "name" };
        format!("spec.targetRefs[{}].{within}", self.index)
    }

    pub(super) fn check(raw: BackendTlsTarget, index: usize, findings: &mut Findings) -> Option<Self> {
        let field = |within: &str| format!("spec.targetRefs[{index}].{within}");
        let kind = raw.kind.unwrap_or_default();
        if kind != "Service" || !raw.group.unwrap_or_default().is_empty() {
            findings.warning(field("kind"), format!("{kind:?} is ignored: name a Service, with group: \"\""));
            return None;
        }
        let Some(name) = raw.name.filter(|name| !name.is_empty()) else {
            findings.error(field("name"), "is missing: name a Service");
            return None;
        };
        if let Some(fault) = syntax::dns_name_fault(&name) {
            findings.error(field("name"), format!("{name:?} {fault}"));
            return None;
        }
        let port = raw.section_name.filter(|name| !name.is_empty());
        Some(Self { index, service: name.into(), port: port.map(Into::into) })
    }
}

impl AuthoritiesRef {
    /// `namespace` is the namespace of the naming object.
    pub(crate) fn check(
        raw: ObjectReference,
        field: String,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Self {
        let kind = raw.kind.unwrap_or_default();
        let group = raw.group.unwrap_or_default();
        let known = Kind::parse(&kind).filter(|kind| match kind {
            Kind::ConfigMap | Kind::Secret => group.is_empty(),
            Kind::ClusterTrustBundle => group == trust_bundle::GROUP,
            _ => false,
        });
        let is_in_namespace = raw.namespace.as_ref().is_some_and(|namespace| !namespace.is_empty());
        let name = raw.name.filter(|name| !name.is_empty());
        let object = match (known, name) {
            (None, _) => Err(("kind", format!("{kind:?} is not supported: name a ConfigMap"))),
            (_, None) => Err(("name", "is missing: name a ConfigMap".to_owned())),
            (Some(Kind::ClusterTrustBundle), _) if is_in_namespace => Err((
                "namespace",
                "is not allowed: a ClusterTrustBundle has no namespace. Remove the field".to_owned(),
            )),
            (Some(kind), Some(name)) if kind.is_cluster_scoped() => {
                Ok(ObjectRef { kind, namespace: "".into(), name: name.into() })
            }
            (Some(kind), Some(name)) => {
                let namespace = raw.namespace.map_or_else(|| namespace.clone(), Into::into);
                Ok(ObjectRef { kind, namespace, name: name.into() })
            }
        };
        let object = object.map_err(|(within, message)| {
            findings.error(format!("{field}.{within}"), &*message);
            UnsupportedReference { is_kind: within == "kind", message }
        });
        Self { field, object }
    }
}

impl Validation {
    /// The Secrets, ConfigMaps and ClusterTrustBundles with CA certificates.
    pub(crate) fn references(&self) -> impl Iterator<Item = &ObjectRef> {
        let references = match &self.authorities {
            Authorities::Of(references) => &**references,
            Authorities::WellKnown => &[],
        };
        references.iter().filter_map(|reference| reference.object.as_ref().ok())
    }

    /// The valid form of a verification in this field, or the field and the reason why there is none.
    pub(super) fn check(
        raw: BackendTlsValidation,
        validation: &'static str,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Result<Self, (String, String)> {
        let fault = |within: &str, fault: String| Err((format!("{validation}{within}"), fault));
        let references = raw.ca_certificate_refs.unwrap_or_default();
        let well_known = raw.well_known_ca_certificates.filter(|name| !name.is_empty());
        let authorities = match (&*references, well_known.as_deref()) {
            ([], Some("System")) => Authorities::WellKnown,
            ([], Some(other)) => {
                return fault(".wellKnownCACertificates", format!("{other:?} is unknown: write System"));
            }
            ([], None) => {
                return fault(".caCertificateRefs", "is missing: name a ConfigMap with ca.crt".to_owned());
            }
            (_, Some(_)) => {
                let message = "is not allowed beside caCertificateRefs: remove one of them";
                return fault(".wellKnownCACertificates", message.to_owned());
            }
            (_, None) => {
                let references = references.into_iter().enumerate();
                let reference = |(index, reference): (usize, LocalObjectReference)| {
                    let field = format!("{validation}.caCertificateRefs[{index}]");
                    AuthoritiesRef::check(reference.into(), field, namespace, findings)
                };
                Authorities::Of(references.map(reference).collect())
            }
        };
        let hostname = match host::parse(&raw.hostname.unwrap_or_default()) {
            Ok(HostPattern::Exact(name)) => name,
            Ok(HostPattern::Any) => {
                return fault(
                    ".hostname",
                    "is missing: write the name in the certificates of endpoints".to_owned(),
                );
            }
            Ok(other) => return fault(".hostname", format!("{other} must not be a wildcard")),
            Err(message) => return fault(".hostname", message),
        };
        let names = raw.subject_alt_names.unwrap_or_default();
        let names: Result<Vec<_>, _> = names
            .into_iter()
            .enumerate()
            .map(|(index, name)| alternative_name(name, validation, index))
            .collect();
        let alternative_names = Some(names?).filter(|names| !names.is_empty());
        Ok(Self { field: validation, authorities, hostname, alternative_names })
    }
}

/// The valid form of an entry of `subjectAltNames`, or the field and the reason why there is none.
fn alternative_name(
    raw: SubjectAltName,
    validation: &str,
    index: usize,
) -> Result<AlternativeName, (String, String)> {
    let field = |within: &str| format!("{validation}.subjectAltNames[{index}].{within}");
    match raw.kind.as_deref().unwrap_or_default() {
        "Hostname" => match host::parse(&raw.hostname.unwrap_or_default()) {
            Ok(HostPattern::Any) => Err((field("hostname"), "is missing".to_owned())),
            Ok(name) => Ok(AlternativeName::Dns(name.to_string().into())),
            Err(message) => Err((field("hostname"), message)),
        },
        "URI" => match raw.uri.unwrap_or_default() {
            uri if uri
                .split_once(':')
                .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty()) =>
            {
                Ok(AlternativeName::Uri(uri.into()))
            }
            uri => Err((
                field("uri"),
                format!("{uri:?} is not a URI with a scheme, such as spiffe://example.com/shop"),
            )),
        },
        other => Err((field("type"), format!("{other:?} is unknown: write Hostname or URI"))),
    }
}

/// The valid targets of a policy for Services. `check` checks a target at its place.
pub(super) fn targets<T>(
    written: Option<Vec<T>>,
    check: fn(T, usize, &mut Findings) -> Option<Target>,
    findings: &mut Findings,
) -> Vec<Target> {
    let written = written.unwrap_or_default();
    if written.is_empty() {
        findings.error("spec.targetRefs", "is missing: name a Service");
    }
    written.into_iter().enumerate().filter_map(|(index, target)| check(target, index, findings)).collect()
}

impl Raw for Written<BackendTlsPolicySpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        annotation::check_names(object.kind, self.metadata.annotations.as_ref(), findings);
        let spec = self.spec.unwrap_or_default();
        let targets = targets(spec.target_refs, Target::check, findings);
        let validation =
            Validation::check(spec.validation.unwrap_or_default(), VALIDATION, &object.namespace, findings);
        if let Err((field, message)) = &validation {
            findings.error(&**field, format!("{message}; {DENIED}"));
        }
        let created = self.metadata.creation_timestamp.map(|time| time.0.as_second());
        let generation = self.metadata.generation;
        Some(BackendTlsPolicy { created, generation, targets, validation }.into())
    }

    /// Its readable targets, so that none of them receives clear text.
    fn unreadable(value: &Value, _: &ObjectRef, _: &mut Findings) -> Option<Object> {
        let targets = list::readable(value, "targetRefs").into_iter();
        let targets =
            targets.filter_map(|(index, target)| Target::check(target, index, &mut Findings::default()));
        let validation = Err(("spec".to_owned(), "cannot be read".to_owned()));
        let (created, targets) = (created(value), targets.collect());
        let generation = value.pointer("/metadata/generation").and_then(Value::as_i64);
        Some(BackendTlsPolicy { created, generation, targets, validation }.into())
    }
}
