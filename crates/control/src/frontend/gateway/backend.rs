//! The backends of a route.

use sluicegate_model::{Layer4Route, Protocol, Transport, UpstreamKey, WeightedUpstream};

use crate::intent::listener::Backends;
use crate::intent::{At, Place, Reference};
use crate::object::Kind;
use crate::object::route::{Route, ServicePortRef, backend_field};
use crate::status::Fault;
use crate::store::Store;
use crate::upstream;

/// The Service of upstreams that refuse all connections. No Service can have this name.
const REFUSED: &str = "(refused)";

/// The backends of a route. If a backend may not be named, or is invalid, the gateway refuses its part, as Gateway API
/// requires: its weight goes to an upstream that never has an endpoint.
pub(super) fn build<'a>(store: &Store, at: At<'a>, route: &Route) -> Backends<'a> {
    let object = at.object;
    let protocol = if object.kind == Kind::UdpRoute { Protocol::Udp } else { Protocol::Tcp };
    let (mut references, mut problems, mut unresolved) = (Vec::new(), Vec::new(), None);
    let mut backends = Vec::with_capacity(route.backends.len());
    for (index, backend) in route.backends.iter().enumerate() {
        let granted = backend.service.as_ref().filter(|service| {
            let is_granted = store.is_granted(object, &service.namespace, (Kind::Service, &service.name));
            if !is_granted {
                let message = format!(
                    "{:?}: no ReferenceGrant of this namespace allows a {} of namespace {} to name Service {}; the share of this backend is rejected",
                    service.namespace, object.kind, object.namespace, service.name
                );
                let field = format!("{}.namespace", backend_field(index));
                unresolved = unresolved.take().or_else(|| Some(Fault::new("RefNotPermitted", format!("{field}: {message}"))));
                problems.push(at.warning(&field, message));
            }
            is_granted
        });
        let upstream = match granted {
            Some(ServicePortRef { namespace, name, port }) => {
                if store.service(namespace, name).is_none() {
                    let message =
                        format!("{}.name: Service {namespace}/{name} does not exist", backend_field(index));
                    unresolved = unresolved.take().or_else(|| Some(Fault::new("BackendNotFound", message)));
                }
                let upstream = upstream::layer4_key(store, (namespace, name, port), protocol);
                let place = Place::BackendRef(index);
                references.push(Reference { at, place, upstream: upstream.clone() });
                upstream
            }
            None => {
                unresolved = unresolved.take().or_else(|| backend.fault.clone());
                UpstreamKey {
                    namespace: object.namespace.clone(),
                    service: REFUSED.into(),
                    port: backend.service.as_ref().map_or_else(|| "-".into(), |service| service.port.clone()),
                    transport: Transport { protocol, tls: None },
                }
            }
        };
        backends.push(WeightedUpstream { upstream, weight: backend.weight });
    }
    Backends { route: Layer4Route { id: at.id(), backends }, references, problems, unresolved }
}
