//! The state of a data plane: all resources, each in its last valid version, and the resulting configuration.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use sluicegate_model::encoding::part::Reader;
use sluicegate_model::encoding::{
    Adapt, Fault, Find, List, OrDefault, Part, PartName, Same, Shared, Within, decode_as,
};
use sluicegate_model::policy::{Consumer, RateLimits, Security, Subscriptions, Traffic};
use sluicegate_model::tls::TicketSecret;
use sluicegate_model::{
    AcmeHost, ApiContract, Certificate, Change, ClientAuth, Config, Endpoint, Listener, Rule, Settings, Tls,
    TlsHost, TlsRoute, Upstream, UpstreamKey, UpstreamTls, Upstreams, VirtualHost,
};

use crate::cut::listener_name;
use crate::digest::Digest;
use crate::guard::{HostOutline, RuleOutline};
use crate::resource::{Kind, Name, Refusal, state_of};

/// The maximum number of rejected resources of one batch that the log names.
const NAMED_MAX: usize = 3;

/// The maximum number of removed shared resources that stay in memory for last valid versions.
const RETIRED_MAX: usize = 1000;

/// The difference between two versions.
#[derive(Default)]
pub(crate) struct Delta {
    pub(crate) changed: Vec<(Name, Bytes)>,
    pub(crate) gone: Vec<Name>,
}

/// All resources.
#[derive(Default)]
pub(crate) struct Store {
    entries: BTreeMap<Name, Entry>,
    /// Removed shared resources that a last valid version may need, only for the snapshot.
    retired: BTreeMap<Name, Bytes>,
    /// The number of resources whose newest version is not served.
    refused: usize,
    /// The TLS configuration, cached until one of its resources changes.
    tls: Option<Arc<Tls>>,
    /// The sorted consumers, cached until a consumer changes: sorting 10,000 takes 5 ms.
    consumers: Option<Vec<Arc<Consumer>>>,
    /// The upstreams with their endpoints. The proxy recognizes unchanged upstreams by their [`Arc`].
    upstreams: Upstreams,
    /// The upstreams whose settings or endpoints have changed, but not yet in `upstreams`.
    changed_upstreams: BTreeSet<UpstreamKey>,
}

/// One resource.
struct Entry {
    /// The newest received body.
    body: Bytes,
    digest: Digest,
    /// The served value.
    good: Option<Good>,
    /// The body of `good`, if `body` is not valid.
    last_valid_body: Option<Bytes>,
}

impl Entry {
    fn is_refused(&self) -> bool {
        self.good.is_none() || self.last_valid_body.is_some()
    }
}

/// A rejected resource.
struct Refused {
    refusal: Refusal,
    /// Whether the last valid version stays in service.
    is_kept: bool,
}

/// A decoded resource.
enum Good {
    Settings(Box<Settings>),
    DefaultRule(Rule),
    Host(Arc<VirtualHost>),
    Listener(Listener),
    TlsHost(Arc<TlsHost>),
    AcmeHost(Arc<AcmeHost>),
    DefaultCertificates(Vec<Arc<Certificate>>),
    Passthrough(TlsRoute),
    TicketSecrets(Vec<TicketSecret>),
    Upstream(UpstreamKey, Upstream),
    Endpoints(UpstreamKey, Arc<[Endpoint]>),
    Consumer(Arc<Consumer>),
    /// A shared resource, which others name by its digest.
    Shared(Arc<dyn Any + Send + Sync>),
}

impl Store {
    /// Applies a whole batch, and returns the changes for the proxy: a configuration, or the endpoints of some
    /// upstreams. An invalid resource keeps its last valid version.
    pub(crate) fn apply(&mut self, mut delta: Delta) -> Vec<Change> {
        // The store decodes shared resources before the resources that name them.
        delta.changed.sort_by_key(|(name, _)| match name.kind() {
            Some(Kind::Certificate) => 0,
            Some(kind) if kind.is_shared() => 1,
            _ => 2,
        });
        let mut touched = Touched::default();
        let mut refused = 0;
        for (name, body) in delta.changed {
            let Err(Refused { refusal, is_kept }) = self.set(&name, body) else {
                touched.mark(&name);
                continue;
            };
            refused += 1;
            if refused <= NAMED_MAX {
                let stays = if is_kept { "its last valid version stays" } else { "it is not served" };
                tracing::warn!("{name} is rejected; {stays}: {refusal}");
            }
            if !is_kept {
                touched.mark(&name);
            }
        }
        if refused > NAMED_MAX {
            tracing::warn!("{} further resources were rejected", refused - NAMED_MAX);
        }
        for name in delta.gone {
            if let Some(entry) = self.remove(&name) {
                self.retire(&name, entry);
                touched.mark(&name);
            }
        }
        self.forget_retired();
        if touched.tls {
            self.tls = None;
        }
        if touched.consumers {
            self.consumers = None;
        }
        let changed = touched.upstreams.iter().filter_map(|name| name.upstream().ok());
        self.changed_upstreams.extend(changed);
        match touched.config {
            true => vec![Change::Config(Arc::new(self.config()))],
            false => touched.upstreams.iter().filter_map(|name| self.endpoints_change(name)).collect(),
        }
    }

    fn set(&mut self, name: &Name, body: Bytes) -> Result<(), Refused> {
        let digest = Digest::of(&body);
        let read = self.read(name, &digest, body.clone());
        self.retired.remove(name);
        let before = self.remove(name);
        let (good, last_valid_body, result) = match (read, before) {
            (Ok(part), _) => (Some(part), None, Ok(())),
            (Err(refusal), Some(Entry { good: Some(good), last_valid_body, body: before, .. }))
                if !good.opens(&body) =>
            {
                (Some(good), Some(last_valid_body.unwrap_or(before)), Err(Refused { refusal, is_kept: true }))
            }
            (Err(refusal), _) => (None, None, Err(Refused { refusal, is_kept: false })),
        };
        self.refused += usize::from(result.is_err());
        self.entries.insert(name.clone(), Entry { body, digest, good, last_valid_body });
        result
    }

    fn remove(&mut self, name: &Name) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        self.refused -= usize::from(entry.is_refused());
        Some(entry)
    }

    fn read(&self, name: &Name, digest: &Digest, body: Bytes) -> Result<Good, Refusal> {
        let kind = name.kind().ok_or(Refusal::Kind(name.kind))?;
        if kind.is_shared() && *name.name != digest.as_bytes()[..] {
            return Err(Refusal::Misnamed);
        }
        let part = match kind {
            Kind::Settings => Good::Settings(Box::new(self.decode::<OrDefault, _>(kind, &body)?)),
            Kind::DefaultRule => Good::DefaultRule(self.decode::<Same, _>(kind, &body)?),
            Kind::Host => Good::Host(Arc::new(self.decode::<Same, _>(kind, &body)?)),
            Kind::Listener => Good::Listener(self.decode::<Same, _>(kind, &body)?),
            Kind::TlsHost => Good::TlsHost(Arc::new(self.decode::<Same, _>(kind, &body)?)),
            Kind::AcmeHost => Good::AcmeHost(Arc::new(self.decode::<Same, _>(kind, &body)?)),
            Kind::DefaultCertificates => {
                Good::DefaultCertificates(self.decode::<List<Shared>, _>(kind, &body)?)
            }
            Kind::Passthrough => Good::Passthrough(self.decode::<Same, _>(kind, &body)?),
            Kind::TicketSecrets => Good::TicketSecrets(self.decode::<Same, _>(kind, &body)?),
            Kind::Upstream => Good::Upstream(name.upstream()?, self.decode::<Same, _>(kind, &body)?),
            Kind::Endpoints => {
                let endpoints: Vec<Endpoint> = self.decode::<Same, _>(kind, &body)?;
                Good::Endpoints(name.upstream()?, endpoints.into())
            }
            Kind::Consumer => Good::Consumer(Arc::new(self.decode::<Same, _>(kind, &body)?)),
            Kind::Certificate => self.decode_shared::<Same, Certificate>(kind, &body)?,
            Kind::ClientAuth => self.decode_shared::<Same, ClientAuth>(kind, &body)?,
            Kind::UpstreamTls => self.decode_shared::<Same, UpstreamTls>(kind, &body)?,
            Kind::Security => self.decode_shared::<Same, Security>(kind, &body)?,
            Kind::RateLimits => self.decode_shared::<Within<RateLimits>, RateLimits>(kind, &body)?,
            Kind::Traffic => self.decode_shared::<Same, Traffic>(kind, &body)?,
            Kind::Subscriptions => self.decode_shared::<Within<Subscriptions>, Subscriptions>(kind, &body)?,
            Kind::ApiContract => self.decode_shared::<Same, ApiContract>(kind, &body)?,
        };
        match part.name() {
            Some(other) if other != *name => Err(Refusal::Misnamed),
            _ => Ok(part),
        }
    }

    /// The reason why a resource would be rejected in the current state.
    #[cfg(test)]
    pub(crate) fn refusal(&self, name: &Name, body: Bytes) -> Option<Refusal> {
        self.read(name, &Digest::of(&body), body).err()
    }

    fn decode<A, T>(&self, kind: Kind, body: &[u8]) -> Result<T, Fault>
    where
        A: for<'p> Adapt<T, Reader<'p, Self>>,
    {
        decode_as::<A, T, Self>(body, kind.unknown_fields(), self)
    }

    fn decode_shared<A, T: Part>(&self, kind: Kind, body: &[u8]) -> Result<Good, Fault>
    where
        A: for<'p> Adapt<T, Reader<'p, Self>>,
    {
        Ok(Good::Shared(Arc::new(self.decode::<A, T>(kind, body)?)))
    }

    /// Keeps a removed shared resource: the last valid version of another resource may still name it.
    fn retire(&mut self, name: &Name, entry: Entry) {
        if name.kind().is_some_and(Kind::is_shared) && self.retired.len() < RETIRED_MAX {
            self.retired.insert(name.clone(), entry.body);
        }
    }

    fn forget_retired(&mut self) {
        if self.refused == 0 {
            self.retired.clear();
        }
    }

    /// The number of resources whose newest version is not served.
    pub(crate) fn refused(&self) -> usize {
        self.refused
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The digest of all received resources.
    pub(crate) fn state(&self) -> Bytes {
        state_of(self.entries.iter().map(|(name, entry)| (name, &entry.digest)))
    }

    /// All received resources.
    pub(crate) fn inventory(&self) -> impl Iterator<Item = (&Name, &Digest)> {
        self.entries.iter().map(|(name, entry)| (name, &entry.digest))
    }

    /// The resources for the next start: the last valid versions, and the received bodies without a valid version. A
    /// newer program may be able to decode these bodies.
    pub(crate) fn snapshot(&self) -> Vec<(Name, Bytes)> {
        let entries = self.entries.iter().map(|(name, entry)| {
            (name.clone(), entry.last_valid_body.as_ref().unwrap_or(&entry.body).clone())
        });
        entries.chain(self.retired.iter().map(|(name, body)| (name.clone(), body.clone()))).collect()
    }

    fn endpoints_change(&self, name: &Name) -> Option<Change> {
        match self.entries.get(name)?.good.as_ref()? {
            Good::Endpoints(upstream, endpoints) => {
                Some(Change::Endpoints { upstream: upstream.clone(), endpoints: endpoints.clone() })
            }
            _ => None,
        }
    }

    /// The configuration of all last valid versions.
    pub(crate) fn config(&mut self) -> Config {
        let tls = self.tls.take().unwrap_or_else(|| Arc::new(self.collect_tls()));
        self.tls = Some(tls.clone());
        let consumers = self.consumers.take().unwrap_or_else(|| self.collect_consumers());
        self.consumers = Some(consumers.clone());
        for key in std::mem::take(&mut self.changed_upstreams) {
            match self.upstream(&key) {
                Some(upstream) => drop(self.upstreams.insert(key, Arc::new(upstream))),
                None => drop(self.upstreams.remove(&key)),
            }
        }
        let upstreams = self.upstreams.clone();
        let mut config = Config { tls, consumers, upstreams, ..Config::default() };
        for part in self.good(&[Kind::Settings, Kind::DefaultRule, Kind::Host, Kind::Listener]) {
            match part {
                Good::Settings(settings) => config.settings = (**settings).clone(),
                Good::DefaultRule(route) => config.default_rule = Some(route.clone()),
                Good::Host(host) => config.hosts.push(host.clone()),
                Good::Listener(listener) => config.listeners.push(listener.clone()),
                _ => {}
            }
        }
        config
    }

    /// The served values of these kinds. The values of each kind are in the order of their names.
    fn good(&self, kinds: &[Kind]) -> impl Iterator<Item = &Good> {
        let of_kind = |kind: &Kind| {
            let kind = *kind;
            self.entries.range(kind.alone()..).take_while(move |(name, _)| name.kind == kind as u32)
        };
        kinds.iter().flat_map(of_kind).filter_map(|(_, entry)| entry.good.as_ref())
    }

    /// An upstream with its endpoints.
    fn upstream(&self, key: &UpstreamKey) -> Option<Upstream> {
        let entry = self.entries.get(&Kind::Upstream.of_upstream(key))?;
        let Some(Good::Upstream(_, upstream)) = &entry.good else { return None };
        Some(Upstream { endpoints: self.endpoints(key), ..upstream.clone() })
    }

    fn endpoints(&self, upstream: &UpstreamKey) -> Arc<[Endpoint]> {
        let entry = self.entries.get(&Kind::Endpoints.of_upstream(upstream));
        match entry.and_then(|entry| entry.good.as_ref()) {
            Some(Good::Endpoints(_, endpoints)) => endpoints.clone(),
            _ => Arc::default(),
        }
    }

    fn collect_tls(&self) -> Tls {
        let mut tls = Tls::default();
        for part in self.good(Kind::OF_TLS) {
            match part {
                Good::TlsHost(host) => tls.hosts.push(host.clone()),
                Good::AcmeHost(host) => tls.acme.push(host.clone()),
                Good::Passthrough(route) => tls.passthrough.push(route.clone()),
                Good::DefaultCertificates(certificates) => tls.default.clone_from(certificates),
                Good::TicketSecrets(secrets) => tls.ticket_secrets.clone_from(secrets),
                _ => {}
            }
        }
        tls
    }

    fn collect_consumers(&self) -> Vec<Arc<Consumer>> {
        let consumers = self.good(&[Kind::Consumer]).filter_map(|part| match part {
            Good::Consumer(consumer) => Some(consumer.clone()),
            _ => None,
        });
        let mut consumers: Vec<_> = consumers.collect();
        // Names of resources sort by length first, unlike ids.
        consumers.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        consumers
    }
}

impl Find for Store {
    fn find<T: Part>(&self, name: &PartName) -> Option<Arc<T>> {
        match self.entries.get(&Name::of_part::<T>(&name.0))?.good.as_ref()? {
            Good::Shared(part) => part.clone().downcast().ok(),
            _ => None,
        }
    }
}

impl Good {
    /// Whether the value has a route that would be served without a policy of its newer version. The newer version
    /// cannot be decoded, and only its policies are known, so the resource has no last valid version.
    fn opens(&self, newer: &Bytes) -> bool {
        match self {
            Self::Host(host) => HostOutline::read(newer).is_some_and(|newer| newer.is_opened_by(host)),
            Self::DefaultRule(route) => {
                RuleOutline::read(newer).is_some_and(|newer| newer.is_opened_by(route))
            }
            _ => false,
        }
    }

    /// The required name of the resource, unless the name is a digest. Two names for one value, or two encodings of one
    /// name, would serve the value twice.
    fn name(&self) -> Option<Name> {
        Some(match self {
            Self::Settings(_) => Kind::Settings.alone(),
            Self::DefaultRule(_) => Kind::DefaultRule.alone(),
            Self::Host(host) => Kind::Host.of_host(&host.entry_point, &host.host),
            Self::Listener(listener) => listener_name(listener),
            Self::TlsHost(host) => Kind::TlsHost.of_host(&host.entry_point, &host.host),
            Self::AcmeHost(host) => Kind::of_acme_host(&host.host),
            Self::DefaultCertificates(_) => Kind::DefaultCertificates.alone(),
            Self::Passthrough(route) => Kind::Passthrough.of_host(&route.entry_point, &route.host),
            Self::TicketSecrets(_) => Kind::TicketSecrets.alone(),
            Self::Upstream(key, _) => Kind::Upstream.of_upstream(key),
            Self::Endpoints(key, _) => Kind::Endpoints.of_upstream(key),
            Self::Consumer(consumer) => Kind::Consumer.of_object(&consumer.id),
            Self::Shared(_) => return None,
        })
    }
}

/// The result of a batch.
#[derive(Default)]
struct Touched {
    config: bool,
    tls: bool,
    consumers: bool,
    /// The changed upstreams and endpoints.
    upstreams: Vec<Name>,
}

impl Touched {
    fn mark(&mut self, name: &Name) {
        if matches!(name.kind(), Some(Kind::Upstream | Kind::Endpoints)) {
            self.upstreams.push(name.clone());
        }
        match name.kind() {
            Some(Kind::Endpoints) => {}
            Some(kind) if kind.is_shared() => {}
            Some(kind) => {
                self.config = true;
                self.tls |= Kind::OF_TLS.contains(&kind);
                self.consumers |= kind == Kind::Consumer;
            }
            None => {}
        }
    }
}
