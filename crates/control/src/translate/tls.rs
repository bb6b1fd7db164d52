//! `spec.tls` of Ingresses: not served yet, and told.

use std::sync::Arc;

use crate::object::ingress::Ingress;
use crate::object::{Kind, ObjectRef};
use crate::problem::{Origin, Problem, Severity};
use crate::store::Store;

/// The type of a Secret that holds a certificate and its key.
const SECRET_TYPE: &str = "kubernetes.io/tls";

/// What is wrong with the `spec.tls` of an Ingress that is served.
pub(super) fn problems<'a>(
    store: &'a Store,
    object: &'a ObjectRef,
    ingress: &'a Ingress,
    origin: &'a Origin,
) -> impl Iterator<Item = Problem> + 'a {
    let warning = |field: String, message: String| Problem {
        severity: Severity::Warning,
        origin: origin.clone(),
        object: Some(object.clone()),
        field,
        message,
    };
    ingress.tls.iter().enumerate().flat_map(move |(index, tls)| {
        let hosts = match &*tls.hosts {
            [] => "every host of this Ingress is".to_owned(),
            [host] => format!("host {host} is"),
            hosts => format!("hosts {} are", hosts.join(", ")),
        };
        let unserved = format!("is not served yet: {hosts} answered over plain HTTP");
        let secret = tls.secret.as_ref().and_then(|name| secret_fault(store, &object.namespace, name));
        [
            Some(warning(format!("spec.tls[{index}]"), unserved)),
            secret.map(|fault| warning(format!("spec.tls[{index}].secretName"), fault)),
        ]
        .into_iter()
        .flatten()
    })
}

/// Why a Secret cannot be used for TLS. What is wrong within it is told of the Secret itself.
fn secret_fault(store: &Store, namespace: &Arc<str>, name: &Arc<str>) -> Option<String> {
    let object = ObjectRef { kind: Kind::Secret, namespace: namespace.clone(), name: name.clone() };
    if !store.knows(&object) {
        return Some(format!("{object} does not exist"));
    }
    let found = store.secret(&object)?.type_.as_deref().unwrap_or("Opaque");
    (found != SECRET_TYPE).then(|| format!("{object} is of type {found:?}, and TLS needs {SECRET_TYPE}"))
}
