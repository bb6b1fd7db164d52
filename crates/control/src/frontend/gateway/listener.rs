//! The listeners of a Gateway or a ListenerSet, and their sockets.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sluicegate_model::{Certificate, ClientAuth, ClientAuthMode, Planes, ProxyHeader};

use super::service::{self, Lack, Placement};
use super::service_ref;
use crate::backend_tls::{self, BackendTls, Untrusted};
use crate::frontend::certificate;
use crate::intent::listener::{Listener, Openers, Socket};
use crate::intent::{At, Place};
use crate::object::gateway::{self, ClientValidation, Gateway, ListenerProtocol, NO_AUTHORITIES};
use crate::object::namespace::Namespace;
use crate::object::service::IpProtocol;
use crate::object::{Kind, ObjectRef};
use crate::problem::Problem;
use crate::status::Fault;
use crate::store::Store;
use crate::translate::{GatewayServices, TranslateOptions};

const INVALID_CLIENT_CERTIFICATE: &str = "InvalidClientCertificateRef";
const INVALID_AUTHORITIES: &str = "InvalidCACertificateRef";
const INVALID_KIND: &str = "InvalidCACertificateKind";

/// The parts of a Gateway that all its listeners share, also the listeners of its ListenerSets.
pub(super) struct Shared<'a> {
    gateway: &'a ObjectRef,
    /// Its data planes and its Service, if Gateways have Services.
    pub(super) placement: Option<Placement>,
    planes: Planes,
    openers: Openers,
    addresses: Vec<IpAddr>,
    /// Whether no listener may have a socket, because none of the addresses that the Gateway requests is available.
    is_closed: bool,
    /// The Secret with its client certificate.
    client_certificate: Option<Arc<str>>,
    clients: Clients,
    /// Whether the Gateway asks for certificates of an ACME server.
    acme: bool,
}

impl<'a> Shared<'a> {
    /// The parts of a Gateway, and the reason why its client certificate is unusable. `number` is the place of the Gateway in
    /// [`Intents`](crate::intent::Intents).
    pub(super) fn new(
        store: &Store,
        at: At<'a>,
        number: usize,
        gateway: &Gateway,
        options: &TranslateOptions,
        problems: &mut Vec<Problem>,
    ) -> (Self, Option<Fault>) {
        let (client_certificate, unresolved) = client_certificate(store, at, gateway, problems);
        let mut placement = None;
        if let Some(services) = &options.gateway_services {
            let of = Placement::of(store, options, services, at.object, gateway);
            problems.extend(service_problems(store, options, services, &of, at, gateway));
            placement = Some(of);
        }
        let (planes, openers) = match &placement {
            Some(placement) if placement.has_own() => {
                let scope = service::scope(at.object);
                let (planes, shared) = match placement.former {
                    Some(_) => (Planes::Both(scope), true),
                    None => (Planes::Own(scope), false),
                };
                (planes, Openers { shared, own: Some(number) })
            }
            _ => (Planes::Shared, Openers::SHARED),
        };
        let addresses = addresses(gateway, options);
        let is_closed = options.gateway_services.is_none() && gateway.is_confined;
        if is_closed && gateway.requests_cluster_ip() {
            let message = "requests a cluster IP, but the Gateway has no Service; the Gateway is not served. Give each Gateway a \
                           Service (--gateway-services) or remove routability";
            problems.push(at.warning("spec.addresses", message.to_owned()));
        }
        let clients = Clients::of(store, at, gateway, problems);
        let shared = Self {
            gateway: at.object,
            placement,
            planes,
            openers,
            addresses,
            is_closed,
            client_certificate,
            clients,
            acme: gateway.acme,
        };
        (shared, unresolved)
    }
}

/// The intents of the listeners of a Gateway or a ListenerSet, in the order of its listeners.
pub(super) fn intents<'a>(
    store: &Store,
    tls: &BackendTls<'_>,
    at: At<'a>,
    listeners: &'a [gateway::Listener],
    shared: &Shared<'a>,
    options: &TranslateOptions,
    problems: &mut Vec<Problem>,
) -> Vec<Listener<'a>> {
    let Shared {
        gateway,
        placement,
        planes,
        openers,
        addresses,
        is_closed,
        client_certificate,
        clients,
        acme,
    } = shared;
    let mut intent = |listener: &'a gateway::Listener| {
        let place = Place::Listener(listener.index);
        let field = |within: &str| format!("{}.{within}", place.field());
        if listener.selects_namespaces() && store.all::<Namespace>().next().is_none() {
            let message = "selects no namespace, because the gateway knows no Namespace; no route is attached. In a cluster, allow \
                           the gateway to get, list and watch namespaces";
            problems.push(at.warning(&field("allowedRoutes.namespaces.selector"), message.to_owned()));
        }
        let mut is_waiting = false;
        let sockets = match options.gateway_services.as_ref().zip(placement.as_ref()) {
            Some((services, placement)) => {
                let port = || service::target(store, services, placement, gateway, service::key(listener));
                own_sockets(listener, addresses, *openers, port).map_err(|lack| match lack {
                    Lack::Waits(fault) => {
                        is_waiting = true;
                        at.note(&field("port"), fault)
                    }
                    Lack::Foreign(fault) => at.warning(&field("port"), fault),
                })
            }
            None if *is_closed => Ok(Vec::new()),
            None => sockets(listener, addresses, options).map_err(|fault| at.warning(&field("port"), fault)),
        };
        let (certificates, unresolved) = certificates(store, at, listener, problems);
        let clients = clients.at(listener);
        let client_auth = clients.map(|clients| match certificates.is_empty() {
            // The default certificate must not admit clients in place of the certificate that is missing.
            true => Arc::new(rejecting_policy()),
            false => clients.policy.clone(),
        });
        let presented = client_certificate.as_ref();
        let (filters, of_filters) =
            service_ref::listener_filters(store, tls, at, listener, presented, problems);
        Listener {
            at,
            gateway,
            place,
            name: &listener.name,
            protocol: listener.protocol,
            hostname: &listener.hostname,
            port: listener.port,
            planes: planes.clone(),
            entry_point: options.gateway_services.as_ref().map(|_| entry_point(gateway, listener.port)),
            certificates,
            // A ListenerSet may belong to another namespace than the Gateway with the annotation.
            acme: match &*listener.certificates {
                [(index, secret), ..] if *acme && at.object == *gateway => Some((*index, secret)),
                _ => None,
            },
            client_auth,
            closed: (clients.and_then(|clients| clients.closed.clone()))
                .or_else(|| listener.filters.fault.clone()),
            filters,
            client_certificate: client_certificate.clone(),
            unresolved: (listener.unresolved.clone().or(unresolved))
                .or_else(|| clients.and_then(|clients| clients.unresolved.clone()))
                .or(of_filters),
            is_waiting,
            proxy_header: ProxyHeader::ByPeer,
            leads_to: None,
            sockets,
        }
    };
    listeners.iter().map(&mut intent).collect()
}

/// The valid certificates of a listener, one for each kind of key, and the first reference that leads to none.
fn certificates(
    store: &Store,
    at: At<'_>,
    listener: &gateway::Listener,
    problems: &mut Vec<Problem>,
) -> (Vec<Arc<Certificate>>, Option<Fault>) {
    let mut certificates: Vec<Arc<Certificate>> = Vec::new();
    let (mut faults, mut unresolved) = (Vec::new(), None);
    for (index, secret) in &listener.certificates {
        let (certificate, is_granted) = certificate_of(store, at, secret);
        match certificate {
            Ok(new) if certificates.iter().any(|known| known.key_kind == new.key_kind) => {
                faults.push((
                    *index,
                    format!("{secret} is ignored: an earlier certificate has the same type of key"),
                ));
            }
            Ok(new) => certificates.push(new),
            Err(fault) => {
                let reason = if is_granted { "InvalidCertificateRef" } else { "RefNotPermitted" };
                unresolved.get_or_insert_with(|| Fault::new(reason, fault.clone()));
                faults.push((*index, fault));
            }
        }
    }
    certificates.sort_by_key(|certificate| certificate.key_kind);
    let consequence = if certificates.is_empty() { "; the listener rejects every client" } else { "" };
    for (index, fault) in faults {
        let field = format!("{}.tls.certificateRefs[{index}]", Place::Listener(listener.index).field());
        problems.push(at.warning(&field, format!("{fault}{consequence}")));
    }
    (certificates, unresolved)
}

/// The certificate of a Secret that a Gateway or a ListenerSet names, or the reason why there is none; and whether the
/// object may name the Secret.
fn certificate_of(store: &Store, at: At<'_>, secret: &ObjectRef) -> (Result<Arc<Certificate>, String>, bool) {
    if store.is_granted(at.object, &secret.namespace, (Kind::Secret, &secret.name)) {
        return (certificate::of_secret(store, secret), true);
    }
    (Err(not_granted(at, secret)), false)
}

fn not_granted(at: At<'_>, object: &ObjectRef) -> String {
    format!(
        "no ReferenceGrant of namespace {} allows a {} of namespace {} to name {object}",
        object.namespace, at.object.kind, at.object.namespace
    )
}

/// The Secret with the client certificate of a Gateway, as `namespace/name`, if the certificate is usable; and the reason
/// if not.
fn client_certificate(
    store: &Store,
    at: At<'_>,
    gateway: &Gateway,
    problems: &mut Vec<Problem>,
) -> (Option<Arc<str>>, Option<Fault>) {
    let secret = match &gateway.client_certificate {
        None => return (None, None),
        Some(Ok(secret)) => secret,
        Some(Err(fault)) => return (None, Some(Fault::new(INVALID_CLIENT_CERTIFICATE, &**fault))),
    };
    match certificate_of(store, at, secret) {
        (Ok(_), _) => (Some(format!("{}/{}", secret.namespace, secret.name).into()), None),
        (Err(fault), is_granted) => {
            let message = format!("{fault}; the Gateway presents no certificate to endpoints");
            problems.push(at.warning(gateway::CLIENT_CERTIFICATE, message));
            let reason = if is_granted { INVALID_CLIENT_CERTIFICATE } else { "RefNotPermitted" };
            (None, Some(Fault::new(reason, fault)))
        }
    }
}

/// The clients that the listeners for HTTPS of a Gateway admit.
struct Clients {
    default: Option<Admitted>,
    /// The ports that the default does not apply to.
    ports: BTreeMap<u16, Option<Admitted>>,
}

/// The clients that a validation admits.
struct Admitted {
    policy: Arc<ClientAuth>,
    /// The first invalid reference.
    unresolved: Option<Fault>,
    /// The reason why all clients are rejected.
    closed: Option<Fault>,
}

impl Clients {
    fn of(store: &Store, at: At<'_>, gateway: &Gateway, problems: &mut Vec<Problem>) -> Self {
        let mut admitted = |validation: &ClientValidation| Admitted::by(store, at, validation, problems);
        let ports = gateway.frontend.ports.iter();
        Self {
            default: gateway.frontend.default.as_ref().map(&mut admitted),
            ports: ports.map(|(port, own)| (*port, own.as_ref().map(&mut admitted))).collect(),
        }
    }

    /// The clients that a listener admits; `None` for all clients.
    fn at(&self, listener: &gateway::Listener) -> Option<&Admitted> {
        let is_https = listener.protocol == ListenerProtocol::Https;
        let admitted = self.ports.get(&listener.port).unwrap_or(&self.default).as_ref();
        admitted.filter(|_| is_https)
    }
}

impl Admitted {
    /// The clients with a certificate of a valid CA certificate. Reports the invalid references.
    fn by(store: &Store, at: At<'_>, validation: &ClientValidation, problems: &mut Vec<Problem>) -> Self {
        let (mut sources, mut roots, mut crls) = (Vec::new(), Vec::new(), Vec::new());
        let (mut faults, mut unresolved) = (Vec::new(), None);
        if validation.authorities.is_empty() {
            let fault = format!("{}: {NO_AUTHORITIES}; every client is rejected", validation.field);
            unresolved = Some(Fault::new(INVALID_AUTHORITIES, fault));
        }
        for reference in &validation.authorities {
            let found = match &reference.object {
                Ok(object)
                    if !object.kind.is_cluster_scoped()
                        && !store.is_granted(at.object, &object.namespace, (object.kind, &object.name)) =>
                {
                    Err(("RefNotPermitted", not_granted(at, object)))
                }
                Ok(object) => match backend_tls::authorities(store, object) {
                    Ok(trusted) => Ok((object, trusted)),
                    Err(Untrusted { is_kind: true, message }) => Err((INVALID_KIND, message)),
                    Err(Untrusted { message, .. }) => Err((INVALID_AUTHORITIES, message)),
                },
                Err(fault) => {
                    let reason = if fault.is_kind { INVALID_KIND } else { INVALID_AUTHORITIES };
                    let message = format!("{}: {}", reference.field, fault.message);
                    unresolved.get_or_insert_with(|| Fault::new(reason, message));
                    continue;
                }
            };
            match found {
                Ok((object, trusted)) => {
                    sources.push(object.to_string());
                    roots.extend(trusted.roots.iter().cloned());
                    crls.extend(trusted.crls.iter().cloned());
                }
                Err((reason, fault)) => {
                    let message = format!("{}: {fault}", reference.field);
                    unresolved.get_or_insert_with(|| Fault::new(reason, message));
                    faults.push((&reference.field, fault));
                }
            }
        }
        let is_closed = roots.is_empty();
        let consequence =
            if is_closed { "every client is rejected" } else { "the other CA certificates are trusted" };
        for (field, fault) in faults {
            problems.push(at.warning(field, format!("{fault}; {consequence}")));
        }
        let closed = unresolved.as_ref().filter(|_| is_closed);
        let closed = closed.map(|fault: &Fault| Fault::new("NoValidCACertificate", fault.message.clone()));
        let policy = match is_closed {
            true => rejecting_policy(),
            false => {
                let (source, mode) = (sources.join(", ").into(), validation.mode);
                ClientAuth { source, roots, crls, mode, forward: false, at_requests: None }
            }
        };
        Self { policy: Arc::new(policy), unresolved, closed }
    }
}

/// The policy under which a listener rejects every client.
fn rejecting_policy() -> ClientAuth {
    ClientAuth {
        source: "nothing".into(),
        roots: Vec::new(),
        crls: Vec::new(),
        mode: ClientAuthMode::Required,
        forward: false,
        at_requests: None,
    }
}

/// The name of the entry point of the listeners at a port of a Gateway with a Service of its own.
fn entry_point(gateway: &ObjectRef, port: u16) -> Arc<str> {
    format!("{}/{}:{port}", gateway.namespace, gateway.name).into()
}

/// The problems of a Gateway with its Service.
fn service_problems(
    store: &Store,
    options: &TranslateOptions,
    services: &GatewayServices,
    placement: &Placement,
    at: At<'_>,
    gateway: &Gateway,
) -> Option<Problem> {
    if let Some(message) = service::unusable_address(store, options, services, placement, at.object, gateway)
    {
        return Some(at.warning("spec.addresses", message));
    }
    let is_waiting = service::addresses(store, services, placement, at.object)
        .is_some_and(|addresses| !addresses.are_known());
    is_waiting.then(|| {
        let (namespace, name) = &placement.service;
        at.note("", format!("Service {namespace}/{name} has no address yet"))
    })
}

/// The sockets of a listener behind the Service of its Gateway, which leads to the result of `port`; or the reason why there
/// are none.
fn own_sockets(
    listener: &gateway::Listener,
    addresses: &[IpAddr],
    openers: Openers,
    port: impl FnOnce() -> Result<u16, Lack>,
) -> Result<Vec<Socket>, Lack> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let (port, (protocol, _)) = (port()?, service::key(listener));
    let own = |address: &IpAddr| Socket::Own { address: SocketAddr::new(*address, port), protocol, openers };
    Ok(addresses.iter().map(own).collect())
}

/// The addresses of a Gateway. Behind a Service, the addresses of a Gateway are those of the Service. An address is redundant beside the wildcard address of its family.
fn addresses(gateway: &Gateway, options: &TranslateOptions) -> Vec<IpAddr> {
    let own = gateway.addresses.as_ref();
    let is_behind_service = |own: &Vec<IpAddr>| !own.is_empty() || gateway.requests_cluster_ip();
    let own = own.filter(|own| options.gateway_services.is_none() || !is_behind_service(own));
    let written = own.unwrap_or(&options.gateway_addresses);
    let mut addresses = written.clone();
    addresses.retain(|address| {
        let covers = |other: &IpAddr| other.is_unspecified() && other.is_ipv4() == address.is_ipv4();
        address.is_unspecified() || !written.iter().any(covers)
    });
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The use of a TCP port by the process itself.
#[derive(Clone, Copy)]
pub(crate) enum UsedPort {
    Http,
    Https,
    Admin,
}

impl fmt::Display for UsedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP (--listen, --published-http-ports)",
            Self::Https => "HTTPS (--listen-https, --published-https-ports)",
            Self::Admin => "the admin interface (--admin)",
        })
    }
}

/// The use of a TCP port by the process itself; `None` for a free port.
pub(crate) fn used_port(port: u16, options: &TranslateOptions) -> Option<UsedPort> {
    match () {
        () if options.http_ports.contains(&port) => Some(UsedPort::Http),
        () if options.admin_port == Some(port) => Some(UsedPort::Admin),
        () if options.https_ports.contains(&port) => Some(UsedPort::Https),
        () => None,
    }
}

/// The sockets of a listener, or the reason why it has none.
fn sockets(
    listener: &gateway::Listener,
    addresses: &[IpAddr],
    options: &TranslateOptions,
) -> Result<Vec<Socket>, String> {
    let port = listener.port;
    let protocol = match listener.protocol {
        ListenerProtocol::Udp => IpProtocol::Udp,
        _ => IpProtocol::Tcp,
    };
    if protocol == IpProtocol::Tcp {
        match (used_port(port, options), listener.protocol) {
            (Some(UsedPort::Http), ListenerProtocol::Http) => return Ok(vec![Socket::Http(port)]),
            (Some(UsedPort::Https), ListenerProtocol::Https | ListenerProtocol::Tls) => {
                return Ok(vec![Socket::Https(port)]);
            }
            (Some(used), _) => {
                return Err(format!(
                    "{port} is a port of {used}; the listener is not served. Choose another port"
                ));
            }
            (None, _) => {}
        }
    }
    let own = |address: &IpAddr| {
        let address = SocketAddr::new(*address, port);
        Socket::Own { address, protocol, openers: Openers::SHARED }
    };
    Ok(addresses.iter().map(own).collect())
}
