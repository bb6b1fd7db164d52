//! XBackends: the upstream of each XBackend, and the state of each XBackend.
//!
//! In the model, the upstream of an XBackend has the Service `XBackend/NAME`. No Service can have this name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::value::CipherSuites;
use sluicegate_model::{Protocol, Transport, TransportTls, UpstreamKey};

use crate::frontend::certificate;
use crate::intent::listener::Parent;
use crate::intent::{At, Intents};
use crate::object::x_backend::{
    BackendProtocol, CLIENT_CERTIFICATE, DENIED, Destination, Release, Tls, XBackend,
};
use crate::object::{Kind, ObjectRef};
use crate::problem::{Origin, Problem};
use crate::status::{ACCEPTED, Condition, Content, Fault, ObjectStatus};
use crate::store::Store;
use crate::{backend_tls, external};

/// The beginning of the names of Services of XBackends.
const PREFIX: &str = "XBackend/";

/// The Service of upstreams that name no valid Service. No Service can have this name.
const INVALID: &str = "(invalid name)";

/// The connections of a route to an XBackend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Requests; over HTTP/2 by default.
    Http { is_http2: bool },
    /// The bytes of connections.
    Tcp,
    /// The bytes of connections with the client's own TLS.
    Passthrough,
}

/// The Service of the upstream of an XBackend with this name.
pub(crate) fn service_of(name: &str) -> Arc<str> {
    format!("{PREFIX}{name}").into()
}

/// The Service of the upstream of a Service with this name. A name with the beginning of [`service_of`] must not lead to an
/// XBackend, which has TLS settings and needs other references. The objects that name Services do not allow such names either.
pub(crate) fn service_alone(name: &Arc<str>) -> Arc<str> {
    if name.starts_with(PREFIX) || external::is_name(name) { INVALID.into() } else { name.clone() }
}

/// The object that gives an upstream its endpoints: an XBackend or a Service.
pub(crate) fn object_of(namespace: &Arc<str>, service: &Arc<str>) -> ObjectRef {
    let (kind, name) = match service.strip_prefix(PREFIX) {
        Some(name) => (Kind::XBackend, name.into()),
        None => (Kind::Service, service.clone()),
    };
    ObjectRef { kind, namespace: namespace.clone(), name }
}

/// The XBackend of an upstream, if the upstream is that of an XBackend.
pub(crate) fn of_key(key: &UpstreamKey) -> Option<ObjectRef> {
    Some(object_of(&key.namespace, &key.service)).filter(|object| object.kind == Kind::XBackend)
}

/// The XBackends of a store.
#[derive(Default)]
pub(crate) struct XBackends<'a> {
    /// Each XBackend, or the reason why requests cannot reach it.
    usable: HashMap<&'a ObjectRef, Result<Usable<'a>, Fault>>,
}

/// The destination of an XBackend, with its TLS settings.
struct Usable<'a> {
    destination: &'a Destination,
    tls: Option<Arc<TransportTls>>,
}

impl<'a> XBackends<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        let all = store.all::<XBackend>();
        // Each check reads the CA certificates, so that it must not be made for each route.
        let usable = all.map(|(object, backend, _)| (object, Usable::of(store, object, backend)));
        Self { usable: usable.collect() }
    }

    /// The identity of the upstream of an XBackend that a route names, or the reason why no request may be sent there.
    pub(crate) fn upstream(&self, store: &Store, object: &ObjectRef, by: Use) -> Result<UpstreamKey, Fault> {
        let usable = match self.usable.get(object) {
            Some(usable) => usable.as_ref(),
            None if store.knows(object) => {
                return Err(Fault::new("InvalidBackend", format!("{object} cannot be read")));
            }
            None if store.lacks(Kind::XBackend) => {
                let message =
                    "the Kubernetes API does not have the kind XBackend; install its CRD or name a Service";
                return Err(Fault::new("InvalidKind", message));
            }
            None => return Err(Fault::new("BackendNotFound", not_found(object))),
        };
        let Usable { destination, tls } = usable.map_err(|fault| {
            Fault::new("InvalidBackend", format!("{object} is invalid: {}", fault.message))
        })?;
        let protocol = match (by, destination.protocol) {
            (Use::Http { is_http2: false }, None) | (Use::Http { .. }, Some(BackendProtocol::Http1)) => {
                Protocol::Http
            }
            (Use::Http { is_http2: true }, None) | (Use::Http { .. }, Some(BackendProtocol::Http2)) => {
                Protocol::Http2
            }
            (Use::Tcp | Use::Passthrough, None | Some(BackendProtocol::Tcp)) => Protocol::Tcp,
            (Use::Http { .. }, Some(BackendProtocol::Tcp)) => {
                let message = format!("{object} has protocol TCP, which is only for TLSRoutes and TCPRoutes");
                return Err(Fault::new("UnsupportedProtocol", message));
            }
            (Use::Tcp | Use::Passthrough, Some(BackendProtocol::Http1 | BackendProtocol::Http2)) => {
                let message = format!("{object} has a protocol for HTTPRoutes and GRPCRoutes; write TCP");
                return Err(Fault::new("UnsupportedProtocol", message));
            }
        };
        let tls = tls.clone().filter(|_| by != Use::Passthrough);
        Ok(UpstreamKey {
            namespace: object.namespace.clone(),
            service: service_of(&object.name),
            port: destination.port.to_string().into(),
            transport: Transport { protocol, tls, is_cluster_ip: false, sends_proxy: false },
        })
    }

    /// The status of each XBackend for each Gateway whose routes name the XBackend. Adds the problems of these XBackends.
    pub(crate) fn statuses(
        &self,
        store: &Store,
        intents: &Intents<'_>,
        problems: &mut Vec<Problem>,
    ) -> Vec<ObjectStatus> {
        let mut backends: Vec<(&ObjectRef, &XBackend, &Origin)> = store.all::<XBackend>().collect();
        if backends.is_empty() {
            return Vec::new();
        }
        backends.sort_by_key(|(object, ..)| *object);
        let uses = uses(intents);
        let status = |(object, backend, origin): (&ObjectRef, &XBackend, &Origin)| {
            let newest = store.not_in_service::<XBackend>(object);
            let known = self.usable.get(object).and_then(|usable| usable.as_ref().err().cloned());
            let gateways = uses.get(object).into_iter().flatten();
            let gateways: Vec<&ObjectRef> = gateways.copied().collect();
            if let (Some(fault), Ok(_), false) = (&known, &backend.destination, gateways.is_empty()) {
                // The findings of the object include all other faults.
                problems.push(At { object, origin }.warning("", format!("{}; {DENIED}", fault.message)));
            }
            let (release, generation, fault) = match newest {
                None => (backend.release, backend.generation, known),
                Some((newest, error)) => {
                    let reason = newest.destination.as_ref().err().map_or("Invalid", |fault| fault.reason);
                    (newest.release, newest.generation, Some(Fault::new(reason, error)))
                }
            };
            let accepted = Condition::unless(ACCEPTED, ACCEPTED, fault.as_ref());
            let ancestors = gateways.into_iter().map(|gateway| (gateway.clone(), vec![accepted.clone()]));
            let ancestors = ancestors.collect();
            let content = match release {
                Release::V1_6 => Content::BackendParents(ancestors),
                Release::V1_7 => Content::BackendAncestors(ancestors),
            };
            ObjectStatus { object: object.clone(), generation, content }
        };
        backends.into_iter().map(status).collect()
    }
}

/// The reason why `object` must not name an XBackend of another namespace (Gateway API, GEP-4894, "Route Attachment"). No
/// ReferenceGrant allows such a reference.
pub(crate) fn of_another_namespace(object: &ObjectRef, named: &ObjectRef) -> String {
    format!(
        "{:?}: {named} is not in the namespace of the {}, and no ReferenceGrant allows this; create an XBackend in namespace {}",
        named.namespace, object.kind, object.namespace
    )
}

/// The reason why an XBackend is unknown: without the right to read XBackends, the gateway knows none.
pub(crate) fn not_found(object: &ObjectRef) -> String {
    format!("{object} is not found; create it, or grant Sluicegate the right to list and watch xbackends")
}

impl<'a> Usable<'a> {
    fn of(store: &Store, object: &ObjectRef, backend: &'a XBackend) -> Result<Self, Fault> {
        let destination = backend.destination.as_ref().map_err(Fault::clone)?;
        let tls = destination.tls.as_ref().map(|tls| transport_tls(store, object, tls)).transpose()?;
        Ok(Self { destination, tls: tls.map(Arc::new) })
    }
}

/// The TLS settings of an XBackend, or the reason why they are unusable.
fn transport_tls(store: &Store, object: &ObjectRef, tls: &Tls) -> Result<TransportTls, Fault> {
    if let Some(fault) = backend_tls::trust_of(store, &tls.validation).fault() {
        return Err(fault);
    }
    if let Some(secret) = &tls.client_certificate {
        let fault = |reason, fault: String| Fault::new(reason, format!("{CLIENT_CERTIFICATE}: {fault}"));
        if !store.is_granted(object, &secret.namespace, (Kind::Secret, &secret.name)) {
            let message = format!(
                "no ReferenceGrant of namespace {} allows an XBackend of namespace {} to name {secret}",
                secret.namespace, object.namespace
            );
            return Err(fault("RefNotPermitted", message));
        }
        certificate::of_secret(store, secret)
            .map_err(|message| fault("InvalidClientCertificateRef", message))?;
    }
    let name_of = |secret: &ObjectRef| format!("{}/{}", secret.namespace, secret.name).into();
    Ok(TransportTls {
        server_name: tls.validation.hostname.clone(),
        sends_name: true,
        verifies: true,
        secret: tls.client_certificate.as_ref().map(name_of),
        policy: None,
        ciphers: CipherSuites::default(),
        depth: None,
    })
}

/// The external name of an XBackend, and its port.
pub(crate) fn external_name(backend: &XBackend) -> Option<(Box<str>, u16)> {
    let destination = backend.destination.as_ref().ok()?;
    // The dot keeps the resolver from trying search domains, which would lead to Services of the cluster.
    Some((format!("{}.", destination.hostname).into(), destination.port))
}

/// The Gateways whose routes name each XBackend.
fn uses<'r>(intents: &'r Intents<'_>) -> BTreeMap<&'r ObjectRef, BTreeSet<&'r ObjectRef>> {
    let mut uses: BTreeMap<&ObjectRef, BTreeSet<&ObjectRef>> = BTreeMap::new();
    let mut add = |parents: &[Parent<'_>], named: &'r [ObjectRef]| {
        for object in named {
            let gateways = intents.accepting(parents).map(|listener| listener.gateway);
            uses.entry(object).or_default().extend(gateways);
        }
    };
    for route in &intents.http_routes {
        add(&route.parents, &route.x_backends);
    }
    for route in &intents.layer4 {
        add(&route.parents, &route.backends.x_backends);
    }
    uses
}
