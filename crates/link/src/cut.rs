//! The split of a configuration into resources.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use sluicegate_model::encoding::{
    Adapt as _, Address, Context, List, Part, PartName, Shared, encode, encode_as,
};
use sluicegate_model::{
    Config, Endpoint, Listener, Serves, Tls, Upstream, UpstreamKey, Upstreams, without_common_ends,
};

use crate::digest::Digest;
use crate::messages::encoded;
use crate::resource::{Kind, Name};

/// The difference between two configurations: resources with new bodies, and removed resources (`None`).
pub(crate) type Changes = BTreeMap<Name, Option<Bytes>>;

/// Splits one configuration after another into resources. A shared part is one resource. A value that is the same [`Arc`] as in
/// the previous configuration costs one comparison of pointers.
#[derive(Default)]
pub(crate) struct Cutter {
    /// The previous configuration. It keeps all parts of `written` in memory, so that no other part has their addresses.
    config: Option<Arc<Config>>,
    /// The upstreams whose endpoints have changed since the previous configuration.
    moved: BTreeSet<UpstreamKey>,
    /// The encoded parts, by their addresses in memory. A certificate with a thousand names is encoded once.
    written: HashMap<usize, Written>,
    /// The numbers of encoded parts with the same kind and name: equal parts are one resource.
    equal: HashMap<(u32, PartName), usize>,
    /// Whether values leave the configuration. If not, they enter.
    leaves: bool,
    changes: Changes,
}

/// An encoded part.
struct Written {
    name: PartName,
    /// The number of values that name the part.
    uses: usize,
}

impl Cutter {
    /// The difference from the previous configuration to this one. The first difference has all resources.
    pub(crate) fn cut(&mut self, config: &Arc<Config>) -> Changes {
        let earlier = self.config.replace(config.clone());
        // New values enter first, so that no part leaves that stays in use.
        self.leaves = false;
        self.differing(config, earlier.as_deref());
        for key in std::mem::take(&mut self.moved) {
            if let Some(upstream) = config.upstreams.get(&key) {
                self.set(Kind::Endpoints.of_upstream(&key), || endpoints_body(&upstream.endpoints));
            }
        }
        if let Some(earlier) = earlier {
            self.leaves = true;
            self.differing(&earlier, Some(config));
        }
        std::mem::take(&mut self.changes)
    }

    /// Notes that the data planes received other endpoints of an upstream since the previous configuration.
    pub(crate) fn endpoints_changed(&mut self, upstream: &UpstreamKey) {
        if self.config.as_ref().is_some_and(|config| config.upstreams.contains_key(upstream)) {
            self.moved.insert(upstream.clone());
        }
    }

    /// Takes everything of a configuration that the other one does not have, and the values that are not behind an [`Arc`].
    fn differing(&mut self, config: &Config, other: Option<&Config>) {
        let Config { settings, hosts, default_rule, listeners, tls, consumers, upstreams, own_scopes: _ } =
            config;
        self.take(Kind::Settings.alone(), settings);
        if let Some(rule) = default_rule {
            self.take(Kind::DefaultRule.alone(), rule);
        }
        for host in not_in(hosts, other.map(|other| &*other.hosts)) {
            self.take(Kind::Host.of_host(&host.entry_point, &host.host), &**host);
        }
        for listener in listeners {
            self.take(listener_name(listener), listener);
        }
        for consumer in not_in(consumers, other.map(|other| &*other.consumers)) {
            self.take(Kind::Consumer.of_object(&consumer.id), &**consumer);
        }
        for (key, upstream) in upstreams_not_in(upstreams, other.map(|other| &other.upstreams)) {
            self.take(Kind::Upstream.of_upstream(key), &**upstream);
            self.set(Kind::Endpoints.of_upstream(key), || endpoints_body(&upstream.endpoints));
        }
        let other = other.map(|other| &other.tls);
        if other.is_some_and(|other| Arc::ptr_eq(other, tls)) {
            return;
        }
        let Tls { hosts, passthrough, acme, default, ticket_secrets } = &**tls;
        for host in not_in(hosts, other.map(|other| &*other.hosts)) {
            self.take(Kind::TlsHost.of_host(&host.entry_point, &host.host), &**host);
        }
        for route in passthrough {
            self.take(Kind::Passthrough.of_host(&route.entry_point, &route.host), route);
        }
        for host in not_in(acme, other.map(|other| &*other.acme)) {
            self.take(Kind::of_acme_host(&host.host), &**host);
        }
        let default = encode_as::<List<Shared>, _, _>(default, self);
        self.set(Kind::DefaultCertificates.alone(), || default.into());
        self.take(Kind::TicketSecrets.alone(), ticket_secrets);
    }

    fn take<T: Encode<Self>>(&mut self, name: Name, value: &T) {
        // Also if the value leaves: then the parts that it names have one use less.
        let body = encode(value, self);
        self.set(name, || body.into());
    }

    fn set(&mut self, name: Name, body: impl FnOnce() -> Bytes) {
        if self.leaves {
            // Another value may have entered with this name.
            self.changes.entry(name).or_default();
        } else {
            self.changes.insert(name, Some(body()));
        }
    }

    /// Counts a use less of a part.
    fn leave<T: Part + Encode<Self>>(&mut self, part: &Arc<T>) -> PartName {
        let place = Arc::as_ptr(part).addr();
        let Some(written) = self.written.get_mut(&place) else { return PartName::default() };
        let name = written.name;
        written.uses -= 1;
        if written.uses > 0 {
            return name;
        }
        self.written.remove(&place);
        // The parts that this part names.
        encode(&**part, self);
        if let Some(equal) = self.equal.get_mut(&(T::KIND, name)) {
            *equal -= 1;
            if *equal == 0 {
                self.equal.remove(&(T::KIND, name));
                self.changes.insert(Name::of_part::<T>(&name.0), None);
            }
        }
        name
    }
}

impl Context for Cutter {
    fn name<T: Part + Encode<Self>>(&mut self, part: &Arc<T>) -> PartName {
        if self.leaves {
            return self.leave(part);
        }
        let place = Arc::as_ptr(part).addr();
        if let Some(written) = self.written.get_mut(&place) {
            written.uses += 1;
            return written.name;
        }
        let body = encode(&**part, self);
        let name = PartName(*Digest::of(&body).as_bytes());
        self.written.insert(place, Written { name, uses: 1 });
        let equal = self.equal.entry((T::KIND, name)).or_default();
        *equal += 1;
        if *equal == 1 {
            self.changes.insert(Name::of_part::<T>(&name.0), Some(body.into()));
        }
        name
    }

    /// The encoder only writes parts.
    fn part<T: Part>(&mut self, _: &PartName) -> Option<Arc<T>> {
        None
    }
}

/// The items of a list that are not in the other list.
fn not_in<'a, T>(list: &'a [Arc<T>], other: Option<&'a [Arc<T>]>) -> impl Iterator<Item = &'a Arc<T>> {
    let (list, other) = without_common_ends(list, other.unwrap_or_default());
    let known: HashSet<usize> = other.iter().map(|item| Arc::as_ptr(item).addr()).collect();
    list.iter().filter(move |item| !known.contains(&Arc::as_ptr(item).addr()))
}

/// The upstreams that are not in the other map with the same key.
fn upstreams_not_in<'a>(
    upstreams: &'a Upstreams,
    other: Option<&'a Upstreams>,
) -> impl Iterator<Item = (&'a UpstreamKey, &'a Arc<Upstream>)> {
    let is_same = other.is_some_and(|other| upstreams.is_shared_with(other));
    let mut others = other.into_iter().flatten().peekable();
    let differs = move |(key, upstream): &(&UpstreamKey, &Arc<Upstream>)| {
        while others.next_if(|(other, _)| other < key).is_some() {}
        others.next_if(|(other, _)| other == key).is_none_or(|(_, other)| !Arc::ptr_eq(upstream, other))
    };
    (!is_same).then(|| upstreams.iter().filter(differs)).into_iter().flatten()
}

/// All resources of a configuration.
#[cfg(any(test, fuzzing))]
pub(crate) fn cut(config: &Config) -> BTreeMap<Name, Bytes> {
    let changes = Cutter::default().cut(&Arc::new(config.clone()));
    changes.into_iter().filter_map(|(name, body)| Some((name, body?))).collect()
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
