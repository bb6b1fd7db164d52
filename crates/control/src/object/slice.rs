//! `EndpointSlice`.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1;
use sluicegate_model::Conditions;

use super::kind::Raw;
use super::service::{IpProtocol, ServicePort};
use super::{Kind, Object, ObjectRef, annotation};
use crate::problem::Findings;

/// The label with the Service of a slice.
pub(crate) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// A checked `EndpointSlice`. A fault in an endpoint removes that endpoint alone and is no error, as long as there are
/// other endpoints: changes of the others, such as the removal of an endpoint, must take effect.
#[derive(Debug, PartialEq)]
pub(crate) struct EndpointSlice {
    /// The Service of the slice.
    pub(crate) service: Option<Arc<str>>,
    pub(crate) ports: Vec<SlicePort>,
    pub(crate) endpoints: Vec<(IpAddr, Conditions)>,
}

/// A port on which every endpoint of the slice listens.
#[derive(Debug, PartialEq)]
pub(crate) struct SlicePort {
    /// The name of the Service's port that it serves; empty for a Service of one port without a name.
    pub(crate) name: Box<str>,
    pub(crate) protocol: IpProtocol,
    pub(crate) port: u16,
}

impl EndpointSlice {
    pub(crate) fn check(raw: v1::EndpointSlice, findings: &mut Findings) -> Self {
        annotation::check_names(Kind::EndpointSlice, raw.metadata.annotations.as_ref(), findings);
        let service = raw.metadata.labels.and_then(|mut labels| labels.remove(SERVICE_LABEL));
        if service.is_none() {
            findings.warning(
                "metadata.labels",
                format!("has no {SERVICE_LABEL}; the slice belongs to no Service and is ignored"),
            );
        }
        let ports = raw
            .ports
            .unwrap_or_default()
            .into_iter()
            .enumerate()
            .filter_map(|(index, port)| SlicePort::check(port, index, findings))
            .collect();
        let is_family = match &*raw.address_type {
            "IPv4" => IpAddr::is_ipv4,
            "IPv6" => IpAddr::is_ipv6,
            "FQDN" => {
                findings.warning(
                    "addressType",
                    "is FQDN, which is not supported; the slice is ignored. Use a Service of type ExternalName",
                );
                return Self { service: service.map(Into::into), ports, endpoints: Vec::new() };
            }
            other => {
                findings.error("addressType", format!("{other:?} is unknown: write IPv4 or IPv6"));
                |_: &IpAddr| true
            }
        };
        let written = raw.endpoints.unwrap_or_default();
        let mut endpoints = Vec::with_capacity(written.len());
        let is_empty = written.is_empty();
        for (index, endpoint) in written.into_iter().enumerate() {
            // All addresses of an endpoint are equivalent, and clients may use the first address alone.
            let Some(written) = endpoint.addresses.first() else {
                findings
                    .warning(format!("endpoints[{index}].addresses"), "is missing; the endpoint is ignored");
                continue;
            };
            match written.parse::<IpAddr>() {
                Ok(address) if is_family(&address) => {
                    endpoints.push((address, conditions(endpoint.conditions.as_ref())));
                }
                _ => findings.warning(
                    format!("endpoints[{index}].addresses[0]"),
                    format!(
                        "{written:?} is not an address of type {}; the endpoint is ignored",
                        raw.address_type
                    ),
                ),
            }
        }
        if endpoints.is_empty() && !is_empty {
            findings.error("endpoints", "has no valid address");
        }
        Self { service: service.map(Into::into), ports, endpoints }
    }
}

impl SlicePort {
    /// Whether it is the destination of a Service's port.
    pub(crate) fn serves(&self, port: &ServicePort) -> bool {
        *self.name == *port.name && self.protocol == port.protocol
    }

    fn check(raw: v1::EndpointPort, index: usize, findings: &mut Findings) -> Option<Self> {
        let protocol = IpProtocol::of(raw.protocol.as_deref())?;
        match raw.port.map(u16::try_from) {
            Some(Ok(port @ 1..)) => Some(Self { name: raw.name.unwrap_or_default().into(), protocol, port }),
            Some(_) => {
                findings.error(format!("ports[{index}].port"), "is not between 1 and 65535");
                None
            }
            None => {
                findings.error(
                    format!("ports[{index}].port"),
                    "is missing: write a port, because \"all ports\" is not supported",
                );
                None
            }
        }
    }
}

/// Fills in Kubernetes' defaults (`EndpointConditions`).
fn conditions(raw: Option<&v1::EndpointConditions>) -> Conditions {
    let ready = raw.and_then(|conditions| conditions.ready).unwrap_or(true);
    Conditions {
        ready,
        serving: raw.and_then(|conditions| conditions.serving).unwrap_or(ready),
        terminating: raw.and_then(|conditions| conditions.terminating).unwrap_or(false),
    }
}

impl Raw for v1::EndpointSlice {
    fn check(self, _: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(EndpointSlice::check(self, findings).into())
    }
}
