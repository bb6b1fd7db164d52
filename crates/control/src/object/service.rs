//! `Service`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sluicegate_model::value::syntax;
use sluicegate_model::{Balance, Protocol, ProxyProtocol, UpstreamLimits};

use super::backend::Backend;
use super::kind::Raw;
use super::{Kind, Object, ObjectRef, annotation};
use crate::problem::Findings;

/// A checked `Service`.
#[derive(Debug, PartialEq)]
pub(crate) struct Service {
    /// `spec.externalName`, if that is the Service's type.
    pub(crate) external_name: Option<Box<str>>,
    pub(crate) ports: Vec<ServicePort>,
    /// `spec.clusterIP`, if the Service has one.
    pub(crate) cluster_ip: Option<IpAddr>,
    /// Whether endpoints receive requests before they are ready.
    pub(crate) publish_not_ready: bool,
    pub(crate) balance: Balance,
    pub(crate) limits: UpstreamLimits,
    /// The protocol to its endpoints over HTTP, if its annotations set one.
    pub(crate) backend: Option<Backend>,
    /// The version of the PROXY protocol for TCP connections to its endpoints, if its annotations set one.
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    /// The Service as a Service of a Gateway, if an annotation names a Gateway.
    pub(crate) of_gateway: Option<Arc<OfGateway>>,
}

/// A Service that the gateway created for a Gateway.
#[derive(Debug, PartialEq)]
pub(crate) struct OfGateway {
    /// The Gateway as `NAMESPACE/NAME`, by the annotation [`annotation::GATEWAY`].
    pub(crate) gateway: Box<str>,
    /// The `targetPort` of each port, if it is a number. Ports for HTTP/3 are missing.
    pub(crate) targets: BTreeMap<(IpProtocol, u16), u16>,
    /// The Service as the API server sent it.
    pub(crate) raw: v1::Service,
}

/// The protocol of a port; SCTP is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IpProtocol {
    Tcp,
    Udp,
}

impl IpProtocol {
    /// The protocol with that name, TCP by default.
    pub(crate) fn of(name: Option<&str>) -> Option<Self> {
        match name {
            None | Some("TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some(_) => None,
        }
    }

    /// The transport protocol below the protocol of endpoints.
    pub(crate) fn below(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http | Protocol::Http2 | Protocol::Tcp => Self::Tcp,
            Protocol::Udp => Self::Udp,
        }
    }
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// A port of a Service. The Service's EndpointSlices give its destination, under the same name.
#[derive(Debug, PartialEq)]
pub(crate) struct ServicePort {
    /// Its name, empty for the only port of a Service.
    pub(crate) name: Arc<str>,
    pub(crate) protocol: IpProtocol,
    pub(crate) port: u16,
    /// The key of the port, however backends name it: its name, which the slices use too, so that the key stays when
    /// the number changes. The number is the key of a port without a name.
    pub(crate) key: Arc<str>,
    /// `targetPort` if it is a number, else `port`. Only an external name uses this port; for all others the slices
    /// give the port.
    pub(crate) target: u16,
    /// The protocol to its endpoints over HTTP, if `appProtocol` sets one.
    pub(crate) backend: Option<Backend>,
}

impl Service {
    pub(crate) fn check(raw: v1::Service, namespace: &Arc<str>, findings: &mut Findings) -> Self {
        let of_gateway = OfGateway::of(&raw).map(Arc::new);
        let annotations = raw.metadata.annotations.as_ref();
        let settings = annotation::read(Kind::Service, annotations, namespace, findings);
        if annotation::has_kong_plugins(annotations) {
            let message = annotation::kong_plugins_fault("requests reach the Service without them");
            findings.warning(annotation::field(annotation::KONG_PLUGINS), message);
        }
        let backend = Backend::check(annotations, &settings, findings);
        let spec = raw.spec.unwrap_or_default();
        let is_external = spec.type_.as_deref() == Some("ExternalName");
        let external_name = is_external.then(|| check_external_name(spec.external_name, findings)).flatten();
        let ports = check_ports(spec.ports.unwrap_or_default(), findings);
        Self {
            external_name,
            ports,
            cluster_ip: spec.cluster_ip.and_then(|address| address.parse().ok()),
            publish_not_ready: spec.publish_not_ready_addresses.unwrap_or_default(),
            backend,
            proxy_protocol: settings.proxy_protocol,
            of_gateway,
            balance: settings.load_balance.unwrap_or_default(),
            limits: UpstreamLimits {
                max_requests: settings.max_requests,
                max_requests_per_endpoint: settings.max_requests_per_endpoint,
            },
        }
    }

    /// The port of this protocol that a backend names by its number or its name. `53` may be two ports: TCP and UDP.
    pub(crate) fn port(&self, named: &str, protocol: IpProtocol) -> Option<&ServicePort> {
        let mut ports = self.ports.iter().filter(|port| port.protocol == protocol);
        match named.parse::<u16>() {
            Ok(number) => ports.find(|port| port.port == number),
            Err(_) => ports.find(|port| &*port.name == named),
        }
    }

    /// Whether it has a port of this protocol.
    pub(crate) fn has_ports(&self, protocol: IpProtocol) -> bool {
        self.ports.iter().any(|port| port.protocol == protocol)
    }

    /// Its ports of this protocol in words, for a message.
    pub(crate) fn ports_in_words(&self, protocol: IpProtocol) -> String {
        let words: Vec<String> = self
            .ports
            .iter()
            .filter(|port| port.protocol == protocol)
            .map(|port| match &*port.name {
                "" => port.port.to_string(),
                name => format!("{} ({name})", port.port),
            })
            .collect();
        if words.is_empty() { format!("no {protocol} port") } else { words.join(", ") }
    }
}

impl OfGateway {
    /// A Service with an annotation that names a Gateway.
    pub(crate) fn of(raw: &v1::Service) -> Option<Self> {
        let gateway = raw.metadata.annotations.as_ref()?.get(annotation::GATEWAY)?.as_str().into();
        let ports = raw.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let target = |port: &v1::ServicePort| {
            let Some(IntOrString::Int(target)) = port.target_port else { return None };
            let key = (IpProtocol::of(port.protocol.as_deref())?, u16::try_from(port.port).ok()?);
            Some((key, u16::try_from(target).ok()?))
        };
        let mut targets: BTreeMap<_, _> = ports.filter_map(target).collect();
        // A UDP port with the target of the TCP port is for HTTP/3.
        let tcp = targets.clone();
        targets.retain(|&(protocol, port), target| {
            protocol == IpProtocol::Tcp || tcp.get(&(IpProtocol::Tcp, port)) != Some(target)
        });
        Some(Self { gateway, targets, raw: raw.clone() })
    }
}

/// The addresses of a Service: of its load balancer, its external IPs, or else its cluster IP.
pub(crate) fn addresses(service: &v1::Service) -> Vec<Box<str>> {
    let spec = service.spec.clone().unwrap_or_default();
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    let of_balancer = ingress.filter_map(|ingress| ingress.ip.clone().or(ingress.hostname.clone()));
    let mut addresses: Vec<String> = of_balancer.chain(spec.external_ips.unwrap_or_default()).collect();
    match spec.type_.as_deref() {
        Some("ExternalName") => addresses.extend(spec.external_name),
        // Until its load balancer has an address, clients cannot reach it.
        Some("LoadBalancer") => {}
        _ if addresses.is_empty() => {
            addresses.extend(spec.cluster_ip.filter(|address| address != "None" && !address.is_empty()));
        }
        _ => {}
    }
    addresses.into_iter().map(Into::into).collect()
}

fn check_external_name(name: Option<String>, findings: &mut Findings) -> Option<Box<str>> {
    let name = name.unwrap_or_default();
    // A trailing dot is allowed here: it keeps the resolver from trying search domains.
    let fault = match name.strip_suffix('.').unwrap_or(&name) {
        "" => Some("is missing"),
        name => syntax::endpoint_name_fault(&name.to_ascii_lowercase()),
    };
    if let Some(fault) = fault {
        findings.error("spec.externalName", format!("{name:?} {fault}"));
        return None;
    }
    Some(name.into())
}

fn check_ports(raw: Vec<v1::ServicePort>, findings: &mut Findings) -> Vec<ServicePort> {
    let several = raw.len() > 1;
    let mut ports: Vec<ServicePort> = Vec::with_capacity(raw.len());
    for (index, port) in raw.into_iter().enumerate() {
        let name = port.name.unwrap_or_default();
        if several && name.is_empty() {
            findings.error(
                format!("spec.ports[{index}].name"),
                "is missing: name each port of a Service with several ports",
            );
            continue;
        }
        if ports.iter().any(|other| *other.name == *name) {
            findings.error(
                format!("spec.ports[{index}].name"),
                format!("{name:?} is the name of two ports: rename one"),
            );
            continue;
        }
        let Some(protocol) = IpProtocol::of(port.protocol.as_deref()) else { continue };
        let field = format!("spec.ports[{index}]");
        let number = |number: i32| u16::try_from(number).ok().filter(|number| *number > 0);
        let Some(published) = number(port.port) else {
            findings.error(format!("{field}.port"), format!("{} is not between 1 and 65535", port.port));
            continue;
        };
        let backend = port.app_protocol.as_deref().and_then(Backend::of_app_protocol);
        let target = match port.target_port {
            Some(IntOrString::Int(target)) => number(target).unwrap_or_else(|| {
                findings.error(format!("{field}.targetPort"), format!("{target} is not between 1 and 65535"));
                published
            }),
            Some(IntOrString::String(_)) | None => published,
        };
        let name: Arc<str> = name.into();
        let is_name = !name.is_empty() && name.parse::<u16>().is_err();
        let key = if is_name { name.clone() } else { published.to_string().into() };
        ports.push(ServicePort { name, protocol, port: published, key, target, backend });
    }
    ports
}

impl Raw for v1::Service {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Service::check(self, &object.namespace, findings).into())
    }
}
