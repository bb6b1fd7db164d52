//! Tests of the store: which objects stay in service, which objects are removed, and which problems are reported.

use std::path::Path;

use super::Store;
use crate::{TranslateOptions, translate};

/// An Ingress with a route from `path` to the Service with the same name as the Ingress.
fn ingress(name: &str, path: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\n\
         spec: {{rules: [{{http: {{paths: [{{path: \"{path}\", pathType: Exact, \
         backend: {{service: {{name: {name}, port: {{number: 80}}}}}}}}]}}}}]}}\n"
    )
}

fn service(annotations: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: echo, annotations: {{{annotations}}}}}\n\
         spec: {{ports: [{{port: 80}}]}}\n"
    )
}

/// Sets the files one after the other, and then checks the routed paths and the problems.
#[track_caller]
fn check(files: &[(&str, &str)], paths: &[&str], problems: &[&str]) {
    let mut store = Store::default();
    for (file, text) in files {
        match *text {
            "GONE" => store.remove_file(Path::new(file)),
            text => store.set_file(Path::new(file), text),
        };
    }
    let config = translate(&store, &TranslateOptions::default()).config;
    let actual: Vec<String> = config
        .rules()
        .map(|route| format!("{} {}", route.path(), route.backends[0].upstream.service))
        .collect();
    assert_eq!(actual, paths);
    let actual: Vec<String> = store.problems().map(|problem| problem.to_string()).collect();
    let fits = actual.len() == problems.len() && actual.iter().zip(problems).all(|(a, e)| a.contains(e));
    assert!(fits, "got {actual:#?}\nexpected {problems:#?}");
}

/// A translation computes the statuses, so it must run although the version in service is the same.
#[test]
fn change_to_an_invalid_policy_and_back_needs_a_translation() {
    let policy = |deny: &str| {
        format!(
            "{{apiVersion: sluicegate.dev/v1alpha1, kind: SecurityPolicy, metadata: {{name: a}}, spec: {{targetRefs: \
             [{{group: networking.k8s.io, kind: Ingress, name: a}}], ipAccess: {{deny: [\"{deny}\"]}}}}}}\n"
        )
    };
    let mut store = Store::default();
    for (deny, routing) in
        [("10.0.0.0/8", true), ("10.1.2.3/8", true), ("10.0.0.0/8", true), ("10.0.0.0/8", false)]
    {
        let touched = store.set_file(Path::new("m.yaml"), &policy(deny));
        assert_eq!(touched.has_routing(), routing, "{deny}");
    }
}

#[test]
fn invalid_object_keeps_its_last_valid_version() {
    let good = ingress("a", "/a");
    let kept = "(the last valid version stays in service)";
    for (what, bad) in [
        ("an invalid path", ingress("a", "bad")),
        ("a wrong type", good.replace("number: 80", "number: x")),
        ("no rules", "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a}}\n".to_owned()),
    ] {
        check(&[("m.yaml", &good), ("m.yaml", &bad)], &["/a a"], &[kept]);
        check(&[("m.yaml", &good), ("m.yaml", &bad), ("m.yaml", &bad)], &["/a a"], &[kept]);
        let better = ingress("a", "/better");
        check(&[("m.yaml", &good), ("m.yaml", &bad), ("m.yaml", &better)], &["/better a"], &[]);
        check(&[("m.yaml", &good), ("m.yaml", &bad), ("m.yaml", "GONE")], &[], &[]);
        let other = ingress("b", "/b");
        let both = format!("{bad}{other}");
        check(&[("m.yaml", &good), ("m.yaml", &both)], &["/a a", "/b b"], &[kept]);
        println!("{what}");
    }
}

#[test]
fn error_names_the_version_in_service_or_what_applies_instead() {
    let with = |mode: &str| {
        let annotations = format!(
            "annotations: {{sluicegate.dev/auth-tls-secret: ca, sluicegate.dev/auth-tls-verify-client: {mode}}}"
        );
        ingress("a", "/a").replace("metadata: {name: a", &format!("metadata: {{{annotations}, name: a"))
    };
    let fault = "\"maybe\" is unknown: write AllowValidOnly, optional, AllowInsecureFallback or off";
    let instead = format!("{fault}; AllowValidOnly is used");
    check(&[("m.yaml", &with("maybe"))], &["/a a"], &[&instead]);
    let kept = format!("{fault} (the last valid version stays in service)");
    check(&[("m.yaml", &with("optional")), ("m.yaml", &with("maybe"))], &["/a a"], &[&kept]);
}

#[test]
fn valid_parts_of_an_object_with_errors_at_startup_are_served() {
    let one_bad_path = ingress("a", "/a").replace(
        "paths: [",
        "paths: [{path: bad, pathType: Exact, backend: {service: {name: a, port: {number: 80}}}}, ",
    );
    let fault = "spec.rules[0].http.paths[0].path: \"bad\"";
    check(&[("m.yaml", &one_bad_path)], &["/a a"], &[fault]);
    // The version is in service now, so another invalid version does not replace it.
    let worse = ingress("a", "worse");
    check(&[("m.yaml", &one_bad_path), ("m.yaml", &worse)], &["/a a"], &["stays in service"]);
}

#[test]
fn unreadable_document_removes_no_object() {
    let (a, b) = (ingress("a", "/a"), ingress("b", "/b"));
    let broken = "---\nkind: [\n";
    let kept = "(the previous content of this file stays in service)";
    for bad in [
        // A syntax error in one of two documents, or in the whole file.
        format!("{a}{broken}"),
        broken.to_owned(),
        // An object without its name, or without its kind.
        format!("{a}{}", b.replace("name: b}\n", "}\n")),
        format!("{a}{}", b.replace("kind: Ingress", "kid: Ingress")),
    ] {
        check(&[("m.yaml", &format!("{a}{b}")), ("m.yaml", &bad)], &["/a a", "/b b"], &[kept]);
        check(&[("m.yaml", &format!("{a}{b}")), ("m.yaml", &bad), ("m.yaml", &a)], &["/a a"], &[]);
        check(&[("m.yaml", &format!("{a}{b}")), ("m.yaml", &bad), ("m.yaml", "GONE")], &[], &[]);
    }
    // The readable documents of a file take effect despite an unreadable document.
    let changed = format!("{}{broken}{}", ingress("a", "/new"), ingress("c", "/c"));
    check(&[("m.yaml", &format!("{a}{b}")), ("m.yaml", &changed)], &["/new a", "/b b", "/c c"], &[kept]);
}

#[test]
fn objects_survive_an_empty_file_but_not_a_file_of_comments() {
    let a = ingress("a", "/a");
    check(&[("m.yaml", &a), ("m.yaml", "")], &["/a a"], &["m.yaml: is empty; its previous content stays"]);
    check(&[("m.yaml", &a), ("m.yaml", " \n"), ("m.yaml", &a)], &["/a a"], &[]);
    check(&[("m.yaml", &a), ("m.yaml", "# nothing any more\n")], &[], &[]);
    check(&[("m.yaml", "")], &[], &[]);
}

#[test]
fn object_deleted_from_a_file_is_removed_from_the_configuration() {
    let both = format!("{}{}", ingress("a", "/a"), ingress("b", "/b"));
    check(&[("m.yaml", &both), ("m.yaml", &ingress("b", "/b"))], &["/b b"], &[]);
}

#[test]
fn first_file_by_name_defines_an_object_that_two_files_contain() {
    let (one, other) = (ingress("a", "/one"), ingress("a", "/other"));
    let also = "2.yaml:2: Ingress default/a: is also written in 1.yaml, and that version is used";
    // The first file by name has precedence, regardless of which file is read first.
    check(&[("1.yaml", &one), ("2.yaml", &other)], &["/one a"], &[also]);
    check(&[("2.yaml", &other), ("1.yaml", &one)], &["/one a"], &[also]);
    check(&[("1.yaml", &one), ("2.yaml", &other), ("1.yaml", "GONE")], &["/other a"], &[]);
    check(&[("1.yaml", &one), ("2.yaml", &other), ("2.yaml", "GONE")], &["/one a"], &[]);
    // A version that was never valid yields to the next file.
    let bad = one.replace("number: 80", "number: x");
    check(
        &[("1.yaml", &bad), ("2.yaml", &other)],
        &["/other a"],
        &["number: must be a number, but is \"x\"", "is also written in 2"],
    );
}

#[test]
fn first_document_defines_an_object_that_a_file_contains_twice() {
    let text = format!("{}{}", ingress("a", "/one"), ingress("a", "/other"));
    check(&[("m.yaml", &text)], &["/one a"], &["m.yaml:7: Ingress default/a: is written twice in this file"]);
}

#[test]
fn service_with_an_invalid_annotation_keeps_the_last_valid_value() {
    let mut store = Store::default();
    let file = Path::new("m.yaml");
    let limit = |store: &Store| {
        let (namespace, name) = ("default".into(), "echo".into());
        store.service(&namespace, &name).and_then(|(service, _)| service.limits.max_requests)
    };
    store.set_file(file, &service("sluicegate.dev/max-requests: \"5\""));
    assert_eq!(limit(&store), Some(5));
    store.set_file(file, &service("sluicegate.dev/max-requests: many"));
    assert_eq!(limit(&store), Some(5));
    store.set_file(file, &service(""));
    assert_eq!(limit(&store), None);
}

#[test]
fn store_reports_whether_a_file_change_affects_services_routing_or_problems() {
    let slice = |address: &str, service: &str| {
        format!(
            "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: s, \
             labels: {{kubernetes.io/service-name: {service}}}}}, addressType: IPv4, \
             ports: [{{port: 80}}], endpoints: [{{addresses: [{address}]}}]}}\n"
        )
    };
    let mut store = Store::default();
    let mut touched = |text: &str| {
        let touched = store.set_file(Path::new("m.yaml"), text);
        let services: Vec<String> = touched.services.iter().map(|(_, name)| name.to_string()).collect();
        (services.join(" "), touched.has_routing(), touched.problems)
    };
    let a = ingress("a", "/a");
    assert_eq!(touched(&format!("{a}{}", slice("10.0.0.1", "one"))), ("one".to_owned(), true, false));
    assert_eq!(touched(&format!("{a}{}", slice("10.0.0.1", "one"))), (String::new(), false, false));
    // Only the line number of the object has changed.
    assert_eq!(touched(&format!("# moved\n{a}{}", slice("10.0.0.1", "one"))), (String::new(), false, false));
    assert_eq!(touched(&format!("{a}{}", slice("10.0.0.2", "one"))), ("one".to_owned(), false, false));
    assert_eq!(touched(&format!("{a}{}", slice("10.0.0.2", "two"))), ("one two".to_owned(), false, false));
    assert_eq!(touched(&a), ("two".to_owned(), false, false));
    assert_eq!(touched(&ingress("a", "bad")), (String::new(), false, true));
    assert_eq!(touched("# nothing\n"), (String::new(), true, true));
}
