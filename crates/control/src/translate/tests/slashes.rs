//! Tests of the warning about a guarded path whose variant with or without a final slash is open.

use super::{ECHO, ingress, rules, serve};

fn problems(guarded: &str, open: &str) -> Vec<String> {
    let guard = "---\napiVersion: sluicegate.dev/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: p}\n\
                 spec: {targetRefs: [{group: networking.k8s.io, kind: Ingress, name: a}], ipAccess: {allow: [10.0.0.0/8]}}\n";
    let ingresses = [ingress("name: a", &rules(&[guarded])), ingress("name: b", &rules(&[open]))].concat();
    serve(&format!("{ingresses}{guard}{ECHO}")).problems
}

#[test]
fn unprotected_trailing_slash_variant_of_a_protected_path_is_reported() {
    for (guarded, open, expected) in [
        (
            "a.test Exact /admin echo:http",
            "a.test Prefix /admin echo:http",
            "Ingress default/a: spec.rules[0].http.paths[0].path: is protected by SecurityPolicy default/p, which does not apply to /admin/: Ingress default/b serves that path by its path /admin (Prefix)",
        ),
        ("a.test Exact /admin echo:http", "a.test Exact /admin/ echo:http", "its path /admin/ (Exact)"),
        (
            "a.test Exact /admin echo:http",
            "a.test ImplementationSpecific /admin/ echo:http",
            "its path /admin/ (Impl",
        ),
        (
            "a.test Exact /admin/ echo:http",
            "a.test Prefix / echo:http",
            "does not apply to /admin: Ingress default/b",
        ),
        ("a.test Exact /admin/ echo:http", "a.test Exact /admin echo:http", "its path /admin (Exact)"),
    ] {
        let problems = problems(guarded, open);
        assert!(problems.len() == 1 && problems[0].contains(expected), "{guarded}, {open}: {problems:#?}");
    }
}

#[test]
fn trailing_slash_variant_is_not_reported_if_it_is_rejected_or_protected() {
    for (guarded, open) in [
        // The data plane rejects /admin/ here.
        ("a.test Exact /admin echo:http", "a.test Prefix / echo:http"),
        ("a.test Exact /admin echo:http", "a.test Prefix /admin/x echo:http"),
        ("a.test Exact /admin echo:http", "b.test Prefix /admin echo:http"),
        ("a.test Exact / echo:http", "a.test Prefix / echo:http"),
        ("a.test Prefix /admin echo:http", "a.test Exact /admin/x echo:http"),
    ] {
        assert_eq!(problems(guarded, open), [""; 0], "{guarded}, {open}");
    }
}
