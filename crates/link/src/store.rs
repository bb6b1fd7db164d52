//! What a data plane has: all resources, each in its last good form, and the configuration that they make.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use sluicegate_model::policy::{Consumer, RateLimits, Security, Traffic};
use sluicegate_model::tls::TicketSecret;
use sluicegate_model::{
    Certificate, Change, ClientAuth, Config, Endpoint, Listener, Route, Settings, Tls, TlsHost, TlsRoute,
    Upstream, UpstreamKey, UpstreamTls, VirtualHost,
};

use crate::convert::{Refusal, Shared, whole};
use crate::cut::listener_name;
use crate::digest::Digest;
use crate::proto;
use crate::resource::{Kind, Name, state_of};

/// How many refused resources of one batch are named in the log.
const NAMED_MAX: usize = 3;

/// How many shared resources that are gone are kept for last good forms that need them.
const RETIRED_MAX: usize = 1000;

/// What leads from one version to another.
#[derive(Default)]
pub(crate) struct Delta {
    pub(crate) changed: Vec<(Name, Bytes)>,
    pub(crate) gone: Vec<Name>,
}

/// All resources.
#[derive(Default)]
pub(crate) struct Store {
    entries: BTreeMap<Name, Entry>,
    /// Shared resources that are gone, and may be needed by a last good form: only for the snapshot.
    retired: BTreeMap<Name, Bytes>,
    /// How many resources are not served as they came.
    refused: usize,
    /// What the resources of TLS make, until one changes.
    tls: Option<Arc<Tls>>,
    /// The consumers in their order, until one changes: 10,000 take 5 ms.
    consumers: Option<Vec<Arc<Consumer>>>,
}

/// One resource.
struct Entry {
    /// As it came last.
    body: Bytes,
    digest: Digest,
    /// What is served.
    good: Option<Part>,
    /// What `good` was read from, if not from `body`.
    good_body: Option<Bytes>,
}

impl Entry {
    fn is_refused(&self) -> bool {
        self.good.is_none() || self.good_body.is_some()
    }
}

/// A resource that was not taken over.
struct Refused {
    refusal: Refusal,
    /// Whether there is a last good form, which is served on.
    is_kept: bool,
}

/// A resource that was read.
enum Part {
    Settings(Box<Settings>),
    DefaultRoute(Route),
    Host(Arc<VirtualHost>),
    Listener(Listener),
    TlsHost(Arc<TlsHost>),
    DefaultCertificates(Vec<Arc<Certificate>>),
    Passthrough(TlsRoute),
    TicketSecrets(Vec<TicketSecret>),
    Upstream(UpstreamKey, Upstream),
    Endpoints(UpstreamKey, Arc<[Endpoint]>),
    Certificate(Arc<Certificate>),
    ClientAuth(Arc<ClientAuth>),
    UpstreamTls(Arc<UpstreamTls>),
    Security(Arc<Security>),
    RateLimits(Arc<RateLimits>),
    Traffic(Arc<Traffic>),
    Consumer(Arc<Consumer>),
}

impl Store {
    /// Takes in all of a batch, and returns what the proxy has to be told: a configuration, or the endpoints of some
    /// upstreams. What cannot be read keeps its last good form.
    pub(crate) fn apply(&mut self, mut delta: Delta) -> Vec<Change> {
        // What others name is read before them.
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
                let stays = if is_kept { "its last good form stays" } else { "nothing of it is served" };
                tracing::warn!("{name} is not taken over, {stays}: {refusal}");
            }
            if !is_kept {
                touched.mark(&name);
            }
        }
        if refused > NAMED_MAX {
            tracing::warn!("{} further resources were not taken over", refused - NAMED_MAX);
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
        match touched.config {
            true => vec![Change::Config(Arc::new(self.config()))],
            false => touched.endpoints.iter().filter_map(|name| self.endpoints_change(name)).collect(),
        }
    }

    fn set(&mut self, name: &Name, body: Bytes) -> Result<(), Refused> {
        let digest = Digest::of(&body);
        let read = self.read(name, &digest, body.clone());
        self.retired.remove(name);
        let before = self.remove(name);
        let (good, good_body, result) = match (read, before) {
            (Ok(part), _) => (Some(part), None, Ok(())),
            (Err(refusal), Some(Entry { good: Some(good), good_body, body: before, .. }))
                if !good.opens(&body) =>
            {
                (Some(good), Some(good_body.unwrap_or(before)), Err(Refused { refusal, is_kept: true }))
            }
            (Err(refusal), _) => (None, None, Err(Refused { refusal, is_kept: false })),
        };
        self.refused += usize::from(result.is_err());
        self.entries.insert(name.clone(), Entry { body, digest, good, good_body });
        result
    }

    fn remove(&mut self, name: &Name) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        self.refused -= usize::from(entry.is_refused());
        Some(entry)
    }

    fn read(&self, name: &Name, digest: &Digest, body: Bytes) -> Result<Part, Refusal> {
        let kind = name.kind().ok_or(Refusal::Kind(name.kind))?;
        if kind.is_shared() && name.name != digest.as_bytes() {
            return Err(Refusal::Misnamed);
        }
        let part = match kind {
            Kind::Settings => Part::Settings(Box::new(proto::Settings::decode(body)?.try_into()?)),
            Kind::DefaultRoute => Part::DefaultRoute(proto::Route::decode(body)?.read(self)?),
            Kind::Host => Part::Host(Arc::new(proto::VirtualHost::decode(body)?.read(self)?)),
            Kind::Listener => Part::Listener(proto::Listener::decode(body)?.try_into()?),
            Kind::TlsHost => Part::TlsHost(Arc::new(proto::TlsHost::decode(body)?.read(self)?)),
            Kind::DefaultCertificates => {
                Part::DefaultCertificates(proto::Certificates::decode(body)?.read(self)?)
            }
            Kind::Passthrough => Part::Passthrough(proto::TlsRoute::decode(body)?.try_into()?),
            Kind::TicketSecrets => Part::TicketSecrets(proto::TicketSecrets::decode(body)?.try_into()?),
            Kind::Upstream => Part::Upstream(upstream_of(name)?, proto::Upstream::decode(body)?.read(self)?),
            Kind::Endpoints => {
                Part::Endpoints(upstream_of(name)?, proto::Endpoints::decode(body)?.try_into()?)
            }
            Kind::Certificate => Part::Certificate(Arc::new(proto::Certificate::decode(body)?.try_into()?)),
            Kind::ClientAuth => Part::ClientAuth(Arc::new(proto::ClientAuth::decode(body)?.try_into()?)),
            Kind::UpstreamTls => Part::UpstreamTls(Arc::new(proto::UpstreamTls::decode(body)?.read(self)?)),
            Kind::Security => Part::Security(Arc::new(whole::<proto::Security>(body)?.try_into()?)),
            Kind::RateLimits => Part::RateLimits(Arc::new(whole::<proto::RateLimits>(body)?.try_into()?)),
            Kind::Traffic => Part::Traffic(Arc::new(whole::<proto::Traffic>(body)?.try_into()?)),
            Kind::Consumer => Part::Consumer(Arc::new(whole::<proto::Consumer>(body)?.try_into()?)),
        };
        match part.name() {
            Some(other) if other != *name => Err(Refusal::Misnamed),
            _ => Ok(part),
        }
    }

    /// The last good form of another resource may be the only one that still names it.
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

    /// How many resources are not served as they came.
    pub(crate) fn refused(&self) -> usize {
        self.refused
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The digest of all that came.
    pub(crate) fn state(&self) -> Bytes {
        state_of(self.entries.iter().map(|(name, entry)| (name, &entry.digest)))
    }

    /// All that came.
    pub(crate) fn inventory(&self) -> impl Iterator<Item = (&Name, &Digest)> {
        self.entries.iter().map(|(name, entry)| (name, &entry.digest))
    }

    /// All that can be started from again: last good forms, and else what came, which a newer version may understand.
    pub(crate) fn snapshot(&self) -> Vec<(Name, Bytes)> {
        let entries = self
            .entries
            .iter()
            .map(|(name, entry)| (name.clone(), entry.good_body.as_ref().unwrap_or(&entry.body).clone()));
        entries.chain(self.retired.iter().map(|(name, body)| (name.clone(), body.clone()))).collect()
    }

    fn endpoints_change(&self, name: &Name) -> Option<Change> {
        match self.entries.get(name)?.good.as_ref()? {
            Part::Endpoints(upstream, endpoints) => {
                Some(Change::Endpoints { upstream: upstream.clone(), endpoints: endpoints.clone() })
            }
            _ => None,
        }
    }

    /// The configuration that all last good forms make.
    pub(crate) fn config(&mut self) -> Config {
        let tls = self.tls.take().unwrap_or_else(|| Arc::new(self.collect_tls()));
        self.tls = Some(tls.clone());
        let consumers = self.consumers.take().unwrap_or_else(|| self.collect_consumers());
        self.consumers = Some(consumers.clone());
        let mut config = Config { tls, consumers, ..Config::default() };
        for part in self.entries.values().filter_map(|entry| entry.good.as_ref()) {
            match part {
                Part::Settings(settings) => config.settings = (**settings).clone(),
                Part::DefaultRoute(route) => config.default_route = Some(route.clone()),
                Part::Host(host) => config.hosts.push(host.clone()),
                Part::Listener(listener) => config.listeners.push(listener.clone()),
                Part::Upstream(key, upstream) => {
                    let endpoints = self.endpoints(key);
                    let upstream = Upstream { endpoints, ..upstream.clone() };
                    config.upstreams.insert(key.clone(), Arc::new(upstream));
                }
                _ => {}
            }
        }
        config
    }

    fn endpoints(&self, upstream: &UpstreamKey) -> Arc<[Endpoint]> {
        let entry = self.entries.get(&Kind::Endpoints.of_upstream(upstream));
        match entry.and_then(|entry| entry.good.as_ref()) {
            Some(Part::Endpoints(_, endpoints)) => endpoints.clone(),
            _ => Arc::default(),
        }
    }

    fn collect_tls(&self) -> Tls {
        let mut tls = Tls::default();
        for part in self.entries.values().filter_map(|entry| entry.good.as_ref()) {
            match part {
                Part::TlsHost(host) => tls.hosts.push(host.clone()),
                Part::Passthrough(route) => tls.passthrough.push(route.clone()),
                Part::DefaultCertificates(certificates) => tls.default.clone_from(certificates),
                Part::TicketSecrets(secrets) => tls.ticket_secrets.clone_from(secrets),
                _ => {}
            }
        }
        tls
    }

    fn collect_consumers(&self) -> Vec<Arc<Consumer>> {
        let consumers = self.entries.values().filter_map(|entry| match entry.good.as_ref()? {
            Part::Consumer(consumer) => Some(consumer.clone()),
            _ => None,
        });
        let mut consumers: Vec<_> = consumers.collect();
        // Names of resources are compared with their lengths first, ids are not.
        consumers.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        consumers
    }

    fn shared(&self, kind: Kind, name: &Bytes) -> Option<&Part> {
        self.entries.get(&kind.named(name.clone()))?.good.as_ref()
    }
}

impl Shared for Store {
    fn certificate(&self, name: &Bytes) -> Option<Arc<Certificate>> {
        match self.shared(Kind::Certificate, name)? {
            Part::Certificate(certificate) => Some(certificate.clone()),
            _ => None,
        }
    }

    fn client_auth(&self, name: &Bytes) -> Option<Arc<ClientAuth>> {
        match self.shared(Kind::ClientAuth, name)? {
            Part::ClientAuth(policy) => Some(policy.clone()),
            _ => None,
        }
    }

    fn upstream_tls(&self, name: &Bytes) -> Option<Arc<UpstreamTls>> {
        match self.shared(Kind::UpstreamTls, name)? {
            Part::UpstreamTls(tls) => Some(tls.clone()),
            _ => None,
        }
    }

    fn security(&self, name: &Bytes) -> Option<Arc<Security>> {
        match self.shared(Kind::Security, name)? {
            Part::Security(policy) => Some(policy.clone()),
            _ => None,
        }
    }

    fn rate_limits(&self, name: &Bytes) -> Option<Arc<RateLimits>> {
        match self.shared(Kind::RateLimits, name)? {
            Part::RateLimits(policy) => Some(policy.clone()),
            _ => None,
        }
    }

    fn traffic(&self, name: &Bytes) -> Option<Arc<Traffic>> {
        match self.shared(Kind::Traffic, name)? {
            Part::Traffic(policy) => Some(policy.clone()),
            _ => None,
        }
    }
}

impl Part {
    /// Whether it has a route that would be served without the policy that it has in a newer form, which cannot be read. That
    /// the newer one was closed is all that is known then, so there is no good form of it.
    fn opens(&self, newer: &Bytes) -> bool {
        match self {
            Self::Host(host) => {
                proto::VirtualHost::decode(&**newer).is_ok_and(|newer| newer.is_opened_by(host))
            }
            Self::DefaultRoute(route) => {
                proto::Route::decode(&**newer).is_ok_and(|newer| newer.is_opened_by(route))
            }
            _ => false,
        }
    }

    /// What it has to be named, unless by its digest: by two names, or the same one written in two ways, it would be
    /// served twice.
    fn name(&self) -> Option<Name> {
        Some(match self {
            Self::Settings(_) => Kind::Settings.alone(),
            Self::DefaultRoute(_) => Kind::DefaultRoute.alone(),
            Self::Host(host) => Kind::Host.of_host(&host.host),
            Self::Listener(listener) => listener_name(listener),
            Self::TlsHost(host) => Kind::TlsHost.of_host(&host.host),
            Self::DefaultCertificates(_) => Kind::DefaultCertificates.alone(),
            Self::Passthrough(route) => Kind::Passthrough.of_host(&route.host),
            Self::TicketSecrets(_) => Kind::TicketSecrets.alone(),
            Self::Upstream(key, _) => Kind::Upstream.of_upstream(key),
            Self::Endpoints(key, _) => Kind::Endpoints.of_upstream(key),
            Self::Consumer(consumer) => Kind::Consumer.of_object(&consumer.id),
            Self::Certificate(_)
            | Self::ClientAuth(_)
            | Self::UpstreamTls(_)
            | Self::Security(_)
            | Self::RateLimits(_)
            | Self::Traffic(_) => return None,
        })
    }
}

fn upstream_of(name: &Name) -> Result<UpstreamKey, Refusal> {
    proto::UpstreamKey::decode(name.name.clone())?.try_into()
}

/// What a batch comes to.
#[derive(Default)]
struct Touched {
    config: bool,
    tls: bool,
    consumers: bool,
    endpoints: Vec<Name>,
}

impl Touched {
    fn mark(&mut self, name: &Name) {
        match name.kind() {
            Some(Kind::Endpoints) => self.endpoints.push(name.clone()),
            Some(kind) if kind.is_shared() => {}
            Some(kind) => {
                self.config = true;
                self.tls |= kind.is_tls();
                self.consumers |= kind == Kind::Consumer;
            }
            None => {}
        }
    }
}
