//! The split of a configuration into resources.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use sluicegate_model::encoding::{
    Adapt as _, Address, Context, List, Part, PartName, Shared, encode, encode_as,
};
use sluicegate_model::{Config, Endpoint, Listener, Serves};

use crate::digest::Digest;
use crate::messages::encoded;
use crate::resource::{Kind, Name};

/// Splits a configuration into its resources. A shared part is one resource.
pub(crate) fn cut(config: &Config) -> BTreeMap<Name, Bytes> {
    let Config { settings, hosts, default_rule, listeners, tls, consumers, upstreams, own_scopes: _ } =
        config;
    let mut cutter = Cutter::default();
    cutter.add(Kind::Settings.alone(), settings);
    if let Some(route) = default_rule {
        cutter.add(Kind::DefaultRule.alone(), route);
    }
    for host in hosts {
        cutter.add(Kind::Host.of_host(&host.entry_point, &host.host), &**host);
    }
    for listener in listeners {
        cutter.add(listener_name(listener), listener);
    }
    for host in &tls.hosts {
        cutter.add(Kind::TlsHost.of_host(&host.entry_point, &host.host), &**host);
    }
    for route in &tls.passthrough {
        cutter.add(Kind::Passthrough.of_host(&route.entry_point, &route.host), route);
    }
    for host in &tls.acme {
        cutter.add(Kind::of_acme_host(&host.host), &**host);
    }
    let default = encode_as::<List<Shared>, _, _>(&tls.default, &mut cutter);
    cutter.resources.insert(Kind::DefaultCertificates.alone(), default.into());
    cutter.add(Kind::TicketSecrets.alone(), &tls.ticket_secrets);
    for consumer in consumers {
        cutter.add(Kind::Consumer.of_object(&consumer.id), &**consumer);
    }
    for (key, upstream) in upstreams {
        cutter.add(Kind::Upstream.of_upstream(key), &**upstream);
        cutter.resources.insert(Kind::Endpoints.of_upstream(key), endpoints_body(&upstream.endpoints));
    }
    cutter.resources
}

/// The body of the only resource that changes with the endpoints of an upstream. Endpoint changes take this short path.
pub(crate) fn endpoints_body(endpoints: &[Endpoint]) -> Bytes {
    encoded(&endpoints).into()
}

/// The name of a listener's resource.
#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct ListenerName {
    #[cbor(n(0), with = "Address")]
    address: std::net::SocketAddr,
    /// Whether the listener is for UDP: TCP and UDP have separate ports.
    #[n(1)]
    datagrams: bool,
}

/// The name of a listener's resource.
pub(crate) fn listener_name(listener: &Listener) -> Name {
    let datagrams = matches!(listener.serves, Serves::Udp(_));
    Kind::Listener.named(encoded(&ListenerName { address: listener.address, datagrams }).into())
}

#[derive(Default)]
struct Cutter {
    resources: BTreeMap<Name, Bytes>,
    /// The parts that are already encoded, by their addresses in memory. A certificate with a thousand names is encoded
    /// once.
    written: HashMap<usize, PartName>,
}

impl Cutter {
    fn add<T: Encode<Self>>(&mut self, name: Name, value: &T) {
        let body = encode(value, self);
        self.resources.insert(name, body.into());
    }
}

impl Context for Cutter {
    fn name<T: Part + Encode<Self>>(&mut self, part: &Arc<T>) -> PartName {
        let place = Arc::as_ptr(part).addr();
        if let Some(name) = self.written.get(&place) {
            return *name;
        }
        let body = encode(&**part, self);
        let name = PartName(*Digest::of(&body).as_bytes());
        self.resources.insert(Name::of_part::<T>(&name.0), body.into());
        self.written.insert(place, name);
        name
    }

    /// The encoder only writes parts.
    fn part<T: Part>(&mut self, _: &PartName) -> Option<Arc<T>> {
        None
    }
}
