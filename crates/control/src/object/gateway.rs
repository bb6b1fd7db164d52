//! `GatewayClass` and `Gateway`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use sluicegate_model::value::syntax;
use sluicegate_model::{ClientAuthMode, HostPattern};

use super::backend_tls::AuthoritiesRef;
use super::external_auth::ListenerFilters;
use super::gateway_api::{self, AllowedRoutes, GROUP, GatewayClassSpec, GatewaySpec, Written};
use super::kind::Raw;
use super::namespace::{Namespace, NamespaceSelector};
use super::{Kind, Object, ObjectRef, annotation, host, parameters};
use crate::address::{AddressRequest, Routability};
use crate::problem::Findings;
use crate::status::Fault;

/// A checked `GatewayClass`.
#[derive(Debug, PartialEq)]
pub(crate) struct GatewayClass {
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// The controller of the Gateways of this class.
    pub(crate) controller: Box<str>,
    /// The ConfigMap with its parameters, or the reason why the reference is invalid.
    pub(crate) parameters: Option<Result<ObjectRef, String>>,
}

/// A checked `Gateway`: the parts of it that can be served.
#[derive(Debug, PartialEq)]
pub(crate) struct Gateway {
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    /// `metadata.uid`.
    pub(crate) uid: Option<Box<str>>,
    /// The reason why the Gateway is not accepted as a whole.
    pub(crate) fault: Option<Fault>,
    /// `spec.gatewayClassName`.
    pub(crate) class_name: Box<str>,
    /// The IP addresses of `spec.addresses` without those of the routability `Cluster`; empty if no entry can be satisfied by other
    /// addresses than cluster IPs. `None` if the gateway chooses.
    pub(crate) addresses: Option<Vec<IpAddr>>,
    /// The entries of `spec.addresses`.
    pub(crate) requests: Vec<AddressRequest>,
    /// Whether an entry has a `routability`, and no entry accepts addresses that clients outside of the cluster may reach.
    pub(crate) is_confined: bool,
    /// The Secret with its client certificate for endpoints with a BackendTLSPolicy, or the reason why the reference is
    /// invalid.
    pub(crate) client_certificate: Option<Result<ObjectRef, String>>,
    /// The validation of the certificates of clients by its listeners for HTTPS.
    pub(crate) frontend: Frontend,
    /// Whether the gateway orders the certificates of its listeners from an ACME server.
    pub(crate) acme: bool,
    /// The ConfigMap with its parameters, or the reason why the reference is invalid.
    pub(crate) parameters: Option<Result<ObjectRef, String>>,
    /// `spec.infrastructure.labels`.
    pub(crate) labels: BTreeMap<String, String>,
    /// `spec.infrastructure.annotations`.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The namespaces whose ListenerSets the Gateway allows.
    allowed_listeners: AllowedFrom,
    /// Its valid listeners.
    pub(crate) listeners: Vec<Listener>,
    /// Its other listeners.
    pub(crate) rejected: Vec<RejectedListener>,
}

/// The validations of the certificates of clients (`spec.tls.frontend`).
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Frontend {
    /// The validation at the ports without an own entry.
    pub(crate) default: Option<ClientValidation>,
    /// The ports with an own entry, each with its validation.
    pub(crate) ports: BTreeMap<u16, Option<ClientValidation>>,
}

/// A validation of the certificates of clients.
#[derive(Debug, PartialEq)]
pub(crate) struct ClientValidation {
    /// The field of the references.
    pub(crate) field: String,
    pub(crate) mode: ClientAuthMode,
    /// The Secrets, ConfigMaps and ClusterTrustBundles with CA certificates.
    pub(crate) authorities: Vec<AuthoritiesRef>,
}

/// A listener that cannot be served.
#[derive(Debug, PartialEq)]
pub(crate) struct RejectedListener {
    /// Its place in `spec.listeners`.
    pub(crate) index: usize,
    pub(crate) name: Arc<str>,
    pub(crate) fault: Fault,
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
    /// The certificates of a listener that terminates TLS, each with its place in `tls.certificateRefs`.
    pub(crate) certificates: Vec<(usize, ObjectRef)>,
    /// The first entry of the listener that names nothing usable.
    pub(crate) unresolved: Option<Fault>,
    /// The kinds of routes that the listener allows, if it lists them.
    kinds: Option<Vec<Kind>>,
    /// The filters of requests before the gateway selects a rule.
    pub(crate) filters: ListenerFilters,
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
    /// The kinds of routes for this protocol.
    pub(crate) fn routes(self) -> &'static [Kind] {
        match self {
            Self::Http | Self::Https => &[Kind::HttpRoute, Kind::GrpcRoute],
            Self::Tls | Self::TlsTerminated => &[Kind::TlsRoute],
            Self::Tcp => &[Kind::TcpRoute],
            Self::Udp => &[Kind::UdpRoute],
        }
    }

    /// Whether the routes of a listener are HTTPRoutes and GRPCRoutes.
    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether clients start with a TLS handshake.
    pub(crate) fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Tls | Self::TlsTerminated)
    }

    /// Whether the gateway performs the TLS handshake.
    pub(crate) fn terminates_tls(self) -> bool {
        matches!(self, Self::Https | Self::TlsTerminated)
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

/// The protocols of listeners in Gateway API.
const PROTOCOLS: [&str; 5] = ["HTTP", "HTTPS", "TLS", "TCP", "UDP"];

/// The namespaces whose routes a listener allows (`allowedRoutes.namespaces.from`), or whose ListenerSets a Gateway allows
/// (`allowedListeners.namespaces.from`).
#[derive(Debug, PartialEq)]
enum AllowedFrom {
    /// The namespace of the Gateway or the ListenerSet.
    Same,
    All,
    None,
    /// The namespaces with these labels.
    Selector(NamespaceSelector),
}

/// The field of the parameters of a class.
pub(crate) const CLASS_PARAMETERS: &str = "spec.parametersRef";

/// The field of the parameters of a Gateway.
pub(crate) const PARAMETERS: &str = "spec.infrastructure.parametersRef";

/// The fault of a validation of client certificates without references.
pub(crate) const NO_AUTHORITIES: &str = "is missing: name a ConfigMap with ca.crt";

/// The field of the client certificate.
pub(crate) const CLIENT_CERTIFICATE: &str = "spec.tls.backend.clientCertificateRef";

/// The field of a listener, as problems name it.
pub(crate) fn listener_field(index: usize) -> String {
    format!("spec.listeners[{index}]")
}

impl GatewayClass {
    pub(crate) fn check(raw: Written<GatewayClassSpec>, findings: &mut Findings) -> Self {
        annotation::check_names(Kind::GatewayClass, raw.metadata.annotations.as_ref(), findings);
        let spec = raw.spec.unwrap_or_default();
        let controller = spec.controller_name.unwrap_or_default();
        if controller.is_empty() {
            findings.error("spec.controllerName", "is missing: name the controller that serves this class");
        }
        let check = |written| parameters::check_reference(written, None, CLASS_PARAMETERS, findings);
        let parameters = spec.parameters_ref.map(check);
        Self { generation: raw.metadata.generation, controller: controller.into(), parameters }
    }
}

impl Gateway {
    pub(crate) fn check(raw: Written<GatewaySpec>, object: &ObjectRef, findings: &mut Findings) -> Self {
        let annotations = raw.metadata.annotations.as_ref();
        let settings = annotation::read(Kind::Gateway, annotations, &object.namespace, findings);
        let spec = raw.spec.unwrap_or_default();
        let class_name = spec.gateway_class_name.unwrap_or_default();
        if class_name.is_empty() {
            findings.error("spec.gatewayClassName", "is missing: name the class of the Gateway");
        }
        let written = spec.listeners.unwrap_or_default();
        if written.is_empty() {
            findings.error("spec.listeners", "is missing: a Gateway without listeners serves nothing");
        }
        let (listeners, rejected) = check_listeners(written, &object.namespace, findings);
        let allowed = spec.allowed_listeners.and_then(|allowed| allowed.namespaces);
        let (field, by_default) = ("spec.allowedListeners.namespaces", AllowedFrom::None);
        let allowed_listeners = AllowedFrom::check(allowed, by_default, field, "ListenerSet", findings);
        let infrastructure = spec.infrastructure.unwrap_or_default();
        let check =
            |written| parameters::check_reference(written, Some(&object.namespace), PARAMETERS, findings);
        let parameters = infrastructure.parameters_ref.map(check);
        let tls = spec.tls.unwrap_or_default();
        let frontend = Frontend::check(tls.frontend.unwrap_or_default(), &object.namespace, findings);
        let client_certificate = tls.backend.and_then(|tls| tls.client_certificate_ref);
        let client_certificate = client_certificate
            .map(|reference| check_client_certificate(reference, &object.namespace, findings));
        let requested = Requested::check(spec.addresses.unwrap_or_default(), findings);
        Self {
            created: raw.metadata.creation_timestamp.map(|time| time.0.as_second()),
            generation: raw.metadata.generation,
            uid: raw.metadata.uid.map(Into::into),
            fault: requested.fault,
            class_name: class_name.into(),
            addresses: requested.addresses,
            requests: requested.requests,
            is_confined: requested.is_confined,
            acme: settings.acme,
            client_certificate,
            frontend,
            parameters,
            labels: infrastructure.labels.unwrap_or_default(),
            annotations: infrastructure.annotations.unwrap_or_default(),
            allowed_listeners,
            listeners,
            rejected,
        }
    }

    /// Whether an entry of `spec.addresses` requests a cluster IP.
    pub(crate) fn requests_cluster_ip(&self) -> bool {
        self.fault.is_none() && self.requests.iter().any(|of| of.routability == Ok(Routability::Cluster))
    }

    /// Whether a Gateway in `own` allows ListenerSets of this namespace. `known` finds the Namespace.
    pub(crate) fn takes_sets_of<'n>(
        &self,
        namespace: &str,
        own: &str,
        known: impl FnOnce() -> Option<&'n Namespace>,
    ) -> bool {
        self.allowed_listeners.allows(namespace, own, known)
    }

    /// Whether it selects the namespaces of its ListenerSets by their labels.
    pub(crate) fn selects_sets(&self) -> bool {
        matches!(self.allowed_listeners, AllowedFrom::Selector(_))
    }
}

/// The valid listeners of a list, and the others.
pub(super) fn check_listeners(
    written: Vec<gateway_api::Listener>,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> (Vec<Listener>, Vec<RejectedListener>) {
    let mut listeners: Vec<Listener> = Vec::new();
    let mut rejected = Vec::new();
    for (index, listener) in written.into_iter().enumerate() {
        let name = listener.name.clone().unwrap_or_default().into();
        let listener = match Listener::check(listener, index, namespace, findings) {
            Ok(listener) => listener,
            Err(fault) => {
                rejected.push(RejectedListener { index, name, fault });
                continue;
            }
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
    (listeners, rejected)
}

impl Frontend {
    fn check(raw: gateway_api::FrontendTls, namespace: &Arc<str>, findings: &mut Findings) -> Self {
        let default = raw.default.unwrap_or_default().validation;
        let default = default.map(|validation| {
            ClientValidation::check(validation, "spec.tls.frontend.default", namespace, findings)
        });
        let mut ports = BTreeMap::new();
        for (index, entry) in raw.per_port.unwrap_or_default().into_iter().enumerate() {
            let field = format!("spec.tls.frontend.perPort[{index}]");
            let Some(port) = check_port(entry.port, &format!("{field}.port"), findings) else { continue };
            let validation = entry.tls.unwrap_or_default().validation;
            let validation = validation.map(|validation| {
                ClientValidation::check(validation, &format!("{field}.tls"), namespace, findings)
            });
            if ports.contains_key(&port) {
                let message = format!("{port} is the port of two entries: remove one");
                findings.error_or(format!("{field}.port"), message, "this entry is ignored");
                continue;
            }
            ports.insert(port, validation);
        }
        Self { default, ports }
    }

    /// All validations.
    pub(crate) fn validations(&self) -> impl Iterator<Item = &ClientValidation> {
        self.default.iter().chain(self.ports.values().flatten())
    }
}

impl ClientValidation {
    fn check(
        raw: gateway_api::FrontendValidation,
        within: &str,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Self {
        let mode = match raw.mode.as_deref() {
            None | Some("AllowValidOnly") => ClientAuthMode::Required,
            Some("AllowInsecureFallback") => ClientAuthMode::OptionalNoCa,
            Some(other) => {
                let message = format!(
                    "{other:?} is unknown; clients need a valid certificate. Write AllowValidOnly or AllowInsecureFallback"
                );
                findings.error(format!("{within}.validation.mode"), message);
                ClientAuthMode::Required
            }
        };
        let field = format!("{within}.validation.caCertificateRefs");
        let references = raw.ca_certificate_refs.unwrap_or_default();
        if references.is_empty() {
            findings.error_or(&*field, NO_AUTHORITIES, "every client is rejected");
        }
        let references = references.into_iter().enumerate().map(|(index, reference)| {
            AuthoritiesRef::check(reference, format!("{field}[{index}]"), namespace, findings)
        });
        let authorities = references.collect();
        Self { field, mode, authorities }
    }
}

/// `spec.addresses`. Without any IP address, the Gateway must not listen on all addresses.
#[derive(Default)]
struct Requested {
    addresses: Option<Vec<IpAddr>>,
    requests: Vec<AddressRequest>,
    is_confined: bool,
    /// The first fault.
    fault: Option<Fault>,
}

impl Requested {
    fn check(written: Vec<gateway_api::Address>, findings: &mut Findings) -> Self {
        if written.is_empty() {
            return Self::default();
        }
        let (mut addresses, mut requests, mut fault) = (Vec::new(), Vec::new(), None);
        let (mut accepts_any, mut has_routability) = (false, false);
        for (index, address) in written.into_iter().enumerate() {
            let field = format!("spec.addresses[{index}]");
            let name = address.routability.unwrap_or_default();
            has_routability |= !name.is_empty();
            let routability = Routability::parse(&name).ok_or_else(|| {
                let message =
                    format!("{name:?} is not supported; no address satisfies this entry. Write Cluster");
                findings.warning(format!("{field}.routability"), &*message);
                format!("routability {message}")
            });
            let is_any = !matches!(routability, Ok(Routability::Cluster) | Err(_));
            requests.push(AddressRequest { index, value: None, routability });
            let request = requests.last_mut();
            // Without a value, the gateway chooses the address.
            if address.value.as_ref().is_none_or(String::is_empty)
                && address.kind.as_deref().is_none_or(|kind| kind == "IPAddress")
            {
                accepts_any |= is_any;
                continue;
            }
            let value = address.value.unwrap_or_default();
            let mut refuse = |within: &str, message: String| {
                fault.get_or_insert_with(|| {
                    Fault::new("UnsupportedAddress", format!("{field}.{within}: {message}"))
                });
                message
            };
            match address.kind.as_deref() {
                None | Some("IPAddress") => match value.parse::<IpAddr>() {
                    Ok(address) if addresses.contains(&address) => {
                        findings.warning(format!("{field}.value"), format!("{value} is written twice"));
                    }
                    Ok(address) => {
                        if let Some(request) = request {
                            // A Gateway at all addresses requests no certain address.
                            request.value = Some(address).filter(|address| !address.is_unspecified());
                        }
                        addresses.extend(is_any.then_some(address));
                        continue;
                    }
                    Err(_) => {
                        let message = refuse("value", format!("{value:?} is not an IP address"));
                        findings.error(format!("{field}.value"), message);
                    }
                },
                Some(other) => {
                    let message =
                        format!("{other:?} is not supported; Sluicegate ignores this entry. Write IPAddress");
                    findings.warning(format!("{field}.type"), refuse("type", message));
                }
            }
            if let Some(request) = request {
                request.routability = Err("no address can satisfy the type and the value".to_owned());
            }
        }
        let is_free = addresses.is_empty() && fault.is_none() && accepts_any;
        let admits =
            |of: &AddressRequest| matches!(of.routability, Ok(Routability::Any | Routability::Sentinel));
        let is_confined = has_routability && !requests.iter().any(admits);
        Self { addresses: (!is_free).then_some(addresses), requests, is_confined, fault }
    }
}

impl Listener {
    fn check(
        raw: gateway_api::Listener,
        index: usize,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Result<Self, Fault> {
        let field = |within: &str| format!("spec.listeners[{index}].{within}");
        let first = findings.0.len();
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
        let (Some(port), Ok(protocol), Ok(hostname), true) = (port, protocol, hostname, is_named) else {
            let is_known = raw.protocol.as_deref().is_some_and(|name| PROTOCOLS.contains(&name));
            let reason = if is_known { "UnsupportedValue" } else { "UnsupportedProtocol" };
            let message = findings
                .0
                .get(first)
                .map(|finding| format!("{}: {}", finding.field, finding.in_words(false)));
            return Err(Fault::new(reason, message.unwrap_or_default()));
        };
        let mut unresolved = None;
        if !protocol.has_names() && hostname != HostPattern::Any {
            findings.warning(field("hostname"), format!("is ignored: {protocol} has no host names"));
        }
        let references = raw.tls.and_then(|tls| tls.certificate_refs).unwrap_or_default();
        let certificates = match protocol {
            protocol if protocol.terminates_tls() => {
                check_certificates(references, index, namespace, findings, &mut unresolved)
            }
            _ => Vec::new(),
        };
        let allowed = raw.allowed_routes.unwrap_or(AllowedRoutes { namespaces: None, kinds: None });
        let kinds = allowed.kinds.filter(|kinds| !kinds.is_empty());
        let kinds = kinds.map(|kinds| check_kinds(kinds, protocol, index, findings, &mut unresolved));
        let (field, by_default) = (field("allowedRoutes.namespaces"), AllowedFrom::Same);
        let from = AllowedFrom::check(allowed.namespaces, by_default, &field, "route", findings);
        let filters = raw.filters.and_then(|filters| filters.requests).unwrap_or_default();
        if !protocol.is_http() && !filters.is_empty() {
            let field = format!("spec.listeners[{index}].filters");
            let message =
                format!("is not allowed on a listener for {protocol}: write protocol: HTTP or HTTPS");
            let fault = Fault::new("InvalidListenerFilter", format!("{field}: {message}"));
            findings.error_or(field, message, "the listener is not served");
            return Err(fault);
        }
        let filters = ListenerFilters::check(filters, index, namespace, findings);
        let name = name.into();
        Ok(Self { index, name, port, protocol, hostname, certificates, unresolved, kinds, filters, from })
    }

    /// Whether it allows routes of this kind.
    pub(crate) fn takes_kind(&self, kind: Kind) -> bool {
        self.protocol.routes().contains(&kind)
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
    }

    /// Whether a listener of a Gateway or a ListenerSet in `own` allows routes of this namespace. `known` finds the
    /// Namespace.
    pub(crate) fn takes_namespace<'n>(
        &self,
        namespace: &str,
        own: &str,
        known: impl FnOnce() -> Option<&'n Namespace>,
    ) -> bool {
        self.from.allows(namespace, own, known)
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
        (Some("TLS"), None) => Err(("tls.mode", "is missing: write Terminate or Passthrough".to_owned())),
        (Some("HTTPS" | "TLS"), Some(mode)) => {
            Err(("tls.mode", format!("{mode:?} is unknown: write Terminate or Passthrough")))
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
    unresolved: &mut Option<Fault>,
) -> Vec<(usize, ObjectRef)> {
    let field = format!("{}.tls.certificateRefs", listener_field(listener));
    let mut refuse = |field: String, message: String, otherwise: &'static str| {
        unresolved.get_or_insert_with(|| Fault::new("InvalidCertificateRef", format!("{field}: {message}")));
        findings.error_or(field, message, otherwise);
    };
    if written.is_empty() {
        let message = "is missing: name a Secret of type kubernetes.io/tls";
        refuse(field.clone(), message.to_owned(), "every client is rejected");
    }
    let mut certificates = Vec::new();
    for (index, reference) in written.into_iter().enumerate() {
        let kind = reference.kind.unwrap_or_else(|| "Secret".to_owned());
        if kind != "Secret" || !reference.group.unwrap_or_default().is_empty() {
            refuse(format!("{field}[{index}].kind"), format!("{kind:?} is not supported: name a Secret"), "");
            continue;
        }
        let Some(name) = reference.name.filter(|name| !name.is_empty()) else {
            refuse(format!("{field}[{index}].name"), "is missing: name a Secret".to_owned(), "");
            continue;
        };
        let namespace = reference.namespace.map_or_else(|| namespace.clone(), Into::into);
        certificates.push((index, ObjectRef { kind: Kind::Secret, namespace, name: name.into() }));
    }
    certificates
}

/// The Secret with the client certificate of a Gateway, or the reason why the reference is invalid.
fn check_client_certificate(
    written: gateway_api::ObjectReference,
    namespace: &Arc<str>,
    findings: &mut Findings,
) -> Result<ObjectRef, String> {
    check_secret(written, namespace).map_err(|(within, fault)| {
        findings.error(format!("{CLIENT_CERTIFICATE}.{within}"), &*fault);
        fault
    })
}

/// The Secret that an object in this namespace names; or the invalid field of the reference, and the reason.
pub(super) fn check_secret(
    written: gateway_api::ObjectReference,
    namespace: &Arc<str>,
) -> Result<ObjectRef, (&'static str, String)> {
    let kind = written.kind.unwrap_or_else(|| "Secret".to_owned());
    if kind != "Secret" || !written.group.unwrap_or_default().is_empty() {
        return Err(("kind", format!("{kind:?} is not supported: name a Secret")));
    }
    let Some(name) = written.name.filter(|name| !name.is_empty()) else {
        return Err(("name", "is missing: name a Secret".to_owned()));
    };
    let namespace = written.namespace.map_or_else(|| namespace.clone(), Into::into);
    Ok(ObjectRef { kind: Kind::Secret, namespace, name: name.into() })
}

/// The known kinds among the kinds of routes that a listener lists.
fn check_kinds(
    written: Vec<gateway_api::RouteKind>,
    protocol: ListenerProtocol,
    listener: usize,
    findings: &mut Findings,
    unresolved: &mut Option<Fault>,
) -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (index, entry) in written.into_iter().enumerate() {
        let group = entry.group.unwrap_or_else(|| GROUP.to_owned());
        let name = entry.kind.unwrap_or_default();
        let kind = Kind::parse(&name).filter(|_| group == GROUP);
        let right = protocol.routes();
        if !kind.is_some_and(|kind| right.contains(&kind)) {
            let right: Vec<&str> = right.iter().map(|kind| kind.as_str()).collect();
            let field = format!("spec.listeners[{listener}].allowedRoutes.kinds[{index}].kind");
            let message = format!(
                "{name:?} is ignored: a listener for {protocol} accepts only {}",
                right.join(" and ")
            );
            unresolved.get_or_insert_with(|| Fault::new("InvalidRouteKinds", format!("{field}: {message}")));
            findings.warning(field, message);
        }
        kinds.extend(kind);
    }
    kinds
}

impl AllowedFrom {
    /// The namespaces as written in this field. `what` is the kind of the allowed objects in a sentence.
    fn check(
        written: Option<gateway_api::Namespaces>,
        by_default: Self,
        field: &str,
        what: &str,
        findings: &mut Findings,
    ) -> Self {
        let Some(gateway_api::Namespaces { from, selector }) = written else { return by_default };
        match from.as_deref() {
            None => by_default,
            Some("Same") => Self::Same,
            Some("All") => Self::All,
            Some("None") => Self::None,
            Some("Selector") => {
                NamespaceSelector::check(selector, &format!("{field}.selector"), what, findings)
                    .map_or(Self::None, Self::Selector)
            }
            Some(other) => {
                let fault = format!("{other:?} is unknown: write Same, Selector, All or None");
                findings.error_or(format!("{field}.from"), fault, format!("no {what} is attached"));
                Self::None
            }
        }
    }

    /// Whether an object in `own` allows objects of this namespace. `known` finds the Namespace.
    fn allows<'n>(&self, namespace: &str, own: &str, known: impl FnOnce() -> Option<&'n Namespace>) -> bool {
        match self {
            Self::Same => namespace == own,
            Self::All => true,
            Self::None => false,
            Self::Selector(selector) => known().is_some_and(|known| selector.selects(known)),
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
