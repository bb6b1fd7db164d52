//! Hosts, paths and conflicts.

use super::{ECHO, ECHO_80, assert_lines, assert_problems, backend_to, ingress, rules, serve};

#[track_caller]
fn check(manifests: &[String], expected: &[&str], problems: &[&str]) {
    let served = serve(&format!("{}{ECHO}", manifests.concat()));
    let expected: Vec<String> = expected.iter().map(|line| line.replace("ECHO", ECHO_80)).collect();
    assert_lines(&served.routes, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    assert_problems(&served.problems, problems);
}

#[test]
fn each_path_type_is_translated_to_its_path_pattern() {
    check(
        &[ingress(
            "name: a",
            &rules(&[
                "a.example Exact /exact/ echo:80",
                "a.example Prefix /prefix/ echo:80",
                "a.example ImplementationSpecific /starts echo:80",
                "*.example.com Prefix / echo:80",
                "* Prefix / echo:80",
            ]),
        )],
        &[
            "a.example Exact /exact/ -> ECHO",
            "a.example Prefix /prefix -> ECHO",
            "a.example ImplementationSpecific /starts -> ECHO",
            "*.example.com Prefix / -> ECHO",
            "* Prefix / -> ECHO",
        ],
        &[],
    );
}

#[test]
fn absent_implementation_specific_path_defaults_to_the_root_path() {
    let spec = format!(
        "rules: [{{http: {{paths: [{{pathType: ImplementationSpecific, backend: {}}}]}}}}]",
        backend_to("echo:80")
    );
    check(&[ingress("name: a", &spec)], &["* ImplementationSpecific / -> ECHO"], &[]);
}

#[test]
fn invalid_path_of_an_ingress_does_not_remove_its_other_paths() {
    check(
        &[ingress(
            "name: a",
            &rules(&[
                "a.example Prefix /good echo:80",
                "a.example Prefix bad echo:80",
                "a.example Regex /bad echo:80",
                "A.example Prefix /bad echo:80",
                "10.0.0.1 Prefix /bad echo:80",
                "a.example Prefix /also-good echo:80",
            ]),
        )],
        &["a.example Prefix /good -> ECHO", "a.example Prefix /also-good -> ECHO"],
        &[
            "Ingress default/a: spec.rules[1].http.paths[0].path: \"bad\" does not begin with '/'",
            "Ingress default/a: spec.rules[2].http.paths[0].pathType: \"Regex\" is unknown",
            "Ingress default/a: spec.rules[3].host: \"A.example\" has upper-case letters",
            "Ingress default/a: spec.rules[4].host: \"10.0.0.1\" is an IP address",
        ],
    );
}

#[test]
fn path_with_an_invalid_backend_does_not_remove_other_paths_of_the_ingress() {
    let path = |backend: &str| format!("{{path: /, pathType: Exact, backend: {backend}}}");
    let backends = [
        "{resource: {apiGroup: a, kind: B, name: c}}",
        "{}",
        "{service: {name: \"\", port: {number: 80}}}",
        "{service: {name: echo}}",
        "{service: {name: echo, port: {number: 80, name: http}}}",
        "{service: {name: echo, port: {number: 65536}}}",
        "{service: {name: echo, port: {number: 0}}}",
        "{service: {name: echo, port: {name: \"80\"}}}",
    ];
    let mut paths: Vec<String> = backends.iter().map(|backend| path(backend)).collect();
    paths.push(path(&backend_to("echo:80")));
    let spec = format!("rules: [{{http: {{paths: [{}]}}}}]", paths.join(", "));
    check(
        &[ingress("name: a", &spec)],
        &["* Exact / -> ECHO"],
        &[
            "paths[0].backend.resource: is not supported",
            "paths[1].backend: has no service",
            "paths[2].backend.service.name: is missing",
            "paths[3].backend.service.port: is missing",
            "paths[4].backend.service.port: has both",
            "paths[5].backend.service.port.number: 65536 is not between",
            "paths[6].backend.service.port.number: 0 is not between",
            "paths[7].backend.service.port.name: \"80\" is not the name of a port: write number: 80",
        ],
    );
}

#[test]
fn path_with_regular_expression_syntax_is_reported() {
    check(
        &[ingress("name: a", &rules(&["* ImplementationSpecific /a(/|$)(.*) echo:80"]))],
        &["* ImplementationSpecific /a(/%7C$)(.*) -> ECHO"],
        &["regular expressions are not supported"],
    );
}

#[test]
fn oldest_ingress_owns_a_path_and_conflicts_are_reported() {
    let at = |name: &str, created: &str| {
        let created =
            if created.is_empty() { String::new() } else { format!(", creationTimestamp: \"{created}\"") };
        format!("name: {name}{created}")
    };
    let rule = rules(&["a.example Prefix /x echo:80"]);
    let manifests = [
        ingress(&at("a-without-time", ""), &rule),
        ingress(&at("b-younger", "2024-02-01T00:00:00Z"), &rule),
        ingress(&at("c-older", "2024-01-01T00:00:00Z"), &rules(&["a.example Prefix /x/ echo:http"])),
        ingress(&at("d-other-type", ""), &rules(&["a.example Exact /x echo:80"])),
        ingress(&at("e-other-host", ""), &rules(&["b.example Prefix /x echo:80"])),
    ];
    check(
        &manifests,
        &[
            "a.example Prefix /x -> default/echo:http [10.0.0.1:8080]",
            "a.example Exact /x -> ECHO",
            "b.example Prefix /x -> ECHO",
        ],
        &[
            "Ingress default/b-younger: spec.rules[0].http.paths[0].path: Prefix /x of host a.example is ignored: Ingress default/c-older (older, or first by name) has it already",
            "Ingress default/a-without-time: spec.rules[0].http.paths[0].path",
        ],
    );
}

#[test]
fn precedence_of_ingresses_of_equal_age_is_by_namespace_and_name() {
    let manifests = [
        ingress("name: a, namespace: z", &rules(&["* Prefix / z:80"])),
        ingress("name: c, namespace: b", &rules(&["* Prefix / c:80"])),
        ingress("name: b, namespace: b", &rules(&["* Prefix / b:80"])),
    ];
    let served = serve(&manifests.concat());
    assert_lines(&served.routes, &["* Prefix / -> b/b:80 []"]);
}

#[test]
fn duplicate_path_is_served_once_and_reported() {
    check(
        &[ingress("name: a", &rules(&["a.example Prefix / echo:80", "a.example Prefix / other:80"]))],
        &["a.example Prefix / -> ECHO"],
        &["spec.rules[1].http.paths[0].path: Prefix / of host a.example is ignored: the same"],
    );
}

#[test]
fn default_backend_of_an_ingress_without_rules_serves_unmatched_hosts() {
    let default = |service: &str| format!("defaultBackend: {}", backend_to(service));
    check(
        &[
            ingress("name: b", &default("other:80")),
            ingress("name: a", &default("echo:80")),
            ingress("name: c", &rules(&["a.example Prefix /x echo:80"])),
        ],
        &["a.example Prefix /x -> ECHO", "default -> ECHO"],
        &["Ingress default/b: spec.defaultBackend: is ignored: Ingress default/a is older"],
    );
}

#[test]
fn default_backend_of_an_ingress_with_rules_serves_only_hosts_of_the_ingress() {
    let with_default =
        |service: &str, of: &[&str]| format!("defaultBackend: {}, {}", backend_to(service), rules(of));
    check(
        &[
            ingress("name: a", &with_default("echo:http", &["a.example Prefix /a echo:80"])),
            ingress(
                "name: b",
                &with_default("echo:80", &["a.example Prefix /b echo:80", "b.example Prefix /b echo:80"]),
            ),
        ],
        &[
            "a.example Prefix /a -> ECHO",
            "a.example Prefix /b -> ECHO",
            "a.example fallback -> default/echo:http [10.0.0.1:8080]",
            "b.example Prefix /b -> ECHO",
            "b.example fallback -> ECHO",
        ],
        &[
            "Ingress default/b: spec.defaultBackend: is ignored for host a.example, which belongs to Ingress default/a (older, or first by name)",
        ],
    );
}

#[test]
fn host_without_paths_is_served_by_the_default_backend() {
    let spec = format!("defaultBackend: {}, rules: [{{host: a.example}}]", backend_to("echo:80"));
    check(&[ingress("name: a", &spec)], &["a.example fallback -> ECHO"], &[]);
}

#[test]
fn default_backend_of_an_ingress_with_only_invalid_rules_serves_no_other_hosts() {
    let spec = format!("defaultBackend: {}, {}", backend_to("echo:80"), rules(&["A Prefix / echo:80"]));
    check(&[ingress("name: a", &spec)], &[], &["spec.rules[0].host"]);
}

#[test]
fn ingress_with_neither_rules_nor_default_backend_is_an_error() {
    check(
        &[ingress("name: a", "")],
        &[],
        &["Ingress default/a: spec: has neither rules nor a defaultBackend"],
    );
}
