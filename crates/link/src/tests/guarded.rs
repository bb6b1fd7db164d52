//! A route is never served without the policy that keeps callers out: not by who cannot read the policy, nor by who does not
//! know that there are any.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use sluicegate_model::policy::security::{OriginPattern, Security};
use sluicegate_model::policy::{
    Access, Authentication, Consumer, Cors, External, KeyHash, Limit, LimitKey, Method, RateLimits, Window,
};
use sluicegate_model::{Change, Config, HostPattern, PathPattern, Route, RouteId, UpstreamKey, VirtualHost};

use crate::convert::{Refusal, whole};
use crate::cut::cut;
use crate::proto;
use crate::resource::{Kind, Name};
use crate::store::{Delta, Store};

fn id(name: &str) -> RouteId {
    RouteId { kind: "Object", namespace: "default".into(), name: name.into() }
}

fn security(network: &str) -> Arc<Security> {
    let access = Access { allow: vec![network.parse().unwrap()], deny: vec![] };
    let cors = Cors {
        origins: vec![OriginPattern::Exact("https://a.example".into())],
        methods: vec![],
        headers: vec![],
        expose: vec![],
        credentials: true,
        max_age: std::time::Duration::ZERO,
    };
    let policy = Security {
        id: id("policy"),
        refuses: None,
        access,
        cors: Some(cors),
        authentication: None,
        authorization: None,
        forward_overrides: false,
    };
    Arc::new(policy)
}

fn rate_limits() -> Arc<RateLimits> {
    let limit = Limit {
        name: "default".into(),
        requests: 10,
        per: std::time::Duration::from_secs(1),
        window: Window::Sliding,
        key: vec![LimitKey::Consumer],
        groups: vec![],
        dry_run: false,
    };
    Arc::new(RateLimits {
        id: id("limits"),
        limits: vec![limit],
        concurrency: vec![],
        headers: true,
        shared: None,
    })
}

fn route(path: &str, security: Option<Arc<Security>>) -> Route {
    let path = PathPattern::Prefix(path.into());
    Route { security, ..Route::new(id("a"), path, UpstreamKey::new("default", "a", "80")) }
}

fn with(routes: Vec<Route>) -> Config {
    let host = VirtualHost { host: HostPattern::Exact("a".into()), routes, fallback: None };
    Config { hosts: vec![Arc::new(host)], ..Config::default() }
}

fn consumer(name: &str, key: u8) -> Arc<Consumer> {
    let keys = vec![KeyHash([key; 32])];
    let (id, username) = (id(name), name.into());
    Arc::new(Consumer { id, username, groups: vec![], keys, tokens: vec![], users: vec![], refused: false })
}

fn all_of(config: &Config) -> Vec<(Name, Bytes)> {
    cut(config).into_iter().collect()
}

fn apply(store: &mut Store, changed: Vec<(Name, Bytes)>) -> Vec<Change> {
    store.apply(Delta { changed, gone: Vec::new() })
}

/// Puts something else in place of all resources of a kind. Those that are named by what is in them get their new names, also
/// where hosts name them.
fn alter(resources: &mut [(Name, Bytes)], kind: Kind, with: impl Fn(&Bytes) -> Bytes) {
    let mut renamed = Vec::new();
    for (name, body) in resources.iter_mut().filter(|(name, _)| name.kind() == Some(kind)) {
        *body = with(body);
        if kind.is_shared() {
            let new = crate::digest::Digest::of(body).into_bytes();
            renamed.push((std::mem::replace(&mut name.name, new.clone()), new));
        }
    }
    for (_, body) in resources.iter_mut().filter(|(name, _)| name.kind() == Some(Kind::Host)) {
        let mut host = proto::VirtualHost::decode(body.clone()).unwrap();
        for guarded in host.routes.iter_mut().filter_map(|route| route.guarded.as_mut()) {
            for policy in &mut guarded.policies {
                if let Some((_, new)) = renamed.iter().find(|(old, _)| *old == policy.name) {
                    policy.name = new.clone();
                }
            }
        }
        *body = host.encode_to_vec().into();
    }
}

/// With the field 1000, of length 1, behind.
fn newer(body: &Bytes) -> Bytes {
    [&**body, &[0xc2, 0x3e, 1, 7]].concat().into()
}

/// With an origin of another kind, as a newer version may have.
fn another_origin(body: &Bytes) -> Bytes {
    let mut policy = proto::Security::decode(body.clone()).unwrap();
    policy.cors.as_mut().unwrap().origins[0].kind = 99;
    policy.encode_to_vec().into()
}

/// Ways to say something that is not known here.
const UNREADABLE: [fn(&Bytes) -> Bytes; 2] = [newer, another_origin];

/// `Route` as it was before there were policies.
#[derive(Clone, PartialEq, Message)]
struct OldRoute {
    #[prost(message, optional, tag = "1")]
    id: Option<proto::ObjectId>,
    #[prost(message, optional, tag = "2")]
    path: Option<proto::PathPattern>,
    #[prost(message, optional, tag = "3")]
    upstream: Option<proto::UpstreamKey>,
}

#[test]
fn a_build_that_knows_no_policies_finds_no_path_in_a_route_that_has_one_and_refuses_it() {
    let limited = Route { rate_limits: Some(rate_limits()), ..route("/limited", None) };
    for (route, is_served) in
        [(route("/open", None), true), (route("/", Some(security("192.0.2.0/24"))), false), (limited, false)]
    {
        let config = Config { default_route: Some(route), ..Config::default() };
        let body = &cut(&config)[&Kind::DefaultRoute.alone()];
        let old = OldRoute::decode(body.clone()).unwrap();
        assert_eq!(old.path.is_some(), is_served, "{old:?}");
        assert!(old.id.is_some() && old.upstream.is_some());
    }
}

#[test]
fn a_route_whose_policy_cannot_be_read_keeps_the_policy_that_it_had() {
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
        // From a snapshot too, although nothing that is in force names the policy any more.
        let mut restarted = Store::default();
        apply(&mut restarted, store.snapshot());
        assert_eq!(restarted.config(), before);
    }
}

#[test]
fn a_new_host_whose_policy_cannot_be_read_is_not_served_at_all() {
    let config = with(vec![route("/", Some(security("192.0.2.0/24")))]);
    for unreadable in UNREADABLE {
        let mut changed = all_of(&config);
        alter(&mut changed, Kind::Security, unreadable);
        let mut store = Store::default();
        apply(&mut store, changed);
        assert_eq!((store.config().hosts.len(), store.refused()), (0, 2));
    }
    // Nor where the policy does not come at all.
    let mut changed = all_of(&config);
    changed.retain(|(name, _)| name.kind() != Some(Kind::Security));
    let mut store = Store::default();
    apply(&mut store, changed);
    assert_eq!((store.config().hosts.len(), store.refused()), (0, 1));
}

#[test]
fn a_route_that_was_open_is_not_served_on_while_the_policy_that_it_got_cannot_be_read() {
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
        // Once it can be read, all is well.
        let changes = apply(&mut restarted, all_of(&closed));
        assert!(matches!(&changes[..], [Change::Config(config)] if **config == closed));
    }
    // Nor is the route for less of the path that would take its place.
    let new =
        with(vec![route("/", None), route("/admin", Some(security("192.0.2.0/24"))), route("/other", None)]);
    let mut store = Store::default();
    apply(&mut store, all_of(&open));
    let mut changed = all_of(&new);
    changed.retain(|(name, _)| name.kind() != Some(Kind::Security));
    apply(&mut store, changed);
    assert!(store.config().hosts.is_empty());
    // The default route and a fallback are no other.
    let default = |security| Config { default_route: Some(route("/", security)), ..Config::default() };
    let mut store = Store::default();
    apply(&mut store, all_of(&default(None)));
    let mut changed = all_of(&default(Some(security("192.0.2.0/24"))));
    changed.retain(|(name, _)| name.kind() != Some(Kind::Security));
    apply(&mut store, changed);
    assert_eq!(store.config().default_route, None);
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
fn limits_that_cannot_be_read_leave_the_last_good_form_in_service() {
    let before = with(vec![route("/", None)]);
    let limited = with(vec![Route { rate_limits: Some(rate_limits()), ..route("/", None) }]);
    let mut store = Store::default();
    apply(&mut store, all_of(&before));
    let mut changed = all_of(&limited);
    alter(&mut changed, Kind::RateLimits, newer);
    apply(&mut store, changed);
    assert_eq!((store.config(), store.refused()), (before, 2));
}

#[test]
fn a_route_with_a_policy_of_an_unknown_kind_is_refused() {
    let config = with(vec![route("/", Some(security("192.0.2.0/24")))]);
    let set_kinds = |kinds: &[u32], resources: &mut [(Name, Bytes)]| {
        let (_, body) = resources.iter_mut().find(|(name, _)| name.kind() == Some(Kind::Host)).unwrap();
        let mut host = proto::VirtualHost::decode(body.clone()).unwrap();
        let guarded = host.routes[0].guarded.as_mut().unwrap();
        let policy = guarded.policies[0].clone();
        guarded.policies = kinds.iter().map(|kind| proto::Name { kind: *kind, ..policy.clone() }).collect();
        *body = host.encode_to_vec().into();
    };
    // Another beside it, none, the same twice, what is no policy.
    for kinds in [&[14, 99][..], &[], &[14, 14], &[12]] {
        let mut changed = all_of(&config);
        set_kinds(kinds, &mut changed);
        let mut store = Store::default();
        apply(&mut store, changed);
        assert_eq!((store.config().hosts.len(), store.refused()), (0, 1), "{kinds:?}");
    }
    // What guards it is not known: the open form is not served on.
    let mut store = Store::default();
    apply(&mut store, all_of(&with(vec![route("/", None)])));
    let mut changed = all_of(&config);
    set_kinds(&[99], &mut changed);
    apply(&mut store, changed);
    assert!(store.config().hosts.is_empty());
}

#[test]
fn a_route_has_one_path() {
    let config = with(vec![route("/", Some(security("192.0.2.0/24")))]);
    let mut changed = all_of(&config);
    let (_, body) = changed.iter_mut().find(|(name, _)| name.kind() == Some(Kind::Host)).unwrap();
    let mut host = proto::VirtualHost::decode(body.clone()).unwrap();
    host.routes[0].path = host.routes[0].guarded.as_ref().unwrap().path.clone();
    *body = host.encode_to_vec().into();
    let mut store = Store::default();
    apply(&mut store, changed);
    assert_eq!((store.config().hosts.len(), store.refused()), (0, 1));
}

#[test]
fn a_consumer_with_something_unknown_keeps_its_last_good_form_and_is_nobody_without_one() {
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
fn consumers_come_in_the_order_of_their_ids_and_are_gone_when_they_go() {
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
fn what_many_routes_share_is_sent_once_and_comes_back_as_one() {
    let policy = security("192.0.2.0/24");
    let config = with(vec![route("/1", Some(policy.clone())), route("/2", Some(policy))]);
    let resources = all_of(&config);
    assert_eq!(resources.iter().filter(|(name, _)| name.kind() == Some(Kind::Security)).count(), 1);
    let mut store = Store::default();
    apply(&mut store, resources);
    let host = store.config().hosts[0].clone();
    let [one, other] = [0, 1].map(|index: usize| host.routes[index].security.clone().unwrap());
    assert!(Arc::ptr_eq(&one, &other));
}

/// A policy that was changed in one place.
fn altered<M: Clone, T: TryFrom<M, Error = Refusal> + std::fmt::Debug>(
    message: &M,
    with: impl FnOnce(&mut M),
) -> Refusal {
    let mut message = message.clone();
    with(&mut message);
    T::try_from(message).unwrap_err()
}

#[test]
fn values_that_cannot_be_are_refused() {
    let good = proto::Security::from(&*security("192.0.2.0/24"));
    let alter = |with: fn(&mut proto::Security)| altered::<_, Security>(&good, with);
    assert_eq!(alter(|policy| policy.id = None), Refusal::Missing("the object of a policy"));
    assert_eq!(alter(|policy| policy.access = None), Refusal::Missing("which addresses may call"));
    let network = Refusal::Invalid("a network that may call or not");
    assert_eq!(alter(|policy| policy.access.as_mut().unwrap().deny.push("x".into())), network);
    let nobody = |policy: &mut proto::Security| policy.authentication = Some(Default::default());
    assert_eq!(alter(nobody), Refusal::Missing("a method of authentication"));
    let cors = |policy: &mut proto::Security, kind: proto::OriginPatternKind, scheme: &str, suffix: &str| {
        policy.cors.as_mut().unwrap().origins = vec![proto::OriginPattern {
            kind: kind.into(),
            scheme: scheme.into(),
            suffix: suffix.into(),
            ..Default::default()
        }];
    };
    let any = altered::<_, Security>(&good, |policy| cors(policy, proto::OriginPatternKind::Any, "", ""));
    assert_eq!(any, Refusal::Invalid("credentials of every origin"));
    for (scheme, suffix) in [("https://", ""), ("https://", "example.com"), ("", ".example.com")] {
        let below = proto::OriginPatternKind::Below;
        let refusal = altered::<_, Security>(&good, |policy| cors(policy, below, scheme, suffix));
        assert_eq!(refusal, Refusal::Invalid("an origin"), "{scheme}{suffix}");
    }
    let header = |policy: &mut proto::Security| {
        policy.cors.as_mut().unwrap().expose = vec!["a\r\nb".into()];
    };
    assert_eq!(alter(header), Refusal::Invalid("the name of a header"));

    let good = proto::RateLimits::from(&*rate_limits());
    let alter =
        |with: fn(&mut proto::Limit)| altered::<_, RateLimits>(&good, |policy| with(&mut policy.limits[0]));
    for refusal in [alter(|limit| limit.requests = 0), alter(|limit| limit.requests = 1_000_001)] {
        assert_eq!(refusal, Refusal::Invalid("the requests of a limit"));
    }
    for refusal in [alter(|limit| limit.per = 999_999), alter(|limit| limit.per = u64::MAX)] {
        assert_eq!(refusal, Refusal::Invalid("the time of a limit"));
    }
    let bucket = |limit: &mut proto::Limit| limit.window = proto::LimitWindow::TokenBucket.into();
    assert_eq!(alter(bucket), Refusal::Invalid("the burst of a limit"));
    let address = |limit: &mut proto::Limit| limit.key[0].kind = proto::LimitKeyKind::Address.into();
    assert_eq!(alter(address), Refusal::Invalid("the bits of an IPv6 address"));
    let concurrency = |name: &str, requests| {
        let limit = proto::Concurrency { name: name.into(), requests, ..Default::default() };
        altered::<_, RateLimits>(&good, |policy| policy.concurrency.push(limit))
    };
    assert_eq!(concurrency("other", 0), Refusal::Invalid("the requests of a limit of concurrency"));
    assert_eq!(concurrency("default", 1), Refusal::Invalid("the name of a limit"));
    let shared = |policy: &mut proto::RateLimits, with: fn(&mut proto::Redis)| {
        let mut redis = proto::Redis {
            address: "a:1".into(),
            interval: 20_000_000,
            timeout: 50_000_000,
            ..Default::default()
        };
        with(&mut redis);
        let kind = proto::SharedLimitsKind::Redis.into();
        policy.shared = Some(proto::SharedLimits { kind, redis: Some(redis), ..Default::default() });
    };
    let alter_shared =
        |with: fn(&mut proto::Redis)| altered::<_, RateLimits>(&good, |policy| shared(policy, with));
    let address = alter_shared(|redis| redis.address.clear());
    assert_eq!(address, Refusal::Missing("the address of the server of limits"));
    let interval = alter_shared(|redis| redis.interval = 0);
    assert_eq!(interval, Refusal::Invalid("how long counts are gathered"));
    let timeout = alter_shared(|redis| redis.timeout = 6_000_000_000);
    assert_eq!(timeout, Refusal::Invalid("how long the server of limits may take"));
    let nothing = altered::<_, RateLimits>(&good, |policy| policy.shared = Some(Default::default()));
    assert_eq!(nothing, Refusal::Missing("how limits are shared"));
    let twice = altered::<_, RateLimits>(&good, |policy| policy.limits.push(policy.limits[0].clone()));
    assert_eq!(twice, Refusal::Invalid("the name of a limit"));

    for kind in [proto::JwtKeysKind::Given, proto::JwtKeysKind::Shared] {
        let keys = proto::JwtKeys { kind: kind.into(), ..Default::default() };
        let refusal = sluicegate_model::policy::JwtKeys::try_from(keys).unwrap_err();
        assert_eq!(refusal, Refusal::Missing("the key of a provider of tokens"));
    }
    let good = proto::Consumer::from(&*consumer("alice", 1));
    let short = altered::<_, Consumer>(&good, |consumer| consumer.keys[0] = Bytes::from_static(&[1; 31]));
    assert_eq!(short, Refusal::Invalid("the length of a key's hash"));
}

/// `Security` as it was before a service could be asked.
mod before {
    use prost::Message;

    use crate::proto;

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Security {
        #[prost(message, optional, tag = "1")]
        id: Option<proto::ObjectId>,
        #[prost(string, optional, tag = "2")]
        refuses: Option<String>,
        #[prost(message, optional, tag = "3")]
        access: Option<proto::Access>,
        #[prost(message, optional, tag = "4")]
        cors: Option<proto::Cors>,
        #[prost(message, optional, tag = "5")]
        authentication: Option<Authentication>,
        #[prost(message, optional, tag = "6")]
        authorization: Option<proto::Authorization>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Authentication {
        #[prost(bool, tag = "1")]
        requires_all: bool,
        #[prost(message, repeated, tag = "2")]
        methods: Vec<Method>,
        #[prost(bool, tag = "3")]
        all_namespaces: bool,
        #[prost(string, repeated, tag = "4")]
        namespaces: Vec<String>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Method {
        #[prost(message, optional, tag = "2")]
        api_key: Option<proto::ApiKey>,
    }
}

#[test]
fn who_knows_no_service_that_is_asked_refuses_a_policy_that_asks_one() {
    let external = External {
        url: "http://a/".into(),
        authorities: vec![],
        method: "GET".into(),
        timeout: std::time::Duration::from_secs(1),
        request_headers: None,
        response_headers: vec![],
        sign_in: None,
        cache: None,
    };
    let key = Method::ApiKey { from: vec![], forward: false };
    for (method, is_known) in [(key, true), (Method::External(Arc::new(external)), false)] {
        let authentication = Authentication { requires_all: false, methods: vec![method], consumers: None };
        let policy =
            Security { authentication: Some(authentication), ..Security::clone(&security("10.0.0.0/8")) };
        let body: Bytes = proto::Security::from(&policy).encode_to_vec().into();
        assert_eq!(whole::<before::Security>(body).is_ok(), is_known);
    }
}
