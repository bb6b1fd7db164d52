//! The translation of only the hosts that a change of Ingresses affects.
//!
//! The result is the same as that of a translation of everything. The cost does not depend on the number of other Ingresses.
//!
//! - Ingresses affect each other if they name the same host, in a rule, in `spec.tls` or by an alias. All Ingresses that affect a
//!   changed Ingress, directly or through others, are translated together.
//! - An Ingress with a wildcard host can affect the hosts that the wildcard covers, so that such an Ingress is read together with
//!   them. If it changes itself, everything is translated.
//! - Everything is also translated if an object of another kind or an Ingress for all hosts changed, and if the store has objects
//!   that relate Ingresses in other ways: policies, Apis, Gateways and their routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use sluicegate_model::{Config, EntryPoint, HostPattern, Tls, UpstreamKey, Upstreams, VirtualHost};

use super::{IngressNginx, TranslateOptions, Translation, ingress_nginx, translate};
use crate::frontend::ingress::tls;
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
    ingresses: HashMap<HostPattern, BTreeSet<ObjectRef>>,
    /// How many virtual hosts name each upstream. The other routes of the configuration count as one.
    upstreams: HashMap<UpstreamKey, usize>,
    /// Upstreams of the configuration that only policies without effect name.
    unused: Vec<UpstreamKey>,
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

    /// The configuration after a change of Ingresses alone, and brings `translation` up to date. `before` is the configuration in
    /// service, with its newest endpoints. `changed` has each changed Ingress as it was before. The result is `None` if everything
    /// must be translated.
    pub(crate) fn translate(
        &mut self,
        store: &Store,
        options: &TranslateOptions,
        before: &Config,
        translation: &mut Translation,
        changed: &BTreeMap<ObjectRef, Option<Object>>,
    ) -> Option<Config> {
        let has_others = |config: &Config, translation: &Translation| {
            !config.tls.passthrough.is_empty() || !translation.acme.is_empty()
        };
        let is_alone = is_plain(store) && !has_others(before, translation);
        if changed.is_empty() || changed.len() > INGRESSES_MAX || !is_alone {
            return None;
        }
        let nginx = ingress_nginx(store, options);
        let named = |ingress: &Ingress, object: &ObjectRef| hosts(store, ingress, object, nginx.as_ref());
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
            .filter_map(|(object, before)| Some(named(before.as_ref().and_then(Ingress::of)?, object)));
        let scope = index.scope(changed.keys(), earlier.flatten(), |object| {
            store.get::<Ingress>(object).map(|ingress| named(ingress, object)).unwrap_or_default()
        })?;
        let part = translate(&store.with_ingresses(scope.ingresses.iter().chain(&scope.covering)), options);
        let sends_proxy_protocol = |key: &UpstreamKey| {
            let service = store.service(&key.namespace, &key.service);
            service.is_some_and(|(service, _)| service.proxy_protocol.is_some())
        };
        if has_others(&part.config, &part) || part.config.upstreams.keys().any(sends_proxy_protocol) {
            return None;
        }
        let config = index.apply(&scope, before, &part.config, translation);
        let is_known = |key: &UpstreamKey| config.upstreams.contains_key(key);
        translation.upstream_problems.extend(part.upstream_problems);
        translation.external_ports.extend(part.external_ports.into_iter().filter(|(key, _)| is_known(key)));
        replace(&mut translation.problems, part.problems, &scope);
        replace(&mut translation.foreign, part.foreign, &scope);
        if cfg!(debug_assertions) {
            assert_same(&config, translation, &translate(store, options));
        }
        Some(config)
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

/// Every host that an Ingress may affect itself. An Ingress that affects all hosts names [`HostPattern::Any`].
fn hosts(
    store: &Store,
    ingress: &Ingress,
    object: &ObjectRef,
    nginx: Option<&IngressNginx>,
) -> BTreeSet<HostPattern> {
    let of_rules = ingress.rules.iter().map(|rule| &rule.host);
    let mut hosts: BTreeSet<HostPattern> = of_rules.cloned().collect();
    for entry in tls::certificates(store, object, ingress) {
        hosts.extend(entry.hosts.iter().cloned());
    }
    if ingress.default_backend.is_some() || ingress.rules.is_empty() {
        hosts.insert(HostPattern::Any);
    }
    let Some(nginx) = nginx else { return hosts };
    let settings = ingress.nginx.settings(&nginx.prefix, &nginx.globals, &object.namespace);
    hosts.extend(settings.alias.hosts.iter().cloned());
    if settings.redirect.www {
        let names = ingress.rules.iter().filter_map(|rule| match &rule.host {
            HostPattern::Exact(name) => Some(name),
            _ => None,
        });
        let others = names.map(|name| match name.strip_prefix("www.") {
            Some(bare) => bare.into(),
            None => format!("www.{name}").into(),
        });
        hosts.extend(others.map(HostPattern::Exact));
    }
    hosts
}

impl Index {
    fn new(
        store: &Store,
        config: &Config,
        named: impl Fn(&Ingress, &ObjectRef) -> BTreeSet<HostPattern>,
    ) -> Self {
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

    /// Replaces the hosts that an Ingress names.
    fn replace(
        &mut self,
        object: &ObjectRef,
        before: Option<BTreeSet<HostPattern>>,
        after: Option<BTreeSet<HostPattern>>,
    ) {
        for host in before.into_iter().flatten() {
            if let Some(ingresses) = self.ingresses.get_mut(&host) {
                ingresses.remove(object);
                if ingresses.is_empty() {
                    self.ingresses.remove(&host);
                }
            }
        }
        for host in after.into_iter().flatten() {
            self.ingresses.entry(host).or_default().insert(object.clone());
        }
    }

    fn count(&mut self, host: &VirtualHost) {
        for key in host.upstreams().collect::<HashSet<_>>() {
            *self.upstreams.entry(key.clone()).or_default() += 1;
        }
    }

    /// Returns the upstreams that no host names any more.
    fn discount(&mut self, host: &VirtualHost) -> Vec<UpstreamKey> {
        let mut gone = Vec::new();
        for key in host.upstreams().collect::<HashSet<_>>() {
            let Some(count) = self.upstreams.get_mut(key) else { continue };
            *count -= 1;
            if *count == 0 {
                self.upstreams.remove(key);
                gone.push(key.clone());
            }
        }
        gone
    }

    /// All Ingresses that affect these Ingresses, or hosts that they named `earlier`; `None` if there are too many, or if a host
    /// is no single name.
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

    /// The configuration `before` with the hosts of a scope from `part`.
    fn apply(
        &mut self,
        scope: &Scope,
        before: &Config,
        part: &Config,
        translation: &mut Translation,
    ) -> Config {
        let mut config = before.clone();
        let mut gone = std::mem::take(&mut self.unused);
        for host in &scope.hosts {
            let old = take(&mut config.hosts, host, |host| (&host.entry_point, &host.host));
            gone.extend(old.iter().flat_map(|host| self.discount(host)));
        }
        let decided = |host: &&Arc<VirtualHost>| scope.hosts.contains(&host.host);
        for host in part.hosts.iter().filter(decided) {
            self.count(host);
            put(&mut config.hosts, host, |host| (&host.entry_point, &host.host));
        }
        let mut tls_hosts = before.tls.hosts.clone();
        for host in &scope.hosts {
            take(&mut tls_hosts, host, |host| (&host.entry_point, &host.host));
        }
        for host in part.tls.hosts.iter().filter(|host| scope.hosts.contains(&host.host)) {
            put(&mut tls_hosts, host, |host| (&host.entry_point, &host.host));
        }
        if tls_hosts != before.tls.hosts {
            config.tls = Arc::new(Tls { hosts: tls_hosts, ..Tls::clone(&before.tls) });
        }
        gone.retain(|key| !self.upstreams.contains_key(key));
        let is_new =
            |key: &&UpstreamKey| self.upstreams.contains_key(*key) && !before.upstreams.contains_key(*key);
        let new: Vec<&UpstreamKey> = part.upstreams.keys().filter(is_new).collect();
        if gone.is_empty() && new.is_empty() {
            return config;
        }
        for key in &gone {
            config.upstreams.remove(key);
            translation.upstream_problems.remove(key);
            translation.external_ports.remove(key);
        }
        config.upstreams.extend(new.into_iter().map(|key| (key.clone(), part.upstreams[key].clone())));
        config
    }
}

/// Takes the host of a pattern from hosts in their order.
fn take<T>(
    hosts: &mut Vec<Arc<T>>,
    host: &HostPattern,
    key: impl Fn(&T) -> (&EntryPoint, &HostPattern),
) -> Option<Arc<T>> {
    let place = hosts.binary_search_by(|known| key(known).cmp(&(&EntryPoint::Flags, host))).ok()?;
    Some(hosts.remove(place))
}

/// Adds a host to hosts in their order.
fn put<T>(hosts: &mut Vec<Arc<T>>, host: &Arc<T>, key: impl Fn(&T) -> (&EntryPoint, &HostPattern)) {
    match hosts.binary_search_by(|known| key(known).cmp(&key(host))) {
        Ok(place) => hosts[place] = host.clone(),
        Err(place) => hosts.insert(place, host.clone()),
    }
}

/// Replaces the problems of the Ingresses of a scope.
fn replace(problems: &mut Vec<Problem>, new: Vec<Problem>, scope: &Scope) {
    let is_of_scope =
        |problem: &Problem| problem.object.as_ref().is_some_and(|object| scope.ingresses.contains(object));
    problems.retain(|problem| !is_of_scope(problem));
    problems.extend(new.into_iter().filter(is_of_scope));
}

/// Checks in debug builds that a translation of everything has the same result. It may have more upstreams: of policies that have no
/// effect.
fn assert_same(config: &Config, translation: &Translation, whole: &Translation) {
    assert_eq!(config.hosts, whole.config.hosts);
    assert_eq!(config.default_rule, whole.config.default_rule);
    assert_eq!(config.tls, whole.config.tls);
    for key in whole.config.named_upstreams() {
        // A closed rule may have no upstream.
        let Some(other) = whole.config.upstreams.get(key) else { continue };
        let one = &config.upstreams[key];
        let of = |upstream: &sluicegate_model::Upstream| {
            (upstream.tls.clone(), upstream.external_name.clone(), upstream.balance, upstream.limits)
        };
        assert_eq!(of(one), of(other), "{key}");
        assert_eq!(translation.upstream_problems.get(key), whole.upstream_problems.get(key), "{key}");
        assert_eq!(translation.external_ports.get(key), whole.external_ports.get(key), "{key}");
    }
    for key in config.upstreams.keys() {
        assert!(whole.config.upstreams.contains_key(key), "{key} is not used any more");
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
