//! The listeners of a Gateway, and their sockets.

use std::net::{IpAddr, SocketAddr};

use crate::intent::listener::{Listener, Socket};
use crate::intent::{At, Place};
use crate::object::gateway::{self, Gateway, ListenerProtocol};
use crate::object::service::IpProtocol;
use crate::translate::TranslateOptions;

/// The intents of the listeners of a Gateway, in the order of its listeners.
pub(super) fn intents<'a>(at: At<'a>, gateway: &'a Gateway, options: &TranslateOptions) -> Vec<Listener<'a>> {
    let addresses = addresses(gateway, options);
    let intent = |listener: &'a gateway::Listener| {
        let place = Place::Listener(listener.index);
        let field = |within: &str| format!("{}.{within}", place.field());
        let sockets = match listener.protocol.route() {
            None => {
                let message = format!("{} is not supported; the listener is not served", listener.protocol);
                Err(at.note(&field("protocol"), message))
            }
            Some(_) => {
                sockets(listener, &addresses, options).map_err(|fault| at.warning(&field("port"), fault))
            }
        };
        Listener {
            at,
            place,
            name: &listener.name,
            protocol: listener.protocol,
            hostname: &listener.hostname,
            port: listener.port,
            sockets,
        }
    };
    gateway.listeners.iter().map(intent).collect()
}

/// The addresses of a Gateway. An address is redundant beside the wildcard address of its family.
fn addresses(gateway: &Gateway, options: &TranslateOptions) -> Vec<IpAddr> {
    let written = gateway.addresses.as_ref().unwrap_or(&options.gateway_addresses);
    let mut addresses = written.clone();
    addresses.retain(|address| {
        let covers = |other: &IpAddr| other.is_unspecified() && other.is_ipv4() == address.is_ipv4();
        address.is_unspecified() || !written.iter().any(covers)
    });
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// The sockets of a listener, or the reason why it has none.
fn sockets(
    listener: &gateway::Listener,
    addresses: &[IpAddr],
    options: &TranslateOptions,
) -> Result<Vec<Socket>, String> {
    let port = listener.port;
    let protocol = match listener.protocol {
        ListenerProtocol::Udp => IpProtocol::Udp,
        _ => IpProtocol::Tcp,
    };
    if protocol == IpProtocol::Tcp {
        let is_https = options.https_ports.contains(&port);
        let used = match () {
            () if options.http_ports.contains(&port) => Some("HTTP (--listen)"),
            () if options.admin_port == Some(port) => Some("the admin interface (--admin)"),
            () if is_https && listener.protocol == ListenerProtocol::Tcp => Some("HTTPS (--listen-https)"),
            () => None,
        };
        if let Some(used) = used {
            return Err(format!(
                "{port} is a port of {used}; the listener is not served. Choose another port"
            ));
        }
        if is_https {
            return Ok(vec![Socket::Https(port)]);
        }
    }
    let own = |address: &IpAddr| Socket::Own { address: SocketAddr::new(*address, port), protocol };
    Ok(addresses.iter().map(own).collect())
}
