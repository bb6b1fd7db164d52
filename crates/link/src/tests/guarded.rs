//! Tests that a data plane never serves a route without its security policy, even if the data plane cannot read the
//! policy or its build knows no policies.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use serde_json::json;
use sluicegate_model::encoding::{Fault, NoParts, Unknown, decode};
use sluicegate_model::policy::security::Security;
use sluicegate_model::policy::{Consumer, KeyHash, RateLimits};
use sluicegate_model::rule::{Backend, RuleMatch};
use sluicegate_model::value::Entries;
use sluicegate_model::{Change, Config, HostPattern, ObjectId, PathPattern, Rule, UpstreamKey, VirtualHost};

use super::cbor::{Value, edited};
use super::everything::everything;
use super::traffic::valid;
use crate::cut::cut;
use crate::digest::Digest;
use crate::guard::{HostOutline, RuleOutline};
use crate::resource::{Kind, Name};
use crate::store::{Delta, Store};

fn id(name: &str) -> ObjectId {
    ObjectId { kind: "Object", namespace: "default".into(), name: name.into() }
}

fn security(network: &str) -> Arc<Security> {
    let ip_access = valid(json!({"allow": [network]}));
    let cors = valid(json!({
        "allowOrigins": ["https://a.example"], "allowCredentials": true, "maxAge": "0s",
    }));
    let policy = Security {
        id: id("policy"),
        refuses: None,
        ip_access,
        cors: Some(cors),
        authentication: None,
        authorization: None,
        forward_overrides: false,
        inherits: Vec::new(),
        filters: Vec::new(),
        satisfies_any: false,
    };
    Arc::new(policy)
}

fn rate_limits() -> Arc<RateLimits> {
    let limit = valid(json!({
        "name": "default", "requests": 10, "per": "1s", "algorithm": "SlidingWindow", "key": [{"type": "Consumer"}],
    }));
    Arc::new(RateLimits {
        id: id("limits"),
        limits: vec![limit],
        concurrency: vec![],
        headers: true,
        shared: None,
        exempt: Entries::default(),
    })
}

fn route(path: &str, security: Option<Arc<Security>>) -> Rule {
    let path = PathPattern::Prefix(path.into());
    Rule { security, ..Rule::new(id("a"), path, UpstreamKey::new("default", "a", "80")) }
}

fn with(routes: Vec<Rule>) -> Config {
    let host = VirtualHost::new(HostPattern::Exact("a".into()), routes);
    Config { hosts: vec![Arc::new(host)], ..Config::default() }
}

fn consumer(name: &str, key: u8) -> Arc<Consumer> {
    let keys = vec![KeyHash([key; 32])];
    let (id, username) = (id(name), name.into());
    Arc::new(Consumer {
        id,
        username,
        groups: vec![],
        keys,
        tokens: vec![],
        users: vec![],
        refused: false,
        terms: vec![],
    })
}

fn all_of(config: &Config) -> Vec<(Name, Bytes)> {
    cut(config).into_iter().collect()
}

fn apply(store: &mut Store, changed: Vec<(Name, Bytes)>) -> Vec<Change> {
    store.apply(Delta { changed, gone: Vec::new() })
}

/// Replaces the body of each resource of a kind. A resource that is named by its digest receives its new name, also in
/// the hosts that name the resource.
fn alter(resources: &mut [(Name, Bytes)], kind: Kind, with: impl Fn(&Bytes) -> Bytes) {
    let mut renamed = Vec::new();
    for (name, body) in resources.iter_mut().filter(|(name, _)| name.kind() == Some(kind)) {
        *body = with(body);
        if kind.is_shared() {
            let new = Digest::of(body).into_bytes();
            renamed.push((std::mem::replace(&mut name.name, new.clone()), new));
        }
    }
    for (_, body) in resources.iter_mut().filter(|(name, _)| name.kind() == Some(Kind::Host)) {
        for (old, new) in &renamed {
            *body = replaced(body, old, new);
        }
    }
}

/// The body with each occurrence of `old` replaced by `new`, which has the same length.
fn replaced(body: &[u8], old: &[u8], new: &[u8]) -> Bytes {
    let mut body = body.to_vec();
    for at in 0..body.len().saturating_sub(old.len() - 1) {
        if body[at..].starts_with(old) {
            body[at..at + new.len()].copy_from_slice(new);
        }
    }
    body.into()
}

/// The body of the only host.
fn host_body(resources: &mut [(Name, Bytes)]) -> &mut Bytes {
    let host = resources.iter_mut().find(|(name, _)| name.kind() == Some(Kind::Host));
    &mut host.unwrap().1
}

/// The path to the first route of a host.
const ROUTE: [i64; 2] = [1, 0];
/// The indices of the path and of the security policy in a route.
const PATH: i64 = 1;
const SECURITY: i64 = 6;
/// An unknown index, which the decoder may not skip.
const NEW: i64 = 9;

/// The policy with an additional unknown field. The decoder may not skip fields of a policy.
fn newer(body: &Bytes) -> Bytes {
    edited(body, |policy| policy.add(1000, Value::Bytes(vec![7])))
}

/// The policy with an allowed origin of an unknown kind, as a newer version may send.
fn another_origin(body: &Bytes) -> Bytes {
    edited(body, |policy| *policy.at(&[3, 0, 0]) = Value::Text("regex:.*".into()))
}

/// Changes that make a policy unreadable to this version.
const UNREADABLE: [fn(&Bytes) -> Bytes; 2] = [newer, another_origin];

/// `Rule` as in a build that knows no policies.
#[derive(Debug, Encode, Decode)]
#[cbor(map)]
struct OldRule {
    #[n(0)]
    id: ObjectId,
    #[n(1)]
    matches: Vec<RuleMatch>,
    #[n(2)]
    backends: Vec<Backend>,
    #[n(3)]
    https_only: bool,
}

#[test]
fn data_plane_of_a_version_without_policies_rejects_a_route_with_a_policy() {
    let limited = Rule { rate_limits: Some(rate_limits()), ..route("/limited", None) };
    for (route, is_served) in
        [(route("/open", None), true), (route("/", Some(security("192.0.2.0/24"))), false), (limited, false)]
    {
        let config = Config { default_rule: Some(route), ..Config::default() };
        let body = &cut(&config)[&Kind::DefaultRule.alone()];
        let old = decode::<OldRule, _>(body, Kind::DefaultRule.unknown_fields(), &NoParts);
        assert_eq!(old.as_ref().err(), (!is_served).then_some(&Fault::Partial), "{old:?}");
    }
}

#[test]
fn route_with_an_unreadable_policy_keeps_its_last_valid_policy() {
    let before = with(vec![route("/", Some(security("192.0.2.0/24")))]);
    let after = with(vec![route("/", Some(security("198.51.100.0/24")))]);
    for unreadable in UNREADABLE {
        let mut store = Store::default();
        apply(&mut store, all_of(&before));
        let mut changed = all_of(&after);
        alter(&mut changed, Kind::Security, unreadable);
        let gone = cut(&before).into_keys().filter(|name| name.kind() == Some(Kind::Security)).collect();
        let changes = store.apply(Delta { changed, gone });
        assert!(changes.iter().all(|change| matches!(change, Change::Config(config) if **config == before)));
        assert_eq!((store.config(), store.refused()), (before.clone(), 2), "the policy, and the host");
        // A restart from the snapshot serves the last valid policy too, although the control plane has removed the
        // policy.
        let mut restarted = Store::default();
        apply(&mut restarted, store.snapshot());
        assert_eq!(restarted.config(), before);
    }
}

#[test]
fn new_host_with_an_unreadable_policy_is_not_served() {
    let config = with(vec![route("/", Some(security("192.0.2.0/24")))]);
    for unreadable in UNREADABLE {
        let mut changed = all_of(&config);
        alter(&mut changed, Kind::Security, unreadable);
        let mut store = Store::default();
        apply(&mut store, changed);
        assert_eq!((store.config().hosts.len(), store.refused()), (0, 2));
    }
    // The data plane does not serve the host without the policy either.
    let mut changed = all_of(&config);
    changed.retain(|(name, _)| name.kind() != Some(Kind::Security));
    let mut store = Store::default();
    apply(&mut store, changed);
    assert_eq!((store.config().hosts.len(), store.refused()), (0, 1));
}

#[test]
fn route_without_a_policy_is_not_served_after_it_receives_an_unreadable_policy() {
    let open = with(vec![route("/", None), route("/other", None)]);
    let closed = with(vec![route("/", Some(security("192.0.2.0/24"))), route("/other", None)]);
    for unreadable in UNREADABLE {
        let mut store = Store::default();
        apply(&mut store, all_of(&open));
        let mut changed = all_of(&closed);
        alter(&mut changed, Kind::Security, unreadable);
        changed.retain(|(name, _)| matches!(name.kind(), Some(Kind::Security | Kind::Host)));
        let changes = apply(&mut store, changed);
        assert!(
            matches!(&changes[..], [Change::Config(config)] if config.hosts.is_empty()),
            "the proxy is told: {changes:?}"
        );
        let mut restarted = Store::default();
        apply(&mut restarted, store.snapshot());
        assert!(restarted.config().hosts.is_empty());
        // The data plane serves the host again after it receives a readable policy.
        let changes = apply(&mut restarted, all_of(&closed));
        assert!(matches!(&changes[..], [Change::Config(config)] if **config == closed));
    }
    // The rule for a shorter prefix does not apply to these requests.
    let new =
        with(vec![route("/", None), route("/admin", Some(security("192.0.2.0/24"))), route("/other", None)]);
    let mut store = Store::default();
    apply(&mut store, all_of(&open));
    let mut changed = all_of(&new);
    changed.retain(|(name, _)| name.kind() != Some(Kind::Security));
    apply(&mut store, changed);
    assert!(store.config().hosts.is_empty());
    // The default rule and a fallback behave alike.
    let default = |security| Config { default_rule: Some(route("/", security)), ..Config::default() };
    let mut store = Store::default();
    apply(&mut store, all_of(&default(None)));
    let mut changed = all_of(&default(Some(security("192.0.2.0/24"))));
    changed.retain(|(name, _)| name.kind() != Some(Kind::Security));
    apply(&mut store, changed);
    assert_eq!(store.config().default_rule, None);
    let fallback = |security| {
        let mut config = with(vec![]);
        Arc::make_mut(&mut config.hosts[0]).fallback = Some(route("/", security));
        config
    };
    let mut store = Store::default();
    apply(&mut store, all_of(&fallback(None)));
    let mut changed = all_of(&fallback(Some(security("192.0.2.0/24"))));
    changed.retain(|(name, _)| name.kind() != Some(Kind::Security));
    apply(&mut store, changed);
    assert!(store.config().hosts.is_empty());
}

#[test]
fn route_keeps_its_last_valid_version_if_its_new_limits_cannot_be_decoded() {
    let before = with(vec![route("/", None)]);
    let limited = with(vec![Rule { rate_limits: Some(rate_limits()), ..route("/", None) }]);
    let mut store = Store::default();
    apply(&mut store, all_of(&before));
    let mut changed = all_of(&limited);
    alter(&mut changed, Kind::RateLimits, newer);
    apply(&mut store, changed);
    assert_eq!((store.config(), store.refused()), (before, 2));
}

#[test]
fn route_with_a_policy_of_an_unknown_kind_is_rejected() {
    let config = with(vec![route("/", Some(security("192.0.2.0/24")))]);
    let digest = |body: &Bytes| Value::read(body).at(&[1, 0, SECURITY]).clone();
    let client_auth = Arc::new(sluicegate_model::ClientAuth {
        source: "Secret a/b".into(),
        roots: vec![],
        crls: vec![],
        mode: sluicegate_model::ClientAuthMode::Required,
        forward: false,
        at_requests: None,
    });
    let with_client_auth = with(vec![Rule { client_auth: Some(client_auth), ..route("/", None) }]);
    // Faults: an additional policy of an unknown kind, only a policy of an unknown kind, the same policy twice, and the
    // digest of a resource that is not a policy.
    let ways: [fn(&mut Value, Value); 4] = [
        |route, digest| route.add(NEW, digest),
        |route, digest| {
            route.remove(SECURITY);
            route.add(NEW, digest);
        },
        |route, digest| route.add(SECURITY, digest),
        |route, _| {
            let other = route.at(&[4]).clone();
            route.remove(4);
            route.add(SECURITY, other);
        },
    ];
    for (nth, way) in ways.into_iter().enumerate() {
        let config = if nth == 3 { &with_client_auth } else { &config };
        let mut changed = all_of(config);
        let body = host_body(&mut changed);
        let digest = if nth == 3 { Value::Null } else { digest(body) };
        *body = edited(body, |host| way(host.at(&ROUTE), digest));
        let mut store = Store::default();
        apply(&mut store, changed);
        assert_eq!((store.config().hosts.len(), store.refused()), (0, 1), "{nth}");
    }
    // The data plane stops serving the old route without a policy if the new policy is of an unknown kind.
    let mut store = Store::default();
    apply(&mut store, all_of(&with(vec![route("/", None)])));
    let mut changed = all_of(&config);
    let body = host_body(&mut changed);
    let digest = digest(body);
    *body = edited(body, |host| ways[1](host.at(&ROUTE), digest));
    apply(&mut store, changed);
    assert!(store.config().hosts.is_empty());
    // The same applies to an unknown field of the host, which may guard all routes of the host.
    let mut store = Store::default();
    apply(&mut store, all_of(&with(vec![route("/", None)])));
    let mut changed = all_of(&with(vec![route("/", None)]));
    let body = host_body(&mut changed);
    *body = edited(body, |host| host.add(NEW, Value::Null));
    apply(&mut store, changed);
    assert!(store.config().hosts.is_empty());
}

#[test]
fn encoded_route_with_two_paths_is_rejected() {
    let config = with(vec![route("/", Some(security("192.0.2.0/24")))]);
    let mut changed = all_of(&config);
    let body = host_body(&mut changed);
    let path = Value::read(body).at(&[1, 0, PATH]).clone();
    *body = edited(body, |host| host.at(&ROUTE).add(PATH, path));
    let mut store = Store::default();
    apply(&mut store, changed);
    assert_eq!((store.config().hosts.len(), store.refused()), (0, 1));
}

#[test]
fn outline_of_a_host_covers_every_field_of_hosts_and_routes() {
    let [config, _] = everything();
    for (name, body) in cut(&config) {
        match name.kind() {
            Some(Kind::Host) => {
                let outline = HostOutline::read(&body).unwrap();
                let host = config
                    .hosts
                    .iter()
                    .find(|host| Kind::Host.of_host(&host.entry_point, &host.host) == name)
                    .unwrap();
                // The same version of the host opens no route. A version without the security policies opens the
                // guarded routes.
                assert!(!outline.is_opened_by(host), "{name}");
                let mut open = VirtualHost::clone(host);
                open.rules.iter_mut().for_each(|route| route.security = None);
                let is_guarded = host.rules.iter().any(|route| route.security.is_some());
                assert_eq!(outline.is_opened_by(&open), is_guarded, "{name}");
            }
            Some(Kind::DefaultRule) => {
                let route = config.default_rule.as_ref().unwrap();
                assert!(!RuleOutline::read(&body).unwrap().is_opened_by(route));
            }
            _ => {}
        }
    }
}

#[test]
fn last_valid_host_that_lacks_policies_of_the_new_conditional_rules_is_not_served() {
    let post = |path: &str, security| {
        let rule = route(path, security);
        let matches = vec![RuleMatch { method: Some("POST".into()), ..rule.matches[0].clone() }];
        Rule { matches, ..rule }
    };
    let guard = || Some(security("192.0.2.0/24"));
    let host = |rules| VirtualHost::new(HostPattern::Exact("a".into()), rules);
    let body_of = |host: &VirtualHost| {
        let config = Config { hosts: vec![Arc::new(host.clone())], ..Config::default() };
        host_body(&mut all_of(&config)).clone()
    };
    let now = host(vec![post("/a", guard()), route("/", None)]);
    let outline = HostOutline::read(&body_of(&now)).unwrap();
    assert!(!outline.is_opened_by(&now));
    for (older, opens) in [
        (host(vec![route("/", None), post("/a", guard())]), false),
        (host(vec![post("/a", guard())]), false),
        (host(vec![route("/", None)]), true),
        (host(vec![post("/a", None), route("/", None)]), true),
        (host(vec![route("/a", guard()), route("/", None)]), true),
        (host(vec![post("/a", guard()), route("/", None), post("/a/b", None)]), true),
    ] {
        assert_eq!(outline.is_opened_by(&older), opens, "{older:?}");
    }
}

#[test]
fn last_valid_host_that_lacks_the_new_filters_of_its_listener_is_not_served() {
    let open = VirtualHost::new(HostPattern::Exact("a".into()), vec![route("/", None)]);
    let filtered = VirtualHost { filters: Some(security("192.0.2.0/24")), ..open.clone() };
    let config = Config { hosts: vec![Arc::new(filtered.clone())], ..Config::default() };
    let outline = HostOutline::read(host_body(&mut all_of(&config))).unwrap();
    assert!(outline.is_opened_by(&open) && !outline.is_opened_by(&filtered));
}

#[test]
fn consumer_with_an_unknown_field_keeps_its_last_valid_version() {
    let config = |consumers| Config { consumers, ..Config::default() };
    let mut store = Store::default();
    apply(&mut store, all_of(&config(vec![consumer("alice", 1)])));
    let mut changed = all_of(&config(vec![consumer("alice", 2), consumer("bob", 2)]));
    alter(&mut changed, Kind::Consumer, newer);
    apply(&mut store, changed);
    assert_eq!((store.config().consumers, store.refused()), (vec![consumer("alice", 1)], 2));
    let named: Vec<_> = store.inventory().map(|(name, _)| name.to_string()).collect();
    assert!(named.contains(&"Consumer default/bob".to_owned()), "{named:?}");
}

#[test]
fn consumers_are_ordered_by_id_and_removed_individually() {
    let names = ["aaaa", "b", "cc"];
    let before =
        Config { consumers: names.map(|name| consumer(name, 1)).into(), ..with(vec![route("/", None)]) };
    let mut store = Store::default();
    apply(&mut store, all_of(&before));
    assert_eq!(store.config(), before);
    let changes = store.apply(Delta { changed: vec![], gone: vec![Kind::Consumer.of_object(&id("b"))] });
    let [Change::Config(config)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(config.consumers, [consumer("aaaa", 1), consumer("cc", 1)]);
}

#[test]
fn shared_policy_is_sent_once_and_decoded_as_one_arc() {
    let policy = security("192.0.2.0/24");
    let config = with(vec![route("/1", Some(policy.clone())), route("/2", Some(policy))]);
    let resources = all_of(&config);
    assert_eq!(resources.iter().filter(|(name, _)| name.kind() == Some(Kind::Security)).count(), 1);
    let mut store = Store::default();
    apply(&mut store, resources);
    let host = store.config().hosts[0].clone();
    let [one, other] = [0, 1].map(|index: usize| host.rules[index].security.clone().unwrap());
    assert!(Arc::ptr_eq(&one, &other));
}

/// `Security` as in a build that knows no external authorization service.
mod before {
    use minicbor::{Decode, Encode};
    use sluicegate_model::ObjectId;
    use sluicegate_model::feature::authentication::ApiKey;
    use sluicegate_model::feature::{Authorization, Cors, IpAccess, Require};

    #[derive(Debug, Encode, Decode)]
    #[cbor(map)]
    pub(super) struct Security {
        #[n(0)]
        id: ObjectId,
        #[n(1)]
        refuses: Option<String>,
        #[n(2)]
        ip_access: IpAccess,
        #[n(3)]
        cors: Option<Cors>,
        #[n(4)]
        authentication: Option<Authentication>,
        #[n(5)]
        authorization: Option<Authorization>,
        #[n(6)]
        forward_overrides: bool,
    }

    #[derive(Debug, Encode, Decode)]
    #[cbor(map)]
    struct Authentication {
        #[n(0)]
        require: Require,
        #[n(3)]
        api_key: Option<ApiKey>,
    }
}

#[test]
fn data_plane_of_a_version_without_external_authorization_rejects_such_policies() {
    let key = json!({"apiKey": {}});
    for (authentication, is_known) in [(key, true), (json!({"extAuth": {"url": "http://a/"}}), false)] {
        let authentication = Some(valid(authentication));
        let policy = Security { authentication, ..Security::clone(&security("10.0.0.0/8")) };
        let body = Bytes::from(crate::messages::encoded(&policy));
        let read = decode::<before::Security, _>(&body, Unknown::Refused, &NoParts);
        assert_eq!(read.is_ok(), is_known, "{read:?}");
    }
}
