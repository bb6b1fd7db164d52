//! Services and their EndpointSlices.

use std::path::Path;

use sluicegate_model::{Balance, UpstreamLimits};

use super::{assert_lines, assert_problems, ingress, rules, serve, served};
use crate::{Store, TranslateOptions, translate};

fn service(spec: &str) -> String {
    format!("---\napiVersion: v1\nkind: Service\nmetadata: {{name: echo}}\nspec: {{{spec}}}\n")
}

fn slice(name: &str, rest: &str) -> String {
    let address_type = if rest.contains("addressType") { "" } else { "addressType: IPv4, " };
    format!(
        "---\n{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, \
         metadata: {{name: {name}, labels: {{kubernetes.io/service-name: echo}}}}, {address_type}{rest}}}\n"
    )
}

/// Checks the endpoints of a route to `echo:PORT`.
#[track_caller]
fn check(port: &str, manifests: &[String], endpoints: &str, problems: &[&str]) {
    let ingress = ingress("name: a", &rules(&[&format!("* Prefix / echo:{port}")]));
    let served = serve(&format!("{ingress}{}", manifests.concat()));
    let actual: Vec<String> =
        served.routes.iter().filter_map(|route| Some(route.split_once(" [")?.1.to_owned())).collect();
    assert_lines(&actual, &[&format!("{endpoints}]")]);
    assert_problems(&served.problems, problems);
}

const HTTP: &str = "ports: [{name: http, port: 80}]";
const ONE: &str = "ports: [{name: http, port: 8080}], endpoints: [{addresses: [10.0.0.1]}]";

#[test]
fn service_ports_match_slice_ports_by_name() {
    let two = "ports: [{name: http, port: 80, targetPort: 1}, {name: admin, port: 9000, targetPort: web}]";
    let slices = slice(
        "one",
        "ports: [{name: admin, port: 9001}, {name: http, port: 8080}], endpoints: [{addresses: [10.0.0.1]}]",
    );
    for (port, endpoints) in [
        ("80", "10.0.0.1:8080"),
        ("http", "10.0.0.1:8080"),
        ("9000", "10.0.0.1:9001"),
        ("admin", "10.0.0.1:9001"),
    ] {
        check(port, &[service(two), slices.clone()], endpoints, &[]);
    }
}

#[test]
fn references_to_a_service_port_by_name_and_by_number_share_an_upstream() {
    let external = "type: ExternalName, externalName: api.example";
    for (spec, expected) in [
        // A port with a name is known by its name, which stays when the number changes.
        ("ports: [{name: http, port: 80}]", "echo:443 echo:http"),
        ("ports: [{name: http, port: 80}, {name: https, port: 443}]", "echo:http echo:https"),
        ("ports: [{port: 80}]", "echo:443 echo:80 echo:http"),
        (&format!("{external}, ports: [{{name: http, port: 80}}]"), "echo:443 echo:http"),
        // A port that the Service does not list keeps the name or number of the route.
        (external, "echo:443 echo:80 echo:http"),
        ("ports: []", "echo:443 echo:80 echo:http"),
    ] {
        let routes = rules(&["* Exact /a echo:80", "* Exact /b echo:http", "* Exact /c echo:443"]);
        let mut store = Store::default();
        store.set_file(Path::new("m.yaml"), &format!("{}{}", ingress("name: a", &routes), service(spec)));
        let config = translate(&store, &TranslateOptions::default()).config;
        let keys: Vec<String> =
            config.upstreams.keys().map(|key| key.to_string().replace("default/", "")).collect();
        assert_eq!(keys.join(" "), expected, "{spec}");
        assert!(config.rule_upstreams().all(|upstream| config.upstreams.contains_key(upstream)));
    }
}

#[test]
fn unnamed_service_port_matches_the_unnamed_slice_port() {
    for name in ["", "name: null, ", "name: \"\", "] {
        let slices =
            slice("one", &format!("ports: [{{{name}port: 8080}}], endpoints: [{{addresses: [10.0.0.1]}}]"));
        check("80", &[service("ports: [{port: 80}]"), slices], "10.0.0.1:8080", &[]);
    }
}

#[test]
fn address_in_several_slices_has_the_best_conditions_of_these_slices() {
    let slices = [
        slice(
            "z",
            "ports: [{name: http, port: 80}], endpoints: [{addresses: [10.0.0.2]}, {addresses: [10.0.0.1]}]",
        ),
        slice(
            "a",
            "ports: [{name: http, port: 80}], endpoints: [\
             {addresses: [10.0.0.1], conditions: {ready: false, serving: true, terminating: true}}, \
             {addresses: [10.0.0.3], conditions: {ready: false}}]",
        ),
        slice("m", "ports: [{name: http, port: 81}], endpoints: [{addresses: [10.0.0.1]}]"),
        slice(
            "k",
            "ports: [{name: http, port: 80}], endpoints: [\
             {addresses: [10.0.0.3], conditions: {ready: false, serving: true, terminating: true}}]",
        ),
    ];
    let mut manifests = vec![service(HTTP)];
    manifests.extend(slices);
    check("80", &manifests, "10.0.0.1:80 10.0.0.1:81 10.0.0.2:80 10.0.0.3:80-st", &[]);
}

#[test]
fn absent_endpoint_conditions_have_the_defaults_of_kubernetes() {
    for (conditions, expected) in [
        ("{}", "10.0.0.1:8080"),
        ("null", "10.0.0.1:8080"),
        ("{ready: false}", "10.0.0.1:8080-"),
        ("{ready: false, terminating: true}", "10.0.0.1:8080-t"),
        ("{ready: false, serving: true, terminating: true}", "10.0.0.1:8080-st"),
        ("{ready: true, serving: false}", "10.0.0.1:8080"),
    ] {
        let slices = slice(
            "one",
            &format!(
                "ports: [{{name: http, port: 8080}}], endpoints: [{{addresses: [10.0.0.1], conditions: {conditions}}}]"
            ),
        );
        check("80", &[service(HTTP), slices], expected, &[]);
    }
}

#[test]
fn publish_not_ready_addresses_makes_endpoints_ready() {
    let slices = slice(
        "one",
        "ports: [{name: http, port: 8080}], endpoints: [{addresses: [10.0.0.1], conditions: {ready: false}}]",
    );
    check("80", &[service(&format!("publishNotReadyAddresses: true, {HTTP}")), slices], "10.0.0.1:8080", &[]);
}

#[test]
fn headless_service_uses_the_endpoints_of_its_slices() {
    check("80", &[service(&format!("clusterIP: None, {HTTP}")), slice("one", ONE)], "10.0.0.1:8080", &[]);
}

#[test]
fn fqdn_slices_are_reported_while_ipv4_and_ipv6_slices_are_used() {
    let six = "addressType: IPv6, ports: [{name: http, port: 80}], endpoints: [{addresses: [\"fd00::1\", \"fd00::2\"]}]";
    let name = "addressType: FQDN, ports: [{name: http, port: 80}], endpoints: [{addresses: [a.example]}]";
    check(
        "80",
        &[service(HTTP), slice("one", ONE), slice("six", six), slice("name", name)],
        "10.0.0.1:8080 [fd00::1]:80",
        &["EndpointSlice default/name: addressType: is FQDN"],
    );
}

#[test]
fn invalid_address_in_a_slice_does_not_remove_its_other_endpoints() {
    let endpoints = "ports: [{name: http, port: 80}], \
                     endpoints: [{addresses: [\"10.0.0.300\"]}, {addresses: []}, {addresses: [\"::1\"]}, {addresses: [10.0.0.1]}]";
    check(
        "80",
        &[service(HTTP), slice("one", endpoints)],
        "10.0.0.1:80",
        &[
            "endpoints[0].addresses[0]: \"10.0.0.300\" is not an address of type IPv4",
            "endpoints[1].addresses: is missing",
            "endpoints[2].addresses[0]: \"::1\" is not an address of type IPv4",
        ],
    );
}

#[test]
fn missing_service_port_or_slice_is_reported_and_the_upstream_has_no_endpoints() {
    let place = "Ingress default/a: spec.rules[0].http.paths[0].backend.service";
    check(
        "80",
        &[],
        "",
        &[&format!("{place}.name: Service default/echo does not exist; requests receive 503")],
    );
    check(
        "8080",
        &[
            service("ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]"),
            slice("one", ONE),
        ],
        "",
        &[&format!("{place}.port: Service default/echo has no port \"8080\", it has 80 (http)")],
    );
    check("dns", &[service("ports: [{name: dns, port: 53, protocol: UDP}]")], "", &["it has no TCP port"]);
    check("80", &[service(HTTP)], "", &["Service default/echo: has no EndpointSlice"]);
    check(
        "80",
        &[service("ports: [{name: web, port: 80}]"), slice("one", ONE)],
        "",
        &[
            "Service default/echo: has no EndpointSlice with a port named \"web\", the name of port 80; its slices have [\"http\"]",
        ],
    );
    // A Service that is scaled to zero is not reported as a problem.
    check("80", &[service(HTTP), slice("one", "ports: [], endpoints: []")], "", &[]);
}

#[test]
fn udp_slice_ports_are_ignored_for_http() {
    let slices = slice(
        "one",
        "ports: [{name: http, port: 53, protocol: UDP}, {name: http, port: 8080, protocol: TCP}], \
         endpoints: [{addresses: [10.0.0.1]}]",
    );
    check("80", &[service(HTTP), slices], "10.0.0.1:8080", &[]);
}

#[test]
fn slice_without_a_service_label_is_reported() {
    let text =
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: a}, addressType: IPv4}";
    assert_problems(
        &serve(text).problems,
        &["EndpointSlice default/a: metadata.labels: has no kubernetes.io/"],
    );
}

#[test]
fn slice_of_another_namespace_is_ignored() {
    let other = slice("one", ONE).replace("{name: one", "{name: one, namespace: other");
    check("80", &[service(HTTP), other], "", &["has no EndpointSlice"]);
}

fn translated(manifests: &str, port: &str) -> (sluicegate_model::Upstream, Option<u16>) {
    let mut store = Store::default();
    let ingress = ingress("name: a", &rules(&[&format!("* Prefix / echo:{port}")]));
    store.set_file(Path::new("m.yaml"), &format!("{ingress}{manifests}"));
    let translation = translate(&store, &TranslateOptions::default());
    let (key, upstream) = translation.config.upstreams.iter().next().unwrap();
    ((**upstream).clone(), translation.external_ports.get(key).copied())
}

#[test]
fn external_name_service_uses_the_target_port_of_the_service_port() {
    let external = "type: ExternalName, externalName: api.example";
    for (ports, port, expected) in [
        ("", "443", Some(443)),
        ("", "https", None),
        (", ports: [{name: https, port: 443}]", "https", Some(443)),
        (", ports: [{port: 80, targetPort: 8080}]", "80", Some(8080)),
        (", ports: [{port: 80}]", "81", None),
    ] {
        let (upstream, external_port) = translated(&service(&format!("{external}{ports}")), port);
        assert_eq!(upstream.external_name.as_deref(), Some("api.example"));
        assert_eq!(external_port, expected, "{ports} {port}");
    }
}

#[test]
fn service_annotations_set_load_balancing_and_limits() {
    let annotated = |annotations: &str| {
        service(HTTP).replace("{name: echo}", &format!("{{name: echo, annotations: {{{annotations}}}}}"))
    };
    let (upstream, _) = translated(
        &annotated(
            "sluicegate.dev/load-balance: LeastRequest, sluicegate.dev/max-requests: \"100\", \
             sluicegate.dev/max-requests-per-endpoint: \"7\"",
        ),
        "80",
    );
    assert_eq!(upstream.balance, Balance::LeastRequest);
    assert_eq!(
        upstream.limits,
        UpstreamLimits { max_requests: Some(100), max_requests_per_endpoint: Some(7) }
    );
    for (annotation, problem) in [
        (
            "sluicegate.dev/load-balance: fair",
            "load-balance]: \"fair\" is unknown: write ResponseTime, RoundRobin or LeastRequest",
        ),
        ("sluicegate.dev/max-requests: \"0\"", "max-requests]: \"0\" is not a number from 1"),
        (
            "sluicegate.dev/max-request: \"1\"",
            "max-request]: is unknown and ignored: did you mean sluicegate.dev/max-requests?",
        ),
        ("sluicegate.dev/unheard-of: \"1\"", "unheard-of]: is unknown and ignored"),
    ] {
        check("80", &[annotated(annotation), slice("one", ONE)], "10.0.0.1:8080", &[problem]);
    }
}

/// The upstream of a route, and the problems. The Ingress and the Service have these annotations, and the port has this
/// `appProtocol`.
fn upstream_protocol(of_ingress: &str, of_service: &str, app_protocol: &str) -> (String, Vec<String>) {
    let text =
        ingress(&format!("name: a, annotations: {{{of_ingress}}}"), &rules(&["t.test Prefix / echo:80"]));
    let service = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: echo, annotations: {{{of_service}}}}}\n\
         spec: {{ports: [{{port: 80, {app_protocol}}}]}}\n"
    );
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), &format!("{text}{service}"));
    let options = TranslateOptions::default();
    let upstream = translate(&store, &options).config.hosts[0].rules[0].backends[0].upstream.to_string();
    let mut problems = served(&store, &options).problems;
    problems.retain(|problem| !problem.contains("has no EndpointSlice"));
    (upstream, problems)
}

#[test]
fn upstream_protocol_is_set_by_ingress_annotation_service_annotation_or_app_protocol() {
    let said = |protocol: &str| format!("sluicegate.dev/backend-protocol: {protocol}");
    for (of_ingress, of_service, port, expected) in [
        ("", "", "", "default/echo:80"),
        ("", "", "appProtocol: https", "default/echo:80 (https echo.default.svc)"),
        ("", "", "appProtocol: kubernetes.io/wss", "default/echo:80 (https echo.default.svc)"),
        ("", "", "appProtocol: kubernetes.io/ws", "default/echo:80"),
        ("", "", "appProtocol: kubernetes.io/h2c", "default/echo:80 (h2c)"),
        ("", "", "appProtocol: example.com/other", "default/echo:80"),
        ("", "GRPC", "", "default/echo:80 (h2c)"),
        ("", "GRPCS", "", "default/echo:80 (h2 echo.default.svc)"),
        ("", "HTTP", "appProtocol: https", "default/echo:80"),
        ("H2", "HTTP", "", "default/echo:80 (h2 echo.default.svc)"),
    ] {
        let [of_ingress, of_service] = [of_ingress, of_service]
            .map(|protocol| if protocol.is_empty() { String::new() } else { said(protocol) });
        let (upstream, problems) = upstream_protocol(&of_ingress, &of_service, port);
        assert_eq!(upstream, expected, "{of_ingress} {of_service} {port}");
        assert_problems(&problems, &[]);
    }
}

#[test]
fn annotations_set_upstream_tls_and_invalid_values_are_reported() {
    let https = "sluicegate.dev/backend-protocol: HTTPS";
    for (annotations, upstream, expected) in [
        (
            format!(
                "{https}, sluicegate.dev/proxy-ssl-name: web.test, sluicegate.dev/proxy-ssl-server-name: \"false\""
            ),
            "default/echo:80 (https web.test, no SNI)",
            vec![],
        ),
        (
            format!("{https}, sluicegate.dev/proxy-ssl-verify: \"true\""),
            "default/echo:80 (https echo.default.svc, verified)",
            vec!["has no CA certificates to verify endpoints with; requests receive 502"],
        ),
        (
            format!("{https}, sluicegate.dev/proxy-ssl-secret: ca"),
            "default/echo:80 (https echo.default.svc, default/ca)",
            vec!["Secret default/ca (sluicegate.dev/proxy-ssl-secret) does not exist"],
        ),
        (
            format!(
                "{https}, sluicegate.dev/proxy-ssl-secret: other/ca, sluicegate.dev/proxy-ssl-verify: \"yes\""
            ),
            "default/echo:80 (https echo.default.svc)",
            vec!["is of another namespace", "\"yes\" is neither \"true\" nor \"false\""],
        ),
        (
            "sluicegate.dev/proxy-ssl-verify: \"true\"".to_owned(),
            "default/echo:80",
            vec!["has no effect without sluicegate.dev/backend-protocol: HTTPS"],
        ),
        (
            "sluicegate.dev/backend-protocol: FCGI".to_owned(),
            "default/echo:80",
            vec!["\"FCGI\" is unknown: write HTTP, HTTPS, H2C, H2, GRPC or GRPCS; HTTP is used"],
        ),
    ] {
        let (upstream_protocol, problems) = upstream_protocol(&annotations, "", "");
        assert_eq!(upstream_protocol, upstream, "{annotations}");
        assert_problems(&problems, &expected);
    }
}
