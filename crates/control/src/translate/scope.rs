//! The translation of only the hosts that a change of Ingresses, or of the Secrets of Ingresses, affects.
//!
//! The result is the same as that of a translation of everything. The time of the translation does not depend on the number of other
//! Ingresses, but the first change after a translation of everything reads all Ingresses.
//!
//! - Ingresses affect each other if they name the same host, in a rule, in `spec.tls`, by an alias, or by a redirect to or from
//!   `www.`. All Ingresses that affect a changed Ingress, directly or through others, are translated together.
//! - An Ingress with a wildcard host can affect the hosts that the wildcard covers. So the translation of these hosts also reads this
//!   Ingress. If such an Ingress is changed, everything is translated.
//! - Everything is also translated if an object of another kind changed, if an Ingress for all hosts changed, if a changed Secret has
//!   an effect beside the hosts of Ingresses, or if the store has objects that relate Ingresses in other ways: policies, Apis,
//!   Gateways and their routes.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::{
    Config, EntryPoint, HostPattern, TlsHost, Upstream, UpstreamKey, Upstreams, VirtualHost,
};

use super::{Acme, IngressNginx, ObjectName, TranslateOptions, Translation, ingress_nginx, translate};
use crate::frontend::ingress::tls;
use crate::frontend::nginx::other_www;
use crate::object::ingress::Ingress;
use crate::object::{Checked as _, Kind, Object, ObjectRef};
use crate::problem::Problem;
use crate::store::Store;

/// The most Ingresses of a translation of single hosts.
const INGRESSES_MAX: usize = 512;

/// The relations of the Ingresses of a store, computed when a change first needs them.
#[derive(Debug, Default)]
pub(crate) struct Scopes(Option<Index>);

#[derive(Debug, Default)]
struct Index {
    /// The Ingresses that name each host.
    ingresses: HashMap<HostPattern, Vec<ObjectRef>>,
    /// The Ingresses that name each Secret.
    of_secrets: HashMap<ObjectRef, Vec<ObjectRef>>,
    /// How many virtual hosts name each upstream. The other routes of the configuration count as one.
    upstreams: HashMap<UpstreamKey, usize>,
    /// Upstreams of the configuration that only policies without effect name.
    unused: Vec<UpstreamKey>,
}

/// The hosts and Secrets that an Ingress names. An Ingress that affects all hosts names [`HostPattern::Any`].
#[derive(Default)]
struct Names {
    hosts: BTreeSet<HostPattern>,
    secrets: BTreeSet<ObjectRef>,
}

/// The Ingresses of a translation, and the hosts that the translation decides about.
#[derive(Debug, Default)]
struct Scope {
    hosts: BTreeSet<HostPattern>,
    ingresses: BTreeSet<ObjectRef>,
    /// The Ingresses with a wildcard that covers one of the hosts. The translation does not decide about their other hosts.
    covering: BTreeSet<ObjectRef>,
}

impl Scopes {
    /// Forgets the relations, before a translation of everything.
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// The patch for the configuration `before`, if only Ingresses and Secrets changed. Brings `translation` up to date. `changed`
    /// has each changed Ingress as it was before. The result is `None` if everything must be translated.
    pub(crate) fn translate(
        &mut self,
        store: &Store,
        options: &TranslateOptions,
        before: &Config,
        translation: &mut Translation,
        (changed, secrets): (&BTreeMap<ObjectRef, Option<Object>>, &BTreeSet<ObjectRef>),
    ) -> Option<Patch> {
        let has_others = |config: &Config, translation: &Translation| {
            !config.tls.passthrough.is_empty() || !translation.acme.is_empty()
        };
        let is_alone = is_plain(store) && !has_others(before, translation);
        if changed.len() + secrets.len() > INGRESSES_MAX || !is_alone {
            return None;
        }
        if !secrets.is_empty() && secrets.iter().any(is_of_more_than_hosts(options, before)) {
            return None;
        }
        let nginx = ingress_nginx(store, options);
        let named = |ingress: &Ingress, object: &ObjectRef| Names::of(store, ingress, object, nginx.as_ref());
        let index = match &mut self.0 {
            Some(index) => {
                for (object, before) in changed {
                    index.replace(
                        object,
                        before.as_ref().and_then(Ingress::of).map(|ingress| named(ingress, object)),
                        store.get::<Ingress>(object).map(|ingress| named(ingress, object)),
                    );
                }
                index
            }
            unknown => unknown.insert(Index::new(store, before, named)),
        };
        let earlier = changed
            .iter()
            .filter_map(|(object, before)| Some(named(before.as_ref().and_then(Ingress::of)?, object).hosts));
        let of_secrets = secrets.iter().filter_map(|secret| index.of_secrets.get(secret)).flatten();
        let scope = index.scope(changed.keys().chain(of_secrets), earlier.flatten(), |object| {
            store.get::<Ingress>(object).map(|ingress| named(ingress, object).hosts).unwrap_or_default()
        })?;
        let part = translate(&store.with_ingresses(scope.ingresses.iter().chain(&scope.covering)), options);
        let sends_proxy_protocol = |key: &UpstreamKey| {
            let service = store.service(&key.namespace, &key.service);
            service.is_some_and(|(service, _)| service.proxy_protocol.is_some())
        };
        if has_others(&part.config, &part) || part.config.upstreams.keys().any(sends_proxy_protocol) {
            return None;
        }
        let patch = index.patch(scope.hosts, before, &part.config);
        for key in &patch.gone {
            translation.upstream_problems.remove(key);
            translation.external_ports.remove(key);
        }
        let is_known = |key: &UpstreamKey| {
            before.upstreams.contains_key(key) || patch.upstreams.iter().any(|(new, _)| new == key)
        };
        translation.upstream_problems.extend(part.upstream_problems);
        translation.external_ports.extend(part.external_ports.into_iter().filter(|(key, _)| is_known(key)));
        replace(&mut translation.problems, part.problems, &scope.ingresses);
        replace(&mut translation.foreign, part.foreign, &scope.ingresses);
        Some(patch)
    }
}

/// Whether Ingresses relate to each other only by their hosts.
fn is_plain(store: &Store) -> bool {
    let relates = |kind: &Kind| {
        !matches!(
            kind,
            Kind::Ingress
                | Kind::IngressClass
                | Kind::GatewayClass
                | Kind::Namespace
                | Kind::Service
                | Kind::EndpointSlice
                | Kind::Secret
                | Kind::ConfigMap
        )
    };
    !Kind::all().filter(relates).any(|kind| store.has_kind(kind)) && store.closed().next().is_none()
}

impl Names {
    fn of(store: &Store, ingress: &Ingress, object: &ObjectRef, nginx: Option<&IngressNginx>) -> Self {
        let mut names = Self::default();
        names.hosts.extend(ingress.rules.iter().map(|rule| rule.host.clone()));
        if ingress.default_backend.is_some() || ingress.rules.is_empty() {
            names.hosts.insert(HostPattern::Any);
        }
        for entry in tls::certificates(store, object, ingress) {
            names.hosts.extend(entry.hosts.iter().cloned());
        }
        names.secrets.extend(ingress.tls.iter().filter_map(|entry| entry.secret_of(&object.namespace)));
        names.secrets.extend(ingress.client_auth.iter().filter_map(|auth| auth.authorities.clone()));
        if let Some(nginx) = nginx {
            let settings = ingress.nginx.settings(&nginx.prefix, &nginx.globals, &object.namespace);
            names.secrets.extend(settings.references.iter().cloned());
            names.hosts.extend(settings.alias.hosts.iter().cloned());
            if settings.redirect.www {
                names.hosts.extend(ingress.rules.iter().filter_map(|rule| other_www(&rule.host)));
            }
        }
        names
    }
}

impl Index {
    fn new(store: &Store, config: &Config, named: impl Fn(&Ingress, &ObjectRef) -> Names) -> Self {
        let mut index = Self::default();
        for (object, ingress, _) in store.all::<Ingress>() {
            index.replace(object, None, Some(named(ingress, object)));
        }
        for host in &config.hosts {
            index.count(host);
        }
        let others = Config { hosts: Vec::new(), upstreams: Upstreams::default(), ..config.clone() };
        for key in others.named_upstreams().collect::<HashSet<_>>() {
            *index.upstreams.entry(key.clone()).or_default() += 1;
        }
        let is_unused = |key: &&UpstreamKey| !index.upstreams.contains_key(*key);
        index.unused = config.upstreams.keys().filter(is_unused).cloned().collect();
        index
    }

    /// Replaces the hosts and Secrets that an Ingress names.
    fn replace(&mut self, object: &ObjectRef, before: Option<Names>, after: Option<Names>) {
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        replace_in(&mut self.ingresses, object, before.hosts, after.hosts);
        replace_in(&mut self.of_secrets, object, before.secrets, after.secrets);
    }

    fn count(&mut self, host: &VirtualHost) {
        for key in distinct(host) {
            match self.upstreams.get_mut(key) {
                Some(count) => *count += 1,
                None => drop(self.upstreams.insert(key.clone(), 1)),
            }
        }
    }

    /// Returns the upstreams that no host names any more.
    fn discount(&mut self, host: &VirtualHost) -> Vec<UpstreamKey> {
        let mut gone = Vec::new();
        for key in distinct(host) {
            let Some(count) = self.upstreams.get_mut(key) else { continue };
            *count -= 1;
            if *count == 0 {
                self.upstreams.remove(key);
                gone.push(key.clone());
            }
        }
        gone
    }

    /// All Ingresses that affect these Ingresses, or hosts that they named `earlier`; `None` if there are too many, or if a host is
    /// a wildcard or any host.
    fn scope<'o>(
        &self,
        changed: impl Iterator<Item = &'o ObjectRef>,
        earlier: impl Iterator<Item = HostPattern>,
        named: impl Fn(&ObjectRef) -> BTreeSet<HostPattern>,
    ) -> Option<Scope> {
        let mut scope = Scope { ingresses: changed.cloned().collect(), ..Scope::default() };
        let mut open: Vec<HostPattern> = earlier.collect();
        open.extend(scope.ingresses.iter().flat_map(&named));
        while let Some(host) = open.pop() {
            let HostPattern::Exact(name) = &host else { return None };
            if let Some((_, suffix)) = name.split_once('.') {
                let wildcard = HostPattern::Wildcard(suffix.into());
                scope.covering.extend(self.ingresses.get(&wildcard).into_iter().flatten().cloned());
            }
            for object in self.ingresses.get(&host).into_iter().flatten() {
                if scope.ingresses.insert(object.clone()) {
                    open.extend(named(object).into_iter().filter(|host| !scope.hosts.contains(host)));
                }
            }
            scope.hosts.insert(host);
            if scope.ingresses.len() + scope.covering.len() > INGRESSES_MAX {
                return None;
            }
        }
        Some(scope)
    }

    /// The patch that replaces `hosts` in `before` by those of `part`. Updates the counts of upstreams.
    fn patch(&mut self, hosts: BTreeSet<HostPattern>, before: &Config, part: &Config) -> Patch {
        let mut gone = std::mem::take(&mut self.unused);
        for host in &hosts {
            let old = place(&before.hosts, &EntryPoint::Flags, host, VirtualHost::key).ok();
            gone.extend(old.into_iter().flat_map(|place| self.discount(&before.hosts[place])));
        }
        let new: Vec<_> = part.hosts.iter().filter(|host| hosts.contains(&host.host)).cloned().collect();
        for host in &new {
            self.count(host);
        }
        gone.retain(|key| !self.upstreams.contains_key(key));
        let is_new =
            |key: &UpstreamKey| self.upstreams.contains_key(key) && !before.upstreams.contains_key(key);
        let upstreams = part.upstreams.iter().filter(|(key, _)| is_new(key));
        let tls = part.tls.hosts.iter().filter(|host| hosts.contains(&host.host));
        Patch {
            new,
            tls: tls.cloned().collect(),
            upstreams: upstreams.map(|(key, upstream)| (key.clone(), upstream.clone())).collect(),
            hosts,
            gone,
        }
    }
}

/// The upstreams that a host names, each once.
fn distinct(host: &VirtualHost) -> Vec<&UpstreamKey> {
    let mut all: Vec<&UpstreamKey> = Vec::new();
    for key in host.upstreams() {
        // Neighbours are often the same.
        if all.last() != Some(&key) {
            all.push(key);
        }
    }
    if all.len() > 1 {
        all.sort_unstable();
        all.dedup();
    }
    all
}

/// The change of a configuration.
#[derive(Debug)]
pub(crate) struct Patch {
    /// The hosts that are replaced or removed.
    hosts: BTreeSet<HostPattern>,
    /// All hosts that replace them.
    new: Vec<Arc<VirtualHost>>,
    /// The same for TLS.
    tls: Vec<Arc<TlsHost>>,
    /// The upstreams that no route names any more.
    gone: Vec<UpstreamKey>,
    /// The new upstreams.
    upstreams: Vec<(UpstreamKey, Arc<Upstream>)>,
}

impl Patch {
    /// Changes a configuration.
    pub(crate) fn apply(self, config: &mut Config) {
        exchange(&mut config.hosts, &self.hosts, self.new, VirtualHost::key);
        let has_tls = |host| place(&config.tls.hosts, &EntryPoint::Flags, host, TlsHost::key).is_ok();
        if !self.tls.is_empty() || self.hosts.iter().any(has_tls) {
            exchange(&mut Arc::make_mut(&mut config.tls).hosts, &self.hosts, self.tls, TlsHost::key);
        }
        for key in &self.gone {
            config.upstreams.remove(key);
        }
        if !self.upstreams.is_empty() {
            config.upstreams.extend(self.upstreams);
        }
    }
}

/// The key of a host in its list.
type Key<T> = fn(&T) -> (&EntryPoint, &HostPattern);

/// The place of a host in a list in the order of the keys.
fn place<T>(hosts: &[Arc<T>], at: &EntryPoint, host: &HostPattern, key: Key<T>) -> Result<usize, usize> {
    hosts.binary_search_by(|known| key(known).cmp(&(at, host)))
}

/// Removes the hosts of the patterns `old` from a list in the order of the keys, and inserts `new`.
fn exchange<T>(hosts: &mut Vec<Arc<T>>, old: &BTreeSet<HostPattern>, new: Vec<Arc<T>>, key: Key<T>) {
    for host in old {
        if let Ok(place) = place(hosts, &EntryPoint::Flags, host, key) {
            hosts.remove(place);
        }
    }
    for host in new {
        let (at, pattern) = key(&host);
        let (Ok(place) | Err(place)) = place(hosts, at, pattern, key);
        hosts.insert(place, host);
    }
}

/// Replaces the names by which an index finds an Ingress.
fn replace_in<K: Eq + Hash>(
    index: &mut HashMap<K, Vec<ObjectRef>>,
    object: &ObjectRef,
    before: BTreeSet<K>,
    after: BTreeSet<K>,
) {
    for name in before {
        if let Some(ingresses) = index.get_mut(&name) {
            ingresses.retain(|known| known != object);
            if ingresses.is_empty() {
                index.remove(&name);
            }
        }
    }
    for name in after {
        let ingresses = index.entry(name).or_default();
        // Most names have one.
        ingresses.reserve_exact(1);
        ingresses.push(object.clone());
    }
}

/// Whether a Secret may affect more than the hosts of Ingresses: if ACME is on, or if an option or an upstream with TLS names it.
fn is_of_more_than_hosts<'c>(
    options: &'c TranslateOptions,
    config: &'c Config,
) -> impl Fn(&ObjectRef) -> bool + use<'c> {
    let of_upstreams =
        config.upstreams.keys().filter_map(|key| key.transport.tls.as_ref()?.secret.as_deref());
    let of_upstreams: HashSet<&str> = of_upstreams.collect();
    let of_options = [&options.default_certificate, &options.ticket_secret];
    let has_acme = matches!(options.acme, Acme::On(_));
    move |secret| {
        let is_it = |name: &&ObjectName| name.namespace == secret.namespace && name.name == secret.name;
        has_acme
            || of_options.into_iter().flatten().any(|name| is_it(&name))
            || of_upstreams.contains(&*format!("{}/{}", secret.namespace, secret.name))
    }
}

/// Replaces the problems of these Ingresses.
fn replace(problems: &mut Vec<Problem>, new: Vec<Problem>, of: &BTreeSet<ObjectRef>) {
    let is_of_scope = |problem: &Problem| problem.object.as_ref().is_some_and(|object| of.contains(object));
    problems.retain(|problem| !is_of_scope(problem));
    problems.extend(new.into_iter().filter(is_of_scope));
}

/// Checks that a translation of everything has the same result. The translation of everything may have further upstreams, which only
/// policies without effect name. `config` may have an upstream that only a closed rule names.
pub(crate) fn assert_same(config: &Config, translation: &Translation, whole: &Translation) {
    assert_eq!(config.hosts, whole.config.hosts);
    assert_eq!(config.default_rule, whole.config.default_rule);
    assert_eq!(config.tls, whole.config.tls);
    for key in whole.config.named_upstreams() {
        // A closed rule may be the only one that names an upstream. Then the upstream may be absent.
        let Some(other) = whole.config.upstreams.get(key) else { continue };
        let one = &config.upstreams[key];
        let of = |upstream: &Upstream| {
            (upstream.tls.clone(), upstream.external_name.clone(), upstream.balance, upstream.limits)
        };
        assert_eq!(of(one), of(other), "{key}");
        assert_eq!(translation.upstream_problems.get(key), whole.upstream_problems.get(key), "{key}");
        assert_eq!(translation.external_ports.get(key), whole.external_ports.get(key), "{key}");
    }
    let named: HashSet<_> = config.named_upstreams().collect();
    for key in config.upstreams.keys() {
        assert!(
            whole.config.upstreams.contains_key(key) || named.contains(key),
            "{key} is not used any more"
        );
    }
    for (mine, all) in [(&translation.problems, &whole.problems), (&translation.foreign, &whole.foreign)] {
        let sorted = |problems: &[Problem]| {
            let mut texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
            texts.sort_unstable();
            texts
        };
        assert_eq!(sorted(mine), sorted(all));
    }
}
