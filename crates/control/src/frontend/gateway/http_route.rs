//! The intents of HTTPRoutes and GRPCRoutes.

use std::sync::Arc;

use sluicegate_model::UpstreamKey;
use sluicegate_model::feature::Mirror;
use sluicegate_model::value::{Entries, Percent};

use crate::backend_tls::BackendTls;
use crate::intent::http_route::{HttpBackend, HttpRoute, HttpRule};
use crate::intent::listener::Parent;
use crate::intent::{At, Place, Reference};
use crate::object::backend::Backend;
use crate::object::http_route as object;
use crate::object::route::{BackendRef, ServicePortRef};
use crate::object::service::IpProtocol;
use crate::object::{Kind, ObjectRef};
use crate::status::Fault;
use crate::store::Store;
use crate::upstream;

pub(super) fn intent<'a>(
    store: &Store,
    tls: &BackendTls<'_>,
    at: At<'a>,
    route: &'a object::HttpRoute,
    parents: Vec<Parent<'a>>,
) -> HttpRoute<'a> {
    let hostnames = route.hostnames.as_deref().unwrap_or_default();
    let (named, references, problems) = (Vec::new(), Vec::new(), Vec::new());
    let mut intent = HttpRoute {
        at,
        hostnames,
        generation: route.generation,
        parents,
        fault: route.fault.as_ref(),
        is_usable: route.is_usable,
        missing: Vec::new(),
        unresolved: None,
        rules: Vec::new(),
        rule_names: &route.rule_names,
        named,
        references,
        problems,
    };
    for rule in &route.rules {
        let mut backends = Vec::with_capacity(rule.backends.len());
        for (nth, backend) in rule.backends.iter().enumerate() {
            let place = Place::HttpBackend(rule.index, nth);
            let upstream = intent.upstream(
                store,
                tls,
                &backend.reference,
                place,
                "requests for this backend receive 500",
            );
            let (weight, features) = (backend.reference.weight, backend.features.as_deref());
            backends.push(HttpBackend { weight, upstream, features });
        }
        let mut features = rule.features.clone();
        let mut mirrors = Vec::new();
        for (filter, mirror) in &rule.mirrors {
            let place = Place::HttpMirror(rule.index, *filter);
            let upstream = intent.upstream(store, tls, mirror, place, "the filter mirrors no requests");
            // The weight is the percentage.
            if let (Some(upstream), Ok(percent)) = (upstream, Percent::new(mirror.weight.into())) {
                mirrors.push(Mirror { upstream, percent });
            }
        }
        if let Some(mirrors) = Entries::new(mirrors).filter(|mirrors| !mirrors.is_empty()) {
            Arc::make_mut(&mut features).mirrors = mirrors;
        }
        let (index, name, matches) = (rule.index, rule.name.as_ref(), &*rule.matches);
        let cors = rule.cors.as_ref();
        intent.rules.push(HttpRule { index, name, matches, features, cors, backends });
    }
    intent
}

impl HttpRoute<'_> {
    /// The upstream of a backend; `None` if the backend does not exist or may not be named, which is then a problem.
    fn upstream(
        &mut self,
        store: &Store,
        tls: &BackendTls<'_>,
        backend: &BackendRef,
        place: Place,
        consequence: &str,
    ) -> Option<UpstreamKey> {
        let Some(ServicePortRef { namespace, name, port }) = &backend.service else {
            self.unresolved = self.unresolved.take().or_else(|| backend.fault.clone());
            return None;
        };
        let object = self.at.object;
        let is_granted = store.is_granted(object, namespace, (Kind::Service, name));
        let mut refuse = |within: &str, reason: &'static str, fault: String| {
            let field = format!("{}.{within}", place.field());
            self.unresolved.get_or_insert_with(|| Fault::new(reason, format!("{field}: {fault}")));
            self.problems.push(self.at.warning(&field, format!("{fault}; {consequence}")));
        };
        if !is_granted {
            let fault = format!(
                "{namespace:?}: no ReferenceGrant of this namespace allows {}s of namespace {} to name Service {name}",
                object.kind, object.namespace
            );
            refuse("namespace", "RefNotPermitted", fault);
            return None;
        }
        let service = ObjectRef { kind: Kind::Service, namespace: namespace.clone(), name: name.clone() };
        match store.service(namespace, name) {
            None if !store.knows(&service) => {
                self.missing.push((namespace.clone(), name.clone()));
                refuse("name", "BackendNotFound", format!("{service} does not exist"));
                return None;
            }
            Some((known, _))
                if known.external_name.is_none() && known.port(port, IpProtocol::Tcp).is_none() =>
            {
                let ports = known.ports_in_words(IpProtocol::Tcp);
                self.missing.push((namespace.clone(), name.clone()));
                refuse("port", "BackendNotFound", format!("{service} has no port {port}, it has {ports}"));
                return None;
            }
            _ => {}
        }
        let named = UpstreamKey::new(namespace.clone(), name.clone(), port.clone());
        // gRPC needs HTTP/2.
        let of_route = (object.kind == Kind::GrpcRoute).then_some(Backend { http2: true, tls: None });
        let upstream = upstream::key(store, &named, None, of_route.as_ref());
        let secured = tls
            .secure(upstream.clone())
            .map_err(|fault| refuse("name", "InvalidBackendTLSPolicy", fault))
            .ok();
        self.named.push(upstream);
        let upstream = secured?;
        self.references.push(Reference { at: self.at, place, upstream: upstream.clone() });
        Some(upstream)
    }
}
