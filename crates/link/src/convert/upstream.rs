//! Upstreams and their endpoints.

use std::sync::Arc;

use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};
use sluicegate_model::{
    Balance, Conditions, Endpoint, Protocol, ProxyProtocol, Transport, TransportTls, Upstream, UpstreamKey,
    UpstreamLimits, UpstreamTls, Verification,
};

use super::health::health;
use super::tls::{ders, of_ders};
use super::{Refusal, Share, Shared, known, reference, required, resolve};
use crate::proto;

impl From<&UpstreamKey> for proto::UpstreamKey {
    fn from(key: &UpstreamKey) -> Self {
        let protocol = match key.transport.protocol {
            Protocol::Http => proto::UpstreamKeyProtocol::Http,
            Protocol::Http2 => proto::UpstreamKeyProtocol::Http2,
            Protocol::Tcp => proto::UpstreamKeyProtocol::Tcp,
            Protocol::Udp => proto::UpstreamKeyProtocol::Udp,
        };
        Self {
            namespace: key.namespace.to_string(),
            service: key.service.to_string(),
            port: key.port.to_string(),
            protocol: protocol.into(),
            tls: key.transport.tls.as_ref().map(|tls| proto::TransportTls {
                server_name: tls.server_name.to_string(),
                sends_name: tls.sends_name,
                verifies: tls.verifies,
                secret: tls.secret.as_ref().map(ToString::to_string),
            }),
        }
    }
}

impl TryFrom<proto::UpstreamKey> for UpstreamKey {
    type Error = Refusal;

    fn try_from(key: proto::UpstreamKey) -> Result<Self, Refusal> {
        let protocol = match known(key.protocol, "the protocol of an upstream")? {
            proto::UpstreamKeyProtocol::None => return Err(Refusal::Missing("the protocol of an upstream")),
            proto::UpstreamKeyProtocol::Http => Protocol::Http,
            proto::UpstreamKeyProtocol::Http2 => Protocol::Http2,
            proto::UpstreamKeyProtocol::Tcp => Protocol::Tcp,
            proto::UpstreamKeyProtocol::Udp => Protocol::Udp,
        };
        let tls = |tls: proto::TransportTls| {
            Arc::new(TransportTls {
                server_name: tls.server_name.into(),
                sends_name: tls.sends_name,
                verifies: tls.verifies,
                secret: tls.secret.map(Into::into),
            })
        };
        Ok(Self {
            namespace: key.namespace.into(),
            service: key.service.into(),
            port: key.port.into(),
            transport: Transport { protocol, tls: key.tls.map(tls) },
        })
    }
}

pub(super) fn balance(balance: Balance) -> proto::UpstreamBalance {
    match balance {
        Balance::Ewma => proto::UpstreamBalance::Ewma,
        Balance::RoundRobin => proto::UpstreamBalance::RoundRobin,
        Balance::LeastRequest => proto::UpstreamBalance::LeastRequest,
    }
}

pub(super) fn of_balance(balance: proto::UpstreamBalance) -> Option<Balance> {
    match balance {
        proto::UpstreamBalance::None => None,
        proto::UpstreamBalance::Ewma => Some(Balance::Ewma),
        proto::UpstreamBalance::RoundRobin => Some(Balance::RoundRobin),
        proto::UpstreamBalance::LeastRequest => Some(Balance::LeastRequest),
    }
}

impl proto::Upstream {
    /// Its settings, without its endpoints.
    pub(crate) fn new(upstream: &Upstream, share: &mut impl Share) -> Self {
        // Named one by one, so that a new field is not forgotten here.
        let Upstream { balance, limits, external_name, tls, proxy_protocol, health, endpoints: _ } = upstream;
        let health = health.as_deref();
        let UpstreamLimits { max_requests, max_requests_per_endpoint } = limits;
        Self {
            balance: self::balance(*balance).into(),
            max_requests: *max_requests,
            max_requests_per_endpoint: *max_requests_per_endpoint,
            external_name: external_name.as_ref().map(ToString::to_string),
            tls: reference(tls.as_ref().map(|tls| share.upstream_tls(tls))),
            proxy_protocol: match proxy_protocol {
                None => 0,
                Some(ProxyProtocol::V1) => 1,
                Some(ProxyProtocol::V2) => 2,
            },
            ejection: health.and_then(|health| health.ejection.as_ref()).map(Into::into),
            check: health.and_then(|health| health.check.as_ref()).map(Into::into),
        }
    }

    /// An upstream without endpoints.
    pub(crate) fn read(self, shared: &impl Shared) -> Result<Upstream, Refusal> {
        Ok(Upstream {
            balance: required(
                of_balance(known(self.balance, "the balance of an upstream")?),
                "the balance of an upstream",
            )?,
            limits: UpstreamLimits {
                max_requests: self.max_requests,
                max_requests_per_endpoint: self.max_requests_per_endpoint,
            },
            external_name: self.external_name.map(Into::into),
            health: health(self.ejection, self.check)?,
            tls: resolve(&self.tls, "TLS of an upstream", |name| shared.upstream_tls(name))?,
            proxy_protocol: match self.proxy_protocol {
                0 => None,
                1 => Some(ProxyProtocol::V1),
                2 => Some(ProxyProtocol::V2),
                other => {
                    let value = i32::try_from(other).unwrap_or(i32::MAX);
                    return Err(Refusal::Unknown { field: "the version of the PROXY protocol", value });
                }
            },
            endpoints: Arc::default(),
        })
    }
}

impl From<&[Endpoint]> for proto::Endpoints {
    fn from(endpoints: &[Endpoint]) -> Self {
        let endpoint = |endpoint: &Endpoint| {
            let Conditions { ready, serving, terminating } = endpoint.conditions;
            proto::Endpoint { address: Some((&endpoint.address).into()), ready, serving, terminating }
        };
        Self { endpoints: endpoints.iter().map(endpoint).collect() }
    }
}

impl TryFrom<proto::Endpoints> for Arc<[Endpoint]> {
    type Error = Refusal;

    fn try_from(endpoints: proto::Endpoints) -> Result<Self, Refusal> {
        let endpoint = |endpoint: proto::Endpoint| {
            let proto::Endpoint { address, ready, serving, terminating } = endpoint;
            let address = required(address, "the address of an endpoint")?.try_into()?;
            Ok(Endpoint { address, conditions: Conditions { ready, serving, terminating } })
        };
        endpoints.endpoints.into_iter().map(endpoint).collect()
    }
}

impl proto::UpstreamTls {
    pub(crate) fn new(tls: &UpstreamTls, share: &mut impl Share) -> Self {
        let UpstreamTls { server_name, sends_name, verification, identity } = tls;
        Self {
            server_name: server_name.to_string(),
            sends_name: *sends_name,
            authorities: match verification {
                Verification::None => None,
                Verification::Authorities { roots, crls } => {
                    Some(proto::Authorities { roots: of_ders(roots), crls: of_ders(crls) })
                }
            },
            identity: reference(identity.as_ref().map(|certificate| share.certificate(certificate))),
        }
    }

    pub(crate) fn read(self, shared: &impl Shared) -> Result<UpstreamTls, Refusal> {
        Ok(UpstreamTls {
            server_name: self.server_name.into(),
            sends_name: self.sends_name,
            verification: self.authorities.map_or(Verification::None, |authorities| {
                Verification::Authorities {
                    roots: ders(authorities.roots, CertificateDer::from),
                    crls: ders(authorities.crls, CertificateRevocationListDer::from),
                }
            }),
            identity: resolve(&self.identity, "certificate", |name| shared.certificate(name))?,
        })
    }
}
