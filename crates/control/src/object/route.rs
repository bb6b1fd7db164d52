//! `TLSRoute`, `TCPRoute` and `UDPRoute`.

use std::sync::Arc;

use sluicegate_model::HostPattern;
use sluicegate_model::value::syntax;

use super::gateway_api::{self, GROUP, PortRouteSpec, TlsRouteSpec, Written};
use super::host::Specificity;
use super::kind::Raw;
use super::{Kind, Object, ObjectRef, annotation, host};
use crate::problem::Findings;
use crate::status::Fault;

/// The greatest weight of a backend (Gateway API `BackendRef.weight`).
const WEIGHT_MAX: i32 = 1_000_000;

/// A checked `TLSRoute`, `TCPRoute` or `UDPRoute`: the parts of it that can be served.
#[derive(Debug, PartialEq)]
pub(crate) struct Route {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// The valid entries of `spec.parentRefs`.
    pub(crate) parents: Vec<ParentRef>,
    /// The valid entries of `spec.hostnames`, if there are any entries; possibly empty, if none is valid.
    pub(crate) hostnames: Option<Vec<Hostname>>,
    /// The backends of the first rule.
    pub(crate) backends: Vec<BackendRef>,
}

/// A valid name of a `TLSRoute`.
#[derive(Debug, PartialEq)]
pub(crate) struct Hostname {
    /// Its place in `spec.hostnames`.
    pub(crate) index: usize,
    pub(crate) pattern: HostPattern,
}

/// The specificity of the hostname by which a route has a host: its most specific hostname that matches the host.
pub(crate) fn claim(hostnames: &[Hostname], host: &HostPattern) -> Specificity {
    let matching = hostnames.iter().filter(|hostname| host::covers(&hostname.pattern, host));
    matching.map(|hostname| host::specificity(&hostname.pattern)).max().unwrap_or_default()
}

/// A parent that a route names.
#[derive(Debug, PartialEq)]
pub(crate) struct ParentRef {
    /// Its place in `spec.parentRefs`.
    pub(crate) index: usize,
    /// The kind of the parent, a Gateway or a ListenerSet; or the name of another kind.
    pub(crate) kind: Result<Kind, Box<str>>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The name of the listener, if the route names one.
    pub(crate) section: Option<Box<str>>,
    /// The port of the listeners, if the route names one.
    pub(crate) port: Option<u16>,
}

/// The destination of a part of the connections.
#[derive(Debug, PartialEq)]
pub(crate) struct BackendRef {
    pub(crate) weight: u32,
    /// `None` if the reference is invalid: Gateway API requires that its part is refused.
    pub(crate) service: Option<ServicePortRef>,
    /// The reason why the reference is invalid.
    pub(crate) fault: Option<Fault>,
}

/// A port of a Service; or an XBackend, which has a port of its own.
#[derive(Debug, PartialEq)]
pub(crate) struct ServicePortRef {
    /// The kind: Service or XBackend.
    pub(crate) kind: Kind,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// Empty for an XBackend.
    pub(crate) port: Arc<str>,
}

impl ServicePortRef {
    /// The Service or the XBackend.
    pub(crate) fn object(&self) -> ObjectRef {
        ObjectRef { kind: self.kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// The field of a parent, as problems name it.
pub(crate) fn parent_field(index: usize) -> String {
    format!("spec.parentRefs[{index}]")
}

/// The field of a backend, as problems name it.
pub(crate) fn backend_field(index: usize) -> String {
    format!("spec.rules[0].backendRefs[{index}]")
}

impl Route {
    pub(crate) fn check<S: Into<TlsRouteSpec>>(
        raw: Written<S>,
        object: &ObjectRef,
        findings: &mut Findings,
    ) -> Self {
        annotation::check_names(object.kind, raw.metadata.annotations.as_ref(), findings);
        let spec = raw.spec.map(Into::into).unwrap_or_default();
        let parents = check_parents(spec.parent_refs, &object.namespace, findings);
        let hostnames = spec.hostnames.filter(|hostnames| !hostnames.is_empty());
        let hostnames = hostnames.map(|hostnames| check_hostnames(hostnames, findings));
        let rules = spec.rules.unwrap_or_default();
        if rules.is_empty() {
            findings.error("spec.rules", "is missing: write a rule with backendRefs");
        }
        if rules.len() > 1 {
            findings.warning(
                "spec.rules[1]",
                format!("is ignored: a {} has one rule, and the first one is used", object.kind),
            );
        }
        let mut backends = Vec::new();
        if let Some(rule) = rules.into_iter().next() {
            let written = rule.backend_refs.unwrap_or_default();
            if written.is_empty() {
                findings.error("spec.rules[0].backendRefs", "is missing: name a Service and its port");
            }
            let written = written.into_iter().enumerate();
            backends = written
                .map(|(index, backend)| {
                    BackendRef::check(backend, &backend_field(index), &object.namespace, findings)
                })
                .collect();
        }
        let created = raw.metadata.creation_timestamp.map(|time| time.0.as_second());
        Self { created, generation: raw.metadata.generation, parents, hostnames, backends }
    }
}

pub(super) fn check_parents(
    written: Option<Vec<gateway_api::ParentRef>>,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> Vec<ParentRef> {
    let written = written.unwrap_or_default();
    if written.is_empty() {
        let fault = "is missing; the route is attached to no Gateway. Name a Gateway";
        findings.warning("spec.parentRefs", fault);
    }
    let parents = written.into_iter().enumerate();
    let mut parents: Vec<ParentRef> =
        parents.filter_map(|(index, parent)| ParentRef::check(parent, index, namespace, findings)).collect();
    parents.shrink_to_fit();
    parents
}

pub(super) fn check_hostnames(written: Vec<String>, findings: &mut Findings) -> Vec<Hostname> {
    let mut hostnames = Vec::with_capacity(written.len());
    for (index, name) in written.into_iter().enumerate() {
        let field = format!("spec.hostnames[{index}]");
        match host::parse_suffix(&name) {
            Ok(HostPattern::Any) => findings.error(field, "is empty: write a host, or remove the entry"),
            Ok(pattern) => hostnames.push(Hostname { index, pattern }),
            Err(fault) => findings.error(field, fault),
        }
    }
    hostnames
}

impl ParentRef {
    /// The Gateway or the ListenerSet; or the name of another kind.
    pub(crate) fn object(&self) -> Result<ObjectRef, &str> {
        let kind = *self.kind.as_ref().map_err(|other| &**other)?;
        Ok(ObjectRef { kind, namespace: self.namespace.clone(), name: self.name.clone() })
    }

    fn check(
        raw: gateway_api::ParentRef,
        index: usize,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let field = |within: &str| format!("spec.parentRefs[{index}].{within}");
        let group = raw.group.unwrap_or_else(|| GROUP.to_owned());
        let kind = raw.kind.unwrap_or_else(|| "Gateway".to_owned());
        let parsed = Kind::parse(&kind).filter(|kind| matches!(kind, Kind::Gateway | Kind::ListenerSet));
        let kind = parsed.filter(|_| group == GROUP).ok_or_else(|| kind.into());
        let port = match raw.port.map(u16::try_from) {
            None => None,
            Some(Ok(port @ 1..)) => Some(port),
            Some(_) => {
                findings.error(field("port"), "is not between 1 and 65535");
                return None;
            }
        };
        let Some(name) = raw.name.filter(|name| !name.is_empty()) else {
            findings.error(field("name"), "is missing: name a Gateway");
            return None;
        };
        Some(Self {
            index,
            kind,
            namespace: raw.namespace.map_or_else(|| namespace.clone(), Into::into),
            name: name.into(),
            section: raw.section_name.filter(|name| !name.is_empty()).map(Into::into),
            port,
        })
    }
}

impl BackendRef {
    /// A backend in this field.
    pub(super) fn check(
        raw: gateway_api::BackendRef,
        field: &str,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Self {
        let consequence = "the share of this backend is rejected";
        Self::check_with(raw, field, namespace, (consequence, &[Kind::Service, Kind::XBackend]), findings)
    }

    /// A backend of one of these kinds in this field. `consequence` is the consequence of an invalid reference.
    pub(super) fn check_with(
        raw: gateway_api::BackendRef,
        field: &str,
        namespace: &Arc<str>,
        (consequence, kinds): (&str, &[Kind]),
        findings: &mut Findings,
    ) -> Self {
        let field = |within: &str| format!("{field}.{within}");
        let weight = match raw.weight {
            None => 1,
            Some(weight @ 0..=WEIGHT_MAX) => weight.unsigned_abs(),
            Some(weight) => {
                let fault = format!("{weight} is not between 0 and {WEIGHT_MAX}");
                findings.error_or(field("weight"), fault, "the backend receives no traffic");
                0
            }
        };
        let mut fault = None;
        let mut refuse = |within: &str, message: String| {
            // A kind is unknown; a name or a port leads to no backend.
            let reason = if within == "kind" { "InvalidKind" } else { "BackendNotFound" };
            fault = Some(Fault::new(reason, format!("{}: {message}", field(within))));
            findings.error(field(within), format!("{message}; {consequence}"));
        };
        let service = || {
            let kind = raw.kind.unwrap_or_else(|| "Service".to_owned());
            let group = raw.group.unwrap_or_default();
            let known = Kind::parse(&kind).filter(|kind| kinds.contains(kind) && kind.group() == group);
            let Some(known) = known else {
                let of_group = if group.is_empty() { String::new() } else { format!(" of group {group:?}") };
                refuse("kind", format!("{kind:?}{of_group} is not supported: name a Service"));
                return None;
            };
            let Some(name) = raw.name.filter(|name| !name.is_empty()) else {
                refuse("name", "is missing".to_owned());
                return None;
            };
            // The CRDs allow all characters.
            if let Some(fault) = syntax::dns_name_fault(&name) {
                refuse("name", format!("{name:?} {fault}"));
                return None;
            }
            let port = match raw.port.map(u16::try_from) {
                _ if known == Kind::XBackend => "".into(),
                Some(Ok(port @ 1..)) => port.to_string().into(),
                Some(_) => {
                    refuse("port", "is not between 1 and 65535".to_owned());
                    return None;
                }
                None => {
                    refuse("port", "is missing: name a port of the Service".to_owned());
                    return None;
                }
            };
            let namespace = raw.namespace.map_or_else(|| namespace.clone(), Into::into);
            Some(ServicePortRef { kind: known, namespace, name: name.into(), port })
        };
        let service = service();
        Self { weight, service, fault }
    }
}

impl Raw for Written<TlsRouteSpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Route::check(self, object, findings).into())
    }
}

impl Raw for Written<PortRouteSpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Route::check(self, object, findings).into())
    }
}
