//! The backends of a route.

use sluicegate_model::{Layer4Route, Protocol, Transport, UpstreamKey, WeightedUpstream};

use super::service_ref::is_permitted;
use crate::backend_tls::BackendTls;
use crate::intent::listener::{Backends, Destination};
use crate::intent::{At, Place, Reference};
use crate::object::route::{Route, ServicePortRef, backend_field};
use crate::object::{Kind, ObjectRef};
use crate::status::Fault;
use crate::store::Store;
use crate::upstream;
use crate::x_backend::{self, Use, XBackends};

/// The Service of upstreams that refuse all connections. No Service can have this name.
const REFUSED: &str = "(refused)";

/// The backends of a route, with and without regard to BackendTLSPolicies.
pub(super) fn build<'a>(
    store: &Store,
    (tls, x_backends): (&BackendTls<'_>, &XBackends<'_>),
    at: At<'a>,
    route: &Route,
) -> Backends<'a> {
    let plain = destination(store, (None, x_backends), at, route);
    let is_secured = |upstream: &UpstreamKey| {
        let is_tcp = upstream.transport.protocol == Protocol::Tcp;
        is_tcp && tls.secure(upstream.clone()).as_ref() != Ok(upstream)
    };
    let needs_tls = plain.references.iter().any(|reference| is_secured(&reference.upstream));
    let named = route.backends.iter().filter_map(|backend| backend.service.as_ref());
    let is_usable = |named: &&ServicePortRef| {
        named.kind == Kind::XBackend
            && at.object.kind != Kind::UdpRoute
            && is_permitted(store, at.object, named)
    };
    let named: Vec<ObjectRef> = named.filter(is_usable).map(ServicePortRef::object).collect();
    let is_tls = needs_tls || !named.is_empty();
    let secured = is_tls.then(|| destination(store, (Some(tls), x_backends), at, route));
    Backends { plain, secured, x_backends: named }
}

/// The destination of a route. If a backend may not be named, or is invalid, the gateway refuses its part, as Gateway API
/// requires: its weight goes to an upstream that never has an endpoint.
fn destination<'a>(
    store: &Store,
    (tls, x_backends): (Option<&BackendTls<'_>>, &XBackends<'_>),
    at: At<'a>,
    route: &Route,
) -> Destination<'a> {
    let object = at.object;
    let protocol = if object.kind == Kind::UdpRoute { Protocol::Udp } else { Protocol::Tcp };
    let (mut references, mut problems, mut unresolved) = (Vec::new(), Vec::new(), None);
    let mut backends = Vec::with_capacity(route.backends.len());
    for (index, backend) in route.backends.iter().enumerate() {
        let granted = backend.service.as_ref().filter(|service| {
            let is_granted = is_permitted(store, at.object, service);
            if !is_granted {
                let fault = match service.kind {
                    Kind::XBackend => x_backend::of_another_namespace(object, &service.object()),
                    kind => format!(
                        "{:?}: no ReferenceGrant of this namespace allows a {} of namespace {} to name {kind} {}",
                        service.namespace, object.kind, object.namespace, service.name
                    ),
                };
                let message = format!("{fault}; the share of this backend is rejected");
                let field = format!("{}.namespace", backend_field(index));
                unresolved = unresolved.take().or_else(|| Some(Fault::new("RefNotPermitted", format!("{field}: {message}"))));
                problems.push(at.warning(&field, message));
            }
            is_granted
        });
        let upstream = match granted {
            Some(named @ ServicePortRef { kind: Kind::XBackend, .. }) => {
                match x_backend(store, x_backends, tls.is_some(), protocol, named) {
                    Ok(upstream) => {
                        let place = Place::BackendRef(index);
                        references.push(Reference { at, place, upstream: upstream.clone() });
                        Some(upstream)
                    }
                    Err((within, Fault { reason, message })) => {
                        let field = format!("{}.{within}", backend_field(index));
                        unresolved.get_or_insert_with(|| Fault::new(reason, format!("{field}: {message}")));
                        problems.push(
                            at.warning(&field, format!("{message}; the share of this backend is rejected")),
                        );
                        None
                    }
                }
            }
            Some(ServicePortRef { namespace, name, port, .. }) => {
                if store.service(namespace, name).is_none() {
                    let message =
                        format!("{}.name: Service {namespace}/{name} does not exist", backend_field(index));
                    unresolved = unresolved.take().or_else(|| Some(Fault::new("BackendNotFound", message)));
                }
                let upstream = upstream::layer4_key(store, (namespace, name, port), protocol);
                let secured = tls.map_or(Ok(upstream.clone()), |tls| tls.secure(upstream));
                match secured {
                    Ok(upstream) => {
                        let place = Place::BackendRef(index);
                        references.push(Reference { at, place, upstream: upstream.clone() });
                        Some(upstream)
                    }
                    Err(fault) => {
                        let field = format!("{}.name", backend_field(index));
                        unresolved.get_or_insert_with(|| {
                            Fault::new("InvalidBackendTLSPolicy", format!("{field}: {fault}"))
                        });
                        problems.push(
                            at.warning(&field, format!("{fault}; the share of this backend is rejected")),
                        );
                        None
                    }
                }
            }
            None => {
                unresolved = unresolved.take().or_else(|| backend.fault.clone());
                None
            }
        };
        let refused = || UpstreamKey {
            namespace: object.namespace.clone(),
            service: REFUSED.into(),
            port: match &backend.service {
                Some(ServicePortRef { kind: Kind::Service, port, .. }) => port.clone(),
                _ => "-".into(),
            },
            transport: Transport { protocol, ..Transport::default() },
        };
        let upstream = upstream.unwrap_or_else(refused);
        backends.push(WeightedUpstream { upstream, weight: backend.weight });
    }
    Destination { route: Layer4Route { id: at.id(), backends }, references, problems, unresolved }
}

/// The upstream of an XBackend; or the invalid field of the reference, and the reason. TLS applies if it `is_secured`.
fn x_backend(
    store: &Store,
    x_backends: &XBackends<'_>,
    is_secured: bool,
    protocol: Protocol,
    named: &ServicePortRef,
) -> Result<UpstreamKey, (&'static str, Fault)> {
    if protocol == Protocol::Udp {
        let message = "XBackend is not supported for UDPRoutes: name a Service";
        return Err(("kind", Fault::new("InvalidKind", message)));
    }
    let by = if is_secured { Use::Tcp } else { Use::Passthrough };
    x_backends.upstream(store, &named.object(), by).map_err(|fault| ("name", fault))
}
