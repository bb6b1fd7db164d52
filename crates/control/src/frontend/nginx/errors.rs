//! Error pages, and the default backend.

use std::sync::Arc;

use sluicegate_model::UpstreamKey;
use sluicegate_model::feature::ErrorPages;

use super::{Context, Parts};
use crate::intent::Own;
use crate::object::ingress::RulePath;
use crate::object::nginx::errors::{CODES, DEFAULT_BACKEND};
use crate::object::service::IpProtocol;
use crate::object::{Kind, ObjectRef};
use crate::store::Store;
use crate::upstream;

pub(super) fn apply(context: &mut Context<'_, '_>, parts: &mut Parts) {
    let settings = context.settings.clone();
    let settings = &settings.errors;
    let (own, codes) = (settings.default_backend.as_ref(), settings.codes.clone());
    let pages = match own {
        Some(name) => {
            let namespace = context.at.object.namespace.clone();
            let found = of_service(context.store, &namespace, name);
            if found.is_none() {
                let fault = format!("Service {namespace}/{name} does not exist, or has no port for TCP");
                let service = ObjectRef { kind: Kind::Service, namespace, name: name.clone() };
                let message = format!("{fault}; errors have no pages. Create the Service");
                context.fault_of(&service, DEFAULT_BACKEND, message);
            }
            found
        }
        None => {
            let object = context.options.default_backend.as_ref().filter(|_| !codes.is_empty());
            let found = object.and_then(|of| of_service(context.store, &of.namespace, &of.name));
            if found.is_none() && !codes.is_empty() {
                let message = format!("has no effect without a default backend: write {DEFAULT_BACKEND}");
                context.fault(CODES, message);
            }
            found
        }
    };
    if let Some(upstream) = pages {
        context.name(DEFAULT_BACKEND_FIELD, &upstream);
        parts.features.error_pages = Some(Box::new(ErrorPages {
            upstream,
            codes,
            replaces_endpoints: !settings.keeps_responses,
            serves_empty: own.is_some(),
            service_port: None,
        }));
    }
}

/// The parts of a path: requests for pages name the port of the Service as the Ingress does.
pub(super) fn of_path(own: Arc<Own>, path: &RulePath) -> Arc<Own> {
    let Some(pages) = &own.features.error_pages else { return own };
    let mut with_port = Own::clone(&own);
    let pages =
        ErrorPages { service_port: Some(path.upstream.port.as_ref().into()), ..ErrorPages::clone(pages) };
    Arc::make_mut(&mut with_port.features).error_pages = Some(Box::new(pages));
    Arc::new(with_port)
}

/// The annotation, as problems with the Service name it.
const DEFAULT_BACKEND_FIELD: &str = "nginx.ingress.kubernetes.io/default-backend";

/// The upstream of the first TCP port of a Service.
pub(super) fn of_service(store: &Store, namespace: &Arc<str>, name: &Arc<str>) -> Option<UpstreamKey> {
    let (service, _) = store.service(namespace, name)?;
    let port = service.ports.iter().find(|port| port.protocol == IpProtocol::Tcp)?;
    let named = UpstreamKey::new(namespace.clone(), name.clone(), port.key.clone());
    Some(upstream::key(store, &named, None, None))
}
