//! Tests of SecurityPolicies with an unreadable name or unreadable targets.

use std::path::Path;

use super::{A, object, policy, security_of, shop};
use crate::store::Store;
use crate::{TranslateOptions, translate};

/// Whether the route of the Ingress `a` is open, and the problems. The source reads `before` before its start is
/// complete, and `after` afterwards.
fn started(before: &[&str], after: &[&str]) -> (bool, Vec<String>) {
    let mut store = Store::default();
    for text in before {
        store.set_file(Path::new("m.yaml"), text);
    }
    store.close_unknown();
    for text in after {
        store.set_file(Path::new("m.yaml"), text);
    }
    let route = translate(&store, &TranslateOptions::default()).config.rules().next().cloned().unwrap();
    let is_open = route.security.is_none_or(|security| security.refuses.is_none());
    (is_open, store.problems().map(|problem| problem.to_string()).collect())
}

fn at_start(text: &str) -> (bool, Vec<String>) {
    started(&[&[&shop(), text].concat()], &[])
}

#[test]
fn unreadable_security_policy_at_startup_closes_all_routes() {
    let good = policy("ipAccess: {allow: [10.0.0.0/8]}");
    assert!(at_start(&good).0);
    for broken in [
        good.replace("ipAccess:", "ipAccess: ["),
        good.replace("ipAccess:", "\tipAccess"),
        good.replace("name: p}", "name: p, namespace: default}").replace("ipAccess:", "ipAccess: ["),
        good.replace("name: p}", "name: P}"),
        good.replace("name: p}", "namespace: Default}"),
        good.replace("v1alpha1", "v1"),
        good.replace("SecurityPolicy", "SecurtyPolicy"),
        good.replace("SecurityPolicy", "AuthenticationPolicy"),
        good.replace("apiVersion: sluicegate.dev/v1alpha1\n", ""),
        good.replace("kind: SecurityPolicy", "kin: SecurityPolicy"),
        good.replace("sluicegate.dev/v1alpha1", "v1alpha1"),
        good.replace("---\n", "---\n- ").replace("\nkind", "\n  kind").replace("\nmeta", "\n  meta"),
        good.replace("ipAccess:", "ipAccess: [").replace("spec:", "# namespace: other\nspec:"),
        good.replace("kind: SecurityPolicy", "kind: SecurityPolicyList").replace("ipAccess:", "ipAccess: ["),
        good.replace("ipAccess:", "ipAccess: [").replace("kind: S", "note: \"see #1\"\nkind: S"),
        good.replace("ipAccess:", "ipAccess: [").chars().flat_map(|char| [char, '\0']).collect(),
        good.replace("name: p}", "name: p, annotations: {a.test/namespace: other}}")
            .replace("ipAccess:", "ipAccess: ["),
        good.replace("---\n", "---\nother: {metadata: {namespace: other}}\n")
            .replace("ipAccess:", "ipAccess: ["),
        good.replace("name: p}", "name: p, namespace:\n  default}").replace("ipAccess:", "ipAccess: ["),
        good.replace("kind: SecurityPolicy", "kind: \"Security\\u0050olicy\"")
            .replace("ipAccess:", "ipAccess: ["),
        good.replace("kind: SecurityPolicy", "kind: \"\\x53ecurity\\\n  Policy\"")
            .replace("ipAccess:", "ipAccess: ["),
        good.replace("targetRefs", "targetRef"),
        good.replace(A, "a"),
    ] {
        let (is_open, problems) = at_start(&broken);
        assert!(!is_open, "{broken}");
        let expected = "m.yaml: may contain a SecurityPolicy whose targets cannot be read; all routes";
        assert!(problems.iter().any(|problem| problem.starts_with(expected)), "{problems:#?}");
    }
}

#[test]
fn invalid_policy_of_another_kind_or_namespace_closes_no_route() {
    let good = policy("ipAccess: {allow: [10.0.0.0/8]}");
    for broken in [
        object("TrafficPolicy", "p", &format!("targetRefs: [{A}], timeouts: [")),
        good.replace("name: p}", "name: P, namespace: other}"),
        good.replace("SecurityPolicy", "TraficPolicy"),
        good.replace("SecurityPolicy", "PodSecurityPolicy").replace("ipAccess:", "ipAccess: ["),
        object("RateLimitPolicy", "p", &format!("targetRefs: [{A}], limits: [[")),
        "---\nkind: Service\n: [".to_owned(),
    ] {
        let (is_open, problems) = at_start(&broken);
        assert!(is_open, "{broken}");
        assert!(!problems.is_empty(), "{broken}");
    }
}

#[test]
fn corrected_policy_reopens_routes_and_invalid_policy_never_closes_served_routes() {
    let good = [shop(), policy("ipAccess: {allow: [10.0.0.0/8]}")].concat();
    let broken = good.replace("ipAccess:", "ipAccess: [");
    let worse = broken.replace("allow:", "allow: [");
    assert!(!started(&[&broken], &[&worse]).0, "mended in steps");
    assert!(started(&[&broken], &[&worse, &good]).0, "mended");
    assert!(started(&[&broken], &[&shop()]).0, "taken away");
    let guard = policy("ipAccess: [");
    let mut store = Store::default();
    store.set_file(Path::new("guard.yaml"), &guard);
    store.close_unknown();
    store.set_file(Path::new("renamed.yaml"), &guard);
    store.remove_file(Path::new("guard.yaml"));
    assert!(store.closes("default"), "it has another name");
    for emptied in [&[""][..], &["", &guard], &[" \n", "", &guard]] {
        let mut store = Store::default();
        store.set_file(Path::new("a.yaml"), &shop());
        store.set_file(Path::new("guard.yaml"), &guard);
        store.close_unknown();
        for text in emptied {
            store.set_file(Path::new("guard.yaml"), text);
        }
        assert!(store.closes("default"), "an editor writes it anew: {emptied:?}");
        assert!(store.problems().any(|problem| problem.to_string().contains("may contain a SecurityPolicy")));
        store.remove_file(Path::new("guard.yaml"));
        assert!(!store.closes("default"));
    }
    let (is_open, problems) = started(&[&good], &[&broken]);
    assert!(is_open, "broken while it is served: {problems:#?}");
    assert!(started(&[&shop()], &[&broken]).0, "new, and broken, while routes are served");
}

#[test]
fn rejection_reason_of_a_closed_route_names_the_file() {
    let mut store = Store::default();
    store.set_file(Path::new("conf/guards.yaml"), &[shop(), policy("ipAccess: [")].concat());
    store.close_unknown();
    let translation = translate(&store, &TranslateOptions::default());
    let security = security_of(&translation.config);
    assert_eq!(security.id.to_string(), "SecurityPolicy default/guards.yaml");
    assert_eq!(security.refuses.as_deref(), Some("guards.yaml cannot be read"));
}
