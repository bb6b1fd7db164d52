//! `XBackend` (GEP-4894): a host outside of the cluster, with its port, protocol and TLS.
//!
//! An XBackend with an error receives no requests: a part of it may be the verification of its endpoints.

use std::sync::Arc;

use sluicegate_model::HostPattern;

use super::backend_tls::Validation;
use super::gateway::check_secret;
use super::gateway_api::{Written, XBackendPort, XBackendSpec, XBackendTls};
use super::kind::Raw;
use super::{Object, ObjectRef, annotation, host};
use crate::problem::Findings;
use crate::status::Fault;

/// The consequence of an error for requests.
pub(crate) const DENIED: &str =
    "requests for this backend receive 500, and connections of TLSRoutes and TCPRoutes are closed";

/// The field of the client certificate.
pub(crate) const CLIENT_CERTIFICATE: &str = "spec.tls.clientCertificateRef";

/// The domain of the Services of most clusters.
const CLUSTER_DOMAIN: &str = ".cluster.local";

/// A checked `XBackend`.
#[derive(Debug, PartialEq)]
pub(crate) struct XBackend {
    /// `metadata.generation`.
    pub(crate) generation: Option<i64>,
    pub(crate) release: Release,
    /// The destination, or the reason why requests cannot reach it.
    pub(crate) destination: Result<Destination, Fault>,
}

/// The release of Gateway API whose fields an XBackend has. The status has other fields in each release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// 1.6: `port.port`, and `status.parents`.
    V1_6,
    /// 1.7: `port.number`, and `status.ancestors`.
    V1_7,
}

/// A host outside of the cluster.
#[derive(Debug, PartialEq)]
pub(crate) struct Destination {
    pub(crate) hostname: Box<str>,
    pub(crate) port: u16,
    /// The protocol, if it is not that of the route.
    pub(crate) protocol: Option<BackendProtocol>,
    pub(crate) tls: Option<Tls>,
}

/// The protocol of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendProtocol {
    /// HTTP/1.1, which can also be upgraded to WebSocket.
    Http1,
    /// HTTP/2, also for gRPC.
    Http2,
    /// Any content.
    Tcp,
}

/// The TLS settings of a destination.
#[derive(Debug, PartialEq)]
pub(crate) struct Tls {
    pub(crate) validation: Validation,
    /// The Secret with the client certificate of the gateway.
    pub(crate) client_certificate: Option<ObjectRef>,
}

/// An error in a field.
struct FieldFault {
    field: String,
    /// The reason of the condition.
    reason: &'static str,
    message: String,
}

impl XBackend {
    fn unusable(generation: Option<i64>, release: Release, reason: &'static str, message: String) -> Self {
        Self { generation, release, destination: Err(Fault::new(reason, message)) }
    }

    /// The Secrets, ConfigMaps and ClusterTrustBundles with CA certificates.
    pub(crate) fn authorities(&self) -> impl Iterator<Item = &ObjectRef> {
        self.tls().into_iter().flat_map(|tls| tls.validation.references())
    }

    /// The Secret with the client certificate of the gateway.
    pub(crate) fn client_certificate(&self) -> Option<&ObjectRef> {
        self.tls()?.client_certificate.as_ref()
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.destination.as_ref().ok()?.tls.as_ref()
    }
}

impl Destination {
    fn check(spec: XBackendSpec, namespace: &Arc<str>, findings: &mut Findings) -> Result<Self, FieldFault> {
        match spec.kind.as_deref().unwrap_or_default() {
            "ExternalHostname" => {}
            "EndpointSelector" => {
                let message = "EndpointSelector is not supported: create a Service for the pods, and name the Service in backendRefs";
                return unsupported("spec.type", message);
            }
            "" => return invalid("spec.type", "is missing: write ExternalHostname"),
            other => return invalid("spec.type", format!("{other:?} is unknown: write ExternalHostname")),
        }
        let hostname = spec.external_hostname.and_then(|external| external.hostname).unwrap_or_default();
        let field = "spec.externalHostname.hostname";
        let hostname = match host::parse(&hostname) {
            Ok(HostPattern::Exact(name)) if name.ends_with(CLUSTER_DOMAIN) => {
                return invalid(
                    field,
                    format!("{name} is a name of the cluster: name its Service in backendRefs"),
                );
            }
            Ok(HostPattern::Exact(name)) => name,
            Ok(HostPattern::Any) => return invalid(field, "is missing: write the DNS name of the host"),
            Ok(other) => return invalid(field, format!("{other} must not be a wildcard")),
            Err(message) => return invalid(field, message),
        };
        let port = check_port(spec.port.unwrap_or_default())?;
        let written = spec.protocol.as_deref();
        let protocol = check_protocol(written)?;
        let tls = spec.tls.map(|tls| Tls::check(tls, namespace, findings)).transpose()?.flatten();
        match (written, tls.is_some()) {
            (Some("H2C"), true) => {
                return invalid("spec.protocol", "H2C is without TLS: write HTTP2, or remove spec.tls");
            }
            (Some(name @ ("HTTP2" | "WSS")), false) => {
                return invalid("spec.protocol", format!("{name} needs TLS: write spec.tls"));
            }
            _ => {}
        }
        Ok(Self { hostname, port, protocol, tls })
    }
}

impl Tls {
    /// The TLS settings; `None` without TLS.
    fn check(
        raw: XBackendTls,
        namespace: &Arc<str>,
        findings: &mut Findings,
    ) -> Result<Option<Self>, FieldFault> {
        const VALIDATION: &str = "spec.tls.validation";
        let is_mutual = match raw.mode.as_deref().unwrap_or_default() {
            "None" => {
                for (field, is_written) in [
                    (VALIDATION, raw.validation.is_some()),
                    (CLIENT_CERTIFICATE, raw.client_certificate_ref.is_some()),
                ] {
                    if is_written {
                        findings.warning(field, "has no effect with mode None");
                    }
                }
                return Ok(None);
            }
            "ServerOnly" => false,
            "ClientAndServer" => true,
            "" => return invalid("spec.tls.mode", "is missing: write None, ServerOnly or ClientAndServer"),
            other => {
                return invalid(
                    "spec.tls.mode",
                    format!("{other:?} is unknown: write None, ServerOnly or ClientAndServer"),
                );
            }
        };
        let validation =
            Validation::check(raw.validation.unwrap_or_default(), VALIDATION, namespace, findings)
                .map_err(|(field, message)| FieldFault { field, reason: "Invalid", message })?;
        let client_certificate = match (is_mutual, raw.client_certificate_ref) {
            (true, None) => {
                return invalid(CLIENT_CERTIFICATE, "is missing: name a Secret, or write mode: ServerOnly");
            }
            (false, Some(_)) => {
                return invalid(CLIENT_CERTIFICATE, "is only for mode ClientAndServer: remove it");
            }
            (_, reference) => reference,
        };
        let client_certificate = client_certificate
            .map(|reference| check_secret(reference, namespace))
            .transpose()
            .map_err(|(within, message)| FieldFault {
                field: format!("{CLIENT_CERTIFICATE}.{within}"),
                reason: "InvalidClientCertificateRef",
                message,
            })?;
        Ok(Some(Self { validation, client_certificate }))
    }
}

fn invalid<T>(field: &str, message: impl Into<String>) -> Result<T, FieldFault> {
    Err(FieldFault { field: field.to_owned(), reason: "Invalid", message: message.into() })
}

fn unsupported<T>(field: &str, message: &str) -> Result<T, FieldFault> {
    Err(FieldFault { field: field.to_owned(), reason: "UnsupportedValue", message: message.to_owned() })
}

fn check_port(XBackendPort { number, port, .. }: XBackendPort) -> Result<u16, FieldFault> {
    let (within, written) = if number.is_some() { ("number", number) } else { ("port", port) };
    match written.map(u16::try_from) {
        Some(Ok(port @ 1..)) => Ok(port),
        Some(_) => invalid(&format!("spec.port.{within}"), "is not between 1 and 65535"),
        None => invalid("spec.port", "is missing: write the number of the port"),
    }
}

fn check_protocol(written: Option<&str>) -> Result<Option<BackendProtocol>, FieldFault> {
    Ok(Some(match written {
        None => return Ok(None),
        Some("HTTP" | "HTTP11" | "WSS") => BackendProtocol::Http1,
        Some("HTTP2" | "H2C" | "GRPC") => BackendProtocol::Http2,
        Some("TCP") => BackendProtocol::Tcp,
        Some("MCP") => {
            return unsupported("spec.protocol", "MCP is not supported: write HTTP");
        }
        Some(other) => {
            return invalid(
                "spec.protocol",
                format!("{other:?} is unknown: write TCP, HTTP, HTTP11, HTTP2, H2C, GRPC or WSS"),
            );
        }
    }))
}

impl Raw for Written<XBackendSpec> {
    fn check(self, object: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        annotation::check_names(object.kind, self.metadata.annotations.as_ref(), findings);
        let generation = self.metadata.generation;
        let spec = self.spec.unwrap_or_default();
        let is_first = spec.port.as_ref().is_some_and(|port| port.number.is_none() && port.port.is_some());
        let release = if is_first { Release::V1_6 } else { Release::V1_7 };
        let backend = match Destination::check(spec, &object.namespace, findings) {
            Ok(destination) => XBackend { generation, release, destination: Ok(destination) },
            Err(FieldFault { field, reason, message }) => {
                let of_status = format!("{field}: {message}");
                findings.error(field, format!("{message}; {DENIED}"));
                XBackend::unusable(generation, release, reason, of_status)
            }
        };
        Some(backend.into())
    }
}
