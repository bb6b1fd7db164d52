//! `certificates.k8s.io` ClusterTrustBundle: CA certificates for the whole cluster (GEP-5075).

use rustls_pki_types::CertificateDer;
use serde::Deserialize;

use super::gateway_api::Written;
use super::kind::Raw;
use super::{Object, ObjectRef, certificate};
use crate::problem::Findings;

/// The API group of the kind.
pub(crate) const GROUP: &str = "certificates.k8s.io";

/// The specification of a `ClusterTrustBundle`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterTrustBundleSpec {
    #[allow(dead_code, reason = "the field is named so that it is known")]
    signer_name: Option<String>,
    trust_bundle: Option<String>,
}

/// A checked `ClusterTrustBundle`.
#[derive(Debug, PartialEq)]
pub(crate) struct ClusterTrustBundle {
    /// The CA certificates, or the reason why there are none.
    pub(crate) authorities: Result<Vec<CertificateDer<'static>>, String>,
}

impl Raw for Written<ClusterTrustBundleSpec> {
    fn check(self, _: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        let text = self.spec.and_then(|spec| spec.trust_bundle).unwrap_or_default();
        let authorities = certificate::certificates(text.as_bytes());
        if let Err(fault) = &authorities {
            // An error would keep the last valid version in service, but an invalid bundle must not be trusted (GEP-5075).
            findings.warning("spec.trustBundle", &**fault);
        }
        Some(ClusterTrustBundle { authorities }.into())
    }
}
