//! What is told of `spec.tls`.

use std::path::Path;

use super::{ECHO, ECHO_80, assert_lines, assert_problems, ingress, rules, serve, served};
use crate::{Store, TranslateOptions};

fn with_tls(tls: &str) -> String {
    ingress("name: a", &format!("{}, tls: [{tls}]", rules(&["t.test Prefix / echo:80"])))
}

fn secret(rest: &str) -> String {
    format!("---\n{{apiVersion: v1, kind: Secret, metadata: {{name: cert}}, {rest}}}\n")
}

#[test]
fn tls_is_told_not_to_be_served_and_the_routes_are_served() {
    for (tls, expected) in [
        ("{hosts: [t.test]}", "host t.test is answered over plain HTTP"),
        ("{hosts: [t.test, u.test]}", "hosts t.test, u.test are answered over plain HTTP"),
        ("{}", "every host of this Ingress is answered over plain HTTP"),
    ] {
        let served = serve(&format!("{}{ECHO}", with_tls(tls)));
        assert_lines(&served.routes, &[&format!("t.test Prefix / -> {ECHO_80}")]);
        let problem = format!("m.yaml:5: Ingress default/a: spec.tls[0]: is not served yet: {expected}");
        assert_problems(&served.problems, &[&problem]);
    }
}

#[test]
fn a_secret_that_is_missing_or_of_another_type_is_told() {
    let text = with_tls("{hosts: [t.test], secretName: cert}");
    for (secret, expected) in [
        (
            String::new(),
            Some("Ingress default/a: spec.tls[0].secretName: Secret default/cert does not exist"),
        ),
        (secret("type: kubernetes.io/tls"), None),
        (
            secret("type: kubernetes.io/dockercfg"),
            Some(
                "Secret default/cert is of type \"kubernetes.io/dockercfg\", and TLS needs kubernetes.io/tls",
            ),
        ),
        (
            secret("data: {}"),
            Some("Secret default/cert is of type \"Opaque\", and TLS needs kubernetes.io/tls"),
        ),
    ] {
        let mut problems = vec!["is not served yet"];
        problems.extend(expected);
        assert_problems(&serve(&format!("{text}{ECHO}{secret}")).problems, &problems);
    }
}

#[test]
fn a_secret_that_comes_or_goes_changes_what_is_told() {
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), &format!("{}{ECHO}", with_tls("{secretName: cert}")));
    let file = Path::new("secret.yaml");
    for text in [secret("type: kubernetes.io/tls"), secret("data: 7")] {
        assert!(store.set_file(file, &text).routing, "{text}");
        let problems = served(&store, &TranslateOptions::default()).problems;
        assert!(!problems.iter().any(|problem| problem.contains("does not exist")), "{problems:#?}");
        assert!(store.remove_file(file).routing, "{text}");
    }
}
