//! The Services that routes and listeners name for HTTP.

use std::sync::Arc;

use sluicegate_model::UpstreamKey;
use sluicegate_model::policy::Security;

use crate::backend_tls::{self, BackendTls};
use crate::intent::listener::ListenerFilters;
use crate::intent::{At, Place, Reference};
use crate::object::ObjectRef;
use crate::object::backend::Backend;
use crate::object::external_auth::OF_LISTENER;
use crate::object::gateway::Listener;
use crate::object::route::ServicePortRef;
use crate::object::service::IpProtocol;
use crate::problem::Problem;
use crate::status::Fault;
use crate::store::Store;
use crate::upstream;
use crate::x_backend::{self, Use, XBackends};

/// The upstream of a Service, or the reason why the gateway may not use the Service.
pub(super) struct Resolved {
    /// The upstream, with the settings of the BackendTLSPolicy.
    pub(super) upstream: Result<UpstreamKey, Unresolved>,
    /// The upstream without regard to BackendTLSPolicies, if the Service exists.
    pub(super) named: Option<UpstreamKey>,
}

/// Why the gateway may not use a Service.
pub(super) struct Unresolved {
    /// The faulty field of the reference.
    pub(super) within: &'static str,
    pub(super) reason: &'static str,
    pub(super) fault: String,
    /// Whether the Service does not exist, or lacks the port.
    pub(super) is_missing: bool,
}

/// Whether an object may name this backend.
pub(super) fn is_permitted(store: &Store, object: &ObjectRef, named: &ServicePortRef) -> bool {
    store.is_granted(object, &named.namespace, (named.kind, &named.name))
}

/// Resolves a reference of an object to an XBackend. The host speaks HTTP/2 by default if `is_http2`.
pub(super) fn resolve_x_backend(
    store: &Store,
    x_backends: &XBackends<'_>,
    object: &ObjectRef,
    named: &ObjectRef,
    is_http2: bool,
) -> Resolved {
    if named.namespace != object.namespace {
        let fault = x_backend::of_another_namespace(object, named);
        return unresolved("namespace", "RefNotPermitted", fault, false);
    }
    match x_backends.upstream(store, named, Use::Http { is_http2 }) {
        Ok(upstream) => Resolved { upstream: Ok(upstream), named: None },
        Err(Fault { reason, message }) => unresolved("name", reason, message, false),
    }
}

fn unresolved(within: &'static str, reason: &'static str, fault: String, is_missing: bool) -> Resolved {
    Resolved { upstream: Err(Unresolved { within, reason, fault, is_missing }), named: None }
}

/// Resolves a reference of an object to a Service. The Service speaks HTTP/2 by default if `is_http2`.
pub(super) fn resolve(
    store: &Store,
    tls: &BackendTls<'_>,
    object: &ObjectRef,
    named: &ServicePortRef,
    is_http2: bool,
) -> Resolved {
    let ServicePortRef { kind, namespace, name, port } = named;
    if !is_permitted(store, object, named) {
        let fault = format!(
            "{namespace:?}: no ReferenceGrant of this namespace allows {}s of namespace {} to name {kind} {name}",
            object.kind, object.namespace
        );
        return unresolved("namespace", "RefNotPermitted", fault, false);
    }
    let service = named.object();
    match store.service(namespace, name) {
        None if !store.knows(&service) => {
            return unresolved("name", "BackendNotFound", format!("{service} does not exist"), true);
        }
        Some((known, _)) if known.external_name.is_none() && known.port(port, IpProtocol::Tcp).is_none() => {
            let ports = known.ports_in_words(IpProtocol::Tcp);
            let fault = format!("{service} has no port {port}, it has {ports}");
            return unresolved("port", "BackendNotFound", fault, true);
        }
        _ => {}
    }
    let named = UpstreamKey::new(namespace.clone(), name.clone(), port.clone());
    let by_default = is_http2.then_some(Backend { http2: true, tls: None });
    let named = upstream::key(store, &named, None, by_default.as_ref());
    let upstream = tls.secure(named.clone()).map_err(|fault| Unresolved {
        within: "name",
        reason: "InvalidBackendTLSPolicy",
        fault,
        is_missing: false,
    });
    Resolved { upstream, named: Some(named) }
}

/// The filters of a listener, and the reason why a reference leads to nothing. `client_certificate` is the Secret with the
/// client certificate of the Gateway.
pub(super) fn listener_filters<'a>(
    store: &Store,
    tls: &BackendTls<'_>,
    at: At<'a>,
    listener: &Listener,
    client_certificate: Option<&Arc<str>>,
    problems: &mut Vec<Problem>,
) -> (ListenerFilters<'a>, Option<Fault>) {
    let written = &listener.filters;
    let mut filters = ListenerFilters::default();
    let mut unresolved = written.unresolved.clone();
    let mut all = Vec::with_capacity(written.all.len());
    for (index, filter) in &written.all {
        let place = Place::ListenerFilter(listener.index, *index);
        let Some(service) = &filter.backend.service else {
            let fault = filter.backend.fault.as_ref();
            let fault = fault.map(|fault| Fault::new("InvalidListenerFilterRef", fault.message.clone()));
            unresolved = unresolved.or(fault);
            continue;
        };
        let Resolved { upstream, named } = resolve(store, tls, at.object, service, filter.is_grpc());
        filters.named.extend(named);
        match upstream {
            Ok(mut upstream) => {
                backend_tls::present(&mut upstream, client_certificate);
                filters.references.push(Reference { at, place, upstream: upstream.clone() });
                all.push(filter.with(upstream));
            }
            Err(Unresolved { within, reason, fault, is_missing }) => {
                let field = format!("{}.{within}", place.field());
                problems.push(at.warning(&field, format!("{fault}; {OF_LISTENER}")));
                if is_missing {
                    filters.missing.push((service.namespace.clone(), service.name.clone()));
                }
                let reason = if reason == "RefNotPermitted" { reason } else { "InvalidListenerFilterRef" };
                unresolved.get_or_insert_with(|| Fault::new(reason, format!("{field}: {fault}")));
            }
        }
    }
    let reason = written.fault.as_ref().or(unresolved.as_ref()).map(|fault| fault.message.as_str());
    let is_filtered = reason.is_some() || !all.is_empty();
    filters.security = is_filtered.then(|| {
        Arc::new(match reason {
            // No filter may be skipped.
            Some(reason) => Security::closed(at.id(), reason.into()),
            None => Security { filters: all, ..Security::open(at.id()) },
        })
    });
    (filters, unresolved)
}
