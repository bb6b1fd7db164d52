//! From a configuration to resources.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use sluicegate_model::policy::{RateLimits, Security, Traffic};
use sluicegate_model::{Certificate, ClientAuth, Config, Endpoint, Layer4, Listener, UpstreamTls};

use crate::convert::Share;
use crate::digest::Digest;
use crate::proto;
use crate::resource::{Kind, Name};

/// Everything in a configuration, each part once.
pub(crate) fn cut(config: &Config) -> BTreeMap<Name, Bytes> {
    let Config { settings, hosts, default_route, listeners, tls, consumers, upstreams } = config;
    let mut cutter = Cutter::default();
    cutter.add(Kind::Settings.alone(), &proto::Settings::from(settings));
    if let Some(route) = default_route {
        let route = proto::Route::new(route, &mut cutter);
        cutter.add(Kind::DefaultRoute.alone(), &route);
    }
    for host in hosts {
        let message = proto::VirtualHost::new(host, &mut cutter);
        cutter.add(Kind::Host.of_host(&host.host), &message);
    }
    for listener in listeners {
        cutter.add(listener_name(listener), &proto::Listener::from(listener));
    }
    for host in &tls.hosts {
        let message = proto::TlsHost::new(host, &mut cutter);
        cutter.add(Kind::TlsHost.of_host(&host.host), &message);
    }
    for route in &tls.passthrough {
        cutter.add(Kind::Passthrough.of_host(&route.host), &proto::TlsRoute::from(route));
    }
    let default = proto::Certificates::new(&tls.default, &mut cutter);
    cutter.add(Kind::DefaultCertificates.alone(), &default);
    cutter.add(Kind::TicketSecrets.alone(), &proto::TicketSecrets::from(&*tls.ticket_secrets));
    for consumer in consumers {
        cutter.add(Kind::Consumer.of_object(&consumer.id), &proto::Consumer::from(&**consumer));
    }
    for (key, upstream) in upstreams {
        let message = proto::Upstream::new(upstream, &mut cutter);
        cutter.add(Kind::Upstream.of_upstream(key), &message);
        cutter.resources.insert(Kind::Endpoints.of_upstream(key), endpoints_body(&upstream.endpoints));
    }
    cutter.resources
}

/// The short path: the body of the one resource that changes when endpoints do.
pub(crate) fn endpoints_body(endpoints: &[Endpoint]) -> Bytes {
    proto::Endpoints::from(endpoints).encode_to_vec().into()
}

/// What a listener is named by.
pub(crate) fn listener_name(listener: &Listener) -> Name {
    let datagrams = matches!(listener.serves, Layer4::Udp(_));
    let name = proto::ListenerName { address: Some((&listener.address).into()), datagrams };
    Kind::Listener.named(name.encode_to_vec().into())
}

#[derive(Default)]
struct Cutter {
    resources: BTreeMap<Name, Bytes>,
    /// What was written already, by where it lies: a certificate of a thousand names is written once.
    written: HashMap<usize, Digest>,
}

impl Cutter {
    fn add(&mut self, name: Name, message: &impl Message) {
        self.resources.insert(name, message.encode_to_vec().into());
    }

    fn share<T, M: Message>(
        &mut self,
        kind: Kind,
        what: &Arc<T>,
        message: impl FnOnce(&mut Self) -> M,
    ) -> Digest {
        let place = Arc::as_ptr(what).addr();
        if let Some(digest) = self.written.get(&place) {
            return *digest;
        }
        let body = message(self).encode_to_vec();
        let digest = Digest::of(&body);
        self.resources.insert(kind.named(digest.into_bytes()), body.into());
        self.written.insert(place, digest);
        digest
    }
}

impl Share for Cutter {
    fn certificate(&mut self, certificate: &Arc<Certificate>) -> Digest {
        self.share(Kind::Certificate, certificate, |_| proto::Certificate::from(&**certificate))
    }

    fn client_auth(&mut self, policy: &Arc<ClientAuth>) -> Digest {
        self.share(Kind::ClientAuth, policy, |_| proto::ClientAuth::from(&**policy))
    }

    fn upstream_tls(&mut self, tls: &Arc<UpstreamTls>) -> Digest {
        self.share(Kind::UpstreamTls, tls, |cutter| proto::UpstreamTls::new(tls, cutter))
    }

    fn security(&mut self, policy: &Arc<Security>) -> Digest {
        self.share(Kind::Security, policy, |_| proto::Security::from(&**policy))
    }

    fn rate_limits(&mut self, policy: &Arc<RateLimits>) -> Digest {
        self.share(Kind::RateLimits, policy, |_| proto::RateLimits::from(&**policy))
    }

    fn traffic(&mut self, policy: &Arc<Traffic>) -> Digest {
        self.share(Kind::Traffic, policy, |_| proto::Traffic::from(&**policy))
    }
}
