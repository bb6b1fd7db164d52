//! Tests of RateLimitPolicies.

use std::time::Duration;

use sluicegate_model::feature::{LimitKey, Window};
use sluicegate_model::policy::Shared;
use sluicegate_model::value::{ClaimName, HeaderName, Number};

use super::{A, assert_problems, limits_of, object, policy, secret, shop, translated};

/// A SecurityPolicy that authenticates callers by a token.
fn asking() -> String {
    policy(
        "authentication: {jwt: {providers: [{name: acme, issuer: \"https://acme.test\", \
         keys: {remote: {url: \"https://acme.test/keys\"}}}]}}",
    )
}

fn limiting(limits: &str) -> String {
    object("RateLimitPolicy", "l", &format!("targetRefs: [{A}], limits: [{limits}]"))
}

#[test]
fn absent_fields_of_rate_limits_have_their_defaults() {
    let text = limiting(
        "{name: plain, requests: 100, per: 1m}, \
         {name: full, requests: 10, per: 1h30m, burst: 5, algorithm: TokenBucket, groups: [gold], dryRun: true, \
          key: [{type: Address}, {type: Address, ipv6PrefixLength: 48}, {type: Header, name: X-Tenant}, \
                {type: Claim, name: sub}, {type: Consumer}, {type: Route}]}, \
         {name: sliding, requests: 1, per: 720h, algorithm: SlidingWindow}",
    );
    let (translation, problems) = translated(&[&[shop(), asking(), text].concat()]);
    assert_problems(&problems, &[]);
    let limits = limits_of(&translation.config);
    assert!(limits.headers);
    let [plain, full, sliding] = &limits.limits[..] else { panic!("{limits:?}") };
    assert_eq!((plain.requests.get(), plain.per.get()), (100, Duration::from_secs(60)));
    assert_eq!(
        (plain.window(), plain.key.len(), plain.dry_run),
        (Window::TokenBucket { burst: 100 }, 0, false)
    );
    assert_eq!((full.window(), full.dry_run), (Window::TokenBucket { burst: 5 }, true));
    assert_eq!(
        full.key[..],
        [
            LimitKey::Address { ipv6_prefix: Number::of(64) },
            LimitKey::Address { ipv6_prefix: Number::of(48) },
            LimitKey::Header(HeaderName::new("x-tenant").unwrap()),
            LimitKey::Claim(ClaimName::new("sub").unwrap()),
            LimitKey::Consumer,
            LimitKey::Route,
        ]
    );
    assert_eq!((sliding.window(), sliding.per.get()), (Window::Sliding, Duration::from_hours(720)));
}

#[test]
fn limits_that_need_a_caller_identity_are_reported_on_routes_without_authentication() {
    let keys = policy("authentication: {apiKey: {}}");
    let service = policy("authentication: {extAuth: {url: \"http://auth.test/\"}}");
    let none = String::new();
    let (groups, consumer, claim) =
        ("groups: [gold]", "key: [{type: Consumer}]", "key: [{type: Claim, name: sub}]");
    for (limit, security, told) in [
        (
            groups,
            &none,
            "limits with groups apply to no caller on Ingress default/a /, where no SecurityPolicy authenticates callers",
        ),
        (groups, &service, "limits with groups apply to no caller"),
        (consumer, &none, "counts callers by client IP instead of by Consumer"),
        (claim, &none, "counts all callers together instead of by claim"),
        (
            claim,
            &keys,
            "counts all callers together instead of by claim on Ingress default/a /, where no SecurityPolicy accepts tokens",
        ),
        (groups, &keys, ""),
        (consumer, &keys, ""),
        (consumer, &asking(), ""),
        (claim, &asking(), ""),
    ] {
        let limits = [
            limiting(&format!("{{name: x, requests: 1, per: 1s, {limit}}}")),
            concurrency(&format!("{{name: x, requests: 1, {limit}}}")),
        ];
        for limits in limits {
            let (_, problems) = translated(&[&[shop(), security.clone(), limits].concat()]);
            let expected = (!told.is_empty()).then(|| format!("RateLimitPolicy default/l: spec: {told}"));
            assert_problems(&problems, &expected.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}

#[test]
fn invalid_limit_has_no_effect_and_other_limits_apply() {
    let valid = "{name: valid, requests: 1, per: 1s}";
    for (limit, told) in [
        ("name: a, requests: 0, per: 1s", "spec.limits[1].requests: 0 is not between 1 and 1000000"),
        ("name: a, requests: 1000001, per: 1s", "spec.limits[1].requests"),
        ("name: a, requests: 1, per: 0s", "spec.limits[1].per: \"0s\" is not between 1ms and 720h"),
        ("name: a, requests: 1, per: 721h", "spec.limits[1].per"),
        ("name: a, requests: 1, per: minute", "spec.limits[1].per: \"minute\" is not a duration"),
        (
            "name: a, requests: 1, per: 60",
            "spec.limits[1].per: is a number without a unit: write 60s for seconds",
        ),
        ("name: a, requests: 1, per: 1s, burst: 0", "spec.limits[1].burst"),
        (
            "name: a, requests: 1, per: 1s, burst: 2, algorithm: SlidingWindow",
            "spec.limits[1].burst: is only for algorithm TokenBucket",
        ),
        ("name: a, requests: 1, per: 1s, key: []", "spec.limits[1].key: is empty"),
        ("name: a, requests: 1, per: 1s, groups: []", "spec.limits[1].groups: is empty"),
        ("name: a, requests: 1, per: 1s, key: [{type: Header}]", "spec.limits[1].key[0]: name is missing"),
        (
            "name: a, requests: 1, per: 1s, key: [{type: Consumer, name: x}]",
            "spec.limits[1].key[0]: name is only for type Header",
        ),
        (
            "name: a, requests: 1, per: 1s, key: [{type: Address, ipv6PrefixLength: 0}]",
            "spec.limits[1].key[0].ipv6PrefixLength: 0 is not between 1 and 128",
        ),
        (
            "name: a, requests: 1, per: 1s, key: [{type: Consumer, ipv6PrefixLength: 64}]",
            "spec.limits[1].key[0]: ipv6PrefixLength is only for type Address",
        ),
        ("name: valid, requests: 1, per: 1s", "spec.limits[1].name: \"valid\" is the name of two limits"),
        ("name: A, requests: 1, per: 1s", "spec.limits[1].name: \"A\" has upper-case letters"),
        // Errors that make the whole object unreadable.
        ("name: a, requests: many, per: 1s", "spec.limits[1].requests: must be a number, but is \"many\""),
        ("requests: 1, per: 1s", "spec.limits[1].name: is missing"),
        (
            "name: a, requests: 1, per: 1s, algorithm: Leaky",
            "spec.limits[1].algorithm: \"Leaky\" is unknown: write TokenBucket or SlidingWindow",
        ),
    ] {
        let (translation, problems) =
            translated(&[&[shop(), limiting(&format!("{valid}, {{{limit}}}"))].concat()]);
        assert_problems(&problems, &[told]);
        let limits = limits_of(&translation.config);
        let names: Vec<&str> = limits.limits.iter().map(|limit| &*limit.name).collect();
        assert_eq!(names, ["valid"], "{limit}");
        assert!(!translation.policy_statuses[0].reason.is_accepted());
    }
}

fn concurrency(limits: &str) -> String {
    object("RateLimitPolicy", "l", &format!("targetRefs: [{A}], concurrency: [{limits}]"))
}

#[test]
fn concurrency_limits_apply_with_or_without_rate_limits() {
    let text = concurrency(
        "{name: plain, requests: 5}, {name: full, requests: 1000000, key: [{type: Consumer}], groups: [gold], dryRun: true}",
    );
    let (translation, problems) = translated(&[&[shop(), asking(), text].concat()]);
    assert_problems(&problems, &[]);
    let limits = limits_of(&translation.config);
    let [plain, full] = &limits.concurrency[..] else { panic!("{limits:?}") };
    assert_eq!((limits.limits.len(), plain.requests.get(), plain.key.len(), plain.dry_run), (0, 5, 0, false));
    assert_eq!(
        (full.requests.get(), &full.key[..], full.dry_run),
        (1_000_000, &[LimitKey::Consumer][..], true)
    );
    let valid = "{name: valid, requests: 1}";
    for (limit, told) in [
        ("name: a, requests: 0", "spec.concurrency[1].requests: 0 is not between 1 and 1000000"),
        ("name: a, requests: 1, key: []", "spec.concurrency[1].key: is empty"),
        ("name: a, requests: 1, groups: []", "spec.concurrency[1].groups: is empty"),
        ("name: A, requests: 1", "spec.concurrency[1].name: \"A\" has upper-case letters"),
        ("name: valid, requests: 1", "spec.concurrency[1].name: \"valid\" is the name of two limits"),
        ("name: a, requests: 1, per: 1s", "spec.concurrency[1].per: is unknown"),
        ("name: a, requests: 1, burst: 1", "spec.concurrency[1].burst: is unknown"),
        ("name: a, requests: many", "spec.concurrency[1].requests: must be a number"),
    ] {
        let (translation, problems) =
            translated(&[&[shop(), concurrency(&format!("{valid}, {{{limit}}}"))].concat()]);
        assert_problems(&problems, &[told]);
        assert_eq!(&*limits_of(&translation.config).concurrency[0].name, "valid");
        assert!(!translation.policy_statuses[0].reason.is_accepted());
    }
    for (spec, told) in [
        ("", "spec: limits nothing"),
        (
            ", concurrency: [{name: a, requests: 1}], shared: {redis: {address: \"a:1\"}}",
            "spec.shared: has no effect without limits",
        ),
        (
            ", limits: [{name: a, requests: 1, per: 1s}], concurrency: [{name: a, requests: 1}]",
            "spec.concurrency[0].name: \"a\" is the name of two limits",
        ),
        (", concurrency: []", "spec.concurrency: is empty"),
    ] {
        let text = object("RateLimitPolicy", "l", &format!("targetRefs: [{A}]{spec}"));
        let (_, problems) = translated(&[&[shop(), text].concat()]);
        assert_problems(&problems, &[told]);
    }
}

#[test]
fn rate_limit_policy_without_a_valid_limit_is_reported_and_has_no_effect() {
    let (translation, problems) =
        translated(&[&[shop(), limiting("{name: a, requests: 0, per: 1s}")].concat()]);
    assert_eq!(problems.len(), 1);
    assert!(translation.config.rules().all(|route| route.rate_limits.is_none()));
    let (_, problems) = translated(&[&[shop(), limiting("")].concat()]);
    assert_problems(&problems, &["spec.limits: is empty"]);
}

/// The shared settings of a policy with this `redis` and these Secrets, the problems, and the status of the policy.
fn shared(redis: &str, secrets: &str) -> (Shared, Vec<String>, String) {
    let spec = format!(
        "targetRefs: [{A}], limits: [{{name: a, requests: 1, per: 1s}}], shared: {{redis: {{{redis}}}}}"
    );
    let text = [shop(), object("RateLimitPolicy", "l", &spec), secrets.to_owned()].concat();
    let (translation, problems) = translated(&[&text]);
    let limits = limits_of(&translation.config);
    assert_eq!(limits.limits.len(), 1, "it limits whatever it is shared through");
    let standing = &translation.policy_statuses[0];
    let standing = format!("{}: {}", standing.reason.as_str(), standing.message);
    (limits.shared.clone().expect("it is to be shared"), problems, standing)
}

#[test]
fn absent_fields_of_redis_settings_have_their_defaults() {
    let (plain, problems, standing) = shared("address: \"valkey.default.svc:6379\"", "");
    assert_problems(&problems, &[]);
    assert_eq!(standing, "Accepted: ");
    let Shared::Redis(plain) = plain else { panic!("{plain:?}") };
    assert_eq!(
        (&*plain.address, &*plain.prefix, plain.database.get()),
        ("valkey.default.svc:6379", "sluicegate", 0)
    );
    assert_eq!(
        (plain.interval.get(), plain.timeout.get()),
        (Duration::from_millis(20), Duration::from_millis(50))
    );
    assert!(plain.tls.is_none() && plain.username.is_none() && plain.password.is_none());

    let authority = sluicegate_testkit::tls::Authority::of_process().pem();
    let full = "address: \"[::1]:1\", username: gate, passwordSecretRef: {name: valkey}, database: 3, prefix: a/b, \
                interval: 5ms, timeout: 1s, tls: {serverName: valkey.test, caCertificateRef: {name: valkey}}";
    let secrets = secret("valkey", &format!("password: \"of-valkey\\n\", ca.crt: {authority:?}"));
    let (full, problems, _) = shared(full, &secrets);
    assert_problems(&problems, &[]);
    let Shared::Redis(full) = full else { panic!("{full:?}") };
    assert_eq!((full.username.as_deref(), full.password.as_deref()), (Some("gate"), Some(&b"of-valkey"[..])));
    assert_eq!((full.database.get(), &*full.prefix), (3, "a/b"));
    assert_eq!((full.interval.get(), full.timeout.get()), (Duration::from_millis(5), Duration::from_secs(1)));
    let tls = full.tls.as_ref().unwrap();
    assert_eq!((&*tls.server_name, tls.authorities.len()), ("valkey.test", 1));
    let (own_name, problems, _) = shared("address: \"valkey.test:1\", tls: {}", "");
    assert_problems(&problems, &[]);
    let Shared::Redis(own_name) = own_name else { panic!("{own_name:?}") };
    assert_eq!(&*own_name.tls.as_ref().unwrap().server_name, "valkey.test");
}

#[test]
fn invalid_redis_settings_are_reported_and_rate_limits_apply_locally() {
    let secrets = secret("valkey", "empty: \"\\n\", password: x");
    let at = "address: \"valkey:6379\"";
    for (redis, told) in [
        ("address: valkey".to_owned(), "spec.shared.redis.address: \"valkey\" is not a host with a port"),
        ("address: \"valkey:0\"".to_owned(), "address: \"valkey:0\" has no port from 1 to 65535"),
        (
            "address: \"redis://valkey:1\"".to_owned(),
            "spec.shared.redis.address: \"redis://valkey:1\" is a URL: write only the host and the port",
        ),
        ("address: \"[valkey]:1\"".to_owned(), "spec.shared.redis.address"),
        (format!("{at}, username: gate"), "spec.shared.redis.username: has no password"),
        (format!("{at}, database: -1"), "spec.shared.redis.database: -1 is not between 0 and 65535"),
        (format!("{at}, prefix: \"a b\""), "spec.shared.redis.prefix: \"a b\" is invalid: write 1 to 64"),
        (format!("{at}, interval: 1ms"), "spec.shared.redis.interval: \"1ms\" is not between 5ms and 1s"),
        (format!("{at}, timeout: 6s"), "spec.shared.redis.timeout: \"6s\" is not between 5ms and 5s"),
        (
            format!("{at}, passwordSecretRef: {{name: none}}"),
            "passwordSecretRef: Secret default/none does not exist; each data plane counts by itself",
        ),
        (
            format!("{at}, passwordSecretRef: {{name: valkey, key: none}}"),
            "passwordSecretRef: Secret default/valkey has no data[none]",
        ),
        (
            format!("{at}, passwordSecretRef: {{name: valkey, key: empty}}"),
            "passwordSecretRef: Secret default/valkey has an empty data[empty]",
        ),
        (
            format!("{at}, tls: {{caCertificateRef: {{name: valkey, key: password}}}}"),
            "tls.caCertificateRef: Secret default/valkey",
        ),
        // Errors that make the whole object unreadable.
        (format!("{at}, adress: x"), "spec.shared.redis.adress"),
        ("prefix: x".to_owned(), "spec.shared.redis.address: is missing"),
    ] {
        let (shared, problems, standing) = shared(&redis, &secrets);
        assert!(matches!(shared, Shared::Unusable(_)), "{redis}: {shared:?}");
        assert_problems(&problems, &[told]);
        assert!(standing.starts_with("Invalid: spec.shared"), "{standing}");
    }
}
