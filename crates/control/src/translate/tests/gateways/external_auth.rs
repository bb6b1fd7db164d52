//! Tests of the filter `ExternalAuth` of HTTPRoutes, and of the filters of listeners.

use sluicegate_model::feature::ExternalAuthProtocol;
use sluicegate_model::{Config, Protocol};

use super::http::{TO_ECHO, http, http_route};
use super::status::statuses;
use super::*;
use crate::translate::tests::ECHO;

/// The Service `authz` with port 9000.
const AUTHZ: &str = "
---
apiVersion: v1
kind: Service
metadata: {name: authz}
spec: {ports: [{port: 9000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: authz-1, labels: {kubernetes.io/service-name: authz}}
addressType: IPv4
ports: [{port: 9000}]
endpoints: [{addresses: [10.0.0.9]}]
";

const HTTP: &str = "protocol: HTTP, backendRef: {name: authz, port: 9000}";

fn filter(fields: &str) -> String {
    format!("{{type: ExternalAuth, externalAuth: {{{fields}}}}}")
}

/// A route of the Gateway `edge` with this filter in its only rule.
fn filtered(fields: &str) -> String {
    let rule = format!("{{filters: [{}], backendRefs: [{{name: echo, port: 80}}]}}", filter(fields));
    http_route("name: r", "{name: edge}", "", &rule)
}

/// A listener with these filters.
fn listener(hostname: &str, filters: &str) -> String {
    let listener = http(if hostname.is_empty() { "all" } else { "some" }, 80, hostname);
    format!("{}, filters: {{requests: [{filters}]}}}}", &listener[..listener.len() - 1])
}

fn store(manifests: &[String]) -> Store {
    stored(&format!("{}{ECHO}{AUTHZ}", manifests.concat()))
}

fn config(manifests: &[String]) -> Config {
    translate(&store(manifests), &TranslateOptions::default()).config
}

fn problems(store: &Store) -> Vec<String> {
    let translation = translate(store, &TranslateOptions::default());
    store.problems().chain(translation.problems).map(|problem| problem.to_string()).collect()
}

/// Whether each rule responds with 500.
fn is_closed(config: &Config) -> bool {
    let mut rules = config.rules();
    rules.all(|rule| {
        let features = rule.traffic.as_ref().map(|traffic| &traffic.features);
        features
            .and_then(|features| features.direct_response.as_ref())
            .is_some_and(|response| response.status_code.get() == 500)
    })
}

#[test]
fn filter_names_the_upstream_of_its_service_and_the_headers() {
    let edge = edge(&http("http", 80, ""));
    let http = "protocol: HTTP, backendRef: {name: authz, port: 9000}, forwardBody: {maxSize: 1000}, http: {path: auth/, \
                allowedHeaders: [Cookie], allowedResponseHeaders: [X-User]}";
    let found = config(&[edge.clone(), filtered(http)]);
    let security = found.hosts[0].rules[0].security.as_ref().unwrap();
    let [of_http] = &security.filters[..] else { panic!("{security:?}") };
    let ExternalAuthProtocol::Http { path, response_headers } = &of_http.protocol else { panic!() };
    assert_eq!(
        (path.as_ref().map(|path| path.as_str()), response_headers[0].as_str()),
        (Some("/auth/"), "x-user")
    );
    assert_eq!((of_http.request_headers[0].as_str(), of_http.body), ("cookie", 1000));
    assert_eq!(of_http.upstream.transport.protocol, Protocol::Http);
    assert_eq!(found.upstreams[&of_http.upstream].endpoints.len(), 1);
    let grpc = "protocol: GRPC, backendRef: {name: authz, port: 9000}, grpc: {allowedHeaders: [X-A]}";
    let found = config(&[edge, filtered(grpc)]);
    let of_grpc = &found.hosts[0].rules[0].security.as_ref().unwrap().filters[0];
    assert_eq!(of_grpc.protocol, ExternalAuthProtocol::Grpc);
    assert_eq!(of_grpc.upstream.transport.protocol, Protocol::Http2);
    assert_eq!(found.upstreams[&of_grpc.upstream].endpoints.len(), 1);
}

#[test]
fn rule_with_an_invalid_filter_responds_with_500_and_is_not_accepted() {
    for (fields, problem) in [
        ("backendRef: {name: authz, port: 9000}", "externalAuth.protocol: is missing: write HTTP or GRPC"),
        ("protocol: FTP, backendRef: {name: authz, port: 9000}", "protocol: \"FTP\" is not supported"),
        ("protocol: HTTP", "externalAuth.backendRef: is missing: name a Service"),
        (&format!("{HTTP}, grpc: {{}}"), "externalAuth.grpc: needs protocol: GRPC"),
        (
            &format!("{HTTP}, http: {{allowedResponseHeaders: [Host]}}"),
            "allowedResponseHeaders[0]: \"Host\" can only be",
        ),
        (&format!("{HTTP}, http: {{allowedHeaders: [\"a b\"]}}"), "externalAuth.http.allowedHeaders[0]: "),
        (&format!("{HTTP}, http: {{path: /a?b}}"), "externalAuth.http.path: has a '?'"),
        (
            &format!("{HTTP}, forwardBody: {{maxSize: 1048577}}"),
            "maxSize: 1048577 is not between 0 and 1048576",
        ),
    ] {
        let manifests = [edge(&http("http", 80, "")), filtered(fields)];
        let store = store(&manifests);
        let told = problems(&store);
        let end = "; requests receive 500";
        assert!(told.iter().any(|told| told.contains(problem) && told.ends_with(end)), "{fields}: {told:#?}");
        assert!(is_closed(&config(&manifests)), "{fields}");
        let status = statuses(&manifests);
        assert!(
            status
                .contains(&"HTTPRoute r at edge *: Accepted=false(UnsupportedValue) ResolvedRefs".to_owned()),
            "{status:#?}"
        );
    }
}

#[test]
fn rule_whose_filter_names_no_usable_service_responds_with_500() {
    let of = |backend: &str| format!("protocol: HTTP, backendRef: {{{backend}}}");
    for (backend, reason, problem) in [
        (
            "name: none, port: 9000",
            "BackendNotFound",
            "externalAuth.backendRef.name: Service default/none does not exist",
        ),
        (
            "name: authz, port: 1",
            "BackendNotFound",
            "externalAuth.backendRef.port: Service default/authz has no port 1",
        ),
        ("name: authz", "BackendNotFound", "externalAuth.backendRef.port: is missing"),
        (
            "name: authz, port: 9000, kind: Other",
            "InvalidKind",
            "externalAuth.backendRef.kind: \"Other\" is not supported",
        ),
        (
            "name: authz, port: 9000, namespace: x",
            "RefNotPermitted",
            "externalAuth.backendRef.namespace: \"x\": no ReferenceGrant",
        ),
    ] {
        let manifests = [edge(&http("http", 80, "")), filtered(&of(backend))];
        let told = problems(&store(&manifests));
        let end = "; requests receive 500";
        assert!(
            told.iter().any(|told| told.contains(problem) && told.ends_with(end)),
            "{backend}: {told:#?}"
        );
        assert!(is_closed(&config(&manifests)), "{backend}");
        let status = statuses(&[manifests.concat(), AUTHZ.to_owned()]);
        let expected = format!("HTTPRoute r at edge *: Accepted ResolvedRefs=false({reason})");
        assert!(status.contains(&expected), "{backend}: {status:#?}");
    }
}

#[test]
fn reference_grant_allows_filters_of_routes_and_of_listeners() {
    let grant = |kind: &str| {
        object(
            "ReferenceGrant",
            "name: g, namespace: x",
            &format!(
                "from: [{{group: gateway.networking.k8s.io, kind: {kind}, namespace: default}}], to: [{{group: \"\", kind: Service}}]"
            ),
        )
    };
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: far, namespace: x}\nspec: {ports: [{port: 1}]}\n";
    let far = "protocol: HTTP, backendRef: {name: far, namespace: x, port: 1}";
    let route = [edge(&http("http", 80, "")), filtered(far), grant("HTTPRoute"), service.to_owned()];
    assert_eq!(config(&route).hosts[0].rules[0].security.as_ref().unwrap().filters.len(), 1);
    for (kind, is_allowed) in [("Gateway", true), ("HTTPRoute", false)] {
        let edge = edge(&listener("", &filter(far)));
        let found = config(&[edge, grant(kind), service.to_owned()]);
        let filters = found.hosts[0].filters.as_ref().unwrap();
        assert_eq!((filters.filters.len(), filters.refuses.is_none()), (usize::from(is_allowed), is_allowed));
    }
}

#[test]
fn filter_that_becomes_invalid_replaces_the_last_valid_version_without_the_filter() {
    let mut store = store(&[edge(&http("http", 80, "")), http_route("name: r", "{name: edge}", "", TO_ECHO)]);
    let translated = |store: &Store| translate(store, &TranslateOptions::default()).config;
    assert!(!is_closed(&translated(&store)));
    let invalid = [edge(&http("http", 80, "")), filtered("protocol: HTTP"), ECHO.to_owned()].concat();
    store.set_file(Path::new("m.yaml"), &invalid);
    assert!(is_closed(&translated(&store)));
    // So does the filter of a listener.
    let invalid = [edge(&listener("", &filter("protocol: HTTP"))), ECHO.to_owned()].concat();
    store.set_file(Path::new("m.yaml"), &invalid);
    assert!(translated(&store).hosts[0].filters.as_ref().unwrap().refuses.is_some());
}

#[test]
fn filters_of_a_listener_apply_to_all_its_hosts_in_order() {
    let other = "protocol: GRPC, backendRef: {name: authz, port: 9000}, grpc: {}";
    let filters = [filter(HTTP), filter(other)].join(", ");
    let listeners = [listener("*.example.com", &filters), http("all", 80, "")].join(", ");
    let manifests =
        [edge(&listeners), http_route("name: r", "{name: edge}", "a.example.com, b.test", TO_ECHO)];
    let found = config(&manifests);
    let hosts = found.hosts.iter().map(|host| {
        let protocols =
            host.filters.iter().flat_map(|filters| &filters.filters).map(|filter| match filter.protocol {
                ExternalAuthProtocol::Grpc => "grpc",
                ExternalAuthProtocol::Http { .. } => "http",
            });
        format!("{}: {}", host.host, protocols.collect::<Vec<_>>().join(" "))
    });
    assert_lines(
        &hosts.collect::<Vec<_>>(),
        &["a.example.com: http grpc", "b.test: ", "*.example.com: http grpc"],
    );
    assert_lines(&problems(&store(&manifests)), &[]);
    assert_eq!(found.upstreams.len(), 3);
    // A listener for all hosts decides about requests without a route too.
    let found = config(&[edge(&listener("", &filter(HTTP)))]);
    assert_eq!((found.hosts.len(), found.hosts[0].rules.len()), (1, 0));
    assert_eq!(found.hosts[0].filters.as_ref().unwrap().filters.len(), 1);
    let set = object(
        "ListenerSet",
        "name: s",
        &format!("parentRef: {{name: edge}}, listeners: [{}]", listener("c.test", &filter(HTTP))),
    );
    let parent = object(
        "Gateway",
        "name: edge",
        "gatewayClassName: sluicegate, allowedListeners: {namespaces: {from: Same}}, listeners: [{name: x, protocol: HTTP, port: 81}]",
    );
    let found = config(&[parent, set]);
    assert_eq!(found.hosts[0].filters.as_ref().unwrap().id.kind, "ListenerSet");
}

#[test]
fn listener_with_an_invalid_filter_has_the_reason_and_denies_all_requests() {
    let status = "- all HTTPRoute+GRPCRoute 0:";
    let none = "protocol: HTTP, backendRef: {name: none, port: 1}";
    let foreign = "protocol: HTTP, backendRef: {name: authz, namespace: x, port: 9000}";
    let extension = "{type: ExtensionRef, extensionRef: {group: example.com, kind: Wasm, name: w}}";
    for (filters, conditions, message) in [
        (
            extension.to_owned(),
            "Accepted=false(UnsupportedValue) ResolvedRefs=false(InvalidListenerFilterRef)",
            "filters.requests[0].type: no ExtensionRef is supported, and kind \"Wasm\" is unknown",
        ),
        (
            "{type: CORS}".to_owned(),
            "Accepted=false(UnsupportedValue) ResolvedRefs",
            "filters.requests[0].type: \"CORS\" is not supported at a listener",
        ),
        (
            [filter(HTTP), filter(&format!("{HTTP}, http: {{allowedResponseHeaders: [Host]}}"))].join(", "),
            "Accepted=false(InvalidListenerFilter) ResolvedRefs",
            "filters.requests[1].externalAuth.http.allowedResponseHeaders[0]: \"Host\"",
        ),
        (
            filter("protocol: HTTP"),
            "Accepted=false(InvalidListenerFilter) ResolvedRefs",
            "filters.requests[0].externalAuth.backendRef: is missing",
        ),
        (
            filter(none),
            "Accepted ResolvedRefs=false(InvalidListenerFilterRef)",
            "filters.requests[0].externalAuth.backendRef.name: Service default/none does not exist",
        ),
        (
            filter(foreign),
            "Accepted ResolvedRefs=false(RefNotPermitted)",
            "filters.requests[0].externalAuth.backendRef.namespace: \"x\"",
        ),
    ] {
        let manifests = [edge(&listener("", &filters)), AUTHZ.to_owned()];
        let found = statuses(&manifests);
        let expected = format!("{status} {conditions} Programmed=false(Invalid)");
        assert!(found.contains(&expected), "{filters}: {found:#?}");
        let told = problems(&store(&manifests[..1]));
        let end = "; requests of the listener receive 503";
        assert!(
            told.iter().any(|told| told.contains(message) && told.ends_with(end)),
            "{filters}: {told:#?}"
        );
        let closed = config(&manifests[..1]).hosts[0].filters.clone().unwrap();
        assert!(closed.refuses.is_some() && closed.filters.is_empty(), "{closed:?}");
    }
}

#[test]
fn listener_with_an_invalid_filter_keeps_its_host_from_less_specific_listeners() {
    let extension = "{type: ExtensionRef, extensionRef: {group: example.com, kind: Wasm, name: w}}";
    let listeners = [listener("admin.test", extension), http("all", 80, "")].join(", ");
    let found = config(&[edge(&listeners), http_route("name: r", "{name: edge}", "", TO_ECHO)]);
    let [closed, open] = &found.hosts[..] else { panic!("{:?}", found.hosts) };
    assert_eq!((closed.host.to_string(), open.host.to_string()), ("admin.test".into(), "*".into()));
    assert!(closed.filters.as_ref().unwrap().refuses.is_some() && open.filters.is_none());
}

#[test]
fn filters_need_a_listener_for_http() {
    let listeners = format!("{{name: x, protocol: TCP, port: 1, filters: {{requests: [{}]}}}}", filter(HTTP));
    let found = statuses(&[edge(&listeners), AUTHZ.to_owned()]);
    assert!(
        found.contains(
            &"- x  0: Accepted=false(InvalidListenerFilter) ResolvedRefs Programmed=false(Invalid)"
                .to_owned()
        ),
        "{found:#?}"
    );
}

#[test]
fn listeners_at_ports_of_flags_with_the_same_host_need_the_same_filters() {
    let options = TranslateOptions { http_ports: vec![80, 8080], ..TranslateOptions::default() };
    let listeners = [listener("", &filter(HTTP)), http("other", 8080, "")].join(", ");
    let translation = translate(&store(&[edge(&listeners)]), &options);
    let told: Vec<String> = translation.problems.iter().map(ToString::to_string).collect();
    assert_problems(
        &told,
        &[
            "spec.listeners[1].hostname: * at port 8080 is already taken by listener all of Gateway default/edge",
        ],
    );
}

#[test]
fn attached_plugins_of_kong_close_all_rules_of_a_route() {
    let route = |annotation: &str| {
        let metadata = format!("name: r, annotations: {{{annotation}}}");
        let rules = format!(
            "{TO_ECHO}, {{matches: [{{path: {{value: /a}}}}], backendRefs: [{{name: echo, port: 80}}]}}"
        );
        [edge(&http("http", 80, "")), http_route(&metadata, "{name: edge}", "", &rules)]
    };
    let closed = route("konghq.com/plugins: key-auth");
    assert!(is_closed(&config(&closed)));
    let told = problems(&store(&closed));
    let expected = "metadata.annotations[konghq.com/plugins]: attaches plugins of Kong";
    assert!(told.iter().any(|told| told.contains(expected)), "{told:#?}");
    let status = statuses(&closed);
    assert!(
        status.contains(&"HTTPRoute r at edge *: Accepted=false(UnsupportedValue) ResolvedRefs".to_owned()),
        "{status:#?}"
    );
    assert!(!is_closed(&config(&route("konghq.com/strip-path: \"true\""))));
}
