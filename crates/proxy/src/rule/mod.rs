//! The rules of a configuration, compiled for lookup.
//!
//! | module | purpose |
//! |---|---|
//! | `host` | a host: its matches and their targets |
//! | `backends` | the backends of a rule |
//! | `layer4` | the routes of listeners below HTTP |
//! | `tree` | the matches with a literal path |
//! | `regexes` | the matches with a regular expression |
//! | `conditions` | the conditions of a match other than the path |

mod backends;
mod conditions;
mod host;
mod layer4;
mod regexes;
#[cfg(test)]
mod speed;
mod tree;

use std::sync::Arc;

use sluicegate_model::rule::PathMatch;
use sluicegate_model::{Config, HostPattern, Settings, UpstreamKey, VirtualHost};

use crate::feature::authentication::consumer::Consumers;
use crate::feature::security::Security;
use crate::feature::{Policies, Resources, SecurityPolicy};
use crate::name::{HostMap, host_name};
use crate::path::{is_ambiguous, readings};
use crate::request::HeadView;
use crate::tls::TlsTable;
pub(crate) use backends::{Backends, choose};
pub(crate) use host::{Host, Target};
pub(crate) use layer4::{ConnectionTarget, Layer4Table, Layer4Target};

/// The configuration for the workers, compiled once for all workers.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) settings: Arc<Settings>,
    pub(crate) tls: Arc<TlsTable>,
    pub(crate) layer4: Layer4Table,
    hosts: HostMap<Placed>,
    /// Hosts by number. If there is a default route, the last host holds the default route and has no names.
    all: Vec<Arc<Host>>,
    default: Option<RouteIndex>,
    /// Whether a security policy applies to any route.
    is_guarded: bool,
    /// The query parameters of all routes that hold credentials.
    secret_parameters: Box<[Box<str>]>,
    policies: Policies,
    consumers: Arc<Consumers>,
}

/// A host and its number.
#[derive(Debug)]
struct Placed {
    host: Arc<Host>,
    number: u32,
}

/// Identifies a route of a table: the number of the host, and the number of the route in the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteIndex {
    host: u32,
    route: u32,
}

impl Table {
    /// Compiles a configuration. Unchanged parts come from `before`. `slot` returns the slot of an upstream in the
    /// workers.
    pub(crate) fn new(
        config: &Config,
        before: &Self,
        (tls, layer4): (Arc<TlsTable>, Layer4Table),
        resources: &Resources,
        slot: impl Fn(&UpstreamKey) -> usize,
    ) -> Self {
        let may_stay = config.settings == *before.settings;
        let settings = match may_stay {
            true => before.settings.clone(),
            false => Arc::new(config.settings.clone()),
        };
        let mut compiler = host::Compiler::new(&settings, resources, slot, (&before.policies, may_stay));
        let consumers = match before.consumers.is_of(&config.consumers) {
            true => before.consumers.clone(),
            false => Arc::new(Consumers::new(&config.consumers, &before.consumers, &resources.counters)),
        };
        let mut table = Self {
            settings: settings.clone(),
            tls,
            layer4,
            hosts: HostMap::with_capacity(config.hosts.len()),
            all: Vec::with_capacity(config.hosts.len() + 1),
            default: None,
            is_guarded: false,
            secret_parameters: Box::default(),
            policies: Policies::default(),
            consumers,
        };
        for source in &config.hosts {
            let old = before.hosts.get(&source.host).map(|placed| &placed.host);
            let host = match old.filter(|old| may_stay && old.is_of(source)) {
                Some(old) if compiler.takes_over(old) => old.clone(),
                _ => Arc::new(compiler.compile(source, old.into_iter())),
            };
            let number = table.add(host.clone());
            table.hosts.insert(&source.host, Placed { host, number });
        }
        if let Some(rule) = &config.default_rule {
            let nameless =
                VirtualHost { host: HostPattern::Any, rules: Vec::new(), fallback: Some(rule.clone()) };
            // The host pattern for any name may have the same route as its fallback.
            let any = table.hosts.get(&HostPattern::Any).map(|placed| &placed.host);
            let old = before.default.and_then(|default| before.all.get(default.host as usize));
            let host = compiler.compile(&Arc::new(nameless), any.into_iter().chain(old));
            let number = table.add(Arc::new(host));
            table.default = Some(RouteIndex { host: number, route: 0 });
        }
        table.policies = compiler.into_policies();
        table.secret_parameters = table.policies.secret_parameters();
        table.is_guarded = table.all.iter().any(|host| host.is_guarded());
        table
    }

    /// The query parameters of all routes that hold credentials.
    pub(crate) fn secret_parameters(&self) -> &[Box<str>] {
        &self.secret_parameters
    }

    /// The route for a request. `authority` is the value of the Host header, with or without a port, in any case. `path`
    /// is in normal form.
    pub(crate) fn find(&self, authority: &[u8], path: &[u8], request: HeadView<'_>) -> Option<RouteIndex> {
        let Some(placed) = self.hosts.find(host_name(authority)) else { return self.default };
        let found = placed.host.find(path, request).map(|route| RouteIndex { host: placed.number, route });
        found.or(self.default)
    }

    /// The target of an index that [`find`](Self::find) returned.
    pub(crate) fn target(&self, index: RouteIndex) -> &Target {
        self.all[index.host as usize].target(index.route)
    }

    /// The path condition of a target; `None` for a fallback.
    pub(crate) fn path(&self, index: RouteIndex) -> Option<&PathMatch> {
        self.all[index.host as usize].path(index.route)
    }

    /// The policy that a request would bypass. An endpoint may read the path in another way. That reading leads to a
    /// route with a different security policy than the route that was found.
    pub(crate) fn bypassed_policy(
        &self,
        index: RouteIndex,
        authority: &[u8],
        path: &[u8],
        request: HeadView<'_>,
    ) -> Option<&SecurityPolicy> {
        let bare = path.strip_suffix(b"/").filter(|bare| !bare.is_empty());
        if !self.is_guarded || bare.is_none() && !is_ambiguous(path) {
            return None;
        }
        let placed = self.hosts.find(host_name(authority));
        // Requests that match no rule of a host use the default rule.
        let takes_all = placed.is_some_and(|placed| placed.host.takes_all());
        let default = self.default.filter(|_| !takes_all).map(|default| self.target(default));
        let is_guarded = placed.is_some_and(|placed| placed.host.is_guarded());
        if !is_guarded && default.and_then(security).is_none() {
            return None;
        }
        let this = security(self.target(index));
        let differs = |other: &&Arc<SecurityPolicy>| !this.is_some_and(|this| Arc::ptr_eq(this, other));
        if let Some(bare) = bare.filter(|_| !is_ambiguous(path)) {
            // Many servers treat `/admin/` as `/admin`. A route that names either as a prefix is meant for the path.
            let names = |pattern: &PathMatch| match pattern {
                PathMatch::Literal(pattern) => [bare, path].contains(&pattern.as_str().as_bytes()),
                PathMatch::Regex(_) => false,
            };
            if self.path(index).is_some_and(names) {
                return None;
            }
            let found = placed.and_then(|placed| Some(placed.host.target(placed.host.find(bare, request)?)));
            return security(found?).filter(differs).filter(|other| can_deny(other)).map(|other| &**other);
        }
        let other = match readings(path) {
            Some(readings) => readings.iter().find_map(|reading| {
                let found = placed
                    .and_then(|placed| Some(placed.host.target(placed.host.find(&reading.path, request)?)));
                security(found.or(default)?).filter(differs)
            }),
            // The path may lead to any target of the host, and to the default target.
            None => {
                let targets = placed.map(|placed| placed.host.targets()).into_iter().flatten();
                targets.chain(default).filter_map(security).find(differs)
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

fn security(target: &Target) -> Option<&Arc<SecurityPolicy>> {
    target.guard.as_ref()?.security.as_ref()
}

/// Whether a policy can deny a request.
fn can_deny(policy: &SecurityPolicy) -> bool {
    let Security { refuses, access, cors: _, authentication, authorization, drops_overrides: _ } =
        &policy.compiled;
    *refuses || access.is_some() || authentication.is_some() || authorization.is_some()
}

#[cfg(test)]
mod tests {
    use sluicegate_http1::{HeadLimits, HeadScan, RequestHead};
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
        Arc::new(VirtualHost { host, rules: vec![rule(name, "/")], fallback: None })
    }

    fn resources() -> Resources {
        Resources::new(Counters::new(1, Arc::default()).into())
    }

    fn table(config: &Config) -> Table {
        after(&Table::default(), config, &resources(), 0)
    }

    fn after(before: &Table, config: &Config, resources: &Resources, slot: usize) -> Table {
        Table::new(config, before, Default::default(), resources, |_| slot)
    }

    fn find(table: &Table, host: &str, path: &str) -> Option<RouteIndex> {
        let head = RequestHead::default();
        table.find(host.as_bytes(), path.as_bytes(), HeadView { head: &head, buf: &[] })
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
                host: HostPattern::Exact("a".into()),
                rules: vec![rule("foo", "/foo")],
                fallback: Some(rule("fallback", "/")),
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
        &table.hosts.get(&HostPattern::Exact(pattern.into())).unwrap().host
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
        let host = VirtualHost { host: HostPattern::Any, rules, fallback: Some(rule("f", "/")) };
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
        let host = VirtualHost { host: HostPattern::Any, rules: rules.collect(), fallback: None };
        let table = table(&Config { hosts: vec![Arc::new(host)], ..Config::default() });
        let view = HeadView { head: &head, buf: text.as_bytes() };
        let found = table.find(b"a", head.path.of(text.as_bytes()), view);
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
