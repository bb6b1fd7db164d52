//! Strategies for arbitrary policies and consumers.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};
use sluicegate_model::feature::authentication::ext_auth::CacheTime;
use sluicegate_model::feature::authentication::jwt::{Provider, ProviderKeys, RemoteKeys};
use sluicegate_model::feature::authentication::{Combination, Need};
use sluicegate_model::feature::headers::TemplateHeader;
use sluicegate_model::feature::{
    AuthRequest, AuthRequestCache, Authentication, Authorization, Basic, Cors, Digest, ExtAuth, ExternalAuth,
    ExternalAuthProtocol, Introspection, IpAccess, Jwt, Oidc, Require, StatusTime,
};
use sluicegate_model::policy::consumer::{KeyTerms, SubjectClaim, TokenSubject};
use sluicegate_model::policy::*;
use sluicegate_model::value::secret::{CaCertificates, CookieKeys, FromSecret, KeyBytes};
use sluicegate_model::value::{AnnotatedHeader, Entries, InlineKeys, Network, Number, Realm, Template};

use super::model::{id, key, networks, text};
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

fn credential() -> BoxedStrategy<Value> {
    let header = object([("name!", text_of("x-[a-z]{1,8}")), ("prefix", one_of(&["", "Bearer "]))]);
    prop_oneof![
        object([("header!", header)]),
        object([("query!", text_of("[a-z]{1,8}"))]),
        object([("cookie!", text_of("[a-z]{1,8}"))]),
    ]
    .boxed()
}

/// A value of a Secret, or the reason why there is none.
fn from_secret<R: std::fmt::Debug + 'static, T: 'static>(
    raw: impl Strategy<Value = R> + 'static,
    value: fn(R) -> T,
) -> BoxedStrategy<FromSecret<T>> {
    let value = raw.prop_map(move |raw| FromSecret::Value(value(raw)));
    prop_oneof![value, boxed().prop_map(FromSecret::Unusable)].boxed()
}

fn certificates() -> BoxedStrategy<Option<FromSecret<CaCertificates>>> {
    let certificates = |ders: Vec<Vec<u8>>| {
        CaCertificates::new(ders.into_iter().map(CertificateDer::from).collect()).unwrap()
    };
    option::of(from_secret(vec(bytes_of(), 1..3), certificates)).boxed()
}

fn keys() -> BoxedStrategy<ProviderKeys> {
    let bytes = || from_secret(bytes_of(), |bytes| KeyBytes::new(bytes).unwrap());
    let remote = object([("url!", text_of("https://[a-z]{1,8}/")), ("timeout", seconds_up_to(60))]);
    prop_oneof![
        text().prop_filter_map("keys", |text| InlineKeys::new(&text).ok()).prop_map(ProviderKeys::Inline),
        bytes().prop_map(ProviderKeys::Secret),
        bytes().prop_map(ProviderKeys::Shared),
        (remote, certificates()).prop_map(|(remote, ca_certificate_ref)| {
            ProviderKeys::Remote(Arc::new(RemoteKeys { ca_certificate_ref, ..valid(remote) }))
        }),
    ]
    .boxed()
}

fn seconds_up_to(most: u32) -> BoxedStrategy<Value> {
    (1..=most).prop_map(|seconds| format!("{seconds}s").into()).boxed()
}

fn bytes_of() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..20)
}

fn jwt() -> impl Strategy<Value = Jwt> {
    let header = object([("claim!", text_of("[a-z]{1,8}")), ("header!", one_of(&["x-user", "x-name"]))]);
    let provider = object([
        ("audiences", list(text_of("[!-~]{1,8}"))),
        ("clockSkew", seconds_up_to(600)),
        ("allowMissingExpiry", any::<bool>().prop_map(Into::into).boxed()),
        ("requiredClaims", list(claim())),
        ("claimToHeaders", header.prop_map(|header| json!([header])).boxed()),
    ]);
    let fields =
        object([("from", list(credential())), ("forward", any::<bool>().prop_map(Into::into).boxed())]);
    (vec((provider, any::<bool>(), keys()), 1..4), fields).prop_map(|(providers, fields)| {
        let providers = providers.into_iter().enumerate().map(|(index, (mut provider, has_issuer, keys))| {
            provider["name"] = format!("p{index}").into();
            if has_issuer {
                provider["issuer"] = format!("https://issuer{index}/").into();
            }
            provider["algorithms"] =
                if matches!(keys, ProviderKeys::Shared(_)) { json!(["HS256"]) } else { json!(["RS256"]) };
            provider["keys"] = json!({"inline": "replaced"});
            Provider { keys, ..valid(provider) }
        });
        let fields: Value = fields;
        let jwt = json!({"providers": [{"name": "a", "keys": {"inline": "replaced"}}]});
        let (Value::Object(mut jwt), Value::Object(fields)) = (jwt, fields) else { unreachable!() };
        jwt.extend(fields);
        Jwt { providers: Entries::new(providers.collect()).unwrap(), ..valid(Value::Object(jwt)) }
    })
}

fn ext_auth() -> impl Strategy<Value = Arc<ExtAuth>> {
    let part = prop_oneof![
        object([("type!", one_of(&["Header", "Cookie", "Query"])), ("name!", text_of("x-[a-z]{1,8}"))]),
        object([("type!", one_of(&["Method", "Host", "Path", "Address"]))]),
    ];
    let cache = object([("key!", list(part.boxed())), ("admitted", seconds_up_to(60))]);
    let sign_in =
        object([("url!", text_of("https://[a-z]{1,8}/")), ("redirectParameter", text_of("[a-z]{1,8}"))]);
    let fields = object([
        ("url!", text_of("http://[a-z]{1,8}/")),
        ("method", one_of(&["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])),
        ("timeout", seconds_up_to(60)),
        ("responseHeaders", list(text_of("x-[a-z]{1,8}"))),
        ("signIn", sign_in),
    ]);
    let told =
        prop_oneof![object([("requestHeaders", list(text_of("x-[a-z]{1,8}")))]), object([("cache", cache)]),];
    (fields, told, certificates(), option::of(key()), option::of(auth_request())).prop_map(
        |(mut fields, told, ca_certificate_ref, upstream, auth_request)| {
            if let (Value::Object(fields), Value::Object(told)) = (&mut fields, told) {
                fields.extend(told);
            }
            Arc::new(ExtAuth { ca_certificate_ref, upstream, auth_request, ..valid(fields) })
        },
    )
}

fn basic() -> impl Strategy<Value = Basic> {
    let users = from_secret(vec((boxed(), boxed()), 0..3), |users| users);
    (users, "[a-z]{1,8}", any::<[bool; 2]>()).prop_map(|(secret_ref, realm, [forward, without_charset])| {
        Basic { secret_ref, realm: Realm::of(&realm), forward, without_charset }
    })
}

fn digest() -> impl Strategy<Value = Digest> {
    let users = from_secret(vec((boxed(), boxed()), 0..3), |users| users);
    (users, "[a-z]{1,8}", any::<bool>()).prop_map(|(users, realm, forward)| Digest {
        users,
        realm: Realm::of(&realm),
        forward,
    })
}

fn auth_request() -> impl Strategy<Value = AuthRequest> {
    let template = || "[a-z/]{0,4}(\\$(host|args|http_x|1))?".prop_map(|text| Template::new(&text).unwrap());
    let cache = (template(), vec((100..=599_u16, 0..1000_u64), 0..3)).prop_map(|(key, times)| {
        let time = |(status, millis): (u16, u64)| StatusTime {
            status: Number::of(status.into()),
            time: CacheTime::of_millis(millis),
        };
        AuthRequestCache { key, times: Entries::new(times.into_iter().map(time).collect()).unwrap() }
    });
    let names = || vec("x-[a-z]{1,8}".prop_map(|name| AnnotatedHeader::of(&name)), 0..3);
    let headers = (names(), template()).prop_map(|(names, value)| {
        let header = |name| TemplateHeader { name, value: value.clone() };
        Entries::new(names.into_iter().map(header).collect()).unwrap()
    });
    let texts = (option::of(template()), option::of(template()), option::of(template()));
    let flags = (any::<bool>(), any::<bool>());
    (texts, headers, flags, option::of(cache), names()).prop_map(
        |((target, sign_in, request_redirect), headers, (always_sets_cookies, tells_uri), cache, names)| {
            AuthRequest {
                target,
                sign_in,
                request_redirect,
                headers,
                always_sets_cookies,
                tells_uri,
                cache,
                response_headers: Entries::new(names).unwrap(),
            }
        },
    )
}

fn key_bytes() -> BoxedStrategy<FromSecret<KeyBytes>> {
    from_secret(bytes_of(), |bytes| KeyBytes::new(bytes).unwrap())
}

fn oidc() -> impl Strategy<Value = Oidc> {
    let url = || text_of("https://[a-z]{1,8}/");
    let endpoints =
        object([("authorization!", url()), ("token!", url()), ("jwks!", url()), ("endSession", url())]);
    let parameter = object([("name!", one_of(&["prompt"])), ("value!", text_of("[a-z]{1,8}"))]);
    let fields = object([
        ("issuer!", url()),
        ("endpoints", endpoints),
        ("clientId!", text_of("[a-z]{1,8}")),
        ("clientAuthentication", one_of(&["Basic", "Post"])),
        ("scopes", list(text_of("[a-z]{1,8}"))),
        ("redirectPath", text_of("/a/[a-z]{1,8}")),
        ("logoutPath", text_of("/b/[a-z]{1,8}")),
        ("cookieDomain", text_of("[a-z]{1,8}\\.example")),
        ("sessionLifetime", (1..=720_u32).prop_map(|hours| format!("{hours}h").into()).boxed()),
        ("forwardAccessToken", any::<bool>().prop_map(Into::into).boxed()),
        ("idTokenHeader", one_of(&["x-id-token"])),
        ("timeout", seconds_up_to(60)),
        ("loginParameters", parameter.prop_map(|parameter| json!([parameter])).boxed()),
    ]);
    let keys = from_secret(vec(bytes_of(), 1..4), |keys| {
        CookieKeys::new(keys.into_iter().filter_map(KeyBytes::new).collect()).unwrap()
    });
    (fields, option::of(key_bytes()), keys, certificates()).prop_map(
        |(mut fields, client_secret_ref, cookie_secret_ref, ca_certificate_ref)| {
            fields["cookieSecretRef"] = json!({"name": "replaced"});
            Oidc { client_secret_ref, cookie_secret_ref, ca_certificate_ref, ..valid(fields) }
        },
    )
}

fn introspection() -> impl Strategy<Value = Introspection> {
    let cache = object([("active", seconds_up_to(3600)), ("inactive", seconds_up_to(3600))]);
    let fields = object([
        ("url!", text_of("https://[a-z]{1,8}/")),
        ("clientId!", text_of("[a-z]{1,8}")),
        ("from", list(credential())),
        ("forward", any::<bool>().prop_map(Into::into).boxed()),
        ("audiences", list(text_of("[!-~]{1,8}"))),
        ("requiredClaims", list(claim())),
        ("cache", cache),
    ]);
    (fields, key_bytes(), certificates()).prop_map(|(mut fields, client_secret_ref, ca_certificate_ref)| {
        fields["clientSecretRef"] = json!({"name": "replaced"});
        Introspection { client_secret_ref, ca_certificate_ref, ..valid(fields) }
    })
}

fn authentication() -> impl Strategy<Value = Authentication> {
    let api_key =
        object([("from", list(credential())), ("forward", any::<bool>().prop_map(Into::into).boxed())]);
    let scope = object([("namespaces!", list(text_of("[a-z]{1,8}")))]);
    let require = prop::sample::select(vec![Require::Any, Require::All, Require::Optional]);
    let others = (option::of(jwt()), option::of(basic()), option::of(digest()), option::of(ext_auth()));
    // Only tokens have scopes.
    let scopes = list(text_of("[a-z]{1,4}( [a-z]{1,4}){0,2}"));
    let needs = vec![Need::ApiKey(None), Need::Password, Need::Token, Need::TokenOrSession, Need::Service];
    let needs = vec(prop::sample::select(needs), 0..3);
    let combination = needs.prop_map(|needs| Combination { needs, scopes: Vec::new() });
    let combinations = vec(combination, 0..3);
    let servers = (option::of(oidc()), option::of(introspection()), scopes, combinations);
    (require, option::of(scope), api_key, others, servers).prop_map(
        |(
            require,
            consumers,
            api_key,
            (jwt, basic, digest, ext_auth),
            (oidc, introspection, scopes, combinations),
        )| {
            let has_tokens = jwt.is_some() || oidc.is_some() || introspection.is_some();
            Authentication {
                require,
                consumers: consumers.map(valid),
                jwt,
                api_key: Some(valid(api_key)),
                basic,
                digest,
                ext_auth,
                oidc: oidc.map(Arc::new),
                introspection: introspection.map(Arc::new),
                required_scopes: if has_tokens { valid(scopes) } else { Entries::default() },
                combinations,
            }
        },
    )
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
    let ids = (id(), vec(id(), 0..3));
    let others = (any::<bool>(), vec(external_auth().boxed(), 0..3), any::<bool>());
    (ids, option::of(boxed()), access, parts, others).prop_map(
        |(
            (id, inherits),
            refuses,
            ip_access,
            (cors, authentication, authorization),
            (forward_overrides, filters, satisfies_any),
        )| {
            Arc::new(Security {
                id,
                refuses,
                ip_access,
                cors,
                authentication,
                authorization,
                forward_overrides,
                inherits,
                filters,
                satisfies_any,
            })
        },
    )
}

fn external_auth() -> impl Strategy<Value = ExternalAuth> {
    let names = || {
        let name = text_of("x-[a-z]{1,8}");
        vec(name, 0..3).prop_map(|names| Entries::new(names.into_iter().map(valid).collect()).unwrap())
    };
    let http = (option::of(text_of("(/[a-z]{1,4}){1,3}").prop_map(valid)), names())
        .prop_map(|(path, response_headers)| ExternalAuthProtocol::Http { path, response_headers });
    let protocol = prop_oneof![http, Just(ExternalAuthProtocol::Grpc)];
    (key(), protocol, names(), any::<u32>()).prop_map(|(upstream, protocol, request_headers, body)| {
        ExternalAuth { upstream, protocol, request_headers, body }
    })
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
        ("statusCode", number(400..=599)),
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
    (id(), limits, concurrency, any::<bool>(), option::of(shared()), addresses()).prop_map(
        |(id, limits, concurrency, headers, shared, exempt)| {
            let (limits, concurrency) = (named(limits), named(concurrency));
            let exempt = Entries::new(exempt.to_vec()).unwrap();
            Arc::new(RateLimits { id, limits, concurrency, headers, shared, exempt })
        },
    )
}

pub(super) fn subscriptions() -> impl Strategy<Value = Arc<Subscriptions>> {
    let unit = prop_oneof![
        object([("requests!", number(1..=1_000_000_000)), ("calendar!", one_of(&["Hour", "Month"]))]),
        object([("bytes!", one_of(&["1", "10Gi"])), ("period!", one_of(&["1m", "720h"]))]),
    ];
    let quota = unit.prop_map(|mut quota| {
        quota["name"] = json!("a");
        valid(quota)
    });
    let plan = (rate_limits(), vec(quota, 0..3), any::<bool>());
    let plan = plan.prop_map(|(limits, quotas, x_headers)| Plan {
        limits: RateLimits::clone(&limits),
        quotas,
        x_headers,
    });
    let state = prop::sample::select(vec![
        SubscriptionState::Active,
        SubscriptionState::Pending,
        SubscriptionState::Suspended,
        SubscriptionState::Invalid,
    ]);
    let subscription =
        (id(), id(), state).prop_map(|(id, consumer, state)| Subscription { id, consumer, plan: 0, state });
    (id(), any::<bool>(), vec(plan, 1..3), vec(subscription, 0..3)).prop_map(
        |(id, required, plans, subscriptions)| Arc::new(Subscriptions { id, required, plans, subscriptions }),
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
    let terms = (any::<u32>(), option::of(any::<u64>()), any::<bool>());
    let terms = vec(terms.prop_map(|(key, expires, revoked)| KeyTerms { key, expires, revoked }), 0..2);
    (id(), boxed(), texts(), keys, vec(token, 0..3), texts(), any::<bool>(), terms).prop_map(
        |(id, username, groups, keys, tokens, users, refused, terms)| {
            Arc::new(Consumer { id, username, groups, keys, tokens, users, refused, terms })
        },
    )
}
