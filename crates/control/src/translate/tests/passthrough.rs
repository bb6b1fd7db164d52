//! Tests of TLS passthrough at the HTTPS listeners.

use std::path::Path;

use sluicegate_model::Config;
use sluicegate_testkit::tls::Authority;

use super::{ECHO, assert_lines, assert_problems, backend_to, ingress, rules, serve, serve_with, served};
use crate::{Store, TranslateOptions, translate};

const PASS: &str = "annotations: {sluicegate.dev/ssl-passthrough: \"true\"}";
const ECHO_TCP: &str = "1 default/echo:http (tcp) [10.0.0.1:8080]";

/// An Ingress with TLS passthrough for its hosts.
fn passing(name: &str, spec: &str) -> String {
    ingress(&format!("name: {name}, {PASS}"), spec)
}

/// A TLSRoute to `echo`, attached to a Gateway with a TLS listener at the HTTPS port 443.
fn by_gateway(listener: &str, hostname: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\n\
         spec: {{gatewayClassName: sluicegate, listeners: [{{name: x, protocol: TLS, port: 443, \
         tls: {{mode: Passthrough}}, hostname: \"{listener}\"}}]}}\n\
         ---\napiVersion: gateway.networking.k8s.io/v1\nkind: TLSRoute\nmetadata: {{name: tls}}\n\
         spec: {{parentRefs: [{{name: edge}}], hostnames: [\"{hostname}\"], \
         rules: [{{backendRefs: [{{name: echo, port: 80}}]}}]}}\n"
    )
}

fn with_https() -> TranslateOptions {
    TranslateOptions { https_ports: vec![443], ..TranslateOptions::default() }
}

#[track_caller]
fn check(text: &str, layer4: &[&str], problems: &[&str]) -> Config {
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), text);
    let served = served(&store, &with_https());
    assert_lines(&served.layer4, layer4);
    assert_problems(&served.problems, problems);
    let config = translate(&store, &with_https()).config;
    for passed in &config.tls.passthrough {
        let text = passed.host.to_string();
        assert!(config.tls.hosts.iter().all(|host| host.host.to_string() != text), "{text} is both");
    }
    config
}

#[test]
fn passthrough_ingress_forwards_its_hosts_to_the_root_service() {
    let other = "---\n{apiVersion: v1, kind: Service, metadata: {name: other}, spec: {ports: [{port: 80}]}}\n\
                 ---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: o, labels: \
                 {kubernetes.io/service-name: other}}, addressType: IPv4, ports: [{port: 80}], endpoints: []}\n";
    let default = format!("defaultBackend: {}", backend_to("echo:80"));
    let unreachable =
        "/api is not reachable over TLS, which Ingress default/a passes through to default/echo:http (tcp)";
    for (spec, problems) in [
        (rules(&["a.test Prefix / echo:80"]), &[][..]),
        (rules(&["a.test Exact / echo:http"]), &[]),
        // Passthrough ignores other paths. A path to another Service is reported.
        (rules(&["a.test Prefix /api other:80", "a.test Prefix / echo:80"]), &[unreachable]),
        (rules(&["a.test Prefix /api echo:80", "a.test Prefix / echo:http"]), &[]),
        (format!("{}, {default}", rules(&["a.test Prefix /api other:80"])), &[unreachable]),
        (rules(&["a.test Prefix /first echo:80", "a.test Prefix /api other:80"]), &[unreachable]),
        (format!("rules: [{{host: a.test}}], {default}"), &[]),
    ] {
        println!("{spec}");
        let config = check(
            &format!("{}{ECHO}{other}", passing("a", &spec)),
            &[&format!("HTTPS a.test -> {ECHO_TCP}")],
            problems,
        );
        assert_eq!(config.layer4_routes().next().unwrap().1.id.to_string(), "Ingress default/a");
        // Requests over plain HTTP are still served, without a redirect.
        assert!(config.rules().all(|route| !route.https_only) && config.rules().count() > 0);
    }
    check(
        &format!("{}{ECHO}", passing("a", "rules: [{host: a.test}]")),
        &[],
        &[
            "ssl-passthrough]: has no effect for host a.test: the host has no path, and the Ingress has no defaultBackend",
        ],
    );
}

#[test]
fn wildcard_host_of_an_ingress_matches_one_label() {
    let config = check(
        &format!("{}{ECHO}", passing("a", &rules(&["*.a.test Prefix / echo:80", "b.test Prefix / echo:80"]))),
        &[&format!("HTTPS b.test -> {ECHO_TCP}"), &format!("HTTPS *.a.test -> {ECHO_TCP}")],
        &[],
    );
    let host = &config.tls.passthrough[1].host;
    assert!(host.matches("x.a.test") && !host.matches("x.y.a.test"));
}

#[test]
fn passthrough_ingress_without_a_host_is_reported() {
    check(
        &format!("{}{ECHO}", passing("a", &rules(&["* Prefix / echo:80", "a.test Prefix / echo:80"]))),
        &[&format!("HTTPS a.test -> {ECHO_TCP}")],
        &[
            "spec.rules[0].host: is missing: sluicegate.dev/ssl-passthrough needs a host, and has no effect for this rule",
        ],
    );
    check(
        &format!("{}{ECHO}", passing("a", &format!("defaultBackend: {}", backend_to("echo:80")))),
        &[],
        &["annotations[sluicegate.dev/ssl-passthrough]: needs rules with hosts"],
    );
}

#[test]
fn passthrough_annotation_accepts_only_true_and_false() {
    let annotated = |value: &str| {
        let metadata = format!("name: a, annotations: {{sluicegate.dev/ssl-passthrough: \"{value}\"}}");
        format!("{}{ECHO}", ingress(&metadata, &rules(&["a.test Prefix / echo:80"])))
    };
    check(&annotated("false"), &[], &[]);
    check(&annotated("yes"), &[], &["ssl-passthrough]: \"yes\" is neither \"true\" nor \"false\""]);
    let on_a_service = ECHO.replace("{name: echo}", &format!("{{name: echo, {PASS}}}"));
    check(&on_a_service, &[], &["has no effect on an object of kind Service: write it on the Ingress"]);
}

#[test]
fn missing_passthrough_service_is_reported_with_its_effects_on_http_and_tls() {
    let place = "spec.rules[0].http.paths[0].backend.service.name: Service default/none does not exist; ";
    check(
        &passing("a", &rules(&["a.test Prefix / none:80"])),
        &["HTTPS a.test -> 1 default/none:80 (tcp) []"],
        &[&format!("{place}requests receive 503"), &format!("{place}connections are refused")],
    );
}

#[test]
fn certificate_of_a_passthrough_host_has_no_effect_except_the_redirect_to_https() {
    let spec = |tls: &str| {
        format!("{}, tls: [{tls}]", rules(&["a.test Prefix / echo:80", "b.test Prefix / echo:80"]))
    };
    let secret = Authority::of_process().issue(&["a.test", "b.test"]).secret("cert");
    let passed = [format!("HTTPS a.test -> {ECHO_TCP}"), format!("HTTPS b.test -> {ECHO_TCP}")];
    let passed: Vec<&str> = passed.iter().map(String::as_str).collect();
    let told = |host: &str| {
        format!(
            "spec.tls[0].secretName: has no effect for host {host}: Ingress default/a passes its TLS through"
        )
    };
    let redirected = |config: &Config| {
        let hosts = config.hosts.iter().filter(|host| host.rules[0].https_only);
        hosts.map(|host| host.host.to_string()).collect::<Vec<_>>().join(" ")
    };
    let config = check(
        &format!("{}{ECHO}", passing("a", &spec("{hosts: [a.test], secretName: missing}"))),
        &passed,
        &[&told("a.test")],
    );
    assert_eq!(redirected(&config), "a.test");
    let config = check(&format!("{}{ECHO}", passing("a", &spec("{hosts: [a.test]}"))), &passed, &[]);
    assert_eq!(redirected(&config), "a.test");
    let config = check(
        &format!("{}{ECHO}{secret}", passing("a", &spec("{secretName: cert}"))),
        &passed,
        &[&told("a.test"), &told("b.test")],
    );
    assert_eq!(redirected(&config), "a.test b.test");
    assert_eq!(config.tls.hosts, []);
    let forced = passing("a", &spec(""))
        .replace(PASS, &PASS.replace('}', ", sluicegate.dev/force-ssl-redirect: \"true\"}"));
    assert_eq!(redirected(&check(&format!("{forced}{ECHO}"), &passed, &[])), "a.test b.test");
}

#[test]
fn client_certificates_have_no_effect_on_passthrough_hosts() {
    let ca = Authority::of_process().pem().replace('\n', "\\n");
    let secret = format!(
        "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: ca}}, stringData: {{ca.crt: \"{ca}\"}}}}\n"
    );
    let asks = PASS.replace('}', ", sluicegate.dev/auth-tls-secret: ca}");
    let text = passing("a", &rules(&["a.test Prefix / echo:80"])).replace(PASS, &asks);
    let config = check(
        &format!("{text}{ECHO}{secret}"),
        &[&format!("HTTPS a.test -> {ECHO_TCP}")],
        &[
            "annotations[sluicegate.dev/auth-tls-secret]: has no effect for host a.test: Ingress default/a passes its TLS through",
        ],
    );
    // The host is not served without TLS either.
    assert!(config.rules().all(|route| route.https_only));
}

#[test]
fn oldest_ingress_of_a_host_decides_whether_tls_is_passed_through() {
    let created = |name: &str, year: u16, passes: bool, rule: &str| {
        let annotations = if passes { PASS } else { "annotations: {}" };
        let metadata = format!("name: {name}, creationTimestamp: \"{year}-01-01T00:00:00Z\", {annotations}");
        ingress(&metadata, &rules(&[rule]))
    };
    let old = |passes| created("old", 2024, passes, "a.test Prefix / echo:80");
    let new = |passes| created("new", 2025, passes, "a.test Prefix /new none:80");
    let told = "Ingress default/new: metadata.annotations[sluicegate.dev/ssl-passthrough]: has no effect for host a.test, \
                which belongs to Ingress default/old (older, or first by name)";
    let unreachable = "Ingress default/new: spec.rules[0].http.paths[0].path: /new is not reachable over TLS";
    let missing = "Service default/none does not exist; requests receive 503";
    let passed = format!("HTTPS a.test -> {ECHO_TCP}");
    check(&format!("{}{}{ECHO}", new(true), old(false)), &[], &[told, missing]);
    check(&format!("{}{}{ECHO}", new(false), old(true)), &[&passed], &[unreachable, missing]);
    check(&format!("{}{}{ECHO}", new(true), old(true)), &[&passed], &[told, unreachable, missing]);
}

#[test]
fn tls_route_on_an_https_port_has_precedence_over_ingress_certificates() {
    let secret = Authority::of_process().issue(&["a.test", "*.b.test"]).secret("cert");
    let spec = format!(
        "{}, tls: [{{hosts: [a.test, \"*.b.test\"], secretName: cert}}]",
        rules(&["a.test Prefix / echo:80", "*.b.test Prefix / echo:80"])
    );
    let config = check(
        &format!("{}{}{ECHO}{secret}", by_gateway("", "a.test"), ingress("name: a", &spec)),
        &[&format!("HTTPS a.test -> {ECHO_TCP}")],
        &[
            "Ingress default/a: spec.tls[0].secretName: has no effect for host a.test: TLSRoute default/tls passes its TLS through",
        ],
    );
    assert_eq!(config.tls.hosts.len(), 1);
    // A wildcard covers one label in an Ingress and several labels in a TLSRoute. Both are the same host here.
    let config = check(
        &format!("{}{}{ECHO}{secret}", by_gateway("*.b.test", "*.b.test"), ingress("name: a", &spec)),
        &[&format!("HTTPS *.b.test -> {ECHO_TCP}")],
        &["has no effect for host *.b.test: TLSRoute default/tls"],
    );
    assert_eq!(config.tls.hosts[0].host.to_string(), "a.test");
}

#[test]
fn older_object_owns_the_host_that_an_ingress_and_a_tls_route_share() {
    let old = "creationTimestamp: \"2024-01-01T00:00:00Z\"";
    let ingress =
        |metadata: &str| passing("a", &rules(&["a.test Prefix / none:80"])).replace("name: a,", metadata);
    let route = |metadata: &str| by_gateway("*.test", "a.test").replace("{name: tls}", metadata);
    let missing = "Service default/none does not exist; requests receive 503";
    check(
        &format!("{}{}{ECHO}", ingress("name: a,"), route(&format!("{{name: tls, {old}}}"))),
        &[&format!("HTTPS a.test -> {ECHO_TCP}")],
        &[
            "Ingress default/a: metadata.annotations[sluicegate.dev/ssl-passthrough]: does not pass a.test through: TLSRoute default/tls (older, or first by name) does",
            missing,
        ],
    );
    check(
        &format!("{}{}{ECHO}", ingress(&format!("name: a, {old},")), route("{name: tls}")),
        &["HTTPS a.test -> 1 default/none:80 (tcp) []"],
        &[
            "TLSRoute default/tls: spec.parentRefs[0]: does not pass a.test through: Ingress default/a (older, or first by name) does",
            missing,
            "connections are refused",
        ],
    );
}

#[test]
fn older_ingress_of_another_namespace_has_precedence_over_a_tls_route() {
    let route = by_gateway("*.test", "a.test").replace("{name: tls}", "{name: tls, namespace: stranger}");
    let route = route.replace("{name: edge}]", "{name: edge, namespace: default}]");
    let route = route
        .replace("hostname: \"*.test\"", "hostname: \"*.test\", allowedRoutes: {namespaces: {from: All}}");
    for (spec, old) in [
        (rules(&["a.test Prefix / echo:80"]), true),
        ("tls: [{hosts: [a.test]}]".to_owned(), true),
        (rules(&["a.test Prefix / echo:80"]), false),
    ] {
        let created = if old { ", creationTimestamp: \"2024-01-01T00:00:00Z\"" } else { ", namespace: zz" };
        let mut store = Store::default();
        store.set_file(
            Path::new("m.yaml"),
            &format!("{}{route}{ECHO}", ingress(&format!("name: a{created}"), &spec)),
        );
        let served = served(&store, &with_https());
        let is_told = served.problems.iter().any(|problem| {
            problem.contains("does not pass a.test through: Ingress default/a (older, or first by name), of another namespace, serves it")
        });
        assert_eq!(
            (is_told, served.layer4.iter().any(|line| line.starts_with("HTTPS a.test"))),
            (old, !old),
            "{:?}",
            served.problems
        );
    }
}

#[test]
fn tls_route_uses_the_https_listener_of_its_port_or_else_a_separate_tls_listener() {
    let text = format!("{}{ECHO}", by_gateway("", "a.test"));
    let served = serve(&text);
    assert_lines(&served.layer4, &[&format!("TLS 0.0.0.0:443 a.test -> {ECHO_TCP}")]);
    let served = serve_with(&text, &with_https());
    assert_lines(&served.layer4, &[&format!("HTTPS a.test -> {ECHO_TCP}")]);
}

#[test]
fn proxy_protocol_is_not_reported_as_unused_if_http_requests_are_only_redirected() {
    let echo = ECHO.replace("{name: echo}", "{name: echo, annotations: {sluicegate.dev/proxy-protocol: v2}}");
    let text = passing("a", &rules(&["a.test Prefix / echo:80"]));
    let told =
        "Service default/echo: metadata.annotations[sluicegate.dev/proxy-protocol]: has no effect for HTTP";
    check(&format!("{text}{echo}"), &[&format!("HTTPS a.test -> {ECHO_TCP} v2")], &[told]);
    let forced = text.replace(PASS, &PASS.replace('}', ", sluicegate.dev/force-ssl-redirect: \"true\"}"));
    check(&format!("{forced}{echo}"), &[&format!("HTTPS a.test -> {ECHO_TCP} v2")], &[]);
}
