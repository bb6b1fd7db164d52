//! TLS passthrough for the hosts of an Ingress, by the annotation `ssl-passthrough`.

use sluicegate_model::{HostPattern, Protocol};

use crate::intent::{Passthrough, Place};
use crate::object::annotation;
use crate::object::ingress::{Ingress, RulePath};
use crate::store::Store;
use crate::upstream;

/// The TLS passthrough of a host: to the Service of the path `/`, else of the default backend, else of the first path.
pub(super) fn of(store: &Store, ingress: &Ingress, host: &HostPattern) -> Passthrough {
    match ingress.ssl_passthrough {
        true => of_paths(store, ingress, host, Place::Annotation(annotation::SSL_PASSTHROUGH)),
        false => Passthrough::Off,
    }
}

/// The TLS passthrough of a host, if this field enables passthrough.
pub(in crate::frontend) fn of_paths(
    store: &Store,
    ingress: &Ingress,
    host: &HostPattern,
    field: Place,
) -> Passthrough {
    // The check of the Ingress reported a rule without a host.
    if *host == HostPattern::Any {
        return Passthrough::Off;
    }
    let rules = ingress.rules.iter().filter(|rule| rule.host == *host);
    let mut paths = rules.flat_map(|rule| rule.paths.iter().map(|path| (rule.index, path)));
    let of_path =
        |(rule, path): (usize, &'_ RulePath)| (Place::Path(rule, path.index), path.upstream.clone());
    let first = paths.clone().next();
    let named = paths
        .find(|(_, path)| path.pattern.as_str() == "/")
        .map(of_path)
        .or_else(|| Some((Place::DefaultBackend, ingress.default_backend.clone()?)))
        .or_else(|| first.map(of_path));
    let Some((place, named)) = named else { return Passthrough::Nowhere { field } };
    let named = (&named.namespace, &named.service, &named.port);
    Passthrough::To { field, place, upstream: upstream::layer4_key(store, named, Protocol::Tcp) }
}
