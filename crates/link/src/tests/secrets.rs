//! Tests that no output shows confidential values.

use std::sync::Arc;

use sluicegate_model::feature::authentication::jwt::{Provider, ProviderKeys};
use sluicegate_model::feature::{Authentication, Basic, Introspection, Jwt, Oidc};
use sluicegate_model::policy::*;
use sluicegate_model::value::secret::{CookieKeys, FromSecret, KeyBytes};
use sluicegate_model::value::{Entries, Realm};

use serde_json::json;

use super::traffic::valid;
use sluicegate_model::{Config, ObjectId, PathPattern, Rule, UpstreamKey};

use crate::cut::cut;
use crate::digest::Digest;
use crate::messages::ResourceChange;
use crate::resource::Kind;
use crate::store::Store;

const SECRET: [u8; 32] = *b"what-nobody-may-see-in-any-dump!";

fn config() -> Config {
    let id = |name: &str| ObjectId { kind: "Object", namespace: "default".into(), name: name.into() };
    let provider =
        |name: &str, keys| Provider { keys, ..valid(json!({"name": name, "keys": {"inline": "replaced"}})) };
    let secret = || FromSecret::Value(KeyBytes::new(SECRET).unwrap());
    let providers = vec![
        provider("one", ProviderKeys::Shared(secret())),
        provider("two", ProviderKeys::Secret(secret())),
    ];
    let jwt = Jwt { providers: Entries::new(providers).unwrap(), from: Entries::default(), forward: false };
    let hash = String::from_utf8_lossy(&SECRET);
    let users = vec![("user".into(), (&*hash).into())];
    let realm = Realm::default();
    let basic = Basic { secret_ref: FromSecret::Value(users), realm, forward: false, without_charset: false };
    let key = || KeyBytes::new(SECRET).unwrap();
    let client = json!({
        "issuer": "https://login.example", "clientId": "shop", "cookieSecretRef": {"name": "replaced"},
    });
    let oidc = Oidc {
        client_secret_ref: Some(secret()),
        cookie_secret_ref: FromSecret::Value(CookieKeys::new(vec![key()]).unwrap()),
        ..valid(client)
    };
    let server =
        json!({"url": "https://login.example", "clientId": "shop", "clientSecretRef": {"name": "replaced"}});
    let introspection = Introspection { client_secret_ref: secret(), ..valid(server) };
    let authentication = Authentication {
        jwt: Some(jwt),
        basic: Some(basic),
        oidc: Some(Arc::new(oidc)),
        introspection: Some(Arc::new(introspection)),
        ..Authentication::default()
    };
    let security = Security {
        id: id("security"),
        refuses: None,
        ip_access: sluicegate_model::feature::IpAccess::default(),
        cors: None,
        authentication: Some(authentication),
        authorization: None,
        forward_overrides: false,
        inherits: Vec::new(),
        filters: Vec::new(),
        satisfies_any: false,
    };
    let redis = Redis {
        address: valid("redis:6379".into()),
        username: None,
        password: Some(SECRET.into()),
        tls: None,
        database: valid(0.into()),
        prefix: valid("shop".into()),
        interval: valid("20ms".into()),
        timeout: valid("50ms".into()),
    };
    let limits = RateLimits {
        id: id("limits"),
        limits: vec![],
        concurrency: vec![],
        headers: true,
        shared: Some(Shared::Redis(Arc::new(redis))),
        exempt: Entries::default(),
    };
    let consumer = Consumer {
        id: id("consumer"),
        username: "alice".into(),
        groups: vec![],
        keys: vec![KeyHash(SECRET)],
        tokens: vec![],
        users: vec![],
        refused: false,
        terms: vec![],
    };
    let route = Rule::new(id("route"), PathPattern::Prefix("/".into()), UpstreamKey::new("a", "b", "80"));
    Config {
        default_rule: Some(Rule {
            security: Some(Arc::new(security)),
            rate_limits: Some(Arc::new(limits)),
            ..route
        }),
        consumers: vec![Arc::new(consumer)],
        ..Config::default()
    }
}

/// Asserts that the output hides the secret as text, as the numbers of `Debug`, and as hexadecimal digits.
fn assert_hides_it(shown: &str, what: &str) {
    let numbers = SECRET.map(|byte| byte.to_string());
    let hex: String = SECRET.iter().map(|byte| format!("{byte:02x}")).collect();
    let forms = [String::from_utf8_lossy(&SECRET).into_owned(), numbers.join(", "), numbers.join(","), hex];
    for form in forms {
        let begin = &form[..form.len() / 4];
        assert!(!shown.contains(begin), "{what}: {shown}");
    }
}

#[test]
fn debug_output_and_dump_of_a_configuration_hide_secrets() {
    let config = config();
    assert_hides_it(&format!("{config:?}"), "Debug");
    assert_hides_it(&serde_json::to_string(&config).unwrap(), "the dump");
    assert_hides_it(&serde_json::to_value(&config).unwrap().to_string(), "the dump");
}

#[test]
fn debug_output_and_errors_of_link_messages_hide_secrets() {
    let mut seen = 0;
    for (name, body) in cut(&config()) {
        if !matches!(name.kind(), Some(Kind::Security | Kind::RateLimits | Kind::Consumer)) {
            continue;
        }
        seen += 1;
        assert!(body.windows(SECRET.len()).any(|bytes| bytes == SECRET), "{name} has it");
        let change = ResourceChange { kind: name.kind, name: name.name.clone(), body: Some(body.clone()) };
        let shown = format!("{change:?}");
        assert!(shown.contains("(confidential)"), "{shown}");
        assert_hides_it(&shown, "Debug");
        // The log shows the name of the resource and the reason of a rejection.
        assert_hides_it(&name.to_string(), "the name");
        let refused = |bytes: bytes::Bytes| {
            let name = match name.kind().is_some_and(Kind::is_shared) {
                true => crate::resource::Name { name: Digest::of(&bytes).into_bytes(), ..name.clone() },
                false => name.clone(),
            };
            let refusal = Store::default().refusal(&name, bytes);
            assert_hides_it(
                &refusal.map(|refusal| format!("{refusal} {refusal:?}")).unwrap_or_default(),
                "a refusal",
            );
        };
        for end in 0..body.len() {
            refused(body.slice(..end));
            // Bytes of a wrong type.
            let mut other = body.to_vec();
            for byte in [0x1b, 0x3b, 0x5b, 0x7b, 0x80, 0xa0, 0xf6] {
                other[end] = byte;
                refused(other.clone().into());
            }
        }
    }
    assert_eq!(seen, 3);
}
