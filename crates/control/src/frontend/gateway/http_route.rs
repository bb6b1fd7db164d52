//! The intents of HTTPRoutes and GRPCRoutes.

use std::sync::Arc;

use sluicegate_model::UpstreamKey;
use sluicegate_model::feature::Mirror;
use sluicegate_model::value::{Entries, Percent};

use super::service_ref::{self, Resolved, Unresolved, is_permitted};
use crate::backend_tls::BackendTls;
use crate::backend_traffic::BackendTraffic;
use crate::intent::http_route::{HttpBackend, HttpRoute, HttpRule};
use crate::intent::listener::Parent;
use crate::intent::{At, Place, Reference};
use crate::object::Kind;
use crate::object::external_auth::OF_RULE;
use crate::object::http_route::{self as object, internal_error};
use crate::object::route::{BackendRef, ServicePortRef};
use crate::status::Fault;
use crate::store::{ServiceRef, Store};
use crate::x_backend::{self, XBackends};

pub(super) fn intent<'a>(
    store: &Store,
    (tls, x_backends, traffic): (&BackendTls<'_>, &XBackends<'_>, &BackendTraffic<'a>),
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
        priority: route.priority,
        parents,
        fault: route.fault.as_ref(),
        is_usable: route.is_usable,
        missing: Vec::new(),
        unresolved: None,
        rules: Vec::new(),
        rule_names: &route.rule_names,
        named,
        x_backends: Vec::new(),
        references,
        problems,
    };
    let known = (tls, x_backends);
    // gRPC needs HTTP/2.
    let is_grpc = at.object.kind == Kind::GrpcRoute;
    for rule in &route.rules {
        let mut backends = Vec::with_capacity(rule.backends.len());
        for (nth, backend) in rule.backends.iter().enumerate() {
            let place = Place::HttpBackend(rule.index, nth);
            let upstream = intent.upstream(
                store,
                known,
                (&backend.reference, is_grpc),
                place,
                "requests for this backend receive 500",
            );
            let (weight, features) = (backend.reference.weight, backend.features.as_deref());
            let affinity = upstream.as_ref().and_then(|upstream| traffic.affinity(upstream));
            let named = backend.reference.service.as_ref();
            let service = named.filter(|named| is_permitted(store, at.object, named)).map(service_of);
            backends.push(HttpBackend { weight, service, upstream, features, affinity });
        }
        let mut features = rule.features.clone();
        let mut mirrors = Vec::new();
        for (filter, mirror) in &rule.mirrors {
            let place = Place::HttpMirror(rule.index, *filter);
            let upstream =
                { intent.upstream(store, known, (mirror, is_grpc), place, "the filter mirrors no requests") };
            // The weight is the percentage.
            if let (Some(upstream), Ok(percent)) = (upstream, Percent::new(mirror.weight.into())) {
                mirrors.push(Mirror { upstream, percent, form: None });
            }
        }
        if let Some(mirrors) = Entries::new(mirrors).filter(|mirrors| !mirrors.is_empty()) {
            Arc::make_mut(&mut features).mirrors = mirrors;
        }
        let mut auth = Vec::with_capacity(rule.auth.len());
        for (filter, of_filter) in &rule.auth {
            let place = Place::HttpFilter(rule.index, *filter);
            let backend = (&of_filter.backend, of_filter.is_grpc());
            auth.extend(
                intent
                    .upstream(store, known, backend, place, OF_RULE)
                    .map(|upstream| of_filter.with(upstream)),
            );
        }
        if auth.len() < rule.auth.len() {
            // No filter may be skipped.
            (features, auth) = (Arc::new(internal_error()), Vec::new());
        }
        let (index, name, matches) = (rule.index, rule.name.as_ref(), &*rule.matches);
        let cors = rule.cors.as_ref();
        let is_sessionless = rule.is_sessionless;
        intent.rules.push(HttpRule { index, name, matches, features, is_sessionless, cors, auth, backends });
    }
    intent
}

/// The Service, or the Service of the upstream of the XBackend.
fn service_of(named: &ServicePortRef) -> ServiceRef {
    let service = match named.kind {
        Kind::XBackend => x_backend::service_of(&named.name),
        _ => named.name.clone(),
    };
    (named.namespace.clone(), service)
}

impl HttpRoute<'_> {
    /// The upstream of a backend; `None` if the backend does not exist or may not be named, which is then a problem.
    fn upstream(
        &mut self,
        store: &Store,
        (tls, x_backends): (&BackendTls<'_>, &XBackends<'_>),
        (backend, is_http2): (&BackendRef, bool),
        place: Place,
        consequence: &str,
    ) -> Option<UpstreamKey> {
        let Some(service) = &backend.service else {
            self.unresolved = self.unresolved.take().or_else(|| backend.fault.clone());
            return None;
        };
        if service.kind == Kind::XBackend && is_permitted(store, self.at.object, service) {
            self.x_backends.push(service.object());
        }
        let object = self.at.object;
        let Resolved { upstream, named } = match service.kind {
            Kind::XBackend => {
                service_ref::resolve_x_backend(store, x_backends, object, &service.object(), is_http2)
            }
            _ => service_ref::resolve(store, tls, object, service, is_http2),
        };
        self.named.extend(named);
        let upstream = match upstream {
            Ok(upstream) => upstream,
            Err(Unresolved { within, reason, fault, is_missing }) => {
                let field = format!("{}.{within}", place.field());
                self.unresolved.get_or_insert_with(|| Fault::new(reason, format!("{field}: {fault}")));
                self.problems.push(self.at.warning(&field, format!("{fault}; {consequence}")));
                if is_missing {
                    self.missing.push((service.namespace.clone(), service.name.clone()));
                }
                return None;
            }
        };
        self.references.push(Reference { at: self.at, place, upstream: upstream.clone() });
        Some(upstream)
    }
}
