//! Strategies for arbitrary policies and consumers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use rustls_pki_types::CertificateDer;
use serde_json::Value;
use sluicegate_model::feature::{Authorization, Cors, IpAccess};
use sluicegate_model::policy::consumer::{SubjectClaim, TokenSubject};
use sluicegate_model::policy::*;
use sluicegate_model::value::{Entries, Network};

use super::model::{id, networks, text, time};
use super::traffic::{list, number, object, one_of, seconds, text as text_of, valid};

pub(super) fn boxed() -> impl Strategy<Value = Box<str>> {
    text().prop_map(Into::into)
}

fn texts() -> impl Strategy<Value = Vec<Box<str>>> {
    vec(boxed(), 0..3)
}

fn claim() -> BoxedStrategy<Value> {
    object([("name!", text_of("[a-z]{1,8}(\\.[a-z]{1,4})?")), ("values", list(text_of("[!-~]{1,8}")))])
}

fn addresses() -> impl Strategy<Value = Entries<Network, 256>> {
    networks().prop_map(|networks| {
        Entries::new(networks.iter().map(|of| of.to_string().parse().unwrap()).collect()).unwrap()
    })
}

fn cors() -> impl Strategy<Value = Cors> {
    let origins = one_of(&["https://a.example", "http://a.example:8080", "https://*.example.com"]);
    let headers = || list(text_of("x-[a-z]{1,8}"));
    object([
        ("allowOrigins!", list(origins)),
        ("allowMethods", list(text_of("[A-Z]{1,8}"))),
        ("allowHeaders", headers()),
        ("exposeHeaders", headers()),
        ("allowCredentials", any::<bool>().prop_map(Into::into).boxed()),
        ("maxAge", seconds()),
    ])
    .prop_map(valid)
}

fn credential() -> impl Strategy<Value = Credential> {
    let prefix = prop::sample::select(vec!["", "Bearer "]);
    prop_oneof![
        (boxed(), prefix).prop_map(|(name, prefix)| Credential::Header { name, prefix: prefix.into() }),
        boxed().prop_map(Credential::Query),
        boxed().prop_map(Credential::Cookie),
    ]
}

fn keys() -> impl Strategy<Value = JwtKeys> {
    let bytes = || vec(any::<u8>(), 1..20).prop_map(Into::into);
    prop_oneof![
        bytes().prop_map(JwtKeys::Given),
        bytes().prop_map(JwtKeys::Shared),
        boxed().prop_map(JwtKeys::Unusable),
        (boxed(), vec(bytes_of(), 0..3), 0..1000_u64, 0..1000_u64).prop_map(
            |(url, ders, refresh, timeout)| {
                let authorities = ders.into_iter().map(CertificateDer::from).collect();
                let (refresh, timeout) = (Duration::from_millis(refresh), Duration::from_millis(timeout));
                JwtKeys::Remote(Arc::new(RemoteKeys { url, authorities, refresh, timeout }))
            }
        ),
    ]
}

fn bytes_of() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..20)
}

fn provider() -> impl Strategy<Value = Arc<JwtProvider>> {
    let names = (boxed(), option::of(boxed()), texts(), texts());
    let claims = (
        option::of(list(claim())).prop_map(|claims| claims.map(valid).unwrap_or_default()),
        vec((boxed(), boxed()), 0..2),
    );
    (names, keys(), time(), any::<bool>(), claims).prop_map(
        |((name, issuer, audiences, algorithms), keys, clock_skew, allows_eternal, (required, headers))| {
            Arc::new(JwtProvider {
                name,
                issuer,
                audiences,
                algorithms,
                keys,
                clock_skew,
                allows_eternal,
                required,
                headers,
            })
        },
    )
}

fn external() -> impl Strategy<Value = External> {
    let part = prop_oneof![
        credential().prop_map(KeyPart::Value),
        prop::sample::select(vec![KeyPart::Method, KeyPart::Host, KeyPart::Path, KeyPart::Address]),
    ];
    let cache = (vec(part, 1..4), time(), time()).prop_map(|(key, admitted, refused)| ExternalCache {
        key,
        admitted,
        refused,
    });
    let sign_in = (text(), boxed())
        .prop_map(|(host, parameter)| SignIn { url: format!("https://{host}/").into(), parameter });
    let method = prop::sample::select(vec!["GET", "HEAD", "POST"]);
    let heads = (option::of(texts()), texts());
    (boxed(), vec(bytes_of(), 0..3), method, time(), heads, option::of(sign_in), option::of(cache)).prop_map(
        |(url, ders, method, timeout, (request_headers, response_headers), sign_in, cache)| External {
            url,
            authorities: ders.into_iter().map(CertificateDer::from).collect(),
            method: method.into(),
            timeout,
            request_headers,
            response_headers,
            sign_in,
            cache,
        },
    )
}

fn method() -> impl Strategy<Value = Method> {
    let jwt = (vec(provider(), 0..3), vec(credential(), 0..3), any::<bool>())
        .prop_map(|(providers, from, forward)| Method::Jwt(Jwt { providers, from, forward }));
    let basic = (boxed(), vec((boxed(), boxed()), 0..3), any::<bool>())
        .prop_map(|(realm, users, forward)| Method::Basic(Basic { realm, users, forward }));
    prop_oneof![
        jwt,
        (vec(credential(), 0..3), any::<bool>()).prop_map(|(from, forward)| Method::ApiKey { from, forward }),
        basic,
        external().prop_map(|external| Method::External(Arc::new(external))),
        (boxed(), boxed()).prop_map(|(method, reason)| Method::Unusable { method, reason }),
    ]
}

fn authentication() -> impl Strategy<Value = Authentication> {
    let namespaces = vec(text().prop_map(Into::into), 0..3);
    (any::<bool>(), vec(method(), 1..3), option::of(namespaces))
        .prop_map(|(requires_all, methods, consumers)| Authentication { requires_all, methods, consumers })
}

fn authorization() -> impl Strategy<Value = Authorization> {
    let path = object([("type!", one_of(&["Exact", "Prefix"])), ("value!", text_of("(/[a-z]{1,4}){1,3}"))]);
    let rule = object([
        ("action!", one_of(&["Allow", "Deny"])),
        ("consumers", list(text_of("([a-z]{1,4}/)?[a-z]{1,8}"))),
        ("groups", list(text_of("[a-z]{1,8}"))),
        ("claims", list(claim())),
        ("methods", list(text_of("[A-Z]{1,8}"))),
        ("paths", list(path)),
        ("addresses", list(text_of("10\\.[1-9]\\.0\\.0/16"))),
    ]);
    object([("defaultAction", one_of(&["Allow", "Deny"])), ("rules!", list(rule))]).prop_map(valid)
}

pub(super) fn security() -> impl Strategy<Value = Arc<Security>> {
    let access = (addresses(), addresses()).prop_map(|(allow, deny)| {
        let deny = Entries::new(deny.to_vec()).unwrap();
        IpAccess { allow, deny }
    });
    let parts = (option::of(cors()), option::of(authentication()), option::of(authorization()));
    (id(), option::of(boxed()), access, parts, any::<bool>()).prop_map(
        |(id, refuses, ip_access, (cors, authentication, authorization), forward_overrides)| {
            let security =
                Security { id, refuses, ip_access, cors, authentication, authorization, forward_overrides };
            Arc::new(security)
        },
    )
}

fn limit() -> BoxedStrategy<Value> {
    let key = prop_oneof![
        object([("type!", one_of(&["Address"])), ("ipv6PrefixLength", number(1..=128))]),
        object([("type!", one_of(&["Header", "Claim"])), ("name!", text_of("x-[a-z]{1,8}"))]),
        object([("type!", one_of(&["Consumer", "Route"]))]),
    ];
    object([
        ("requests!", number(1..=1_000_000)),
        ("key", list(key.boxed())),
        ("groups", list(text_of("[a-z]{1,8}"))),
        ("dryRun", any::<bool>().prop_map(Into::into).boxed()),
    ])
}

fn rate() -> BoxedStrategy<Value> {
    let bucket = object([("per!", seconds()), ("burst", number(1..=1_000_000))]);
    let window = object([("per!", seconds()), ("algorithm!", one_of(&["SlidingWindow"]))]);
    prop_oneof![bucket, window].boxed()
}

/// Limits with their names.
fn named<T: serde::de::DeserializeOwned>(limits: BTreeMap<String, (Value, Value)>) -> Vec<T> {
    let limits = limits.into_iter();
    limits
        .map(|(name, (mut limit, more))| {
            limit["name"] = name.into();
            if let (Value::Object(limit), Value::Object(more)) = (&mut limit, more) {
                limit.extend(more);
            }
            valid(limit)
        })
        .collect()
}

fn redis() -> impl Strategy<Value = Redis> {
    let tls = (boxed(), vec(bytes_of(), 0..2)).prop_map(|(server_name, authorities)| RedisTls {
        server_name,
        authorities: authorities.into_iter().map(CertificateDer::from).collect(),
    });
    let password = option::of(bytes_of().prop_map(Vec::into_boxed_slice));
    let fields = object([
        ("address!", text_of("[a-z]{1,8}:6379")),
        ("username", text_of("[a-z]{1,8}")),
        ("database!", number(0..=65535)),
        ("prefix!", text_of("[a-z]{1,8}")),
        ("interval!", (5..=1000_u32).prop_map(|time| format!("{time}ms").into()).boxed()),
        ("timeout!", (5..=5000_u32).prop_map(|time| format!("{time}ms").into()).boxed()),
    ]);
    (password, option::of(tls), fields).prop_map(|(password, tls, fields)| Redis {
        address: valid(fields["address"].clone()),
        username: fields.get("username").map(|user| valid(user.clone())),
        password,
        tls,
        database: valid(fields["database"].clone()),
        prefix: valid(fields["prefix"].clone()),
        interval: valid(fields["interval"].clone()),
        timeout: valid(fields["timeout"].clone()),
    })
}

fn shared() -> impl Strategy<Value = Shared> {
    prop_oneof![redis().prop_map(|redis| Shared::Redis(Arc::new(redis))), boxed().prop_map(Shared::Unusable)]
}

pub(super) fn rate_limits() -> impl Strategy<Value = Arc<RateLimits>> {
    let nothing = || Just(Value::Null);
    let concurrency = btree_map("c[a-z0-9]{1,8}", (limit(), nothing()), 0..3);
    let limits = btree_map("[a-b]{1,8}", (limit(), rate()), 0..3);
    (id(), limits, concurrency, any::<bool>(), option::of(shared())).prop_map(
        |(id, limits, concurrency, headers, shared)| {
            let (limits, concurrency) = (named(limits), named(concurrency));
            Arc::new(RateLimits { id, limits, concurrency, headers, shared })
        },
    )
}

pub(super) fn consumer() -> impl Strategy<Value = Arc<Consumer>> {
    let claim = prop::sample::select(vec![SubjectClaim::Subject, SubjectClaim::ClientId]);
    let token = (option::of(boxed()), claim, boxed()).prop_map(|(issuer, claim, value)| TokenSubject {
        issuer,
        claim,
        value,
    });
    let keys = vec(any::<[u8; 32]>().prop_map(KeyHash), 0..3);
    (id(), boxed(), texts(), keys, vec(token, 0..3), texts(), any::<bool>()).prop_map(
        |(id, username, groups, keys, tokens, users, refused)| {
            Arc::new(Consumer { id, username, groups, keys, tokens, users, refused })
        },
    )
}
