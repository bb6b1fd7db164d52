//! The protocol to endpoints: annotations of Ingresses and Services, and `appProtocol`.

use std::collections::BTreeMap;

use super::ObjectRef;
use super::annotation::{self, Settings};
use sluicegate_model::value::CipherSuites;

use crate::problem::Findings;

/// A value of the annotation for the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocol {
    pub(crate) http2: bool,
    pub(crate) tls: bool,
}

/// The protocol to endpoints, with its settings.
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
    /// `proxy-ssl-ciphers` of ingress-nginx.
    pub(crate) ciphers: CipherSuites,
    /// `proxy-ssl-verify-depth` of ingress-nginx.
    pub(crate) depth: Option<u8>,
}

impl Backend {
    /// The settings of annotations; `None` without such annotations.
    pub(crate) fn check(
        annotations: Option<&BTreeMap<String, String>>,
        settings: &Settings,
        findings: &mut Findings,
    ) -> Option<Self> {
        let protocol = settings.backend_protocol;
        if !protocol.is_some_and(|protocol| protocol.tls) {
            let of_tls = [
                annotation::PROXY_SSL_SECRET,
                annotation::PROXY_SSL_VERIFY,
                annotation::PROXY_SSL_NAME,
                annotation::PROXY_SSL_SERVER_NAME,
            ];
            let is_written = |name: &&str| annotations.is_some_and(|all| all.contains_key(*name));
            for name in of_tls.into_iter().filter(is_written) {
                let needed = annotation::BACKEND_PROTOCOL;
                findings.warning(annotation::field(name), format!("has no effect without {needed}: HTTPS"));
            }
        }
        let Protocol { http2, tls } = protocol?;
        let tls = tls.then(|| BackendTls {
            name: settings.proxy_ssl_name.clone(),
            sends_name: settings.proxy_ssl_server_name,
            verifies: settings.proxy_ssl_verify,
            secret: settings.proxy_ssl_secret.clone(),
            ..BackendTls::default()
        });
        Some(Self { http2, tls })
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
