//! `GatewayClass` and `Gateway`.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use sluicegate_model::HostPattern;
use sluicegate_model::value::syntax;

use super::gateway_api::{self, AllowedRoutes, GROUP, GatewayClassSpec, GatewaySpec, Written};
use super::kind::Raw;
use super::namespace::{Namespace, NamespaceSelector};
use super::{Kind, Object, ObjectRef, annotation, host};
use crate::problem::Findings;

/// A checked `GatewayClass`.
#[derive(Debug, PartialEq)]
pub(crate) struct GatewayClass {
    /// The controller of the Gateways of this class.
    pub(crate) controller: Box<str>,
}

/// A checked `Gateway`: the parts of it that can be served.
#[derive(Debug, PartialEq)]
pub(crate) struct Gateway {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// `spec.gatewayClassName`.
    pub(crate) class_name: Box<str>,
    /// `spec.addresses`, if there are any; possibly empty, if no address is an IP address.
    pub(crate) addresses: Option<Vec<IpAddr>>,
    /// Its valid listeners.
    pub(crate) listeners: Vec<Listener>,
}

/// A valid listener.
#[derive(Debug, PartialEq)]
pub(crate) struct Listener {
    /// Its place in `spec.listeners`.
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) port: u16,
    pub(crate) protocol: ListenerProtocol,
    /// The names of the listener; [`HostPattern::Any`] by default.
    pub(crate) hostname: HostPattern,
    /// The certificates of a listener for HTTPS, each with its place in `tls.certificateRefs`.
    pub(crate) certificates: Vec<(usize, ObjectRef)>,
    /// The kinds of routes that the listener allows, if it lists them.
    kinds: Option<Vec<Kind>>,
    /// The namespaces whose routes the listener allows.
    from: AllowedFrom,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerProtocol {
    Http,
    Https,
    /// TLS that the gateway terminates (`tls.mode: Terminate`).
    TlsTerminated,
    /// TLS passthrough (`tls.mode: Passthrough`).
    Tls,
    Tcp,
    Udp,
}

impl ListenerProtocol {
    /// The kinds of routes for this protocol; none, if it is not served.
    pub(crate) fn routes(self) -> &'static [Kind] {
        match self {
            Self::Http | Self::Https => &[Kind::HttpRoute, Kind::GrpcRoute],
            Self::TlsTerminated => &[],
            Self::Tls => &[Kind::TlsRoute],
            Self::Tcp => &[Kind::TcpRoute],
            Self::Udp => &[Kind::UdpRoute],
        }
    }

    /// Whether the routes of a listener are HTTPRoutes and GRPCRoutes.
    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether the host names of listeners share a socket of this protocol.
    pub(crate) fn has_names(self) -> bool {
        !matches!(self, Self::Tcp | Self::Udp)
    }
}

/// The name of the protocol in a sentence.
impl fmt::Display for ListenerProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::TlsTerminated => "TLS in mode Terminate",
            Self::Tls => "TLS",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// The namespaces whose routes a listener allows (`allowedRoutes.namespaces.from`).
#[derive(Debug, PartialEq)]
enum AllowedFrom {
    /// The namespace of the Gateway.
    Same,
    All,
    None,
    /// The namespaces with these labels.
    Selector(NamespaceSelector),
}

/// The field of a listener, as problems name it.
pub(crate) fn listener_field(index: usize) -> String {
    format!("spec.listeners[{index}]")
}

impl GatewayClass {
    pub(crate) fn check(raw: Written<GatewayClassSpec>, findings: &mut Findings) -> Self {
        annotation::check_names(Kind::GatewayClass, raw.metadata.annotations.as_ref(), findings);
        let controller = raw.spec.and_then(|spec| spec.controller_name).unwrap_or_default();
        if controller.is_empty() {
            findings.error("spec.controllerName", "is missing: name the controller that serves this class");
        }
        Self { controller: controller.into() }
    }
}

impl Gateway {
    pub(crate) fn check(raw: Written<GatewaySpec>, object: &ObjectRef, findings: &mut Findings) -> Self {
        annotation::check_names(Kind::Gateway, raw.metadata.annotations.as_ref(), findings);
        let spec = raw.spec.unwrap_or_default();
        let class_name = spec.gateway_class_name.unwrap_or_default();
        if class_name.is_empty() {
            findings.error("spec.gatewayClassName", "is missing: name the class of the Gateway");
        }
        let written = spec.listeners.unwrap_or_default();
        if written.is_empty() {
            findings.error("spec.listeners", "is missing: a Gateway without listeners serves nothing");
        }
        let mut listeners: Vec<Listener> = Vec::new();
        for (index, listener) in written.into_iter().enumerate() {
            let Some(listener) = Listener::check(listener, index, &object.namespace, findings) else {
                continue;
            };
            if listeners.iter().any(|other| other.name == listener.name) {
                findings.error(
                    format!("spec.listeners[{index}].name"),
                    format!("{:?} is the name of two listeners: rename one", listener.name),
                );
                continue;
            }
            listeners.push(listener);
        }
        Self {
            created: raw.metadata.creation_timestamp.map(|time| time.0.as_second()),
            class_name: class_name.into(),
            addresses: check_addresses(spec.addresses.unwrap_or_default(), findings),
            listeners,
        }
    }
}

/// The IP addresses of a list. Without any IP address, the Gateway must not listen on all addresses.
fn check_addresses(written: Vec<gateway_api::Address>, findings: &mut Findings) -> Option<Vec<IpAddr>> {
    if written.is_empty() {
        return None;
    }
    let mut addresses = Vec::new();
    for (index, address) in written.into_iter().enumerate() {
        let field = format!("spec.addresses[{index}]");
        let value = address.value.unwrap_or_default();
        match address.kind.as_deref() {
            None | Some("IPAddress") => match value.parse::<IpAddr>() {
                Ok(address) if addresses.contains(&address) => {
                    findings.warning(format!("{field}.value"), format!("{value} is written twice"));
                }
                Ok(address) => addresses.push(address),
                Err(_) => {
                    findings.error(format!("{field}.value"), format!("{value:?} is not an IP address"));
                }
            },
            Some(other) => findings.warning(
                format!("{field}.type"),
                format!(
                    "{other:?} is not supported; the Gateway does not listen at this entry. Write IPAddress"
                ),
            ),
        }
    }
    Some(addresses)
}

impl Listener {
    fn check(
        raw: gateway_api::Listener,
        index: usize,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let field = |within: &str| format!("spec.listeners[{index}].{within}");
        let name = raw.name.unwrap_or_default();
        let fault = match &*name {
            "" => Some("is missing".to_owned()),
            name => syntax::dns_name_fault(name).map(|fault| format!("{name:?} {fault}")),
        };
        let is_named = fault.is_none();
        if let Some(fault) = fault {
            findings.error(field("name"), fault);
        }
        let port = check_port(raw.port, &field("port"), findings);
        let mode = raw.tls.as_ref().map(|tls| tls.mode.as_deref());
        let protocol = check_protocol(raw.protocol.as_deref(), mode)
            .map_err(|(within, fault)| findings.error(field(within), fault));
        let hostname = host::parse_suffix(raw.hostname.as_deref().unwrap_or_default())
            .map_err(|fault| findings.error(field("hostname"), fault));
        let (port, protocol, hostname) = (port?, protocol.ok()?, hostname.ok()?);
        if !protocol.has_names() && hostname != HostPattern::Any {
            findings.warning(field("hostname"), format!("is ignored: {protocol} has no host names"));
        }
        let references = raw.tls.and_then(|tls| tls.certificate_refs).unwrap_or_default();
        let certificates = match protocol {
            ListenerProtocol::Https => check_certificates(references, index, namespace, findings),
            _ => Vec::new(),
        };
        let allowed = raw.allowed_routes.unwrap_or(AllowedRoutes { namespaces: None, kinds: None });
        let kinds = allowed.kinds.filter(|kinds| !kinds.is_empty());
        let kinds = kinds.map(|kinds| check_kinds(kinds, protocol, index, findings));
        let from = check_from(allowed.namespaces, &field("allowedRoutes.namespaces"), findings);
        let name = name.into();
        is_named.then_some(Self { index, name, port, protocol, hostname, certificates, kinds, from })
    }

    /// Whether it allows routes of this kind.
    pub(crate) fn takes_kind(&self, kind: Kind) -> bool {
        self.protocol.routes().contains(&kind)
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Whether a listener of a Gateway in `own` allows routes of this namespace. `known` finds the Namespace.
    pub(crate) fn takes_namespace<'n>(
        &self,
        namespace: &str,
        own: &str,
        known: impl FnOnce() -> Option<&'n Namespace>,
    ) -> bool {
        match &self.from {
            AllowedFrom::Same => namespace == own,
            AllowedFrom::All => true,
            AllowedFrom::None => false,
            AllowedFrom::Selector(selector) => known().is_some_and(|known| selector.selects(known)),
        }
    }

    /// Whether it selects the namespaces of its routes by their labels.
    pub(crate) fn selects_namespaces(&self) -> bool {
        matches!(self.from, AllowedFrom::Selector(_))
    }
}

fn check_port(written: Option<i32>, field: &str, findings: &mut Findings) -> Option<u16> {
    let Some(number) = written else {
        findings.error(field, "is missing");
        return None;
    };
    let port = u16::try_from(number).ok().filter(|port| *port > 0);
    if port.is_none() {
        findings.error(field, format!("{number} is not between 1 and 65535"));
    }
    port
}

/// The protocol of a listener, from its `protocol`, and from its `tls.mode` if it has `tls`; or the faulty field and
/// the reason.
fn check_protocol(
    protocol: Option<&str>,
    tls: Option<Option<&str>>,
) -> Result<ListenerProtocol, (&'static str, String)> {
    let plain = |protocol: ListenerProtocol| match tls {
        None => Ok(protocol),
        Some(_) => {
            let right = if protocol == ListenerProtocol::Http { "HTTPS" } else { "TLS" };
            Err(("tls", format!("is not allowed on a listener for {protocol}: write protocol: {right}")))
        }
    };
    match (protocol, tls.flatten()) {
        (Some("HTTP"), _) => plain(ListenerProtocol::Http),
        (Some("TCP"), _) => plain(ListenerProtocol::Tcp),
        (Some("UDP"), _) => plain(ListenerProtocol::Udp),
        (Some("HTTPS"), None | Some("Terminate")) => Ok(ListenerProtocol::Https),
        (Some("HTTPS"), Some("Passthrough")) => {
            Err(("tls.mode", "Passthrough needs protocol: TLS".to_owned()))
        }
        (Some("TLS"), Some("Passthrough")) => Ok(ListenerProtocol::Tls),
        (Some("TLS"), Some("Terminate")) => Ok(ListenerProtocol::TlsTerminated),
        (Some("TLS"), None) => Err(("tls.mode", "is missing: write Passthrough".to_owned())),
        (Some("HTTPS" | "TLS"), Some(mode)) => {
            Err(("tls.mode", format!("{mode:?} is unknown: write Passthrough")))
        }
        (None | Some(""), _) => {
            Err(("protocol", "is missing: write HTTP, HTTPS, TCP, TLS or UDP".to_owned()))
        }
        (Some(other), _) => {
            let fault =
                format!("{other:?} is not supported: write HTTP, HTTPS, TCP, TLS or UDP, in upper case");
            Err(("protocol", fault))
        }
    }
}

/// The Secrets with the certificates of a listener.
fn check_certificates(
    written: Vec<gateway_api::ObjectReference>,
    listener: usize,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> Vec<(usize, ObjectRef)> {
    let field = format!("{}.tls.certificateRefs", listener_field(listener));
    if written.is_empty() {
        findings
            .error(&*field, "is missing; every client is rejected. Name a Secret of type kubernetes.io/tls");
    }
    let mut certificates = Vec::new();
    for (index, reference) in written.into_iter().enumerate() {
        let kind = reference.kind.unwrap_or_else(|| "Secret".to_owned());
        if kind != "Secret" || !reference.group.unwrap_or_default().is_empty() {
            findings
                .error(format!("{field}[{index}].kind"), format!("{kind:?} is not supported: name a Secret"));
            continue;
        }
        let Some(name) = reference.name.filter(|name| !name.is_empty()) else {
            findings.error(format!("{field}[{index}].name"), "is missing: name a Secret");
            continue;
        };
        let namespace = reference.namespace.map_or_else(|| namespace.clone(), Into::into);
        certificates.push((index, ObjectRef { kind: Kind::Secret, namespace, name: name.into() }));
    }
    certificates
}

/// The known kinds among the kinds of routes that a listener lists.
fn check_kinds(
    written: Vec<gateway_api::RouteKind>,
    protocol: ListenerProtocol,
    listener: usize,
    findings: &mut Findings,
) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (index, entry) in written.into_iter().enumerate() {
        let group = entry.group.unwrap_or_else(|| GROUP.to_owned());
        let name = entry.kind.unwrap_or_default();
        let kind = Kind::parse(&name).filter(|_| group == GROUP);
        let right = protocol.routes();
        if !right.is_empty() && !kind.is_some_and(|kind| right.contains(&kind)) {
            let right: Vec<&str> = right.iter().map(|kind| kind.as_str()).collect();
            let right = right.join(" and ");
            findings.warning(
                format!("spec.listeners[{listener}].allowedRoutes.kinds[{index}].kind"),
                format!("{name:?} is ignored: a listener for {protocol} accepts only {right}"),
            );
        }
        kinds.extend(kind);
    }
    kinds
}

fn check_from(written: Option<gateway_api::Namespaces>, field: &str, findings: &mut Findings) -> AllowedFrom {
    let Some(gateway_api::Namespaces { from, selector }) = written else { return AllowedFrom::Same };
    match from.as_deref() {
        None | Some("Same") => AllowedFrom::Same,
        Some("All") => AllowedFrom::All,
        Some("None") => AllowedFrom::None,
        Some("Selector") => NamespaceSelector::check(selector, &format!("{field}.selector"), findings)
            .map_or(AllowedFrom::None, AllowedFrom::Selector),
        Some(other) => {
            let fault =
                format!("{other:?} is unknown; no route is attached. Write Same, Selector, All or None");
            findings.error(format!("{field}.from"), fault);
            AllowedFrom::None
        }
    }
}

impl Raw for Written<GatewayClassSpec> {
    fn check(self, _: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(GatewayClass::check(self, findings).into())
    }
}

impl Raw for Written<GatewaySpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Gateway::check(self, object, findings).into())
    }
}
