//! `spec.tls`: certificates, redirects, and certificates of clients.

use std::path::Path;
use std::time::{Duration, SystemTime};

use sluicegate_model::{ClientAuthMode, Config, KeyKind};
use sluicegate_testkit::tls::{Authority, Issued};

use super::{ECHO, assert_lines, assert_problems, backend_to, ingress, rules, served};
use crate::translate::{ObjectName, Translation};
use crate::{Store, TranslateOptions, translate};

fn with_tls(tls: &str) -> String {
    ingress("name: a", &format!("{}, tls: [{tls}]", rules(&["t.test Prefix / echo:80"])))
}

fn issue(names: &[&str]) -> Issued {
    Authority::of_process().issue(names)
}

fn translated(text: &str) -> (Translation, Vec<String>) {
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), text);
    let options = TranslateOptions::default();
    (translate(&store, &options), served(&store, &options).problems)
}

/// The TLS hosts, each as `name: kind of key of each certificate`.
fn hosts(config: &Config) -> Vec<String> {
    let kinds = |certificates: &[std::sync::Arc<sluicegate_model::Certificate>]| {
        certificates.iter().map(|certificate| certificate.key_kind.to_string()).collect::<Vec<_>>().join(" ")
    };
    config.tls.hosts.iter().map(|host| format!("{}: {}", host.host, kinds(&host.certificates))).collect()
}

#[test]
fn host_uses_the_certificate_of_its_ingress() {
    for (tls, names, expected) in [
        (
            "{hosts: [t.test, \"*.u.test\"], secretName: cert}",
            &["t.test", "*.u.test"][..],
            &["t.test: ECDSA", "*.u.test: ECDSA"][..],
        ),
        ("{secretName: cert}", &["t.test", "other.test"], &["t.test: ECDSA"]),
        ("{secretName: cert}", &["*.test"], &["t.test: ECDSA"]),
        ("{secretName: cert}", &["other.test"], &[]),
        ("{hosts: [t.test]}", &[], &["t.test: "]),
        ("{}", &[], &["t.test: "]),
    ] {
        let secret = if names.is_empty() { String::new() } else { issue(names).secret("cert") };
        let (translation, problems) = translated(&format!("{}{ECHO}{secret}", with_tls(tls)));
        assert_lines(&hosts(&translation.config), expected);
        assert_problems(&problems, &[]);
        assert!(translation.config.hosts[0].rules[0].https_only, "{tls}");
    }
}

#[test]
fn certificate_of_an_ingress_for_any_host_is_used_for_the_names_in_the_certificate() {
    let text =
        ingress("name: a", &format!("{}, tls: [{{secretName: cert}}]", rules(&["* Prefix / echo:80"])));
    let secret = issue(&["a.test", "*.b.test"]).secret("cert");
    let (translation, problems) = translated(&format!("{text}{ECHO}{secret}"));
    assert_lines(&hosts(&translation.config), &["a.test: ECDSA", "*.b.test: ECDSA"]);
    assert_problems(&problems, &[]);
    assert!(translation.config.hosts[0].rules[0].https_only);
}

#[test]
fn host_uses_one_certificate_per_key_type_from_the_oldest_ingress() {
    let kind = |kind| {
        Authority::of_process().issue_with(&["t.test"], kind, SystemTime::now() + Duration::from_secs(99))
    };
    let text = with_tls(
        "{hosts: [t.test], secretName: rsa}, {hosts: [t.test], secretName: ec}, {hosts: [t.test], secretName: late}",
    );
    let secrets = [
        kind(KeyKind::Rsa).secret("rsa"),
        kind(KeyKind::Ecdsa).secret("ec"),
        kind(KeyKind::Rsa).secret("late"),
    ]
    .concat();
    let (translation, problems) = translated(&format!("{text}{ECHO}{secrets}"));
    assert_lines(&hosts(&translation.config), &["t.test: ECDSA RSA"]);
    assert_eq!(&*translation.config.tls.hosts[0].certificates[1].source, "Secret default/rsa");
    let expected = "spec.tls[2].secretName: Secret default/late is ignored for host t.test: an older Ingress gives the host Secret default/rsa, which has an RSA key as well";
    assert_problems(&problems, &[expected]);
}

#[test]
fn host_with_an_invalid_tls_secret_uses_the_default_certificate() {
    let text = with_tls("{hosts: [t.test], secretName: cert}");
    let secret =
        |rest: &str| format!("---\n{{apiVersion: v1, kind: Secret, metadata: {{name: cert}}, {rest}}}\n");
    let other = issue(&["t.test"]);
    let tls = |chain: &str, key: &str| {
        Issued { chain_pem: chain.to_owned(), key_pem: key.to_owned(), ..issue(&["t.test"]) }.secret("cert")
    };
    let good = issue(&["t.test"]);
    for (secret, expected) in [
        (
            String::new(),
            vec![
                "Secret default/cert does not exist as a Secret of type kubernetes.io/tls; hosts without another certificate use the default",
            ],
        ),
        (secret("data: {}"), vec!["is of type \"Opaque\", but TLS needs kubernetes.io/tls"]),
        (
            secret("type: kubernetes.io/tls"),
            vec!["data[tls.crt]: is missing", "data[tls.key]: is missing", "has no valid certificate"],
        ),
        (
            tls("junk", &good.key_pem),
            vec!["data[tls.crt]: has no certificate in PEM", "has no valid certificate"],
        ),
        (
            tls(&good.chain_pem, "junk"),
            vec!["data[tls.key]: has no private key in PEM", "has no valid certificate"],
        ),
        (
            tls(
                &good.chain_pem,
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            ),
            vec!["data[tls.key]: is encrypted: remove its passphrase", "has no valid certificate"],
        ),
        (
            tls(&good.chain_pem, &other.key_pem),
            vec!["data[tls.key]: does not belong to the certificate", "has no valid certificate"],
        ),
        (
            tls(&good.chain_pem[..200], &good.key_pem),
            vec!["data[tls.crt]: is not valid PEM: a section has no end", "has no valid certificate"],
        ),
    ] {
        let (translation, problems) = translated(&format!("{text}{ECHO}{secret}"));
        assert_problems(&problems, &expected);
        assert_lines(&hosts(&translation.config), &["t.test: "]);
        for problem in problems {
            assert!(!problem.contains(good.key_pem.lines().nth(1).unwrap()), "{problem}");
        }
    }
}

#[test]
fn expired_or_mismatched_certificate_is_reported_and_served() {
    let text = with_tls("{hosts: [t.test], secretName: cert}");
    let yesterday = SystemTime::now() - Duration::from_secs(24 * 3600);
    let expired = Authority::of_process().issue_with(&["t.test"], KeyKind::Ecdsa, yesterday);
    for (issued, expected) in [
        (expired, "Secret default/cert: data[tls.crt]: expired on 20"),
        (issue(&["x.test"]), "Secret default/cert is not valid for host t.test: clients reject it"),
    ] {
        let (translation, problems) = translated(&format!("{text}{ECHO}{}", issued.secret("cert")));
        assert_problems(&problems, &[expected]);
        assert_lines(&hosts(&translation.config), &["t.test: ECDSA"]);
    }
}

#[test]
fn invalid_tls_secret_leaves_the_last_valid_certificate_in_service() {
    let mut store = Store::default();
    store
        .set_file(Path::new("m.yaml"), &format!("{}{ECHO}", with_tls("{hosts: [t.test], secretName: cert}")));
    let file = Path::new("secret.yaml");
    let (good, other) = (issue(&["t.test"]), issue(&["t.test"]));
    let yesterday = SystemTime::now() - Duration::from_secs(24 * 3600);
    let expired = Authority::of_process().issue_with(&["t.test"], KeyKind::Ecdsa, yesterday);
    store.set_file(file, &good.secret("cert"));
    for broken in [
        Issued { key_pem: other.key_pem.clone(), ..good.clone() },
        Issued { chain_pem: "junk".to_owned(), ..good.clone() },
        Issued { key_pem: String::new(), ..good.clone() },
        expired,
    ] {
        store.set_file(file, &broken.secret("cert"));
        let options = TranslateOptions::default();
        let translation = translate(&store, &options);
        assert_eq!(translation.config.tls.hosts[0].certificates[0].chain, good.certificate.chain);
        let problems = served(&store, &options).problems;
        assert_problems(&problems, &["(the last valid version stays in service)"]);
    }
    store.set_file(file, &other.secret("cert"));
    let translation = translate(&store, &TranslateOptions::default());
    assert_eq!(translation.config.tls.hosts[0].certificates[0].chain, other.certificate.chain);
}

#[test]
fn certificate_may_be_in_string_data_of_a_secret() {
    let issued = issue(&["t.test"]);
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "cert"},
        "stringData": {"tls.crt": issued.chain_pem, "tls.key": issued.key_pem},
    });
    let text = format!("{}{ECHO}---\n{secret}\n", with_tls("{hosts: [t.test], secretName: cert}"));
    let (translation, problems) = translated(&text);
    assert_problems(&problems, &[]);
    assert_lines(&hosts(&translation.config), &["t.test: ECDSA"]);
}

#[test]
fn annotations_and_options_control_the_https_redirect() {
    let tls = "tls: [{hosts: [t.test]}]";
    for (annotations, spec, globally, expected) in [
        ("", tls, true, true),
        ("", tls, false, false),
        ("", "tls: [{hosts: [\"*.test\"]}]", true, true),
        ("", "tls: [{hosts: [u.test]}]", true, false),
        ("", "tls: []", true, false),
        ("sluicegate.dev/ssl-redirect: \"false\"", tls, true, false),
        ("sluicegate.dev/ssl-redirect: \"true\"", tls, false, true),
        ("sluicegate.dev/force-ssl-redirect: \"true\"", "tls: []", false, true),
    ] {
        let spec = format!("{}, {spec}", rules(&["t.test Prefix / echo:80"]));
        let text = ingress(&format!("name: a, annotations: {{{annotations}}}"), &spec);
        let mut store = Store::default();
        store.set_file(Path::new("m.yaml"), &format!("{text}{ECHO}"));
        let options = TranslateOptions { ssl_redirect: globally, ..TranslateOptions::default() };
        let is_redirected = translate(&store, &options).config.hosts[0].rules[0].https_only;
        assert_eq!(is_redirected, expected, "{annotations} {spec} {globally}");
    }
    let text = ingress(
        "name: a, annotations: {sluicegate.dev/ssl-redirect: \"no\"}",
        &rules(&["t.test Prefix / echo:80"]),
    );
    let expected =
        "metadata.annotations[sluicegate.dev/ssl-redirect]: \"no\" is neither \"true\" nor \"false\"";
    assert_problems(&translated(&format!("{text}{ECHO}")).1, &[expected]);
}

fn demanding(annotations: &str) -> String {
    let rules = rules(&["t.test Prefix / echo:80"]);
    ingress(
        &format!("name: a, annotations: {{{annotations}}}"),
        &format!("{rules}, tls: [{{hosts: [t.test]}}]"),
    )
}

fn authorities(kind: &str, name: &str) -> String {
    let object = serde_json::json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let mut object = object.as_object().unwrap().clone();
    let key = if kind == "Secret" { "stringData" } else { "data" };
    object.insert(key.to_owned(), serde_json::json!({"ca.crt": Authority::of_process().pem()}));
    format!("---\n{}\n", serde_json::Value::Object(object))
}

#[test]
fn annotations_require_client_certificates() {
    for (annotations, mode, forward) in [
        ("sluicegate.dev/auth-tls-secret: default/ca", ClientAuthMode::Required, false),
        (
            "sluicegate.dev/auth-tls-secret: ca, sluicegate.dev/auth-tls-verify-client: optional",
            ClientAuthMode::Optional,
            false,
        ),
        (
            "sluicegate.dev/auth-tls-configmap: ca, sluicegate.dev/auth-tls-verify-client: AllowInsecureFallback",
            ClientAuthMode::OptionalNoCa,
            false,
        ),
        (
            "sluicegate.dev/auth-tls-secret: ca, sluicegate.dev/auth-tls-pass-certificate-to-upstream: \"true\"",
            ClientAuthMode::Required,
            true,
        ),
    ] {
        let ca = [authorities("Secret", "ca"), authorities("ConfigMap", "ca")].concat();
        let (translation, problems) = translated(&format!("{}{ECHO}{ca}", demanding(annotations)));
        assert_problems(&problems, &[]);
        let auth = translation.config.tls.hosts[0].client_auth.clone().expect(annotations);
        assert_eq!((auth.mode, auth.forward, auth.roots.len()), (mode, forward, 1));
        let route = &translation.config.hosts[0].rules[0];
        assert_eq!(route.client_auth.as_ref(), Some(&auth));
        assert!(route.https_only);
    }
    let (translation, _) = translated(&format!(
        "{}{ECHO}",
        demanding("sluicegate.dev/auth-tls-secret: ca, sluicegate.dev/auth-tls-verify-client: \"off\"")
    ));
    assert!(translation.config.tls.hosts[0].client_auth.is_none());
}

/// An Ingress of another namespace. Without creation times the order of names decides, so this Ingress counts as
/// younger than the others.
fn of_a_stranger(annotations: &str, spec: &str) -> String {
    ingress(&format!("name: z, namespace: stranger, annotations: {{{annotations}}}"), spec)
}

#[test]
fn newer_ingress_of_another_namespace_cannot_change_the_tls_settings_of_a_host() {
    let kind = |kind, name: &str| {
        Authority::of_process().issue_with(&[name], kind, SystemTime::now() + Duration::from_secs(99))
    };
    let own = kind(KeyKind::Rsa, "t.test").secret("rsa");
    let theirs = kind(KeyKind::Ecdsa, "t.test")
        .secret("theirs")
        .replace("name: theirs", "name: theirs, namespace: stranger");
    let text = [with_tls("{hosts: [t.test], secretName: rsa}"), ECHO.to_owned(), own, theirs].concat();
    let with = |stranger: String| translated(&format!("{text}{stranger}"));

    let (translation, problems) =
        with(of_a_stranger("", "tls: [{hosts: [t.test], secretName: theirs}], rules: [{host: own.test}]"));
    assert_lines(&hosts(&translation.config), &["t.test: RSA"]);
    assert_problems(
        &problems,
        &[
            "Secret stranger/theirs is ignored for host t.test: an older Ingress of namespace default has the host in spec.tls",
        ],
    );

    // The younger Ingress cannot replace the default certificate, even if the older Ingress names no Secret or a
    // missing Secret.
    for own in ["{hosts: [t.test]}", "{hosts: [t.test], secretName: missing}"] {
        let theirs =
            issue(&["t.test"]).secret("theirs").replace("name: theirs", "name: theirs, namespace: stranger");
        let stranger =
            of_a_stranger("", "tls: [{hosts: [t.test], secretName: theirs}], rules: [{host: own.test}]");
        let (translation, _) = translated(&[with_tls(own), ECHO.to_owned(), theirs, stranger].concat());
        assert_lines(&hosts(&translation.config), &["t.test: "]);
    }

    // Hosts without rules are served by the default backend of the older Ingress.
    let default = format!("defaultBackend: {}", backend_to("echo:80"));
    let strangers = of_a_stranger("sluicegate.dev/auth-tls-secret: nothing", &default);
    let (translation, _) = translated(&[ingress("name: a", &default), ECHO.to_owned(), strangers].concat());
    assert!(translation.config.tls.hosts.iter().all(|host| host.client_auth.is_none()));

    let (translation, problems) = with(of_a_stranger(
        "sluicegate.dev/auth-tls-secret: nothing",
        "tls: [{hosts: [t.test]}], rules: [{host: own.test}]",
    ));
    let t_test = translation.config.tls.hosts.iter().find(|host| host.host.to_string() == "t.test").unwrap();
    assert!(t_test.client_auth.is_none());
    assert!(
        translation.config.hosts.iter().flat_map(|host| &host.rules).all(|route| route.client_auth.is_none())
    );
    assert!(
        problems.iter().any(|problem| problem.contains("host t.test belongs to Ingress default/a")),
        "{problems:?}"
    );
}

#[test]
fn redirect_for_a_host_of_another_namespace_requires_a_certificate_for_the_host() {
    let text = ingress("name: a", &rules(&["t.test Prefix / echo:80"]));
    for (hosts, redirects) in
        [("\"*.test\"", false), ("t.test", false), ("t.test], secretName: cert, x: [", true)]
    {
        let secret =
            issue(&["t.test"]).secret("cert").replace("name: cert", "name: cert, namespace: stranger");
        let stranger = of_a_stranger("", &format!("tls: [{{hosts: [{hosts}]}}]"));
        let (translation, _) = translated(&format!("{text}{ECHO}{secret}{stranger}"));
        assert_eq!(translation.config.hosts[0].rules[0].https_only, redirects, "{hosts}");
    }
    // In the same namespace, the TLS entry of an Ingress applies to a host of another Ingress.
    for tls in ["{hosts: [t.test]}", "{hosts: [t.test], secretName: missing}"] {
        let sibling = ingress("name: b", &format!("{}, tls: [{tls}]", rules(&["u.test Prefix / echo:80"])));
        let (translation, _) = translated(&format!("{text}{ECHO}{sibling}"));
        assert!(translation.config.hosts[0].rules[0].https_only, "{tls}");
    }
}

#[test]
fn every_client_is_rejected_if_the_client_ca_is_unusable() {
    for (annotations, objects, expected) in [
        (
            "sluicegate.dev/auth-tls-secret: ca",
            String::new(),
            "Secret default/ca does not exist; every client is rejected",
        ),
        (
            "sluicegate.dev/auth-tls-secret: ca",
            "---\n{apiVersion: v1, kind: Secret, metadata: {name: ca}}\n".to_owned(),
            "Secret default/ca has no certificates in data[ca.crt]; every client is rejected",
        ),
        ("sluicegate.dev/auth-tls-secret: other/ca", String::new(), "is of another namespace"),
        ("sluicegate.dev/auth-tls-secret: A", String::new(), "has upper-case letters"),
        (
            "sluicegate.dev/auth-tls-secret: ca, sluicegate.dev/auth-tls-verify-client: maybe",
            authorities("Secret", "ca"),
            "\"maybe\" is unknown: write AllowValidOnly, optional, AllowInsecureFallback or off; AllowValidOnly is used",
        ),
        (
            "sluicegate.dev/auth-tls-verify-client: AllowValidOnly",
            String::new(),
            "has no effect without sluicegate.dev/auth-tls-secret",
        ),
    ] {
        let (translation, problems) = translated(&format!("{}{ECHO}{objects}", demanding(annotations)));
        assert_problems(&problems, &[expected]);
        let auth = &translation.config.tls.hosts[0].client_auth;
        assert_eq!(auth.is_some(), !expected.starts_with("has no effect"), "{annotations}");
        assert!(auth.as_ref().is_none_or(|auth| auth.mode == ClientAuthMode::Required));
    }
}

#[test]
fn default_certificate_and_ticket_keys_come_from_secrets() {
    let name = |name: &str| Some(ObjectName { namespace: "default".into(), name: name.into() });
    let mut store = Store::default();
    let options = TranslateOptions {
        default_certificate: name("cert"),
        ticket_secret: name("tickets"),
        ..TranslateOptions::default()
    };
    let default = |store: &Store| translate(store, &options).config.tls.default.clone();
    // Each data plane creates its own self-signed certificate, so that all control planes send the same configuration.
    assert!(default(&store).is_empty());
    assert_problems(
        &served(&store, &options).problems,
        &[
            "--default-tls-certificate: Secret default/cert does not exist as a Secret of type kubernetes.io/tls; a self-signed certificate is used",
            "--tls-ticket-secret: Secret default/tickets does not exist; only this process resumes its TLS sessions",
        ],
    );
    let given = issue(&["given.test"]);
    let tickets = format!(
        "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: tickets}}, stringData: {{b: \"{0}\", a: {0}x, c: short}}}}\n",
        "0".repeat(32)
    );
    store.set_file(Path::new("m.yaml"), &format!("{}{tickets}", given.secret("cert")));
    assert_eq!(default(&store)[0].chain, given.certificate.chain);
    let secrets = translate(&store, &options).config.tls.ticket_secrets.clone();
    assert_eq!(secrets.iter().map(|secret| secret.0.len()).collect::<Vec<_>>(), [33, 32]);
    let expected =
        "--tls-ticket-secret: Secret default/tickets: data[c] has 5 bytes, but needs 32; the key is ignored";
    assert_problems(&served(&store, &options).problems, &[expected]);
}

#[test]
fn added_or_removed_tls_secret_updates_the_reported_problems() {
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), &format!("{}{ECHO}", with_tls("{secretName: cert}")));
    let file = Path::new("secret.yaml");
    let broken = "{apiVersion: v1, kind: Secret, metadata: {name: cert}, data: 7}\n";
    for text in [issue(&["t.test"]).secret("cert"), broken.to_owned()] {
        assert!(store.set_file(file, &text).has_routing(), "{text}");
        let problems = served(&store, &TranslateOptions::default()).problems;
        assert!(!problems.iter().any(|problem| problem.contains("does not exist")), "{problems:#?}");
        assert!(store.remove_file(file).has_routing(), "{text}");
    }
}
