//! The protocol to endpoints: annotations of Ingresses and Services, and `appProtocol`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use sluicegate_model::value::syntax;

use super::{Kind, ObjectRef, annotation};
use crate::problem::Findings;

/// The protocol to endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) http2: bool,
    pub(crate) tls: Option<BackendTls>,
}

/// The TLS settings for connections to endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackendTls {
    /// The name that the certificate of an endpoint must have.
    pub(crate) name: Option<Box<str>>,
    pub(crate) sends_name: Option<bool>,
    pub(crate) verifies: Option<bool>,
    pub(crate) secret: Option<ObjectRef>,
}

impl Backend {
    /// The settings of annotations; `None` without such annotations.
    pub(crate) fn check(
        annotations: &BTreeMap<String, String>,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let tls_annotations = [
            annotation::PROXY_SSL_SECRET,
            annotation::PROXY_SSL_VERIFY,
            annotation::PROXY_SSL_NAME,
            annotation::PROXY_SSL_SERVER_NAME,
        ];
        let said = annotations.get(annotation::BACKEND_PROTOCOL).map(String::as_str);
        let http2 = matches!(said, Some("H2" | "H2C" | "GRPC" | "GRPCS"));
        let is_tls = match said {
            Some("HTTPS" | "H2" | "GRPCS") => true,
            other => {
                if let Some(unknown) = other.filter(|other| *other != "HTTP" && !http2) {
                    let fault = format!(
                        "{unknown:?} is not supported; HTTP is used. Write HTTP, HTTPS, H2C, H2, GRPC or GRPCS"
                    );
                    findings.error(annotation::field(annotation::BACKEND_PROTOCOL), fault);
                }
                for name in tls_annotations.iter().filter(|name| annotations.contains_key(**name)) {
                    let needed = annotation::BACKEND_PROTOCOL;
                    findings
                        .warning(annotation::field(name), format!("has no effect without {needed}: HTTPS"));
                }
                other?;
                false
            }
        };
        if !is_tls {
            return Some(Self { http2, tls: None });
        }
        let secret = annotations.get(annotation::PROXY_SSL_SECRET).and_then(|value| {
            annotation::object(Kind::Secret, namespace, value)
                .map_err(|fault| findings.error(annotation::field(annotation::PROXY_SSL_SECRET), fault))
                .ok()
        });
        let name = annotations.get(annotation::PROXY_SSL_NAME).and_then(|name| match name_fault(name) {
            None => Some(Box::from(&**name)),
            Some(fault) => {
                findings.error(annotation::field(annotation::PROXY_SSL_NAME), format!("{name:?} {fault}"));
                None
            }
        });
        Some(Self {
            http2,
            tls: Some(BackendTls {
                name,
                sends_name: annotation::switch(annotations, annotation::PROXY_SSL_SERVER_NAME, findings),
                verifies: annotation::switch(annotations, annotation::PROXY_SSL_VERIFY, findings),
                secret,
            }),
        })
    }

    /// The settings of the `appProtocol` of a Service's port, if it has a meaning here (Kubernetes: Service,
    /// application protocol; RFC 6335's names, and those of `kubernetes.io/`).
    pub(crate) fn of_app_protocol(name: &str) -> Option<Self> {
        match name {
            "http" | "kubernetes.io/ws" => Some(Self { http2: false, tls: None }),
            "https" | "kubernetes.io/wss" => Some(Self { http2: false, tls: Some(BackendTls::default()) }),
            "kubernetes.io/h2c" | "grpc" => Some(Self { http2: true, tls: None }),
            _ => None,
        }
    }
}

fn name_fault(name: &str) -> Option<&'static str> {
    if name.parse::<IpAddr>().is_ok() { None } else { syntax::dns_name_fault(name) }
}
