//! The ports of `--tcp-services-configmap` and `--udp-services-configmap`.

use std::net::SocketAddr;

use sluicegate_model::{HostPattern, Layer4Route, Planes, Protocol, ProxyHeader, WeightedUpstream};

use crate::frontend::gateway::used_port;
use crate::intent::listener::{Destination, Listener, ListenerFilters, Openers, Socket};
use crate::intent::{At, Intents, Place, Reference};
use crate::object::gateway::ListenerProtocol;
use crate::object::nginx::services::Entry;
use crate::object::service::IpProtocol;
use crate::problem::{Problem, Severity};
use crate::store::Store;
use crate::translate::{ObjectName, TranslateOptions};
use crate::upstream;

/// The option of the ConfigMap for TCP.
const TCP: &str = "--tcp-services-configmap";

/// The option of the ConfigMap for UDP.
const UDP: &str = "--udp-services-configmap";

/// Clients name no host.
static ANY: HostPattern = HostPattern::Any;

/// Adds the listeners of both ConfigMaps.
pub(crate) fn ask<'a>(store: &'a Store, options: &'a TranslateOptions, intents: &mut Intents<'a>) {
    let maps = [
        (TCP, IpProtocol::Tcp, options.tcp_services.as_ref()),
        (UDP, IpProtocol::Udp, options.udp_services.as_ref()),
    ];
    for (option, protocol, name) in maps {
        if let Some(name) = name {
            of_configmap(store, options, (option, protocol, name), intents);
        }
    }
}

fn of_configmap<'a>(
    store: &'a Store,
    options: &TranslateOptions,
    (option, protocol, name): (&str, IpProtocol, &ObjectName),
    intents: &mut Intents<'a>,
) {
    let object = name.configmap();
    let Some((object, configmap, origin)) = store.configmap_entry(&object) else {
        let message =
            format!("{object} does not exist; its ports are not served. Create it, or remove the option");
        return intents.problems.push(Problem::of_option(option, message));
    };
    let at = At { object, origin };
    let services = configmap.services.get(configmap.data.texts());
    for (key, fault) in &services.faults {
        let message = format!("{fault}; the port is not served");
        intents.problems.push(at.problem(Severity::Error, &format!("data[{key}]"), message));
    }
    for entry in &services.entries {
        if protocol == IpProtocol::Udp && (entry.reads_proxy || entry.sends_proxy) {
            let message = "PROXY has no effect for UDP. Remove the word".to_owned();
            intents.problems.push(at.warning(&Place::Data(entry.port).field(), message));
        }
        intents.listeners.push(listener(store, options, at, protocol, entry));
    }
}

fn listener<'a>(
    store: &Store,
    options: &TranslateOptions,
    at: At<'a>,
    protocol: IpProtocol,
    entry: &'a Entry,
) -> Listener<'a> {
    let place = Place::Data(entry.port);
    let sockets = match used_port(entry.port, options).filter(|_| protocol == IpProtocol::Tcp) {
        Some(used) => {
            let fault = format!("is a port of {used}; the port is not served. Choose another port");
            Err(at.warning(&place.field(), fault))
        }
        None => {
            let own = |address: &std::net::IpAddr| {
                let address = SocketAddr::new(*address, entry.port);
                Socket::Own { address, protocol, openers: Openers::SHARED }
            };
            Ok(options.gateway_addresses.iter().map(own).collect())
        }
    };
    let is_tcp = protocol == IpProtocol::Tcp;
    Listener {
        acme: None,
        at,
        gateway: at.object,
        place,
        name: &entry.key,
        protocol: if is_tcp { ListenerProtocol::Tcp } else { ListenerProtocol::Udp },
        hostname: &ANY,
        port: entry.port,
        planes: Planes::Shared,
        entry_point: None,
        certificates: Vec::new(),
        client_auth: None,
        closed: None,
        filters: ListenerFilters::default(),
        client_certificate: None,
        unresolved: None,
        is_waiting: false,
        proxy_header: if entry.reads_proxy { ProxyHeader::Always } else { ProxyHeader::Never },
        leads_to: Some(destination(store, at, is_tcp, entry)),
        sockets,
    }
}

fn destination<'a>(store: &Store, at: At<'a>, is_tcp: bool, entry: &Entry) -> Destination<'a> {
    let protocol = if is_tcp { Protocol::Tcp } else { Protocol::Udp };
    let named = (&entry.namespace, &entry.service, &entry.service_port);
    let mut upstream = upstream::layer4_key(store, named, protocol);
    upstream.transport.sends_proxy = entry.sends_proxy && is_tcp;
    let backends = vec![WeightedUpstream { upstream: upstream.clone(), weight: 1 }];
    Destination {
        route: Layer4Route { id: at.id(), backends },
        references: vec![Reference { at, place: Place::Data(entry.port), upstream }],
        problems: Vec::new(),
        unresolved: None,
    }
}
