//! The listeners of a Gateway, and their sockets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sluicegate_model::Certificate;

use crate::frontend::certificate;
use crate::intent::listener::{Listener, Socket};
use crate::intent::{At, Place};
use crate::object::Kind;
use crate::object::gateway::{self, Gateway, ListenerProtocol};
use crate::object::namespace::Namespace;
use crate::object::service::IpProtocol;
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::TranslateOptions;

/// The intents of the listeners of a Gateway, in the order of its listeners.
pub(super) fn intents<'a>(
    store: &Store,
    at: At<'a>,
    gateway: &'a Gateway,
    options: &TranslateOptions,
    problems: &mut Vec<Problem>,
) -> Vec<Listener<'a>> {
    let addresses = addresses(gateway, options);
    let mut intent = |listener: &'a gateway::Listener| {
        let place = Place::Listener(listener.index);
        let field = |within: &str| format!("{}.{within}", place.field());
        if listener.selects_namespaces() && store.all::<Namespace>().next().is_none() {
            let message = "selects no namespace, because the gateway knows no Namespace; no route is attached. In a cluster, allow \
                           the gateway to get, list and watch namespaces";
            problems.push(at.warning(&field("allowedRoutes.namespaces.selector"), message.to_owned()));
        }
        let sockets = match listener.protocol.routes() {
            [] => {
                let message = format!("{} is not supported; the listener is not served", listener.protocol);
                Err(at.note(&field("protocol"), message))
            }
            _ => sockets(listener, &addresses, options).map_err(|fault| at.warning(&field("port"), fault)),
        };
        Listener {
            at,
            place,
            name: &listener.name,
            protocol: listener.protocol,
            hostname: &listener.hostname,
            port: listener.port,
            certificates: certificates(store, at, listener, problems),
            sockets,
        }
    };
    gateway.listeners.iter().map(&mut intent).collect()
}

/// The valid certificates of a listener, one for each kind of key.
fn certificates(
    store: &Store,
    at: At<'_>,
    listener: &gateway::Listener,
    problems: &mut Vec<Problem>,
) -> Vec<Arc<Certificate>> {
    let mut certificates: Vec<Arc<Certificate>> = Vec::new();
    let mut faults = Vec::new();
    for (index, secret) in &listener.certificates {
        let is_granted = store.is_granted(at.object, &secret.namespace, (Kind::Secret, &secret.name));
        let certificate = match is_granted {
            true => certificate::of_secret(store, secret),
            false => Err(format!(
                "no ReferenceGrant of namespace {} allows a Gateway of namespace {} to name {secret}",
                secret.namespace, at.object.namespace
            )),
        };
        match certificate {
            Ok(new) if certificates.iter().any(|known| known.key_kind == new.key_kind) => {
                faults.push((
                    *index,
                    format!("{secret} is ignored: an earlier certificate has the same type of key"),
                ));
            }
            Ok(new) => certificates.push(new),
            Err(fault) => faults.push((*index, fault)),
        }
    }
    certificates.sort_by_key(|certificate| certificate.key_kind);
    let consequence = if certificates.is_empty() { "; the listener rejects every client" } else { "" };
    for (index, fault) in faults {
        let field = format!("{}.tls.certificateRefs[{index}]", Place::Listener(listener.index).field());
        problems.push(at.warning(&field, format!("{fault}{consequence}")));
    }
    certificates
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
        let (is_http, is_https) = (options.http_ports.contains(&port), options.https_ports.contains(&port));
        let is_tls = matches!(listener.protocol, ListenerProtocol::Https | ListenerProtocol::Tls);
        let used = match () {
            () if is_http && listener.protocol != ListenerProtocol::Http => Some("HTTP (--listen)"),
            () if options.admin_port == Some(port) => Some("the admin interface (--admin)"),
            () if is_https && !is_tls => Some("HTTPS (--listen-https)"),
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
        if is_http {
            return Ok(vec![Socket::Http(port)]);
        }
    }
    let own = |address: &IpAddr| Socket::Own { address: SocketAddr::new(*address, port), protocol };
    Ok(addresses.iter().map(own).collect())
}
