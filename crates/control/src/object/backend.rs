//! How endpoints are spoken with: annotations of Ingresses and Services, and `appProtocol`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Kind, ObjectRef, annotation, host};
use crate::problem::Findings;

/// How endpoints are spoken with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) tls: Option<BackendTls>,
}

/// How TLS is spoken with endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BackendTls {
    /// Whom endpoints have to show that they are.
    pub(crate) name: Option<Box<str>>,
    pub(crate) sends_name: Option<bool>,
    pub(crate) verifies: Option<bool>,
    pub(crate) secret: Option<ObjectRef>,
}

impl Backend {
    /// What annotations say, if they say anything.
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
        let is_tls = match annotations.get(annotation::BACKEND_PROTOCOL).map(String::as_str) {
            Some("HTTPS") => true,
            other => {
                if let Some(unknown) = other.filter(|other| *other != "HTTP") {
                    let fault = format!("{unknown:?} is not served: write HTTP or HTTPS; HTTP is taken");
                    findings.error(annotation::field(annotation::BACKEND_PROTOCOL), fault);
                }
                for name in tls_annotations.iter().filter(|name| annotations.contains_key(**name)) {
                    let needed = annotation::BACKEND_PROTOCOL;
                    findings
                        .warning(annotation::field(name), format!("does nothing without {needed}: HTTPS"));
                }
                other?;
                false
            }
        };
        if !is_tls {
            return Some(Self { tls: None });
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
            tls: Some(BackendTls {
                name,
                sends_name: annotation::switch(annotations, annotation::PROXY_SSL_SERVER_NAME, findings),
                verifies: annotation::switch(annotations, annotation::PROXY_SSL_VERIFY, findings),
                secret,
            }),
        })
    }

    /// What the `appProtocol` of a Service's port says, if it says anything to us (Kubernetes: Service, application
    /// protocol; RFC 6335's names, and those of `kubernetes.io/`).
    pub(crate) fn of_app_protocol(name: &str) -> Option<Self> {
        match name {
            "http" | "kubernetes.io/ws" => Some(Self { tls: None }),
            "https" | "kubernetes.io/wss" => Some(Self { tls: Some(BackendTls::default()) }),
            _ => None,
        }
    }
}

fn name_fault(name: &str) -> Option<&'static str> {
    if name.parse::<IpAddr>().is_ok() { None } else { host::dns_name_fault(name) }
}
