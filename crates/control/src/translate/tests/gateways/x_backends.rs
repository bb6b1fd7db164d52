//! Tests of XBackends: their upstreams, and their state.

use sluicegate_model::{Protocol, UpstreamKey, Verification};
use sluicegate_testkit::tls::Authority;

use super::backend_tls::{authorities, pem, problems, verdicts};
use super::grpc::grpc_route;
use super::http::{http, http_route};
use super::status::statuses_of;
use super::*;
use crate::object::Kind;
use crate::translate::tests::ECHO;
use crate::translate::{Translation, named};
use crate::upstream;

/// An XBackend with this specification.
fn x_backend(metadata: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackend\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n"
    )
}

/// The specification of `api.example:8443` in release 1.7, with these further fields.
fn external(fields: &str) -> String {
    format!(
        "type: ExternalHostname, externalHostname: {{hostname: api.example}}, port: {{number: 8443}}{fields}"
    )
}

/// A verification with the ConfigMap `ca`.
const VALIDATION: &str =
    "validation: {caCertificateRefs: [{group: \"\", kind: ConfigMap, name: ca}], hostname: api.test}";

const SERVER_ONLY: &str = "mode: ServerOnly";

fn tls_fields(mode: &str) -> String {
    format!(", tls: {{{mode}, {VALIDATION}}}")
}

const TO_OUT: &str = "{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: out}]}";

fn ca() -> String {
    authorities("ConfigMap", "ca", &pem())
}

/// The Gateway `edge` with these manifests and the ConfigMap `ca`.
fn store(manifests: &[String]) -> Store {
    stored(&[edge(&http("http", 80, "")), ca(), manifests.concat()].concat())
}

fn translated(store: &Store) -> Translation {
    translate(store, &TranslateOptions::default())
}

/// The upstreams with their external names and ports.
fn externals(translation: &Translation) -> Vec<String> {
    let upstreams = translation.config.upstreams.iter();
    let external = upstreams.map(|(key, upstream)| {
        let name = upstream.external_name.as_deref().unwrap_or("-");
        let port = translation.external_ports.get(key).map_or("-".to_owned(), u16::to_string);
        format!("{key} = {name} {port}")
    });
    external.collect()
}

#[test]
fn x_backend_of_both_releases_is_an_external_host_with_a_port() {
    for (port, list) in [("{number: 8443}", "ancestor"), ("{name: https, port: 8443}", "parent")] {
        let backend = x_backend("name: out", &external("").replace("{number: 8443}", port));
        let store = store(&[http_route("name: r", "{name: edge}", "", TO_OUT), backend]);
        let translation = translated(&store);
        assert_problems(&problems(&store, &translation), &[]);
        // The final dot keeps the resolver from trying the search domains of the cluster.
        assert_lines(&externals(&translation), &["default/XBackend/out:8443 = api.example. 8443"]);
        assert_lines(
            &statuses_of(&store),
            &[
                "Gateway edge: Accepted",
                "- http HTTPRoute+GRPCRoute 1: Accepted ResolvedRefs Programmed",
                "HTTPRoute r at edge *: Accepted ResolvedRefs",
                &format!("XBackend out of {list} edge: Accepted"),
            ],
        );
    }
}

#[test]
fn protocol_of_an_x_backend_replaces_the_protocol_of_the_route() {
    let secure = tls_fields(SERVER_ONLY);
    let with_tls = |protocol: &str| format!(", protocol: {protocol}{secure}");
    for (fields, of_http, of_grpc) in [
        (String::new(), "", " (h2c)"),
        (", tls: {mode: None}".to_owned(), "", " (h2c)"),
        (", protocol: HTTP".to_owned(), "", ""),
        (", protocol: HTTP11".to_owned(), "", ""),
        (", protocol: H2C".to_owned(), " (h2c)", " (h2c)"),
        (", protocol: GRPC".to_owned(), " (h2c)", " (h2c)"),
        (secure.clone(), " (https api.test, verified)", " (h2 api.test, verified)"),
        (with_tls("HTTP"), " (https api.test, verified)", " (https api.test, verified)"),
        (with_tls("HTTP2"), " (h2 api.test, verified)", " (h2 api.test, verified)"),
        (with_tls("WSS"), " (https api.test, verified)", " (https api.test, verified)"),
    ] {
        for (route, transport) in [
            (http_route("name: r", "{name: edge}", "", TO_OUT), of_http),
            (grpc_route("name: r", "", TO_OUT), of_grpc),
        ] {
            let store = store(&[route, x_backend("name: out", &external(&fields))]);
            let translation = translated(&store);
            assert_problems(&problems(&store, &translation), &[]);
            let expected = format!("default/XBackend/out:8443{transport} = api.example. 8443");
            assert_lines(&externals(&translation), &[&expected]);
        }
    }
}

#[test]
fn tls_of_an_x_backend_verifies_the_host_and_presents_a_client_certificate() {
    let client = Authority::of_process().issue(&["client.test"]).secret("client");
    let gateway_tls = "gatewayClassName: sluicegate, listeners: [{name: http, protocol: HTTP, port: 80}], tls: {backend: \
                       {clientCertificateRef: {name: client}}}";
    let mutual = "mode: ClientAndServer, clientCertificateRef: {name: client}";
    for (mode, is_known) in [(SERVER_ONLY, false), (mutual, true)] {
        let manifests = [
            object("Gateway", "name: edge", gateway_tls),
            http_route("name: r", "{name: edge}", "", TO_OUT),
            x_backend("name: out", &external(&tls_fields(mode))),
            client.clone(),
            ca(),
        ];
        let store = stored(&manifests.concat());
        let translation = translated(&store);
        assert_problems(&problems(&store, &translation), &[]);
        let (_, upstream) = translation.config.upstreams.first_key_value().unwrap();
        let tls = upstream.tls.as_ref().expect("TLS");
        assert_eq!((&*tls.server_name, tls.sends_name), ("api.test", true));
        assert!(matches!(&tls.verification, Verification::Authorities { roots, .. } if roots.len() == 1));
        // The certificate of the Gateway is for BackendTLSPolicies.
        assert_eq!(tls.identity.is_some(), is_known, "{mode}");
        let named = named::Named::find(&store, &TranslateOptions::default());
        assert!(named.others.iter().any(|object| *object.name == *"ca"), "{named:?}");
        assert!(named.certificates.iter().any(|object| *object.name == *"client"), "{named:?}");
    }
}

#[test]
fn invalid_x_backend_receives_no_request() {
    let on = |fields: &str| external(fields);
    let invalid = "InvalidBackend";
    for (spec, accepted, problem) in [
        ("port: {number: 1}".to_owned(), "Invalid", "spec.type: is missing"),
        (on("").replace("ExternalHostname,", "Pod,"), "Invalid", "spec.type: \"Pod\" is unknown"),
        (
            "type: EndpointSelector, endpointSelector: {matchLabels: {app: a}}, port: {number: 1}".to_owned(),
            "UnsupportedValue",
            "spec.type: EndpointSelector is not supported: create a Service for the pods",
        ),
        (on("").replace("api.example", "\"\""), "Invalid", "hostname: is missing"),
        (on("").replace("api.example", "10.0.0.1"), "Invalid", "is an IP address"),
        (
            on("").replace("api.example", "api.svc.cluster.local."),
            "Invalid",
            "hostname: \"api.svc.cluster.local.\"",
        ),
        (
            on("").replace("api.example", "api.svc.Cluster.Local"),
            "Invalid",
            "hostname: \"api.svc.Cluster.Local\"",
        ),
        (on("").replace("api.example", "\"*.example\""), "Invalid", "must not be a wildcard"),
        (
            on("").replace("api.example", "shop.default.svc.cluster.local"),
            "Invalid",
            "hostname: shop.default.svc.cluster.local is a name of the cluster",
        ),
        (
            on("").replace("number: 8443", "number: 0"),
            "Invalid",
            "spec.port.number: is not between 1 and 65535",
        ),
        (on("").replace("number: 8443", "port: 65536"), "Invalid", "spec.port.port: is not between"),
        (on("").replace("number: 8443", ""), "Invalid", "spec.port: is missing"),
        (on(", protocol: MCP"), "UnsupportedValue", "spec.protocol: MCP is not supported"),
        (on(", protocol: HTTP3"), "Invalid", "spec.protocol: \"HTTP3\" is unknown"),
        (on(", protocol: HTTP2"), "Invalid", "spec.protocol: HTTP2 needs TLS"),
        (on(", protocol: WSS"), "Invalid", "spec.protocol: WSS needs TLS"),
        (
            on(&format!(", protocol: H2C{}", tls_fields(SERVER_ONLY))),
            "Invalid",
            "spec.protocol: H2C is without TLS",
        ),
        (on(", tls: {}"), "Invalid", "spec.tls.mode: is missing"),
        (on(", tls: {mode: Maybe}"), "Invalid", "spec.tls.mode: \"Maybe\" is unknown"),
        (on(", tls: {mode: ServerOnly}"), "Invalid", "spec.tls.validation.caCertificateRefs: is missing"),
        (on(&tls_fields("mode: ClientAndServer")), "Invalid", "spec.tls.clientCertificateRef: is missing"),
        (
            on(&tls_fields("mode: ServerOnly, clientCertificateRef: {name: client}")),
            "Invalid",
            "spec.tls.clientCertificateRef: is only for mode ClientAndServer",
        ),
        (
            on(&tls_fields("mode: ClientAndServer, clientCertificateRef: {kind: ConfigMap, name: client}")),
            "InvalidClientCertificateRef",
            "spec.tls.clientCertificateRef.kind: \"ConfigMap\" is not supported",
        ),
        (
            on(&tls_fields("mode: ClientAndServer, clientCertificateRef: {name: none}")),
            "InvalidClientCertificateRef",
            "spec.tls.clientCertificateRef: Secret default/none does not exist",
        ),
        (
            on(&tls_fields("mode: ClientAndServer, clientCertificateRef: {name: a, namespace: other}")),
            "RefNotPermitted",
            "no ReferenceGrant of namespace other allows an XBackend of namespace default to name Secret other/a",
        ),
        (
            on(&tls_fields(SERVER_ONLY).replace("name: ca", "name: none")),
            "NoValidCACertificate",
            "spec.tls.validation.caCertificateRefs[0]: ConfigMap default/none does not exist",
        ),
    ] {
        let store =
            store(&[http_route("name: r", "{name: edge}", "", TO_OUT), x_backend("name: out", &spec)]);
        let translation = translated(&store);
        assert!(translation.config.hosts[0].rules[0].backends[0].is_invalid, "{spec}");
        assert!(translation.config.upstreams.is_empty(), "{spec}");
        let told = problems(&store, &translation).join("\n");
        assert!(told.contains(problem), "{problem}: {told}");
        assert!(told.contains("XBackend default/out is invalid: "), "{told}");
        let states = statuses_of(&store);
        let of_route = format!("HTTPRoute r at edge *: Accepted ResolvedRefs=false({invalid})");
        assert_eq!(states[2], of_route, "{spec}");
        let list = if spec.contains("port: 65536") { "parent" } else { "ancestor" };
        assert_eq!(states[3], format!("XBackend out of {list} edge: Accepted=false({accepted})"), "{spec}");
    }
}

#[test]
fn x_backend_of_another_namespace_receives_no_request_even_with_a_reference_grant() {
    let route = |kind: &str| {
        let backend = "{group: gateway.networking.x-k8s.io, kind: XBackend, name: out, namespace: other}";
        object(
            kind,
            "name: r",
            &format!("parentRefs: [{{name: edge}}], rules: [{{backendRefs: [{backend}]}}]"),
        )
    };
    let grant = |kind: &str, to: &str| {
        object(
            "ReferenceGrant",
            "name: g, namespace: other",
            &format!(
                "from: [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: default}}], to: [{{{to}}}]"
            ),
        )
    };
    let listeners = format!("{}, {}", http("http", 80, ""), tcp("tcp", 81));
    let to = "group: gateway.networking.x-k8s.io, kind: XBackend";
    for kind in ["HTTPRoute", "TCPRoute"] {
        for grants in [grant(kind, to), grant(kind, &format!("{to}, name: out")), String::new()] {
            let manifests = [
                edge(&listeners),
                route(kind),
                x_backend("name: out, namespace: other", &external("")),
                grants,
            ];
            let store = stored(&manifests.concat());
            let translation = translated(&store);
            assert!(!externals(&translation).join("").contains("api.example."), "{manifests:?}");
            match kind {
                "HTTPRoute" => assert!(translation.config.hosts[0].rules[0].backends[0].is_invalid),
                _ => assert_lines(&externals(&translation), &["default/(refused):- (tcp) = - -"]),
            }
            let told = problems(&store, &translation).join("\n");
            let message = format!(
                "spec.rules[0].backendRefs[0].namespace: \"other\": XBackend other/out is not in the namespace of the {kind}, and no \
                 ReferenceGrant allows this; create an XBackend in namespace default"
            );
            assert!(told.contains(&message), "{told}");
            let states = statuses_of(&store).join("\n");
            let state = format!("{kind} r at edge *: Accepted ResolvedRefs=false(RefNotPermitted)");
            assert!(states.contains(&state), "{states}");
            assert!(!states.contains("XBackend out of"), "{states}");
        }
    }
}

#[test]
fn client_certificate_of_another_namespace_needs_a_grant_for_x_backends() {
    let secret = Authority::of_process().issue(&["client.test"]).secret("client");
    let secret = secret.replace("name: client", "name: client, namespace: other");
    assert!(secret.contains("namespace: other"), "{secret}");
    let mode = "mode: ClientAndServer, clientCertificateRef: {name: client, namespace: other}";
    for (group, is_granted) in [("gateway.networking.x-k8s.io", true), ("gateway.networking.k8s.io", false)] {
        let from = format!("{{group: {group}, kind: XBackend, namespace: default}}");
        let grant = object(
            "ReferenceGrant",
            "name: g, namespace: other",
            &format!("from: [{from}], to: [{{group: \"\", kind: Secret}}]"),
        );
        let store = store(&[
            http_route("name: r", "{name: edge}", "", TO_OUT),
            x_backend("name: out", &external(&tls_fields(mode))),
            secret.clone(),
            grant,
        ]);
        let translation = translated(&store);
        assert_eq!(translation.config.hosts[0].rules[0].backends[0].is_invalid, !is_granted, "{group}");
    }
}

#[test]
fn connections_of_tcp_and_tls_routes_reach_an_x_backend() {
    let route = |kind: &str, name: &str, hostnames: &str| {
        let hostnames =
            if hostnames.is_empty() { String::new() } else { format!("hostnames: [{hostnames}], ") };
        object(
            kind,
            &format!("name: {name}"),
            &format!("parentRefs: [{{name: edge, sectionName: {name}}}], {hostnames}rules: [{TO_OUT}]"),
        )
    };
    let terminated =
        "{name: t, protocol: TLS, port: 8444, tls: {mode: Terminate, certificateRefs: [{name: cert}]}}";
    let listeners = [tcp("x", 5432), tls("p", 8443, ""), terminated.to_owned()].join(", ");
    let plain = "default/XBackend/out:8443 (tcp)";
    let secured = "default/XBackend/out:8443 (tls api.test, verified)";
    let refused = "default/(refused):- (tcp)";
    for (fields, of_tcp, of_passthrough) in [
        ("", plain, plain),
        (", protocol: TCP", plain, plain),
        (&*tls_fields(SERVER_ONLY), secured, plain),
        (", protocol: HTTP", refused, refused),
    ] {
        let manifests = [
            edge(&listeners),
            route("TCPRoute", "x", ""),
            route("TLSRoute", "p", "p.test"),
            route("TLSRoute", "t", "t.test"),
            x_backend("name: out", &external(fields)),
            Authority::of_process().issue(&["t.test"]).secret("cert"),
            ca(),
        ];
        let store = stored(&manifests.concat());
        let translation = translated(&store);
        let mut found = Vec::new();
        for listener in &translation.config.listeners {
            for (host, route) in listener.serves.routes() {
                found.push(format!("{host} {}", route.backends[0].upstream));
            }
        }
        for host in &translation.config.tls.hosts {
            found.extend(
                host.relay.iter().map(|relay| format!("{} {}", host.host, relay.backends[0].upstream)),
            );
        }
        found.sort();
        let expected =
            [format!("* {of_tcp}"), format!("p.test {of_passthrough}"), format!("t.test {of_tcp}")];
        assert_lines(&found, &expected.each_ref().map(|line| &**line));
        let states = statuses_of(&store).join("\n");
        let reason =
            if of_tcp == refused { "ResolvedRefs=false(UnsupportedProtocol)" } else { "ResolvedRefs" };
        assert!(states.contains(&format!("TCPRoute x at edge x: Accepted {reason}")), "{states}");
        assert!(states.contains("XBackend out of ancestor edge: Accepted"), "{states}");
    }
}

#[test]
fn service_with_the_name_of_the_upstream_of_an_x_backend_is_refused() {
    let listeners = [
        http("http", 80, ""),
        tcp("tcp", 5432),
        tls("tls", 8443, ""),
        "{name: udp, protocol: UDP, port: 53}".to_owned(),
    ];
    let edge = edge(&listeners.join(", "));
    let field = "spec.rules[0].backendRefs[0].name";
    let refused = "\"XBackend/out\" has upper-case letters";
    let of_route = |kind: &str, section: &str| {
        let parent = format!("{{name: edge, sectionName: {section}}}");
        let hosts: &[&str] = if kind == "TLSRoute" { &["a.test"] } else { &[] };
        attached(kind, "name: r", &parent, hosts, &["XBackend/out:8443"])
    };
    let of_http =
        http_route("name: r", "{name: edge}", "", "{backendRefs: [{name: XBackend/out, port: 8443}]}");
    let passed = "name: i, annotations: {sluicegate.dev/ssl-passthrough: \"true\"}";
    for (manifest, field) in [
        (of_route("TCPRoute", "tcp"), field),
        (of_route("TLSRoute", "tls"), field),
        (of_route("UDPRoute", "udp"), field),
        (of_http, field),
        (
            ingress("name: i", &rules(&["a.test Prefix / XBackend/out:8443"])),
            "spec.rules[0].http.paths[0].backend.service.name",
        ),
        (
            ingress(passed, &rules(&["a.test Prefix / XBackend/out:8443"])),
            "spec.rules[0].http.paths[0].backend.service.name",
        ),
        (
            ingress("name: i", "defaultBackend: {service: {name: XBackend/out, port: {number: 8443}}}"),
            "spec.defaultBackend.service.name",
        ),
    ] {
        let backend = x_backend("name: out", &external(&tls_fields(SERVER_ONLY)));
        let store = stored(&[edge.clone(), manifest.clone(), backend, ca()].concat());
        let translation = translated(&store);
        let reached = externals(&translation).into_iter().filter(|line| line.contains("api.example."));
        assert_eq!(reached.count(), 0, "{manifest}");
        let told = problems(&store, &translation).join("\n");
        assert!(told.contains(&format!("{field}: {refused}")), "{told}");
    }
}

#[test]
fn key_of_a_service_never_leads_to_an_x_backend() {
    let store = store(&[x_backend("name: out", &external(""))]);
    let named = UpstreamKey::new("default", "XBackend/out", "8443");
    let UpstreamKey { namespace, service, port, .. } = &named;
    let of_http = upstream::key(&store, &named, None, None);
    let of_tcp = upstream::layer4_key(&store, (namespace, service, port), Protocol::Tcp);
    for key in [of_http, of_tcp] {
        assert_eq!(upstream::resolve(&store, &key).upstream.external_name, None, "{key}");
    }
    assert!(upstream::resolve(&store, &named).upstream.external_name.is_some());
}

#[test]
fn mirror_of_an_x_backend_receives_copies() {
    let rule = "{filters: [{type: RequestMirror, requestMirror: {backendRef: {group: gateway.networking.x-k8s.io, kind: XBackend, name: \
                out}}}], backendRefs: [{name: echo, port: 80}]}";
    let store = store(&[
        http_route("name: r", "{name: edge}", "", rule),
        x_backend("name: out", &external("")),
        ECHO.to_owned(),
    ]);
    let translation = translated(&store);
    assert_problems(&problems(&store, &translation), &[]);
    let traffic = translation.config.hosts[0].rules[0].traffic.as_ref().unwrap();
    let mirrors: Vec<String> =
        traffic.features.mirrors.iter().map(|mirror| mirror.upstream.to_string()).collect();
    assert_eq!(mirrors, ["default/XBackend/out:8443"]);
    assert_eq!(externals(&translation)[0], "default/XBackend/out:8443 = api.example. 8443");
    assert_eq!(statuses_of(&store)[3], "XBackend out of ancestor edge: Accepted");
}

#[test]
fn http_route_to_an_x_backend_with_protocol_tcp_is_not_resolved() {
    let store = store(&[
        http_route("name: r", "{name: edge}", "", TO_OUT),
        x_backend("name: out", &external(", protocol: TCP")),
    ]);
    assert!(translated(&store).config.hosts[0].rules[0].backends[0].is_invalid);
    let states = statuses_of(&store);
    assert_eq!(states[2], "HTTPRoute r at edge *: Accepted ResolvedRefs=false(UnsupportedProtocol)");
    assert_eq!(states[3], "XBackend out of ancestor edge: Accepted");
}

#[test]
fn x_backend_that_does_not_exist_or_is_of_another_group_is_reported() {
    for (backend, reason, problem) in [
        (
            "group: gateway.networking.x-k8s.io, kind: XBackend, name: none",
            "BackendNotFound",
            // Without the right to read XBackends, the gateway knows none.
            "XBackend default/none is not found; create it, or grant Sluicegate the right to list and watch xbackends",
        ),
        (
            "kind: XBackend, name: out, port: 1",
            "InvalidKind",
            "\"XBackend\" is not supported: name a Service",
        ),
        (
            "group: gateway.networking.x-k8s.io, kind: Service, name: out, port: 1",
            "InvalidKind",
            "is not supported",
        ),
    ] {
        let rule = format!("{{backendRefs: [{{{backend}}}]}}");
        let store = store(&[http_route("name: r", "{name: edge}", "", &rule)]);
        let told = problems(&store, &translated(&store)).join("\n");
        assert!(told.contains(problem), "{told}");
        let states = statuses_of(&store);
        assert_eq!(states[2], format!("HTTPRoute r at edge *: Accepted ResolvedRefs=false({reason})"));
    }
    let udp = object(
        "UDPRoute",
        "name: u",
        "parentRefs: [{name: edge}], rules: [{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: out}]}]",
    );
    let edge = edge("{name: udp, protocol: UDP, port: 53}");
    let store = stored(&[edge, udp, x_backend("name: out", &external(""))].concat());
    let states = statuses_of(&store).join("\n");
    assert!(states.contains("UDPRoute u at edge *: Accepted ResolvedRefs=false(InvalidKind)"), "{states}");
}

#[test]
fn x_backend_without_its_crd_is_an_invalid_kind() {
    let mut store = store(&[http_route("name: r", "{name: edge}", "", TO_OUT)]);
    assert!(store.set_lacks(Kind::XBackend, true).routing);
    assert_eq!(statuses_of(&store)[2], "HTTPRoute r at edge *: Accepted ResolvedRefs=false(InvalidKind)");
    store.set_lacks(Kind::XBackend, false);
    assert_eq!(statuses_of(&store)[2], "HTTPRoute r at edge *: Accepted ResolvedRefs=false(BackendNotFound)");
}

#[test]
fn last_valid_version_of_an_x_backend_stays_in_service() {
    let mut store = store(&[http_route("name: r", "{name: edge}", "", TO_OUT)]);
    store.set_file(Path::new("x.yaml"), &x_backend("name: out", &external("")));
    store.set_file(Path::new("x.yaml"), &x_backend("name: out", &external(", protocol: HTTP3")));
    assert_lines(&externals(&translated(&store)), &["default/XBackend/out:8443 = api.example. 8443"]);
    assert_eq!(statuses_of(&store)[3], "XBackend out of ancestor edge: Accepted=false(Invalid)");
}

#[test]
fn x_backend_without_a_route_has_no_ancestor_and_no_upstream() {
    let store = store(&[x_backend("name: out", &external(", protocol: HTTP3"))]);
    let translation = translated(&store);
    assert!(translation.config.upstreams.is_empty());
    let states = translation.statuses.iter().filter(|status| status.object.kind == Kind::XBackend);
    assert_eq!(states.count(), 1, "former ancestors are removed");
    assert_eq!(statuses_of(&store).len(), 2);
}

#[test]
fn backend_traffic_policy_applies_to_an_x_backend() {
    let policy = "---\napiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\nmetadata: {name: p}\nspec: \
                  {targetRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: out}], retryConstraint: {}}\n";
    let store = store(&[
        http_route("name: r", "{name: edge}", "", TO_OUT),
        x_backend("name: out", &external("")),
        policy.to_owned(),
    ]);
    let translation = translated(&store);
    assert_problems(&problems(&store, &translation), &[]);
    let (_, upstream) = translation.config.upstreams.first_key_value().unwrap();
    assert!(upstream.retry_constraint.is_some());
    assert_eq!(statuses_of(&store)[3], "XBackendTrafficPolicy p at edge: Accepted");
}

#[test]
fn backend_traffic_policy_of_a_missing_or_invalid_x_backend_has_an_ancestor() {
    let policy = "---\napiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\nmetadata: {name: p}\nspec: \
                  {targetRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: out}], retryConstraint: {}}\n";
    let invalid = x_backend("name: out", &external(", protocol: HTTP3"));
    for (backend, expected) in [(String::new(), "TargetNotFound"), (invalid, "Accepted")] {
        let route = http_route("name: r", "{name: edge}", "", TO_OUT);
        let translation = translated(&store(&[route, backend, policy.to_owned()]));
        assert_lines(&verdicts(&translation), &[&format!("p edge: {expected}")]);
    }
    let translation = translated(&store(&[policy.to_owned()]));
    assert_lines(&verdicts(&translation), &[]);
}

#[test]
fn backend_traffic_policy_of_a_service_never_applies_to_an_x_backend() {
    let policy = "---\napiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\nmetadata: {name: p}\nspec: \
                  {targetRefs: [{group: \"\", kind: Service, name: XBackend/out}], retryConstraint: {}}\n";
    let store = store(&[
        http_route("name: r", "{name: edge}", "", TO_OUT),
        x_backend("name: out", &external("")),
        policy.to_owned(),
    ]);
    let translation = translated(&store);
    let told = problems(&store, &translation).join("\n");
    assert!(told.contains("spec.targetRefs[0].name: \"XBackend/out\" has upper-case letters"), "{told}");
    let (_, upstream) = translation.config.upstreams.first_key_value().unwrap();
    assert_eq!(upstream.retry_constraint, None);
}
