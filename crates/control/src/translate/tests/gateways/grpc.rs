//! Tests of GRPCRoutes: their matches, their backends, and HTTPRoutes beside them.

use sluicegate_model::{Protocol, RuleMatch};

use super::http::{TO_ECHO, http, http_route, served_hosts};
use super::*;

/// A GRPCRoute with these metadata, parents, hostnames and rules, all in flow style.
pub(super) fn grpc_route(metadata: &str, hostnames: &str, rules: &str) -> String {
    object(
        "GRPCRoute",
        metadata,
        &format!("parentRefs: [{{name: edge}}], hostnames: [{hostnames}], rules: [{rules}]"),
    )
}

/// The rule of a GRPCRoute with this match, to `echo`.
fn rule(of: &str) -> String {
    format!("{{matches: [{of}], {}", &TO_ECHO[1..])
}

#[test]
fn methods_of_a_grpc_route_are_paths_in_the_order_of_gateway_api() {
    let matches = [
        "{method: {service: a.B, method: C}}",
        "{method: {service: a.B}, headers: [{name: h, value: v}]}",
        "{method: {service: a.B}}",
        "{method: {type: RegularExpression, service: a.+, method: C|D}}",
        "{method: {type: RegularExpression, service: a.+}, headers: [{name: h, value: v}]}",
        "{method: {type: RegularExpression, service: a.+}}",
        "{method: {method: C}, headers: [{name: h, value: v}]}",
        "{method: {method: C}}",
        "{headers: [{name: h, value: v}]}",
        "{}",
    ];
    let rules: Vec<String> = matches.iter().map(|of| rule(of)).collect();
    let config = served_hosts(
        &TranslateOptions::default(),
        &[edge(&http("http", 80, "")), grpc_route("name: r", "", &rules.join(", "))],
        &[
            "0.0.0.0:80 * [r/a.B/C r/a.B/ with 1 condition r/a.B/ r^/(?:a.+)/(?:C|D)$ r^/(?:a.+)/(?:[^/]+)$ with 1 condition \
           r^/(?:a.+)/(?:[^/]+)$ r^/(?:[^/]+)/(?:C)$ with 1 condition r^/(?:[^/]+)/(?:C)$ r/ with 1 condition r/]",
        ],
        &[],
    );
    let matches: Vec<&RuleMatch> = config.hosts[0].rules.iter().map(|rule| &rule.matches[0]).collect();
    assert!(matches.is_sorted_by(|one, other| one.precedence < other.precedence), "{matches:?}");
    let types: Vec<&str> = matches.iter().map(|of| of.path.path_type()).collect();
    assert_eq!(types[..3], ["Exact", "ImplementationSpecific", "ImplementationSpecific"]);
}

#[test]
fn invalid_parts_of_a_grpc_route_are_reported_with_their_field() {
    for (rule, problem) in [
        (
            "matches: [{method: {}}]",
            "matches[0].method: names neither a service nor a method; the match is ignored",
        ),
        (
            "matches: [{method: {service: a/b}}]",
            "matches[0].method.service: \"a/b\" is not the name of a gRPC service",
        ),
        ("matches: [{method: {service: a..b}}]", "matches[0].method.service: \"a..b\" is not the name"),
        (
            "matches: [{method: {method: a.b}}]",
            "matches[0].method.method: \"a.b\" is not the name of a gRPC method",
        ),
        (
            "matches: [{method: {type: Glob, method: a}}]",
            "matches[0].method.type: \"Glob\" is unknown: write Exact or",
        ),
        ("matches: [{method: {type: RegularExpression, service: \"a)(b\"}}]", "matches[0].method.service:"),
        ("matches: [{headers: [{name: \"a b\", value: v}]}]", "matches[0].headers[0].name: \"a b\""),
        (
            "filters: [{type: URLRewrite, urlRewrite: {hostname: a.test}}]",
            "filters[0].type: \"URLRewrite\" is not supported in a GRPCRoute; requests receive 500",
        ),
        (
            "filters: [{type: ExtensionRef}]",
            "filters[0].type: \"ExtensionRef\" is not supported; requests receive 500",
        ),
        (
            "sessionPersistence: {sessionName: \"a b\"}",
            "sessionPersistence.sessionName: \"a b\" has invalid characters",
        ),
    ] {
        let rule = format!("{{{rule}, {}", &TO_ECHO[1..]);
        let store = stored(&[edge(&http("http", 80, "")), grpc_route("name: r", "", &rule)].concat());
        let told: Vec<String> = store.problems().map(|problem| problem.to_string()).collect();
        assert_problems(&told, &[&format!("GRPCRoute default/r: spec.rules[0].{problem}")]);
    }
}

#[test]
fn gateway_speaks_http_2_to_the_services_of_a_grpc_route() {
    for (port, annotations, protocol, has_tls) in [
        ("", "", Protocol::Http2, false),
        ("appProtocol: kubernetes.io/h2c", "", Protocol::Http2, false),
        ("appProtocol: http", "", Protocol::Http, false),
        ("appProtocol: https", "", Protocol::Http2, true),
        ("", "sluicegate.dev/backend-protocol: HTTP", Protocol::Http, false),
        ("", "sluicegate.dev/backend-protocol: HTTPS", Protocol::Http2, true),
    ] {
        let service = format!(
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s, annotations: {{{annotations}}}}}\nspec: {{ports: \
             [{{name: p, port: 9, {port}}}]}}\n"
        );
        let route = grpc_route("name: r", "", "{backendRefs: [{name: s, port: 9}]}");
        let translation = translate(
            &stored(&[edge(&http("http", 80, "")), route, service].concat()),
            &TranslateOptions::default(),
        );
        let upstream = &translation.config.hosts[0].rules[0].backends[0].upstream;
        let found = (upstream.transport.protocol, upstream.transport.tls.is_some());
        assert_eq!(found, (protocol, has_tls), "{port} {annotations}");
        assert!(translation.config.upstreams.contains_key(upstream));
    }
}

#[test]
fn older_route_keeps_a_host_name_of_a_listener_from_routes_of_the_other_kind() {
    let aged = |name: &str, year: u16| format!("name: {name}, creationTimestamp: \"{year}-01-01T00:00:00Z\"");
    let all = "{name: edge}";
    served_hosts(
        &TranslateOptions::default(),
        &[
            edge(&[http("one", 80, ""), http("two", 81, "a.test")].join(", ")),
            http_route(&aged("old", 2023), "{name: edge, sectionName: one}", "a.test", TO_ECHO),
            grpc_route(&aged("young", 2024), "\"*.test\", b.example", TO_ECHO),
            grpc_route(&aged("apart", 2025), "b.example", TO_ECHO),
            http_route(&aged("last", 2026), all, "a.test", TO_ECHO),
        ],
        &["0.0.0.0:80 a.test+ [old/ last/]", "0.0.0.0:80 b.example+ [apart/]", "0.0.0.0:81 a.test [young/]"],
        &[
            "GRPCRoute default/young: spec.parentRefs[0]: is not attached to listener one of Gateway default/edge: HTTPRoute default/old (older, or first by name) has the host name a.test there",
            "HTTPRoute default/last: spec.parentRefs[0]: is not attached to listener two of Gateway default/edge: GRPCRoute default/young (older, or first by name) has the host name a.test there",
        ],
    );
}

#[test]
fn listener_accepts_grpc_routes_unless_it_lists_other_kinds() {
    let listener = |kind: &str| {
        format!("{{name: http, protocol: HTTP, port: 80, allowedRoutes: {{kinds: [{{kind: {kind}}}]}}}}")
    };
    let manifests = |kind: &str| [edge(&listener(kind)), grpc_route("name: r", "", TO_ECHO)];
    let options = TranslateOptions::default();
    served_hosts(&options, &manifests("GRPCRoute"), &["0.0.0.0:80 * [r/]"], &[]);
    let refused = "listener http of Gateway default/edge does not accept a GRPCRoute (allowedRoutes.kinds)";
    served_hosts(&options, &manifests("HTTPRoute"), &[], &[refused]);
    let ignored = "\"TCPRoute\" is ignored: a listener for HTTP accepts only HTTPRoute and GRPCRoute";
    served_hosts(&options, &manifests("TCPRoute"), &[], &[ignored, refused]);
}

#[test]
fn grpc_route_needs_a_grant_of_its_own_kind() {
    let grant = |kind: &str| {
        format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: default}}\nspec: \
             {{from: [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: apps}}], to: [{{group: \"\", kind: Service}}]}}\n"
        )
    };
    let listener = "{name: http, protocol: HTTP, port: 80, allowedRoutes: {namespaces: {from: All}}}";
    let route = object(
        "GRPCRoute",
        "name: r, namespace: apps",
        "parentRefs: [{name: edge, namespace: default}], rules: [{backendRefs: [{name: echo, namespace: default, port: 80}]}]",
    );
    let refused = "\"default\": no ReferenceGrant of this namespace allows GRPCRoutes of namespace apps to name Service echo";
    for (kind, problems) in [("GRPCRoute", &[][..]), ("HTTPRoute", &[refused])] {
        let manifests = [edge(listener), route.clone(), grant(kind)];
        let config = served_hosts(&TranslateOptions::default(), &manifests, &["0.0.0.0:80 * [r/]"], problems);
        assert_eq!(config.hosts[0].rules[0].backends[0].is_invalid, !problems.is_empty());
    }
}
