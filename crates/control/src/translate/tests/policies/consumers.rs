//! Tests of Consumers, and of the owner of each credential.

use aws_lc_rs::digest::{SHA256, digest};
use sluicegate_model::policy::consumer::SubjectClaim;

use super::{assert_problems, object, policy, secret, shop, translated};

const ALL: &str = "authentication: {apiKey: {}, basic: {secretRef: {name: users}}, \
                   jwt: {providers: [{name: a, keys: {sharedSecretRef: {name: shared}}}]}}";

/// The Secrets that the policy [`ALL`] names.
fn secrets() -> String {
    secret("users", "auth: \"alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"")
        + &secret("shared", "secret: 0123456789abcdef")
}

fn consumer(name: &str, spec: &str) -> String {
    object("Consumer", name, spec)
}

/// A Consumer with the API key under `key` in the Secret `keys`.
fn keyed(name: &str, key: &str) -> String {
    consumer(name, &format!("apiKeys: [{{secretRef: {{name: keys, key: {key}}}}}]"))
}

#[test]
fn consumers_are_published_with_hashed_keys_in_name_order() {
    let alice = consumer(
        "alice",
        "username: Alice, groups: [gold, silver], apiKeys: [{secretRef: {name: keys}}], \
         tokens: [{issuer: \"https://a\", subject: \"42\"}, {clientId: app}], basicUsers: [alice]",
    );
    let keys = secret("keys", "key: \"0123456789abcdef\\n\", other: abcdefghijklmnop");
    let text = [shop(), policy(ALL), secrets(), keys, keyed("bob", "other"), alice].concat();
    let (translation, problems) = translated(&[&text]);
    assert_problems(&problems, &[]);
    let [alice, bob] = &translation.config.consumers[..] else {
        panic!("{:?}", translation.config.consumers)
    };
    assert_eq!((alice.id.to_string(), &*alice.username), ("Consumer default/alice".to_owned(), "Alice"));
    assert_eq!((bob.id.to_string(), &*bob.username), ("Consumer default/bob".to_owned(), "bob"));
    assert_eq!(alice.groups, ["gold".into(), "silver".into()]);
    assert_eq!(alice.keys[0].0, *digest(&SHA256, b"0123456789abcdef").as_ref());
    assert_eq!((alice.tokens[0].claim, &*alice.tokens[0].value), (SubjectClaim::Subject, "42"));
    assert_eq!((alice.tokens[1].claim, &alice.tokens[1].issuer), (SubjectClaim::ClientId, &None));
    assert_eq!(alice.users, ["alice".into()]);
}

#[test]
fn consumers_are_not_published_without_a_policy_that_authenticates() {
    let keys = secret("keys", "key: 0123456789abcdef");
    for spec in
        ["ipAccess: {allow: [10.0.0.0/8]}", "authentication: {apiKey: {}, consumers: {namespaces: [other]}}"]
    {
        let text = [shop(), policy(spec), keys.clone(), keyed("bob", "key")].concat();
        let (translation, problems) = translated(&[&text]);
        assert!(translation.config.consumers.is_empty());
        assert_problems(
            &problems,
            &[
                "Consumer default/bob: spec.apiKeys: is not used: no SecurityPolicy in effect knows this Consumer and accepts API keys",
            ],
        );
    }
}

#[test]
fn credentials_that_no_policy_accepts_are_reported() {
    let text = [
        shop(),
        policy("authentication: {apiKey: {}}"),
        consumer("a", "tokens: [{subject: a}], basicUsers: [a]"),
    ]
    .concat();
    assert_problems(&translated(&[&text]).1, &["spec.tokens: is not used", "spec.basicUsers: is not used"]);
}

#[test]
fn duplicate_credential_belongs_to_the_older_consumer_and_is_reported() {
    let keys = secret("keys", "one: 0123456789abcdef, two: 0123456789abcdef");
    let aged = |text: String, day: u32| {
        text.replace("metadata: {", &format!("metadata: {{creationTimestamp: \"2026-01-0{day}T00:00:00Z\", "))
    };
    let text = [
        shop(),
        policy(ALL),
        secrets(),
        keys,
        aged(keyed("a", "one"), 2),
        aged(keyed("b", "two"), 1),
        aged(consumer("c", "tokens: [{subject: x}], basicUsers: [x]"), 1),
        aged(consumer("d", "tokens: [{subject: x}], basicUsers: [x]"), 2),
    ]
    .concat();
    let (translation, problems) = translated(&[&text]);
    let counts: Vec<_> = translation
        .config
        .consumers
        .iter()
        .map(|one| (one.keys.len(), one.tokens.len(), one.users.len()))
        .collect();
    assert_eq!(counts, [(0, 0, 0), (1, 0, 0), (0, 1, 1), (0, 0, 0)]);
    assert_problems(
        &problems,
        &[
            "Consumer default/a: spec.apiKeys[0]: the key belongs to Consumer default/b (older, or first by name), which keeps it",
            "Consumer default/b: spec: Consumer default/a also has the key of this Consumer",
            "Consumer default/d: spec.tokens[0]: the token of \"x\" belongs to Consumer default/c (older, or first by name)",
            "Consumer default/c: spec: Consumer default/d also has the token of \"x\"",
            "Consumer default/d: spec.basicUsers[0]: the name \"x\" belongs to Consumer default/c (older, or first by name)",
            "Consumer default/c: spec: Consumer default/d also has the name \"x\"",
        ],
    );
    assert!(!problems.concat().contains("0123456789abcdef"), "keys are not shown");
    let invalid = translation.policy_statuses.iter().filter(|standing| !standing.reason.is_accepted());
    let invalid: Vec<_> = invalid.map(|standing| &*standing.object.name).collect();
    assert_eq!(invalid, ["a", "d"]);
}

#[test]
fn equal_user_names_in_two_namespaces_conflict_only_if_a_policy_accepts_both() {
    let other = consumer("a", "basicUsers: [x]").replace("{name: a}", "{name: a, namespace: other}");
    let both = [consumer("b", "basicUsers: [x]"), other].concat();
    for (scope, told) in [
        ("", vec![]),
        (
            "consumers: {namespaces: [default, other]}, ",
            vec![
                "Consumer other/a: spec.basicUsers[0]: the name \"x\" also belongs to Consumer default/b",
                "Consumer default/b: spec: the name \"x\" also belongs to Consumer other/a",
            ],
        ),
        ("consumers: {namespaces: [\"*\"]}, ", vec!["Consumer other/a", "Consumer default/b"]),
    ] {
        let spec = ALL.replacen('{', &format!("{{{scope}"), 1);
        let text = [shop(), policy(&spec), secrets(), both.clone()].concat();
        let (translation, mut problems) = translated(&[&text]);
        problems.retain(|problem| !problem.contains("is not used"));
        assert_problems(&problems, &told);
        assert!(translation.config.consumers.iter().all(|one| one.users.len() == 1), "each keeps it");
    }
}

#[test]
fn invalid_api_key_is_rejected_and_reported() {
    for (data, told) in [
        ("key: short", "has 5 bytes: write at least 8, better 16 or more; the key is rejected"),
        ("key: \"\\n\"", "has 0 bytes"),
        ("key: \"0123456789 abcdef\"", "has spaces or bytes that a header cannot have"),
        ("other: 0123456789abcdef", "Secret default/keys has no data[key]"),
    ] {
        let text = [shop(), policy("authentication: {apiKey: {}}"), secret("keys", data), keyed("a", "key")]
            .concat();
        let (translation, problems) = translated(&[&text]);
        assert_problems(&problems, &[told]);
        assert!(translation.config.consumers[0].keys.is_empty());
    }
    let text = [shop(), policy("authentication: {apiKey: {}}"), keyed("a", "key")].concat();
    assert_problems(&translated(&[&text]).1, &["Secret default/keys does not exist; the key is rejected"]);
    let text =
        [shop(), policy("authentication: {apiKey: {}}"), secret("keys", "key: abcdefgh"), keyed("a", "key")]
            .concat();
    let (translation, problems) = translated(&[&text]);
    assert_problems(&problems, &["has 8 bytes and is easy to guess"]);
    assert_eq!(translation.config.consumers[0].keys.len(), 1);
}

/// Checks the reported problem of a Consumer with this spec, and whether the gateway denies callers with the
/// credentials of the Consumer.
#[track_caller]
fn wrong(spec: &str, told: &str, is_refused: bool) {
    let text = [shop(), policy(ALL), secrets(), consumer("a", spec)].concat();
    let (translation, problems) = translated(&[&text]);
    assert!(problems.iter().any(|problem| problem.contains(told)), "{problems:#?}");
    let is_said =
        problems.iter().any(|problem| problem.contains("requests with its credentials receive 503"));
    let [consumer] = &translation.config.consumers[..] else { panic!("{:?}", translation.config.consumers) };
    assert_eq!((consumer.refused, is_said), (is_refused, is_refused), "{spec}");
    assert!(spec.is_empty() || consumer.users.contains(&"a".into()), "{spec}");
}

#[test]
fn invalid_credential_is_reported_and_other_credentials_stay_valid() {
    wrong("", "spec: has none of apiKeys, tokens and basicUsers", false);
    wrong("basicUsers: [a, \"b:c\"]", "spec.basicUsers[1]", false);
    wrong(
        "basicUsers: [a], tokens: [{issuer: x}]",
        "spec.tokens[0]: must have exactly one of subject and clientId",
        false,
    );
    let both = "basicUsers: [a], tokens: [{subject: x, clientId: app}]";
    wrong(both, "spec.tokens[0]: must have exactly one of subject and clientId", false);
    wrong("basicUsers: [a], tokens: [{subject: \"\"}]", "spec.tokens[0]: has an empty", false);
}

#[test]
fn requests_of_a_consumer_with_an_invalid_spec_are_rejected() {
    wrong("basicUsers: [a], groups: [\"a,b\"]", "spec.groups[0]: \"a,b\" has a comma", true);
    wrong("basicUsers: [a], groups: gold", "spec.groups: must be a list", true);
    wrong("basicUsers: [a], gruops: [gold]", "spec.gruops: is unknown: did you mean groups?", true);
    wrong("basicUsers: [a], username: \"a\\nb\"", "spec.username", true);
    wrong("basicUsers: [a], apiKeys: [{secretRef: {}}]", "spec.apiKeys[0].secretRef.name: is missing", true);
    wrong("basicUsers: [a], tokens: [{subject: 42}]", "spec.tokens[0].subject: must be text", true);
}
