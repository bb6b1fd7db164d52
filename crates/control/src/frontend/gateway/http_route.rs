//! The intents of HTTPRoutes and GRPCRoutes.

use std::sync::Arc;

use sluicegate_model::UpstreamKey;
use sluicegate_model::feature::Mirror;
use sluicegate_model::value::{Entries, Percent};

use crate::intent::http_route::{HttpBackend, HttpRoute, HttpRule};
use crate::intent::listener::Parent;
use crate::intent::{At, Place, Reference};
use crate::object::backend::Backend;
use crate::object::backend_tls::BackendTlsPolicy;
use crate::object::http_route as object;
use crate::object::route::{BackendRef, ServicePortRef};
use crate::object::service::IpProtocol;
use crate::object::{Kind, ObjectRef};
use crate::store::Store;
use crate::upstream;

pub(super) fn intent<'a>(
    store: &Store,
    at: At<'a>,
    route: &'a object::HttpRoute,
    parents: Vec<Parent>,
) -> HttpRoute<'a> {
    let hostnames = route.hostnames.as_deref().unwrap_or_default();
    let (references, problems) = (Vec::new(), Vec::new());
    let mut intent = HttpRoute { at, hostnames, parents, rules: Vec::new(), references, problems };
    for rule in &route.rules {
        let mut backends = Vec::with_capacity(rule.backends.len());
        for (nth, backend) in rule.backends.iter().enumerate() {
            let place = Place::HttpBackend(rule.index, nth);
            let upstream =
                intent.upstream(store, &backend.reference, place, "requests for this backend receive 500");
            let (weight, features) = (backend.reference.weight, backend.features.as_deref());
            backends.push(HttpBackend { weight, upstream, features });
        }
        let mut features = rule.features.clone();
        let mut mirrors = Vec::new();
        for (filter, mirror) in &rule.mirrors {
            let place = Place::HttpMirror(rule.index, *filter);
            let upstream = intent.upstream(store, mirror, place, "the filter mirrors no requests");
            // The weight is the percentage.
            if let (Some(upstream), Ok(percent)) = (upstream, Percent::new(mirror.weight.into())) {
                mirrors.push(Mirror { upstream, percent });
            }
        }
        if let Some(mirrors) = Entries::new(mirrors).filter(|mirrors| !mirrors.is_empty()) {
            Arc::make_mut(&mut features).mirrors = mirrors;
        }
        let (index, matches, cors) = (rule.index, &*rule.matches, rule.cors.as_ref());
        intent.rules.push(HttpRule { index, matches, features, cors, backends });
    }
    intent
}

/// The BackendTLSPolicy of a Service.
fn needs_tls<'s>(store: &'s Store, service: &ObjectRef) -> Option<&'s ObjectRef> {
    let mut policies = store.all::<BackendTlsPolicy>();
    let policy = policies.find(|(object, policy, _)| {
        object.namespace == service.namespace && policy.services.contains(&service.name)
    });
    policy.map(|(object, ..)| object)
}

impl HttpRoute<'_> {
    /// The upstream of a backend; `None` if the backend does not exist or may not be named, which is then a problem.
    fn upstream(
        &mut self,
        store: &Store,
        backend: &BackendRef,
        place: Place,
        consequence: &str,
    ) -> Option<UpstreamKey> {
        let ServicePortRef { namespace, name, port } = backend.service.as_ref()?;
        let object = self.at.object;
        let is_granted = store.is_granted(object, namespace, (Kind::Service, name));
        let mut refuse = |within: &str, fault: String| {
            let field = format!("{}.{within}", place.field());
            self.problems.push(self.at.warning(&field, format!("{fault}; {consequence}")));
        };
        if !is_granted {
            let fault = format!(
                "{namespace:?}: no ReferenceGrant of this namespace allows {}s of namespace {} to name Service {name}",
                object.kind, object.namespace
            );
            refuse("namespace", fault);
            return None;
        }
        let service = ObjectRef { kind: Kind::Service, namespace: namespace.clone(), name: name.clone() };
        if let Some(policy) = needs_tls(store, &service) {
            refuse("name", format!("{policy} requires TLS to {service}, which is not supported"));
            return None;
        }
        match store.service(namespace, name) {
            None if !store.knows(&service) => {
                refuse("name", format!("{service} does not exist"));
                return None;
            }
            Some((known, _))
                if known.external_name.is_none() && known.port(port, IpProtocol::Tcp).is_none() =>
            {
                let ports = known.ports_in_words(IpProtocol::Tcp);
                refuse("port", format!("{service} has no port {port}, it has {ports}"));
                return None;
            }
            _ => {}
        }
        let named = UpstreamKey::new(namespace.clone(), name.clone(), port.clone());
        // gRPC needs HTTP/2.
        let of_route = (object.kind == Kind::GrpcRoute).then_some(Backend { http2: true, tls: None });
        let upstream = upstream::key(store, &named, None, of_route.as_ref());
        self.references.push(Reference { at: self.at, place, upstream: upstream.clone() });
        Some(upstream)
    }
}
