//! Upstreams: Services joined with their EndpointSlices.

use std::net::SocketAddr;
use std::sync::Arc;

use sluicegate_model::{
    Conditions, Endpoint, Protocol, ProxyProtocol, Transport, TransportTls, Upstream, UpstreamKey,
    UpstreamTls, Verification,
};

use crate::object::annotation;
use crate::object::backend::Backend;
use crate::object::backend_tls::Validation;
use crate::object::service::{IpProtocol, Service, ServicePort};
use crate::object::slice::EndpointSlice;
use crate::object::x_backend::XBackend;
use crate::object::{Kind, ObjectRef};
use crate::problem::{Origin, Problem, Severity};
use crate::store::Store;
use crate::x_backend;
use crate::{backend_tls, external};

/// An upstream, and its problems.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) upstream: Upstream,
    /// The port of its external name, if it has an external name.
    pub(crate) external_port: Option<u16>,
    /// The reason why it cannot have endpoints: the field inside the backend that names it, and the message.
    pub(crate) missing: Option<(&'static str, String)>,
    /// The problem between the Service and its slices.
    pub(crate) problem: Option<Problem>,
}

/// The identity of the upstream that a backend names for HTTP. One Service port is one upstream for all backends with
/// the same protocol, whether they name the port by number or by name. A port that does not exist keeps its written
/// name. The protocol of the Ingress (`said`) has precedence over the Service's, then the port's, then the route's
/// (`default`).
pub(crate) fn key(
    store: &Store,
    named: &UpstreamKey,
    said: Option<&Backend>,
    default: Option<&Backend>,
) -> UpstreamKey {
    let service = store.service(&named.namespace, &named.service).map(|(service, _)| service);
    let port = service.and_then(|service| service.port(&named.port, IpProtocol::Tcp));
    let of_service = service.and_then(|service| service.backend.as_ref());
    let backend = said.or(of_service).or(port.and_then(|port| port.backend.as_ref())).or(default);
    let mut key = UpstreamKey { service: x_backend::service_alone(&named.service), ..named.clone() };
    if let Some(port) = port {
        key.port = port.key.clone();
    }
    // The word `https` names TLS, and leaves the version of HTTP open.
    let of_tls = backend.and_then(|backend| backend.tls.as_ref()).and(default);
    if [backend, of_tls].into_iter().flatten().any(|backend| backend.http2) {
        key.transport.protocol = Protocol::Http2;
    }
    if let Some(tls) = backend.and_then(|backend| backend.tls.as_ref()) {
        let external_name = service.and_then(|service| service.external_name.clone());
        let name = tls.name.clone().or(external_name.map(|name| name.trim_end_matches('.').into()));
        let has_authorities = || {
            let data = tls.secret.as_ref().and_then(|secret| store.data(secret));
            data.is_some_and(|data| !data.authorities.is_empty())
        };
        key.transport.tls = Some(Arc::new(TransportTls {
            server_name: name.unwrap_or_else(|| format!("{}.{}.svc", key.service, key.namespace).into()),
            sends_name: tls.sends_name.unwrap_or(true),
            verifies: tls.verifies.unwrap_or_else(has_authorities),
            secret: tls.secret.as_ref().map(|secret| format!("{}/{}", secret.namespace, secret.name).into()),
            policy: None,
            ciphers: tls.ciphers,
            depth: tls.depth,
        }));
    }
    key
}

/// The identity of an upstream for connections below HTTP.
pub(crate) fn layer4_key(
    store: &Store,
    (namespace, service, port): (&Arc<str>, &Arc<str>, &Arc<str>),
    protocol: Protocol,
) -> UpstreamKey {
    let known = store.service(namespace, service);
    let known = known.and_then(|(service, _)| service.port(port, IpProtocol::below(protocol)));
    let port = known.map_or_else(|| port.clone(), |port| port.key.clone());
    let transport = Transport { protocol, ..Transport::default() };
    UpstreamKey { namespace: namespace.clone(), service: x_backend::service_alone(service), port, transport }
}

/// The TLS settings for the endpoints of an upstream, and the problem if a part is missing.
fn tls(store: &Store, transport: &TransportTls) -> (UpstreamTls, Option<String>) {
    let object = transport.secret.as_deref().and_then(secret_named);
    let data = object.as_ref().and_then(|object| store.data(object));
    let identity =
        object.as_ref().and_then(|object| store.secret(object)).and_then(|secret| secret.certificate.clone());
    let mut fault = object
        .as_ref()
        .filter(|object| !store.knows(object))
        .map(|object| format!("{object} ({}) does not exist", annotation::PROXY_SSL_SECRET));
    let verification = match transport.verifies {
        false => Verification::None,
        true => {
            let roots = data.map(|data| data.authorities.clone()).unwrap_or_default();
            if roots.is_empty() {
                fault = Some(match &object {
                    Some(object) => {
                        format!("{object} has no data[ca.crt] to verify endpoints with; requests receive 502")
                    }
                    None => format!(
                        "has no CA certificates to verify endpoints with; requests receive 502. Set {}",
                        annotation::PROXY_SSL_SECRET
                    ),
                });
            }
            let crls = data.map(|data| data.revoked.clone()).unwrap_or_default();
            Verification::Authorities { roots, crls }
        }
    };
    let (server_name, sends_name) = (transport.server_name.clone(), transport.sends_name);
    let alternative_names = None;
    let (ciphers, depth) = (transport.ciphers, transport.depth);
    let tls =
        UpstreamTls { server_name, sends_name, verification, identity, alternative_names, ciphers, depth };
    (tls, fault)
}

/// The Secret that the key of an upstream names.
fn secret_named(secret: &str) -> Option<ObjectRef> {
    let (namespace, name) = secret.split_once('/')?;
    Some(ObjectRef { kind: Kind::Secret, namespace: namespace.into(), name: name.into() })
}

/// The TLS settings of a BackendTLSPolicy.
fn tls_of_policy(store: &Store, transport: &TransportTls, policy: &str) -> UpstreamTls {
    let policy = backend_tls::named(store, policy);
    verified_tls(store, transport, policy.and_then(|policy| policy.validation.as_ref().ok()))
}

/// The TLS settings with this verification. If the object has become invalid since the route was translated, no endpoint is
/// trusted.
fn verified_tls(store: &Store, transport: &TransportTls, validation: Option<&Validation>) -> UpstreamTls {
    let trusted =
        validation.and_then(|validation| backend_tls::trust_of(store, validation).verification.ok());
    let (verification, validation) = trusted.unzip();
    let no_authority = || Verification::Authorities { roots: Vec::new(), crls: Vec::new() };
    let identity = transport
        .secret
        .as_deref()
        .and_then(secret_named)
        .and_then(|secret| store.secret(&secret)?.certificate.clone());
    UpstreamTls {
        server_name: transport.server_name.clone(),
        sends_name: transport.sends_name,
        verification: verification.unwrap_or_else(no_authority),
        identity,
        alternative_names: validation.and_then(|validation| validation.alternative_names.clone()),
        ciphers: transport.ciphers,
        depth: transport.depth,
    }
}

/// Finds the Service and the port that a backend names, and their endpoints. If one of them is missing, the upstream
/// has no endpoints.
pub(crate) fn resolve(store: &Store, key: &UpstreamKey) -> Resolved {
    if let Some(object) = x_backend::of_key(key) {
        return resolve_x_backend(store, key, &object);
    }
    if let Some(host) = external::host_of(key) {
        let tls = key.transport.tls.as_ref().map(|transport| Arc::new(tls(store, transport).0));
        let upstream = Upstream { external_name: Some(host.into()), tls, ..Upstream::default() };
        return Resolved { upstream, external_port: key.port.parse().ok(), ..Resolved::default() };
    }
    let Some((service, origin)) = store.service(&key.namespace, &key.service) else {
        let message =
            format!("Service {}/{} does not exist; {}", key.namespace, key.service, consequence(key));
        return Resolved { missing: Some(("service.name", message)), ..Resolved::default() };
    };
    let tls = |transport: &Arc<TransportTls>| match &transport.policy {
        None => tls(store, transport),
        Some(policy) => (tls_of_policy(store, transport, policy), None),
    };
    let (tls, fault) = key.transport.tls.as_ref().map(tls).unzip();
    let fault = fault.flatten().map(|fault| problem_of(key, origin, fault));
    let upstream = Upstream {
        balance: service.balance,
        limits: service.limits,
        external_name: service.external_name.clone(),
        tls: tls.map(Arc::new),
        proxy_protocol: (service.proxy_protocol)
            .or(key.transport.sends_proxy.then_some(ProxyProtocol::V1))
            .filter(|_| key.transport.protocol == Protocol::Tcp),
        health: None,
        retry_constraint: None,
        endpoints: Arc::default(),
    };
    let protocol = IpProtocol::below(key.transport.protocol);
    let port = service.port(&key.port, protocol);
    if service.external_name.is_some() {
        // An external name needs no ports of its own.
        let number = match service.has_ports(protocol) {
            false => key.port.parse().ok(),
            true => port.map(|port| port.target),
        };
        let missing = number.is_none().then(|| missing_port(key, service));
        return Resolved { upstream, external_port: number, missing, problem: fault };
    }
    let Some(port) = port else {
        return Resolved { upstream, missing: Some(missing_port(key, service)), ..Resolved::default() };
    };
    if let Some(address) = service.cluster_ip.filter(|_| key.transport.is_cluster_ip) {
        let endpoint =
            Endpoint { address: SocketAddr::new(address, port.port), conditions: Conditions::READY };
        let upstream = Upstream { endpoints: [endpoint].into(), ..upstream };
        return Resolved { upstream, external_port: None, missing: None, problem: fault };
    }
    let slices: Vec<&EndpointSlice> =
        store.slices_of(&(key.namespace.clone(), key.service.clone())).collect();
    let endpoints = endpoints(service, port, &slices);
    let mismatched = mismatch(port, &slices);
    let problem = fault.or_else(|| {
        mismatched.map(|fault| problem_of(key, origin, format!("{fault}; {}", consequence(key))))
    });
    Resolved { upstream: Upstream { endpoints, ..upstream }, external_port: None, missing: None, problem }
}

/// The external name of an XBackend.
fn resolve_x_backend(store: &Store, key: &UpstreamKey, object: &ObjectRef) -> Resolved {
    let backend = store.x_backend(object).map(|(backend, _)| backend);
    let Some((external_name, port)) = backend.and_then(x_backend::external_name) else {
        return Resolved::default();
    };
    let validation = backend.and_then(XBackend::tls).map(|tls| &tls.validation);
    let tls = key.transport.tls.as_ref();
    let upstream = Upstream {
        external_name: Some(external_name),
        tls: tls.map(|transport| Arc::new(verified_tls(store, transport, validation))),
        ..Upstream::default()
    };
    Resolved { upstream, external_port: Some(port), ..Resolved::default() }
}

/// The consequence for requests to an upstream without endpoints.
pub(crate) const ANSWERED: &str = "requests receive 503";

/// The consequence for clients if an upstream has no endpoints.
fn consequence(key: &UpstreamKey) -> &'static str {
    match key.transport.protocol {
        Protocol::Http | Protocol::Http2 => ANSWERED,
        Protocol::Tcp => "connections are refused",
        Protocol::Udp => "datagrams are dropped",
    }
}

fn missing_port(key: &UpstreamKey, service: &Service) -> (&'static str, String) {
    let protocol = IpProtocol::below(key.transport.protocol);
    let other = match protocol {
        IpProtocol::Tcp => IpProtocol::Udp,
        IpProtocol::Udp => IpProtocol::Tcp,
    };
    let hint = match service.port(&key.port, other) {
        Some(_) => format!(" ({} is for {other}, and {protocol} is needed here)", key.port),
        None => String::new(),
    };
    let message = format!(
        "Service {}/{} has no port {:?}, it has {}{hint}; {}",
        key.namespace,
        key.service,
        key.port,
        service.ports_in_words(protocol),
        consequence(key)
    );
    ("service.port", message)
}

/// The endpoints of all slices that serve this port, in the order of their addresses. An address may be in several
/// slices while an endpoint moves from one to another: then the best conditions count.
fn endpoints(service: &Service, port: &ServicePort, slices: &[&EndpointSlice]) -> Arc<[Endpoint]> {
    let mut endpoints: Vec<Endpoint> = slices
        .iter()
        .flat_map(|slice| slice.ports.iter().map(move |slice_port| (slice, slice_port)))
        .filter(|(_, slice_port)| slice_port.serves(port))
        .flat_map(|(slice, slice_port)| {
            slice.endpoints.iter().map(|(address, conditions)| Endpoint {
                address: SocketAddr::new(*address, slice_port.port),
                conditions: Conditions {
                    ready: conditions.ready || service.publish_not_ready,
                    serving: conditions.serving || service.publish_not_ready,
                    terminating: conditions.terminating,
                },
            })
        })
        .collect();
    endpoints.sort_unstable_by_key(|endpoint| {
        let Conditions { ready, serving, terminating } = endpoint.conditions;
        (endpoint.address, !ready, !serving, terminating)
    });
    endpoints.dedup_by_key(|endpoint| endpoint.address);
    endpoints.into()
}

/// The reason why a Service's port has no endpoints, if its slices do not name the port.
fn mismatch(port: &ServicePort, slices: &[&EndpointSlice]) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for slice in slices {
        if slice.ports.iter().any(|slice_port| slice_port.serves(port)) {
            return None;
        }
        names.extend(slice.ports.iter().map(|slice_port| match slice_port.protocol {
            IpProtocol::Tcp => slice_port.name.to_string(),
            IpProtocol::Udp => format!("{}/UDP", slice_port.name),
        }));
    }
    if slices.is_empty() {
        return Some("has no EndpointSlice".to_owned());
    }
    // A slice without endpoints may leave its ports out.
    if names.is_empty() {
        return None;
    }
    names.sort_unstable();
    names.dedup();
    let protocol = match port.protocol {
        IpProtocol::Tcp => "",
        IpProtocol::Udp => "UDP ",
    };
    Some(format!(
        "has no EndpointSlice with a {protocol}port named {:?}, the name of port {}; its slices have {names:?}",
        port.name, port.port
    ))
}

/// The problem of a Service whose external name cannot be looked up; whether it `has_endpoints` from before.
pub(crate) fn unresolvable(
    store: &Store,
    key: &UpstreamKey,
    name: &str,
    fault: &str,
    has_endpoints: bool,
) -> Option<Problem> {
    let of_x_backend = x_backend::of_key(key);
    let (origin, field) = match &of_x_backend {
        Some(object) => (store.x_backend(object)?.1, "spec.externalHostname.hostname"),
        None => (store.service(&key.namespace, &key.service)?.1, "spec.externalName"),
    };
    let consequence = if has_endpoints { "the last addresses stay in service" } else { consequence(key) };
    let message = format!("cannot resolve {name:?}: {fault}; {consequence}");
    let problem = Problem { field: field.to_owned(), ..problem_of(key, origin, message) };
    Some(Problem { object: of_x_backend.or(problem.object), ..problem })
}

fn problem_of(key: &UpstreamKey, origin: &Origin, message: String) -> Problem {
    let object =
        ObjectRef { kind: Kind::Service, namespace: key.namespace.clone(), name: key.service.clone() };
    Problem {
        severity: Severity::Warning,
        origin: origin.clone(),
        object: Some(object),
        field: String::new(),
        message,
        cause: None,
    }
}
