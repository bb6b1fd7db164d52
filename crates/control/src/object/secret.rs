//! `Secret` and `ConfigMap`: the parts for TLS and policies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use sluicegate_acme::LABEL;
use sluicegate_model::Certificate;

use super::api::contract;
use super::kind::Raw;
use super::{Object, ObjectRef, certificate, nginx};
use crate::problem::Findings;

/// The type of a Secret that holds a certificate and its key.
pub(crate) const TLS_TYPE: &str = "kubernetes.io/tls";

/// The type of a Secret with credentials of callers. One watch covers all Secrets of this type, so their number is
/// unlimited.
pub(crate) const CREDENTIALS_TYPE: &str = "sluicegate.dev/credentials";

/// A checked `Secret`.
#[derive(PartialEq)]
pub(crate) struct Secret {
    /// Its type.
    pub(crate) kind: Box<str>,
    /// Its certificate, if the Secret is of [`TLS_TYPE`], or has all keys of that type.
    pub(crate) certificate: Option<Arc<Certificate>>,
    /// Whether the gateway made the Secret with a certificate of an ACME server.
    pub(crate) is_acme: bool,
    pub(crate) data: Data,
}

/// A checked `ConfigMap`.
#[derive(PartialEq)]
pub(crate) struct ConfigMap {
    pub(crate) data: Data,
    /// The global settings of ingress-nginx, if this is its ConfigMap.
    pub(crate) nginx: nginx::configmap::Cached,
    /// The ports that lead to Services, if this is a ConfigMap of them.
    pub(crate) services: nginx::services::Cached,
    /// The documents of Apis.
    pub(crate) documents: contract::Cached,
}

/// The content of a Secret or a ConfigMap, by key.
#[derive(PartialEq)]
pub(crate) struct Data {
    values: BTreeMap<String, Vec<u8>>,
    /// `ca.crt`: the trusted CA certificates.
    pub(crate) authorities: Vec<CertificateDer<'static>>,
    /// `ca.crl`: the certificates that the CAs have revoked.
    pub(crate) revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl Secret {
    pub(crate) fn check(raw: v1::Secret, object: &ObjectRef, findings: &mut Findings) -> Self {
        let mut values: BTreeMap<String, Vec<u8>> =
            raw.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
        // Merges as the API server does.
        values.extend(
            raw.string_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes())),
        );
        let kind: Box<str> = raw.type_.as_deref().unwrap_or("Opaque").into();
        let has_both = || values.contains_key("tls.crt") && values.contains_key("tls.key");
        let certificate = (*kind == *TLS_TYPE || has_both())
            .then(|| {
                let part = |key: &str| values.get(key).map_or(&[][..], Vec::as_slice);
                certificate::check(&object.to_string(), part("tls.crt"), part("tls.key"), findings)
            })
            .flatten();
        let labels = raw.metadata.labels.unwrap_or_default();
        let is_acme = labels.get(LABEL.0).is_some_and(|value| value == LABEL.1);
        Self { kind, certificate: certificate.map(Arc::new), is_acme, data: Data::check(values, findings) }
    }
}

impl ConfigMap {
    pub(crate) fn check(raw: v1::ConfigMap, findings: &mut Findings) -> Self {
        let text = raw.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        let binary = raw.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        Self {
            data: Data::check(text.chain(binary).collect(), findings),
            nginx: nginx::configmap::Cached::default(),
            services: nginx::services::Cached::default(),
            documents: contract::Cached::default(),
        }
    }
}

impl Data {
    fn check(values: BTreeMap<String, Vec<u8>>, findings: &mut Findings) -> Self {
        let mut data = Self { values, authorities: Vec::new(), revoked: Vec::new() };
        if let Some(text) = data.values.get("ca.crt") {
            match certificate::certificates(text) {
                Ok(authorities) => data.authorities = authorities,
                // Many Secrets have an empty value.
                Err(_) if text.iter().all(u8::is_ascii_whitespace) => {}
                Err(fault) => findings.error("data[ca.crt]", fault),
            }
        }
        if let Some(text) = data.values.get("ca.crl") {
            match certificate::revocation_lists(text) {
                Ok(revoked) => data.revoked = revoked,
                Err(fault) => findings.error("data[ca.crl]", fault),
            }
        }
        data
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// All values that are text, in the order of their keys.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values().filter_map(|(key, value)| Some((key, std::str::from_utf8(value).ok()?)))
    }

    /// All values, in the order of their keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.values.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(confidential)")
    }
}

impl fmt::Debug for ConfigMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigMap(confidential)")
    }
}

impl Raw for v1::Secret {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(Secret::check(self, object, findings).into())
    }
}

impl Raw for v1::ConfigMap {
    fn check(self, _: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(ConfigMap::check(self, findings).into())
    }
}
