//! Policies: authentication, authorization, limits and traffic features, and attempts to bypass them.
//!
//! | module | contents |
//! |---|---|
//! | `tokens` | JWT: valid and forged tokens, withdrawn keys |
//! | `keys` | API keys, passwords, Consumers, identity headers for endpoints |
//! | `access` | addresses, origins, rules, path tricks |
//! | `published` | keys that issuers publish, and servers that publish malformed keys |
//! | `digests` | Digest authentication |
//! | `oidc` | logins of browsers, and forged logins and sessions |
//! | `introspection` | tokens that an authorization server checks |
//! | `external` | external authorization services, and services that misbehave |
//! | `backends` | rules with several backends, and the features of a backend |
//! | `bandwidth` | the bandwidth of responses |
//! | `cache` | the response cache, which never leaks a response |
//! | `health` | health checks, and endpoints with failing responses |
//! | `traffic` | timeouts, retries, headers, rewrites, splits, mirrors, faults |
//! | `templates` | rewrites, headers, responses and hashes with variables of nginx |
//! | `retries` | the limit on the retries at a Service |
//! | `error_pages` | responses of a Service in place of errors |
//! | `ingress_nginx` | features that only annotations of ingress-nginx set |
//! | `sessions` | session affinity by cookies and headers, with timeouts and weights |
//! | `limits`, `concurrency` | rate limits and concurrency limits |
//! | `shared`, `quotas` | rate limits and quotas that data planes share |

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod access;
mod backends;
mod bandwidth;
mod cache;
mod concurrency;
mod digests;
mod error_pages;
mod external;
mod health;
mod ingress_nginx;
mod introspection;
mod keys;
mod limits;
mod oidc;
mod published;
mod quotas;
mod retries;
mod sessions;
mod shared;
mod templates;
mod tokens;
mod traffic;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sluicegate_model::feature::authentication::jwt::{Provider, ProviderKeys};
use sluicegate_model::feature::{Authentication, Basic, Credential, IpAccess, Jwt, Require};
use sluicegate_model::policy::{Consumer, KeyHash, RateLimits, Security};
use sluicegate_model::value::secret::{CaCertificates, FromSecret, KeyBytes, Passwords};
use sluicegate_model::value::{Entries, Realm};
use sluicegate_model::{Config, ObjectId, VirtualHost};
use sluicegate_proxy::failure::Denial;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Response;
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::stream::Transport;

type TestResult = anyhow::Result<()>;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// A gateway with this policy on its only route, and its backend.
async fn guarded(security: Security) -> anyhow::Result<(Backend, Gateway)> {
    with(|config| set_security(config, Some(security))).await
}

async fn with(change: impl FnOnce(&mut Config)) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::ok()).await?;
    let mut builder = Gateway::builder().backends([&backend]);
    change(builder.config_mut());
    Ok((backend, builder.start().await?))
}

/// Changes every route.
fn routes(config: &mut Config, change: impl Fn(&mut sluicegate_model::Rule)) {
    for host in &mut config.hosts {
        let VirtualHost { rules, .. } = Arc::make_mut(host);
        rules.iter_mut().for_each(&change);
    }
}

fn set_security(config: &mut Config, security: Option<Security>) {
    let security = security.map(Arc::new);
    routes(config, |route| route.security.clone_from(&security));
}

fn set_limits(config: &mut Config, limits: RateLimits) {
    let limits = Arc::new(limits);
    routes(config, |route| route.rate_limits = Some(limits.clone()));
}

fn id(kind: &'static str, name: &str) -> ObjectId {
    ObjectId { kind, namespace: "default".into(), name: name.into() }
}

/// Parses a value with the field names of a policy.
fn written<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the fields are valid")
}

/// A policy without any restriction.
fn open() -> Security {
    Security {
        id: id("SecurityPolicy", "shop"),
        refuses: None,
        ip_access: IpAccess::default(),
        cors: None,
        authentication: None,
        authorization: None,
        forward_overrides: false,
        inherits: Vec::new(),
        filters: Vec::new(),
        satisfies_any: false,
    }
}

/// A policy that requires authentication.
fn asking(authentication: Authentication) -> Security {
    Security { authentication: Some(authentication), ..open() }
}

/// The methods of both.
fn either(one: Authentication, other: Authentication) -> Authentication {
    Authentication {
        jwt: one.jwt.or(other.jwt),
        api_key: one.api_key.or(other.api_key),
        basic: one.basic.or(other.basic),
        ext_auth: one.ext_auth.or(other.ext_auth),
        digest: one.digest.or(other.digest),
        oidc: one.oidc.or(other.oidc),
        introspection: one.introspection.or(other.introspection),
        ..Authentication::default()
    }
}

/// The methods of both, which must all succeed.
fn all(one: Authentication, other: Authentication) -> Authentication {
    Authentication { require: Require::All, ..either(one, other) }
}

fn bearer() -> Credential {
    written(json!({"header": {"name": "authorization", "prefix": "Bearer "}}))
}

fn provider(keys: ProviderKeys) -> Provider {
    let fields = json!({
        "name": "acme", "issuer": "https://acme.example", "audiences": ["shop"], "clockSkew": "0s",
        "keys": {"inline": "replaced"}, "claimToHeaders": [{"claim": "sub", "header": "X-User"}],
    });
    Provider { keys, ..written(fields) }
}

/// A secret that the issuer shares.
fn shared(secret: &[u8]) -> ProviderKeys {
    ProviderKeys::Shared(FromSecret::Value(KeyBytes::new(secret).unwrap()))
}

fn jwt_of(providers: Vec<Provider>, from: Vec<Credential>, forward: bool) -> Authentication {
    let (providers, from) = (Entries::new(providers).unwrap(), Entries::new(from).unwrap());
    Authentication { jwt: Some(Jwt { providers, from, forward }), ..Authentication::default() }
}

fn jwt(provider: Provider) -> Authentication {
    jwt_of(vec![provider], vec![bearer()], true)
}

fn shared_jwt() -> Authentication {
    jwt(provider(shared(SECRET)))
}

fn api_key(name: &str) -> Authentication {
    written(json!({"apiKey": {"from": [{"header": {"name": name}}, {"query": "key"}]}}))
}

fn basic_of(users: FromSecret<Passwords>) -> Authentication {
    let realm = Realm::of("shop");
    let basic = Basic { secret_ref: users, realm, forward: false, without_charset: false };
    Authentication { basic: Some(basic), ..Authentication::default() }
}

/// The certificates of a Secret.
fn certificates(of: Vec<rustls_pki_types::CertificateDer<'static>>) -> Option<FromSecret<CaCertificates>> {
    CaCertificates::new(of).map(FromSecret::Value)
}

fn consumer(name: &str, key: &str) -> Consumer {
    let hash = digest::digest(&digest::SHA256, key.as_bytes());
    Consumer {
        id: id("Consumer", name),
        username: name.into(),
        groups: vec!["gold".into(), "eu".into()],
        keys: vec![KeyHash(hash.as_ref().try_into().unwrap())],
        tokens: Vec::new(),
        users: Vec::new(),
        refused: false,
        terms: vec![],
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// The claims of a valid token.
fn claims() -> Value {
    json!({"iss": "https://acme.example", "aud": "shop", "sub": "42", "exp": now() + 600})
}

fn token(header: &Value, claims: &Value, secret: &[u8]) -> String {
    let b64 = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", b64(header), b64(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
}

fn good_token() -> String {
    token(&json!({"alg": "HS256"}), &claims(), SECRET)
}

fn basic(name: &str, password: &str) -> String {
    format!("Authorization: Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// Sends a request on a new connection.
async fn ask(gateway: &Gateway, target: &str, lines: &[&str]) -> anyhow::Result<Response> {
    ask_by(gateway, "GET", target, lines, Transport::Http).await
}

async fn ask_by(
    gateway: &Gateway,
    method: &str,
    target: &str,
    lines: &[&str],
    transport: Transport,
) -> anyhow::Result<Response> {
    let mut client =
        sluicegate_testkit::client::Client::connect_by(gateway.addr_of(transport), transport).await?;
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    Ok(client.request(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")).await?)
}

/// The number of requests that policies denied for this reason.
fn denied(gateway: &Gateway, denial: Denial) -> u64 {
    let policies = gateway.proxy().registry().policies();
    policies.iter().map(|policy| policy.stats.sum(|shard| &shard.denied[denial.index()])).sum()
}
