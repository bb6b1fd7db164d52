//! The rules of a configuration, compiled for lookup.
//!
//! | module | purpose |
//! |---|---|
//! | `entry` | the hosts of listeners that share their hosts |
//! | `host` | a host: its matches and their targets |
//! | `backends` | the backends of a rule |
//! | `layer4` | the routes of listeners below HTTP |
//! | `tree` | the matches with a literal path |
//! | `regexes` | the matches with a regular expression |
//! | `trace` | the lookup of a route with its steps |
//! | `conditions` | the conditions of a match other than the path |

mod backends;
mod conditions;
mod entry;
mod host;
mod layer4;
mod regexes;
#[cfg(test)]
mod speed;
pub(crate) mod trace;
mod tree;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_model::rule::PathMatch;
use sluicegate_model::{
    Config, EntryPoint, HostPattern, Serves, Settings, UpstreamKey, VirtualHost, without_common_ends,
};

use crate::feature::authentication::consumer::Consumers;
use crate::feature::security::Security;
use crate::feature::{Guard, Policies, Resources, SecurityPolicy};
use crate::name::HostMap;
use crate::path::{is_ambiguous, readings};
use crate::request::HeadView;
use crate::template::RuleView;
use crate::tls::{AcmeHosts, TlsTable, TlsTables};
pub(crate) use backends::{Backends, WeightedBackend, choose};
pub(crate) use entry::Entrance;
use entry::{EntryTable, Hosts};
pub(crate) use host::{Host, Target};
pub(crate) use layer4::{ConnectionTarget, Layer4Table, Layer4Target};

/// The configuration for the workers, compiled once for all workers.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The number of the table in the process. Numbers of routes and consumers hold within a table.
    generation: u64,
    pub(crate) settings: Arc<Settings>,
    pub(crate) layer4: Layer4Table,
    /// The entry point of all listeners that flags set, then the other entry points.
    entries: Vec<EntryTable>,
    /// The entry point of the HTTP listeners that flags set.
    flag_http: usize,
    /// The entry point of the HTTPS listeners that flags set.
    flag_https: usize,
    /// The listeners of Gateways, by their addresses.
    gateways: HashMap<SocketAddr, GatewayListener, foldhash::fast::RandomState>,
    /// Hosts by number. If there is a default route, one host holds the default route and has no names.
    all: Vec<Arc<Host>>,
    /// Whether a security policy may apply to any route.
    is_guarded: bool,
    /// The number of routes.
    routes: usize,
    /// Whether a route or a policy names an upstream without a slot.
    has_unplaced: bool,
    /// Numbers of `all` that no host has. Their hosts have no routes.
    vacant: Vec<u32>,
    /// Whether any listener has filters.
    is_filtered: bool,
    /// The query parameters of all routes that hold credentials.
    secret_parameters: Arc<[Box<str>]>,
    policies: Arc<Policies>,
    consumers: Arc<Consumers>,
    /// The hosts whose certificates the control plane orders from an ACME server.
    acme: Option<Arc<AcmeHosts>>,
}

/// Identifies a route of a table: the number of the host, and the number of the route in the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RouteIndex {
    host: u32,
    route: u32,
}

impl Table {
    /// Compiles a configuration. Unchanged parts come from `before`. `earlier` is the configuration of `before`, if each of its
    /// upstreams still has the same slot; without it, all hosts are checked. `slot` returns the slot of an upstream in the workers.
    pub(crate) fn new(
        config: &Config,
        (before, earlier): (&Self, Option<&Config>),
        (tls, layer4): (&TlsTables, Layer4Table),
        resources: &Resources,
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Self {
        if let Some(earlier) = earlier
            && let Some(change) = Change::between(earlier, config, before, tls)
            && let Some(table) = before.changed(&change, tls, resources, &slot)
        {
            debug_assert!(table.has_exactly(config), "the table has other hosts than the configuration");
            return Self { layer4, ..table };
        }
        let may_stay = config.settings == *before.settings;
        let settings = match may_stay {
            true => before.settings.clone(),
            false => Arc::new(config.settings.clone()),
        };
        let mut compiler = host::Compiler::new(&settings, resources, slot, (&before.policies, may_stay), 0);
        let consumers = match before.consumers.is_of(&config.consumers) {
            true => before.consumers.clone(),
            false => Arc::new(Consumers::new(&config.consumers, &before.consumers, &resources.counters)),
        };
        let mut table = Self {
            generation: next_generation(),
            settings: settings.clone(),
            layer4,
            entries: Vec::new(),
            flag_http: 0,
            flag_https: 0,
            gateways: HashMap::default(),
            all: Vec::with_capacity(config.hosts.len() + 1),
            is_guarded: false,
            routes: 0,
            has_unplaced: false,
            vacant: Vec::new(),
            is_filtered: false,
            secret_parameters: Arc::default(),
            policies: Arc::default(),
            consumers,
            acme: tls.acme().cloned(),
        };
        table.open(&EntryPoint::Flags, tls, config.hosts.len());
        for source in &config.hosts {
            let old = before.entry(&source.entry_point).and_then(|hosts| hosts.get(&source.host));
            let old = old.map(|placed| placed.host);
            let host = match old.filter(|old| may_stay && old.is_of(source)) {
                Some(old) if compiler.takes_over(old) => old.clone(),
                _ => {
                    // A route has the same counters at all entry points.
                    let entries = before.entries().chain(table.entries());
                    let known = entries.filter_map(|hosts| hosts.get(&source.host));
                    Arc::new(compiler.compile(source, known.map(|placed| placed.host)))
                }
            };
            let number = table.add(host.clone());
            let entry = table.open(&source.entry_point, tls, 0);
            table.entries[entry].is_filtered |= host.filters().is_some();
            table.is_filtered |= host.filters().is_some();
            Arc::make_mut(&mut table.entries[entry].hosts).insert(&source.host, number);
        }
        if let Some(rule) = &config.default_rule {
            let nameless = VirtualHost {
                fallback: Some(rule.clone()),
                ..VirtualHost::new(HostPattern::Any, Vec::new())
            };
            // The host pattern for any name may have the same route as its fallback.
            let any = table.entries().next().and_then(|hosts| hosts.get(&HostPattern::Any));
            let any = any.map(|placed| placed.host);
            let old = before.entries.first().and_then(|entry| entry.default);
            let old = old.and_then(|default| before.all.get(default.host as usize));
            let host = compiler.compile(&Arc::new(nameless), any.into_iter().chain(old));
            let number = table.add(Arc::new(host));
            table.entries[0].default = Some(RouteIndex { host: number, route: 0 });
        }
        table.open_listeners(config, tls);
        let (policies, routes) = compiler.finish();
        table.secret_parameters = policies.secret_parameters().into();
        (table.policies, table.routes) = (policies.into(), routes);
        table.is_guarded = table.all.iter().any(|host| host.is_guarded());
        table.has_unplaced = table.all.iter().any(|host| !host.is_placed());
        table
    }

    /// Whether a route or a policy names an upstream that the configuration does not have.
    pub(crate) fn has_unplaced(&self) -> bool {
        self.has_unplaced
    }

    /// Whether the only entry point has exactly the hosts of a configuration.
    fn has_exactly(&self, config: &Config) -> bool {
        let Some(hosts) = self.entries().next() else { return false };
        let mut all = config.hosts.iter();
        let occupied = self.all.len() - self.vacant.len() - usize::from(hosts.entry.default.is_some());
        occupied == config.hosts.len()
            && all.all(|host| hosts.get(&host.host).is_some_and(|placed| placed.host.is_of(host)))
    }

    /// The table after a change of hosts. Copies the lists of hosts, and compiles only the changed hosts. The result is `None` if
    /// there are several entry points, if a changed host has a new policy, filters, subscriptions or contracts, or if no changed
    /// host still uses a policy that one of them used.
    fn changed(
        &self,
        change: &Change<'_>,
        tls: &TlsTables,
        resources: &Resources,
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Option<Self> {
        let [entry] = &self.entries[..] else { return None };
        let mut table = Self {
            generation: next_generation(),
            settings: self.settings.clone(),
            layer4: Layer4Table::default(),
            entries: vec![EntryTable {
                entry_point: entry.entry_point.clone(),
                hosts: entry.hosts.clone(),
                tls: tls.of(&entry.entry_point),
                default: entry.default,
                is_filtered: entry.is_filtered,
            }],
            flag_http: 0,
            flag_https: 0,
            gateways: HashMap::default(),
            all: self.all.clone(),
            is_guarded: self.is_guarded,
            routes: self.routes,
            has_unplaced: self.has_unplaced,
            vacant: self.vacant.clone(),
            is_filtered: self.is_filtered,
            secret_parameters: self.secret_parameters.clone(),
            policies: self.policies.clone(),
            consumers: self.consumers.clone(),
            acme: tls.acme().cloned(),
        };
        let entry = &mut table.entries[0];
        let vacant = Arc::new(Host::vacant());
        let (mut old_policies, mut new_policies) = (HashSet::new(), HashSet::new());
        for pattern in &change.gone {
            let number = Arc::make_mut(&mut entry.hosts).remove(pattern)?;
            let old = std::mem::replace(&mut table.all[number as usize], vacant.clone());
            if !old.has_only(&self.policies) {
                return None;
            }
            old_policies.extend(old.policies());
            table.routes -= old.targets().len();
            table.vacant.push(number);
        }
        for source in &change.new {
            let known = entry.hosts.get(&source.host).copied();
            let old = known.map(|number| table.all[number as usize].clone());
            table.routes -= old.as_ref().map_or(0, |old| old.targets().len());
            let unchanged = (&*self.policies, true);
            let mut compiler =
                host::Compiler::new(&table.settings, resources, &slot, unchanged, table.routes);
            let host = compiler.compile(source, old.iter());
            if ![&host].into_iter().chain(old.as_deref()).all(|host| host.has_only(&self.policies)) {
                return None;
            }
            old_policies.extend(old.iter().flat_map(|old| old.policies()));
            new_policies.extend(host.policies());
            table.is_guarded |= host.is_guarded();
            table.has_unplaced |= !host.is_placed();
            (_, table.routes) = compiler.finish();
            let number = match known.or_else(|| table.vacant.pop()) {
                Some(number) => {
                    table.all[number as usize] = host.into();
                    number
                }
                None => {
                    table.all.push(host.into());
                    u32::try_from(table.all.len() - 1).ok()?
                }
            };
            if known.is_none() {
                Arc::make_mut(&mut entry.hosts).insert(&source.host, number);
            }
        }
        old_policies.is_subset(&new_policies).then_some(table)
    }

    /// The number of the table in the process. Numbers of routes and consumers hold within a table.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Leads listeners to their entry points.
    fn open_listeners(&mut self, config: &Config, tls: &TlsTables) {
        for listener in &config.listeners {
            if let Serves::Http(name) | Serves::Https(name) = &listener.serves {
                let entry = self.open(&EntryPoint::Gateway(name.clone()), tls, 0);
                let client_port = listener.client_port.unwrap_or(listener.address.port());
                self.gateways.insert(listener.address, GatewayListener { entry, client_port });
            }
        }
        for entry_point in [EntryPoint::FlagsHttp, EntryPoint::FlagsHttps] {
            let is_own = tls.has(&entry_point) || self.entry(&entry_point).is_some();
            let entry = if is_own { self.open(&entry_point, tls, 0) } else { 0 };
            match entry_point {
                EntryPoint::FlagsHttp => self.flag_http = entry,
                _ => self.flag_https = entry,
            }
            if entry == 0 {
                continue;
            }
            // The hosts of all listeners that flags set are at these listeners too.
            self.entries[entry].default = self.entries[0].default;
            let (flags, others) = self.entries.split_at_mut(1);
            Arc::make_mut(&mut others[entry - 1].hosts).add_missing(&flags[0].hosts);
            others[entry - 1].is_filtered |= flags[0].is_filtered;
        }
    }

    /// The index of an entry point, which is added if it is new.
    fn open(&mut self, entry_point: &EntryPoint, tls: &TlsTables, hosts: usize) -> usize {
        // Hosts of one entry point are adjacent.
        let known = self.entries.iter().rposition(|entry| entry.entry_point == *entry_point);
        known.unwrap_or_else(|| {
            self.entries.push(EntryTable {
                entry_point: entry_point.clone(),
                hosts: HostMap::with_capacity(hosts).into(),
                tls: tls.of(entry_point),
                default: None,
                is_filtered: false,
            });
            self.entries.len() - 1
        })
    }

    /// The hosts of each entry point.
    fn entries(&self) -> impl Iterator<Item = Hosts<'_>> {
        self.entries.iter().map(|entry| Hosts { entry, all: &self.all })
    }

    fn entry(&self, entry_point: &EntryPoint) -> Option<Hosts<'_>> {
        self.entries().find(|hosts| hosts.entry.entry_point == *entry_point)
    }

    /// The hosts at a listener; `None` if the listener is gone.
    fn at(&self, entrance: Entrance) -> Option<Hosts<'_>> {
        let entry = self.entries.get(match entrance {
            Entrance::FlagHttp => self.flag_http,
            Entrance::FlagHttps => self.flag_https,
            Entrance::Gateway(address) => self.gateways.get(&address)?.entry,
        })?;
        Some(Hosts { entry, all: &self.all })
    }

    /// The port of HTTP/3 for clients of a Gateway's listener; `None` at the listeners that flags set.
    pub(crate) fn client_port(&self, entrance: Entrance) -> Option<u16> {
        match entrance {
            Entrance::Gateway(address) => Some(self.gateways.get(&address)?.client_port),
            Entrance::FlagHttp | Entrance::FlagHttps => None,
        }
    }

    /// The names for TLS at a listener; `None` if the listener is gone.
    pub(crate) fn tls(&self, entrance: Entrance) -> Option<&Arc<TlsTable>> {
        self.at(entrance).map(|hosts| &hosts.entry.tls)
    }

    /// The hosts whose certificates the control plane orders from an ACME server, if there are any.
    pub(crate) fn acme(&self) -> Option<&Arc<AcmeHosts>> {
        self.acme.as_ref()
    }

    /// The target of TLS connections that are passed through without termination, by the requested name.
    pub(crate) fn passthrough(&self, entrance: Entrance, name: &[u8]) -> Option<&Arc<Layer4Target>> {
        self.layer4.passthrough.of(&self.at(entrance)?.entry.entry_point)?.find(name)
    }

    /// The target of TLS connections that are relayed after the handshake, by the requested name.
    pub(crate) fn relay(&self, entrance: Entrance, name: &[u8]) -> Option<&Arc<Layer4Target>> {
        self.layer4.relays.of(&self.at(entrance)?.entry.entry_point)?.find(name)
    }

    /// The query parameters of all routes that hold credentials.
    pub(crate) fn secret_parameters(&self) -> &[Box<str>] {
        &self.secret_parameters
    }

    /// The route for a request at a listener. `authority` is the value of the Host header, with or without a port, in any
    /// case. `path` is in normal form.
    pub(crate) fn find(
        &self,
        entrance: Entrance,
        authority: &[u8],
        path: &[u8],
        request: HeadView<'_>,
    ) -> Option<RouteIndex> {
        self.at(entrance)?.find(authority, path, request)
    }

    /// Whether `%2F` in the path of a request is a slash: by the most specific host that matches the name.
    pub(crate) fn decodes_slashes(&self, entrance: Entrance, authority: &[u8]) -> bool {
        let host = self.at(entrance).and_then(|hosts| hosts.first(authority));
        host.is_some_and(|placed| placed.host.decodes_slashes())
    }

    /// The filters of the listener that a request is for, if it has filters.
    pub(crate) fn filters(&self, entrance: Entrance, authority: &[u8]) -> Option<&Guard> {
        if !self.is_filtered {
            return None;
        }
        self.at(entrance).filter(|hosts| hosts.entry.is_filtered)?.filters(authority)
    }

    /// The target of an index that [`find`](Self::find) returned.
    pub(crate) fn target(&self, index: RouteIndex) -> &Target {
        self.all[index.host as usize].target(index.route)
    }

    /// The path condition of a target; `None` for a fallback.
    pub(crate) fn path(&self, index: RouteIndex) -> Option<&PathMatch> {
        self.all[index.host as usize].path(index.route)
    }

    /// The rule of a target, as templates show it.
    pub(crate) fn rule(&self, index: RouteIndex) -> Option<RuleView<'_>> {
        self.all[index.host as usize].rule(index.route)
    }

    /// The policy that a request would bypass. An endpoint may read the path in another way. That reading leads to a
    /// route with a different security policy than the route that was found.
    pub(crate) fn bypassed_policy(
        &self,
        (entrance, index): (Entrance, RouteIndex),
        authority: &[u8],
        path: &[u8],
        request: HeadView<'_>,
    ) -> Option<&SecurityPolicy> {
        let bare = path.strip_suffix(b"/").filter(|bare| !bare.is_empty());
        if !self.is_guarded || bare.is_none() && !is_ambiguous(path) {
            return None;
        }
        let hosts = self.at(entrance)?;
        // Requests that match no rule of a host use the default rule.
        let takes_all = hosts.search(authority, |placed| placed.host.takes_all().then_some(())).is_some();
        let default = hosts.entry.default.filter(|_| !takes_all).map(|default| self.target(default));
        let is_guarded = hosts.search(authority, |placed| placed.host.is_guarded().then_some(())).is_some();
        if !is_guarded && default.and_then(security).is_none() {
            return None;
        }
        let at = |path: &[u8]| {
            let found = hosts.search(authority, |placed| placed.find(path, request));
            found.map(|index| self.target(index))
        };
        let this = security(self.target(index));
        let differs = |other: &&Arc<SecurityPolicy>| !this.is_some_and(|this| Arc::ptr_eq(this, other));
        if let Some(bare) = bare.filter(|_| !is_ambiguous(path)) {
            // Many servers treat `/admin/` as `/admin`. A route that names either as a prefix is meant for the path.
            let names = |pattern: &PathMatch| match pattern {
                PathMatch::Literal(pattern) => [bare, path].contains(&pattern.as_str().as_bytes()),
                PathMatch::Regex(_) | PathMatch::Template(_) => false,
            };
            if self.path(index).is_some_and(names) {
                return None;
            }
            return security(at(bare)?).filter(differs).filter(|other| can_deny(other)).map(|other| &**other);
        }
        let other = match readings(path) {
            Some(readings) => {
                readings.iter().find_map(|reading| security(at(&reading.path).or(default)?).filter(differs))
            }
            // The path may lead to any target of the hosts, and to the default target.
            None => {
                let of_host = hosts.search(authority, |placed| {
                    placed.host.targets().iter().filter_map(security).find(differs)
                });
                of_host.or_else(|| default.and_then(security).filter(differs))
            }
        };
        other.map(|other| &**other)
    }

    /// The consumers.
    pub(crate) fn consumers(&self) -> &Consumers {
        &self.consumers
    }

    /// The policies of all routes.
    pub(crate) fn policies(&self) -> &Policies {
        &self.policies
    }

    /// All hosts, including the host of the default route.
    pub(crate) fn hosts(&self) -> &[Arc<Host>] {
        &self.all
    }

    fn add(&mut self, host: Arc<Host>) -> u32 {
        self.all.push(host);
        u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX)
    }
}

fn next_generation() -> u64 {
    static TABLES: AtomicU64 = AtomicU64::new(0);
    TABLES.fetch_add(1, Ordering::Relaxed) + 1
}

/// A listener of a Gateway.
#[derive(Debug)]
struct GatewayListener {
    /// The place of its entry point.
    entry: usize,
    /// The port at which clients reach it.
    client_port: u16,
}

/// The hosts that differ between two configurations whose only entry point is [`EntryPoint::Flags`].
struct Change<'c> {
    gone: Vec<&'c HostPattern>,
    /// New hosts, and hosts with another [`Arc`].
    new: Vec<&'c Arc<VirtualHost>>,
}

impl<'c> Change<'c> {
    /// The most hosts that differ.
    const MAX: usize = 1_000;

    /// The hosts that differ. `table` is the table of `earlier`. The result is `None` if settings, the default rule, Consumers or
    /// listeners differ, if the host for any name differs, or if more than [`MAX`](Self::MAX) hosts differ. Upstreams and TLS may
    /// differ.
    fn between(earlier: &'c Config, config: &'c Config, table: &Table, tls: &TlsTables) -> Option<Self> {
        // Tables with one entry point have the entry point of flags.
        let is_simple = config.listeners.is_empty()
            && table.gateways.is_empty()
            && ![EntryPoint::FlagsHttp, EntryPoint::FlagsHttps].iter().any(|of| tls.has(of));
        let is_same = config.settings == *table.settings
            && config.default_rule == earlier.default_rule
            && table.consumers.is_of(&config.consumers);
        if !is_simple || !is_same {
            return None;
        }
        let (before, after) = without_common_ends(&earlier.hosts, &config.hosts);
        // The order of hosts differs between sources.
        let address = |host: &Arc<VirtualHost>| Arc::as_ptr(host).addr();
        let known: HashSet<usize> = before.iter().map(address).collect();
        let new: Vec<_> = after.iter().filter(|host| !known.contains(&address(host))).collect();
        let stays: HashSet<usize> = after.iter().map(address).collect();
        let replaced: HashSet<&HostPattern> = new.iter().map(|host| &host.host).collect();
        let gone = before.iter().filter(|host| !stays.contains(&address(host))).map(|host| &host.host);
        let gone: Vec<_> = gone.filter(|host| !replaced.contains(host)).collect();
        if gone.len() + new.len() > Self::MAX || new.iter().any(|host| !host.entry_point.is_flags()) {
            return None;
        }
        // The default rule shares its counters with the host of any name.
        let is_any = |host: &HostPattern| *host == HostPattern::Any;
        let has_any = gone.iter().any(|host| is_any(host)) || new.iter().any(|host| is_any(&host.host));
        (!has_any).then_some(Self { gone, new })
    }
}

fn security(target: &Target) -> Option<&Arc<SecurityPolicy>> {
    target.guard.as_ref()?.security.as_ref()
}

/// Whether a policy can deny a request.
fn can_deny(policy: &SecurityPolicy) -> bool {
    let Security { refuses, access, cors: _, authentication, authorization, filters, .. } = &policy.compiled;
    *refuses || access.is_some() || authentication.is_some() || authorization.is_some() || !filters.is_empty()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use sluicegate_http1::{HeadLimits, HeadScan, RequestHead};
    use sluicegate_model::policy::Traffic;
    use sluicegate_model::rule::Pattern;
    use sluicegate_model::{ObjectId, PathPattern, Rule, RuleMatch};

    use super::*;
    use crate::counters::Counters;

    fn rule(name: &str, path: &str) -> Rule {
        let id = ObjectId { kind: "Ingress", namespace: "default".into(), name: name.into() };
        let upstream = UpstreamKey::new("default", "s", "80");
        Rule::new(id, PathPattern::Prefix(path.into()), upstream)
    }

    fn virtual_host(host: HostPattern, name: &str) -> Arc<VirtualHost> {
        Arc::new(VirtualHost::new(host, vec![rule(name, "/")]))
    }

    fn resources() -> Resources {
        Resources::new(Counters::new(1, Arc::default()).into())
    }

    fn table(config: &Config) -> Table {
        after(&Table::default(), config, &resources(), 0)
    }

    fn after(before: &Table, config: &Config, resources: &Resources, slot: usize) -> Table {
        Table::new(config, (before, None), (&TlsTables::default(), Layer4Table::default()), resources, |_| {
            slot
        })
    }

    fn find(table: &Table, host: &str, path: &str) -> Option<RouteIndex> {
        let head = RequestHead::default();
        table.find(Entrance::FlagHttp, host.as_bytes(), path.as_bytes(), HeadView { head: &head, buf: &[] })
    }

    fn name<'t>(table: &'t Table, host: &str, path: &str) -> &'t str {
        find(table, host, path).map_or("none", |index| &table.target(index).id.name)
    }

    #[test]
    fn most_specific_host_is_selected() {
        let table = table(&Config {
            hosts: vec![
                virtual_host(HostPattern::Exact("a.example.com".into()), "exact"),
                virtual_host(HostPattern::Wildcard("example.com".into()), "wildcard"),
                virtual_host(HostPattern::Any, "any"),
            ],
            ..Config::default()
        });
        for (host, expected) in [
            ("a.example.com", "exact"),
            ("A.Example.COM:8080", "exact"),
            ("a.example.com.", "exact"),
            ("b.example.com", "wildcard"),
            ("a.b.example.com", "any"),
            ("example.com", "any"),
            (".example.com", "any"),
            ("[::1]:80", "any"),
            ("", "any"),
        ] {
            assert_eq!(name(&table, host, "/"), expected, "{host}");
        }
        assert_eq!(name(&table, &"x".repeat(300), "/"), "any");
    }

    #[test]
    fn unmatched_path_uses_the_fallback_rule_then_the_default_rule() {
        let mut config = Config {
            hosts: vec![Arc::new(VirtualHost {
                fallback: Some(rule("fallback", "/")),
                ..VirtualHost::new(HostPattern::Exact("a".into()), vec![rule("foo", "/foo")])
            })],
            default_rule: Some(rule("default", "/")),
            ..Config::default()
        };
        assert_eq!(name(&table(&config), "a", "/foo"), "foo");
        assert_eq!(name(&table(&config), "a", "/"), "fallback");
        assert_eq!(name(&table(&config), "b", "/foo"), "default");
        Arc::make_mut(&mut config.hosts[0]).fallback = None;
        assert_eq!(name(&table(&config), "a", "/"), "default");
        config.default_rule = None;
        assert_eq!(name(&table(&config), "a", "/"), "none");
    }

    fn host<'t>(table: &'t Table, pattern: &str) -> &'t Arc<Host> {
        table.entries().next().unwrap().get(&HostPattern::Exact(pattern.into())).unwrap().host
    }

    #[test]
    fn unchanged_hosts_are_not_recompiled_and_unchanged_routes_keep_their_counters() {
        let resources = resources();
        let exact = |name: &str| HostPattern::Exact(name.into());
        let mut config = Config {
            hosts: vec![virtual_host(exact("a"), "one"), virtual_host(exact("b"), "two")],
            default_rule: Some(rule("default", "/")),
            ..Config::default()
        };
        let first = after(&Table::default(), &config, &resources, 0);
        Arc::make_mut(&mut config.hosts[1]).rules.push(rule("new", "/new"));
        let second = after(&first, &config, &resources, 0);
        assert!(Arc::ptr_eq(host(&first, "a"), host(&second, "a")));
        assert!(!Arc::ptr_eq(host(&first, "b"), host(&second, "b")));
        assert_eq!(name(&second, "b", "/new"), "new");
        let stats = |table: &Table, host: &str, path: &str| {
            table.target(find(table, host, path).unwrap()).stats.clone()
        };
        assert!(Arc::ptr_eq(&stats(&first, "b", "/"), &stats(&second, "b", "/")));
        assert!(Arc::ptr_eq(&stats(&first, "c", "/"), &stats(&second, "c", "/")));
        assert!(!Arc::ptr_eq(&stats(&second, "b", "/new"), &stats(&second, "b", "/")));
    }

    #[test]
    fn route_has_the_same_counters_at_all_entry_points() {
        let resources = resources();
        let at = |entry_point| {
            let host = VirtualHost::new(HostPattern::Exact("a".into()), vec![rule("one", "/")]);
            Arc::new(VirtualHost { entry_point, ..host })
        };
        let mut config = Config {
            hosts: vec![at(EntryPoint::FlagsHttp), at(EntryPoint::Gateway("edge".into()))],
            ..Config::default()
        };
        let first = after(&Table::default(), &config, &resources, 0);
        config.hosts[0] = at(EntryPoint::FlagsHttp);
        config.hosts.push(at(EntryPoint::Gateway("other".into())));
        let second = after(&first, &config, &resources, 0);
        let mut stats = [&first, &second]
            .into_iter()
            .flat_map(|table| table.hosts())
            .map(|host| &host.targets()[0].stats);
        let one = stats.next().unwrap();
        assert!(stats.all(|other| Arc::ptr_eq(one, other)));
    }

    #[test]
    fn request_without_a_match_goes_to_the_next_less_specific_host_if_its_host_continues() {
        let at = |host, name, path, continues| {
            let host = VirtualHost::new(host, vec![rule(name, path)]);
            Arc::new(VirtualHost { entry_point: EntryPoint::FlagsHttp, continues, ..host })
        };
        let [exact, suffix] = [HostPattern::Exact("a.b.c".into()), HostPattern::Suffix("c".into())];
        let table = table(&Config {
            hosts: vec![
                virtual_host(HostPattern::Any, "ingress"),
                at(exact, "exact", "/exact", true),
                at(HostPattern::Wildcard("b.c".into()), "label", "/label", true),
                at(suffix, "suffix", "/suffix", false),
            ],
            ..Config::default()
        });
        for (path, expected) in
            [("/exact", "exact"), ("/label", "label"), ("/suffix", "suffix"), ("/other", "none")]
        {
            assert_eq!(name(&table, "a.b.c", path), expected);
        }
        assert_eq!(name(&table, "x.test", "/other"), "ingress");
        let find = |entrance| {
            let head = RequestHead::default();
            table.find(entrance, b"a.b.c", b"/exact", HeadView { head: &head, buf: &[] })
        };
        let https = find(Entrance::FlagHttps).map(|index| &*table.target(index).id.name);
        assert_eq!(https, Some("ingress"), "another entry point");
        assert_eq!(find(Entrance::Gateway(([127, 0, 0, 1], 80).into())), None, "no listener");
    }

    #[test]
    fn host_is_recompiled_after_a_change_of_upstream_or_codings() {
        let resources = resources();
        let mut config =
            Config { hosts: vec![virtual_host(HostPattern::Exact("a".into()), "one")], ..Config::default() };
        let first = after(&Table::default(), &config, &resources, 0);
        let moved = after(&first, &config, &resources, 1);
        assert_eq!(moved.target(find(&moved, "a", "/").unwrap()).backends, Backends::One(1));
        config.settings.compression.codings = "gzip".parse().unwrap();
        let compressed = after(&first, &config, &resources, 0);
        assert!(compressed.target(find(&compressed, "a", "/").unwrap()).compression.is_some());
    }

    #[test]
    fn routes_with_equal_labels_share_counters() {
        let resources = resources();
        let exact =
            Rule { matches: vec![RuleMatch::path(PathPattern::Exact("/a".into()))], ..rule("one", "/a") };
        let rules = vec![rule("one", "/a"), exact];
        let host =
            VirtualHost { fallback: Some(rule("f", "/")), ..VirtualHost::new(HostPattern::Any, rules) };
        let config =
            Config { hosts: vec![Arc::new(host)], default_rule: Some(rule("f", "/")), ..Config::default() };
        let table = after(&Table::default(), &config, &resources, 0);
        let stats: Vec<_> = table.hosts().iter().flat_map(|host| host.targets()).map(|t| &t.stats).collect();
        assert!(Arc::ptr_eq(stats[0], stats[1]));
        assert!(Arc::ptr_eq(stats[2], stats[3]), "the fallback and the default route");
        assert!(!Arc::ptr_eq(stats[0], stats[2]));
    }

    /// The name of the rule that a request matches, among the rules of one host.
    fn taken(rules: &[(&str, RuleMatch)], request: &str) -> String {
        let text = format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut head = RequestHead::default();
        assert!(head.parse(text.as_bytes(), &mut HeadScan::default(), &HeadLimits::default()).unwrap());
        let rules = rules.iter().map(|(name, of)| Rule { matches: vec![of.clone()], ..rule(name, "/") });
        let host = VirtualHost::new(HostPattern::Any, rules.collect());
        let table = table(&Config { hosts: vec![Arc::new(host)], ..Config::default() });
        let view = HeadView { head: &head, buf: text.as_bytes() };
        let found = table.find(Entrance::FlagHttp, b"a", head.path.of(text.as_bytes()), view);
        found.map_or("none".into(), |index| table.target(index).id.name.to_string())
    }

    fn prefix(path: &str, precedence: u32) -> RuleMatch {
        RuleMatch { precedence, ..RuleMatch::path(PathPattern::Prefix(path.into())) }
    }

    fn regex(text: &str, precedence: u32) -> RuleMatch {
        let path = PathMatch::Regex(Pattern::new(text, false).unwrap());
        RuleMatch { path, ..prefix("/", precedence) }
    }

    #[test]
    fn request_that_fails_the_conditions_of_a_match_uses_the_next_match() {
        let method = |of: RuleMatch| RuleMatch { method: Some("POST".into()), ..of };
        let rules = [
            ("root", prefix("/", 3)),
            ("shop", prefix("/shop", 2)),
            ("post", method(prefix("/shop", 1))),
            ("cart", method(prefix("/shop/cart", 0))),
        ];
        for (request, expected) in [
            ("GET /", "root"),
            ("GET /shop", "shop"),
            ("POST /shop", "post"),
            ("POST /shop/cart", "cart"),
            ("GET /shop/cart", "shop"),
            ("POST /shopping", "root"),
        ] {
            assert_eq!(taken(&rules, request), expected, "{request}");
        }
        assert_eq!(taken(&rules[2..], "GET /shop/cart"), "none");
    }

    #[test]
    fn explicit_precedence_is_compared_before_path_length() {
        let rules = [("long", prefix("/shop/cart", 1)), ("short", prefix("/shop", 0))];
        assert_eq!(taken(&rules, "GET /shop/cart"), "short");
        let rules = [("long", prefix("/shop/cart", 0)), ("short", prefix("/shop", 0))];
        assert_eq!(taken(&rules, "GET /shop/cart"), "long", "of equal precedence");
    }

    /// Eight hosts, some of them absent, and the turn of their list. Each host has a rule of one of two names for each of its
    /// paths, and one of three traffic policies or none.
    type Hosts = (Vec<Option<(u8, u8, u8)>>, usize);

    fn some_hosts() -> impl Strategy<Value = Hosts> {
        (proptest::collection::vec(proptest::option::weighted(0.8, (0..2u8, 0..2u8, 0..4u8)), 8), 0..3usize)
    }

    /// The hosts can be in any order.
    fn of_hosts((hosts, turn): &Hosts, before: &Config) -> Config {
        let host = |(number, host): (usize, &Option<(u8, u8, u8)>)| {
            let (root, deep, policy) = (*host)?;
            let name = format!("p{policy}").into();
            let id = ObjectId { kind: "TrafficPolicy", namespace: "default".into(), name };
            let traffic = (policy > 0).then(|| Arc::new(Traffic::new(id)));
            let root = Rule { traffic, ..rule(&format!("r{root}"), "/") };
            let rules = vec![root, rule(&format!("d{deep}"), "/deep")];
            let pattern = match number {
                7 => HostPattern::Wildcard("test".into()),
                _ => HostPattern::Exact(format!("h{number}.test").into()),
            };
            let host = Arc::new(VirtualHost::new(pattern, rules));
            Some(before.hosts.iter().find(|old| **old == host).cloned().unwrap_or(host))
        };
        let mut hosts: Vec<_> = hosts.iter().enumerate().filter_map(host).collect();
        let turn = turn % hosts.len().max(1);
        hosts.rotate_left(turn);
        Config { hosts, default_rule: Some(rule("default", "/")), ..Config::default() }
    }

    proptest! {
        #[test]
        fn table_after_changes_is_the_table_of_the_last_configuration(all in proptest::collection::vec(some_hosts(), 2..6)) {
            let resources = resources();
            let with = |config: &Config, before: (&Table, Option<&Config>)| {
                Table::new(config, before, (&TlsTables::default(), Layer4Table::default()), &resources, |_| 1)
            };
            let mut config = of_hosts(&all[0], &Config::default());
            let mut table = with(&config, (&Table::default(), None));
            for hosts in &all[1..] {
                let next = of_hosts(hosts, &config);
                let changed = with(&next, (&table, Some(&config)));
                let whole = with(&next, (&Table::default(), None));
                for host in (0..9).map(|number| format!("h{number}.test")) {
                    for path in ["/", "/deep", "/other"] {
                        prop_assert_eq!(name(&changed, &host, path), name(&whole, &host, path));
                        // Equal routes of one host keep their counters.
                        let stats = |table: &Table| {
                            let target = table.target(find(table, &host, path)?);
                            Some((target.id.name.clone(), table.pattern(find(table, &host, path)?)?.clone(), target.stats.clone()))
                        };
                        if let (Some(before), Some(after)) = (stats(&table), stats(&changed))
                            && (&before.0, &before.1) == (&after.0, &after.1)
                        {
                            prop_assert!(Arc::ptr_eq(&before.2, &after.2));
                        }
                    }
                }
                let labels = |table: &Table| {
                    let mut labels: Vec<_> =
                        table.hosts().iter().flat_map(|host| host.stats()).map(|(label, _)| label).collect();
                    labels.sort_unstable();
                    labels
                };
                prop_assert_eq!(labels(&changed), labels(&whole));
                prop_assert_eq!(changed.routes, whole.routes);
                let policies = |table: &Table| -> BTreeSet<_> {
                    table.policies.traffic_states().map(|state| state.id).collect()
                };
                prop_assert_eq!(policies(&changed), policies(&whole));
                (table, config) = (changed, next);
            }
        }
    }

    #[test]
    fn change_of_a_host_compiles_only_that_host() {
        let resources = resources();
        let with = |config: &Config, before: (&Table, Option<&Config>)| {
            Table::new(config, before, (&TlsTables::default(), Layer4Table::default()), &resources, |_| 1)
        };
        let exact = |name: &str| HostPattern::Exact(name.into());
        let mut config = Config {
            hosts: vec![virtual_host(exact("a"), "one"), virtual_host(exact("b"), "two")],
            ..Config::default()
        };
        let earlier = config.clone();
        let first = with(&config, (&Table::default(), None));
        config.hosts[1] = virtual_host(exact("b"), "three");
        let second = with(&config, (&first, Some(&earlier)));
        let is_shared = |table: &Table| Arc::ptr_eq(&table.entries[0].hosts, &first.entries[0].hosts);
        assert!(is_shared(&second) && Arc::ptr_eq(host(&first, "a"), host(&second, "a")));
        assert_eq!((name(&second, "a", "/"), name(&second, "b", "/")), ("one", "three"));
        assert!(!is_shared(&with(&config, (&first, None))), "slots may have moved");
    }

    #[test]
    fn regular_expressions_and_literal_paths_have_a_common_order_of_precedence() {
        // Fewer rules than a set needs, and more.
        for more in [0, 10] {
            let mut rules = vec![
                ("first", regex("^/img/.*[.]png$", 1)),
                ("second", regex("^/img/", 2)),
                ("literal", prefix("/img/x", 3)),
                ("last", regex("x", 4)),
                ("earliest", prefix("/img/y", 0)),
            ];
            rules.extend((0..more).map(|n| ("never", regex(&format!("^/never/{n}$"), 0))));
            for (request, expected) in [
                ("GET /img/a.png", "first"),
                ("GET /img/a.gif", "second"),
                ("GET /img/x", "second"),
                ("GET /img/y/a.png", "earliest"),
                ("GET /a/x", "last"),
                ("GET /a", "none"),
            ] {
                assert_eq!(taken(&rules, request), expected, "{request} {more}");
            }
        }
    }
}
