//! The certificates of Secrets.

use std::sync::Arc;

use sluicegate_model::{Certificate, HostPattern};

use crate::object::ObjectRef;
use crate::object::secret::TLS_TYPE;
use crate::store::Store;

/// The certificate of a Secret, or the reason why there is none. The Secret itself reports its own problems.
pub(crate) fn of_secret(store: &Store, object: &ObjectRef) -> Result<Arc<Certificate>, String> {
    if !store.knows(object) {
        return Err(format!("{object} does not exist as a Secret of type {TLS_TYPE}"));
    }
    let secret = store.secret(object).ok_or_else(|| format!("{object} cannot be read"))?;
    if *secret.kind != *TLS_TYPE {
        return Err(format!("{object} is of type {:?}, but TLS needs {TLS_TYPE}", secret.kind));
    }
    secret.certificate.clone().ok_or_else(|| format!("{object} has no valid certificate"))
}

/// Whether a certificate covers all names of a pattern.
pub(crate) fn covers(certificate: &Certificate, host: &HostPattern) -> bool {
    match host {
        HostPattern::Exact(name) => certificate.covers(name),
        pattern => certificate.names.contains(pattern),
    }
}
