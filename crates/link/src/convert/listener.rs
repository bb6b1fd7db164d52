//! What is below HTTP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use bytes::Bytes;
use sluicegate_model::{Layer4, Layer4Route, Listener, ListenerId, TlsRoute, WeightedUpstream};

use super::{Refusal, all, known, required};
use crate::proto;

impl From<&SocketAddr> for proto::Address {
    fn from(address: &SocketAddr) -> Self {
        let (ip, scope) = match address {
            SocketAddr::V4(address) => (Bytes::copy_from_slice(&address.ip().octets()), 0),
            SocketAddr::V6(address) => (Bytes::copy_from_slice(&address.ip().octets()), address.scope_id()),
        };
        Self { ip, port: address.port().into(), scope }
    }
}

impl TryFrom<proto::Address> for SocketAddr {
    type Error = Refusal;

    fn try_from(address: proto::Address) -> Result<Self, Refusal> {
        let port = u16::try_from(address.port).map_err(|_| Refusal::Invalid("the port of an address"))?;
        if let Ok(octets) = <[u8; 4]>::try_from(&*address.ip) {
            return Ok((IpAddr::V4(Ipv4Addr::from(octets)), port).into());
        }
        let octets = <[u8; 16]>::try_from(&*address.ip).map_err(|_| Refusal::Invalid("an address"))?;
        Ok(SocketAddrV6::new(Ipv6Addr::from(octets), port, 0, address.scope).into())
    }
}

impl From<&Listener> for proto::Listener {
    fn from(listener: &Listener) -> Self {
        let (protocol, route, tls) = match &listener.serves {
            Layer4::Tcp(route) => (proto::ListenerProtocol::Tcp, route.as_ref(), &[][..]),
            Layer4::Tls(routes) => (proto::ListenerProtocol::Tls, None, &routes[..]),
            Layer4::Udp(route) => (proto::ListenerProtocol::Udp, route.as_ref(), &[][..]),
        };
        Self {
            object: Some((&listener.id.object).into()),
            name: listener.id.name.to_string(),
            address: Some((&listener.address).into()),
            protocol: protocol.into(),
            route: route.map(Into::into),
            tls: tls.iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<proto::Listener> for Listener {
    type Error = Refusal;

    fn try_from(listener: proto::Listener) -> Result<Self, Refusal> {
        let object = required(listener.object, "the object of a listener")?.into();
        let route = listener.route.map(TryInto::try_into).transpose()?;
        Ok(Self {
            id: ListenerId { object, name: listener.name.into() },
            address: required(listener.address, "the address of a listener")?.try_into()?,
            serves: match known(listener.protocol, "the protocol of a listener")? {
                proto::ListenerProtocol::None => {
                    return Err(Refusal::Missing("the protocol of a listener"));
                }
                proto::ListenerProtocol::Tcp => Layer4::Tcp(route),
                proto::ListenerProtocol::Tls => Layer4::Tls(all(listener.tls)?),
                proto::ListenerProtocol::Udp => Layer4::Udp(route),
            },
        })
    }
}

impl From<&TlsRoute> for proto::TlsRoute {
    fn from(route: &TlsRoute) -> Self {
        Self { host: Some((&route.host).into()), route: Some((&route.route).into()) }
    }
}

impl TryFrom<proto::TlsRoute> for TlsRoute {
    type Error = Refusal;

    fn try_from(route: proto::TlsRoute) -> Result<Self, Refusal> {
        Ok(Self {
            host: required(route.host, "the host of a route")?.try_into()?,
            route: required(route.route, "where a route leads")?.try_into()?,
        })
    }
}

impl From<&Layer4Route> for proto::Layer4Route {
    fn from(route: &Layer4Route) -> Self {
        let backend = |backend: &WeightedUpstream| proto::WeightedUpstream {
            upstream: Some((&backend.upstream).into()),
            weight: backend.weight,
        };
        Self { id: Some((&route.id).into()), backends: route.backends.iter().map(backend).collect() }
    }
}

impl TryFrom<proto::Layer4Route> for Layer4Route {
    type Error = Refusal;

    fn try_from(route: proto::Layer4Route) -> Result<Self, Refusal> {
        let backend = |backend: proto::WeightedUpstream| {
            let upstream = required(backend.upstream, "the upstream of a route")?.try_into()?;
            Ok(WeightedUpstream { upstream, weight: backend.weight })
        };
        Ok(Self {
            id: required(route.id, "the object of a route")?.into(),
            backends: route.backends.into_iter().map(backend).collect::<Result<_, Refusal>>()?,
        })
    }
}
